package authority

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/authority"
	"ctrlrun.dev/operator/kernel/timeline"
	"ctrlrun.dev/operator/test/testenv"
)

// rejected expects that a Delegation is refused: what its status says, that it says so on record once, and that nobody gets
// anything by it.
func (s *scene) rejected(d *v1alpha1.Delegation, refusal authority.Refusal, dimension string, hints ...string) {
	GinkgoHelper()
	c := condition(d, v1alpha1.AcceptedCondition)
	Expect(c.Status).To(Equal(metav1.ConditionFalse))
	Expect(c.Reason).To(Equal(refusal.Condition()), c.Message)
	for _, hint := range hints {
		Expect(c.Message).To(ContainSubstring(hint))
	}
	Expect(d.Status.Dimension).To(Equal(dimension))
	Expect(d.Status.ParentUID).To(BeEmpty())
	Expect(d.Status.Depth).To(BeZero())
	e := s.onRecord(d, timeline.DelegationRejected)[0]
	s.quotes(d.Status.ReceiptRef, e)
	want := map[string]string{"delegation": d.Name, "reason": string(refusal), "delegator": d.Spec.Delegator.Agent}
	if p := d.Spec.ParentRef; p.Name != "" && refusal != authority.Malformed {
		want["parent"] = string(p.Kind) + "/" + p.Name
	}
	if dimension != "" {
		want["dimension"] = dimension
	}
	if u := d.Spec.Delegator.User; u != nil {
		want["user"] = *u
	}
	if refusal == authority.Malformed {
		Expect(e.Data).To(HaveKeyWithValue("reason", "malformed"))
		Expect(e.Data).To(HaveKeyWithValue("delegation", d.Name))
		return
	}
	Expect(e.Data).To(Equal(want))
}

var _ = Describe("A Delegation that is refused when it is made", Serial, func() {
	DescribeTable("says why, on record once, and grants nothing",
		func(refusal authority.Refusal, make func(s *scene) *v1alpha1.Delegation, hints ...string) {
			s := newScene()
			d := make(s)
			s.rejected(d, refusal, "", hints...)
			a := s.refund(testenv.User{Name: *d.Spec.Subject.Agent}, asked)
			a = s.reaches(a, v1alpha1.ActionDenied)
			Expect(a.Status.Reason).To(Equal("no_authority"), a.Status.Message)
			s.chainHolds()
		},
		Entry("malformed", authority.Malformed, func(s *scene) *v1alpha1.Delegation {
			s.grant("refunds", s.refunds(nil))
			return s.delegate(s.agent, "d", s.part(grantRef("refunds"), s.night, fields{"reason": " "}))
		}, "reason is empty", "create it under another name"),
		Entry("no parent of that name", authority.UnknownParent, func(s *scene) *v1alpha1.Delegation {
			return s.delegate(s.agent, "d", s.part(grantRef("refunds"), s.night, nil))
		}, "Grant/refunds does not exist", "kubectl ctrlrun grants"),
		Entry("a parent of another kind only", authority.UnknownParent, func(s *scene) *v1alpha1.Delegation {
			s.grant("refunds", s.refunds(nil))
			return s.delegate(s.agent, "d", s.part(delegationRef("refunds"), s.night, nil))
		}, "Delegation/refunds does not exist"),
		Entry("a parent that is itself", authority.UnknownParent, func(s *scene) *v1alpha1.Delegation {
			return s.delegate(s.agent, "d", s.part(delegationRef("d"), s.night, nil))
		}, "Delegation/d "),
		Entry("a parent that is an invalid Grant", authority.UnknownParent, func(s *scene) *v1alpha1.Delegation {
			s.grant("refunds", s.refunds(invalid))
			return s.delegate(s.agent, "d", s.part(grantRef("refunds"), s.night, nil))
		}, "Grant/refunds is invalid"),
		Entry("a parent that was refused itself", authority.UnknownParent, func(s *scene) *v1alpha1.Delegation {
			first := s.delegate(s.agent, "first", s.part(grantRef("refunds"), s.night, nil))
			s.rejected(first, authority.UnknownParent, "")
			return s.delegate(s.night, "d", s.part(delegationRef("first"), s.dawn, nil))
		}, "Delegation/first was refused itself"),
		Entry("an emergency below an ordinary Grant", authority.BreakGlassMismatch, func(s *scene) *v1alpha1.Delegation {
			s.grant("refunds", s.refunds(nil))
			return s.delegate(s.oncall, "d", s.part(grantRef("refunds"), s.night, fields{"breakGlass": true, "reason": "outage"}))
		}, "its parent is no grant of type BreakGlass"),
		Entry("an envelope that is opened without saying so", authority.BreakGlassMismatch, func(s *scene) *v1alpha1.Delegation {
			s.grant("emergency", s.envelope(nil))
			return s.delegate(s.agent, "d", s.part(grantRef("emergency"), s.night, nil))
		}, "add breakGlass: true"),
		Entry("a parent that may not be delegated", authority.ParentNotDelegable, func(s *scene) *v1alpha1.Delegation {
			s.grant("refunds", s.refunds(fields{"delegable": nil}))
			return s.delegate(s.agent, "d", s.part(grantRef("refunds"), s.night, nil))
		}, "Grant/refunds may not be delegated"),
		Entry("a parent Delegation that may not be delegated", authority.ParentNotDelegable, func(s *scene) *v1alpha1.Delegation {
			s.grant("refunds", s.refunds(nil))
			s.handed(s.agent, "first", s.part(grantRef("refunds"), s.night, fields{"delegable": nil}))
			return s.delegate(s.night, "d", s.part(delegationRef("first"), s.dawn, nil))
		}, "Delegation/first may not be delegated"),
		Entry("a parent that has expired", authority.ParentNotValid, func(s *scene) *v1alpha1.Delegation {
			s.grant("refunds", s.refunds(fields{"expirationTime": at(-time.Minute)}))
			return s.delegate(s.agent, "d", s.part(grantRef("refunds"), s.night, nil))
		}, "its parent Grant/refunds has expired"),
		Entry("a parent that was revoked", authority.ParentNotValid, func(s *scene) *v1alpha1.Delegation {
			s.grant("refunds", s.refunds(nil))
			s.revoke(s.chainOf(1)[0])
			return s.delegate(s.night, "d", s.part(delegationRef("to-night"), s.dawn, nil))
		}, `it was revoked by "rosa"`),
		Entry("a parent below one that was revoked", authority.ParentNotValid, func(s *scene) *v1alpha1.Delegation {
			s.grant("refunds", s.refunds(nil))
			s.revoke(s.chainOf(2)[0])
			return s.delegate(s.dawn, "d", s.part(delegationRef("to-dawn"), s.noon, nil))
		}, `Delegation/to-night, which it goes back to, was revoked by "rosa"`),
		Entry("a parent whose Grant is gone", authority.ParentNotValid, func(s *scene) *v1alpha1.Delegation {
			s.grant("refunds", s.refunds(nil))
			s.chainOf(1)
			s.removeGrant("refunds")
			return s.delegate(s.night, "d", s.part(delegationRef("to-night"), s.dawn, nil))
		}, "Grant/refunds, which it goes back to, is not there"),
		Entry("a parent that is no longer within its own", authority.ParentNotValid, func(s *scene) *v1alpha1.Delegation {
			s.grant("refunds", s.refunds(nil))
			s.chainOf(1)
			s.grant("refunds", s.refunds(fields{"constraints": fields{"amount_lte": 10}}))
			return s.delegate(s.night, "d", s.part(delegationRef("to-night"), s.dawn, nil))
		}, "is not within Grant/refunds any more (constraints)"),
		Entry("made by somebody whom the parent is not for", authority.NotTheSubject, func(s *scene) *v1alpha1.Delegation {
			s.grant("refunds", s.refunds(nil))
			return s.delegate(s.noon, "d", s.part(grantRef("refunds"), s.night, nil))
		}, "is not the subject of Grant/refunds", ":noon"),
		Entry("made by the agent of a Grant that is for it and its user", authority.NotTheSubject, func(s *scene) *v1alpha1.Delegation {
			s.grant("refunds", s.refunds(fields{"subject": fields{"agent": s.agent.Name, "user": "carla"}}))
			return s.delegate(s.agent, "d", s.part(grantRef("refunds"), s.night, nil))
		}, "is not the subject of Grant/refunds"),
		Entry("further below its Grant than is allowed", authority.MaxDepth, func(s *scene) *v1alpha1.Delegation {
			s.grant("refunds", s.refunds(nil))
			s.chainOf(3)
			return s.delegate(s.noon, "d", s.part(delegationRef("to-noon"), s.dusk, nil))
		}, "4 steps below its root", "the limit of this namespace is 3"),
		Entry("where nothing may be handed on", authority.MaxDepth, func(s *scene) *v1alpha1.Delegation {
			s.settings(fields{"authority": "Required", "maxDelegationDepth": 0})
			s.grant("refunds", s.refunds(nil))
			return s.delegate(s.agent, "d", s.part(grantRef("refunds"), s.night, nil))
		}, "1 step below its root", "the limit of this namespace is 0"),
		Entry("an emergency that lasts too long", authority.BreakGlassTooLong, func(s *scene) *v1alpha1.Delegation {
			s.grant("emergency", s.envelope(nil))
			return s.delegate(s.oncall, "d", s.opening("emergency", s.night, fields{"expirationTime": at(2 * time.Hour)}))
		}, "longer than the envelope may be open", "1h0m0s"),
	)

	DescribeTable("because it is wider than its parent says in what",
		func(dimension authority.Dimension, parent, changes fields, hint string) {
			s := newScene()
			s.grant("refunds", s.refunds(parent))
			s.rejected(s.delegate(s.agent, "d", s.part(grantRef("refunds"), s.night, changes)), authority.Containment, string(dimension), hint, "it is not within Grant/refunds ("+string(dimension)+")")
			s.rejected(s.delegate(s.agent, "wide-in-several", s.part(grantRef("refunds"), s.night, changes.with(fields{"expirationTime": at(3 * time.Hour)}))), authority.Containment, string(dimension))
			s.chainHolds()
		},
		Entry("actions", authority.DimensionActions, nil, fields{"actions": []string{"stripe.refund", "mail.send"}}, `the action pattern "mail.send" is within none of the parent's`),
		Entry("resources", authority.DimensionResources, nil, fields{"resources": []string{"payment:**"}}, `the resource pattern "payment:**"`),
		Entry("resources, left out", authority.DimensionResources, nil, fields{"resources": nil}, "the parent limits resources and the delegation does not"),
		Entry("constraints", authority.DimensionConstraints, nil, fields{"constraints": fields{"amount_lte": 100001}}, `the constraint "amount_lte" is not as strict`),
		Entry("constraints, left out", authority.DimensionConstraints, nil, fields{"constraints": nil}, `the parent has the constraint "amount_lte"`),
		Entry("constraints, of another operator", authority.DimensionConstraints, nil, fields{"constraints": fields{"amount_lt": 10}}, `the parent has the constraint "amount_lte"`),
		Entry("environments", authority.DimensionEnvironments, nil, fields{"environments": []string{"production", "staging"}}, `the parent is not for the environment "staging"`),
		Entry("environments, left out", authority.DimensionEnvironments, nil, fields{"environments": nil}, "the parent limits environments and the delegation does not"),
		Entry("its end", authority.DimensionExpiration, nil, fields{"expirationTime": "2126-01-02T03:04:05Z"}, "it expires later than its parent"),
		Entry("its end, left out", authority.DimensionExpiration, nil, fields{"expirationTime": nil, "delegable": nil}, "the parent expires and the delegation does not"),
	)

	It("because it is for any user says so", func() {
		s := newScene()
		s.mayRepresent(s.agent, "carla")
		s.grant("refunds", s.refunds(fields{"subject": fields{"agent": s.agent.Name, "user": "carla"}}))
		forCarla := fields{"delegator": fields{"user": "carla"}}
		s.rejected(s.delegate(s.agent, "any", s.part(grantRef("refunds"), s.night, forCarla)), authority.Containment, "subject", "the parent is for certain users and the delegation for any")
		s.rejected(s.delegate(s.agent, "other", s.part(grantRef("refunds"), s.night, forCarla.with(fields{"subject": fields{"agent": s.night.Name, "user": "bob"}}))), authority.Containment, "subject", `the parent is not for the user "bob"`)
		d := s.handed(s.agent, "same", s.part(grantRef("refunds"), s.night, forCarla.with(fields{"subject": fields{"agent": s.night.Name, "user": "carla"}})))
		Expect(s.onRecord(d, timeline.DelegationCreated)[0].Data).To(HaveKeyWithValue("user", "carla"))
	})

	It("is only refused by the operator: what the apiserver can tell, it refuses itself", func() {
		s := newScene()
		s.grant("refunds", s.refunds(nil))
		for name, changes := range map[string]fields{
			"to-several":   {"subject": fields{"agent": s.night.Name + "*"}},
			"for-somebody": {"delegator": fields{"agent": s.noon.Name}},
			"on-behalf":    {"delegator": fields{"user": "carla"}},
		} {
			_, err := s.delegates(s.agent, name, s.part(grantRef("refunds"), s.night, changes))
			Expect(err).To(HaveOccurred(), name)
		}
	})
})
