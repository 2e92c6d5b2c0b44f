package node

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/records"
	"ctrlrun.dev/operator/test/testenv"
)

// scene is a namespace with a policy: small refunds are allowed, larger ones are asked about, huge ones denied.
type scene struct {
	ns              string
	agent, approver testenv.User
}

func newScene(ctx context.Context) scene {
	GinkgoHelper()
	ns := namespace(ctx)
	s := scene{ns: ns, agent: testenv.ServiceAccountUser(ns, "refund-agent"), approver: testenv.User{Name: "alice"}}
	Expect(env.Grant(ctx, ns, "ctrlrun-agent", s.agent)).To(Succeed())
	Expect(env.Grant(ctx, ns, "ctrlrun-approver", s.approver)).To(Succeed())
	Expect(env.Policy(ctx, ns, `{"actions": {"stripe.refund": {"effect": "refund:{payment_id}", "rules": [
		{"when": {"amount_gte": 0, "amount_lte": 500}, "decision": "allow"},
		{"when": {"amount_gte": 0, "amount_lte": 5000}, "decision": "approve"},
		{"decision": "deny"}]}}}`)).To(Succeed())
	// Nothing is appended by itself from here on.
	Eventually(ctx, func() []v1alpha1.Receipt { return s.chain(ctx) }).Should(HaveLen(1))
	return s
}

var payments atomic.Int64

// payment is one that no other spec has.
func payment() string { return fmt.Sprintf("txn_%d", payments.Add(1)) }

// refund is a proposal of a process that waits for its admission.
func (s scene) refund(payment string, amount int) *v1alpha1.Action {
	return &v1alpha1.Action{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, GenerateName: "act-"},
		Spec: v1alpha1.ActionSpec{
			ActionType: "stripe.refund", ClaimID: uuid.NewString(),
			Arguments: apiextensionsv1.JSON{Raw: fmt.Appendf(nil, `{"payment_id":%q,"amount":%d}`, payment, amount)},
		},
	}
}

func (s scene) propose(ctx context.Context, payment string, amount int) *v1alpha1.Action {
	GinkgoHelper()
	a := s.refund(payment, amount)
	Expect(env.Client(s.agent).Create(ctx, a)).To(Succeed())
	return a
}

// reaches waits until an Action is in a state and, if that is an end, has its receipt.
func reaches(ctx context.Context, a *v1alpha1.Action, state v1alpha1.ActionState) *v1alpha1.Action {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		get(ctx, a)(g)
		g.Expect(a.Status.State).To(Equal(state), "reason %q: %s", a.Status.Reason, a.Status.Message)
		g.Expect(!state.Terminal() || a.Status.ReceiptRef != nil).To(BeTrue(), "no receipt yet")
	}).Should(Succeed())
	return a
}

// outcome is a report on an admitted Action.
func (s scene) outcome(a *v1alpha1.Action, result v1alpha1.OutcomeResult) *v1alpha1.Outcome {
	return &v1alpha1.Outcome{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: flow.LockName(string(a.UID), a.Spec.ClaimID, a.Spec.Principal.Agent)},
		Spec: v1alpha1.OutcomeSpec{
			ActionRef: v1alpha1.ObjectReference{Name: a.Name, UID: a.UID}, ClaimID: a.Spec.ClaimID, Result: result,
		},
	}
}

// executed takes a small refund to an end.
func (s scene) executed(ctx context.Context, payment string, result v1alpha1.OutcomeResult, state v1alpha1.ActionState) *v1alpha1.Action {
	GinkgoHelper()
	a := reaches(ctx, s.propose(ctx, payment, 100), v1alpha1.ActionAdmitted)
	Expect(env.Client(s.agent).Create(ctx, s.outcome(a, result))).To(Succeed())
	return reaches(ctx, a, state)
}

func (s scene) approve(ctx context.Context, a *v1alpha1.Action) *v1alpha1.Approval {
	GinkgoHelper()
	o := &v1alpha1.Approval{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: a.Name + "." + action.Speaker(s.approver.Name)},
		Spec: v1alpha1.ApprovalSpec{
			ActionRef:  v1alpha1.ObjectReference{Name: a.Name, UID: a.UID},
			ActionType: a.Spec.ActionType, ActionHash: a.Status.ActionHash, EffectKey: &a.Status.Effect.Key, Decision: v1alpha1.Approved,
		},
	}
	Expect(env.Client(s.approver).Create(ctx, o)).To(Succeed())
	return o
}

// chain is all of the namespace's receipts.
func (s scene) chain(ctx context.Context) []v1alpha1.Receipt {
	GinkgoHelper()
	list := &v1alpha1.ReceiptList{}
	Expect(env.Admin().List(ctx, list, client.InNamespace(s.ns))).To(Succeed())
	return list.Items
}

// chainHolds verifies it.
func (s scene) chainHolds(ctx context.Context) {
	GinkgoHelper()
	var entries []receipt.Entry
	for _, r := range s.chain(ctx) {
		entries = append(entries, records.Entry(&r))
	}
	Expect(receipt.Verify(entries, receipt.Options{}).Breaks).To(BeEmpty())
}

// left are the objects of this product in a namespace.
func left(ctx context.Context, g Gomega, ns string) (names []string) {
	for kind := range env.Scheme.KnownTypes(v1alpha1.GroupVersion) {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind + "List"))
		if !env.Scheme.Recognizes(v1alpha1.GroupVersion.WithKind(kind + "List")) {
			continue
		}
		if err := env.Admin().List(ctx, list, client.InNamespace(ns)); err != nil {
			g.Expect(apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err)).To(BeTrue(), "%s: %v", kind, err)
			continue
		}
		for _, one := range list.Items {
			if one.Namespace == ns {
				names = append(names, kind+"/"+one.Name)
			}
		}
	}
	return names
}

func remove(ctx context.Context, ns string) {
	GinkgoHelper()
	Expect(env.Admin().Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})).To(Succeed())
}

func isGone(ctx context.Context, ns string) {
	GinkgoHelper()
	o := &corev1.Namespace{}
	Eventually(ctx, func() error { return env.Admin().Get(ctx, client.ObjectKey{Name: ns}, o) }).
		Should(MatchError(apierrors.IsNotFound, "IsNotFound"), func() string { return fmt.Sprintf("%+v", o.Status.Conditions) })
}

// waits is why nothing is decided about an Action.
func waits(ctx context.Context, a *v1alpha1.Action, reason decision.Reason) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		g.Expect(get(ctx, a)(g).Status.Reason).To(Equal(string(reason)), a.Status.Message)
	}).Should(Succeed())
}

var _ = Describe("a namespace that is deleted", func() {
	It("goes with everything in it, whatever that was waiting for", func(ctx context.Context) {
		s := newScene(ctx)
		s.executed(ctx, payment(), v1alpha1.OutcomeCommitted, v1alpha1.ActionCommitted)
		s.executed(ctx, payment(), v1alpha1.OutcomeNotExecuted, v1alpha1.ActionFailed)
		s.executed(ctx, payment(), v1alpha1.OutcomeUnknown, v1alpha1.ActionAmbiguous)
		reaches(ctx, s.propose(ctx, payment(), 9000), v1alpha1.ActionDenied)
		reaches(ctx, s.propose(ctx, payment(), 100), v1alpha1.ActionAdmitted)
		s.approve(ctx, reaches(ctx, s.propose(ctx, payment(), 1000), v1alpha1.ActionAwaitingApproval))
		reaches(ctx, s.propose(ctx, payment(), 1000), v1alpha1.ActionAwaitingApproval)
		unclaimed := s.refund(payment(), 100)
		unclaimed.Spec.ClaimID = ""
		Expect(env.Client(s.agent).Create(ctx, unclaimed)).To(Succeed())
		reaches(ctx, unclaimed, v1alpha1.ActionClaimable)
		settings := &v1alpha1.Settings{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: v1alpha1.SettingsName}}
		create(ctx, settings)
		create(ctx, job(s.ns, "running", "exec sleep 1000"))
		Eventually(ctx, func(g Gomega) {
			pods := &corev1.PodList{}
			g.Expect(env.Admin().List(ctx, pods, client.InNamespace(s.ns))).To(Succeed())
			g.Expect(pods.Items).To(ConsistOf(HaveField("Status.Phase", corev1.PodRunning)))
		}).Should(Succeed())
		Expect(left(ctx, NewGomega(Fail), s.ns)).NotTo(BeEmpty())

		remove(ctx, s.ns)
		isGone(ctx, s.ns)
		Expect(left(ctx, NewGomega(Fail), s.ns)).To(BeEmpty())

		By("but for its Ledger, which remembers that it was another namespace")
		Expect(env.Admin().Get(ctx, client.ObjectKey{Name: s.ns}, &v1alpha1.Ledger{})).To(Succeed())

		By("while others go on")
		other := newScene(ctx)
		other.executed(ctx, payment(), v1alpha1.OutcomeCommitted, v1alpha1.ActionCommitted)
		other.chainHolds(ctx)
	}, SpecTimeout(3*time.Minute))

	It("decides nothing any more while it is being deleted, and takes nothing any more", func(ctx context.Context) {
		s := newScene(ctx)
		admitted := reaches(ctx, s.propose(ctx, payment(), 100), v1alpha1.ActionAdmitted)
		asked := reaches(ctx, s.propose(ctx, payment(), 1000), v1alpha1.ActionAwaitingApproval)
		unclaimed := s.refund(payment(), 100)
		unclaimed.Spec.ClaimID = ""
		Expect(env.Client(s.agent).Create(ctx, unclaimed)).To(Succeed())
		reaches(ctx, unclaimed, v1alpha1.ActionClaimable)
		before := len(s.chain(ctx))

		// Or it would be over before anything could be seen.
		resume, err := env.SuspendControllers()
		Expect(err).NotTo(HaveOccurred())
		resumed := false
		DeferCleanup(func() {
			if !resumed {
				Expect(resume()).To(Succeed())
			}
		})
		remove(ctx, s.ns)
		waits(ctx, asked, decision.NamespaceTerminating)
		waits(ctx, unclaimed, decision.NamespaceTerminating)
		Expect(asked.Status.State).To(Equal(v1alpha1.ActionAwaitingApproval))
		Expect(unclaimed.Status.State).To(Equal(v1alpha1.ActionClaimable))

		refused := func(err error) {
			GinkgoHelper()
			Expect(apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)).To(BeTrue(), "%v", err)
		}
		refused(env.Client(s.agent).Create(ctx, s.refund(payment(), 100)))
		refused(env.Client(s.agent).Create(ctx, s.outcome(admitted, v1alpha1.OutcomeCommitted)))

		By("nor is a lapse declared: there is no name left to do it with")
		clock.Advance(GinkgoT(), time.Hour)
		other := newSceneBeside(ctx)
		reaches(ctx, other.propose(ctx, payment(), 9000), v1alpha1.ActionDenied)
		get(ctx, admitted)(NewGomega(Fail))
		Expect(admitted.Status.State).To(Equal(v1alpha1.ActionAdmitted))
		Expect(s.chain(ctx)).To(HaveLen(before))

		resumed = true
		Expect(resume()).To(Succeed())
		isGone(ctx, s.ns)
	}, SpecTimeout(3*time.Minute))

	It("takes its records along while something else still holds it", func(ctx context.Context) {
		s := newScene(ctx)
		s.executed(ctx, payment(), v1alpha1.OutcomeUnknown, v1alpha1.ActionAmbiguous)
		kept := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "kept", Finalizers: []string{"example.com/slow"}}}
		create(ctx, kept)
		remove(ctx, s.ns)
		Eventually(ctx, func(g Gomega) { g.Expect(left(ctx, g, s.ns)).To(BeEmpty()) }).Should(Succeed())
		Expect(env.Admin().Get(ctx, client.ObjectKey{Name: s.ns}, &corev1.Namespace{})).To(Succeed())
		Expect(env.Admin().Patch(ctx, kept, client.RawPatch(types.JSONPatchType, []byte(`[{"op":"remove","path":"/metadata/finalizers"}]`)))).To(Succeed())
		isGone(ctx, s.ns)
	}, SpecTimeout(2*time.Minute))
})

// newSceneBeside makes one without the controllers, which give a namespace its ServiceAccount.
func newSceneBeside(ctx context.Context) scene {
	GinkgoHelper()
	ns := env.Namespace(GinkgoT(), nil)
	s := scene{ns: ns, agent: testenv.ServiceAccountUser(ns, "refund-agent")}
	Expect(env.Grant(ctx, ns, "ctrlrun-agent", s.agent)).To(Succeed())
	Expect(env.Policy(ctx, ns, `{"actions": {"stripe.refund": {"decision": "deny"}}}`)).To(Succeed())
	return s
}

var _ = Describe("garbage collection", func() {
	It("has no hold on statements and records", func(ctx context.Context) {
		s := newScene(ctx)
		a := s.executed(ctx, payment(), v1alpha1.OutcomeCommitted, v1alpha1.ActionCommitted)
		asked := reaches(ctx, s.propose(ctx, payment(), 1000), v1alpha1.ActionAwaitingApproval)
		effect := &v1alpha1.Effect{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: a.Status.Effect.Name}}
		last := &v1alpha1.Receipt{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: a.Status.ReceiptRef.Name}}
		gone := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "gone"}}
		create(ctx, gone)
		Expect(env.Admin().Delete(ctx, gone)).To(Succeed())
		dangling := []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: gone.Name, UID: gone.UID}}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"ownerReferences": dangling}})
		Expect(err).NotTo(HaveOccurred())

		By("taking no owner, not even from a cluster-admin, who has every right but the operator's name")
		someone := testenv.User{Name: "root@example.com", Groups: []string{"system:masters"}}
		for _, o := range []client.Object{a, asked, effect, last} {
			err := env.Client(someone).Patch(ctx, o.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, patch))
			Expect(err).To(MatchError(ContainSubstring("ValidatingAdmissionPolicy")), "%T", o)
		}
		owned := s.refund(payment(), 100)
		owned.OwnerReferences = dangling
		Expect(env.Client(s.agent).Create(ctx, owned)).To(MatchError(ContainSubstring("ValidatingAdmissionPolicy")))

		By("collecting a finished Action and nothing with it, however it is deleted")
		for _, how := range []metav1.DeletionPropagation{metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan} {
			done := s.executed(ctx, payment(), v1alpha1.OutcomeCommitted, v1alpha1.ActionCommitted)
			record := &v1alpha1.Effect{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: done.Status.Effect.Name}}
			Expect(env.Admin().Delete(ctx, done, client.PropagationPolicy(how))).To(Succeed())
			Eventually(ctx, func() error { return env.Admin().Get(ctx, client.ObjectKeyFromObject(done), done) }).
				Should(MatchError(apierrors.IsNotFound, "IsNotFound"), string(how))
			Expect(get(ctx, record)(NewGomega(Fail)).Status.State).To(Equal(v1alpha1.EffectCommitted))
		}
		for _, how := range []metav1.DeletionPropagation{metav1.DeletePropagationForeground, metav1.DeletePropagationBackground, metav1.DeletePropagationOrphan} {
			Expect(env.Admin().Delete(ctx, asked.DeepCopy(), client.PropagationPolicy(how))).NotTo(Succeed())
			Expect(env.Admin().Delete(ctx, effect.DeepCopy(), client.PropagationPolicy(how))).NotTo(Succeed())
			Expect(env.Admin().Delete(ctx, last.DeepCopy(), client.PropagationPolicy(how))).NotTo(Succeed())
		}
		s.chainHolds(ctx)
	}, SpecTimeout(2*time.Minute))

	It("takes a workload of an agent and leaves what the agent did", func(ctx context.Context) {
		s := newScene(ctx)
		j := job(s.ns, "agent", "true")
		create(ctx, j)
		Eventually(ctx, func(g Gomega) { g.Expect(finished(get(ctx, j)(g))).NotTo(BeEmpty()) }).Should(Succeed())
		a := s.executed(ctx, payment(), v1alpha1.OutcomeCommitted, v1alpha1.ActionCommitted)
		Expect(env.Admin().Delete(ctx, j, client.PropagationPolicy(metav1.DeletePropagationForeground))).To(Succeed())
		Eventually(ctx, func(g Gomega) {
			pods := &corev1.PodList{}
			g.Expect(env.Admin().List(ctx, pods, client.InNamespace(s.ns))).To(Succeed())
			g.Expect(pods.Items).To(BeEmpty())
		}).Should(Succeed())
		Expect(get(ctx, a)(NewGomega(Fail)).Status.State).To(Equal(v1alpha1.ActionCommitted))
		s.chainHolds(ctx)
	}, SpecTimeout(2*time.Minute))
})

// limit puts a quota on a kind, and returns when it counts.
func (s scene) limit(ctx context.Context, resources string, most int64) *corev1.ResourceQuota {
	GinkgoHelper()
	name := corev1.ResourceName("count/" + resources + ".ctrlrun.dev")
	q := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: resources},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{name: *resource.NewQuantity(most, resource.DecimalSI)}},
	}
	create(ctx, q)
	s.counts(ctx, q)
	return q
}

// lift raises a quota to what is far enough, and returns when that counts.
func (s scene) lift(ctx context.Context, q *corev1.ResourceQuota) {
	GinkgoHelper()
	get(ctx, q)(NewGomega(Fail))
	for name := range q.Spec.Hard {
		q.Spec.Hard[name] = resource.MustParse("1000")
	}
	Expect(env.Admin().Update(ctx, q)).To(Succeed())
	s.counts(ctx, q)
}

func (s scene) counts(ctx context.Context, q *corev1.ResourceQuota) {
	GinkgoHelper()
	hard := q.Spec.Hard.DeepCopy()
	Eventually(ctx, func(g Gomega) {
		get(ctx, q)(g)
		for name, most := range hard {
			is := q.Status.Hard[name]
			g.Expect(is.Cmp(most)).To(BeZero(), "%v", q.Status)
			g.Expect(q.Status.Used).To(HaveKey(name), "the quota controller learns of new kinds every 30 seconds")
		}
	}).Should(Succeed())
}

var _ = Describe("a ResourceQuota", func() {
	It("on effects holds what needs another one, until it is lifted", func(ctx context.Context) {
		s := newScene(ctx)
		first := payment()
		s.executed(ctx, first, v1alpha1.OutcomeNotExecuted, v1alpha1.ActionFailed)
		q := s.limit(ctx, "effects", 1)
		held := s.propose(ctx, payment(), 100)
		waits(ctx, held, decision.Quota)
		Expect(held.Status.State).To(Equal(v1alpha1.ActionPending))
		Expect(held.Status.Execution).To(BeNil())
		Expect(held.Status.Message).To(ContainSubstring("count/effects.ctrlrun.dev"))

		By("and nothing else")
		reaches(ctx, s.propose(ctx, payment(), 9000), v1alpha1.ActionDenied)
		s.executed(ctx, first, v1alpha1.OutcomeCommitted, v1alpha1.ActionCommitted) // the record of that key is there

		s.lift(ctx, q)
		reaches(ctx, held, v1alpha1.ActionAdmitted)
		Expect(env.Client(s.agent).Create(ctx, s.outcome(held, v1alpha1.OutcomeCommitted))).To(Succeed())
		reaches(ctx, held, v1alpha1.ActionCommitted)
		s.chainHolds(ctx)
	}, SpecTimeout(3*time.Minute))

	It("on receipts holds what has ended, until it is lifted, and no end is lost", func(ctx context.Context) {
		s := newScene(ctx)
		committed := reaches(ctx, s.propose(ctx, payment(), 100), v1alpha1.ActionAdmitted)
		q := s.limit(ctx, "receipts", int64(len(s.chain(ctx))))
		before := len(s.chain(ctx))
		Expect(env.Client(s.agent).Create(ctx, s.outcome(committed, v1alpha1.OutcomeCommitted))).To(Succeed())
		denied := s.propose(ctx, payment(), 9000)
		Eventually(ctx, func(g Gomega) {
			g.Expect(get(ctx, denied)(g).Status.State).To(Equal(v1alpha1.ActionDenied))
			effect := &v1alpha1.Effect{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: committed.Status.Effect.Name}}
			g.Expect(get(ctx, effect)(g).Status.State).To(Equal(v1alpha1.EffectCommitted), "the report is taken at once")
		}).Should(Succeed())
		Expect(denied.Status.ReceiptRef).To(BeNil())
		Expect(get(ctx, committed)(NewGomega(Fail)).Status.State).To(Equal(v1alpha1.ActionAdmitted))
		Expect(s.chain(ctx)).To(HaveLen(before))

		s.lift(ctx, q)
		reaches(ctx, committed, v1alpha1.ActionCommitted)
		reaches(ctx, denied, v1alpha1.ActionDenied)
		Expect(s.chain(ctx)).To(HaveLen(before + 2))
		s.chainHolds(ctx)
	}, SpecTimeout(3*time.Minute))

	It("on actions is the agent's to meet, and what was proposed before goes on", func(ctx context.Context) {
		s := newScene(ctx)
		a := reaches(ctx, s.propose(ctx, payment(), 100), v1alpha1.ActionAdmitted)
		q := s.limit(ctx, "actions", 1)
		err := env.Client(s.agent).Create(ctx, s.refund(payment(), 100))
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring("exceeded quota")))
		Expect(env.Client(s.agent).Create(ctx, s.outcome(a, v1alpha1.OutcomeCommitted))).To(Succeed())
		reaches(ctx, a, v1alpha1.ActionCommitted)
		s.lift(ctx, q)
		s.executed(ctx, payment(), v1alpha1.OutcomeCommitted, v1alpha1.ActionCommitted)
		s.chainHolds(ctx)
	}, SpecTimeout(3*time.Minute))

	It("on outcomes keeps a lapse from being declared, until it is lifted", func(ctx context.Context) {
		s := newScene(ctx)
		a := reaches(ctx, s.propose(ctx, payment(), 100), v1alpha1.ActionAdmitted)
		q := s.limit(ctx, "outcomes", 0)
		err := env.Client(s.agent).Create(ctx, s.outcome(a, v1alpha1.OutcomeCommitted))
		Expect(err).To(MatchError(ContainSubstring("exceeded quota")))
		clock.Advance(GinkgoT(), time.Hour)
		// What must not happen is nothing that could be waited for; without the quota it takes a moment.
		Consistently(ctx, func(g Gomega) {
			g.Expect(get(ctx, a)(g).Status.State).To(Equal(v1alpha1.ActionAdmitted))
		}).WithTimeout(3 * time.Second).Should(Succeed())
		effect := &v1alpha1.Effect{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: a.Status.Effect.Name}}
		Expect(get(ctx, effect)(NewGomega(Fail)).Status.State).To(Equal(v1alpha1.EffectExecuting))
		s.lift(ctx, q)
		reaches(ctx, a, v1alpha1.ActionAmbiguous)
		s.chainHolds(ctx)
	}, SpecTimeout(3*time.Minute))
})
