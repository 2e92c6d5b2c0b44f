package protocol

import (
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/controllers"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/flow"
)

// claimable takes a small refund that no process stands behind to where it waits for one.
func (s *scene) claimable(payment string) *v1alpha1.Action {
	GinkgoHelper()
	return s.reaches(s.propose(refund(payment, 100).unclaimed()), v1alpha1.ActionClaimable)
}

// noEffect expects that nothing was reserved for a key.
func (s *scene) noEffect(key string) {
	GinkgoHelper()
	list := &v1alpha1.EffectList{}
	Expect(env.Admin().List(ctx, list)).To(Succeed())
	for _, e := range list.Items {
		Expect(e.Namespace == s.ns && e.Name == action.EffectName(key)).To(BeFalse(), "%s is reserved", key)
	}
}

var _ = Describe("a claim", func() {
	It("admits exactly the process that made it, not the one that proposed", func() {
		s := newScene()
		payment := unique("txn")
		p := refund(payment, 2000)
		a := s.reaches(s.propose(p), v1alpha1.ActionAwaitingApproval)
		s.approve(s.approver, a)
		a = s.reaches(a, v1alpha1.ActionClaimable)
		s.noEffect("refund:" + payment)

		c := s.claim(s.agent, a)
		a = s.reaches(a, v1alpha1.ActionAdmitted)
		expectAccepted(c)
		Expect(a.Status.Execution.ClaimID).To(Equal(c.Spec.ClaimID))
		Expect(a.Status.Execution.ClaimID).NotTo(Equal(p.claimID))
		Expect(*a.Status.Execution.ClaimRef).To(Equal(v1alpha1.ObjectReference{Name: c.Name, UID: c.UID}))

		By("so that a report of the proposing process says nothing")
		stale := s.outcome(a, v1alpha1.OutcomeCommitted)
		stale.Spec.ClaimID = p.claimID
		stale.Name = flow.LockName(string(a.UID), p.claimID, s.agent.Name)
		Expect(env.Client(s.agent).Create(ctx, stale)).To(Succeed())
		expectRefused(stale, v1alpha1.ReasonNotAdmitted)
		Expect(s.get(a).Status.State).To(Equal(v1alpha1.ActionAdmitted))

		s.report(s.agent, a, v1alpha1.OutcomeCommitted)
		s.reaches(a, v1alpha1.ActionCommitted)
		Expect(s.receiptOf(a).ClaimID).To(Equal(c.Spec.ClaimID))
		s.chainHolds()
	})

	It("is needed for an Action without a claimID, although it is allowed", func() {
		s := newScene()
		payment := unique("txn")
		a := s.claimable(payment)
		Expect(a.Status.Approval).To(BeNil())
		Expect(a.Status.ClaimExpirationTime.Sub(a.Status.ClaimableTime.Time)).To(Equal(v1alpha1.DefaultApprovalTTLSeconds * time.Second))
		s.noEffect("refund:" + payment)
		s.claim(s.agent, a)
		s.reaches(a, v1alpha1.ActionAdmitted)
	})

	It("is needed where the proposing process may be gone by the time of the decision", func() {
		s := newScene()
		withoutOperator()
		payment := unique("txn")
		p := refund(payment, 100)
		a := s.propose(p)
		clock.Advance(GinkgoT(), time.Minute) // as long as the operator was away
		operator = startOperator(controllers.Options{})
		a = s.reaches(a, v1alpha1.ActionClaimable)
		s.noEffect("refund:" + payment)

		c := s.claim(s.agent, a)
		a = s.reaches(a, v1alpha1.ActionAdmitted)
		Expect(a.Status.Execution.ClaimID).To(Equal(c.Spec.ClaimID))
	})

	It("is not needed while the proposing process surely is there", func() {
		s := newScene()
		p := refund(unique("txn"), 100)
		a := s.reaches(s.propose(p), v1alpha1.ActionAdmitted)
		Expect(a.Status.Execution.ClaimID).To(Equal(p.claimID))
		Expect(a.Status.Execution.ClaimRef).To(BeNil())
		Expect(a.Status.ClaimableTime).To(BeNil())

		By("and one that comes all the same does not change who was admitted")
		c := s.claimFor(s.agent, a)
		c.Spec.ClaimableTime = metav1.NowMicro()
		Expect(env.Client(s.agent).Create(ctx, c)).To(Succeed())
		expectRefused(c, v1alpha1.ReasonAnotherWasFirst)
		Expect(s.get(a).Status.Execution).To(Equal(a.Status.Execution))
	})

	It("does not count by another agent", func() {
		s := newScene()
		a := s.claimable(unique("txn"))
		expectRefused(s.claim(s.rival, a), v1alpha1.ReasonNotTheAgent)
		Expect(s.get(a).Status.State).To(Equal(v1alpha1.ActionClaimable))

		By("nor by one who says to be the agent")
		forged := s.claimFor(s.rival, a)
		forged.Name, forged.Spec.Claimant = forged.Name+".2", s.agent.Name
		refusedByApiserver(env.Client(s.rival).Create(ctx, forged), "spec.claimant must be")
	})

	It("does not count for another decision, or for none", func() {
		s := newScene()
		waiting := s.asked(unique("txn"))
		early := s.claimFor(s.agent, waiting)
		early.Spec.ClaimableTime = metav1.NowMicro()
		Expect(env.Client(s.agent).Create(ctx, early)).To(Succeed())
		expectRefused(early, v1alpha1.ReasonNotClaimable)

		By("and does not begin to count when the decision comes")
		s.approve(s.approver, waiting)
		a := s.reaches(waiting, v1alpha1.ActionClaimable)
		other := again(s.claimFor(s.agent, a), "2")
		other.Spec.ClaimableTime = metav1.NewMicroTime(a.Status.ClaimableTime.Add(time.Microsecond))
		Expect(env.Client(s.agent).Create(ctx, other)).To(Succeed())
		expectRefused(other, v1alpha1.ReasonNotClaimable)
		Expect(s.get(a).Status.State).To(Equal(v1alpha1.ActionClaimable))
	})

	It("does not count for another Action of that name", func() {
		s := newScene()
		a := s.claimable(unique("txn"))
		c := s.claimFor(s.agent, a)
		c.Spec.ActionRef.UID = types.UID(uuid.NewString())
		Expect(env.Client(s.agent).Create(ctx, c)).To(Succeed())
		expectRefused(c, v1alpha1.ReasonActionNotFound)
	})

	It("wins by being the oldest, and the others are told not to execute", func() {
		s := newScene()
		a := s.claimable(unique("txn"))
		withoutOperator()
		var all []*v1alpha1.Claim
		for _, try := range []string{"", "2", "3"} {
			c := s.claimFor(s.agent, a)
			if try != "" {
				c = again(c, try)
			}
			Expect(env.Client(s.agent).Create(ctx, c)).To(Succeed())
			all = append(all, c)
		}
		operator = startOperator(controllers.Options{})
		a = s.reaches(a, v1alpha1.ActionAdmitted)

		first := all[0]
		for _, c := range all[1:] {
			older := c.CreationTimestamp.Compare(first.CreationTimestamp.Time)
			if older < 0 || older == 0 && c.UID < first.UID {
				first = c
			}
		}
		Expect(a.Status.Execution.ClaimRef.UID).To(Equal(first.UID))
		for _, c := range all {
			if c == first {
				expectAccepted(c)
				continue
			}
			expectRefused(c, v1alpha1.ReasonAnotherWasFirst)
		}
	})

	It("that never comes lets the Action expire, never become ambiguous", func() {
		s := newScene()
		payment := unique("txn")
		a, _ := s.approved(payment)
		free := s.claimable(unique("txn"))
		clock.Advance(GinkgoT(), 15*time.Minute+time.Second)
		for _, o := range []*v1alpha1.Action{a, free} {
			o = s.reaches(o, v1alpha1.ActionExpired, string(decision.NotClaimed))
			d := s.receiptOf(o)
			Expect(d.Result).To(Equal(decision.Denied))
			Expect(d.Reason).To(Equal(decision.NotClaimed))
		}
		s.noEffect("refund:" + payment)
		c := s.claim(s.agent, s.get(a))
		expectRefused(c, v1alpha1.ReasonActionFinished)
		s.chainHolds()
	})
})

var _ = Describe("a process that gives up", func() {
	It("before it is admitted withdraws its Action", func() {
		s := newScene()
		payment := unique("txn")
		a := s.asked(payment)
		s.report(s.agent, a, v1alpha1.OutcomeNotExecuted)
		a = s.reaches(a, v1alpha1.ActionBlocked, string(decision.Withdrawn))
		Expect(a.Status.Execution).To(BeNil())
		Expect(s.receiptOf(a).Result).To(Equal(decision.Blocked))
		s.noEffect("refund:" + payment)
		expectRefused(s.approve(s.approver, a), v1alpha1.ReasonActionFinished)
		s.chainHolds()
	})

	It("after the approval, too", func() {
		s := newScene()
		a, _ := s.approved(unique("txn"))
		s.report(s.agent, a, v1alpha1.OutcomeNotExecuted)
		a = s.reaches(a, v1alpha1.ActionBlocked, string(decision.Withdrawn))
		Expect(s.receiptOf(a).Approvals).To(BeEmpty())
	})

	It("before anybody decided is never admitted", func() {
		s := newScene()
		withoutOperator()
		payment := unique("txn")
		a := s.propose(refund(payment, 100))
		s.report(s.agent, a, v1alpha1.OutcomeNotExecuted)
		operator = startOperator(controllers.Options{})
		s.reaches(a, v1alpha1.ActionBlocked, string(decision.Withdrawn))
		s.noEffect("refund:" + payment)
	})

	It("and says that it executed all the same was never allowed to", func() {
		s := newScene()
		a := s.asked(unique("txn"))
		s.report(s.agent, a, v1alpha1.OutcomeCommitted)
		a = s.reaches(a, v1alpha1.ActionBlocked, string(decision.Withdrawn))
		Expect(a.Status.Message).To(ContainSubstring("never allowed"))
	})

	It("after it was admitted leaves a failed attempt, which may be retried", func() {
		s := newScene()
		payment := unique("txn")
		a := s.reaches(s.propose(refund(payment, 100)), v1alpha1.ActionAdmitted)
		s.report(s.agent, a, v1alpha1.OutcomeNotExecuted)
		s.reaches(a, v1alpha1.ActionFailed)
		Expect(s.effect("refund:" + payment).Status.State).To(Equal(v1alpha1.EffectFailed))
		s.reaches(s.propose(refund(payment, 100)), v1alpha1.ActionAdmitted)
	})

	It("but was another's does not withdraw", func() {
		s := newScene()
		a := s.asked(unique("txn"))
		o := s.outcome(a, v1alpha1.OutcomeNotExecuted)
		o.Name = flow.LockName(string(a.UID), a.Spec.ClaimID, s.rival.Name)
		Expect(env.Client(s.rival).Create(ctx, o)).To(Succeed())
		s.approve(s.approver, a)
		a = s.reaches(a, v1alpha1.ActionClaimable)
		s.claim(s.agent, a)
		s.reaches(a, v1alpha1.ActionAdmitted)
	})
})
