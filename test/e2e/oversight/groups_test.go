package oversight

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/test/testenv"
)

// many are more groups than are stamped, some group among them.
func many(group string) []string {
	all := []string{group}
	for i := range 64 {
		all = append(all, fmt.Sprintf("project-%d", i))
	}
	return all
}

var _ = Describe("where some groups are asked", func() {
	It("somebody in one of them answers, with the right to approve; nobody else says yes or no", func() {
		s := newScene(finance)
		auditor, _ := s.approver("alice", "audit", "support")
		other, _ := s.approver("bob", "support", "finance-interns")
		none, _ := s.approver("carol")
		lost, _ := s.approver("dave", many("finance")...)
		a := s.asked()
		Expect(a.Status.Approval.ApproverGroups).To(Equal([]string{"finance", "audit"}))
		Expect(a.Status.Message).To(ContainSubstring("in one of the groups finance, audit"))
		expectRefused(s.approve(other, a), v1alpha1.ReasonNotEntitled, "one of the groups finance, audit")
		expectRefused(s.answer(other, a, v1alpha1.Denied, ".2"), v1alpha1.ReasonNotEntitled)
		expectRefused(s.approve(none, a), v1alpha1.ReasonNotEntitled)
		unknown := s.approve(lost, a)
		Expect(unknown.Spec.Claims).To(Or(BeNil(), HaveField("Groups", BeEmpty())))
		expectRefused(unknown, v1alpha1.ReasonNotEntitled, "more than 64 groups")
		a = s.waits(a, "0/1", "Not counted: bob, who was in none of the groups", "carol, who", "dave, who")

		By("having no right by the group alone")
		member := testenv.User{Name: "erin", Groups: []string{"finance"}}
		s.mayCreate(member)
		Expect(s.tries(member, a)).To(MatchError(ContainSubstring(`you need the verb "approve"`)))

		yes := s.approve(auditor, a)
		a, d := s.executed(a, yes)
		Expect(said(a)).To(ContainElements("APPROVAL_INVALIDATED not_entitled bob", "APPROVAL_INVALIDATED not_entitled carol", "APPROVAL_INVALIDATED not_entitled dave"))
		for _, r := range d.Refused {
			Expect(r.Reason).To(Equal("not_entitled"))
		}
		Expect(d.Refused).To(HaveLen(4))
	})

	It("whoever has joined since answers again, and who has left since counts", func() {
		s := newScene(`{"stripe.refund": {"effect": "refund:{payment_id}", "decision": "approve", "approvalsRequired": 2, "approverGroups": ["finance"]}}`)
		before, _ := s.approver("bob", "support")
		alice, _ := s.approver("alice", "finance")
		a := s.asked()
		expectRefused(s.approve(before, a), v1alpha1.ReasonNotEntitled)
		first := s.approve(alice, a)
		s.waits(a, "1/2")
		expectAccepted(first)
		again := s.answer(testenv.User{Name: "alice"}, a, v1alpha1.Approved, ".2")
		expectRefused(again, v1alpha1.ReasonNotEntitled)
		second := s.answer(testenv.User{Name: "bob", Groups: []string{"finance"}}, a, v1alpha1.Approved, ".2")
		s.executed(a, first, second)
	})

	It("those that were asked are asked until the end, whatever the policy says later", func() {
		s := newScene(finance)
		bob, _ := s.approver("bob", "support")
		alice, _ := s.approver("alice", "finance")
		a := s.asked()
		s.policy(one)
		expectRefused(s.approve(bob, a), v1alpha1.ReasonNotEntitled)
		s.waits(a, "0/1", "in one of the groups finance, audit")
		s.executed(a, s.approve(alice, a))
	})

	It("and those that the policy asks by now as well: one of each answers", func() {
		s := newScene(finance)
		alice, _ := s.approver("alice", "finance")
		bob, _ := s.approver("bob", "board")
		carol, _ := s.approver("carol", "board", "audit")
		a := s.asked()
		yes := s.approve(alice, a)
		a = s.reaches(a, v1alpha1.ActionClaimable)
		expectAccepted(yes)
		s.policy(board)
		a = s.waits(a, "0/1", "in one of the groups finance, audit and in one of the groups board", "Not counted: alice")
		Expect(a.Status.Approval.ApproverGroups).To(Equal([]string{"finance", "audit"}), "it is pinned")
		Expect(a.Status.ClaimableTime).To(BeNil())
		expectRefused(s.approve(bob, a), v1alpha1.ReasonNotEntitled, "finance, audit")
		a, _ = s.executed(a, s.approve(carol, a))
		Expect(said(a)[:4]).To(Equal([]string{"APPROVAL_REQUESTED", "APPROVAL_GRANTED alice", "ACTION_CLAIMABLE", "APPROVAL_INVALIDATED not_entitled alice"}))
	})

	It("those that only the policy of now asks as well", func() {
		s := newScene(one)
		alice, _ := s.approver("alice", "finance")
		bob, _ := s.approver("bob", "board")
		a := s.asked()
		s.policy(board)
		s.waits(a, "0/1", "in one of the groups board")
		yes := s.approve(alice, a)
		s.waits(a, "0/1", "Not counted: alice")
		Expect(yes.Status.Conditions).To(BeEmpty(), "the policy may change again")

		By("counting it where the policy asks whoever may approve again")
		s.policy(one)
		a, _ = s.executed(a, yes)
		expectAccepted(yes)
		Expect(said(a)).To(Equal([]string{"APPROVAL_REQUESTED", "APPROVAL_INVALIDATED not_entitled alice", "APPROVAL_GRANTED alice", "ACTION_CLAIMABLE", "APPROVAL_CONSUMED alice"}))

		By("and of one that is asked about under it, nobody else's")
		s.policy(board)
		a = s.asked()
		Expect(a.Status.Approval.ApproverGroups).To(Equal([]string{"board"}))
		s.executed(a, s.approve(bob, a))
	})

	It("nobody changes them, not even the operator", func() {
		s := newScene(finance)
		a := s.asked()
		for _, groups := range [][]string{nil, {"finance"}, {"audit", "finance"}} {
			o := s.get(a)
			o.Status.Approval.ApproverGroups = groups
			Expect(env.Client(testenv.OperatorUser()).Status().Update(ctx, o)).To(MatchError(ContainSubstring("what people were asked is written once")))
		}
		b := newScene(one).asked()
		b.Status.Approval.ApproverGroups = []string{"finance"}
		Expect(env.Client(testenv.OperatorUser()).Status().Update(ctx, b)).To(MatchError(ContainSubstring("what people were asked is written once")))
	})

	It("two of them are two people in the groups", func() {
		s := newScene(`{"stripe.refund": {"effect": "refund:{payment_id}", "decision": "approve", "approvalsRequired": 2, "approverGroups": ["finance"]}}`)
		alice, _ := s.approver("alice", "finance")
		bob, _ := s.approver("bob", "support")
		carol, _ := s.approver("carol", "finance")
		a := s.asked()
		first := s.approve(alice, a)
		s.waits(a, "1/2")
		expectRefused(s.approve(bob, a), v1alpha1.ReasonNotEntitled)
		s.waits(a, "1/2")
		s.executed(a, first, s.approve(carol, a))
	})
})

var _ = Describe("a right by a group", func() {
	group := func(name string) rbacv1.Subject { return rbacv1.Subject{Kind: rbacv1.GroupKind, Name: name} }

	It("is judged by the groups of the time of the approval: who has left it since had it", func() {
		s := newScene(one)
		alice := testenv.User{Name: "alice", Groups: []string{"leads"}}
		s.mayApprove(alice, group("leads"), kind)
		a := s.asked()
		yes := s.approve(alice, a)
		s.reaches(a, v1alpha1.ActionClaimable)
		left := testenv.User{Name: "alice"}
		Expect(s.tries(left, a)).To(MatchError(ContainSubstring("cannot create resource")), "alice has the right no more")
		s.executed(a, yes)
	})

	It("is gone where the group has it no more, whoever is in it", func() {
		s := newScene(one)
		alice := testenv.User{Name: "alice", Groups: []string{"leads"}}
		right := s.mayApprove(alice, group("leads"), kind)
		bob, _ := s.approver("bob")
		a := s.asked()
		s.approve(alice, a)
		a = s.reaches(a, v1alpha1.ActionClaimable)
		right.revoke()
		s.claim(a)
		s.waits(a, "0/1", "Not counted: alice, who may not approve stripe.refund any more")
		s.executed(a, s.approve(bob, a))
	})

	It("is none of somebody in more groups than are stamped, who is told so", func() {
		s := newScene(one)
		alice := testenv.User{Name: "alice", Groups: many("leads")}
		s.mayApprove(alice, group("leads"), kind)
		bob, _ := s.approver("bob", many("leads")...)
		a := s.asked()
		expectRefused(s.approve(alice, a), v1alpha1.ReasonNotEntitled, "may not approve stripe.refund", "more than 64 groups")
		s.waits(a, "0/1", "Not counted: alice")
		s.executed(a, s.approve(bob, a))
	})
})
