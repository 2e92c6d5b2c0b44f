package operator

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/test/testenv"
)

// apiserver is the kube-apiserver that this process started.
func apiserver() *os.Process {
	GinkgoHelper()
	entries, err := os.ReadDir("/proc")
	Expect(err).NotTo(HaveOccurred())
	var found []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil || !strings.Contains(string(status), fmt.Sprintf("\nPPid:\t%d\n", os.Getpid())) {
			continue // not a child, or gone
		}
		command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if path, _, _ := strings.Cut(string(command), "\x00"); err == nil && filepath.Base(path) == "kube-apiserver" {
			found = append(found, pid)
		}
	}
	Expect(found).To(HaveLen(1), "children of this process that are a kube-apiserver")
	p, err := os.FindProcess(found[0])
	Expect(err).NotTo(HaveOccurred())
	return p
}

// suspendAPIServer stops the apiserver as it stands, and gives the function that lets it go on.
func suspendAPIServer() (resume func()) {
	GinkgoHelper()
	p := apiserver()
	resume = func() { Expect(p.Signal(syscall.SIGCONT)).To(Succeed()) }
	DeferCleanup(resume)
	Expect(p.Signal(syscall.SIGSTOP)).To(Succeed())
	return resume
}

func admissionSince(ctx context.Context) metav1.MicroTime {
	GinkgoHelper()
	l := &v1alpha1.Ledger{}
	Expect(env.Admin().Get(ctx, kube.ObjectKey{Name: testenv.SystemNamespace}, l)).To(Succeed())
	Expect(l.Status.AdmissionSince).NotTo(BeNil())
	return *l.Status.AdmissionSince
}

var _ = Describe("an apiserver that is away for a while", func() {
	It("is no gap of admission: what waits for people goes on waiting, and their answers count", func(ctx SpecContext) {
		p := start(ctx, alone)
		s := newScene(ctx)
		since := admissionSince(ctx)
		running := s.admitted(ctx, refund(payment(1), 100))
		call := s.propose(ctx, refund(payment(2), 2000))
		asked := s.reaches(ctx, call, v1alpha1.ActionAwaitingApproval)

		resume := suspendAPIServer()
		// Long enough for the operator to notice: it cannot prove any more what it knows.
		Eventually(ctx, func() (int, error) { return answer(ctx, p.Ready) }).WithPolling(500 * time.Millisecond).Should(Equal(500))
		Expect(answer(ctx, healthz(p))).To(Equal(200), "restarting would not help")
		resume()
		Expect(p.WaitReady(ctx)).To(Succeed())
		alive(p)

		By("going on with what was admitted before")
		Expect(running.Report(ctx, client.Committed())).To(Succeed())
		s.reaches(ctx, running, v1alpha1.ActionCommitted)

		By("and with what people were asked before")
		Expect(s.reaches(ctx, call, v1alpha1.ActionAwaitingApproval).Status.Approval.ExpirationTime).To(Equal(asked.Status.Approval.ExpirationTime))
		yes := &v1alpha1.Approval{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: asked.Name + "." + action.Speaker(s.approver.Name)},
			Spec: v1alpha1.ApprovalSpec{
				ActionRef: v1alpha1.ObjectReference{Name: asked.Name, UID: asked.UID}, ActionType: asked.Spec.ActionType,
				ActionHash: asked.Status.ActionHash, EffectKey: &asked.Status.Effect.Key, Decision: v1alpha1.Approved,
			},
		}
		Expect(env.Client(s.approver).Create(ctx, yes)).To(Succeed())
		accepted(ctx, yes, func(o *v1alpha1.Approval) []metav1.Condition { return o.Status.Conditions })
		Expect(call.WaitAdmitted(ctx, nil)).To(Succeed())
		Expect(call.Report(ctx, client.Committed())).To(Succeed())
		s.reaches(ctx, call, v1alpha1.ActionCommitted)
		Expect(admissionSince(ctx)).To(Equal(since))
		s.chainHolds(ctx, 2)
	}, SpecTimeout(3*time.Minute))
})
