package oversight

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/controllers"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/records"
	"ctrlrun.dev/operator/test/testenv"
)

// settledBy is a policy that lets refunds run, and asks so many people about those that nobody knows of.
func settledBy(people int) string {
	return fmt.Sprintf(`{"stripe.refund": {"effect": "refund:{payment_id}", "decision": "allow", "resolutionsRequired": %d}}`, people)
}

const settledByOne = `{"stripe.refund": {"effect": "refund:{payment_id}", "decision": "allow"}}`

// resolvers are people who may resolve refunds.
func (s *scene) resolvers(names ...string) []testenv.User {
	GinkgoHelper()
	var all []testenv.User
	for _, name := range names {
		all = append(all, testenv.User{Name: name})
	}
	Expect(env.Grant(ctx, s.ns, "ctrlrun-resolver", all...)).To(Succeed())
	return all
}

// unknown is a refund that was executed, and whose agent does not know whether it happened.
func (s *scene) unknown() *v1alpha1.Action {
	GinkgoHelper()
	a := s.propose(kind)
	s.claim(s.reaches(a, v1alpha1.ActionClaimable))
	s.report(s.reaches(a, v1alpha1.ActionAdmitted), v1alpha1.OutcomeUnknown)
	return s.reaches(a, v1alpha1.ActionAmbiguous)
}

// says states what became of an ambiguous effect; try is "" or, of another statement, its number.
func (s *scene) says(u testenv.User, a *v1alpha1.Action, result v1alpha1.ResolutionResult, try string) *v1alpha1.Resolution {
	GinkgoHelper()
	e := s.effect(a)
	o := &v1alpha1.Resolution{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: fmt.Sprintf("%s.%d.%s%s", e.Name, e.Status.Attempt, action.Speaker(u.Name), try)},
		Spec: v1alpha1.ResolutionSpec{
			EffectRef: v1alpha1.ObjectReference{Name: e.Name, UID: e.UID}, Attempt: e.Status.Attempt, ActionType: e.Status.ActionType,
			Result: result, ReceiptRef: v1alpha1.ReceiptReference{Name: a.Status.ReceiptRef.Name, Hash: a.Status.ReceiptRef.Hash},
			Reason: "as " + u.Name + " saw it", Evidence: "https://provider.example/" + action.Speaker(u.Name),
		},
	}
	Expect(env.Client(u).Create(ctx, o)).To(Succeed())
	return o
}

// isOpen waits until a resolution was told what is missing, which is no verdict.
func isOpen(o *v1alpha1.Resolution, words ...string) {
	GinkgoHelper()
	isOpenFor(o, v1alpha1.ReasonMorePeopleRequired, words...)
}

func isOpenFor(o *v1alpha1.Resolution, reason string, words ...string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
		c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.AcceptedCondition)
		g.Expect(c).NotTo(BeNil())
		g.Expect(c.Status).To(Equal(metav1.ConditionUnknown), c.Message)
		g.Expect(c.Reason).To(Equal(reason), c.Message)
		for _, w := range words {
			g.Expect(c.Message).To(ContainSubstring(w))
		}
	}).Should(Succeed())
}

// isJudged waits for the verdict on a resolution.
func isJudged(o *v1alpha1.Resolution, reason string, words ...string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
		c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.AcceptedCondition)
		g.Expect(c).NotTo(BeNil())
		g.Expect(c.Status).NotTo(Equal(metav1.ConditionUnknown), c.Message)
		g.Expect(c.Status == metav1.ConditionTrue).To(Equal(reason == v1alpha1.ReasonAccepted), c.Message)
		g.Expect(c.Reason).To(Equal(reason), c.Message)
		for _, w := range words {
			g.Expect(c.Message).To(ContainSubstring(w))
		}
	}).Should(Succeed())
}

// staysAmbiguous expects that nothing was settled: neither the record nor the chain says so, and nobody may try again.
func (s *scene) staysAmbiguous(a *v1alpha1.Action) {
	GinkgoHelper()
	e := s.effect(a)
	Expect(e.Status.State).To(Equal(v1alpha1.EffectAmbiguous))
	Expect(e.Status.Resolution).To(BeNil())
	Expect(s.resolutionsOf(a)).To(BeEmpty())
	retry := a.DeepCopy()
	retry.ObjectMeta = metav1.ObjectMeta{Namespace: s.ns, GenerateName: "again-"}
	retry.Status = v1alpha1.ActionStatus{}
	Expect(env.Client(s.agent).Create(ctx, retry)).To(Succeed())
	s.claim(s.reaches(retry, v1alpha1.ActionClaimable))
	retry = s.reaches(retry, v1alpha1.ActionBlocked)
	Expect(retry.Status.Reason).To(Equal(string(decision.AmbiguousEffect)))
}

// resolutionsOf are the receipts of resolutions of an Action's effect.
func (s *scene) resolutionsOf(a *v1alpha1.Action) []receipt.Document {
	GinkgoHelper()
	var all []receipt.Document
	for _, r := range s.chain() {
		if r.Spec.Kind != receipt.KindResolution || r.Spec.EffectName != a.Status.Effect.Name {
			continue
		}
		d, err := receipt.Parse(records.Entry(&r))
		Expect(err).NotTo(HaveOccurred())
		all = append(all, d)
	}
	return all
}

// isSettled waits until an effect is settled, and expects by whom: on the record, on the one receipt of it, and on the Action.
func (s *scene) isSettled(a *v1alpha1.Action, state v1alpha1.EffectState, by ...*v1alpha1.Resolution) {
	GinkgoHelper()
	var e *v1alpha1.Effect
	Eventually(func() v1alpha1.EffectState {
		e = s.effect(a)
		return e.Status.State
	}).Should(Equal(state))
	for _, r := range by {
		isJudged(r, v1alpha1.ReasonAccepted)
	}
	var want, recorded, receipted []string
	for _, r := range by {
		want = append(want, string(r.UID)+" "+r.Spec.Resolver+" "+r.Spec.Reason+" "+r.Spec.Evidence)
	}
	last := by[len(by)-1]
	if len(by) == 1 {
		want = nil
	}
	for _, r := range e.Status.Resolution.Resolvers {
		recorded = append(recorded, string(r.UID)+" "+r.Resolver+" "+r.Reason+" "+r.Evidence)
	}
	documents := s.resolutionsOf(a)
	Expect(documents).To(HaveLen(1))
	for _, r := range documents[0].Resolvers {
		receipted = append(receipted, r.UID+" "+r.Resolver+" "+r.Statement+" "+r.Evidence)
		Expect(r.Resolves.Hash).To(Equal(last.Spec.ReceiptRef.Hash))
	}
	Expect(recorded).To(ConsistOf(want))
	Expect(receipted).To(Equal(recorded), "the receipt is made from the record")
	Expect(e.Status.Resolution.Resolver).To(Equal(documents[0].Resolver))
	Expect([]string{documents[0].Resolver}).To(ContainElement(BeElementOf(speakers(by))))
	var told *metav1.Condition
	Eventually(func() *metav1.Condition {
		told = meta.FindStatusCondition(s.get(a).Status.Conditions, v1alpha1.ResolvedCondition)
		return told
	}).ShouldNot(BeNil())
	for _, name := range speakers(by) {
		Expect(s.get(a).Status.Message).To(ContainSubstring(name.(string)))
	}
	s.chainHolds()
}

func speakers(by []*v1alpha1.Resolution) []any {
	var names []any
	for _, r := range by {
		names = append(names, r.Spec.Resolver)
	}
	return names
}

var _ = Describe("where two people have to say what happened", func() {
	const committed, notExecuted = v1alpha1.ResolutionCommitted, v1alpha1.ResolutionNotExecuted

	It("one is not enough, and two who agree are", func() {
		s := newScene(settledBy(2))
		people := s.resolvers("carol", "dave", "erin")
		a := s.unknown()
		Expect(s.effect(a).Status.ResolutionsRequired).To(Equal(int64(2)))
		first := s.says(people[0], a, notExecuted, "")
		isOpen(first, "1 of 2 people say NotExecuted. Somebody else has to")
		s.staysAmbiguous(a)

		second := s.says(people[1], a, notExecuted, "")
		s.isSettled(a, v1alpha1.EffectFailed, first, second)
		isJudged(first, v1alpha1.ReasonAccepted, "together with dave")
		isJudged(second, v1alpha1.ReasonAccepted, "together with carol")
		late := s.says(people[2], a, notExecuted, "")
		isJudged(late, v1alpha1.ReasonAnotherWasFirst, "carol", "dave") // within one second in any order

		By("freeing the key for one more attempt")
		retry := a.DeepCopy()
		retry.ObjectMeta, retry.Status = metav1.ObjectMeta{Namespace: s.ns, GenerateName: "again-"}, v1alpha1.ActionStatus{}
		Expect(env.Client(s.agent).Create(ctx, retry)).To(Succeed())
		s.claim(s.reaches(retry, v1alpha1.ActionClaimable))
		retry = s.reaches(retry, v1alpha1.ActionAdmitted)
		Expect(retry.Status.Effect.Attempt).To(Equal(int64(2)))
		e := s.effect(a)
		Expect(e.Status.Resolution).To(BeNil())
		Expect(e.Status.History[1].Resolutions).To(ConsistOf(first.Name, second.Name))
	})

	It("another name of the same person, and a second word of theirs, are no second person", func() {
		s := newScene(settledBy(2))
		s.people(v1alpha1.IdentityAlias{"carol", "carol-admin"})
		people := s.resolvers("carol", "carol-admin", "dave")
		a := s.unknown()
		first := s.says(people[0], a, committed, "")
		isOpen(first)
		isJudged(s.says(people[1], a, committed, ""), v1alpha1.ReasonDuplicateResolver, "counts once")
		isJudged(s.says(people[0], a, committed, ".2"), v1alpha1.ReasonDuplicateResolver)
		isOpen(first, "1 of 2")
		s.staysAmbiguous(a)
		s.isSettled(a, v1alpha1.EffectCommitted, first, s.says(people[2], a, committed, ""))
	})

	It("nor is whoever asked for it, by whatever name", func() {
		s := newScene(settledBy(2))
		s.people(v1alpha1.IdentityAlias{s.agent.Name, "alice"})
		people := s.resolvers("alice", "carol", "dave")
		a := s.unknown()
		first := s.says(people[1], a, committed, "")
		isJudged(s.says(people[0], a, committed, ""), v1alpha1.ReasonSelfResolution)
		isOpen(first, "1 of 2")
		s.staysAmbiguous(a)
		s.isSettled(a, v1alpha1.EffectCommitted, first, s.says(people[2], a, committed, ""))
	})

	It("two who say different things settle nothing, and a third decides", func() {
		s := newScene(settledBy(2))
		people := s.resolvers("carol", "dave", "erin")
		a := s.unknown()
		wrong := s.says(people[0], a, notExecuted, "")
		right := s.says(people[1], a, committed, "")
		isOpen(wrong, "1 of 2 people say NotExecuted. 1 says Committed.")
		isOpen(right, "1 of 2 people say Committed. 1 says NotExecuted.")
		s.staysAmbiguous(a)
		s.isSettled(a, v1alpha1.EffectCommitted, right, s.says(people[2], a, committed, ""))
		isJudged(wrong, v1alpha1.ReasonOutvoted, "dave", "erin", "Committed")
	})

	It("whoever erred says the other thing, and their last word counts", func() {
		s := newScene(settledBy(2))
		people := s.resolvers("carol", "dave")
		a := s.unknown()
		wrong := s.says(people[0], a, notExecuted, "")
		isOpen(wrong)
		right := s.says(people[0], a, committed, ".2")
		isJudged(wrong, v1alpha1.ReasonSuperseded, "otherwise since", right.Name)
		isOpen(right, "1 of 2 people say Committed. Somebody else")

		By("so somebody who believes the first word settles nothing")
		other := s.says(people[1], a, notExecuted, "")
		isOpen(other, "1 says Committed")
		s.staysAmbiguous(a)
		s.isSettled(a, v1alpha1.EffectCommitted, right, s.says(people[1], a, committed, ".2"))
		isJudged(other, v1alpha1.ReasonSuperseded)
	})

	It("a policy that asks fewer by then, or none, or is invalid, makes it no easier", func() {
		unreadable := `{"stripe.refund": {"effect": "refund:{payment_id}", "rules": [{"when": {"x_eq": {"y": 1.5}}, "decision": "allow"}]}}`
		s := newScene(settledBy(2))
		people := s.resolvers("carol", "dave")
		a := s.unknown()
		first := s.says(people[0], a, committed, "")
		isOpen(first)
		for i, policy := range []string{
			settledByOne,
			`{"stripe.payout": {"effect": "payout:{id}", "decision": "allow"}}`,
			unreadable,
		} {
			s.policy(policy)
			if policy == unreadable {
				isOpenFor(s.says(people[0], a, committed, ".9"), v1alpha1.ReasonPolicyInvalid, "its number cannot be read. Correct the policy.")
				isOpenFor(first, v1alpha1.ReasonPolicyInvalid)
				Expect(s.effect(a).Status.State).To(Equal(v1alpha1.EffectAmbiguous))
				continue
			}
			// A verdict is given by a pass that has looked at all of it under this policy.
			isJudged(s.says(people[0], a, committed, fmt.Sprintf(".%d", i+2)), v1alpha1.ReasonDuplicateResolver)
			isOpen(first, "1 of 2")
			Expect(s.effect(a).Status.State).To(Equal(v1alpha1.EffectAmbiguous), policy)
			Expect(s.effect(a).Status.ResolutionsRequired).To(Equal(int64(2)))
		}

		By("and holds for what is attempted from then on")
		s.policy(settledByOne)
		b := s.unknown()
		s.isSettled(b, v1alpha1.EffectCommitted, s.says(people[0], b, committed, ""))
		Expect(s.resolutionsOf(b)[0].Resolvers).To(BeEmpty())
		s.isSettled(a, v1alpha1.EffectCommitted, first, s.says(people[1], a, committed, ""))
	})

	It("a policy that asks more by then is heard, and looked at again when it does not any more", func() {
		s := newScene(settledByOne)
		people := s.resolvers("carol", "dave")
		a, b := s.unknown(), s.unknown()
		Expect(s.effect(a).Status.ResolutionsRequired).To(Equal(int64(1)))
		s.policy(settledBy(3))
		first, other := s.says(people[0], a, committed, ""), s.says(people[0], b, notExecuted, "")
		isOpen(first, "1 of 3 people say Committed. 2 more people have")
		isOpen(other, "1 of 3")
		second := s.says(people[1], a, committed, "")
		isOpen(first, "2 of 3")
		isOpen(second, "2 of 3")
		s.staysAmbiguous(a)

		By("two, by an edit of the policy and no further statement")
		s.policy(settledBy(2))
		s.isSettled(a, v1alpha1.EffectCommitted, first, second)
		isOpen(other, "1 of 2")

		By("one: as its attempt said")
		s.policy(settledByOne)
		s.isSettled(b, v1alpha1.EffectFailed, other)
	})

	It("people who turn out to be one are counted again", func() {
		s := newScene(settledBy(3))
		people := s.resolvers("carol", "carol-admin", "dave", "erin")
		a := s.unknown()
		first := s.says(people[0], a, committed, "")
		isOpen(first)
		alias := s.says(people[1], a, committed, "")
		isOpen(alias, "2 of 3")
		s.people(v1alpha1.IdentityAlias{"carol", "carol-admin"})
		counted, refused := first, alias
		if alias.CreationTimestamp.Equal(&first.CreationTimestamp) && len(alias.Name) < len(first.Name) {
			counted, refused = alias, first
		}
		isJudged(refused, v1alpha1.ReasonDuplicateResolver)
		isOpen(counted, "1 of 3")
		third := s.says(people[2], a, committed, "")
		isOpen(third, "2 of 3")
		s.isSettled(a, v1alpha1.EffectCommitted, counted, third, s.says(people[3], a, committed, ""))
	})

	It("an operator that starts between the two goes on", Serial, func() {
		s := newScene(settledBy(2))
		people := s.resolvers("carol", "dave")
		a, b := s.unknown(), s.unknown()
		first, other := s.says(people[0], a, committed, ""), s.says(people[0], b, committed, "")
		isOpen(first)
		isOpen(other)
		withoutOperator()
		second := s.says(people[1], a, committed, "")
		Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(second), second)).To(Succeed())
		Expect(second.Status.Conditions).To(BeEmpty())
		operator = startOperator(controllers.Options{})
		s.isSettled(a, v1alpha1.EffectCommitted, first, second)
		isOpen(other, "1 of 2")
		s.isSettled(b, v1alpha1.EffectCommitted, other, s.says(people[1], b, committed, ""))
	})
})
