package operator

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/decision"
)

// versions are those of everything an operator decides in the namespace.
func (s *scene) versions(ctx SpecContext) map[string]string {
	GinkgoHelper()
	versions := map[string]string{}
	note := func(kind string, o kube.Object) { versions[kind+" "+o.GetName()] = o.GetResourceVersion() }
	for _, a := range s.actions(ctx) {
		note("Action", &a)
	}
	for _, r := range s.receipts(ctx) {
		note("Receipt", &r)
	}
	effects := &v1alpha1.EffectList{}
	Expect(env.Admin().List(ctx, effects, kube.InNamespace(s.ns))).To(Succeed())
	for i := range effects.Items {
		note("Effect", &effects.Items[i])
	}
	return versions
}

// notExecuted states, as the person on call, that the present attempt of an effect did not happen.
func (s *scene) notExecuted(ctx SpecContext, payment string) {
	GinkgoHelper()
	e := s.effect(ctx, payment)
	o := &v1alpha1.Resolution{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: fmt.Sprintf("%s.%d.%s", e.Name, e.Status.Attempt, action.Speaker(s.oncall.Name))},
		Spec: v1alpha1.ResolutionSpec{
			EffectRef: v1alpha1.ObjectReference{Name: e.Name, UID: e.UID}, Attempt: e.Status.Attempt, ActionType: e.Status.ActionType,
			Result: v1alpha1.ResolutionNotExecuted, Reason: "the provider knows of no refund", Evidence: "https://provider.example.com/log/1",
		},
	}
	for _, r := range s.receipts(ctx) {
		if r.Spec.EffectName == e.Name && r.Spec.Result == "ambiguous" {
			o.Spec.ReceiptRef = v1alpha1.ReceiptReference{Name: r.Name, Hash: r.Spec.Hash}
		}
	}
	Expect(env.Client(s.oncall).Create(ctx, o)).To(Succeed())
	accepted(ctx, o, func(o *v1alpha1.Resolution) []metav1.Condition { return o.Status.Conditions })
}

var _ = Describe("an operator that is suspended among actions in flight", func() {
	It("changes nothing when it wakes after lapses, resolutions and further attempts, and goes on from there", func(ctx SpecContext) {
		sleepy, other := start(ctx, alone), start(ctx, alone)
		s := newScene(ctx)

		// The shortest lease there is: this is the one place where a lapse is waited for.
		const inFlight, reported, lease = 12, 4, 30 * time.Second
		var calls []*client.Call
		for n := range inFlight {
			r := refund(payment(n), 100)
			r.LeaseDuration = lease
			calls = append(calls, s.propose(ctx, r))
			if n == inFlight/2 {
				Expect(sleepy.Pause()).To(Succeed())
			}
		}
		for _, call := range calls {
			Expect(call.Claim(ctx)).Error().NotTo(HaveOccurred())
		}

		By("settling what is reported, by the other")
		for _, call := range calls[:reported] {
			Expect(call.Report(ctx, nil, nil)).To(Succeed())
			s.reaches(ctx, call, v1alpha1.ActionCommitted)
		}

		By("declaring the other leases over when they are")
		lapses := calls[reported:]
		for _, call := range lapses {
			lapsed := s.reaches(ctx, call, v1alpha1.ActionAmbiguous, string(decision.LeaseLapsed))
			Expect(lapsed.Status.FinishTime.Time).To(BeTemporally(">", lapsed.Status.Execution.LeaseExpirationTime.Time))
		}

		By("admitting a second attempt after a person resolved the first")
		var retries []*client.Call
		for i := range lapses {
			n := reported + i
			s.notExecuted(ctx, payment(n))
			retry := s.admitted(ctx, refund(payment(n), 100))
			Expect(retry.Action().Status.Effect.Attempt).To(Equal(int64(2)))
			retries = append(retries, retry)
		}
		for _, call := range lapses {
			Eventually(ctx, func() bool {
				o := s.reaches(ctx, call, v1alpha1.ActionAmbiguous)
				return meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.ResolvedCondition)
			}).Should(BeTrue()) // the last thing the other has to write
		}
		before := s.versions(ctx)

		By("waking the one that was suspended")
		Expect(sleepy.Resume()).To(Succeed())
		Expect(sleepy.WaitReady(ctx)).To(Succeed())
		Consistently(ctx, func() map[string]string { return s.versions(ctx) }).WithTimeout(3 * time.Second).Should(Equal(before))
		alive(sleepy)

		By("letting it go on alone")
		Expect(other.Stop()).To(Succeed())
		for i, retry := range retries {
			Expect(retry.Report(ctx, nil, nil)).To(Succeed())
			s.reaches(ctx, retry, v1alpha1.ActionCommitted)
			e := s.effect(ctx, payment(reported+i))
			Expect(e.Status.State).To(Equal(v1alpha1.EffectCommitted))
			Expect(e.Status.Attempt).To(Equal(int64(2)))
			s.reaches(ctx, lapses[i], v1alpha1.ActionAmbiguous)
		}
		s.chainHolds(ctx, reported+3*len(lapses)) // a lapse, its resolution, and the second attempt
	}, SpecTimeout(5*time.Minute))
})
