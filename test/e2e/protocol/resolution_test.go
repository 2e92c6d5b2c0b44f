package protocol

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/controllers"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/records"
	"ctrlrun.dev/operator/test/testenv"
)

// receiptsOfKind are the documents of one kind about one effect.
func (s *scene) receiptsOfKind(kind, key string) []receipt.Document {
	GinkgoHelper()
	var all []receipt.Document
	for _, r := range s.receipts() {
		if r.Spec.Kind != kind || r.Spec.EffectName != action.EffectName(key) {
			continue
		}
		d, err := receipt.Parse(records.Entry(&r))
		Expect(err).NotTo(HaveOccurred())
		all = append(all, d)
	}
	return all
}

var _ = Describe("a resolution", func() {
	It("that it happened settles the effect for good, on record", func() {
		s := newScene()
		payment := unique("txn")
		key := "refund:" + payment
		a := s.ambiguous(payment)
		quoted := s.ambiguousReceipt(key)
		r := s.resolve(s.oncall, key, v1alpha1.ResolutionCommitted)
		e := s.effectReaches(key, v1alpha1.EffectCommitted)
		expectAccepted(r)
		Expect(e.Status.Resolution.UID).To(Equal(r.UID))
		Expect(e.Status.Resolution.Resolver).To(Equal(s.oncall.Name))
		Expect(e.Status.Attempt).To(Equal(int64(1)))

		By("by a receipt of its own, which quotes the one it answers")
		documents := s.receiptsOfKind(receipt.KindResolution, key)
		Expect(documents).To(HaveLen(1))
		d := documents[0]
		Expect(d.Result).To(Equal(decision.Committed))
		Expect(d.Resolver).To(Equal(s.oncall.Name))
		Expect(d.ResolutionUID).To(Equal(string(r.UID)))
		Expect(d.Statement).To(Equal(r.Spec.Reason))
		Expect(d.ActionUID).To(Equal(string(a.UID)))
		Expect(d.Resolves).To(Equal(receipt.Link{Seq: quoted.Spec.Seq, Hash: quoted.Spec.Hash}))

		By("and told on the Action, which stays what it was")
		var c *metav1.Condition
		Eventually(func() *metav1.Condition { // after the verdict
			c = meta.FindStatusCondition(s.get(a).Status.Conditions, v1alpha1.ResolvedCondition)
			return c
		}).ShouldNot(BeNil())
		Expect(s.get(a).Status.State).To(Equal(v1alpha1.ActionAmbiguous))
		Expect(c.Status).To(Equal(metav1.ConditionTrue))
		Expect(c.Message).To(ContainSubstring(s.oncall.Name))

		s.reaches(s.propose(refund(payment, 100)), v1alpha1.ActionBlocked, string(decision.Duplicate))
		s.chainHolds()
	})

	It("that it did not happen frees the key for the next attempt, which has another token", func() {
		s := newScene()
		payment := unique("txn")
		key := "refund:" + payment
		a := s.ambiguous(payment)
		r := s.resolve(s.oncall, key, v1alpha1.ResolutionNotExecuted)
		s.effectReaches(key, v1alpha1.EffectFailed)

		retry := s.admitted(payment)
		expectAccepted(r)
		Expect(retry.Status.Effect.Attempt).To(Equal(int64(2)))
		Expect(retry.Status.Execution.Token).NotTo(Equal(a.Status.Execution.Token))
		e := s.effect(key)
		Expect(e.Status.Resolution).To(BeNil(), "the resolution was of attempt 1")
		Expect(e.Status.Cause).To(BeEmpty())
		var results []string
		for _, line := range e.Status.History {
			results = append(results, fmt.Sprintf("%d %s", line.Attempt, line.Result))
		}
		Expect(results).To(Equal([]string{"1 ambiguous", "1 resolved_not_executed"}))
		documents := s.receiptsOfKind(receipt.KindResolution, key)
		Expect(documents).To(HaveLen(1))
		Expect(documents[0].Result).To(Equal(decision.Failed))
		Expect(documents[0].Evidence).To(Equal(r.Spec.Evidence))

		By("and says nothing about that one")
		s.report(s.agent, retry, v1alpha1.OutcomeUnknown)
		s.reaches(retry, v1alpha1.ActionAmbiguous)
		stale := again(s.resolution(s.oncall, s.effect(key), s.ambiguousReceipt(key), v1alpha1.ResolutionCommitted), "2")
		stale.Spec.Attempt = 1
		stale.Name = strings.Replace(stale.Name, ".2.", ".1.", 1)
		Expect(env.Client(s.oncall).Create(ctx, stale)).To(Succeed())
		expectRefused(stale, v1alpha1.ReasonAnotherWasFirst)
		s.resolve(s.oncall, key, v1alpha1.ResolutionCommitted)
		s.effectReaches(key, v1alpha1.EffectCommitted)
		Eventually(func() []receipt.Document { return s.receiptsOfKind(receipt.KindResolution, key) }).Should(HaveLen(2))
		s.chainHolds()
	})

	DescribeTable("does not count where it quotes", func(forge func(*scene, *v1alpha1.Resolution)) {
		s := newScene()
		payment := unique("txn")
		key := "refund:" + payment
		s.ambiguous(payment)
		wrong := s.resolution(s.oncall, s.effect(key), s.ambiguousReceipt(key), v1alpha1.ResolutionNotExecuted)
		forge(s, wrong)
		Expect(env.Client(s.oncall).Create(ctx, wrong)).To(Succeed())
		expectRefused(wrong, v1alpha1.ReasonMismatch)
		Expect(s.effect(key).Status.State).To(Equal(v1alpha1.EffectAmbiguous))
		Expect(s.receiptsOfKind(receipt.KindResolution, key)).To(BeEmpty())
		s.reaches(s.propose(refund(payment, 100)), v1alpha1.ActionBlocked, string(decision.AmbiguousEffect))
	},
		Entry("no receipt there is", func(_ *scene, o *v1alpha1.Resolution) { o.Spec.ReceiptRef.Name += "0" }),
		Entry("another hash", func(_ *scene, o *v1alpha1.Resolution) { o.Spec.ReceiptRef.Hash = receipt.Genesis }),
		Entry("the ambiguous receipt of another effect", func(s *scene, o *v1alpha1.Resolution) {
			other := unique("txn")
			s.ambiguous(other)
			r := s.ambiguousReceipt("refund:" + other)
			o.Spec.ReceiptRef = v1alpha1.ReceiptReference{Name: r.Name, Hash: r.Spec.Hash}
		}),
		Entry("another Effect's uid", func(_ *scene, o *v1alpha1.Resolution) { o.Spec.EffectRef.UID = types.UID("1") }),
		Entry("another type", func(_ *scene, o *v1alpha1.Resolution) { o.Spec.ActionType = "note.publish" }),
	)

	It("does not count where it quotes a receipt that does not say ambiguous", func() {
		s := newScene()
		payment := unique("txn")
		key := "refund:" + payment
		first := s.admitted(payment)
		s.report(s.agent, first, v1alpha1.OutcomeNotExecuted)
		first = s.reaches(first, v1alpha1.ActionFailed)
		s.ambiguous(payment)
		wrong := s.resolution(s.oncall, s.effect(key), s.ambiguousReceipt(key), v1alpha1.ResolutionCommitted)
		wrong.Spec.ReceiptRef = v1alpha1.ReceiptReference{Name: first.Status.ReceiptRef.Name, Hash: first.Status.ReceiptRef.Hash}
		Expect(env.Client(s.oncall).Create(ctx, wrong)).To(Succeed())
		expectRefused(wrong, v1alpha1.ReasonMismatch)
		Expect(s.effect(key).Status.State).To(Equal(v1alpha1.EffectAmbiguous))

		By("leaving the right one to its speaker's next try")
		right := again(s.resolution(s.oncall, s.effect(key), s.ambiguousReceipt(key), v1alpha1.ResolutionCommitted), "2")
		Expect(env.Client(s.oncall).Create(ctx, right)).To(Succeed())
		expectAccepted(right)
		s.chainHolds()
	})

	It("does not count by the agent whose action it was", func() {
		s := newScene()
		payment := unique("txn")
		Expect(env.Grant(ctx, s.ns, "ctrlrun-resolver", s.agent)).To(Succeed())
		s.ambiguous(payment)
		expectRefused(s.resolve(s.agent, "refund:"+payment, v1alpha1.ResolutionNotExecuted), v1alpha1.ReasonSelfResolution)
		Expect(s.effect("refund:" + payment).Status.State).To(Equal(v1alpha1.EffectAmbiguous))
	})

	It("does not count for an effect that is not ambiguous", func() {
		s := newScene()
		done, running := unique("txn"), unique("txn")
		s.ambiguous(unique("txn"))
		anything := s.receipts()[0]
		s.committed(done)
		s.admitted(running)
		for key, state := range map[string]v1alpha1.EffectState{"refund:" + done: v1alpha1.EffectCommitted, "refund:" + running: v1alpha1.EffectExecuting} {
			r := s.resolution(s.oncall, s.effect(key), anything, v1alpha1.ResolutionNotExecuted)
			Expect(env.Client(s.oncall).Create(ctx, r)).To(Succeed())
			expectRefused(r, v1alpha1.ReasonNotAmbiguous)
			Expect(s.effect(key).Status.State).To(Equal(state))
		}
	})

	It("does not count for an effect there is none of", func() {
		s := newScene()
		payment := unique("txn")
		s.ambiguous(payment)
		r := s.resolution(s.oncall, s.effect("refund:"+payment), s.ambiguousReceipt("refund:"+payment), v1alpha1.ResolutionNotExecuted)
		r.Name = strings.Replace(r.Name, r.Spec.EffectRef.Name, "nothing", 1)
		r.Spec.EffectRef.Name = "nothing"
		Expect(env.Client(s.oncall).Create(ctx, r)).To(Succeed())
		expectRefused(r, v1alpha1.ReasonEffectNotFound)
	})

	It("counts once: of two people one settles it, and the other is told so", func() {
		s := newScene()
		payment := unique("txn")
		key := "refund:" + payment
		other := testenv.User{Name: "second-oncall"}
		Expect(env.Grant(ctx, s.ns, "ctrlrun-resolver", other)).To(Succeed())
		s.ambiguous(payment)
		withoutOperator()
		yes := s.resolve(s.oncall, key, v1alpha1.ResolutionCommitted)
		no := s.resolve(other, key, v1alpha1.ResolutionNotExecuted)
		operator = startOperator(controllers.Options{})

		verdicts := map[types.UID]metav1.Condition{yes.UID: verdict(yes), no.UID: verdict(no)}
		e := s.effect(key)
		winner := e.Status.Resolution.UID
		Expect(verdicts).To(HaveKey(winner))
		for uid, c := range verdicts {
			if uid == winner {
				Expect(c.Status).To(Equal(metav1.ConditionTrue), c.Message)
				continue
			}
			Expect(c.Status).To(Equal(metav1.ConditionFalse), c.Message)
			Expect(c.Reason).To(Equal(v1alpha1.ReasonAnotherWasFirst), c.Message)
		}
		Expect(e.Status.State == v1alpha1.EffectCommitted).To(Equal(winner == yes.UID))
		Expect(s.receiptsOfKind(receipt.KindResolution, key)).To(HaveLen(1))
		s.chainHolds()
	})

	It("that it did not happen is refused without evidence", func() {
		s := newScene()
		payment := unique("txn")
		s.ambiguous(payment)
		key := "refund:" + payment
		r := s.resolution(s.oncall, s.effect(key), s.ambiguousReceipt(key), v1alpha1.ResolutionNotExecuted)
		r.Spec.Evidence = ""
		refusedByApiserver(env.Client(s.oncall).Create(ctx, r), "needs evidence")
	})

	It("is refused to whoever may not resolve that type", func() {
		s := newScene()
		payment := unique("txn")
		s.ambiguous(payment)
		key := "refund:" + payment
		clerk, notes := testenv.User{Name: "clerk"}, testenv.User{Name: "notes-oncall"}
		s.allowTypes(clerk, "resolutions", "resolve")
		s.allowTypes(notes, "resolutions", "resolve", "note.*")
		for _, u := range []testenv.User{clerk, notes} {
			r := s.resolution(u, s.effect(key), s.ambiguousReceipt(key), v1alpha1.ResolutionCommitted)
			refusedByApiserver(env.Client(u).Create(ctx, r), `you need the verb "resolve" on actiontypes.ctrlrun.dev`)
		}
		forged := s.resolution(s.oncall, s.effect(key), s.ambiguousReceipt(key), v1alpha1.ResolutionCommitted)
		forged.Spec.Resolver = "somebody-else"
		refusedByApiserver(env.Client(s.oncall).Create(ctx, forged), "spec.resolver must be")
		Expect(s.effect(key).Status.State).To(Equal(v1alpha1.EffectAmbiguous))
	})

	It("is on record before a retry goes on, even if whoever resolved it died", func() {
		s := newScene()
		payment := unique("txn")
		key := "refund:" + payment
		s.ambiguous(payment)
		withoutOperator()
		resolution := s.resolve(s.oncall, key, v1alpha1.ResolutionNotExecuted)
		// This operator dies, as it were, before it brings the resolution on record.
		stuck := testenv.PauseAt(GinkgoT(), "after resolve")
		operator = startOperator(controllers.Options{Crash: stuck.At})
		Eventually(stuck.Reached).Should(BeClosed())
		Expect(s.effect(key).Status.State).To(Equal(v1alpha1.EffectFailed))
		Expect(s.receiptsOfKind(receipt.KindResolution, key)).To(BeEmpty())

		retry := s.reaches(s.propose(refund(payment, 100)), v1alpha1.ActionAdmitted)
		Expect(retry.Status.Effect.Attempt).To(Equal(int64(2)))
		Expect(s.receiptsOfKind(receipt.KindResolution, key)).To(HaveLen(1))

		stuck.Resume()
		expectAccepted(resolution)
		Expect(s.receiptsOfKind(receipt.KindResolution, key)).To(HaveLen(1))
		s.chainHolds()
	})
})
