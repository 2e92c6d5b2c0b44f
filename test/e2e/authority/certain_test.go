package authority

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/timeline"
	"ctrlrun.dev/operator/test/testenv"
)

var _ = Describe("A verdict on a Delegation", func() {
	It("waits for that on its parent, in whatever order they are made", func() {
		s := newScene()
		last := s.delegate(s.dawn, "to-noon", s.part(delegationRef("to-dawn"), s.noon, nil))
		refusedNow := func(o *v1alpha1.Delegation) bool {
			for _, c := range s.delegation(o).Status.Conditions {
				if c.Type == v1alpha1.AcceptedCondition {
					return c.Status == metav1.ConditionFalse
				}
			}
			return false
		}
		Eventually(func() bool { return refusedNow(last) }).Should(BeTrue(), "a parent that does not exist is unknown")

		g := &v1alpha1.Grant{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "refunds"}}
		s.refunds(nil).into(&g.Spec)
		g.Spec.Raw = nil
		Expect(env.Client(s.owner).Create(ctx, g)).To(Succeed())
		// Made at once, as a pipeline applies them.
		first := s.delegate(s.agent, "to-night", s.part(grantRef("refunds"), s.night, nil))
		second := s.delegate(s.night, "to-dawn", s.part(delegationRef("to-night"), s.dawn, nil))
		third := s.delegate(s.dawn, "to-dusk", s.part(delegationRef("to-dawn"), s.dusk, nil))
		for _, o := range []*v1alpha1.Delegation{first, second, third} {
			expectAccepted(o)
		}
		Expect(s.delegation(third).Status.Depth).To(Equal(int64(3)))
	})

	It("is not forgotten where the Revocation is gone", func() {
		s := newScene()
		s.grant("refunds", s.refunds(nil))
		d := s.handed(s.agent, "to-night", s.part(grantRef("refunds"), s.night, nil))
		r := s.revoke(d)
		Eventually(func() string { return revokedNow(s.delegation(d)) }).Should(Equal("True"))
		// Whoever administers the cluster is an operator to the admission policies.
		Expect(env.Admin().Delete(ctx, r)).To(Succeed())
		s.refused(s.refund(s.night, 100), refusal{reason: "authority_revoked", data: map[string]string{"delegation": "to-night", "grant": "refunds", "depth": "1"}})
	})

	It("goes on record once before its end, however often it is revoked, and early", func() {
		s := newScene()
		s.grant("refunds", s.refunds(nil))
		d := s.delegate(s.agent, "to-night", s.part(grantRef("refunds"), s.night, nil))
		var all []*v1alpha1.Revocation
		for _, suffix := range []string{"", ".2", ".3"} {
			r := s.revocation(s.revoker, d)
			r.Name += suffix
			Expect(env.Client(s.revoker).Create(ctx, r)).To(Succeed())
			all = append(all, r)
		}
		for _, r := range all {
			expectAccepted(r)
		}
		made, ended := s.events(timeline.DelegationCreated), s.events(timeline.DelegationRevoked)
		Expect(made).To(HaveLen(1))
		Expect(ended).To(HaveLen(1))
		Expect(made[0].Seq).To(BeNumerically("<", ended[0].Seq))
	})
})

var _ = Describe("What grants nothing any more", func() {
	It("is deleted after a while, the Revocation last, and its receipts stay", func() {
		s := newScene()
		s.grant("refunds", s.refunds(nil))
		upper := s.handed(s.agent, "to-night", s.part(grantRef("refunds"), s.night, nil))
		s.handed(s.night, "to-dawn", s.part(delegationRef("to-night"), s.dawn, fields{"delegable": nil}))
		wider := s.delegate(s.agent, "too-wide", s.part(grantRef("refunds"), s.night, fields{"actions": []string{"**"}}))
		Eventually(func() string { return s.delegation(wider).Status.Dimension }).Should(Equal("actions"))
		r := s.revoke(upper)
		s.settings(fields{"authority": "Required", "finishedTTLSeconds": 0})
		gone := func(o client.Object) func() bool {
			return func() bool { return apierrors.IsNotFound(env.Admin().Get(ctx, client.ObjectKeyFromObject(o), o)) }
		}
		lower := s.handed(s.agent, "to-noon", s.part(grantRef("refunds"), s.noon, nil))
		another := s.revocation(s.revoker, lower)
		Expect(env.Client(s.revoker).Create(ctx, another)).To(Succeed())
		Eventually(gone(lower)).Should(BeTrue())
		Eventually(gone(another)).Should(BeTrue())
		Expect(gone(upper)()).To(BeFalse(), "another hangs below it, which would stand on nothing")
		Expect(gone(r)()).To(BeFalse(), "what it cuts is there")
		Expect(s.events(timeline.DelegationRevoked)).To(HaveLen(2))
		s.settings(fields{"authority": "Required"}) // what is refused below is looked at, and would be gone at once
		s.refused(s.refund(s.dawn, 100), refusal{reason: "authority_revoked", data: map[string]string{"delegation": "to-dawn", "grant": "refunds", "depth": "2"}})
	})
})

var _ = Describe("The subject of a BreakGlass grant", func() {
	It("says for whom it may be opened", func() {
		s := newScene()
		s.grant("emergency", fields{"subject": fields{"agent": s.night.Name}, "actions": []string{"stripe.*"}, "grantType": "BreakGlass", "maxDurationSeconds": 3600})
		open := func(to testenv.User) fields {
			return fields{
				"parentRef": grantRef("emergency"), "subject": fields{"agent": to.Name}, "actions": []string{"stripe.refund"},
				"expirationTime": at(30 * 60e9), "breakGlass": true, "reason": "the shop is down",
			}
		}
		o := s.delegate(s.oncall, "for-dawn", open(s.dawn))
		Eventually(func() string { return s.delegation(o).Status.Dimension }).Should(Equal("subject"))
		s.handed(s.oncall, "for-night", open(s.night))
	})
})

var _ = Describe("Settings that are being deleted", func() {
	It("end with their last finalizer only by whoever may weaken them", func() {
		s := newScene()
		o := &v1alpha1.Settings{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: v1alpha1.SettingsName}}
		finalizers := func(u testenv.User, names ...string) error {
			Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
			o.Finalizers = names
			return env.Client(u).Update(ctx, o)
		}
		s.settings(fields{})
		Expect(finalizers(s.editor, "example.com/stay")).To(Succeed())
		Expect(env.Client(s.editor).Delete(ctx, o)).To(Succeed(), "nothing is weakened by that")
		s.settings(fields{"authority": "Required"})
		Expect(finalizers(s.editor)).To(MatchError(ContainSubstring("authority Required to NotRequired")))
		Expect(finalizers(s.owner)).To(Succeed())
		Eventually(func() bool {
			return apierrors.IsNotFound(env.Admin().Get(ctx, client.ObjectKeyFromObject(o), o))
		}).Should(BeTrue())
	})
})

// delegation reads one again.
func (s *scene) delegation(o *v1alpha1.Delegation) *v1alpha1.Delegation {
	GinkgoHelper()
	now := &v1alpha1.Delegation{}
	Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(o), now)).To(Succeed())
	return now
}

func revokedNow(o *v1alpha1.Delegation) string {
	for _, c := range o.Status.Conditions {
		if strings.EqualFold(c.Type, v1alpha1.RevokedCondition) {
			return string(c.Status)
		}
	}
	return ""
}
