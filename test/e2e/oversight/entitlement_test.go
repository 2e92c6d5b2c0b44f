package oversight

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/test/testenv"
)

// mayCreate lets somebody create Approvals, and approve nothing.
func (s *scene) mayCreate(u testenv.User) {
	GinkgoHelper()
	Expect(env.Allow(ctx, s.ns, u, rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"approvals"}, Verbs: []string{"create"}})).To(Succeed())
}

// tries approves once more, and gives what the apiserver says.
func (s *scene) tries(u testenv.User, a *v1alpha1.Action) error {
	GinkgoHelper()
	a = s.get(a)
	return env.Client(u).Create(ctx, &v1alpha1.Approval{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: a.Name + "." + action.Speaker(u.Name) + ".9"},
		Spec: v1alpha1.ApprovalSpec{
			ActionRef: v1alpha1.ObjectReference{Name: a.Name, UID: a.UID}, ActionType: a.Spec.ActionType, ActionHash: a.Status.ActionHash,
			EffectKey: &a.Status.Effect.Key, Decision: v1alpha1.Approved,
		},
	})
}

var _ = Describe("the right to approve is asked for when an approval is spent", func() {
	It("and where it was taken away, the action asks people again, until one who has it answers", func() {
		s := newScene(one)
		alice, right := s.approver("alice", "leads")
		bob, _ := s.approver("bob")
		a := s.asked()
		yes := s.approve(alice, a)
		s.reaches(a, v1alpha1.ActionClaimable)
		expectAccepted(yes)
		right.revoke()
		early := s.claim(a)
		a = s.waits(a, "0/1", "0 of 1", "Not counted: alice, who may not approve stripe.refund any more")
		Expect(a.Status.ClaimableTime).To(BeNil())
		s.noEffect(a)

		By("asking each time: nothing that is looked at in between makes it count")
		s.policy(`{"stripe.refund": {"effect": "refund:{payment_id}", "decision": "approve"}, "note.write": {"decision": "allow"}}`)
		s.waits(s.asked(), "0/1")
		a = s.waits(a, "0/1")

		second := s.approve(bob, a)
		s.reaches(a, v1alpha1.ActionClaimable)
		expectAccepted(second)
		a, d := s.executed(a, second)
		Expect(a.Status.Execution.ClaimID).NotTo(Equal(early.Spec.ClaimID), "who came before has to come again")
		Expect(said(a)).To(Equal([]string{
			"APPROVAL_REQUESTED", "APPROVAL_GRANTED alice", "ACTION_CLAIMABLE", "APPROVAL_INVALIDATED not_entitled alice",
			"APPROVAL_GRANTED bob", "ACTION_CLAIMABLE", "APPROVAL_CONSUMED bob",
		}))
		Expect(d.Approvals).To(HaveLen(1))
	})

	It("and where it was given back, the approval counts as soon as anything is said", func() {
		s := newScene(one)
		alice, right := s.approver("alice")
		a := s.asked()
		yes := s.approve(alice, a)
		s.reaches(a, v1alpha1.ActionClaimable)
		expectAccepted(yes)
		right.revoke()
		s.claim(a)
		s.waits(a, "0/1")
		right.restore()
		s.answer(alice, a, v1alpha1.Approved, ".2")
		s.executed(a, yes)
	})

	It("also before anybody is told to come for it", func() {
		s := newScene(two)
		alice, right := s.approver("alice")
		others := s.approvers("bob", "carol")
		a := s.asked()
		expectAccepted(s.approve(alice, a))
		s.waits(a, "1/2")
		right.revoke()
		second := s.approve(others[0], a)
		a = s.waits(a, "1/2", "Not counted: alice")
		third := s.approve(others[1], a)
		a, _ = s.executed(a, second, third)
		Expect(said(a)).To(ContainElement("APPROVAL_INVALIDATED not_entitled alice"))
	})

	It("and a no stands, whoever may say it by now", func() {
		s := newScene(two)
		alice, right := s.approver("alice")
		a := s.asked()
		no := s.answer(alice, a, v1alpha1.Denied, "")
		right.revoke()
		s.reaches(a, v1alpha1.ActionDenied)
		expectAccepted(no)
	})

	It("and holds by each dotted prefix by which it may be had", func() {
		const deep = "a.b.c.d.e.f"
		s := newScene(`{"` + deep + `": {"effect": "deep:{payment_id}", "decision": "approve"}}`)
		segments := strings.Split(deep, ".")
		for n := 1; n <= 4; n++ {
			u := testenv.User{Name: "lead-" + segments[n-1]}
			right := s.mayApprove(u, rbacv1.Subject{Kind: rbacv1.UserKind, Name: u.Name}, strings.Join(segments[:n], ".")+".*")
			a := s.reaches(s.propose(deep), v1alpha1.ActionAwaitingApproval)
			yes := s.approve(u, a)
			s.executed(a, yes)

			By("and no longer than it is there")
			b := s.reaches(s.propose(deep), v1alpha1.ActionAwaitingApproval)
			s.approve(u, b)
			s.reaches(b, v1alpha1.ActionClaimable)
			right.revoke()
			s.claim(b)
			s.waits(b, "0/1", "Not counted: "+u.Name)
		}
		u := testenv.User{Name: "lead-e"}
		s.mayApprove(u, rbacv1.Subject{Kind: rbacv1.UserKind, Name: u.Name}, "a.b.c.d.e.*")
		a := s.reaches(s.propose(deep), v1alpha1.ActionAwaitingApproval)
		Expect(s.tries(u, a)).To(MatchError(ContainSubstring(`you need the verb "approve"`)))
	})
})
