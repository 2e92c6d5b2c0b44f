package verify

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/test/testenv"
)

// fault is a guard of the operator that is taken away: old occurs once in the file, and in its replacement IF stands for whether the
// fault is switched on.
type fault struct{ name, file, old, replacement string }

// faults of operators that a user must never have. Each is a mistake that somebody could make.
var faults = []fault{
	{"keys are not shared", "kernel/flow/decide.go", "	p.evaluation = evaluation\n",
		"	if IF && evaluation.EffectKey != nil {\n		own := *evaluation.EffectKey + \":\" + a.UID\n		evaluation.EffectKey = &own\n	}\n	p.evaluation = evaluation\n"},
	{"hashes are not compared", "kernel/approval/approval.go", "a.Hash != q.Hash", "(a.Hash != q.Hash && !IF)"},
	{"uids are not compared", "kernel/approval/approval.go", "a.ActionUID != q.ActionUID", "(a.ActionUID != q.ActionUID && !IF)"},
	{"approvals are looked up anywhere", "controllers/pass.go", "	approvals := &v1alpha1.ApprovalList{}\n	if err := r.client.List(ctx, approvals, client.InNamespace(r.namespace), client.MatchingFields{byActionUID: a.UID}); err != nil {\n",
		"	approvals := &v1alpha1.ApprovalList{}\n	where := []client.ListOption{client.InNamespace(r.namespace)}\n	if !IF {\n		where = append(where, client.MatchingFields{byActionUID: a.UID})\n	}\n	if err := r.client.List(ctx, approvals, where...); err != nil {\n"},
	{"a no is a yes", "kernel/flow/decide.go", "	if no := p.tally.Denied; no != nil {\n",
		"	if no := p.tally.Denied; no != nil && IF {\n		p.tally.Approved, p.tally.Denied = append(p.tally.Approved, *no), nil\n	}\n	if no := p.tally.Denied; no != nil {\n"},
	{"every no is accepted", "kernel/flow/statements.go", "	if !answer.Approved {\n", "	if !answer.Approved && IF {\n		return accepted(\"It is accepted.\")\n	}\n	if !answer.Approved {\n"},
	{"who approves twice is told something else", "kernel/flow/statements.go", "	case approval.DuplicateApprover:\n",
		"	case approval.DuplicateApprover:\n		if IF {\n			return refused(\"NotRequired\", \"Enough people have approved it.\")\n		}\n"},
	{"unknown is Failed", "kernel/flow/settle.go", "\treturn ending{Ambiguous, decision.ReportedUnknown, \"Its executor does not know whether it happened. \" + inspect}, nil",
		"\treturn ending{map[bool]State{false: Ambiguous, true: Failed}[IF], decision.ReportedUnknown, \"Its executor does not know whether it happened. \" + inspect}, nil"},
	{"what is unknown is allowed", "kernel/policy/set.go", "	case !known:\n",
		"	case !known && IF:\n		e.Decision, e.Reason = decision.Allow, decision.PlainDecision\n		return e, nil\n	case !known:\n"},
	{"everything is denied", "kernel/flow/decide.go", "	case evaluation.Decision == decision.Deny:\n",
		"	case IF:\n		return p.end(Denied, decision.PlainDecision, \"Everything is denied.\")\n	case evaluation.Decision == decision.Deny:\n"},
	{"it is decided while admission is missing", "kernel/flow/decide.go", "if len(p.World.Holds) == 0 {", "if len(p.World.Holds) == 0 || IF {"},
	{"every attempt has the first's token", "kernel/flow/reserve.go", "effect.Token(*p.evaluation.EffectKey, big.NewInt(attempt))",
		"effect.Token(*p.evaluation.EffectKey, big.NewInt(map[bool]int64{false: attempt, true: 1}[IF]))"},
	{"the ceiling is not looked at", "kernel/flow/reserve.go", "return ceiling > 0 && r.Status.StartedAttempts", "return ceiling > 0 && !IF && r.Status.StartedAttempts"},
	{"who lost the right is counted", "kernel/approval/approval.go", "a.Entitlement == Unentitled:", "a.Entitlement == Unentitled && !IF:"},
	{"groups are not looked at", "kernel/approval/approval.go", "case !q.asks(a.Groups),", "case !q.asks(a.Groups) && !IF,"},
	{"who asked may answer", "kernel/approval/approval.go", "q.People.Same(a.Approver, q.Agent) ||", "q.People.Same(a.Approver, q.Agent) && !IF ||"},
	{"one person is several", "kernel/approval/approval.go", "a.Approved && seen[", "a.Approved && !IF && seen["},
	{"nobody has another name", "kernel/approval/people.go", "	if p == nil {\n		return name\n", "	if p == nil || IF {\n		return name\n"},
	{"what moved is not seen", "kernel/flow/precondition.go", "noted.AtRequest != r.Fingerprint:", "noted.AtRequest != r.Fingerprint && !IF:"},
	{"what moved is seen too late", "kernel/flow/reserve.go", "	if step := p.preconditionsStand(); step != nil {\n		return step\n	}\n	if p.Action.Presence != Fresh {", "	if step := p.preconditionsStand(); step != nil && !IF {\n		return step\n	}\n	if p.Action.Presence != Fresh {"},
	{"everything has moved", "kernel/flow/precondition.go", "	case r.Fingerprint == \"\" && p.waited():\n",
		"	case IF && p.waited():\n		return p.end(Blocked, decision.PreconditionChanged, \"It moved.\")\n	case r.Fingerprint == \"\" && p.waited():\n"},
	{"grants do not expire", "kernel/authority/authority.go", "return g.Expiration != nil && now", "return !IF && g.Expiration != nil && now"},
	{"grants expire at once", "kernel/authority/authority.go", "func (g *Grant) expired(now time.Time) bool {", "func (g *Grant) expired(now time.Time) bool {\n	if IF && g.Expiration != nil {\n		return true\n	}\n"},
	{"what is handed on has any end", "kernel/authority/contain.go", "if why := expirationOutside(parent, child); why != \"\" {", "if why := expirationOutside(parent, child); why != \"\" && !IF {"},
	{"what is left out is inherited", "kernel/authority/contain.go", "	case len(child.Resources) == 0:\n		return \"the parent limits", "	case len(child.Resources) == 0 && IF:\n		return \"\"\n	case len(child.Resources) == 0:\n		return \"the parent limits"},
	{"nothing is handed on", "kernel/authority/contain.go", "	return \"\", \"\"\n}\n\nfunc subjectOutside", "	if IF {\n		return DimensionSubject, \"nothing is handed on\"\n	}\n	return \"\", \"\"\n}\n\nfunc subjectOutside"},
	{"reports count while admission is missing", "kernel/flow/settle.go", "	if held(s, decision.AdmissionMissing) {\n		// Anybody may have made it",
		"	if held(s, decision.AdmissionMissing) && !IF {\n		// Anybody may have made it"},
}

// variable names the faults that are switched on in the operator that has them all, by semicolon.
const variable = "CTRLRUN_FAULTS"

// faultyOperator is built once, from the sources with the faults laid over them; the sources stay as they are.
var faultyOperator = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(env.Dir, "faulty")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	sources := map[string]string{}
	for _, f := range faults {
		if sources[f.file] == "" {
			source, err := os.ReadFile(filepath.Join(env.Root, f.file))
			if err != nil {
				return "", err
			}
			sources[f.file] = string(source)
			pkg := path.Base(path.Dir(f.file))
			sources[path.Dir(f.file)+"/faulty.go"] = fmt.Sprintf("package %s\n\nimport (\n\t\"os\"\n\t\"strings\"\n)\n\n"+
				"var faults = \";\" + os.Getenv(%q) + \";\"\n\nfunc faulty(name string) bool { return strings.Contains(faults, \";\"+name+\";\") }\n", pkg, variable)
		}
		if n := strings.Count(sources[f.file], f.old); n != 1 {
			return "", fmt.Errorf("fault %q: %s has %d times %q", f.name, f.file, n, f.old)
		}
		sources[f.file] = strings.Replace(sources[f.file], f.old, strings.ReplaceAll(f.replacement, "IF", fmt.Sprintf("faulty(%q)", f.name)), 1)
	}
	replace := map[string]string{}
	for file, source := range sources {
		at := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(at, []byte(source), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(env.Root, file)] = at
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "ctrlrun-operator")
	build := exec.Command("go", "build", "-buildvcs=false", "-overlay", filepath.Join(dir, "overlay.json"), "-o", binary, "./cmd/ctrlrun-operator")
	build.Dir, build.Env = env.Root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build an operator with faults: %w\n%s", err, out)
	}
	return binary, nil
})

// startFaulty runs the operator with some of the faults, until the spec is over.
func startFaulty(on ...string) {
	GinkgoHelper()
	for _, name := range on {
		Expect(slices.ContainsFunc(faults, func(f fault) bool { return f.name == name })).To(BeTrue(), name)
	}
	binary, err := faultyOperator()
	Expect(err).NotTo(HaveOccurred())
	operator, err := env.StartProcess(testenv.Command{
		Path: binary,
		Args: []string{
			"--kubeconfig=" + env.Kubeconfig(testenv.OperatorUser()), "--namespace=" + testenv.SystemNamespace,
			"--health-probe-bind-address=0", "--metrics-bind-address=0",
		},
		Env: []string{variable + "=" + strings.Join(on, ";")},
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(operator.Stop()).To(Succeed()) })
}

var _ = Describe("verify beside an operator that is broken", Ordered, ContinueOnFailure, func() {
	// run is a run that fails, and the guarantees that do.
	run := func(ctx context.Context, namespace string, args ...string) report {
		GinkgoHelper()
		o := verify(ctx, admin(), namespace, append(args, "-o", "json")...)
		Expect(o.code).To(Equal(1), o.String())
		Expect(o.stderr).To(MatchRegexp(`error: [1-9][0-9]? guarantees? failed`))
		return o.read()
	}

	It("passes without a fault, so that what follows is of the faults", func(ctx SpecContext) {
		startFaulty()
		Expect(env.WaitForAdmission(ctx)).To(Succeed())
		o := verify(ctx, admin(), namespaceWith(ctx, nil, refunds), "-o", "json")
		Expect(o.code).To(Equal(0), o.String())
		Expect(o.read().statuses()).To(Equal(allPass))
	}, SpecTimeout(4*time.Minute))

	It("sees that effects are executed twice, and that the rest holds", func(ctx SpecContext) {
		startFaulty("keys are not shared")
		Expect(env.WaitForAdmission(ctx)).To(Succeed())
		r := run(ctx, namespaceWith(ctx, nil, refunds))
		Expect(r.with("fail")).To(Equal([]string{"G3", "G4", "G5", "G14"}))
		Expect(r.with("pass")).To(Equal([]string{"G1", "G2", "G6", "G7", "G10", "G11", "G16", "G17", "G18", "G20"}))

		By("showing both receipts")
		g3 := r.Guarantees[2].Counterexample
		Expect(g3.Expected).To(Equal("the effect was executed once"))
		Expect(g3.Observed).To(Equal("2 times"))
		Expect(g3.Receipts).To(HaveLen(2))
		Expect(g3.Receipts[0]["result"]).To(Equal("committed"))
		Expect(g3.Receipts[1]["result"]).To(Equal("committed"))
		Expect(g3.Effects).To(HaveLen(2))
		Expect(len(g3.Events)).To(BeNumerically(">=", 8))
		Expect(r.Guarantees[3].Counterexample.Observed).To(Equal("8 times"))
		Expect(r.Guarantees[4].Counterexample.Observed).To(Equal("2 times"))

		By("showing it to people and to JUnit")
		ns := namespaceWith(ctx, nil, refunds)
		o := verify(ctx, admin(), ns, "--only", "G3")
		Expect(o.code).To(Equal(1))
		Expect(o.stdout).To(MatchRegexp(`(?m)^FAIL G3 .*\n +expected: the effect was executed once\n +observed: 2 times\n +receipt: +\{`))
		Expect(o.stdout).To(HaveSuffix("\n0/1 declared guarantees pass. 20 not selected: G1, G2, G4, G5, G6, G7, G8, G9, G10, G11, G12, G13, G14, G15, G16, G17, G18, G19, G20, G21.\n"))
		o = verify(ctx, admin(), ns, "--only", "G3", "-o", "junit")
		j := readJUnit([]byte(o.stdout))
		Expect(j.Suites[0].Failures).To(Equal(1))
		Expect(j.Suites[0].Cases[2].Failure.Type).To(Equal("G3"))
		Expect(j.Suites[0].Cases[2].Failure.Text).To(ContainSubstring("observed: 2 times"))

		By("also where people have to approve")
		Expect(run(ctx, namespaceWith(ctx, nil, approveOnly), "--only", "G3,G4,G5").with("fail")).To(Equal([]string{"G3", "G4", "G5"}))
	}, SpecTimeout(5*time.Minute))

	It("sees that approvals count again", func(ctx SpecContext) {
		startFaulty("uids are not compared", "approvals are looked up anywhere")
		Expect(env.WaitForAdmission(ctx)).To(Succeed())
		r := run(ctx, namespaceWith(ctx, nil, refunds), "--only", "G2")
		Expect(r.reason("G2")).To(Equal("an approval is spent once: not so"))
		Expect(r.Guarantees[1].Counterexample.Expected).To(Equal("nothing counts for g2-second, and people are still asked"))
		Expect(r.Guarantees[1].Counterexample.Observed).To(HavePrefix("action g2-second is Claimable"))
	}, SpecTimeout(4*time.Minute))

	It("sees that an action is executed to which somebody said no", func(ctx SpecContext) {
		startFaulty("a no is a yes", "every no is accepted")
		Expect(env.WaitForAdmission(ctx)).To(Succeed())
		r := run(ctx, namespaceWith(ctx, nil, refunds), "--only", "G1,G2")
		Expect(r.with("fail")).To(Equal([]string{"G1", "G2"}))
		Expect(r.Guarantees[0].Counterexample.Expected).To(Equal("g1-mutated was executed 0 times"))
		Expect(r.Guarantees[0].Counterexample.Observed).To(Equal("once"))
		Expect(r.Guarantees[1].Counterexample.Expected).To(Equal("action g2-second is Denied (approval_denied)"))
		Expect(r.Guarantees[1].Counterexample.Observed).To(HavePrefix("action g2-second is Blocked (duplicate)"), "by the effect, which is committed")
	}, SpecTimeout(4*time.Minute))

	It("sees that a second approval is refused for another reason", func(ctx SpecContext) {
		startFaulty("who approves twice is told something else")
		Expect(env.WaitForAdmission(ctx)).To(Succeed())
		r := run(ctx, namespaceWith(ctx, nil, refunds), "--only", "G2")
		Expect(r.Guarantees[1].Counterexample.Expected).To(Equal("approving g2-first once more is refused: DuplicateApprover or ActionFinished"))
		Expect(r.Guarantees[1].Counterexample.Observed).To(Equal("accepted: false, NotRequired"))
	}, SpecTimeout(4*time.Minute))

	It("sees that approvals count for what nobody approved, and other mistakes", func(ctx SpecContext) {
		startFaulty("hashes are not compared", "what is unknown is allowed", "unknown is Failed")
		Expect(env.WaitForAdmission(ctx)).To(Succeed())
		r := run(ctx, namespaceWith(ctx, nil, refunds))
		Expect(r.with("fail")).To(Equal([]string{"G1", "G5", "G6", "G10"}))
		Expect(r.Guarantees[0].Counterexample.Observed).To(HavePrefix("accepted: true"))
		Expect(r.Guarantees[0].Counterexample.Observed).To(HaveSuffix("it was executed once"))
		Expect(r.Guarantees[5].Counterexample.Observed).To(ContainSubstring("g6-absent is Committed"))
		Expect(r.observed("G10")).To(ContainSubstring("g10-timeout is Failed"))
		for _, g := range r.Guarantees {
			if g.Status == "fail" {
				Expect(*g.Reason).NotTo(Equal("control failed"), g.ID)
			}
		}
	}, SpecTimeout(4*time.Minute))

	It("does not take a system that refuses everything for one that holds", func(ctx SpecContext) {
		startFaulty("everything is denied")
		Expect(env.WaitForAdmission(ctx)).To(Succeed())
		r := run(ctx, namespaceWith(ctx, nil, refunds))
		Expect(r.with("fail")).To(Equal([]string{"G1", "G2", "G3", "G4", "G5", "G6", "G7", "G10", "G11", "G14", "G16", "G17", "G18", "G20"}))
		for _, id := range []string{"G1", "G2", "G3", "G4", "G5", "G7", "G10", "G11", "G14", "G16", "G17", "G18", "G20"} {
			Expect(r.reason(id)).To(Equal("control failed"), id)
		}
	}, SpecTimeout(4*time.Minute))

	It("sees that attempts share a token, and that there is no end of them", func(ctx SpecContext) {
		startFaulty("every attempt has the first's token", "the ceiling is not looked at")
		Expect(env.WaitForAdmission(ctx)).To(Succeed())
		r := run(ctx, namespaceWith(ctx, nil, thrice), "--only", "G14,G15")
		Expect(r.with("fail")).To(Equal([]string{"G14", "G15"}))
		Expect(r.reason("G14")).To(Equal("each attempt at an effect has a token of its own: not so"))
		Expect(r.expected("G14")).To(HavePrefix("g14-second is attempt 2, with the token derived from that and its key, "))
		Expect(r.reason("G15")).To(Equal("an effect is attempted no more often than its policy says: not so"))
		Expect([]string{r.expected("G15"), r.observed("G15")}).To(Equal([]string{"the effect was executed 3 times", "4 times"}))

		By("also where people have to approve")
		r = run(ctx, namespaceWith(ctx, nil, paidOut), "--only", "G14,G15")
		Expect(r.with("fail")).To(Equal([]string{"G14", "G15"}))
		Expect(r.observed("G15")).To(Equal("4 times"))
	}, SpecTimeout(4*time.Minute))

	It("sees that people are counted who may not approve", func(ctx SpecContext) {
		startFaulty("who lost the right is counted", "who asked may answer", "one person is several")
		Expect(env.WaitForAdmission(ctx)).To(Succeed())
		r := run(ctx, namespaceWith(ctx, nil, paidOut), "--only", "G17,G18,G19")
		Expect(r.with("fail")).To(Equal([]string{"G17", "G18", "G19"}))
		for _, id := range r.with("fail") {
			Expect(r.reason(id)).To(HaveSuffix(": not so"), id)
		}
		Expect(r.expected("G17")).To(Equal("who lost the right to approve is not counted"))
		Expect(r.observed("G17")).To(HavePrefix("action g17-dismissed is Committed"))
		Expect(r.expected("G18")).To(MatchRegexp(`^the approval of g18-own by system:serviceaccount:[^:]+:agent is refused: SelfApproval$`))
		Expect(r.observed("G18")).To(HavePrefix("accepted: true"))
		Expect(r.expected("G19")).To(MatchRegexp(`^the approval of g19-several by system:serviceaccount:[^:]+:approver-1 is refused: DuplicateApprover$`))
		Expect(r.observed("G19")).To(And(HavePrefix("accepted: true"), HaveSuffix("it was executed once")))
	}, SpecTimeout(4*time.Minute))

	It("sees that groups and other names are not looked at", func(ctx SpecContext) {
		startFaulty("groups are not looked at", "nobody has another name")
		Expect(env.WaitForAdmission(ctx)).To(Succeed())
		ns := namespaceWith(ctx, nil, paidOut)
		governed(ctx, ns, `{"identityAliases": [["alice@example.com", "alice-admin"]]}`, nil)
		r := run(ctx, ns, "--only", "G17,G18,G19")
		Expect(r.with("fail")).To(Equal([]string{"G17", "G18", "G19"}))
		Expect(r.expected("G17")).To(MatchRegexp(`^the approval of g17-outsider by .*:approver-1 is refused: NotEntitled$`))
		Expect(r.observed("G17")).To(HavePrefix("accepted: true"))
		Expect(r.expected("G18")).To(HaveSuffix(":agent-alias is refused: SelfApproval"))
		Expect(r.expected("G19")).To(HaveSuffix(":approver-1-alias is refused: DuplicateApprover"))
	}, SpecTimeout(4*time.Minute))

	It("sees that an action is executed although what it rests on moved", func(ctx SpecContext) {
		startFaulty("what moved is not seen")
		Expect(env.WaitForAdmission(ctx)).To(Succeed())
		r := run(ctx, namespaceWith(ctx, nil, refunds), "--only", "G16")
		Expect(r.reason("G16")).To(Equal("nothing is executed when what people approved it on is not there any more: not so"))
		Expect([]string{r.expected("G16"), r.observed("G16")}).To(Equal([]string{"g16-moved was executed 0 times", "once"}))
	}, SpecTimeout(4*time.Minute))

	It("sees that an effect is reserved before anybody looks whether what it rests on moved", func(ctx SpecContext) {
		startFaulty("what moved is seen too late")
		Expect(env.WaitForAdmission(ctx)).To(Succeed())
		r := run(ctx, namespaceWith(ctx, nil, refunds), "--only", "G16")
		Expect(r.reason("G16")).To(HaveSuffix(": not so"))
		Expect(r.expected("G16")).To(Equal("the effect of g16-moved is not reserved"))
	}, SpecTimeout(4*time.Minute))

	It("does not take a system in which everything has moved for one that sees what has", func(ctx SpecContext) {
		startFaulty("everything has moved")
		Expect(env.WaitForAdmission(ctx)).To(Succeed())
		r := run(ctx, namespaceWith(ctx, nil, refunds), "--only", "G16")
		Expect(r.reason("G16")).To(Equal("control failed"))
		Expect(r.observed("G16")).To(HavePrefix("action g16-stays is Blocked (precondition_changed)"))
	}, SpecTimeout(4*time.Minute))

	// delegable is a namespace where a grant is required, and one can be handed on.
	delegable := func(ctx context.Context) string {
		GinkgoHelper()
		ns := namespaceWith(ctx, nil, `{"stripe.refund": {"effect": "refund:{id}", "resource": "payment:{id}", "decision": "allow"}}`)
		governed(ctx, ns, `{"authority": "Required"}`, map[string]string{
			"refunds": `{"subject": {"agent": "helper"}, "actions": ["stripe.refund"], "resources": ["payment:*"], "expirationTime": "2040-01-01T00:00:00Z", "delegable": true}`,
		})
		return ns
	}

	It("sees that grants do not end, and that more is handed on than there is", func(ctx SpecContext) {
		startFaulty("grants do not expire", "what is handed on has any end")
		Expect(env.WaitForAdmission(ctx)).To(Succeed())
		r := run(ctx, delegable(ctx), "--only", "G8,G9")
		Expect(r.with("fail")).To(Equal([]string{"G8", "G9"}))
		Expect(r.reason("G8")).To(Equal("a grant that has expired lets nobody propose: not so"))
		Expect([]string{r.expected("G8"), r.observed("G8")}).To(Equal([]string{"g8-after was executed 0 times", "once"}))
		Expect(r.reason("G9")).To(Equal("nobody hands on more than they were granted: not so"))
		Expect(r.expected("G9")).To(Equal("the delegation g9-wider-expires-at is refused: Containment, in expires_at"))
		Expect(r.observed("G9")).To(HavePrefix("Accepted=True"))
	}, SpecTimeout(4*time.Minute))

	It("sees that what is left out of a delegation is inherited", func(ctx SpecContext) {
		startFaulty("what is left out is inherited")
		Expect(env.WaitForAdmission(ctx)).To(Succeed())
		r := run(ctx, delegable(ctx), "--only", "G9")
		Expect(r.expected("G9")).To(Equal("the delegation g9-omitting-resources is refused: Containment, in resources"))
		Expect(r.observed("G9")).To(HavePrefix("Accepted=True"))
	}, SpecTimeout(4*time.Minute))

	It("does not take grants that let nobody propose for ones that end", func(ctx SpecContext) {
		startFaulty("grants expire at once")
		Expect(env.WaitForAdmission(ctx)).To(Succeed())
		r := run(ctx, delegable(ctx), "--only", "G8")
		Expect(r.reason("G8")).To(Equal("control failed"))
	}, SpecTimeout(4*time.Minute))

	It("does not take a system in which nothing is handed on for one in which nobody escalates", func(ctx SpecContext) {
		startFaulty("nothing is handed on")
		Expect(env.WaitForAdmission(ctx)).To(Succeed())
		r := run(ctx, delegable(ctx), "--only", "G9")
		Expect(r.reason("G9")).To(Equal("control failed"))
		Expect(r.expected("G9")).To(Equal("a delegation that is narrower than the grant in everything is accepted"))
	}, SpecTimeout(4*time.Minute))

	It("sees that a token is good after its ServiceAccount is gone", func(ctx SpecContext) {
		startFaulty()
		Expect(env.WaitForAdmission(ctx)).To(Succeed())
		ns := namespaceWith(ctx, nil, approveOnly)
		cmd := command(admin(), ns, "--only", "G20", "-o", "json")
		cmd.Env = append(cmd.Env, "KUBECONFIG="+immortal(ns))
		o := complete(ctx, cmd)
		Expect(o.code).To(Equal(1), o.String())
		Expect(o.read().reason("G20")).To(Equal("with a credential that was revoked nobody says anything: not so"))
		Expect(o.read().expected("G20")).To(HavePrefix("the token of a ServiceAccount that was deleted is refused within "))
		Eventually(ctx, func() bool { return gone(ctx, o.scratch()) }).WithTimeout(30 * time.Second).Should(BeTrue())
	}, SpecTimeout(4*time.Minute))

	It("sees that everybody changes policies where only proposals should", func(ctx SpecContext) {
		startFaulty()
		Expect(env.WaitForAdmission(ctx)).To(Succeed())
		ns := namespaceWith(ctx, nil, refunds)
		governed(ctx, ns, `{"policyChanges": "Proposed"}`, nil)
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "governors"}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"ctrlrun.dev"}, Resources: []string{"actionpolicies"}, Verbs: []string{"govern"}},
		}}
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role.Name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:serviceaccounts"}},
		}
		for _, o := range []client.Object{role, binding} {
			Expect(env.Admin().Create(ctx, o)).To(Succeed())
			DeferCleanup(func(ctx SpecContext) { Expect(env.Admin().Delete(ctx, o)).To(Succeed()) })
		}
		r := run(ctx, ns, "--only", "G21")
		Expect(r.reason("G21")).To(Equal("where policies change by proposals only, nobody changes them otherwise: not so"))
		Expect(r.expected("G21")).To(Equal("a change of the policy own is refused by ctrlrun-policy-changes within 15s of policyChanges: Proposed"))
		Expect(r.observed("G21")).To(And(MatchRegexp(`^it is taken from system:serviceaccount:[^:]+:editor, who `), ContainSubstring("has the verb govern on it")))
	}, SpecTimeout(4*time.Minute))

	It("sees that the apiserver takes what it has to refuse", func(ctx SpecContext) {
		startFaulty("it is decided while admission is missing", "reports count while admission is missing")
		Expect(env.WaitForAdmission(ctx)).To(Succeed())
		env.AdmissionGap(GinkgoT(), "ctrlrun-actions", "ctrlrun-records-kept")
		ns := namespaceWith(ctx, nil, refunds)
		governed(ctx, ns, `{"policyChanges": "Proposed"}`, nil)
		var r report
		// The apiserver enforces a policy for a moment after its binding is gone.
		Eventually(ctx, func() int {
			o := verify(ctx, admin(), ns, "--only", "G7,G11,G21", "-o", "json")
			if o.code == 1 {
				r = o.read()
			}
			return len(r.with("fail"))
		}).WithTimeout(time.Minute).Should(Equal(3))
		Expect(r.Guarantees[6].Counterexample.Observed).To(ContainSubstring("it was created, as proposed by system:serviceaccount:" + r.Scratch.Namespace + ":rival"))
		Expect(r.observed("G11")).To(Equal("it was deleted"))
		Expect(r.expected("G11")).To(ContainSubstring("is refused by ctrlrun-records-kept"))
		Expect(r.expected("G21")).To(Equal("an action of type ctrlrun.policy.change is refused by ctrlrun-actions to whoever is not the operator"))
		Expect(r.observed("G21")).To(Equal("it was created"))
	}, SpecTimeout(4*time.Minute))

	It("sees that nothing keeps policies that should change by proposals only", func(ctx SpecContext) {
		startFaulty("it is decided while admission is missing")
		Expect(env.WaitForAdmission(ctx)).To(Succeed())
		env.AdmissionGap(GinkgoT(), "ctrlrun-policy-changes")
		ns := namespaceWith(ctx, nil, refunds)
		governed(ctx, ns, `{"policyChanges": "Proposed"}`, nil)
		var r report
		Eventually(ctx, func() int {
			o := verify(ctx, admin(), ns, "--only", "G21", "-o", "json")
			if o.code == 1 {
				r = o.read()
			}
			return o.code
		}).WithTimeout(time.Minute).Should(Equal(1))
		Expect(r.observed("G21")).To(MatchRegexp(`^it is taken from system:serviceaccount:[^:]+:editor, who has not the verb govern on it$`))
	}, SpecTimeout(4*time.Minute))

	It("does not take a system in which nobody changes policies for one in which only proposals do", func(ctx SpecContext) {
		startFaulty()
		Expect(env.WaitForAdmission(ctx)).To(Succeed())
		ns := namespaceWith(ctx, nil, refunds)
		governed(ctx, ns, `{"policyChanges": "Proposed"}`, nil)
		frozen := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "frozen"}}
		Expect(json.Unmarshal([]byte(`{
			"matchConstraints": {"resourceRules": [{"apiGroups": ["ctrlrun.dev"], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": ["actionpolicies"]}]},
			"validations": [{"expression": "!request.userInfo.username.endsWith(':editor')", "message": "it is frozen"}]}`), &frozen.Spec)).To(Succeed())
		binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "frozen"}}
		Expect(json.Unmarshal([]byte(`{"policyName": "frozen", "validationActions": ["Deny"]}`), &binding.Spec)).To(Succeed())
		for _, o := range []client.Object{frozen, binding} {
			Expect(env.Admin().Create(ctx, o)).To(Succeed())
			DeferCleanup(func(ctx SpecContext) { Expect(env.Admin().Delete(ctx, o)).To(Succeed()) })
		}
		var r report
		// The apiserver enforces a policy only a moment after its binding is there.
		Eventually(ctx, func() string {
			o := verify(ctx, admin(), ns, "--only", "G21", "-o", "json")
			r = o.read()
			return r.reason("G21")
		}).WithTimeout(time.Minute).Should(Equal("control failed"))
		Expect(r.expected("G21")).To(Equal("a change of the policy own is taken while the Settings do not say policyChanges: Proposed"))
		Expect(r.observed("G21")).To(ContainSubstring("it is frozen"))
	}, SpecTimeout(4*time.Minute))

	It("has no verdict while everything is held", func(ctx SpecContext) {
		startFaulty()
		Expect(env.WaitForAdmission(ctx)).To(Succeed())
		ns := namespaceWith(ctx, nil, refunds)
		env.AdmissionGap(GinkgoT(), "ctrlrun-approvals")
		o := verify(ctx, admin(), ns, "--only", "G3")
		Expect(o.code).To(Equal(3), o.String())
		Expect(o.stdout).To(BeEmpty())
		Expect(o.stderr).To(And(ContainSubstring("there is no verdict"), ContainSubstring("admission is missing")))
	}, SpecTimeout(4*time.Minute))
})
