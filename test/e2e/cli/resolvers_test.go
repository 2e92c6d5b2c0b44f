package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/test/testenv"
)

var _ = Describe("where two people have to say what happened", Ordered, func() {
	var s *cliStage
	var second testenv.User
	var operator *testenv.OperatorProcess

	BeforeAll(func(ctx SpecContext) {
		s = newCLIStage()
		second = testenv.User{Name: "ruth@" + s.namespace + ".example.com"}
		Expect(env.Grant(ctx, s.namespace, "ctrlrun-resolver", second)).To(Succeed())
		policy := &v1alpha1.ActionPolicy{}
		Expect(json.Unmarshal([]byte(`{"metadata":{"name":"payouts"},"spec":{"actions":{"stripe.payout":{"effect":"payout:{payout_id}","decision":"allow","resolutionsRequired":2}}}}`), policy)).To(Succeed())
		policy.Namespace = s.namespace
		Expect(env.Admin().Create(ctx, policy)).To(Succeed())
		operator = startOperator(ctx)
	})
	AfterEach(reportOperatorLog)

	// unknown is a payout of which nobody knows how it ended.
	unknown := func(id string) (name string) {
		GinkgoHelper()
		r := s.run(s.agent, "run", "stripe.payout", "payout_id="+id, "--", "sh", "-c", "exit 1")
		Expect(r.Code).To(Equal(6), r.Stderr)
		return action.EffectName("payout:" + id)
	}
	resolutions := func(ctx SpecContext) int {
		GinkgoHelper()
		list := &v1alpha1.ResolutionList{}
		Expect(env.Admin().List(ctx, list, client.InNamespace(s.namespace))).To(Succeed())
		return len(list.Items)
	}

	It("takes nobody's statement for that of another whose name is spelt alike", func(ctx SpecContext) {
		alike := testenv.User{Name: strings.ToUpper(s.resolver.Name)}
		Expect(env.Grant(ctx, s.namespace, "ctrlrun-resolver", alike)).To(Succeed())
		name, before := unknown("alike"), resolutions(ctx)
		for i, u := range []testenv.User{s.resolver, alike} {
			r := s.run(u, "resolve", name, "--committed", "--reason", "seen", "--yes")
			Expect(r.Code).To(Equal([]int{5, 0}[i]), r.Stderr)
		}
		Expect(resolutions(ctx)).To(Equal(before + 2))
	})

	It("records the first, and says so by its exit code, however often", func(ctx SpecContext) {
		name, before := unknown("p1"), resolutions(ctx)
		Expect(s.run(s.resolver, "effects", "-o", "wide").Stdout).To(And(ContainSubstring("PEOPLE"), MatchRegexp(name+` .* 2\n`)))
		Expect(s.run(s.resolver, "effects", "--state", "Ambiguous", "-o", "jsonl").Stdout).To(ContainSubstring(`"resolutionsRequired":2`))
		for range 2 {
			r := s.run(s.resolver, "resolve", name, "--not-executed", "--reason", "not in the log", "--evidence", "https://example.com/log", "--yes")
			Expect(r.Code).To(Equal(5), r.Stderr)
			Expect(r.Stdout).To(Equal("recorded: " + name + " NotExecuted: 1 of 2 people say NotExecuted. Somebody else has to say NotExecuted too before it is settled; until then the effect stays Ambiguous.\n"))
			Expect(r.Stderr).To(ContainSubstring("effect " + name + " is not settled yet; who has said what so far: kubectl ctrlrun inspect effect/" + name + " -n " + s.namespace))
			Expect(resolutions(ctx)).To(Equal(before + 1))
		}
		r := s.run(s.agent, "run", "stripe.payout", "payout_id=p1", "--", "true")
		Expect(r.Code).To(Equal(6), r.Stderr)

		By("showing who has said what so far")
		r = s.run(s.view, "inspect", "--key", "payout:p1")
		Expect(r.Stdout).To(And(
			MatchRegexp(`Resolvers: +2 people have to say the same`),
			MatchRegexp(`RESOLVER +SAYS +COUNTS +SINCE +REASON +EVIDENCE\n`),
			MatchRegexp(regexp.QuoteMeta(s.resolver.Name)+` +not executed +with others: MorePeopleRequired +\S+ +not in the log +https://example.com/log\n`)))
		Expect(r.Stderr).To(ContainSubstring("1 of 2 people say NotExecuted"))
		var inspected struct{ Resolutions []v1alpha1.Resolution }
		Expect(json.Unmarshal([]byte(s.run(s.view, "inspect", "--key", "payout:p1", "-o", "json").Stdout), &inspected)).To(Succeed())
		Expect(inspected.Resolutions).To(HaveLen(1))
		Expect(inspected.Resolutions[0].Spec.Resolver).To(Equal(s.resolver.Name))
		Expect(s.run(second, "resolve", name, "--committed", "--reason", "x", "--dry-run=client").Stderr).To(MatchRegexp(`Said: +` + regexp.QuoteMeta(s.resolver.Name) + `: not executed: not in the log`))
	})

	It("takes answers of a file, of which some settle and some are recorded", func() {
		first, other := action.EffectName("payout:p1"), unknown("p2")
		file := func(name, text string) string {
			path := filepath.Join(s.dir, name)
			Expect(os.WriteFile(path, []byte(text), 0o600)).To(Succeed())
			return path
		}
		answers := "- key: payout:p1\n  result: not-executed\n  reason: asked the provider\n  evidence: https://example.com/ticket\n- key: payout:p2\n  result: committed\n  reason: the provider shows it\n"
		r := s.run(second, "resolve", "-f", file("answers.yaml", answers), "--yes")
		Expect(r.Code).To(Equal(5), r.Stderr)
		Expect(r.Stdout).To(And(ContainSubstring("resolved: "+first+" NotExecuted\n"), ContainSubstring("recorded: "+other+" Committed: 1 of 2 people say Committed.")))
		Expect(r.Stderr).To(And(ContainSubstring("1 resolved now, 0 already resolved, 1 recorded, 0 not resolved"),
			ContainSubstring("1 answer recorded, and others have to say the same: line 5")))

		By("and again, of which one is done and one still waits")
		r = s.run(second, "resolve", "-f", filepath.Join(s.dir, "answers.yaml"), "--yes")
		Expect(r.Code).To(Equal(5), r.Stderr)
		Expect(r.Stderr).To(ContainSubstring("0 resolved now, 1 already resolved, 1 recorded, 0 not resolved"))

		r = s.run(s.resolver, "resolve", "-f", file("more.yaml", "- {key: 'payout:p2', result: committed, reason: so does mine}\n"), "--yes")
		Expect(r.Code).To(Equal(0), r.Stderr)
		Expect(r.Stdout).To(Equal("resolved: " + other + " Committed\n"))
		r = s.run(s.view, "inspect", "--key", "payout:p1")
		Expect(r.Stdout).To(And(MatchRegexp(`State: +Failed`), MatchRegexp(`Resolved by: +`+regexp.QuoteMeta(s.resolver.Name)), MatchRegexp(`Resolved by: +`+regexp.QuoteMeta(second.Name))))
		r = s.run(s.view, "receipts", "--effect", "payout:p1")
		Expect(r.Code).To(Equal(0), r.Stderr)
		// Times have whole seconds: who comes first of two in one is by uid.
		Expect(r.Stdout).To(And(MatchRegexp(`Resolved: .* not executed by \S+: ".*", evidence \S+, and by \S+: ".*", evidence \S+ \(receipt \d+\)\n`),
			ContainSubstring(`by `+s.resolver.Name+`: "not in the log"`), ContainSubstring(`by `+second.Name+`: "asked the provider"`)))
	})

	It("settles nothing while they say different things, and lets whoever erred say the other", func() {
		name := unknown("p3")
		r := s.run(s.resolver, "resolve", name, "--committed", "--reason", "I believe so", "--yes")
		Expect(r.Code).To(Equal(5), r.Stderr)
		r = s.run(second, "resolve", name, "--not-executed", "--reason", "not in the log", "--evidence", "https://example.com/log", "--yes")
		Expect(r.Code).To(Equal(5), r.Stderr)
		Expect(r.Stdout).To(ContainSubstring("1 of 2 people say NotExecuted. 1 says Committed."))
		r = s.run(s.resolver, "resolve", name, "--not-executed", "--reason", "I was wrong", "--evidence", "https://example.com/log", "--yes")
		Expect(r.Code).To(Equal(0), r.Stderr)
		Expect(r.Stdout).To(Equal("resolved: " + name + " NotExecuted\n"))
		r = s.run(s.agent, "run", "stripe.payout", "payout_id=p3", "--", "true")
		Expect(r.Code).To(Equal(0), r.Stderr)
	})

	It("lets whoever errs twice have the last word, though nobody judges meanwhile", func(ctx SpecContext) {
		name, before := unknown("p4"), resolutions(ctx)
		Expect(operator.Pause()).To(Succeed())
		for i, result := range []string{"--not-executed", "--committed", "--not-executed"} {
			process, wait := s.process(s.command(s.resolver, "resolve", name, result, "--reason", "seen", "--evidence", "https://example.com/log", "--yes"))
			Eventually(func() int { return resolutions(ctx) }).WithTimeout(20 * time.Second).Should(Equal(before + i + 1))
			Expect(process.Signal(syscall.SIGINT)).To(Succeed())
			Expect(wait().Code).To(Equal(5)) // stated, and not judged
		}
		Expect(operator.Resume()).To(Succeed())
		r := s.run(s.resolver, "resolve", name, "--not-executed", "--reason", "seen", "--evidence", "https://example.com/log", "--yes")
		Expect(r.Code).To(Equal(5), r.Stderr)
		Expect(r.Stdout).To(ContainSubstring("1 of 2 people say NotExecuted. Somebody else has to"))
		Expect(resolutions(ctx)).To(Equal(before + 3))
		r = s.run(second, "resolve", name, "--not-executed", "--reason", "nor I", "--evidence", "https://example.com/log", "--yes")
		Expect(r.Code).To(Equal(0), r.Stderr)
	})
})
