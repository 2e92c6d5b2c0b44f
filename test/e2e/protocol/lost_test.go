package protocol

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/controllers"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/test/testenv"
)

// withoutEffectRules takes the rules of Effects out of their CRD until the spec is over, so that a spec can do to a record
// what a restore that drops statuses does: the apiserver itself would not let anybody.
func withoutEffectRules() {
	GinkgoHelper()
	key := client.ObjectKey{Name: "effects." + v1alpha1.GroupVersion.Group}
	var root, status apiextensionsv1.ValidationRules
	edit := func(f func(root, status *apiextensionsv1.ValidationRules)) error {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := env.Admin().Get(ctx, key, crd); err != nil {
			return err
		}
		schema := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
		s := schema.Properties["status"]
		f(&schema.XValidations, &s.XValidations)
		schema.Properties["status"] = s
		return env.Admin().Update(ctx, crd)
	}
	Eventually(edit).WithArguments(func(r, s *apiextensionsv1.ValidationRules) { root, status, *r, *s = *r, *s, nil, nil }).Should(Succeed())
	Expect(root).NotTo(BeEmpty())
	Expect(status).NotTo(BeEmpty())
	DeferCleanup(func() {
		Eventually(edit).WithArguments(func(r, s *apiextensionsv1.ValidationRules) { *r, *s = root, status }).Should(Succeed())
		canary := &v1alpha1.Effect{}
		Expect(env.Admin().Get(ctx, client.ObjectKey{Namespace: testenv.SystemNamespace, Name: "ctrlrun-canary"}, canary)).To(Succeed())
		canary.Status = nil
		Eventually(func() bool { return apierrors.IsInvalid(env.Admin().Update(ctx, canary.DeepCopy(), client.DryRunAll)) }).Should(BeTrue())
	})
}

// strip takes the status off the record of a key.
func (s *scene) strip(key string) {
	GinkgoHelper()
	Eventually(func() error {
		e := s.effect(key)
		e.Status = nil
		return env.Admin().Update(ctx, e)
	}).Should(Succeed())
}

// quoting makes a resolution that quotes a receipt.
func (s *scene) quoting(key string, d receipt.Document, result v1alpha1.ResolutionResult) *v1alpha1.Resolution {
	GinkgoHelper()
	for _, r := range s.receipts() {
		if r.Spec.Seq == d.Seq {
			return s.resolution(s.oncall, s.effect(key), r, result)
		}
	}
	Fail("no such receipt")
	return nil
}

var _ = Describe("an effect whose record lost its status", Serial, func() {
	It("is ambiguous, whatever it was, and ends everybody who wants it", func() {
		s := newScene()
		payment := unique("txn")
		key := "refund:" + payment
		asked, claimable, elsewhere := s.asked(payment), s.claimable(payment), s.claimable(unique("txn"))
		done := s.committed(payment)

		withoutEffectRules()
		s.strip(key)
		e := s.effectReaches(key, v1alpha1.EffectAmbiguous)
		for _, a := range []*v1alpha1.Action{asked, claimable} {
			a = s.reaches(a, v1alpha1.ActionBlocked, string(decision.StatusMissing))
			Expect(a.Status.Execution).To(BeNil())
			Expect(s.receiptOf(a).Reason).To(Equal(decision.StatusMissing))
		}
		Expect(s.get(elsewhere).Status.State).To(Equal(v1alpha1.ActionClaimable))
		Expect(e.Status.Cause).To(Equal(v1alpha1.CauseStatusMissing))
		Expect(e.Status.Attempt).To(Equal(int64(1)))
		Expect(e.Status.Holder.UID).To(Equal(done.UID))
		Expect(s.get(done).Status.State).To(Equal(v1alpha1.ActionCommitted))
		s.reaches(s.propose(refund(payment, 2000)), v1alpha1.ActionBlocked, string(decision.AmbiguousEffect))

		By("which is on record, and resolved by quoting that record only")
		Eventually(func() []receipt.Document { return s.receiptsOfKind(receipt.KindStatusMissing, key) }).Should(HaveLen(1))
		loss := s.receiptsOfKind(receipt.KindStatusMissing, key)[0]
		Expect(loss.Result).To(Equal(decision.Ambiguous))
		Expect(loss.SubjectUID).To(Equal(string(e.UID)))
		Expect(loss.Ordinal).To(Equal(int64(1)))
		old := s.quoting(key, s.receiptOf(done), v1alpha1.ResolutionNotExecuted)
		Expect(env.Client(s.oncall).Create(ctx, old)).To(Succeed())
		expectRefused(old, v1alpha1.ReasonMismatch)
		r := again(s.quoting(key, loss, v1alpha1.ResolutionCommitted), "2")
		Expect(env.Client(s.oncall).Create(ctx, r)).To(Succeed())
		expectAccepted(r)
		s.effectReaches(key, v1alpha1.EffectCommitted)
		s.reaches(s.propose(refund(payment, 100)), v1alpha1.ActionBlocked, string(decision.Duplicate))
		s.chainHolds()
	})

	It("asks as many people as the policy does by then, and nobody can say how many while that is invalid", func() {
		s := newScene()
		two := `{"door.open": {"effect": "door:{id}", "decision": "allow", "resolutionsRequired": 2}}`
		broken := `{"door.open": {"effect": "door:{id}", "rules": [{"when": {"at_eq": {"hour": 1.5}}, "decision": "allow"}]}}`
		lost := func(id, before, then string) (string, receipt.Document) {
			GinkgoHelper()
			s.policy("doors", before)
			a := s.reaches(s.propose(act("door.open", `{"id":"`+id+`"}`)), v1alpha1.ActionAdmitted)
			s.report(s.agent, a, v1alpha1.OutcomeCommitted)
			s.reaches(a, v1alpha1.ActionCommitted)
			s.policy("doors", then)
			key := "door:" + id
			s.strip(key)
			s.effectReaches(key, v1alpha1.EffectAmbiguous)
			Eventually(func() []receipt.Document { return s.receiptsOfKind(receipt.KindStatusMissing, key) }).Should(HaveLen(1))
			return key, s.receiptsOfKind(receipt.KindStatusMissing, key)[0]
		}
		says := func(key string, d receipt.Document) *v1alpha1.Resolution {
			GinkgoHelper()
			r := s.quoting(key, d, v1alpha1.ResolutionCommitted)
			Expect(env.Client(s.oncall).Create(ctx, r)).To(Succeed())
			return r
		}
		isOpen := func(r *v1alpha1.Resolution, reason string) {
			GinkgoHelper()
			Eventually(func(g Gomega) {
				c := verdict(r)
				g.Expect(c.Status).To(Equal(metav1.ConditionUnknown), c.Message)
				g.Expect(c.Reason).To(Equal(reason), c.Message)
			}).Should(Succeed())
		}
		withoutEffectRules()
		one := `{"door.open": {"effect": "door:{id}", "decision": "allow"}}`

		By("two, which the attempt did not ask for")
		key, loss := lost(unique("a"), one, two)
		Expect(s.effect(key).Status.ResolutionsRequired).To(Equal(int64(2)))
		r := says(key, loss)
		isOpen(r, v1alpha1.ReasonMorePeopleRequired)
		s.policy("doors", one)
		Expect(s.effect(key).Status.State).To(Equal(v1alpha1.EffectAmbiguous))

		By("nobody knows how many")
		key, loss = lost(unique("b"), one, broken)
		Expect(s.effect(key).Status.ResolutionsRequired).To(BeZero())
		r = says(key, loss)
		isOpen(r, v1alpha1.ReasonPolicyInvalid)
		Expect(s.effect(key).Status.State).To(Equal(v1alpha1.EffectAmbiguous))
		s.policy("doors", two)
		isOpen(r, v1alpha1.ReasonMorePeopleRequired)
		s.policy("doors", one)
		s.effectReaches(key, v1alpha1.EffectCommitted)
		s.chainHolds()
	})

	It("while it was executed, ends that attempt ambiguous, whatever is reported then", func() {
		s := newScene()
		payment := unique("txn")
		key := "refund:" + payment
		a := s.admitted(payment)
		withoutEffectRules()
		s.strip(key)
		a = s.reaches(a, v1alpha1.ActionAmbiguous, string(decision.StatusMissing))
		e := s.effect(key)
		Expect(e.Status.State).To(Equal(v1alpha1.EffectAmbiguous))
		Expect(e.Status.Holder.UID).To(Equal(a.UID))
		Expect(e.Status.Token).To(Equal(a.Status.Execution.Token))

		s.report(s.agent, a, v1alpha1.OutcomeNotExecuted)
		s.reaches(s.propose(refund(payment, 100)), v1alpha1.ActionBlocked, string(decision.AmbiguousEffect))

		By("and a later attempt has another number and another token")
		r := s.resolve(s.oncall, key, v1alpha1.ResolutionNotExecuted)
		expectAccepted(r)
		retry := s.admitted(payment)
		Expect(retry.Status.Effect.Attempt).To(BeNumerically(">", a.Status.Effect.Attempt))
		Expect(retry.Status.Execution.Token).NotTo(Equal(a.Status.Execution.Token))
		s.chainHolds()
	})

	It("twice is twice on record, and the first record answers nothing any more", func() {
		s := newScene()
		payment := unique("txn")
		key := "refund:" + payment
		s.committed(payment)
		withoutEffectRules()
		for n := 1; n <= 2; n++ {
			s.strip(key)
			s.effectReaches(key, v1alpha1.EffectAmbiguous)
			Eventually(func() []receipt.Document { return s.receiptsOfKind(receipt.KindStatusMissing, key) }).Should(HaveLen(n))
		}
		losses := s.receiptsOfKind(receipt.KindStatusMissing, key)
		Expect(losses[1].Ordinal).To(Equal(int64(2)))
		old := s.quoting(key, losses[0], v1alpha1.ResolutionNotExecuted)
		Expect(env.Client(s.oncall).Create(ctx, old)).To(Succeed())
		expectRefused(old, v1alpha1.ReasonMismatch)
		Expect(s.effect(key).Status.State).To(Equal(v1alpha1.EffectAmbiguous))
		r := again(s.quoting(key, losses[1], v1alpha1.ResolutionCommitted), "2")
		Expect(env.Client(s.oncall).Create(ctx, r)).To(Succeed())
		expectAccepted(r)
		s.effectReaches(key, v1alpha1.EffectCommitted)
		s.chainHolds()
	})

	It("while no operator was there, admits nobody when it comes back", func() {
		s := newScene()
		payment := unique("txn")
		key := "refund:" + payment
		first := s.admitted(payment)
		s.report(s.agent, first, v1alpha1.OutcomeNotExecuted)
		s.reaches(first, v1alpha1.ActionFailed)
		withoutOperator()
		withoutEffectRules()
		s.strip(key)
		fresh := s.propose(refund(payment, 100))
		operator = startOperator(controllers.Options{})
		s.effectReaches(key, v1alpha1.EffectAmbiguous)
		Eventually(func() v1alpha1.ActionState { return s.get(fresh).Status.State }).Should(Equal(v1alpha1.ActionBlocked))
		Expect(s.get(fresh).Status.Reason).To(BeElementOf(string(decision.StatusMissing), string(decision.AmbiguousEffect)))
		s.chainHolds()
	})
})

var _ = Describe("what was deleted while admission was missing", Serial, func() {
	It("frees no key", func() {
		s := newScene()
		vandal := testenv.User{Name: "vandal"}
		Expect(env.Allow(ctx, s.ns, vandal, rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}})).To(Succeed())
		executing, committed, failed, holderless := unique("txn"), unique("txn"), unique("txn"), unique("txn")
		running := s.admitted(executing)
		s.committed(committed)
		a := s.admitted(failed)
		s.report(s.agent, a, v1alpha1.OutcomeNotExecuted)
		s.reaches(a, v1alpha1.ActionFailed)
		gone := s.admitted(holderless)

		closeGap := admissionGap("ctrlrun-records-kept", "ctrlrun-statements-kept")
		remove := func(o client.Object) {
			GinkgoHelper()
			Eventually(func() error { return env.Client(vandal).Delete(ctx, o) }).Should(Succeed())
		}
		remove(s.effect("refund:" + executing))
		remove(s.effect("refund:" + committed))
		remove(s.effect("refund:" + failed))
		remove(s.get(gone))
		closeGap()

		By("re-creating the record of an attempt that may still be executed")
		running = s.reaches(running, v1alpha1.ActionAmbiguous, string(decision.StatusMissing))
		e := s.effect("refund:" + executing)
		Expect(e.Status.State).To(Equal(v1alpha1.EffectAmbiguous))
		Expect(e.Status.Cause).To(Equal(v1alpha1.CauseStatusMissing))
		Expect(e.Status.Holder.UID).To(Equal(running.UID))
		Expect(e.Status.Attempt).To(Equal(int64(1)))

		By("re-creating those that the chain knows of")
		for _, payment := range []string{committed, failed} {
			again := s.propose(refund(payment, 100))
			Eventually(func() v1alpha1.ActionState { return s.get(again).Status.State }).Should(Equal(v1alpha1.ActionBlocked))
			Expect(s.get(again).Status.Execution).To(BeNil())
			e := s.effect("refund:" + payment)
			Expect(e.Status.State).To(Equal(v1alpha1.EffectAmbiguous))
			Expect(e.Status.Cause).To(Equal(v1alpha1.CauseStatusMissing))
			Eventually(func() []receipt.Document { return s.receiptsOfKind(receipt.KindStatusMissing, "refund:"+payment) }).Should(HaveLen(1))
		}

		By("not taking a deleted Action for one that was never admitted")
		again := s.propose(refund(holderless, 100))
		Eventually(func() v1alpha1.ActionState { return s.get(again).Status.State }).Should(Equal(v1alpha1.ActionBlocked))
		e = s.effect("refund:" + holderless)
		Expect(e.Status.State).To(Equal(v1alpha1.EffectAmbiguous))
		Expect(e.Status.Cause).To(Equal(v1alpha1.CauseStatusMissing))

		By("and a person can resolve each")
		for _, payment := range []string{executing, committed, failed, holderless} {
			key := "refund:" + payment
			expectAccepted(s.resolve(s.oncall, key, v1alpha1.ResolutionCommitted))
			s.effectReaches(key, v1alpha1.EffectCommitted)
		}
		s.chainHolds()
	})
})
