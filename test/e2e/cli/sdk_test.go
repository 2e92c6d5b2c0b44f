package cli

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/test/testenv"
)

// lossy carries out every request, and loses the answer to the first successful create of one resource: what a network does
// that breaks at the worst moment.
type lossy struct {
	next     http.RoundTripper
	resource string
	lost     *atomic.Int64
}

func (l lossy) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := l.next.RoundTrip(req)
	if err == nil && req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/"+l.resource) &&
		resp.StatusCode == http.StatusCreated && l.lost.CompareAndSwap(0, 1) {
		_ = resp.Body.Close()
		return nil, &lostError{}
	}
	return resp, err
}

// lostError is a network error that says nothing about what happened on the other side.
type lostError struct{}

func (*lostError) Error() string   { return "the answer was lost" }
func (*lostError) Timeout() bool   { return true }
func (*lostError) Temporary() bool { return true }

func (s *cliStage) sdk(u testenv.User, losing string) (*client.Client, *atomic.Int64) {
	GinkgoHelper()
	lost := &atomic.Int64{}
	config := env.Config(u)
	if losing != "" {
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return lossy{next: next, resource: losing, lost: lost} })
	}
	return s.sdkOf(config), lost
}

func (s *cliStage) sdkOf(config *rest.Config) *client.Client {
	GinkgoHelper()
	c, err := client.New(config, s.namespace)
	Expect(err).NotTo(HaveOccurred())
	return c
}

func refundRequest(id string, amount int) client.Proposal {
	return client.Proposal{ActionType: "stripe.refund", Arguments: map[string]any{"payment_id": id, "amount": amount}}
}

// proposals are the Actions of one effect.
func (s *cliStage) proposals(id string) []v1alpha1.Action {
	GinkgoHelper()
	var list v1alpha1.ActionList
	Expect(env.Admin().List(context.Background(), &list, kube.InNamespace(s.namespace))).To(Succeed())
	var found []v1alpha1.Action
	for _, a := range list.Items {
		if strings.HasPrefix(a.Name, refundName(id)) {
			found = append(found, a)
		}
	}
	return found
}

var _ = Describe("the Go SDK", Ordered, func() {
	var s *cliStage

	BeforeAll(func(ctx SpecContext) {
		s = newCLIStage()
		startOperator(ctx)
	}, NodeTimeout(2*time.Minute))

	AfterEach(reportOperatorLog)

	It("takes up its own proposal after a lost answer, and executes once", func(ctx SpecContext) {
		c, lost := s.sdk(s.agent, "actions")
		runs := 0
		receipt, err := c.Protect(ctx, refundRequest("lost-action", 5), func(_ context.Context, x client.Execution) (any, error) {
			runs++
			Expect(string(x.CanonicalArguments)).To(Equal(`{"amount":5,"payment_id":"lost-action"}`))
			Expect(x.Token).NotTo(BeEmpty())
			Expect(x.LeaseRemaining).To(BeNumerically("~", 5*time.Minute, 30*time.Second))
			return nil, nil
		})
		Expect(err).NotTo(HaveOccurred())
		Expect(lost.Load()).To(BeEquivalentTo(1))
		Expect(runs).To(Equal(1))
		Expect(receipt.Action.Name).To(Equal(refundName("lost-action")))
		Expect(s.proposals("lost-action")).To(HaveLen(1))
	}, SpecTimeout(time.Minute))

	It("finds its own report after a lost answer", func(ctx SpecContext) {
		c, lost := s.sdk(s.agent, "outcomes")
		receipt, err := c.Protect(ctx, refundRequest("lost-report", 5), func(context.Context, client.Execution) (any, error) { return nil, nil })
		Expect(err).NotTo(HaveOccurred())
		Expect(lost.Load()).To(BeEquivalentTo(1))
		Expect(receipt.Action.Status.State).To(Equal(v1alpha1.ActionCommitted))
	}, SpecTimeout(time.Minute))

	It("claims again after a lost answer that it may not read", func(ctx SpecContext) {
		c, lost := s.sdk(s.agent, "claims")
		req := refundRequest("lost-claim", 5)
		req.Unclaimed = true
		call, err := c.Propose(ctx, req)
		Expect(err).NotTo(HaveOccurred())
		nothing := func(context.Context, client.Execution) (any, error) { return nil, nil }
		_, err = call.Execute(ctx, nothing)
		Expect(err).To(MatchError(ContainSubstring("without a claimID")))

		call, err = c.Attach(ctx, call.Action().Name, "")
		Expect(err).NotTo(HaveOccurred())
		runs := 0
		Expect(call.Execute(ctx, func(context.Context, client.Execution) (any, error) { runs++; return nil, nil })).Error().NotTo(HaveOccurred())
		Expect(lost.Load()).To(BeEquivalentTo(1))
		Expect(runs).To(Equal(1))
	}, SpecTimeout(time.Minute))

	It("never adopts somebody else's proposal", func(ctx SpecContext) {
		squatter := &v1alpha1.Action{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: refundName("squatted")},
			Spec: v1alpha1.ActionSpec{
				ActionType: "stripe.refund", Arguments: apiextensionsv1.JSON{Raw: []byte(`{"payment_id":"squatted","amount":5}`)},
			},
		}
		Expect(env.Client(s.agent).Create(ctx, squatter)).To(Succeed())
		c, _ := s.sdk(s.agent, "")
		receipt, err := c.Protect(ctx, refundRequest("squatted", 5), func(context.Context, client.Execution) (any, error) { return nil, nil })
		Expect(err).NotTo(HaveOccurred())
		Expect(receipt.Action.Name).To(Equal(refundName("squatted") + ".2"))
	}, SpecTimeout(time.Minute))

	It("reports unknown when the executor panics, and lets the panic go on", func(ctx SpecContext) {
		c, _ := s.sdk(s.agent, "")
		Expect(func() {
			_, _ = c.Protect(ctx, refundRequest("panic", 5), func(context.Context, client.Execution) (any, error) { panic("boom") })
		}).To(PanicWith("boom"))
		Eventually(func() v1alpha1.ActionState { return s.action(refundName("panic")).Status.State }).
			WithTimeout(20 * time.Second).Should(Equal(v1alpha1.ActionAmbiguous))
	}, SpecTimeout(time.Minute))

	It("reports on a context of its own", func(ctx SpecContext) {
		c, _ := s.sdk(s.agent, "")
		calling, cancel := context.WithCancel(ctx)
		receipt, err := c.Protect(calling, refundRequest("cancelled", 5), func(context.Context, client.Execution) (any, error) {
			cancel()
			return nil, nil
		})
		Expect(err).NotTo(HaveOccurred())
		Expect(receipt.Action.Status.State).To(Equal(v1alpha1.ActionCommitted))
	}, SpecTimeout(time.Minute))

	It("leaves a late report, and calls the outcome unknown", func(ctx SpecContext) {
		c, _ := s.sdk(s.agent, "")
		var lock string
		receipt, err := c.Protect(ctx, refundRequest("late", 5), func(_ context.Context, x client.Execution) (any, error) {
			lock = client.LockName(x.Action, x.Action.Status.Execution.ClaimID, s.agent.Name)
			lapse := &v1alpha1.Outcome{
				ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: lock},
				Spec: v1alpha1.OutcomeSpec{
					ActionRef: v1alpha1.ObjectReference{Name: x.Action.Name, UID: x.Action.UID},
					ClaimID:   x.Action.Status.Execution.ClaimID,
					Result:    v1alpha1.OutcomeUnknown,
					Reason:    v1alpha1.OutcomeReasonLeaseLapsed,
				},
			}
			Expect(env.Client(testenv.OperatorUser()).Create(ctx, lapse)).To(Succeed())
			return nil, nil
		})
		var unknown *client.UnknownError
		Expect(errors.As(err, &unknown)).To(BeTrue(), "%v", err)
		var late v1alpha1.Outcome
		Expect(env.Admin().Get(ctx, kube.ObjectKey{Namespace: s.namespace, Name: "late." + lock}, &late)).To(Succeed())
		Expect(late.Spec.Result).To(Equal(v1alpha1.OutcomeCommitted))
		Eventually(func() v1alpha1.ActionState { return s.action(receipt.Action.Name).Status.State }).
			WithTimeout(20 * time.Second).Should(Equal(v1alpha1.ActionAmbiguous))
	}, SpecTimeout(time.Minute))

	It("withdraws when the caller stops waiting", func(ctx SpecContext) {
		c, _ := s.sdk(s.agent, "")
		waiting, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		runs := 0
		receipt, err := c.Protect(waiting, refundRequest("withdrawn", 2000), func(context.Context, client.Execution) (any, error) { runs++; return nil, nil })
		var still *client.WaitingError
		Expect(errors.As(err, &still)).To(BeTrue(), "%v", err)
		Expect(still.Withdrawn).To(BeTrue())
		Expect(runs).To(BeZero())
		Eventually(func() string { return s.action(receipt.Action.Name).Status.Reason }).WithTimeout(20 * time.Second).Should(Equal("withdrawn"))
	}, SpecTimeout(time.Minute))

	It("works with the fewest rights: create, and get on actions", func(ctx SpecContext) {
		poor := testenv.ServiceAccountUser(s.namespace, "poor")
		Expect(env.Allow(ctx, s.namespace, poor,
			rbacv1.PolicyRule{APIGroups: []string{"ctrlrun.dev"}, Resources: []string{"actions", "claims", "outcomes"}, Verbs: []string{"create"}},
			rbacv1.PolicyRule{APIGroups: []string{"ctrlrun.dev"}, Resources: []string{"actions"}, Verbs: []string{"get"}},
		)).To(Succeed())
		c, _ := s.sdk(poor, "")
		receipt, err := c.Protect(ctx, refundRequest("poor", 5), func(context.Context, client.Execution) (any, error) { return nil, nil })
		Expect(err).NotTo(HaveOccurred())
		Expect(receipt.Action.Name).To(MatchRegexp("^stripe-refund-[0-9a-f]{8}$"), "without the policies the name is made from the type")
		Expect(receipt.Action.Status.Effect.Key).To(Equal("refund:poor"))
	}, SpecTimeout(time.Minute))

	It("does not wait for a claim that cannot count", func(ctx SpecContext) {
		reader := testenv.ServiceAccountUser(s.namespace, "reader")
		Expect(env.Grant(ctx, s.namespace, "ctrlrun-agent", reader)).To(Succeed())
		Expect(env.Allow(ctx, s.namespace, reader,
			rbacv1.PolicyRule{APIGroups: []string{"ctrlrun.dev"}, Resources: []string{"claims"}, Verbs: []string{"get"}},
		)).To(Succeed())
		c, _ := s.sdk(reader, "")
		req := refundRequest("given-up", 5)
		req.Unclaimed = true
		proposed, err := c.Propose(ctx, req)
		Expect(err).NotTo(HaveOccurred())
		call, err := c.Attach(ctx, proposed.Action().Name, "")
		Expect(err).NotTo(HaveOccurred())
		Expect(call.GiveUp(ctx, "changed its mind")).To(Succeed())
		_, err = call.Claim(ctx)
		Expect(err).To(MatchError(ContainSubstring("given up")))
		again, err := c.Attach(ctx, proposed.Action().Name, call.ClaimID())
		Expect(err).NotTo(HaveOccurred())
		_, err = again.Claim(ctx)
		var uncounted *client.StatementError
		Expect(errors.As(err, &uncounted)).To(BeTrue(), "%v", err)
		Expect(uncounted.Reason).To(Equal(v1alpha1.ReasonWithdrawn))

		By("another process of the same agent still may, and nobody else")
		other, _ := s.sdk(s.agent, "")
		stranger, err := other.Attach(ctx, proposed.Action().Name, "")
		Expect(err).NotTo(HaveOccurred())
		var notAgent *client.NotAgentError
		_, err = stranger.Claim(ctx)
		Expect(errors.As(err, &notAgent)).To(BeTrue(), "%v", err)
		call, err = c.Attach(ctx, proposed.Action().Name, "")
		Expect(err).NotTo(HaveOccurred())
		Expect(call.Execute(ctx, func(context.Context, client.Execution) (any, error) { return nil, nil })).Error().NotTo(HaveOccurred())
	}, SpecTimeout(time.Minute))

	It("reports to an apiserver that knows no rights for a moment, as one that has just started", func(ctx SpecContext) {
		agent := testenv.ServiceAccountUser(s.namespace, "late-agent")
		Expect(env.Grant(ctx, s.namespace, "ctrlrun-agent", agent)).To(Succeed())
		c, _ := s.sdk(agent, "")
		call, err := c.Propose(ctx, refundRequest("norights", 5))
		Expect(err).NotTo(HaveOccurred())
		Expect(call.Claim(ctx)).Error().NotTo(HaveOccurred())
		bindings := &rbacv1.RoleBindingList{}
		Expect(env.Admin().List(ctx, bindings, kube.InNamespace(s.namespace))).To(Succeed())
		for _, b := range bindings.Items {
			if strings.HasSuffix(b.Subjects[0].Name, "late-agent") {
				Expect(env.Admin().Delete(ctx, &b)).To(Succeed())
			}
		}
		outcome := &v1alpha1.Outcome{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "x"}}
		Eventually(func() bool {
			return apierrors.IsForbidden(env.Client(agent).Create(ctx, outcome.DeepCopy(), kube.DryRunAll))
		}).WithTimeout(10 * time.Second).Should(BeTrue())
		reported := make(chan error, 1)
		go func() { reported <- call.Report(ctx, nil, nil) }()
		Consistently(reported).WithTimeout(time.Second).ShouldNot(Receive())
		Expect(env.Grant(ctx, s.namespace, "ctrlrun-agent", agent)).To(Succeed())
		Eventually(reported).WithTimeout(20 * time.Second).Should(Receive(BeNil()))
	}, SpecTimeout(time.Minute))

	It("says what refused a proposal", func(ctx SpecContext) {
		c, _ := s.sdk(s.approver, "")
		_, err := c.Propose(ctx, refundRequest("refused", 5))
		var refused *client.RefusedError
		Expect(errors.As(err, &refused)).To(BeTrue(), "%v", err)
		Expect(apierrors.IsForbidden(err)).To(BeTrue())
	}, SpecTimeout(time.Minute))

	It("gives other ends their own error", func(ctx SpecContext) {
		c, _ := s.sdk(s.agent, "")
		_, err := c.Protect(ctx, refundRequest("denied", 9000), func(context.Context, client.Execution) (any, error) { return nil, nil })
		var ended *client.EndedError
		Expect(errors.As(err, &ended)).To(BeTrue(), "%v", err)
		Expect(ended.Action.Status.State).To(Equal(v1alpha1.ActionDenied))
		_, err = c.Attach(ctx, "nobody", "")
		var gone *client.GoneError
		Expect(errors.As(err, &gone)).To(BeTrue(), "%v", err)
	}, SpecTimeout(time.Minute))
})
