package proposals

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/test/testenv"
)

var _ = Describe("where Settings say policyChanges: Proposed", func() {
	refusal := ContainSubstring("ValidatingAdmissionPolicy 'ctrlrun-policy-changes' with binding 'ctrlrun-policy-changes' denied request")

	It("refuses every change of a policy or a grant by whoever does not govern, and lets whoever does", func() {
		s := newScene(asksOne)
		for kind, spec := range map[string]fields{"ActionPolicy": aPolicy(100), "Grant": aGrant()} {
			Expect(s.write(s.wim, kind, "direct", spec)).To(MatchError(refusal))
			Expect(s.write(s.paula, kind, "direct", spec)).To(Succeed())
			other := aPolicy(200)
			if kind == "Grant" {
				other = aGrant()
				other["actions"] = []any{"**"}
			}
			Expect(s.write(s.wim, kind, "direct", other)).To(MatchError(refusal))
			c := env.Client(s.wim)
			o := object(kind, s.ns, "direct", nil)
			Expect(c.Delete(ctx, o)).To(MatchError(refusal))
			Expect(c.DeleteAllOf(ctx, o, client.InNamespace(s.ns))).To(MatchError(refusal))
			Expect(c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object(kind, s.ns, "direct", other)), client.FieldOwner("wim"), client.ForceOwnership)).To(MatchError(refusal))

			By("leaving metadata to whoever may write it")
			Expect(c.Patch(ctx, o, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"team":"payments"}}}`)))).To(Succeed())
			Expect(s.write(s.paula, kind, "direct", other)).To(Succeed())
			Expect(env.Client(s.paula).Delete(ctx, o)).To(Succeed())
		}
	})

	It("refuses another number also where it is so near that the apiserver's own rules take the two for equal", func() {
		s := newScene(asksOne)
		c := env.Client(s.wim)
		// The policies of the kinds see a fraction now; the apiserver reports one of the two.
		refused := MatchError(Or(refusal, ContainSubstring("nothing takes a fraction"), ContainSubstring("takes an integer")))
		rules := fields{"rules": []any{fields{"when": fields{"account_eq": int64(9007199254740993)}, "decision": "allow"}, fields{"decision": "deny"}}}
		Expect(s.write(s.paula, "ActionPolicy", "near", fields{"actions": fields{"pay": rules}})).To(Succeed())
		near := `{"spec":{"actions":{"pay":{"rules":[{"when":{"account_eq":9007199254740992.0},"decision":"allow"},{"decision":"deny"}]}}}}`
		Expect(c.Patch(ctx, object("ActionPolicy", s.ns, "near", nil), client.RawPatch("application/merge-patch+json", []byte(near)))).To(refused)
		grant := aGrant()
		grant["constraints"] = fields{"account_eq": int64(9007199254740993)}
		Expect(s.write(s.paula, "Grant", "near", grant)).To(Succeed())
		Expect(c.Patch(ctx, object("Grant", s.ns, "near", nil), client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"constraints":{"account_eq":9007199254740992.0}}}`)))).To(refused)

		By("and such a number can be proposed")
		s.proposes("near", of("near", fields{"actions": fields{"pay": fields{"rules": []any{fields{"when": fields{"account_eq": int64(9007199254740995)}, "decision": "deny"}}}}}))
		Expect(c.Patch(ctx, object("PolicyProposal", s.ns, "near", nil), client.RawPatch("application/merge-patch+json",
			[]byte(`{"spec":{"content":{"actions":{"pay":{"rules":[{"when":{"account_eq":9007199254740996.0},"decision":"deny"}]}}}}}`)))).To(MatchError(ContainSubstring(`spec.proposer must be "wim"`)))
		s.asked("near")
	})

	It("takes the verb on one name for that name only", func() {
		s := newScene(asksOne)
		gina := testenv.User{Name: "gina"}
		group := v1alpha1.GroupVersion.Group
		Expect(env.Allow(ctx, s.ns, gina,
			rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{"actionpolicies"}, Verbs: []string{"get", "create", "update"}},
			rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{"actionpolicies"}, ResourceNames: []string{"hers"}, Verbs: []string{"govern"}},
		)).To(Succeed())
		Expect(s.write(gina, "ActionPolicy", "hers", aPolicy(1))).To(Succeed())
		Expect(s.write(gina, "ActionPolicy", "other", aPolicy(1))).To(MatchError(refusal))
	})

	It("lets nobody go back to Free who does not govern, by an edit or by deleting the Settings", func() {
		s := newScene(asksOne)
		govern := ContainSubstring("policyChanges Proposed to Free")
		for _, spec := range []fields{{"policyChanges": "Free"}, {}, {"finishedTTLSeconds": int64(60)}} {
			Expect(s.write(s.wim, "Settings", "default", spec)).To(MatchError(govern))
		}
		Expect(env.Client(s.wim).Delete(ctx, object("Settings", s.ns, "default", nil))).To(MatchError(govern))
		Expect(s.write(s.wim, "Settings", "default", fields{"policyChanges": "Proposed", "finishedTTLSeconds": int64(60)})).To(Succeed())
		Expect(s.write(s.wim, "ActionPolicy", "direct", aPolicy(1))).To(MatchError(refusal))

		Expect(s.write(s.paula, "Settings", "default", fields{"policyChanges": "Free"})).To(Succeed())
		Eventually(func() error { return s.write(s.wim, "ActionPolicy", "direct", aPolicy(1)) }).Should(Succeed())
	})

	It("changes nothing in a namespace that does not say so", func() {
		s := newScene(asksOne)
		other := env.Namespace(GinkgoT(), nil)
		Expect(env.Allow(ctx, other, s.wim, rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"actionpolicies"}, Verbs: []string{"get", "create"}})).To(Succeed())
		Expect(env.Client(s.wim).Create(ctx, object("ActionPolicy", other, "direct", aPolicy(1)))).To(Succeed())
	})

	It("lets a namespace end", func() {
		s := newScene(asksOne)
		ns := object("Namespace", "", s.ns, nil)
		ns.SetAPIVersion("v1")
		Expect(env.Admin().Delete(ctx, ns)).To(Succeed())
		Eventually(func() error { return env.Client(s.wim).Delete(ctx, object("ActionPolicy", s.ns, "changes", nil)) }).Should(Succeed())
	})
})

var _ = Describe("who is the proposer", func() {
	It("is whoever wrote what is proposed, also of an edit of somebody else's, and nobody else can be named", func() {
		s := newScene(asksOne)
		s.proposes("refunds", of("refunds", aPolicy(2000)))
		c := env.Client(s.wim)
		forged := of("other", aPolicy(1))
		forged["proposer"] = "alice"
		Expect(c.Create(ctx, object("PolicyProposal", s.ns, "other", forged))).To(MatchError(ContainSubstring(`spec.proposer must be "wim"`)))

		o := object("PolicyProposal", s.ns, "refunds", nil)
		patch := func(text string) error {
			return c.Patch(ctx, o, client.RawPatch("application/merge-patch+json", []byte(text)))
		}
		Expect(patch(`{"spec":{"proposer":"wim"}}`)).To(MatchError(ContainSubstring(`spec.proposer must be "`+s.flux.Name+`"`)), "nothing else changes")
		Expect(patch(`{"spec":{"proposer":null}}`)).To(MatchError(ContainSubstring(`spec.proposer must be "` + s.flux.Name + `"`)))
		Expect(patch(`{"metadata":{"labels":{"a":"b"}}}`)).To(Succeed())
		Expect(s.proposal("refunds").Spec.Proposer).To(Equal(s.flux.Name))
		before := s.asked("refunds")

		Expect(patch(`{"spec":{"reason":"mine now"}}`)).To(Succeed())
		Expect(s.proposal("refunds").Spec.Proposer).To(Equal("wim"))
		s.ends(before, v1alpha1.ActionBlocked)
		a := s.asked("refunds")
		Expect(*a.Spec.Principal.User).To(Equal("wim"))

		By("and a tool that applies its text again, which does not know that field, is it again")
		s.applies(s.flux, "refunds", of("refunds", aPolicy(2000)))
		Expect(s.proposal("refunds").Spec.Proposer).To(Equal(s.flux.Name))
		for _, m := range s.proposal("refunds").ManagedFields {
			if m.Manager == manager && m.Operation == metav1.ManagedFieldsOperationApply {
				Expect(m.FieldsV1.GetRawString()).NotTo(ContainSubstring("proposer"), "what it does not own it does not take back")
			}
		}
		Expect(patch(`{"spec":{"bogus":1}}`)).To(MatchError(ContainSubstring("unknown: spec.bogus")))
	})

	It("does not let an agent ask about a change itself", func() {
		s := newScene(`{"ctrlrun.policy.change": {"decision": "approve"}, "ctrlrun.other": {"decision": "allow"}}`)
		agent := testenv.ServiceAccountUser(s.ns, "agent")
		Expect(env.Grant(ctx, s.ns, "ctrlrun-agent", agent)).To(Succeed())
		for _, kind := range []string{"ctrlrun.policy.change", "ctrlrun.other"} {
			Expect(env.Client(agent).Create(ctx, object("Action", s.ns, unique("own"), fields{"actionType": kind}))).To(MatchError(ContainSubstring("are proposed by the operator only")))
		}
		Expect(env.Client(agent).Create(ctx, object("Action", s.ns, unique("own"), fields{"actionType": "ctrlrunner.x"}))).To(Succeed())
	})
})
