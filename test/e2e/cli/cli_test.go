package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/test/testenv"
)

// cliPolicy has one action for each way an action can go.
const cliPolicy = `{
  "stripe.refund": {"effect": "refund:{payment_id}", "rules": [
    {"when": {"amount_lte": 500}, "decision": "allow"},
    {"when": {"amount_lte": 5000}, "decision": "approve"},
    {"decision": "deny"}]},
  "iam.grant": {"effect": "grant:{to}", "decision": "approve"}
}`

// cliStage is a namespace with people who only have kubectl, and an operator that runs as a process.
type cliStage struct {
	namespace                              string
	agent, approver, other, resolver, view testenv.User
	binary                                 string
	dir                                    string
}

// cliResult is how one command ended.
type cliResult struct {
	Code   int
	Stdout string
	Stderr string
}

func newCLIStage() *cliStage {
	ctx := context.Background()
	ns := env.Namespace(GinkgoT(), nil)
	user := func(name string) testenv.User { return testenv.User{Name: name + "@" + ns + ".example.com"} }
	s := &cliStage{
		namespace: ns,
		agent:     testenv.ServiceAccountUser(ns, "bot"),
		approver:  user("alice"),
		other:     user("bob"),
		resolver:  user("rita"),
		view:      user("victor"),
		binary:    filepath.Join(env.Root, "bin", "kubectl-ctrlrun"),
		dir:       GinkgoT().TempDir(),
	}
	Expect(s.binary).To(BeAnExistingFile(), "`make build` puts it there")
	refunds := []rbacv1.PolicyRule{
		{APIGroups: []string{"ctrlrun.dev"}, Resources: []string{"approvals"}, Verbs: []string{"create", "get", "list", "watch"}},
		{APIGroups: []string{"ctrlrun.dev"}, Resources: []string{"actions", "actionpolicies", "effects"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{"ctrlrun.dev"}, Resources: []string{"actiontypes"}, ResourceNames: []string{"stripe.*"}, Verbs: []string{"approve"}},
	}
	for _, err := range []error{
		env.Grant(ctx, ns, "ctrlrun-agent", s.agent),
		env.Grant(ctx, ns, "ctrlrun-resolver", s.resolver),
		env.Grant(ctx, "", "ctrlrun-viewer", s.view),
		env.Allow(ctx, ns, s.approver, refunds...),
		env.Allow(ctx, ns, s.other, refunds...),
	} {
		Expect(err).NotTo(HaveOccurred())
	}
	policy := &v1alpha1.ActionPolicy{}
	Expect(json.Unmarshal([]byte(`{"metadata":{"name":"cli"},"spec":{"version":"7","actions":`+cliPolicy+`}}`), policy)).To(Succeed())
	policy.Namespace = ns
	Expect(env.Admin().Create(ctx, policy)).To(Succeed())
	return s
}

// command is the plugin as somebody, in a process of its own.
func (s *cliStage) command(u testenv.User, args ...string) *exec.Cmd {
	cmd := exec.Command(s.binary, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+env.KubeconfigIn(u, s.namespace))
	cmd.Dir = s.dir
	return cmd
}

func (s *cliStage) run(u testenv.User, args ...string) cliResult {
	GinkgoHelper()
	wait := s.start(u, args...)
	return wait()
}

// start begins a command and returns how to wait for its end.
func (s *cliStage) start(u testenv.User, args ...string) func() cliResult {
	GinkgoHelper()
	_, wait := s.process(s.command(u, args...))
	return wait
}

func (s *cliStage) process(cmd *exec.Cmd) (*os.Process, func() cliResult) {
	GinkgoHelper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	Expect(cmd.Start()).To(Succeed())
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	DeferCleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
		}
	})
	return cmd.Process, func() cliResult {
		GinkgoHelper()
		var err error
		Eventually(done).WithTimeout(90*time.Second).Should(Receive(&err), func() string { return "still running: " + stderr.String() })
		var exited *exec.ExitError
		if err != nil && !errors.As(err, &exited) {
			Fail(err.Error())
		}
		r := cliResult{Code: cmd.ProcessState.ExitCode(), Stdout: stdout.String(), Stderr: stderr.String()}
		AddReportEntry(strings.Join(cmd.Args[1:], " "), r, ReportEntryVisibilityFailureOrVerbose)
		return r
	}
}

// marker is a file a command writes when it runs: the remote that counts executions.
func (s *cliStage) marker(name string) (script string, runs func() int) {
	path := filepath.Join(s.dir, name)
	return "echo x >> " + path, func() int {
		data, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			return 0
		}
		Expect(err).NotTo(HaveOccurred())
		return strings.Count(string(data), "x")
	}
}

func (s *cliStage) action(name string) *v1alpha1.Action {
	GinkgoHelper()
	object := &v1alpha1.Action{}
	Expect(env.Admin().Get(context.Background(), client.ObjectKey{Namespace: s.namespace, Name: name}, object)).To(Succeed())
	return object
}

// awaiting waits until an Action asks for approval.
func (s *cliStage) awaiting(name string) *v1alpha1.Action {
	GinkgoHelper()
	var object v1alpha1.Action
	Eventually(func(g Gomega) {
		g.Expect(env.Admin().Get(context.Background(), client.ObjectKey{Namespace: s.namespace, Name: name}, &object)).To(Succeed())
		g.Expect(object.Status.State).To(Equal(v1alpha1.ActionAwaitingApproval))
	}).WithTimeout(20 * time.Second).Should(Succeed())
	return &object
}

func refund(id, amount string, more ...string) []string {
	return append([]string{"run", "stripe.refund", "payment_id=" + id, "amount:=" + amount}, more...)
}

func refundName(id string) string { return action.EffectName("refund:" + id) }

var _ = Describe("kubectl ctrlrun without an operator", func() {
	It("says after five seconds that nobody answers", func() {
		s := newCLIStage()
		start := time.Now()
		r := s.run(s.agent, "propose", "stripe.refund", "payment_id=silent", "amount:=1", "--wait", "--timeout", "7s")
		Expect(r.Code).To(Equal(5), r.Stderr)
		Expect(r.Stderr).To(ContainSubstring("the operator has not answered"))
		Expect(time.Since(start)).To(BeNumerically(">", 5*time.Second))
		Expect(s.run(s.agent).Stdout).To(MatchRegexp(`Next: +the operator has not answered`))
	})
})

var _ = Describe("kubectl ctrlrun", Ordered, func() {
	var s *cliStage

	BeforeAll(func(ctx SpecContext) {
		s = newCLIStage()
		startOperator(ctx)
	}, NodeTimeout(2*time.Minute))

	AfterEach(reportOperatorLog)

	It("runs what policy allows, once, with the canonical arguments and the token", func() {
		count, runs := s.marker("allowed")
		r := s.run(s.agent, refund("one", "5", "--", "sh", "-c", count+`; cat; echo " $CTRLRUN_IDEMPOTENCY_TOKEN"`)...)
		Expect(r.Code).To(Equal(0), r.Stderr)
		token := s.action(refundName("one")).Status.Execution.Token
		Expect(r.Stdout).To(Equal(`{"amount":5,"payment_id":"one"} ` + token + "\n"))

		again := s.run(s.agent, refund("one", "5", "--", "sh", "-c", count)...)
		Expect(again.Code).To(Equal(4), again.Stderr)
		Expect(again.Stdout).To(BeEmpty())
		Expect(runs()).To(Equal(1))
	})

	It("does not run what policy denies", func() {
		count, runs := s.marker("denied")
		r := s.run(s.agent, refund("two", "9000", "--", "sh", "-c", count)...)
		Expect(r.Code).To(Equal(3), r.Stderr)
		Expect(r.Stderr).To(ContainSubstring("rule[2]"))
		Expect(runs()).To(BeZero())
	})

	It("states not executed only by the one exit code, and lets the key be tried again", func() {
		r := s.run(s.agent, refund("three", "5", "--not-executed-exit", "75", "--", "sh", "-c", "exit 75")...)
		Expect(r.Code).To(Equal(7), r.Stderr)
		r = s.run(s.agent, refund("three", "5", "--", "true")...)
		Expect(r.Code).To(Equal(0), r.Stderr)
		Expect(s.action(refundName("three") + ".2").Status.Effect.Attempt).To(BeEquivalentTo(2))
	})

	It("leaves an unknown end to a person, and never exits 0 for it", func() {
		count, runs := s.marker("unknown")
		name := refundName("four")
		r := s.run(s.agent, refund("four", "5", "--record-output", "--", "sh", "-c", count+"; exit 1")...)
		Expect(r.Code).To(Equal(6), r.Stderr)
		Expect(strings.Count(r.Stderr, "kubectl ctrlrun resolve "+name)).To(Equal(1), r.Stderr)

		By("refusing another attempt")
		r = s.run(s.agent, refund("four", "5", "--", "sh", "-c", count)...)
		Expect(r.Code).To(Equal(6), r.Stderr)
		Expect(runs()).To(Equal(1))

		By("showing it to whoever may resolve it")
		Expect(s.run(s.resolver, "effects", "--state", "ambiguous").Stdout).To(ContainSubstring("refund:four"))
		Expect(s.run(s.resolver).Stdout).To(MatchRegexp(`Next: +find out what happened, then: kubectl ctrlrun resolve ` + name))

		By("refusing a resolution by somebody who may not")
		r = s.run(s.agent, "resolve", name, "--committed", "--reason", "I am sure", "--yes")
		Expect(r.Code).To(Equal(9), r.Stderr)
		r = s.run(s.resolver, "resolve", name, "--committed", "--reason", "x", "--attempt", "2", "--yes")
		Expect(r.Code).To(Equal(1), r.Stderr)

		By("asking before it states anything")
		r = s.run(s.resolver, "resolve", name, "--committed", "--reason", "x")
		Expect(r.Code).To(Equal(2), r.Stderr)
		Expect(r.Stderr).To(And(ContainSubstring("--yes"), MatchRegexp(`Arguments: +\{\n +"amount": 5,\n`)))
		Expect(s.run(s.resolver, "inspect", "--key", "refund:four").Stdout).To(MatchRegexp(`Arguments: +\{\n +"amount": 5,\n`))

		By("naming what was typed, where it is not")
		for _, args := range [][]string{{"inspect"}, {"resolve", "--committed", "--reason", "x"}} {
			r = s.run(s.view, append(args, "--key", "refund:four", "-n", "default")...)
			Expect(r.Code).To(Equal(1), r.Stderr)
			Expect(r.Stderr).To(And(ContainSubstring(`there is no effect with the key "refund:four" in namespace default`), ContainSubstring("-n NAMESPACE")))
		}
		r = s.run(s.resolver, "resolve", name)
		Expect(r.Code).To(Equal(2))
		Expect(r.Stderr).To(ContainSubstring("--not-executed --reason TEXT --evidence URL"))

		By("resolving from a file")
		answers := filepath.Join(s.dir, "answers.yaml")
		Expect(os.WriteFile(answers, []byte("- key: refund:four\n  result: NotExecuted\n  reason: not in the log\n  evidence: https://example.com/log\n"), 0o600)).To(Succeed())
		r = s.run(s.resolver, "resolve", "-f", answers, "--yes")
		Expect(r.Code).To(Equal(0), r.Stderr)
		Expect(r.Stdout).To(Equal("resolved: " + name + " NotExecuted\n"))

		r = s.run(s.agent, refund("four", "5", "--", "sh", "-c", count)...)
		Expect(r.Code).To(Equal(0), r.Stderr)
		Expect(runs()).To(Equal(2))
		Eventually(func() string { return s.run(s.view, "inspect", "action/"+name).Stdout }).
			WithTimeout(10 * time.Second).Should(And(
			MatchRegexp(`Resolved: +\S+ resolved its effect: not executed \(`), MatchRegexp(`Admitted: +20\S+Z, \S+ ago\n`), MatchRegexp(`Lease until: +20\S+Z\n`)))
		inspected := s.run(s.view, "inspect", "--key", "refund:four").Stdout
		Expect(inspected).To(MatchRegexp(`State: +Committed`))
		Expect(inspected).To(ContainSubstring("resolution"))
	})

	It("waits for a person, shows what is asked, and executes what was approved", func() {
		name := refundName("five")
		wait := s.start(s.agent, refund("five", "2000", "--", "cat")...)
		asked := s.awaiting(name)

		Expect(s.run(s.approver, "pending").Stdout).To(ContainSubstring(name))
		Expect(s.run(s.approver).Stdout).To(MatchRegexp("Next: +kubectl ctrlrun approve " + name))

		By("refusing to answer without looking")
		Expect(s.run(s.approver, "approve", name, "--yes").Code).To(Equal(2))
		wrong := "sha256:" + strings.Repeat("0", 64)
		r := s.run(s.approver, "approve", name, "--yes", "--hash", wrong)
		Expect(r.Code).To(Equal(1), r.Stderr)

		By("refusing a pipe as a person, after showing everything")
		r = s.run(s.approver, "approve", name)
		Expect(r.Code).To(Equal(2), r.Stderr)
		for _, part := range []string{
			"Cluster:", s.approver.Name, "yes, by approve on actiontypes/stripe.*", "stripe.refund", s.agent.Name, `"amount": 2000`,
			asked.Status.ActionHash, "rule[1] of ActionPolicy cli", "version 7", "0/1", "Expires:", "amount_lte",
		} {
			Expect(r.Stderr).To(ContainSubstring(part))
		}

		By("refusing the agent")
		r = s.run(s.agent, "approve", name, "--yes", "--hash", asked.Status.ActionHash)
		Expect(r.Code).To(Equal(9), r.Stderr)
		Expect(r.Stdout).To(BeEmpty())

		By("stopping a twin of the waiting run")
		twin := s.run(s.agent, refund("five", "2000", "--", "cat")...)
		Expect(twin.Code).To(Equal(5), twin.Stderr)
		Expect(twin.Stderr).To(ContainSubstring("kubectl ctrlrun claim " + name))

		r = s.run(s.approver, "approve", name, "--yes", "--hash", asked.Status.ActionHash, "--reason", "looked at it")
		Expect(r.Code).To(Equal(0), r.Stderr)
		Expect(r.Stdout).To(HavePrefix("approved: " + name + "."))
		ran := wait()
		Expect(ran.Code).To(Equal(0), ran.Stderr)
		Expect(ran.Stdout).To(Equal(`{"amount":2000,"payment_id":"five"}`))

		r = s.run(s.other, "approve", name, "--yes", "--hash", asked.Status.ActionHash)
		Expect(r.Code).To(Equal(1), "an action that asks nobody any more: %s", r.Stderr)
	})

	It("says what an action rests on, and executes nothing once that is another", func(ctx SpecContext) {
		limits := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "limits"}, Data: map[string]string{"max": "100"}}
		Expect(env.Admin().Create(ctx, limits)).To(Succeed())
		reads := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get"}}
		for _, u := range []testenv.User{s.agent, testenv.OperatorUser()} {
			Expect(env.Allow(ctx, s.namespace, u, reads)).To(Succeed())
		}
		count, runs := s.marker("rests")
		name := refundName("rests")
		wait := s.start(s.agent, refund("rests", "2000", "--precondition", "v1/ConfigMap/limits#/data/max", "--credential-expires", "2126-01-02T03:04:05Z", "--", "sh", "-c", count)...)
		asked := s.awaiting(name)
		Expect(asked.Spec.Principal.ExpiresTime.UTC().Year()).To(Equal(2126))
		r := s.run(s.approver, "approve", name)
		Expect(r.Stderr).To(MatchRegexp(`Rests on: +v1/ConfigMap/limits#/data/max\n +\(noted, compared with each approval and right before its effect is reserved\)\n`))
		Expect(env.Admin().Patch(ctx, limits, client.RawPatch("application/merge-patch+json", []byte(`{"data":{"max":"50"}}`)))).To(Succeed())
		r = s.run(s.approver, "approve", name, "--yes", "--hash", asked.Status.ActionHash)
		Expect(r.Code).To(Equal(0), r.Stderr)
		Expect(r.Stderr).To(ContainSubstring("action " + name + " is Blocked: What its preconditions name"))
		ran := wait()
		Expect(ran.Code).To(Equal(1), ran.Stderr)
		Expect(ran.Stderr).To(And(ContainSubstring("precondition_changed"), ContainSubstring("Nothing was executed, and no approval was spent")))
		Expect(runs()).To(BeZero())
		Expect(s.run(s.view, "inspect", name).Stdout).To(And(ContainSubstring("was ANOTHER than when it began to wait"), MatchRegexp(`APPROVAL_INVALIDATED +at_recheck=sha256:\S+ at_request=sha256:\S+ reason=precondition_changed`)))

		for _, bad := range []string{"--precondition=ConfigMap/limits#/data", "--precondition=v1/ConfigMap/limits", "--credential-expires=tomorrow"} {
			Expect(s.run(s.agent, "propose", "stripe.refund", "payment_id=bad", "amount:=1", bad).Code).To(Equal(2), bad)
		}
	})

	It("takes a no", func() {
		count, runs := s.marker("no")
		name := refundName("six")
		wait := s.start(s.agent, refund("six", "2000", "--", "sh", "-c", count)...)
		asked := s.awaiting(name)
		r := s.run(s.approver, "deny", name, "--yes", "--hash", asked.Status.ActionHash, "--reason", "no")
		Expect(r.Code).To(Equal(0), r.Stderr)
		Expect(wait().Code).To(Equal(3))
		Expect(runs()).To(BeZero())
	})

	It("answers again for somebody whose first answer was refused", func(ctx SpecContext) {
		wait := s.start(s.agent, refund("misread", "2000", "--", "true")...)
		asked := s.awaiting(refundName("misread"))
		misread := &v1alpha1.Approval{Spec: v1alpha1.ApprovalSpec{
			ActionRef:  v1alpha1.ObjectReference{Name: asked.Name, UID: asked.UID},
			ActionType: asked.Spec.ActionType, ActionHash: "sha256:" + strings.Repeat("0", 64), EffectKey: &asked.Status.Effect.Key,
			Decision: v1alpha1.Approved,
		}}
		misread.Namespace, misread.Name = s.namespace, asked.Name+"."+action.Speaker(s.approver.Name)
		Expect(env.Client(s.approver).Create(ctx, misread)).To(Succeed())

		r := s.run(s.approver, "approve", asked.Name, "--yes", "--hash", asked.Status.ActionHash)
		Expect(r.Code).To(Equal(0), r.Stderr)
		Expect(r.Stdout).To(ContainSubstring(misread.Name + ".2"))
		Expect(wait().Code).To(Equal(0))
	})

	It("gives the right to approve by type", func() {
		wait := s.start(s.agent, "run", "iam.grant", "to=eve", "--", "true")
		asked := s.awaiting(action.EffectName("grant:eve"))
		r := s.run(s.approver, "approve", asked.Name, "--yes", "--hash", asked.Status.ActionHash)
		Expect(r.Code).To(Equal(9), r.Stderr)

		Expect(s.run(s.approver, "can-i", "approve", "stripe.refund")).To(HaveField("Stdout", "yes\n"))
		no := s.run(s.approver, "can-i", "approve", "iam.grant")
		Expect(no.Stdout).To(Equal("no\n"))
		Expect(no.Code).To(Equal(9))
		Expect(s.run(s.agent, "can-i", "propose", "iam.grant").Code).To(Equal(0))

		unread := s.run(s.approver, "who-can", "approve", "stripe.refund")
		Expect(unread.Code).To(Equal(9), unread.Stdout)
		Expect(unread.Stderr).To(ContainSubstring("cannot read rolebindings"))

		Expect(env.Grant(context.Background(), "", "cluster-admin", testenv.User{Name: "root@" + s.namespace})).To(Succeed())
		who := s.run(testenv.User{Name: "root@" + s.namespace}, "who-can", "approve", "stripe.refund")
		Expect(who.Code).To(Equal(0), who.Stderr)
		Expect(who.Stdout).To(MatchRegexp("User " + s.approver.Name + " +yes"))
		Expect(who.Stdout).NotTo(ContainSubstring(s.agent.Name))
		Expect(who.Stderr).To(BeEmpty())
		grouped := &v1alpha1.ActionPolicy{}
		Expect(json.Unmarshal([]byte(`{"metadata":{"name":"grouped"},"spec":{"actions":{"iam.audit":{"effect":"audit:{to}","decision":"approve","approverGroups":["audit"]}}}}`), grouped)).To(Succeed())
		grouped.Namespace = s.namespace
		Expect(env.Admin().Create(context.Background(), grouped)).To(Succeed())
		Expect(s.run(testenv.User{Name: "root@" + s.namespace}, "who-can", "approve", "iam.audit").Stderr).To(ContainSubstring("policy counts only people of audit"))
		nowhere := s.run(testenv.User{Name: "root@" + s.namespace}, "who-can", "approve", "stripe.refund", "-n", "nowhere")
		Expect(nowhere.Code).To(Equal(1), nowhere.Stdout)
		Expect(nowhere.Stderr).To(ContainSubstring(`there is no namespace "nowhere"`))

		Expect(s.run(testenv.User{Name: "root@" + s.namespace}, "deny", asked.Name, "--yes", "--hash", asked.Status.ActionHash).Code).To(Equal(0))
		Expect(wait().Code).To(Equal(3))
	})

	It("prints an approval for people without the plugin", func() {
		name := refundName("seven")
		wait := s.start(s.agent, refund("seven", "2000", "--", "true")...)
		s.awaiting(name)
		r := s.run(s.agent, "approve", name, "--dry-run=client", "-o", "yaml", "--approver", s.approver.Name)
		Expect(r.Code).To(Equal(0), r.Stderr)
		apply := exec.Command(env.Kubectl(), "create", "-f", "-")
		apply.Env = append(os.Environ(), "KUBECONFIG="+env.KubeconfigIn(s.approver, s.namespace))
		apply.Stdin = strings.NewReader(r.Stdout)
		out, err := apply.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		Expect(wait().Code).To(Equal(0))
	})

	It("leaves the parts to scripts: propose, claim, report", func() {
		r := s.run(s.agent, "propose", "stripe.refund", "payment_id=eight", "amount:=5", "--wait")
		Expect(r.Code).To(Equal(0), r.Stderr)
		name := refundName("eight")
		Expect(r.Stdout).To(Equal(name + "\n"))
		Expect(s.action(name).Status.State).To(Equal(v1alpha1.ActionClaimable))
		waited := s.start(s.agent, "wait", name)
		r = s.run(s.agent, "wait", name, "--timeout", "100ms")
		Expect(r.Code).To(Equal(5), r.Stderr)

		r = s.run(s.agent, "claim", name)
		Expect(r.Code).To(Equal(0), r.Stderr)
		var permission struct {
			ClaimID, Token, EffectKey string
			Attempt, LeaseSeconds     int64
			Arguments                 map[string]any
		}
		Expect(json.Unmarshal([]byte(r.Stdout), &permission)).To(Succeed())
		Expect(permission.EffectKey).To(Equal("refund:eight"))
		Expect(permission.LeaseSeconds).To(BeNumerically("~", 300, 20))
		Expect(permission.Arguments).To(HaveKeyWithValue("payment_id", "eight"))

		By("another process: it is not admitted, and its report does not count")
		r = s.run(s.agent, "claim", name, "--", "true")
		Expect(r.Code).To(Equal(5), r.Stderr)

		By("whoever cannot be admitted, or was not, is told at once, and nothing is sent")
		stranger := testenv.ServiceAccountUser(s.namespace, "stranger")
		Expect(env.Grant(context.Background(), s.namespace, "ctrlrun-agent", stranger)).To(Succeed())
		start := time.Now()
		r = s.run(stranger, "claim", name)
		Expect(r.Code).To(Equal(9), r.Stderr)
		Expect(r.Stderr).To(ContainSubstring(s.agent.Name))
		r = s.run(stranger, "report", name, "--claim-id", permission.ClaimID, "--committed")
		Expect(r.Code).To(Equal(9), r.Stderr)
		r = s.run(s.agent, "report", name, "--claim-id", "11111111-1111-4111-8111-111111111111", "--committed")
		Expect(r.Code).To(Equal(1), r.Stderr)
		Expect(r.Stderr).To(ContainSubstring(permission.ClaimID))
		Expect(r.Stderr).NotTo(ContainSubstring("resolve"))
		Expect(time.Since(start)).To(BeNumerically("<", 20*time.Second))

		r = s.run(s.agent, "report", name, "--claim-id", permission.ClaimID, "--committed")
		Expect(r.Code).To(Equal(0), r.Stderr)
		Expect(s.action(name).Status.State).To(Equal(v1alpha1.ActionCommitted))
		r = waited()
		Expect(r.Code).To(Equal(0), r.Stderr)
		Expect(r.Stdout).To(Equal("Committed: " + name + " " + s.action(name).Status.ReceiptRef.Name + "\n"))
		Expect(s.run(s.agent, "wait", "action/"+name).Stdout).To(Equal(r.Stdout), "after the end it says the same")
		r = s.run(s.agent, "report", name, "--claim-id", permission.ClaimID, "--not-executed")
		Expect(r.Code).To(Equal(6), "a second, different report: %s", r.Stderr)
		Expect(r.Stderr).To(ContainSubstring("the first report counts"))
		Expect(r.Stderr).NotTo(ContainSubstring("kubectl ctrlrun resolve"))

		By("a claim of what has ended is no permission")
		r = s.run(s.agent, "claim", name)
		Expect(r.Code).To(Equal(4), r.Stderr)
		Expect(r.Stdout).To(BeEmpty())

		By("waiting for what will not be executed ends with what it is")
		Expect(s.run(s.agent, "propose", "stripe.refund", "payment_id=eight-denied", "amount:=9000").Code).To(Equal(0))
		r = s.run(s.agent, "wait", refundName("eight-denied"))
		Expect(r.Code).To(Equal(3), r.Stderr)
		Expect(r.Stdout).To(BeEmpty())
	})

	It("withdraws what it will not start", func() {
		name := refundName("nine")
		cmd := s.command(s.agent, refund("nine", "2000", "--", "true")...)
		process, wait := s.process(cmd)
		s.awaiting(name)
		Expect(process.Signal(syscall.SIGINT)).To(Succeed())
		r := wait()
		Expect(r.Code).To(Equal(1), r.Stderr)
		Expect(r.Stderr).To(ContainSubstring("withdrawn and nothing was executed"))
		Eventually(func() string { return s.action(name).Status.Reason }).WithTimeout(10 * time.Second).Should(Equal("withdrawn"))
	})

	It("reports what a command did although the person who started it gave up", func() {
		name := refundName("ten")
		ready := filepath.Join(s.dir, "ready")
		cmd := s.command(s.agent, refund("ten", "5", "--", "sh", "-c", "trap '' INT; touch "+ready+"; sleep 1")...)
		process, wait := s.process(cmd)
		Eventually(ready).WithTimeout(20 * time.Second).Should(BeAnExistingFile())
		Expect(process.Signal(syscall.SIGINT)).To(Succeed())
		r := wait()
		Expect(r.Code).To(Equal(0), r.Stderr)
		Expect(s.action(name).Status.State).To(Equal(v1alpha1.ActionCommitted))
	})

	It("proves it", func() {
		list := s.run(s.view, "receipts")
		Expect(list.Code).To(Equal(0), list.Stderr)
		Expect(list.Stdout).To(ContainSubstring("committed"))

		verified := s.run(s.view, "receipts", "verify")
		Expect(verified.Code).To(Equal(0), verified.Stdout+verified.Stderr)
		Expect(verified.Stdout).To(HavePrefix("intact: "))

		By("a namespace that is not there has no chain")
		nowhere := s.run(s.view, "receipts", "verify", "-n", "nowhere")
		Expect(nowhere.Code).To(Equal(2), nowhere.Stdout)
		Expect(nowhere.Stdout).To(BeEmpty())
		Expect(nowhere.Stderr).To(ContainSubstring(`nothing was verified: there is no namespace "nowhere"`))

		By("all chains of the cluster")
		Expect(s.run(s.view, "receipts", "list", "-A", "--kind", "action").Stdout).To(MatchRegexp(`(?m)^NAMESPACE +SEQ .*\n(.*\n)*` + s.namespace + ` +\d+ +action`))
		Expect(s.run(s.view, "receipts", "list", "-A", "--last", "3").Code).To(Equal(2))
		heads := strings.Fields(s.run(s.view, "receipts", "head", "-A").Stdout)
		Expect(heads).To(ContainElement(MatchRegexp(`^` + s.namespace + `=\d+:sha256:[0-9a-f]{64}$`)))
		args := []string{"receipts", "verify", "-A"}
		for _, head := range heads {
			args = append(args, "--head", head)
		}
		// Other specs leave chains that do not fit any more.
		Expect(s.run(s.view, args...).Stdout).To(MatchRegexp(`(?m)^` + s.namespace + ` intact: `))

		By("a resolver does not see the ledger, and is told so")
		Expect(s.run(s.resolver, "receipts", "head").Code).To(Equal(9))
		Expect(s.run(s.resolver, "receipts", "verify").Stderr).To(ContainSubstring("not visible to you"))

		var head string
		Eventually(func(g Gomega) {
			r := s.run(s.view, "receipts", "head")
			g.Expect(r.Code).To(Equal(0), r.Stderr)
			head = strings.TrimSpace(r.Stdout)
			g.Expect(verified.Stdout).To(ContainSubstring(head))
		}).WithTimeout(10 * time.Second).Should(Succeed())

		exported := s.run(s.view, "receipts", "export")
		Expect(exported.Code).To(Equal(0), exported.Stderr)
		file := filepath.Join(s.dir, "receipts.jsonl")
		Expect(os.WriteFile(file, []byte(exported.Stdout), 0o600)).To(Succeed())
		Expect(s.run(s.agent, "receipts", "verify", "-f", file, "--head", head).Code).To(Equal(0))
		lines := strings.SplitAfter(strings.TrimSpace(exported.Stdout), "\n")
		var first struct{ Hash string }
		Expect(json.Unmarshal([]byte(lines[0]), &first)).To(Succeed())
		Expect(s.run(s.agent, "receipts", "verify", "-f", file, "--head", "1:"+first.Hash).Code).To(Equal(0))
		Expect(s.run(s.view, "receipts", "verify", "--head", "1:"+first.Hash).Code).To(Equal(0))
		Expect(os.WriteFile(file, []byte(strings.Join(lines[:len(lines)-1], "")), 0o600)).To(Succeed())
		Expect(s.run(s.agent, "receipts", "verify", "-f", file, "--head", head).Code).To(Equal(3))
	})

	It("lists and names objects as kubectl does", func() {
		Expect(s.run(s.view, "actions", "--state", "Denied", "-o", "name").Stdout).To(ContainSubstring("action.ctrlrun.dev/" + refundName("two")))
		Expect(s.run(s.view, "effects", "-A").Stdout).To(ContainSubstring(s.namespace))
		Expect(s.run(s.view, "actions", "-A", "--type", "iam.grant").Stdout).NotTo(ContainSubstring("stripe.refund"))
		r := s.run(s.view, "inspect", "effect/"+refundName("one"), "-o", "jsonpath={.kind} {.spec.key}")
		Expect(r.Stdout).To(Equal("Effect refund:one"), r.Stderr)
		Expect(s.run(s.view, "whoami").Stdout).To(And(ContainSubstring(s.view.Name), Not(ContainSubstring("You may approve"))))
		Expect(s.run(s.approver, "whoami").Stdout).To(And(MatchRegexp(`You may approve: +stripe\.\*\n`), Not(ContainSubstring("You may resolve"))))
		Expect(s.run(s.resolver, "whoami").Stdout).To(MatchRegexp(`You may resolve: +every action type\n`))
		r = s.run(s.view, "inspect", "nobody")
		Expect(r.Code).To(Equal(1), r.Stderr)
		r = s.run(s.view, "inspect", "effect/nobody")
		Expect(r.Code).To(Equal(1), r.Stderr)
		Expect(r.Stderr).To(ContainSubstring(`there is no effect "nobody"`))
		Expect(s.run(s.view, "actions", "--state", "denied", "-o", "name").Stdout).To(ContainSubstring(refundName("two")))
		Expect(s.run(s.view, "actions", "--state", "observed").Stderr).To(HavePrefix("none match in namespace"))
		Expect(s.run(s.view, "receipts", "--kind", "Resolution").Stdout).To(ContainSubstring("resolution"))
		r = s.run(s.view, "__complete", "inspect", refundName("one"))
		Expect(r.Stdout).To(ContainSubstring(refundName("one")))
	})

	It("shows of an action that is gone what the receipts remember", func(ctx SpecContext) {
		gone := s.action(refundName("three") + ".2")
		gone.Finalizers = nil
		Expect(env.Admin().Update(ctx, gone)).To(Succeed())
		Expect(env.Admin().Delete(ctx, gone)).To(Succeed())
		r := s.run(s.view, "inspect", gone.Name)
		Expect(r.Code).To(Equal(0), r.Stderr)
		Expect(r.Stderr).To(ContainSubstring("is gone"))
		Expect(r.Stdout).To(ContainSubstring("committed"))

		r = s.run(s.agent, "inspect", gone.Name)
		Expect(r.Code).To(Equal(9), r.Stderr)
		Expect(r.Stderr).To(ContainSubstring("cannot be read"))
	})

	It("says that a namespace is not there", func() {
		governor := testenv.User{Name: "root@" + s.namespace}
		for _, args := range [][]string{{}, {"pending"}, {"actions", "--state", "Denied"}, {"effects"}, {"receipts"}, {"inspect", "x"}} {
			r := s.run(governor, append(args, "-n", "nowhere")...)
			Expect(r.Code).To(Equal(1), "%v: %s", args, r.Stderr)
			Expect(r.Stderr).To(ContainSubstring(`there is no namespace "nowhere"`))
		}
	})

	It("hides what only probes admission, and says whether admission is in force", func(ctx SpecContext) {
		canary := client.HasLabels{v1alpha1.CanaryLabel}
		var actions v1alpha1.ActionList
		var effects v1alpha1.EffectList
		Expect(env.Admin().List(ctx, &actions, canary)).To(Succeed())
		Expect(env.Admin().List(ctx, &effects, canary)).To(Succeed())
		Expect(len(actions.Items) + len(effects.Items)).To(BeNumerically(">", 0))
		Expect(s.run(s.view, "actions", "-A").Stdout).NotTo(ContainSubstring(testenv.SystemNamespace))
		Expect(s.run(s.view, "effects", "-A").Stdout).NotTo(ContainSubstring(testenv.SystemNamespace))
		Eventually(func() string { return s.run(s.view).Stdout }).WithTimeout(20 * time.Second).Should(MatchRegexp(`Admission: +in force since 20`))
		Expect(s.run(s.agent).Stdout).To(MatchRegexp(`Admission: +not visible to you`))
	})

	It("lets only a governor accept a ledger, and only one that is held", func(ctx SpecContext) {
		head := strings.TrimSpace(s.run(s.view, "receipts", "head").Stdout)
		r := s.run(s.view, "ledger", "accept", s.namespace, "--head", head, "--reason", "test", "--yes", "--namespace-uid", "x")
		Expect(r.Code).To(Equal(9), r.Stderr)
		ledger := &v1alpha1.Ledger{}
		Expect(env.Admin().Get(ctx, client.ObjectKey{Name: s.namespace}, ledger)).To(Succeed())
		governor := testenv.User{Name: "root@" + s.namespace}
		r = s.run(governor, "ledger", "accept", s.namespace, "--head", head, "--reason", "test", "--yes", "--namespace-uid", string(types.UID(ledger.Status.NamespaceUID)))
		Expect(r.Code).To(Equal(1), r.Stderr)
		Expect(r.Stderr).To(ContainSubstring("LedgerNotHeld"))
		var acceptances v1alpha1.LedgerAcceptanceList
		Expect(env.Admin().List(ctx, &acceptances)).To(Succeed())
		Expect(acceptances.Items).To(BeEmpty(), "a refusal leaves nothing behind")
	})

	It("names a policy that contradicts another before it says that nothing waits", func(ctx SpecContext) {
		Expect(s.run(s.view).Stdout).To(MatchRegexp(`Next: +nothing waits for you`))
		broken := &v1alpha1.ActionPolicy{}
		Expect(json.Unmarshal([]byte(`{"metadata":{"name":"broken"},"spec":{"actions":{"iam.grant":{"decision":"deny"}}}}`), broken)).To(Succeed())
		broken.Namespace = s.namespace
		Expect(env.Admin().Create(ctx, broken)).To(Succeed())
		DeferCleanup(func() { Expect(env.Admin().Delete(context.Background(), broken)).To(Succeed()) })
		Eventually(func() string { return s.run(s.view).Stdout }).WithTimeout(20 * time.Second).Should(MatchRegexp(`Next: +policy broken is not valid`))
	})
})
