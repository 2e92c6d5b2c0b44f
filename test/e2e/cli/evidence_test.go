package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/santhosh-tekuri/jsonschema/v6"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/test/testenv"
)

// ambiguousEffects is how many effects an outage leaves to somebody in the suite.
const ambiguousEffects = 300

// line is one line of `effects -o jsonl`.
type line map[string]any

func (s *cliStage) write(name string, lines []line) string {
	GinkgoHelper()
	var b bytes.Buffer
	for _, l := range lines {
		text, err := json.Marshal(l)
		Expect(err).NotTo(HaveOccurred())
		b.Write(append(text, '\n'))
	}
	path := filepath.Join(s.dir, name)
	Expect(os.WriteFile(path, b.Bytes(), 0o600)).To(Succeed())
	return path
}

func linesOf(text string) []line {
	GinkgoHelper()
	var lines []line
	for row := range strings.Lines(text) {
		var l line
		Expect(json.Unmarshal([]byte(row), &l)).To(Succeed(), row)
		lines = append(lines, l)
	}
	return lines
}

// unknown executes n refunds of which nobody knows how they ended.
func (s *cliStage) unknown(ctx context.Context, n int) {
	GinkgoHelper()
	c, _ := s.sdk(s.agent, "")
	ids := make(chan int)
	errs := make(chan error, n)
	var wg sync.WaitGroup
	for range 12 {
		wg.Go(func() {
			for id := range ids {
				_, err := c.Protect(ctx, refundRequest(fmt.Sprint("lost-", id), 5), func(context.Context, client.Execution) (any, error) { return nil, errors.New("the connection broke") })
				var unknown *client.UnknownError
				var ended *client.EndedError
				if !errors.As(err, &unknown) && !errors.As(err, &ended) {
					errs <- fmt.Errorf("refund %d ended with %w", id, err)
				}
			}
		})
	}
	for id := range n {
		ids <- id
	}
	close(ids)
	wg.Wait()
	close(errs)
	for err := range errs {
		Expect(err).NotTo(HaveOccurred())
	}
}

var _ = Describe("the day after an outage", Ordered, func() {
	var s *cliStage

	BeforeAll(func(ctx SpecContext) {
		s = newCLIStage()
		startOperator(ctx)
		start := time.Now()
		s.unknown(ctx, ambiguousEffects)
		AddReportEntry("made ambiguous", fmt.Sprintf("%d effects in %s", ambiguousEffects, time.Since(start).Round(time.Millisecond)))
	}, NodeTimeout(8*time.Minute))

	AfterEach(reportOperatorLog)

	var todo []line

	It("writes what somebody needs to find out what happened", func() {
		start := time.Now()
		r := s.run(s.resolver, "effects", "--state", "Ambiguous", "-o", "jsonl")
		AddReportEntry("effects -o jsonl", time.Since(start).Round(time.Millisecond).String())
		Expect(r.Code).To(Equal(0), r.Stderr)
		todo = linesOf(r.Stdout)
		Expect(todo).To(HaveLen(ambiguousEffects))
		for _, l := range todo {
			name := l["effect"].(string)
			Expect(l["key"]).To(HavePrefix("refund:lost-"))
			Expect(l).To(And(
				HaveKeyWithValue("namespace", s.namespace), HaveKeyWithValue("attempt", BeEquivalentTo(1)), HaveKeyWithValue("actionType", "stripe.refund"),
				HaveKeyWithValue("action", name), HaveKeyWithValue("agent", s.agent.Name), HaveKeyWithValue("state", "Ambiguous"),
				HaveKeyWithValue("cause", "ReportedUnknown"), HaveKey("since"), HaveKeyWithValue("token", Not(BeEmpty())),
				HaveKeyWithValue("receipt", HavePrefix(s.namespace+"-")), HaveKeyWithValue("receiptHash", HavePrefix("sha256:")),
				HaveKeyWithValue("arguments", HaveKeyWithValue("amount", BeEquivalentTo(5)))))
		}
		first := s.action(todo[0]["action"].(string)).Status.ReceiptRef
		Expect(todo[0]).To(And(HaveKeyWithValue("receipt", first.Name), HaveKeyWithValue("receiptHash", first.Hash)))

		By("an effect without a finished Action is found among the receipts")
		settled := s.run(s.view, "effects", "--state", "Committed", "-o", "jsonl")
		Expect(settled.Code).To(Equal(0), settled.Stderr)
		Expect(settled.Stdout).To(BeEmpty())
	})

	It("states nothing as long as one line is wrong", func() {
		for i := range todo {
			todo[i]["result"], todo[i]["reason"] = "not-executed", "not in their log of that night"
			todo[i]["evidence"] = fmt.Sprintf("https://provider.example/log?token=%s", todo[i]["token"])
			if i%3 == 0 {
				todo[i]["result"] = "committed"
			}
		}
		wrong := append([]line{{"effect": todo[0]["effect"], "key": todo[0]["key"], "result": "not-executed", "reason": "r"}}, todo[1:]...)
		r := s.run(s.resolver, "resolve", "-f", s.write("wrong.jsonl", wrong), "--yes")
		Expect(r.Code).To(Equal(1), r.Stderr)
		Expect(r.Stderr).To(ContainSubstring("wrong.jsonl: line 1: "))
		Expect(r.Stdout).To(BeEmpty())

		By("asking before anything is stated, and showing it without")
		r = s.run(s.resolver, "resolve", "-f", s.write("todo.jsonl", todo))
		Expect(r.Code).To(Equal(2), r.Stderr)
		Expect(r.Stderr).To(And(MatchRegexp(`stripe.refund +Committed +100\n`), MatchRegexp(`stripe.refund +NotExecuted +200\n`), ContainSubstring("--yes")))
		r = s.run(s.resolver, "resolve", "-f", filepath.Join(s.dir, "todo.jsonl"), "--dry-run=client")
		Expect(r.Code).To(Equal(0), r.Stderr)
		Expect(strings.Count(r.Stdout, "to be stated")).To(Equal(ambiguousEffects))
		Expect(r.Stderr).To(ContainSubstring("300 to be stated, 0 already resolved, 0 refused"))

		By("refusing somebody who may not resolve")
		r = s.run(s.agent, "resolve", "-f", filepath.Join(s.dir, "todo.jsonl"), "--yes")
		Expect(r.Code).To(Equal(9), r.Stderr)
		Expect(r.Stdout).To(BeEmpty())

		var resolutions v1alpha1.ResolutionList
		Expect(env.Admin().List(context.Background(), &resolutions, kube.InNamespace(s.namespace))).To(Succeed())
		Expect(resolutions.Items).To(BeEmpty())
	})

	It("resolves them all, and goes on where it was stopped", func() {
		By("stating the first hundred, as a run that was stopped did")
		r := s.run(s.resolver, "resolve", "-f", s.write("part.jsonl", todo[:100]), "--yes")
		Expect(r.Code).To(Equal(0), r.Stderr)
		Expect(strings.Count(r.Stdout, "resolved: ")).To(Equal(100))

		By("stating all of them, one of which contradicts what is recorded, and one about something that is not there")
		contradiction := line{}
		for k, v := range todo[1] {
			contradiction[k] = v
		}
		contradiction["result"] = "committed"
		all := append([]line{todo[0], contradiction}, todo[2:]...)
		all = append(all, line{"key": "refund:nobody", "result": "committed", "reason": "r"})
		start := time.Now()
		r = s.run(s.resolver, "resolve", "-f", s.write("all.jsonl", all), "--yes")
		AddReportEntry("resolve -f of 200", time.Since(start).Round(time.Millisecond).String())
		Expect(r.Code).To(Equal(1), r.Stderr)
		Expect(strings.Count(r.Stdout, "\nalready resolved by "+s.resolver.Name+": ") + strings.Count(r.Stdout[:20], "already resolved by ")).To(Equal(99))
		Expect(regexp.MustCompile(`(?m)^resolved: `).FindAllString(r.Stdout, -1)).To(HaveLen(200))
		Expect(r.Stderr).To(And(
			ContainSubstring("line 2: %s: ", todo[1]["effect"]), ContainSubstring("what you state is not what is recorded"),
			ContainSubstring("line 301: "), ContainSubstring("there is no such effect"),
			ContainSubstring("200 resolved now, 99 already resolved, 2 not resolved"), ContainSubstring("2 answers not resolved: lines 2, 301")))

		By("having nothing left to do")
		start = time.Now()
		r = s.run(s.resolver, "resolve", "-f", filepath.Join(s.dir, "todo.jsonl"), "--yes")
		AddReportEntry("resolve -f of what is done", time.Since(start).Round(time.Millisecond).String())
		Expect(r.Code).To(Equal(0), r.Stderr)
		Expect(r.Stderr).To(ContainSubstring("0 resolved now, 300 already resolved, 0 not resolved"))
		Expect(s.run(s.resolver, "effects", "--state", "Ambiguous", "-o", "jsonl").Stdout).To(BeEmpty())
		r = s.run(s.view, "receipts", "verify")
		Expect(r.Code).To(Equal(0), r.Stderr)
	})

	It("counts all of it", func(ctx SpecContext) {
		By("something that waits")
		r := s.run(s.agent, "propose", "stripe.refund", "payment_id=waits", "amount:=2000")
		Expect(r.Code).To(Equal(0), r.Stderr)
		s.awaiting(refundName("waits"))

		start := time.Now()
		r = s.run(s.view, "stats", "-o", "json")
		AddReportEntry("stats", time.Since(start).Round(time.Millisecond).String())
		Expect(r.Code).To(Equal(0), r.Stderr)
		var got struct {
			Schema      string
			Namespace   string
			Actions     int
			Results     map[string]int
			Ambiguous   map[string]int
			Resolutions struct{ Committed, NotExecuted int }
			Rows        []struct {
				Name      string
				Ambiguous int
			}
			Waiting          map[string]int
			AmbiguousEffects *int
		}
		Expect(json.Unmarshal([]byte(r.Stdout), &got)).To(Succeed())
		Expect(got.Schema).To(Equal("ctrlrun.dev/stats/v1alpha1"))
		Expect(got.Namespace).To(Equal(s.namespace))
		Expect(got.Actions).To(Equal(ambiguousEffects))
		Expect(got.Results).To(Equal(map[string]int{"committed": 0, "failed": 0, "ambiguous": 300, "denied": 0, "expired": 0, "blocked": 0}))
		Expect(got.Ambiguous).To(Equal(map[string]int{"reported_unknown": 300}))
		Expect(got.Resolutions.Committed).To(Equal(100))
		Expect(got.Resolutions.NotExecuted).To(Equal(200))
		Expect(got.Rows).To(HaveLen(1))
		Expect(got.Rows[0].Ambiguous).To(Equal(300))
		Expect(got.Waiting).To(Equal(map[string]int{"Pending": 0, "AwaitingApproval": 1, "Claimable": 0, "Admitted": 0}))

		Expect(got.AmbiguousEffects).To(HaveValue(Equal(0)))
		committed := linesOf(s.run(s.view, "effects", "--state", "Committed", "-o", "jsonl").Stdout)
		Expect(committed).To(HaveLen(100))
		Expect(committed).To(HaveEach(HaveKeyWithValue("arguments", HaveKeyWithValue("amount", BeEquivalentTo(5)))))

		text := s.run(s.view, "stats", "--by", "agent")
		Expect(text.Code).To(Equal(0), text.Stderr)
		Expect(text.Stdout).To(And(
			MatchRegexp(`Actions: +300\n`), MatchRegexp(`ambiguous: +300 +\(reported_unknown 300\)\n`), MatchRegexp(`Resolutions: +300 +\(not executed 200, committed 100\)\n`), MatchRegexp(`Ambiguous now: +0 effects\n`),
			ContainSubstring("Not counted: actions that have not ended, which have no receipt. Now there are 1: 1 AwaitingApproval."), ContainSubstring(s.agent.Name)))

		By("a window")
		late := s.run(s.view, "stats", "--since", time.Now().Add(time.Hour).Format(time.RFC3339), "-o", "json")
		Expect(late.Code).To(Equal(0), late.Stderr)
		Expect(json.Unmarshal([]byte(late.Stdout), &got)).To(Succeed())
		Expect(got.Actions).To(Equal(0))
		Expect(json.Unmarshal([]byte(s.run(s.view, "stats", "--since", "1h", "-o", "json").Stdout), &got)).To(Succeed())
		Expect(got.Actions).To(Equal(ambiguousEffects))

		By("all namespaces, for somebody who may read them")
		Expect(s.run(s.view, "stats", "-A").Stdout).To(HavePrefix("Receipts of all namespaces"))
		Expect(s.run(s.resolver, "stats", "-A").Code).To(Equal(9))
	})

	It("says what another policy would have decided, and writes nothing", func(ctx SpecContext) {
		before := &v1alpha1.ActionPolicy{}
		Expect(env.Admin().Get(ctx, kube.ObjectKey{Namespace: s.namespace, Name: "cli"}, before)).To(Succeed())
		proposed := filepath.Join(s.dir, "proposed.yaml")
		Expect(os.WriteFile(proposed, []byte(`apiVersion: ctrlrun.dev/v1alpha1
kind: ActionPolicy
metadata: {name: cli}
spec:
  actions:
    stripe.refund:
      effect: "r:{payment_id}"
      rules:
      - when: {amount_lte: 4}
        decision: allow
      - decision: approve
`), 0o600)).To(Succeed())
		start := time.Now()
		r := s.run(s.view, "policy", "diff", "-f", proposed, "--exit-code")
		AddReportEntry("policy diff", time.Since(start).Round(time.Millisecond).String())
		Expect(r.Code).To(Equal(1), r.Stderr)
		Expect(r.Stdout).To(And(
			ContainSubstring("300 receipts of namespace %s evaluated again: 300 decisions change, 0 the same", s.namespace), ContainSubstring("300 allow -> approve"),
			ContainSubstring(`ATTENTION: the effect template of stripe.refund changes from "refund:{payment_id}" to "r:{payment_id}": 100 keys that are committed no longer block`),
			ContainSubstring("ATTENTION: iam.grant is in force and not in these policies")))
		Expect(s.run(s.view, "policy", "diff", "-f", proposed, "--last", "7").Stdout).To(ContainSubstring("7 decisions change"))

		By("without a cluster, from an export")
		exported := filepath.Join(s.dir, "receipts.jsonl")
		Expect(os.WriteFile(exported, []byte(s.run(s.view, "receipts", "export").Stdout), 0o600)).To(Succeed())
		cmd := s.command(s.view, "policy", "diff", "-f", proposed, "-r", exported)
		cmd.Env = append(cmd.Env, "KUBECONFIG=/nonexistent")
		_, wait := s.process(cmd)
		offline := wait()
		Expect(offline.Code).To(Equal(0), offline.Stderr)
		Expect(offline.Stdout).To(ContainSubstring("300 decisions change"))

		after := &v1alpha1.ActionPolicy{}
		Expect(env.Admin().Get(ctx, kube.ObjectKey{Namespace: s.namespace, Name: "cli"}, after)).To(Succeed())
		Expect(after.ResourceVersion).To(Equal(before.ResourceVersion))

		By("somebody who may not read policies and effects is told what is missing")
		r = s.run(s.resolver, "policy", "diff", "-f", proposed)
		Expect(r.Code).To(Equal(0), r.Stderr)
		Expect(r.Stderr).To(ContainSubstring("the policies in force are not visible to you"))
		Expect(r.Stdout).To(ContainSubstring("ATTENTION: the effect template of stripe.refund changes: "))
	})

	It("shows an action in order, in a document with a schema", func(ctx SpecContext) {
		schema := inspectionSchema()
		inspected := func(args ...string) (string, map[string]any) {
			GinkgoHelper()
			r := s.run(s.view, append([]string{"inspect"}, append(args, "-o", "json")...)...)
			Expect(r.Code).To(Equal(0), r.Stderr)
			value, err := jsonschema.UnmarshalJSON(strings.NewReader(r.Stdout))
			Expect(err).NotTo(HaveOccurred())
			Expect(schema.Validate(value)).To(Succeed(), r.Stdout)
			var got map[string]any
			Expect(json.Unmarshal([]byte(r.Stdout), &got)).To(Succeed())
			return r.Stdout, got
		}
		types := func(document map[string]any) []string {
			var words []string
			for _, e := range document["events"].([]any) {
				words = append(words, e.(map[string]any)["type"].(string))
			}
			return words
		}

		By("one that waits")
		_, waiting := inspected(refundName("waits"))
		Expect(waiting["receipt"]).To(BeNil())
		Expect(waiting["effect"]).To(BeNil())
		Expect(types(waiting)).To(Equal([]string{"ACTION_PROPOSED", "POLICY_EVALUATED", "APPROVAL_REQUESTED"}))
		asked := s.awaiting(refundName("waits"))
		Expect(s.run(s.other, "approve", asked.Name, "--yes", "--hash", asked.Status.ActionHash, "--reason", "I looked").Code).To(Equal(0))
		_, waiting = inspected(refundName("waits"))
		Expect(waiting["approvals"]).To(HaveLen(1))

		By("one that ended")
		name := todo[0]["action"].(string)
		Eventually(func() []string { _, x := inspected(name); return types(x) }).WithTimeout(20 * time.Second).Should(Equal([]string{
			"ACTION_PROPOSED", "POLICY_EVALUATED", "EFFECT_RESERVED", "EXECUTION_STARTED", "EXECUTION_AMBIGUOUS", "EFFECT_RESOLVED",
		}))
		_, byKey := inspected("--key", todo[0]["key"].(string))
		_, finished := inspected("action/" + name)
		Expect(byKey).To(Equal(finished))
		Expect(finished["receipt"].(map[string]any)["result"]).To(Equal("ambiguous"))
		Expect(finished["reduced"]).To(BeFalse())
		text := s.run(s.view, "inspect", "action/"+name)
		Expect(text.Stdout).To(And(
			MatchRegexp(`(?m)^1 +20\S+Z +ACTION_PROPOSED +action_type=stripe.refund agent=\S+$`), MatchRegexp(`(?m)^6 +20\S+Z +EFFECT_RESOLVED .*resolver=`+regexp.QuoteMeta(s.resolver.Name)),
			MatchRegexp(`Result: +ambiguous, 20`)))

		By("what its agent may not read is said to be hidden, and is no error")
		hidden := s.run(s.agent, "inspect", "action/"+name, "-o", "json")
		Expect(hidden.Code).To(Equal(0), hidden.Stderr)
		var agents struct{ Hidden []string }
		Expect(json.Unmarshal([]byte(hidden.Stdout), &agents)).To(Succeed())
		for _, member := range agents.Hidden {
			Expect(hidden.Stderr).To(ContainSubstring(member + ": not visible to you"))
		}

		By("one that is gone")
		gone := s.action(name)
		gone.Finalizers = nil
		Expect(env.Admin().Update(ctx, gone)).To(Succeed())
		Expect(env.Admin().Delete(ctx, gone)).To(Succeed())
		_, reduced := inspected("action/" + name)
		Expect(reduced["action"]).To(BeNil())
		Expect(reduced["reduced"]).To(BeTrue())
		Expect(types(reduced)).To(Equal([]string{"ACTION_PROPOSED", "EXECUTION_STARTED", "EXECUTION_AMBIGUOUS", "EFFECT_RESOLVED"}))
		r := s.run(s.view, "inspect", "action/"+name)
		Expect(r.Stderr).To(ContainSubstring("a reduced timeline"))
		Expect(r.Stdout).To(ContainSubstring("EXECUTION_AMBIGUOUS"))

		By("one that nobody knows")
		r = s.run(s.view, "inspect", "nobody", "-o", "json")
		Expect(r.Code).To(Equal(1))
		Expect(r.Stdout).To(BeEmpty())
	})
})

// inspectionSchema is the JSON Schema in docs/inspection.md.
func inspectionSchema() *jsonschema.Schema {
	GinkgoHelper()
	page, err := os.ReadFile(filepath.Join(env.Root, "docs", "inspection.md"))
	Expect(err).NotTo(HaveOccurred())
	block := regexp.MustCompile("(?s)```json\n(.*?)```").FindSubmatch(page)
	Expect(block).To(HaveLen(2))
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(block[1]))
	Expect(err).NotTo(HaveOccurred())
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	Expect(compiler.AddResource("inspection.json", document)).To(Succeed())
	schema, err := compiler.Compile("inspection.json")
	Expect(err).NotTo(HaveOccurred())
	return schema
}

var _ = Describe("kubectl ctrlrun stats without an operator", func() {
	It("prints zeros for a chain that has not begun, and refuses to count what it cannot interpret", func(ctx SpecContext) {
		s := newCLIStage()
		r := s.run(s.view, "stats")
		Expect(r.Code).To(Equal(0), r.Stderr)
		Expect(r.Stdout).To(And(MatchRegexp(`Receipts of namespace \S+: none\n`), MatchRegexp(`Actions: +0\n`), ContainSubstring("There are none now.")))
		root := testenv.User{Name: "root@" + s.namespace, Groups: []string{"system:masters"}}
		Expect(s.run(root, "stats", "-n", "nowhere").Stderr).To(ContainSubstring(`there is no namespace "nowhere"`))
		Expect(s.run(testenv.User{Name: "nobody@" + s.namespace}, "stats").Code).To(Equal(9))

		By("a receipt of a later schema")
		entry, err := receipt.Build(receipt.Start(), map[string]any{"kind": "action", "subject_uid": "x", "ordinal": int64(0)})
		Expect(err).NotTo(HaveOccurred())
		document := strings.Replace(entry.Document, receipt.Schema, "ctrlrun.dev/receipt/v2", 1)
		sum := sha256.Sum256([]byte(document))
		object := &v1alpha1.Receipt{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: s.namespace + "-000000000001"},
			Spec:       v1alpha1.ReceiptSpec{Seq: 1, Hash: "sha256:" + hex.EncodeToString(sum[:]), Document: document, Kind: "action"},
		}
		Expect(env.Client(testenv.OperatorUser()).Create(ctx, object)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			// Other specs read the receipts of all namespaces. One can be deleted once its namespace goes.
			Expect(env.Admin().Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}})).To(Succeed())
			Eventually(func() error { return env.Admin().Delete(ctx, object) }).WithTimeout(20 * time.Second).Should(Succeed())
		}, NodeTimeout(30*time.Second))
		r = s.run(s.view, "stats")
		Expect(r.Code).To(Equal(1), r.Stderr)
		Expect(r.Stdout).To(BeEmpty())
		Expect(r.Stderr).To(And(ContainSubstring("receipt 1 cannot be interpreted"), ContainSubstring(s.namespace), ContainSubstring("newer version")))
	})
})
