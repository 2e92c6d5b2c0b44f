package sdk

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/test/testenv"
)

const (
	// agentEnv makes the test binary an agent: what it says is the payment to refund.
	agentEnv = "CTRLRUN_TEST_AGENT_PAYMENT"
	// hangsEnv makes its function never return.
	hangsEnv = "CTRLRUN_TEST_AGENT_HANGS"
)

// runAgent is an agent for one refund. It finds out by itself who and where it is.
func runAgent(payment string) error {
	c, err := client.NewFromEnvironment()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	proof, err := c.Protect(ctx, proposal(payment, allowed), func(ctx context.Context, x client.Execution) (any, error) {
		fmt.Println("executing", x.Action.Name, x.Action.Status.Execution.ClaimID)
		if os.Getenv(hangsEnv) != "" {
			select {} // the context of the lease ends, and this does not look at it
		}
		return nil, nil
	})
	if err != nil {
		return err
	}
	fmt.Println("committed", proof.Action.Name, proof.Action.Spec.Principal.Agent)
	return nil
}

// agentProcess runs the test binary as an agent. Each line that it prints is read by line.
type agentProcess struct {
	*testenv.Process
	lines *bufio.Scanner
}

func startAgent(path string, args []string, environment ...string) *agentProcess {
	GinkgoHelper()
	read, write, err := os.Pipe()
	Expect(err).NotTo(HaveOccurred())
	p, err := env.StartProcess(testenv.Command{Path: path, Args: args, Env: environment, Output: write})
	Expect(err).NotTo(HaveOccurred())
	Expect(write.Close()).To(Succeed()) // the child has its own
	DeferCleanup(read.Close)
	DeferCleanup(p.Kill)
	return &agentProcess{Process: p, lines: bufio.NewScanner(read)}
}

func (p *agentProcess) line() []string {
	GinkgoHelper()
	Expect(p.lines.Scan()).To(BeTrue(), "the agent ended: %v", p.lines.Err())
	return strings.Fields(p.lines.Text())
}

var _ = Describe("An agent's process", func() {
	It("that is killed in its function leaves the effect Ambiguous, by the lock of the lapse", func(ctx SpecContext) {
		s := newScene(ctx)
		payment := unique()
		self, err := os.Executable()
		Expect(err).NotTo(HaveOccurred())
		agent := startAgent(self, nil, "KUBECONFIG="+env.KubeconfigIn(s.agent, s.ns), agentEnv+"="+payment, hangsEnv+"=1")
		said := agent.line()
		Expect(said).To(HaveLen(3))
		Expect(said[0]).To(Equal("executing"))
		Expect(agent.Kill()).To(Succeed())
		name, claimID := said[1], said[2]
		Expect(s.get(ctx, name).Status.State).To(Equal(v1alpha1.ActionAdmitted), "while the lease lasts nobody says anything")

		clock.Advance(GinkgoT(), 5*time.Minute+11*time.Second)
		Eventually(func() *v1alpha1.ReceiptReference { return s.get(ctx, name).Status.ReceiptRef }).ShouldNot(BeNil())
		a := s.get(ctx, name)
		Expect(a.Status.State).To(Equal(v1alpha1.ActionAmbiguous))
		Expect(a.Status.Reason).To(Equal("lease_lapsed"))
		lock := s.outcome(ctx, a)
		Expect(lock.Spec.Reason).To(Equal(v1alpha1.OutcomeReasonLeaseLapsed))
		Expect(s.effect(ctx, payment).Status.State).To(Equal(v1alpha1.EffectAmbiguous))

		By("whoever knows more may say so, and it settles nothing")
		call, err := s.sdk.Attach(ctx, name, claimID)
		Expect(err).NotTo(HaveOccurred())
		err = call.Report(ctx, nil, nil)
		Expect(errors.Is(err, client.ErrAmbiguous)).To(BeTrue(), "%v", err)
		Expect(env.Admin().Get(ctx, kube.ObjectKey{Namespace: s.ns, Name: "late." + lock.Name}, &v1alpha1.Outcome{})).To(Succeed())
		Expect(s.effect(ctx, payment).Status.State).To(Equal(v1alpha1.EffectAmbiguous))

		By("and nobody executes it again")
		_, err = s.sdk.Protect(ctx, proposal(payment, allowed), never)
		var ambiguous *client.AmbiguousError
		Expect(errors.As(err, &ambiguous)).To(BeTrue(), "%v", err)
	}, SpecTimeout(time.Minute))

	It("in a pod is its service account, in the namespace of the pod", func(ctx SpecContext) {
		// A namespace of its own for mounts stands in for the pod: it puts the files of a service account where a kubelet does.
		if err := exec.CommandContext(ctx, "unshare", "--user", "--map-root-user", "--mount", "true").Run(); err != nil {
			Skip("this machine lets nobody have mounts of their own: " + err.Error())
		}
		s := newScene(ctx)
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "refund-agent"}}
		Expect(env.Admin().Create(ctx, account)).To(Succeed())
		cfg, err := env.TokenConfig(ctx, s.ns, account.Name, nil)
		Expect(err).NotTo(HaveOccurred())
		files := GinkgoT().TempDir()
		for name, content := range map[string][]byte{"token": []byte(cfg.BearerToken), "ca.crt": cfg.CAData, "namespace": []byte(s.ns + "\n")} {
			Expect(os.WriteFile(filepath.Join(files, name), content, 0o600)).To(Succeed())
		}
		self, err := os.Executable()
		Expect(err).NotTo(HaveOccurred())
		host, port, found := strings.Cut(strings.TrimPrefix(strings.TrimSuffix(cfg.Host, "/"), "https://"), ":")
		Expect(found).To(BeTrue(), cfg.Host)
		const pod = `set -e
mount -t tmpfs tmpfs /var/run
mkdir -p /var/run/secrets/kubernetes.io/serviceaccount
cp "$1"/* /var/run/secrets/kubernetes.io/serviceaccount
exec "$2"`
		payment := unique()
		// The kubeconfig is somebody else's: in a pod it does not count.
		agent := startAgent("unshare", []string{"--user", "--map-root-user", "--mount", "sh", "-c", pod, "pod", files, self},
			"KUBERNETES_SERVICE_HOST="+host, "KUBERNETES_SERVICE_PORT="+port, agentEnv+"="+payment, "KUBECONFIG="+env.Kubeconfig(s.approver))
		Expect(agent.line()).To(ContainElement("executing"))
		Expect(agent.line()).To(Equal([]string{"committed", s.effect(ctx, payment).Name, s.agent.Name}))
	}, SpecTimeout(time.Minute))
})
