package execution

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/test/testenv"
)

// plugin runs the kubectl plugin that `make build` has made, as somebody, and gives what it says on both streams.
func (s *scene) plugin(u testenv.User, args ...string) (stdout, stderr string) {
	GinkgoHelper()
	cmd := exec.CommandContext(ctx, filepath.Join(env.Root, "bin", "kubectl-ctrlrun"), append(args, "-n", s.ns)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+env.Kubeconfig(u))
	var out, text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &text
	_ = cmd.Run() // what it says is looked at, whatever the code
	return out.String(), text.String()
}

var _ = Describe("the plugin", func() {
	It("shows approvers how an action will be executed, and says so when that is not what they are shown", func() {
		s := newScene()
		x := s.executes(s.executor("refunds"))
		a := s.reaches(s.refund(unique("txn"), 2000), v1alpha1.ActionAwaitingApproval, "")
		_, question := s.plugin(s.approver, "approve", a.Name)
		Expect(question).To(And(ContainSubstring("the operator, by Executor refunds"), ContainSubstring(x.Status.Hash), ContainSubstring("/payments/{payment_id}/refunds")))

		// Nobody decides about it while the operator is away.
		withoutOperator()
		s.ceases(x)
		Expect(env.Client(s.admin).Create(ctx, s.executor("refunds", func(spec *v1alpha1.ExecutorSpec) { spec.HTTP.URL += "/other" }))).To(Succeed())
		_, question = s.plugin(s.approver, "approve", a.Name)
		Expect(question).To(And(ContainSubstring(x.Status.Hash), ContainSubstring("another one by now"), Not(ContainSubstring("/other"))))
	}, Serial)

	It("explains what the operator would execute, and what it would not", func() {
		s := newScene()
		why := func() string {
			out, text := s.plugin(s.agent, "why", "stripe.refund", "payment_id="+unique("txn"), "amount:=100")
			return out + text
		}
		Expect(why()).To(And(ContainSubstring("the process that proposed it may execute it"), Not(ContainSubstring("Executed by"))))
		x := s.executes(s.executor("refunds"))
		Expect(why()).To(And(ContainSubstring("the operator, by Executor refunds"), ContainSubstring(x.Status.Hash), ContainSubstring("--not-after")))
		rival := s.executor("rival")
		Expect(env.Client(s.admin).Create(ctx, rival)).To(Succeed())
		Expect(why()).To(ContainSubstring("executor_conflict"))
	})
})
