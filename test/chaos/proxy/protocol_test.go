package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	sdk "ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/controllers"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/test/testenv"
)

// recorder keeps every write, in the order in which the clients sent them.
type recorder struct {
	mu     sync.Mutex
	writes []*write
	steps  []string // what the operator itself says it writes, by its crash points
}

type write struct {
	Request
	status int
}

// Inject implements Injector.
func (r *recorder) Inject(_ context.Context, request Request) Fault {
	if !request.Write() {
		return Forward()
	}
	w := &write{Request: request}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writes = append(r.writes, w)
	return Forward().After(func(status int) {
		r.mu.Lock()
		defer r.mu.Unlock()
		w.status = status
	})
}

func (r *recorder) crash(point string) {
	step, before := strings.CutPrefix(point, "before ")
	if !before {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps = append(r.steps, step)
}

func (r *recorder) mark() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.writes)
}

// since gives the points of the writes in a namespace that were carried out since a mark.
func (r *recorder) since(mark int, ns string) (points []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.writes[mark:] {
		if w.Namespace == ns && w.status >= http.StatusOK && w.status < http.StatusMultipleChoices {
			points = append(points, w.Point)
		}
	}
	return points
}

// aside are writes that no step of the protocol waits for.
func aside(point string) bool {
	return strings.HasSuffix(point, ".judge") || strings.HasPrefix(point, "events.") || strings.HasSuffix(point, ".delete")
}

var _ = Describe("the points of an operator, of agents and of people", Ordered, func() {
	var (
		recorded = &recorder{}
		clock    = &testenv.Clock{}
		ns       string
		proxy    *Proxy
		operator *testenv.Operator
		agent    *sdk.Client
		agentID  testenv.User
		people   = map[string]kube.Client{}
		payments int
	)

	BeforeAll(func(ctx context.Context) {
		ns = env.Namespace(GinkgoT(), nil)
		proxy = start(recorded)
		var err error
		operator, err = env.StartOperator(func(cfg *rest.Config) (testenv.Runnable, error) {
			proxied, err := proxy.Listen("operator", cfg)
			if err != nil {
				return nil, err
			}
			return controllers.New(proxied, controllers.Options{
				Namespace: testenv.SystemNamespace, MetricsAddress: "0", ProbeAddress: "0", Clock: clock, Crash: recorded.crash,
			})
		})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(operator.Stop)

		agentID = testenv.ServiceAccountUser(ns, "refund-agent")
		Expect(env.Grant(ctx, ns, "ctrlrun-agent", agentID)).To(Succeed())
		agent, err = sdk.New(listen(proxy, "agent", env.Config(agentID)), ns)
		Expect(err).NotTo(HaveOccurred())
		for _, name := range []string{"alice", "bob", "oncall"} {
			u := testenv.User{Name: name}
			Expect(env.Grant(ctx, ns, "ctrlrun-approver", u)).To(Succeed())
			Expect(env.Grant(ctx, ns, "ctrlrun-resolver", u)).To(Succeed())
			people[name], err = kube.New(listen(proxy, name, env.Config(u)), kube.Options{Scheme: env.Scheme})
			Expect(err).NotTo(HaveOccurred())
		}
		Expect(env.Policy(ctx, ns, `{"actions":{
			"stripe.refund": {"effect": "refund:{payment_id}", "rules": [
				{"when": {"amount_gte": 0, "amount_lte": 500}, "decision": "allow"},
				{"when": {"amount_gte": 0, "amount_lte": 5000}, "decision": "approve"},
				{"decision": "deny"}]},
			"grant.admin": {"effect": "grant:{to}", "decision": "approve", "approvalsRequired": 2}}}`)).To(Succeed())
		Expect(env.WaitForAdmission(ctx)).To(Succeed())
		// The chain opens with the event that the policy is in force.
		Eventually(func() []string { return recorded.since(0, ns) }).Should(ContainElement(PointAppendEvent))
	}, NodeTimeout(time.Minute))

	refund := func(payment string, amount int) sdk.Proposal {
		return sdk.Proposal{ActionType: "stripe.refund", Arguments: map[string]any{"payment_id": payment, "amount": amount}}
	}
	next := func() string {
		payments++
		return fmt.Sprintf("txn-%d", payments)
	}
	reports := func(err error) sdk.Function {
		return func(context.Context, sdk.Execution) (any, error) { return nil, err }
	}
	approve := func(ctx context.Context, who string, a *v1alpha1.Action) {
		GinkgoHelper()
		o := &v1alpha1.Approval{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: a.Name + "." + action.Speaker(who)},
			Spec: v1alpha1.ApprovalSpec{
				ActionRef: v1alpha1.ObjectReference{Name: a.Name, UID: a.UID}, ActionType: a.Spec.ActionType,
				ActionHash: a.Status.ActionHash, EffectKey: &a.Status.Effect.Key, Decision: v1alpha1.Approved,
			},
		}
		Expect(people[who].Create(ctx, o)).To(Succeed())
	}
	// asked proposes and lets people say yes, one after the other.
	asked := func(ctx context.Context, request sdk.Proposal, who ...string) *sdk.Call {
		GinkgoHelper()
		call, err := agent.Propose(ctx, request)
		Expect(err).NotTo(HaveOccurred())
		a := &v1alpha1.Action{}
		for i, name := range who {
			votes := fmt.Sprintf("%d/%d", i, len(who))
			Eventually(func(g Gomega) {
				g.Expect(env.Admin().Get(ctx, kube.ObjectKeyFromObject(call.Action()), a)).To(Succeed())
				g.Expect(a.Status.Approval).NotTo(BeNil())
				g.Expect(a.Status.Approval.Votes).To(Equal(votes))
			}).Should(Succeed())
			approve(ctx, name, a)
		}
		return call
	}
	// expect waits until these writes, and no others that the protocol waits for, were made since a mark, in this order.
	expect := func(mark int, want ...string) {
		GinkgoHelper()
		Eventually(func() []string {
			return slices.DeleteFunc(recorded.since(mark, ns), aside)
		}).Should(Equal(want))
	}
	alsoBeside := func(mark int, want ...string) {
		GinkgoHelper()
		Eventually(func() []string { return recorded.since(mark, ns) }).Should(ContainElements(want))
	}

	It("are those of an action that is allowed", func(ctx context.Context) {
		mark := recorded.mark()
		_, err := agent.Protect(ctx, refund(next(), 100), reports(nil))
		Expect(err).NotTo(HaveOccurred())
		expect(mark, PointPropose, PointReserve, PointAdmit, PointReport, PointSettle, PointAppend, PointFinish)
	}, SpecTimeout(30*time.Second))

	It("are those of an action that people are asked about", func(ctx context.Context) {
		mark := recorded.mark()
		call := asked(ctx, refund(next(), 2000), "alice")
		Expect(call.Execute(ctx, reports(nil))).Error().NotTo(HaveOccurred())
		expect(mark, PointPropose, PointPin, PointApprove, PointClaimable, PointClaim, PointReserve, PointAdmit, PointReport, PointSettle, PointAppend, PointFinish)
		alsoBeside(mark, PointJudgeApproval, PointJudgeClaim, "events.create")
	}, SpecTimeout(30*time.Second))

	It("tell a vote from the question", func(ctx context.Context) {
		mark := recorded.mark()
		request := sdk.Proposal{ActionType: "grant.admin", Arguments: map[string]any{"to": "user-1"}}
		call := asked(ctx, request, "alice", "bob")
		Expect(call.Execute(ctx, reports(nil))).Error().NotTo(HaveOccurred())
		expect(mark, PointPropose, PointPin, PointApprove, PointWait, PointApprove, PointClaimable, PointClaim, PointReserve, PointAdmit, PointReport, PointSettle, PointAppend, PointFinish)
	}, SpecTimeout(30*time.Second))

	It("are those of an action that is denied", func(ctx context.Context) {
		mark := recorded.mark()
		_, err := agent.Protect(ctx, refund(next(), 9000), reports(nil))
		Expect(err).To(BeAssignableToTypeOf(&sdk.DeniedError{}))
		expect(mark, PointPropose, PointEnd, PointAppend, PointFinish)
	}, SpecTimeout(30*time.Second))

	It("tell the next attempt from the first", func(ctx context.Context) {
		payment := next()
		_, err := agent.Protect(ctx, refund(payment, 100), reports(sdk.NotExecuted(errors.New("the provider refused"))))
		Expect(err).To(HaveOccurred())
		mark := recorded.mark()
		_, err = agent.Protect(ctx, refund(payment, 100), reports(nil))
		Expect(err).NotTo(HaveOccurred())
		// The agent tries the name of its first Action, which is taken.
		expect(mark, PointPropose, PointRenew, PointAdmit, PointReport, PointSettle, PointAppend, PointFinish)
	}, SpecTimeout(30*time.Second))

	It("are those of an effect that a person resolves", func(ctx context.Context) {
		payment := next()
		call, err := agent.Propose(ctx, refund(payment, 100))
		Expect(err).NotTo(HaveOccurred())
		_, err = call.Execute(ctx, reports(errors.New("no answer")))
		Expect(err).To(HaveOccurred())
		a := call.Action()
		Expect(a.Status.ReceiptRef).NotTo(BeNil())
		e := &v1alpha1.Effect{}
		Expect(env.Admin().Get(ctx, kube.ObjectKey{Namespace: ns, Name: a.Status.Effect.Name}, e)).To(Succeed())

		mark := recorded.mark()
		Expect(people["oncall"].Create(ctx, &v1alpha1.Resolution{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprintf("%s.%d.%s", e.Name, e.Status.Attempt, action.Speaker("oncall"))},
			Spec: v1alpha1.ResolutionSpec{
				EffectRef: v1alpha1.ObjectReference{Name: e.Name, UID: e.UID}, Attempt: e.Status.Attempt, ActionType: e.Status.ActionType,
				Result: v1alpha1.ResolutionCommitted, Reason: "the provider's dashboard says so",
				ReceiptRef: v1alpha1.ReceiptReference{Name: a.Status.ReceiptRef.Name, Hash: a.Status.ReceiptRef.Hash},
			},
		})).To(Succeed())
		expect(mark, "Resolution.create", PointResolve, PointAppend, PointResolved)
		alsoBeside(mark, PointJudgeResolution)
	}, SpecTimeout(30*time.Second))

	It("are those of a lease that is over, and of a report that comes after it", func(ctx context.Context) {
		mark := recorded.mark()
		call, err := agent.Propose(ctx, refund(next(), 100))
		Expect(err).NotTo(HaveOccurred())
		Expect(call.Claim(ctx)).Error().NotTo(HaveOccurred())
		lease := time.Until(call.Action().Status.Execution.LeaseExpirationTime.Time)
		clock.Advance(GinkgoT(), lease+flow.LapseGrace+time.Second)
		expect(mark, PointPropose, PointReserve, PointAdmit, PointLapse, PointSettle, PointAppend, PointFinish)
		mark = recorded.mark()
		Expect(call.Report(ctx, nil, nil)).NotTo(Succeed())
		expect(mark, PointReportLate, PointNoteLate)
		alsoBeside(mark, PointJudgeOutcome)
	}, SpecTimeout(30*time.Second))

	It("are those that the operator itself names, write by write", func() {
		Expect(operator.Stop()).To(Succeed())
		recorded.mu.Lock()
		defer recorded.mu.Unlock()
		var sent []string
		for _, w := range recorded.writes {
			kind, step, _ := strings.Cut(w.Point, ".")
			if w.Client == "operator" && (kind == "Action" || kind == "Effect" || w.Point == PointLapse) && step != "canary" && step != "delete" {
				sent = append(sent, step)
			}
		}
		// A receipt is not always sent: another one may have taken its place before that.
		said := slices.DeleteFunc(slices.Clone(recorded.steps), func(step string) bool { return step == "receipt" || step == "event" })
		Expect(sent).To(ConsistOf(said))
		Expect(sent).To(ContainElements("pin", "wait", "claimable", "reserve", "renew", "admit", "end", "settle", "late", "resolve", "resolved", "finish", "lapse"))
	})

	It("say what else an operator does", func() {
		points := map[string]bool{}
		for _, c := range proxy.Stats() {
			points[c.Point] = true
		}
		for _, point := range []string{
			"Action.canary", "Effect.canary", "Action.probe", "Approval.probe", "Outcome.probe", "Effect.probe",
			PointCreateLedger, PointOpenLedger, PointCheckpoint, "ActionPolicy.status", "Action.list", "Action.watch", "Action.get",
			"namespaces.get", "selfsubjectreviews.create",
		} {
			Expect(points).To(HaveKey(point))
		}
		for point := range points {
			Expect(point).NotTo(HaveSuffix("." + unreadable))
		}
	})
})
