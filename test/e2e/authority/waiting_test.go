package authority

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/controllers"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/kernel/timeline"
	"ctrlrun.dev/operator/test/testenv"
)

// waits are the two states in which an Action waits for people, or for its process.
var waits = map[v1alpha1.ActionState]int{v1alpha1.ActionAwaitingApproval: asked, v1alpha1.ActionClaimable: allowed}

// waiting is an Action that waits, of somebody.
func (s *scene) waiting(u testenv.User, state v1alpha1.ActionState) *v1alpha1.Action {
	GinkgoHelper()
	return s.reaches(s.refund(u, waits[state], unclaimed), state)
}

var _ = Describe("An Action that waits", Serial, func() {
	for state := range waits {
		DescribeTable(string(state)+" is decided afresh, and ends when",
			func(change func(s *scene, d *v1alpha1.Delegation), want refusal) {
				s := newScene()
				s.grant("refunds", s.refunds(nil))
				d := s.chainOf(1)[0]
				a := s.waiting(s.night, state)
				change(s, d)
				a = s.refusedSince(a, want)
				Expect(eventsTold(a)[:3]).To(Equal([]timeline.Type{timeline.ActionProposed, timeline.AuthorityResolved, timeline.PolicyEvaluated}))
				s.chainHolds()
			},
			Entry("the Grant is deleted", func(s *scene, _ *v1alpha1.Delegation) { s.deleteGrant("refunds") },
				refusal{decision.AuthorityEscalation, []string{"Grant/refunds"}, map[string]string{"delegation": "to-night", "missing_parent": "Grant/refunds"}}),
			Entry("the Grant is narrowed", func(s *scene, _ *v1alpha1.Delegation) {
				s.grant("refunds", s.refunds(fields{"constraints": fields{"amount_lte": 10}}))
			}, refusal{decision.AuthorityEscalation, []string{"(constraints)"}, below("to-night", 1, map[string]string{"dimension": "constraints"})}),
			Entry("the Delegation is revoked", func(s *scene, d *v1alpha1.Delegation) { s.revoke(d) },
				refusal{decision.AuthorityRevoked, []string{"Revocation/to-night.rosa"}, below("to-night", 1, nil)}),
			Entry("nothing may be handed on any more", func(s *scene, _ *v1alpha1.Delegation) {
				s.settings(fields{"authority": "Required", "maxDelegationDepth": 0})
			}, refusal{decision.AuthorityEscalation, []string{"the limit of this namespace is 0"}, below("to-night", 1, map[string]string{"depth_exceeded": "true"})}),
		)

		It(string(state)+" ends when what lets it pass ends, and not later", func() {
			s := newScene()
			s.settings(fields{"authority": "Required", "approvalTTLSeconds": 7200})
			s.grant("refunds", s.refunds(nil))
			s.handed(s.agent, "to-night", s.part(grantRef("refunds"), s.night, fields{"expirationTime": at(time.Hour)}))
			a := s.waiting(s.night, state)
			clock.Advance(GinkgoT(), 61*time.Minute)
			s.refusedSince(a, refusal{decision.AuthorityExpired, nil, below("to-night", 1, nil)})
		})

		It(string(state)+" goes on when its Grant was deleted and made again before anybody saw it gone", func() {
			s := newScene()
			s.grant("refunds", s.refunds(nil))
			s.chainOf(1)
			a := s.waiting(s.night, state)
			withoutOperator()
			s.deleteGrant("refunds")
			again := &v1alpha1.Grant{}
			again.Namespace, again.Name = s.ns, "refunds"
			s.refunds(fields{"actions": []string{"stripe.*", "mail.*"}}).into(&again.Spec)
			again.Spec.Raw = nil
			Expect(env.Client(s.owner).Create(ctx, again)).To(Succeed())
			operator = startOperator(controllers.Options{})
			if state == v1alpha1.ActionAwaitingApproval {
				s.answer(s.approver, a, v1alpha1.Approved)
				a = s.reaches(a, v1alpha1.ActionClaimable)
			}
			s.claim(s.night, a)
			a, d := s.executed(s.night, a)
			s.passedBy(a, d, byDelegation("to-night", "refunds"), map[string]string{"delegation": "to-night", "grant": "refunds", "depth": "1"})
		})
	}

	It("is denied when it is claimed, at the latest: nobody saw before that the Grant is gone", func() {
		s := newScene()
		s.grant("refunds", s.refunds(nil))
		claimed, approved := s.waiting(s.agent, v1alpha1.ActionClaimable), s.waiting(s.agent, v1alpha1.ActionAwaitingApproval)
		withoutOperator()
		s.deleteGrant("refunds")
		s.claim(s.agent, claimed)
		s.answer(s.approver, approved, v1alpha1.Approved)
		operator = startOperator(controllers.Options{})
		for _, a := range []*v1alpha1.Action{claimed, approved} {
			s.refusedSince(a, refusal{decision.NoAuthority, []string{"There is no valid grant in this namespace"}, nil})
		}
	})

	It("goes on by another Grant when the one that let it pass is deleted, and tells by which", func() {
		s := newScene()
		s.grant("a", s.refunds(nil))
		s.grant("b", s.refunds(fields{"constraints": fields{"amount_lte": 2000}}))
		a := s.waiting(s.agent, v1alpha1.ActionAwaitingApproval)
		Expect(a.Status.Authority).To(HaveValue(Equal(byGrant("a"))))
		s.removeGrant("a")
		s.answer(s.approver, a, v1alpha1.Approved)
		a = s.reaches(a, v1alpha1.ActionClaimable)
		s.claim(s.agent, a)
		a, d := s.executed(s.agent, a)
		s.passedBy(a, d, byGrant("b"), map[string]string{"grant": "b"})
		count := 0
		for _, kind := range eventsTold(a) {
			if kind == timeline.AuthorityResolved {
				count++
			}
		}
		Expect(count).To(Equal(2))
	})

	It("is not stopped once it was admitted: its outcome counts, whatever is revoked, deleted or narrowed", func() {
		s := newScene()
		s.grant("refunds", s.refunds(nil))
		d := s.chainOf(1)[0]
		done, failed, unknown := s.reaches(s.refund(s.night, allowed), v1alpha1.ActionAdmitted), s.reaches(s.refund(s.night, allowed), v1alpha1.ActionAdmitted), s.reaches(s.refund(s.night, allowed), v1alpha1.ActionAdmitted)
		s.revoke(d)
		s.removeGrant("refunds")
		s.refused(s.refund(s.night, asked), refusal{decision.AuthorityEscalation, nil, map[string]string{"delegation": "to-night", "missing_parent": "Grant/refunds"}})
		by := byDelegation("to-night", "refunds")
		data := map[string]string{"delegation": "to-night", "grant": "refunds", "depth": "1"}
		for _, one := range []struct {
			a      *v1alpha1.Action
			result v1alpha1.OutcomeResult
			state  v1alpha1.ActionState
		}{{done, v1alpha1.OutcomeCommitted, v1alpha1.ActionCommitted}, {failed, v1alpha1.OutcomeNotExecuted, v1alpha1.ActionFailed}, {unknown, v1alpha1.OutcomeUnknown, v1alpha1.ActionAmbiguous}} {
			s.reports(s.night, one.a, one.result)
			a := s.reaches(one.a, one.state)
			s.passedBy(a, s.receiptOf(a), by, data)
			Expect(eventsTold(a)).NotTo(ContainElement(timeline.AuthorityDenied))
		}
		s.chainHolds()
	})
})

var _ = Describe("A Revocation", Serial, func() {
	It("cuts before it is on record, and before its status says anything", func() {
		withoutOperator()
		stuck := pauseAt("before event")
		slow := startOperator(controllers.Options{Crash: stuck.At})
		DeferCleanup(func() { _ = slow.Stop() })
		s := newScene()
		s.grant("refunds", s.refunds(nil))
		Eventually(func() []receipt.Document { return s.events(timeline.GrantInForce) }).Should(HaveLen(1))
		d := s.chainOf(1)[0]
		a := s.waiting(s.night, v1alpha1.ActionAwaitingApproval)
		stuck.armed.Store(true)
		r := s.revocation(s.revoker, d)
		Expect(env.Client(s.revoker).Create(ctx, r)).To(Succeed())
		Eventually(stuck.Reached).Should(BeClosed())
		s.refusedSince(a, refusal{decision.AuthorityRevoked, []string{"Revocation/to-night.rosa"}, below("to-night", 1, nil)})
		s.refused(s.refund(s.night, asked), refusal{decision.AuthorityRevoked, nil, below("to-night", 1, nil)})
		s.onRecord(d, timeline.DelegationCreated)
		all, err := conditionsOf(r)
		Expect(err).NotTo(HaveOccurred())
		Expect(all).To(BeEmpty())
		stuck.Resume()
		expectAccepted(r)
		s.onRecord(d, timeline.DelegationCreated, timeline.DelegationRevoked)
		revoked(d)
	})

	It("of a Delegation that is not there, or another, revokes nothing and says so", func() {
		s := newScene()
		s.grant("refunds", s.refunds(nil))
		d := s.chainOf(1)[0]
		gone := s.revocation(s.revoker, &v1alpha1.Delegation{})
		gone.Name, gone.Spec.DelegationRef = "nothing.rosa", v1alpha1.ObjectReference{Name: "nothing", UID: "none"}
		other := s.revocation(s.revoker, d)
		other.Spec.DelegationRef.UID = "another"
		for _, r := range []*v1alpha1.Revocation{gone, other} {
			Expect(env.Client(s.revoker).Create(ctx, r)).To(Succeed())
			c := condition(r, v1alpha1.AcceptedCondition)
			Expect(c.Reason).To(Equal("DelegationNotFound"))
			Expect(c.Message).To(ContainSubstring("Nothing was revoked."))
		}
		s.passes(s.night, byDelegation("to-night", "refunds"), map[string]string{"delegation": "to-night", "grant": "refunds", "depth": "1"})
		s.onRecord(d, timeline.DelegationCreated)
	})

	It("takes the verb revoke, which whoever made the Delegation has not by that", func() {
		s := newScene()
		s.grant("refunds", s.refunds(nil))
		d := s.chainOf(1)[0]
		Expect(env.Client(s.agent).Create(ctx, s.revocation(s.agent, d))).NotTo(Succeed())
		Expect(env.Client(s.approver).Create(ctx, s.revocation(s.approver, d))).NotTo(Succeed())
		Expect(env.Client(s.owner).Create(ctx, s.revocation(s.owner, d))).To(Succeed())
		revoked(d)
	})
})
