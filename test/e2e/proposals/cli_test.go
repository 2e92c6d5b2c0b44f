package proposals

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/test/testenv"
)

// ctrlrun runs the plugin as a user.
func (s *scene) ctrlrun(u testenv.User, args ...string) (out string, err error) {
	GinkgoHelper()
	cmd := exec.CommandContext(ctx, filepath.Join(env.Root, "bin", "kubectl-ctrlrun"), append(args, "-n", s.ns, "--kubeconfig", env.Kubeconfig(u))...)
	var b bytes.Buffer
	cmd.Stdout, cmd.Stderr = &b, &b
	err = cmd.Run()
	return b.String(), err
}

var _ = Describe("kubectl ctrlrun", Serial, func() {
	It("shows what a question would change, and approves that", func() {
		s := newScene(asksOne)
		Expect(s.write(s.paula, "ActionPolicy", "refunds", aPolicy(2000))).To(Succeed())
		s.proposes("refunds", of("refunds", aPolicy(5000)))
		a := s.asked("refunds")
		out, err := s.ctrlrun(s.alice, "approve", a.Name)
		Expect(err).To(HaveOccurred(), "a pipe is not a person")
		Expect(out).To(And(
			ContainSubstring("update ActionPolicy refunds, as PolicyProposal refunds of "+s.flux.Name+`, generation 1, says: "as agreed"`),
			MatchRegexp(`- +"amount_lte": 2000`), MatchRegexp(`\+ +"amount_lte": 5000`),
		))
		GinkgoWriter.Println(out)
		shown, err := s.ctrlrun(s.alice, "inspect", a.Name)
		Expect(err).NotTo(HaveOccurred(), shown)
		Expect(shown).To(MatchRegexp(`\+ +"amount_lte": 5000`))

		out, err = s.ctrlrun(s.alice, "approve", a.Name, "--yes", "--hash", a.Status.ActionHash)
		Expect(err).NotTo(HaveOccurred(), out)
		s.reaches("refunds", v1alpha1.ProposalApplied)
		after, err := s.ctrlrun(s.alice, "inspect", a.Name)
		Expect(err).NotTo(HaveOccurred(), after)
		Expect(after).NotTo(ContainSubstring("Change:"))
	})

	It("does not show another text as what is asked about", func() {
		s := newScene(asksOne)
		s.proposes("refunds", of("refunds", aPolicy(2000)))
		a := s.asked("refunds")
		// Nobody withdraws the question while there is no operator.
		withoutOperator()
		s.applies(s.flux, "refunds", of("refunds", aPolicy(9999)))
		out, err := s.ctrlrun(s.alice, "approve", a.Name)
		Expect(err).To(HaveOccurred())
		Expect(out).To(ContainSubstring("NOT SHOWN: PolicyProposal refunds was edited or made anew"))
		Expect(strings.Count(out, "9999")).To(BeZero())
		Expect(out).To(ContainSubstring("what would be approved is not on the screen"))
	})
})
