package oversight

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/test/testenv"
)

var _ = Describe("where two of three people are required", func() {
	It("any two of them suffice, and the receipt names both with their groups", func() {
		s := newScene(two)
		s.approver("alice", "leads")
		bob, _ := s.approver("bob", "leads", "oncall")
		carol, _ := s.approver("carol")
		a := s.asked()
		Expect(a.Status.Approval.ApproverGroups).To(BeEmpty())
		first := s.approve(carol, a)
		s.waits(a, "1/2")
		expectAccepted(first)
		second := s.approve(bob, a)
		a, d := s.executed(a, first, second)
		Expect(d.ApprovalsRequired).To(Equal(int64(2)))
		Expect(second.Spec.Claims.Groups).To(ContainElements("leads", "oncall"))
		Expect(said(a)[:4]).To(Equal([]string{"APPROVAL_REQUESTED", "APPROVAL_GRANTED carol", "APPROVAL_GRANTED bob", "ACTION_CLAIMABLE"}))
		Expect(said(a)[4:]).To(ConsistOf("APPROVAL_CONSUMED carol", "APPROVAL_CONSUMED bob"))
	})

	It("the third takes the place of one who may not approve any more, and the other's stands", func() {
		s := newScene(two)
		alice, right := s.approver("alice")
		others := s.approvers("bob", "carol")
		a := s.asked()
		expectAccepted(s.approve(alice, a))
		second := s.approve(others[0], a)
		s.reaches(a, v1alpha1.ActionClaimable)
		expectAccepted(second)
		expectRefused(s.approve(others[1], a), v1alpha1.ReasonNotRequired)
		right.revoke()
		s.claim(a)
		a = s.waits(a, "1/2", "Not counted: alice")

		By("saying it again: who was told that it is not required is not taken by their word later")
		s.executed(a, second, s.answer(others[1], a, v1alpha1.Approved, ".2"))
	})

	It("a policy that requires them meanwhile asks for the second", func() {
		s := newScene(one)
		people := s.approvers("alice", "bob")
		a := s.asked()
		s.policy(two)
		s.waits(a, "0/1", "0 of 2")
		first := s.approve(people[0], a)
		s.waits(a, "1/1", "1 of 2")
		expectAccepted(first)
		second := s.approve(people[1], a)
		s.executed(a, first, second)
	})
})

var _ = Describe("one person by several names", func() {
	It("counts once", func() {
		s := newScene(two)
		s.people(v1alpha1.IdentityAlias{"alice", "alice-admin"}, v1alpha1.IdentityAlias{"alice-admin", "root@corp"})
		people := s.approvers("alice", "alice-admin", "root@corp", "bob")
		a := s.asked()
		first := s.approve(people[0], a)
		expectAccepted(first)
		s.waits(a, "1/2")
		expectRefused(s.approve(people[1], a), v1alpha1.ReasonDuplicateApprover)
		expectRefused(s.approve(people[2], a), v1alpha1.ReasonDuplicateApprover)
		s.waits(a, "1/2")
		second := s.approve(people[3], a)
		a, d := s.executed(a, first, second)
		Expect(said(a)).To(ContainElements("APPROVAL_INVALIDATED duplicate_approver alice-admin", "APPROVAL_INVALIDATED duplicate_approver root@corp"))
		var refused []string
		for _, r := range d.Refused {
			refused = append(refused, r.Speaker+" "+r.Reason)
		}
		Expect(refused).To(ConsistOf("alice-admin duplicate_approver", "root@corp duplicate_approver"))
	})

	It("is one also where it is said after they had approved", func() {
		s := newScene(two)
		people := s.approvers("alice", "alice-admin", "bob")
		a := s.asked()
		first := s.approve(people[0], a)
		expectAccepted(first)
		s.approve(people[1], a)
		a = s.reaches(a, v1alpha1.ActionClaimable)
		s.people(v1alpha1.IdentityAlias{"alice", "alice-admin"})
		s.waits(a, "1/2")
		third := s.approve(people[2], a)
		a = s.reaches(a, v1alpha1.ActionClaimable)
		s.claim(a)
		a = s.reaches(a, v1alpha1.ActionAdmitted)
		var spent []string
		for _, x := range a.Status.Execution.Approvals {
			spent = append(spent, x.Approver)
		}
		Expect(spent).To(ConsistOf(BeElementOf("alice", "alice-admin"), "bob"))
		expectAccepted(third)
	})
})

var _ = Describe("whoever asked does not answer", func() {
	// refusesBoth expects that neither the yes nor the no of somebody counts.
	refusesBoth := func(s *scene, u testenv.User, a *v1alpha1.Action) {
		GinkgoHelper()
		expectRefused(s.approve(u, a), v1alpha1.ReasonSelfApproval, "asked for this action")
		expectRefused(s.answer(u, a, v1alpha1.Denied, ".2"), v1alpha1.ReasonSelfApproval)
		s.waits(a, "0/1")
	}

	It("not by the name of the human behind the agent", func() {
		s := newScene(one)
		s.people(v1alpha1.IdentityAlias{s.agent.Name, "alice"})
		people := s.approvers("alice", "bob")
		a := s.asked()
		refusesBoth(s, people[0], a)
		yes := s.approve(people[1], a)
		a, d := s.executed(a, yes)
		Expect(said(a)).To(ContainElement("APPROVAL_INVALIDATED self_approval alice"))
		Expect(d.Refused).To(HaveLen(2))
		Expect(d.Refused[0].Reason).To(Equal("self_approval"))
	})

	It("not on whose behalf it is, nor by another name of theirs", func() {
		s := newScene(one)
		s.people(v1alpha1.IdentityAlias{"frank", "frank-admin"}, v1alpha1.IdentityAlias{"bob", "bob-admin"})
		s.mayRepresent("frank")
		people := s.approvers("frank", "frank-admin", "bob")
		a := s.asked("frank")
		refusesBoth(s, people[0], a)
		refusesBoth(s, people[1], a)
		s.executed(a, s.approve(people[2], a))
	})

	It("not where it is said after they had approved", func() {
		s := newScene(one)
		people := s.approvers("alice", "bob")
		a := s.asked()
		expectAccepted(s.approve(people[0], a))
		s.reaches(a, v1alpha1.ActionClaimable)
		s.people(v1alpha1.IdentityAlias{"alice", s.agent.Name})
		a = s.waits(a, "0/1")
		Expect(said(a)).To(ContainElement("APPROVAL_INVALIDATED self_approval alice"))
		s.executed(a, s.approve(people[1], a))
	})

	It("nor says what became of it, by whatever name", func() {
		s := newScene(`{"stripe.refund": {"effect": "refund:{payment_id}", "decision": "allow"}}`)
		s.people(v1alpha1.IdentityAlias{s.agent.Name, "alice"}, v1alpha1.IdentityAlias{"frank", "frank-admin"})
		s.mayRepresent("frank")
		resolvers := []testenv.User{{Name: "alice"}, {Name: "frank"}, {Name: "frank-admin"}, {Name: "oncall"}}
		Expect(env.Grant(ctx, s.ns, "ctrlrun-resolver", resolvers...)).To(Succeed())
		a := s.propose(kind, "frank")
		s.claim(s.reaches(a, v1alpha1.ActionClaimable))
		s.report(s.reaches(a, v1alpha1.ActionAdmitted), v1alpha1.OutcomeUnknown)
		a = s.reaches(a, v1alpha1.ActionAmbiguous)
		for _, u := range resolvers[:3] {
			expectRefused(s.resolve(u, a), v1alpha1.ReasonSelfResolution)
		}
		Expect(s.effect(a).Status.State).To(Equal(v1alpha1.EffectAmbiguous))
		expectAccepted(s.resolve(resolvers[3], a))
		Expect(s.effect(a).Status.State).To(Equal(v1alpha1.EffectCommitted))
		s.chainHolds()
	})
})

func (s *scene) effect(a *v1alpha1.Action) *v1alpha1.Effect {
	GinkgoHelper()
	o := &v1alpha1.Effect{}
	Expect(env.Admin().Get(ctx, types.NamespacedName{Namespace: s.ns, Name: a.Status.Effect.Name}, o)).To(Succeed())
	return o
}

// resolve states that an ambiguous effect was committed.
func (s *scene) resolve(u testenv.User, a *v1alpha1.Action) *v1alpha1.Resolution {
	GinkgoHelper()
	e := s.effect(a)
	var quoted v1alpha1.ReceiptReference
	for _, r := range s.chain() {
		if r.Spec.Kind == receipt.KindAction && r.Spec.ActionName == a.Name {
			quoted = v1alpha1.ReceiptReference{Name: r.Name, Hash: r.Spec.Hash}
		}
	}
	o := &v1alpha1.Resolution{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: e.Name + ".1." + action.Speaker(u.Name)},
		Spec: v1alpha1.ResolutionSpec{
			EffectRef: v1alpha1.ObjectReference{Name: e.Name, UID: e.UID}, Attempt: e.Status.Attempt, ActionType: e.Status.ActionType,
			Result: v1alpha1.ResolutionCommitted, ReceiptRef: quoted, Reason: "the provider's dashboard says so",
		},
	}
	Expect(env.Client(u).Create(ctx, o)).To(Succeed())
	return o
}
