package authority

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/timeline"
	"ctrlrun.dev/operator/test/testenv"
)

// below is what is told of a Delegation of chainOf beside the reason.
func below(name string, depth int, more map[string]string) map[string]string {
	data := map[string]string{"delegation": name, "grant": "refunds", "depth": fmt.Sprint(depth)}
	for k, v := range more {
		data[k] = v
	}
	return data
}

var _ = Describe("Who may not propose", Serial, func() {
	DescribeTable("is told why, before anybody is asked and anything reserved",
		// set makes the scene and says who proposes; all amounts are those people are asked about.
		func(set func(s *scene) testenv.User, want refusal) {
			s := newScene()
			u := set(s)
			s.refused(s.refund(u, asked), want)
			s.refused(s.refund(u, allowed, unclaimed), want)
			s.chainHolds()
		},
		Entry("no_authority: there is no grant", func(s *scene) testenv.User { return s.agent },
			refusal{decision.NoAuthority, []string{"There is no valid grant in this namespace", "kubectl ctrlrun why"}, nil}),
		Entry("no_authority: it is for another agent", func(s *scene) testenv.User {
			s.grant("refunds", s.refunds(nil))
			return s.night
		}, refusal{decision.NoAuthority, []string{"No grant names this agent."}, nil}),
		Entry("no_authority: it is for its user as well", func(s *scene) testenv.User {
			s.grant("refunds", s.refunds(fields{"subject": fields{"agent": s.agent.Name, "user": "carla"}}))
			return s.agent
		}, refusal{decision.NoAuthority, []string{"No grant is for this agent and its user."}, nil}),
		Entry("no_authority: it is about other actions", func(s *scene) testenv.User {
			s.grant("mails", s.refunds(fields{"actions": []string{"mail.**"}}))
			return s.agent
		}, refusal{decision.NoAuthority, []string{`Grant/mails: It is not about "stripe.refund".`}, nil}),
		Entry("no_authority: it is about other resources", func(s *scene) testenv.User {
			s.grant("refunds", s.refunds(fields{"resources": []string{"invoice:*"}}))
			return s.agent
		}, refusal{decision.NoAuthority, []string{"Grant/refunds: It is about other resources."}, nil}),
		Entry("no_authority: it is for another environment", func(s *scene) testenv.User {
			s.grant("refunds", s.refunds(fields{"environments": []string{"staging"}}))
			return s.agent
		}, refusal{decision.NoAuthority, []string{`Grant/refunds: It is not for the environment "production".`}, nil}),
		Entry("no_authority: it is an envelope", func(s *scene) testenv.User {
			s.grant("emergency", s.envelope(nil))
			return s.agent
		}, refusal{decision.NoAuthority, []string{"There is no valid grant in this namespace"}, nil}),
		Entry("no_authority: it is invalid", func(s *scene) testenv.User {
			s.grant("refunds", s.refunds(invalid))
			return s.agent
		}, refusal{decision.NoAuthority, []string{"There is no valid grant in this namespace"}, nil}),
		Entry("no_authority: it handed everything on, and the other has no part in this", func(s *scene) testenv.User {
			s.grant("refunds", s.refunds(nil))
			s.handed(s.agent, "charges", s.part(grantRef("refunds"), s.night, fields{"actions": []string{"stripe.charge"}}))
			return s.night
		}, refusal{decision.NoAuthority, []string{`Delegation/charges: It is not about "stripe.refund".`}, nil}),

		Entry("authority_constraint: of a Grant", func(s *scene) testenv.User {
			s.grant("refunds", s.refunds(fields{"constraints": fields{"amount_lte": 10}}))
			return s.agent
		}, refusal{decision.AuthorityConstraint, []string{"Grant/refunds is about", "its constraints do not hold", "amount_lte", "ask for a grant that is wider"}, map[string]string{"grant": "refunds"}}),
		Entry("authority_constraint: of an argument that is not there", func(s *scene) testenv.User {
			s.grant("refunds", s.refunds(fields{"constraints": fields{"currency_eq": "EUR"}}))
			return s.agent
		}, refusal{decision.AuthorityConstraint, []string{"currency_eq"}, map[string]string{"grant": "refunds"}}),
		Entry("authority_constraint: of a Delegation", func(s *scene) testenv.User {
			s.grant("refunds", s.refunds(nil))
			s.handed(s.agent, "small", s.part(grantRef("refunds"), s.night, fields{"constraints": fields{"amount_lte": 10}}))
			return s.night
		}, refusal{decision.AuthorityConstraint, []string{"Delegation/small is about"}, below("small", 1, nil)}),

		Entry("authority_expired: a Grant", func(s *scene) testenv.User {
			s.grant("refunds", s.refunds(nil))
			clock.Advance(GinkgoT(), 3*time.Hour)
			return s.agent
		}, refusal{decision.AuthorityExpired, []string{"Grant/refunds", "it has expired", "Ask whoever gave it for a new one."}, map[string]string{"grant": "refunds"}}),
		Entry("authority_expired: a Delegation, before its Grant", func(s *scene) testenv.User {
			s.grant("refunds", s.refunds(nil))
			s.chainOf(1)
			clock.Advance(GinkgoT(), 100*time.Minute)
			return s.night
		}, refusal{decision.AuthorityExpired, []string{"Delegation/to-night", "it has expired"}, below("to-night", 1, nil)}),

		Entry("authority_revoked: the Delegation", func(s *scene) testenv.User {
			s.grant("refunds", s.refunds(nil))
			s.revoke(s.chainOf(1)[0])
			return s.night
		}, refusal{decision.AuthorityRevoked, []string{`it was revoked by "rosa" (Revocation/to-night.rosa)`, "A revocation is not undone"}, below("to-night", 1, nil)}),
		Entry("authority_revoked: what it goes back to", func(s *scene) testenv.User {
			s.grant("refunds", s.refunds(nil))
			s.revoke(s.chainOf(3)[0])
			return s.noon
		}, refusal{decision.AuthorityRevoked, []string{`Delegation/to-night, which it goes back to, was revoked by "rosa"`}, below("to-noon", 3, nil)}),

		Entry("authority_escalation: the Grant was deleted", func(s *scene) testenv.User {
			s.grant("refunds", s.refunds(nil))
			s.chainOf(2)
			s.removeGrant("refunds")
			return s.dawn
		}, refusal{decision.AuthorityEscalation, []string{"Grant/refunds, which it goes back to, is not there", "Ask for a delegation from something that is there."},
			map[string]string{"delegation": "to-dawn", "missing_parent": "Grant/refunds"}}),
		Entry("authority_escalation: the Grant is invalid by now", func(s *scene) testenv.User {
			s.grant("refunds", s.refunds(nil))
			s.chainOf(1)
			s.grant("refunds", s.refunds(invalid))
			return s.night
		}, refusal{decision.AuthorityEscalation, []string{"Grant/refunds, which it goes back to, is not there or does not hold"},
			map[string]string{"delegation": "to-night", "missing_parent": "Grant/refunds"}}),
		Entry("authority_escalation: an ancestor has expired", func(s *scene) testenv.User {
			s.grant("refunds", s.refunds(nil))
			s.chainOf(2)
			clock.Advance(GinkgoT(), 100*time.Minute) // both Delegations end then; the walk names what is above
			return s.dawn
		}, refusal{decision.AuthorityEscalation, []string{"Delegation/to-night, which it goes back to, has expired", "Renew what has expired"},
			below("to-dawn", 2, map[string]string{"expired_parent": "Delegation/to-night"})}),
		Entry("authority_escalation: the Grant was cut short", func(s *scene) testenv.User {
			s.grant("refunds", s.refunds(nil))
			s.chainOf(2)
			s.grant("refunds", s.refunds(fields{"expirationTime": at(-time.Minute)}))
			return s.dawn
		}, refusal{decision.AuthorityEscalation, []string{"Grant/refunds, which it goes back to, has expired"},
			below("to-dawn", 2, map[string]string{"expired_parent": "Grant/refunds"})}),
		Entry("authority_escalation: its end is after that of the Grant by now", func(s *scene) testenv.User {
			s.grant("refunds", s.refunds(nil))
			s.chainOf(1)
			s.grant("refunds", s.refunds(fields{"expirationTime": at(time.Hour)}))
			return s.night
		}, refusal{decision.AuthorityEscalation, []string{"Delegation/to-night is not within Grant/refunds any more (expires_at)"}, below("to-night", 1, map[string]string{"dimension": "expires_at"})}),
		Entry("authority_escalation: the Grant has other actions", func(s *scene) testenv.User {
			s.grant("refunds", s.refunds(nil))
			s.chainOf(1)
			s.grant("refunds", s.refunds(fields{"actions": []string{"stripe.charge"}}))
			return s.night
		}, refusal{decision.AuthorityEscalation, []string{"(actions)"}, below("to-night", 1, map[string]string{"dimension": "actions"})}),
		Entry("authority_escalation: the Grant has other resources", func(s *scene) testenv.User {
			s.grant("refunds", s.refunds(nil))
			s.chainOf(1)
			s.grant("refunds", s.refunds(fields{"resources": []string{"payment:EU-*"}}))
			return s.night
		}, refusal{decision.AuthorityEscalation, []string{"(resources)"}, below("to-night", 1, map[string]string{"dimension": "resources"})}),
		Entry("authority_escalation: the Grant has stricter constraints", func(s *scene) testenv.User {
			s.grant("refunds", s.refunds(nil))
			s.chainOf(3)
			s.grant("refunds", s.refunds(fields{"constraints": fields{"amount_lte": 100000, "currency_eq": "EUR"}}))
			return s.noon
		}, refusal{decision.AuthorityEscalation, []string{"Delegation/to-night is not within Grant/refunds any more (constraints)", `"currency_eq"`},
			below("to-noon", 3, map[string]string{"dimension": "constraints"})}),
		Entry("authority_escalation: the Grant has other environments", func(s *scene) testenv.User {
			s.grant("refunds", s.refunds(nil))
			s.chainOf(1)
			s.grant("refunds", s.refunds(fields{"environments": []string{"staging"}}))
			return s.night
		}, refusal{decision.AuthorityEscalation, []string{"(environments)"}, below("to-night", 1, map[string]string{"dimension": "environments"})}),
		Entry("authority_escalation: the Grant is for certain users by now", func(s *scene) testenv.User {
			s.grant("refunds", s.refunds(nil))
			s.chainOf(1)
			s.grant("refunds", s.refunds(fields{"subject": fields{"agent": s.agent.Name, "user": "carla"}}))
			return s.night
		}, refusal{decision.AuthorityEscalation, []string{"(subject)"}, below("to-night", 1, map[string]string{"dimension": "subject"})}),
		Entry("authority_escalation: the Grant may not be delegated any more", func(s *scene) testenv.User {
			s.grant("refunds", s.refunds(nil))
			s.chainOf(2)
			s.grant("refunds", s.refunds(fields{"delegable": false}))
			return s.dawn
		}, refusal{decision.AuthorityEscalation, []string{"Grant/refunds may not be delegated any more"}, below("to-dawn", 2, nil)}),
		Entry("authority_escalation: the Grant is an envelope by now", func(s *scene) testenv.User {
			s.grant("refunds", s.refunds(nil))
			s.chainOf(1)
			s.grant("refunds", s.refunds(fields{"grantType": "BreakGlass", "maxDurationSeconds": 3600, "delegable": nil, "expirationTime": nil}))
			return s.night
		}, refusal{decision.AuthorityEscalation, []string{"Delegation/to-night does not fit Grant/refunds"}, below("to-night", 1, map[string]string{"break_glass": "true"})}),
		Entry("authority_escalation: less depth is allowed by now", func(s *scene) testenv.User {
			s.grant("refunds", s.refunds(nil))
			s.chainOf(3)
			s.settings(fields{"authority": "Required", "maxDelegationDepth": 2})
			return s.noon
		}, refusal{decision.AuthorityEscalation, []string{"3 steps below Grant/refunds, and the limit of this namespace is 2", "higher maxDelegationDepth"},
			below("to-noon", 3, map[string]string{"depth_exceeded": "true"})}),
	)

	It("by a Delegation whose parent was replaced by another of its name is told that it is gone", func() {
		s := newScene()
		s.grant("refunds", s.refunds(nil))
		first := s.chainOf(2)[0]
		s.passes(s.dawn, byDelegation("to-dawn", "refunds"), map[string]string{"delegation": "to-dawn", "grant": "refunds", "depth": "2"})
		// No user can delete a Delegation. Somebody who writes etcd can.
		s.forgotten("delegations", first.Name)
		Eventually(func() v1alpha1.ActionState { return s.ended(s.refund(s.dawn, allowed)) }).Should(Equal(v1alpha1.ActionDenied))
		s.handed(s.agent, "to-night", s.part(grantRef("refunds"), s.night, nil))
		s.passes(s.night, byDelegation("to-night", "refunds"), map[string]string{"delegation": "to-night", "grant": "refunds", "depth": "1"})
		s.refused(s.refund(s.dawn, asked), refusal{decision.AuthorityEscalation, []string{"Delegation/to-night, which it goes back to, is not there or does not hold"},
			map[string]string{"delegation": "to-dawn", "missing_parent": "Delegation/to-night"}})
		s.chainHolds()
	})

	It("by a Delegation below a Grant that was deleted may again when that Grant is there again, and is within it", func() {
		s := newScene()
		s.grant("refunds", s.refunds(nil))
		s.chainOf(1)
		s.removeGrant("refunds")
		s.grant("refunds", s.refunds(nil))
		s.passes(s.night, byDelegation("to-night", "refunds"), map[string]string{"delegation": "to-night", "grant": "refunds", "depth": "1"})
		s.removeGrant("refunds")
		s.grant("refunds", s.refunds(fields{"constraints": fields{"amount_lte": 10}}))
		s.refused(s.refund(s.night, allowed), refusal{decision.AuthorityEscalation, []string{"(constraints)"}, below("to-night", 1, map[string]string{"dimension": "constraints"})})
	})

	It("is told the gravest of several reasons, and is let pass by any authority that holds", func() {
		s := newScene()
		s.grant("refunds", s.refunds(nil))
		s.grant("a-small-one", s.refunds(fields{"constraints": fields{"amount_lte": 10}, "subject": fields{"agent": s.night.Name}}))
		s.grant("an-old-one", s.refunds(fields{"expirationTime": at(-time.Minute), "subject": fields{"agent": s.night.Name}}))
		s.refused(s.refund(s.night, asked), refusal{decision.AuthorityExpired, []string{"Grant/an-old-one"}, map[string]string{"grant": "an-old-one"}})
		d := s.chainOf(1)[0]
		s.passes(s.night, byDelegation("to-night", "refunds"), map[string]string{"delegation": "to-night", "grant": "refunds", "depth": "1"})
		s.revoke(d)
		s.refused(s.refund(s.night, asked), refusal{decision.AuthorityRevoked, []string{"Delegation/to-night"}, below("to-night", 1, nil)})
		s.grant("a-last-one", s.refunds(fields{"subject": fields{"agent": s.night.Name}}))
		s.passes(s.night, byGrant("a-last-one"), map[string]string{"grant": "a-last-one"})
	})

	It("is everybody while one accepted Delegation cannot be read, which is named", func() {
		s := newScene()
		s.grant("refunds", s.refunds(nil))
		s.chainOf(2)
		other := newScene()
		other.grant("refunds", other.refunds(nil))
		waiting := s.reaches(s.refund(s.agent, asked), v1alpha1.ActionAwaitingApproval)
		// What a later version wrote, or somebody who writes etcd.
		s.rewritten("delegations", "to-dawn", func(o map[string]any) { o["spec"].(map[string]any)["actions"] = []any{"stripe.*.**"} })
		why := refusal{decision.AuthorityUnreadable, []string{"Delegation/to-dawn was accepted and can no longer be used", "everything is denied to everybody", "An administrator has to remove it", "stripe.*.**"},
			map[string]string{"delegation": "to-dawn"}}
		waiting = s.refusedSince(waiting, why)
		Expect(eventsTold(waiting)).To(Equal([]timeline.Type{timeline.ActionProposed, timeline.AuthorityResolved, timeline.PolicyEvaluated, timeline.ApprovalRequested, timeline.AuthorityDenied, timeline.ActionDenied}))
		for _, u := range []testenv.User{s.agent, s.night, s.dawn, s.noon} {
			s.refused(s.refund(u, asked), why)
		}
		other.passes(other.agent, byGrant("refunds"), map[string]string{"grant": "refunds"})

		By("which revoking does not help, and removing does")
		d := &v1alpha1.Delegation{}
		d.Namespace, d.Name = s.ns, "to-dawn"
		_, err := conditionsOf(d)
		Expect(err).NotTo(HaveOccurred())
		s.revoke(d)
		s.refused(s.refund(s.agent, allowed), why)
		s.forgotten("delegations", "to-dawn")
		Eventually(func() v1alpha1.ActionState { return s.ended(s.refund(s.agent, allowed)) }).Should(Equal(v1alpha1.ActionAdmitted))
		s.chainHolds()
	})
})
