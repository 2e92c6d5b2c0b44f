package e2e

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/test/testenv"
)

// canaryType is the one action type that the operator may approve, in its own namespace, for a probe.
const canaryType = "ctrlrun.canary"

// withoutBinding runs body while the binding of a policy is away, and returns when the policy is enforced again.
func withoutBinding(ctx context.Context, binding client.Object, enforced func() bool, body func()) {
	GinkgoHelper()
	Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(binding), binding)).To(Succeed())
	Expect(env.Admin().Delete(ctx, binding)).To(Succeed())
	defer func() {
		binding.SetResourceVersion("")
		binding.SetUID("")
		Expect(env.Admin().Create(ctx, binding)).To(Succeed())
		Eventually(enforced).WithTimeout(10 * time.Second).Should(BeTrue())
	}()
	body()
}

// These are the requests by which the operator finds out whether admission is enforced; the table in config/admission/README.md
// lists them.
var _ = Describe("A probe of admission", Serial, Ordered, func() {
	var canaryAction, canaryEffect *unstructured.Unstructured
	var probe client.Client
	BeforeAll(func(ctx SpecContext) {
		label := map[string]string{"ctrlrun.dev/canary": "true"}
		canaryAction = object("Action", testenv.SystemNamespace, unique("canary"), fields{"actionType": canaryType})
		canaryAction.SetLabels(label)
		canaryEffect = effect(testenv.SystemNamespace, executing())
		canaryEffect.SetLabels(label)
		for _, o := range []client.Object{canaryAction, canaryEffect} {
			Expect(env.Client(operator).Create(ctx, o)).To(Succeed())
		}
		cfg := env.Config(operator)
		cfg.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:ctrlrun-system:ctrlrun-probe"}
		var err error
		probe, err = client.New(cfg, client.Options{Scheme: env.Scheme})
		Expect(err).NotTo(HaveOccurred())
	})

	speaker := action.Speaker(operator.Name)
	forged := func(ctx context.Context, o *unstructured.Unstructured) error {
		return env.Client(operator).Create(ctx, o, client.DryRunAll)
	}
	probes := []struct {
		name, policy, message string
		send                  func(ctx context.Context) error
	}{
		{"a forged Action", "ctrlrun-actions", "spec.principal.agent must be", func(ctx context.Context) error {
			return forged(ctx, object("Action", testenv.SystemNamespace, "probe", fields{
				"actionType": canaryType, "principal": fields{"agent": "somebody-else"},
			}))
		}},
		{"a forged Approval", "ctrlrun-approvals", "spec.approver must be", func(ctx context.Context) error {
			return forged(ctx, object("Approval", testenv.SystemNamespace, canaryAction.GetName()+"."+speaker, fields{
				"actionRef": fields{"name": canaryAction.GetName(), "uid": string(canaryAction.GetUID())}, "actionType": canaryType,
				"actionHash": someHash, "decision": "Approved", "approver": "somebody-else",
			}))
		}},
		{"a forged Outcome", "ctrlrun-outcomes", "spec.reporter must be", func(ctx context.Context) error {
			claimID := uuid.NewString()
			return forged(ctx, object("Outcome", testenv.SystemNamespace, string(canaryAction.GetUID())+"."+claimID+"."+speaker, fields{
				"actionRef": fields{"name": canaryAction.GetName(), "uid": string(canaryAction.GetUID())}, "claimID": claimID,
				"result": "Unknown", "reporter": "somebody-else",
			}))
		}},
		{"a foreign write to an Effect", "ctrlrun-records", "effects are written by the operator only", func(ctx context.Context) error {
			return probe.Patch(ctx, canaryEffect.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"status":{"startedAttempts":7}}`)), client.DryRunAll)
		}},
		{"a foreign delete of an Effect", "ctrlrun-records-kept", "effects are never deleted", func(ctx context.Context) error {
			return probe.Delete(ctx, canaryEffect.DeepCopy(), client.DryRunAll)
		}},
		{"a foreign write to the status of an Action", "ctrlrun-status", "the status of actions", func(ctx context.Context) error {
			patch := client.RawPatch("application/merge-patch+json", []byte(`{"status":{"message":"probe"}}`))
			return probe.Status().Patch(ctx, canaryAction.DeepCopy(), patch, &client.SubResourcePatchOptions{PatchOptions: client.PatchOptions{DryRun: []string{metav1.DryRunAll}}})
		}},
	}
	for _, p := range probes {
		It("by "+p.name+" is answered by "+p.policy+" and by nothing else", func(ctx SpecContext) {
			refused := deniedBy(p.policy, p.message)
			Expect(p.send(ctx)).To(refused)
			binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: p.policy}}
			enforced := func() bool {
				matched, err := refused.Match(p.send(ctx))
				return matched && err == nil
			}
			withoutBinding(ctx, binding, enforced, func() {
				Eventually(func() error { return p.send(ctx) }).WithTimeout(10 * time.Second).Should(Succeed())
			})
		})
	}

	It("left nothing behind", func(ctx SpecContext) {
		now := canaryEffect.DeepCopy()
		Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(now), now)).To(Succeed())
		Expect(now.GetResourceVersion()).To(Equal(canaryEffect.GetResourceVersion()))
		now = canaryAction.DeepCopy()
		Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(now), now)).To(Succeed())
		Expect(now.GetResourceVersion()).To(Equal(canaryAction.GetResourceVersion()))
	})
})

var _ = Describe("Without MutatingAdmissionPolicies", Serial, func() {
	It("whoever speaks says who they are, and it is checked", func(ctx SpecContext) {
		s, k := theStage(), statementKinds[0]
		create := func(o *unstructured.Unstructured) error { return env.Client(s.agent).Create(ctx, o, client.DryRunAll) }
		binding := &admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "ctrlrun-stamp-actions"}}
		withoutBinding(ctx, binding, func() bool { return create(k.valid(s, s.agent)) == nil }, func() {
			Eventually(func() error { return create(k.valid(s, s.agent)) }).WithTimeout(10 * time.Second).
				Should(deniedBy(k.policy, `spec.principal.agent must be "`+s.agent.Name+`"`))
			Expect(create(set(k.valid(s, s.agent), s.agent.Name, "spec", "principal", "agent"))).To(Succeed())
			o := set(k.valid(s, s.agent), s.agent.Name, "spec", "principal", "agent")
			Expect(create(set(o, fields{}, "spec", "principal", "claims"))).To(deniedBy(k.policy, "spec.principal.claims must be exactly"))
		})
	})
})

var _ = Describe("What is installed", func() {
	It("is what config/admission says, field by field, and denies", func(ctx SpecContext) {
		objects, err := env.Render(ctx, "config/admission")
		Expect(err).NotTo(HaveOccurred())
		policies, bindings := map[string]bool{}, map[string]bool{}
		for _, o := range objects {
			live := &unstructured.Unstructured{}
			live.SetGroupVersionKind(o.GroupVersionKind())
			Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(o), live)).To(Succeed())
			// No field of a policy is left to a default, so that the operator can compare it with its release.
			Expect(live.Object["spec"]).To(Equal(o.Object["spec"]), o.GetName())
			switch o.GetKind() {
			case "ValidatingAdmissionPolicy", "MutatingAdmissionPolicy":
				policies[o.GetName()] = true
				Expect(get(o, "spec", "failurePolicy")).To(Equal("Fail"))
			case "ValidatingAdmissionPolicyBinding":
				Expect(get(o, "spec", "validationActions")).To(Equal([]any{"Deny"}))
				fallthrough
			case "MutatingAdmissionPolicyBinding":
				bindings[o.GetName()] = true
				Expect(get(o, "spec", "policyName")).To(Equal(o.GetName()))
			}
		}
		Expect(policies).NotTo(BeEmpty())
		Expect(bindings).To(Equal(policies))
	})

	It("has roles that no other role takes in", func(ctx SpecContext) {
		objects, err := env.Render(ctx, "config/rbac")
		Expect(err).NotTo(HaveOccurred())
		for _, o := range objects {
			for label := range o.GetLabels() {
				Expect(label).NotTo(HavePrefix("rbac.authorization.k8s.io/aggregate-to-"))
			}
			if strings.HasSuffix(o.GetKind(), "Binding") {
				Expect(get(o, "roleRef", "name")).NotTo(Equal("ctrlrun-operator-executors"), "whoever wants Executors binds it")
			}
			if o.GetKind() != "ClusterRole" || o.GetName() == "ctrlrun-operator" {
				continue
			}
			role := &rbacv1.ClusterRole{}
			Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(o), role)).To(Succeed())
			for _, r := range role.Rules {
				Expect(r.Verbs).NotTo(ContainElements("*", "operate", "impersonate"), o.GetName())
				Expect(r.Resources).NotTo(ContainElement("*"), o.GetName())
				if !slices.Equal(r.APIGroups, []string{"ctrlrun.dev"}) {
					if o.GetName() == "ctrlrun-operator-executors" {
						Expect(r).To(Equal(rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, Verbs: []string{"create"}}))
						continue
					}
					Expect(readsOnly(r, "events") || readsOnly(r, "namespaces")).To(BeTrue(), "%s: %v", o.GetName(), r)
				}
			}
		}
	})
})

var _ = Describe("A role", func() {
	may := func(ctx context.Context, u testenv.User, namespace, verb, resource, subresource, name string) bool {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: u.Name, Groups: u.Groups, ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: namespace, Verb: verb, Group: "ctrlrun.dev", Resource: resource, Subresource: subresource, Name: name,
			},
		}}
		Expect(env.Admin().Create(ctx, review)).To(Succeed())
		return review.Status.Allowed
	}
	viewer := func(ctx context.Context, s *stage) testenv.User {
		u := testenv.User{Name: unique("viewer")}
		Expect(env.Grant(ctx, s.namespace, "ctrlrun-viewer", u)).To(Succeed())
		return u
	}
	role := func(ctx context.Context, s *stage, name string) testenv.User {
		return map[string]testenv.User{"agent": s.agent, "approver": s.approver, "resolver": s.resolver, "revoker": s.revoker, "viewer": viewer(ctx, s), "policy-admin": s.policyAdmin, "operator": operator}[name]
	}

	DescribeTable("gives", func(ctx SpecContext, name, verb, resource string) {
		s := theStage()
		Expect(may(ctx, role(ctx, s, name), s.namespace, verb, resource, "", "")).To(BeTrue())
	},
		Entry("an agent to propose", "agent", "create", "actions"),
		Entry("an agent to claim", "agent", "create", "claims"),
		Entry("an agent to report", "agent", "create", "outcomes"),
		Entry("an agent to wait", "agent", "watch", "actions"),
		Entry("an agent to read its policy", "agent", "get", "actionpolicies"),
		Entry("an approver to approve", "approver", "approve", "actiontypes"),
		Entry("a resolver to resolve", "resolver", "resolve", "actiontypes"),
		Entry("a resolver to read the receipt", "resolver", "get", "receipts"),
		Entry("a policy admin to govern", "policy-admin", "govern", "settings"),
		Entry("an agent to hand on", "agent", "create", "delegations"),
		Entry("an agent to read what it was granted", "agent", "list", "grants"),
		Entry("an agent to read what was handed on", "agent", "list", "delegations"),
		Entry("an agent to read what was cut", "agent", "get", "revocations"),
		Entry("a revoker to say so", "revoker", "create", "revocations"),
		Entry("a revoker to revoke", "revoker", "revoke", "delegations"),
		Entry("a revoker to see what there is to revoke", "revoker", "watch", "delegations"),
		Entry("a revoker to see where it comes from", "revoker", "get", "grants"),
		Entry("a policy admin to grant", "policy-admin", "create", "grants"),
		Entry("a policy admin to change a grant", "policy-admin", "patch", "grants"),
		Entry("a policy admin to end a grant", "policy-admin", "delete", "grants"),
		Entry("a policy admin to read what was handed on", "policy-admin", "list", "delegations"),
		Entry("a policy admin to say that it is revoked", "policy-admin", "create", "revocations"),
		Entry("a policy admin to revoke", "policy-admin", "revoke", "delegations"),
		Entry("a policy admin to govern policies", "policy-admin", "govern", "actionpolicies"),
		Entry("a policy admin to govern grants", "policy-admin", "govern", "grants"),
		Entry("a policy admin to propose", "policy-admin", "create", "policyproposals"),
		Entry("an approver to read what is proposed", "approver", "get", "policyproposals"),
		Entry("a viewer to read proposals", "viewer", "list", "policyproposals"),
		Entry("the operator to watch proposals", "operator", "watch", "policyproposals"),
		Entry("a viewer to read grants", "viewer", "list", "grants"),
		Entry("a viewer to read delegations", "viewer", "list", "delegations"),
		Entry("a viewer to read revocations", "viewer", "list", "revocations"),
		Entry("the operator to watch grants", "operator", "watch", "grants"),
		Entry("the operator to watch revocations", "operator", "watch", "revocations"),
		Entry("the operator to remove a Delegation that is over", "operator", "delete", "delegations"),
		Entry("the operator to remove its Revocation", "operator", "delete", "revocations"),
		Entry("the operator to reserve", "operator", "create", "effects"),
	)

	It("gives the operator every status of authority", func(ctx SpecContext) {
		for _, resource := range []string{"grants", "delegations", "revocations", "policyproposals"} {
			Expect(may(ctx, operator, theStage().namespace, "update", resource, "status", "")).To(BeTrue(), resource)
		}
	})

	DescribeTable("does not give", func(ctx SpecContext, name, verb, resource, subresource string) {
		s := theStage()
		Expect(may(ctx, role(ctx, s, name), s.namespace, verb, resource, subresource, "")).To(BeFalse())
	},
		Entry("an agent to approve", "agent", "create", "approvals", ""),
		Entry("an agent to have the right to approve", "agent", "approve", "actiontypes", ""),
		Entry("an agent to change an Action", "agent", "update", "actions", ""),
		Entry("an agent to delete an Action", "agent", "delete", "actions", ""),
		Entry("an agent to write a status", "agent", "update", "actions", "status"),
		Entry("an agent to write an Effect", "agent", "create", "effects", ""),
		Entry("an agent to write its policy", "agent", "update", "actionpolicies", ""),
		Entry("an agent to read receipts", "agent", "get", "receipts", ""),
		Entry("an approver to propose", "approver", "create", "actions", ""),
		Entry("an approver to change an Approval", "approver", "patch", "approvals", ""),
		Entry("an approver to resolve", "approver", "resolve", "actiontypes", ""),
		Entry("a resolver to approve", "resolver", "approve", "actiontypes", ""),
		Entry("a policy admin to approve", "policy-admin", "create", "approvals", ""),
		Entry("an agent to change a Delegation", "agent", "update", "delegations", ""),
		Entry("an agent to delete a Delegation", "agent", "delete", "delegations", ""),
		Entry("an agent to write its grant", "agent", "create", "grants", ""),
		Entry("an agent to revoke", "agent", "revoke", "delegations", ""),
		Entry("an agent to create Revocations", "agent", "create", "revocations", ""),
		Entry("an agent to break glass", "agent", "breakglass", "grants", ""),
		Entry("an agent to represent anybody", "agent", "represent", "users", ""),
		Entry("a revoker to hand on", "revoker", "create", "delegations", ""),
		Entry("a revoker to take a Revocation back", "revoker", "delete", "revocations", ""),
		Entry("a revoker to break glass", "revoker", "breakglass", "grants", ""),
		Entry("a policy admin to break glass", "policy-admin", "breakglass", "grants", ""),
		Entry("a policy admin to hand on", "policy-admin", "create", "delegations", ""),
		Entry("a policy admin to delete a Delegation", "policy-admin", "delete", "delegations", ""),
		Entry("a policy admin to write the status of a grant", "policy-admin", "update", "grants", "status"),
		Entry("a viewer to revoke", "viewer", "create", "revocations", ""),
		Entry("the operator to write grants", "operator", "update", "grants", ""),
		Entry("the operator to delete grants", "operator", "delete", "grants", ""),
		Entry("the operator to hand on", "operator", "create", "delegations", ""),
		Entry("the operator to change a Delegation", "operator", "update", "delegations", ""),
		Entry("the operator to revoke", "operator", "create", "revocations", ""),
		Entry("the operator to break glass", "operator", "breakglass", "grants", ""),
		Entry("a policy admin to govern ledgers", "policy-admin", "govern", "ledgers", ""),
		Entry("the operator to delete an Effect", "operator", "delete", "effects", ""),
		Entry("the operator to delete a Receipt", "operator", "delete", "receipts", ""),
		Entry("the operator to change a Receipt", "operator", "update", "receipts", ""),
		Entry("the operator to change an Action", "operator", "update", "actions", ""),
		Entry("the operator to approve", "operator", "approve", "actiontypes", ""),
		Entry("the operator to create Approvals", "operator", "create", "approvals", ""),
		Entry("the operator to write policies", "operator", "update", "actionpolicies", ""),
		Entry("the operator to create policies", "operator", "create", "actionpolicies", ""),
		Entry("the operator to delete policies", "operator", "delete", "actionpolicies", ""),
		Entry("the operator to create Actions", "operator", "create", "actions", ""),
		Entry("the operator to change a proposal", "operator", "update", "policyproposals", ""),
		Entry("the operator to govern", "operator", "govern", "actionpolicies", ""),
		Entry("an agent to propose a policy", "agent", "create", "policyproposals", ""),
		Entry("an approver to propose a policy", "approver", "create", "policyproposals", ""),
		Entry("the operator to represent anybody", "operator", "represent", "users", ""),
	)

	It("gives the operator its verb in the whole cluster, and nobody else", func(ctx SpecContext) {
		s := theStage()
		Expect(may(ctx, operator, "", "operate", "ledgers", "", "")).To(BeTrue())
		for _, u := range []testenv.User{s.agent, s.approver, s.resolver, s.revoker, s.policyAdmin, s.wildcard, s.editor, s.governor} {
			Expect(may(ctx, u, "", "operate", "ledgers", "", "")).To(BeFalse(), u.Name)
		}
	})

	It("lets the operator be its probe, and nobody else", func(ctx SpecContext) {
		for _, name := range []string{"system:serviceaccount:kube-system:ctrlrun-probe", "system:serviceaccount:ctrlrun-system:ctrlrun-operator", "system:serviceaccount:ctrlrun-system:default", "alice"} {
			cfg := env.Config(operator)
			cfg.Impersonate = rest.ImpersonationConfig{UserName: name}
			c, err := client.New(cfg, client.Options{Scheme: env.Scheme, Mapper: env.Admin().RESTMapper()})
			Expect(err).NotTo(HaveOccurred())
			err = c.Delete(ctx, effect(testenv.SystemNamespace, nil), client.DryRunAll)
			Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%s: %v", name, err)
			Expect(err).To(MatchError(ContainSubstring("impersonate")))
		}
	})
})

var _ = Describe("A statement that slipped in while admission was away", Serial, func() {
	It("does not change either, in keys that no schema declares", func(ctx SpecContext) {
		s, k := theStage(), statementKinds[0]
		o := set(k.valid(s, s.agent), "x", "spec", "undeclared")
		back := func() bool {
			err := env.Client(s.agent).Create(ctx, set(k.valid(s, s.agent), "x", "spec", "undeclared"), client.DryRunAll)
			return denial(err, []string{k.policy}) != ""
		}
		binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: k.policy}}
		withoutBinding(ctx, binding, back, func() {
			Eventually(func() error { return env.Client(s.agent).Create(ctx, o) }).WithTimeout(10 * time.Second).Should(Succeed())
		})
		// The rule of the CRD does not see another name; even an administrator is stopped by the policy.
		unchanged := deniedBy("ctrlrun-statements-unchanged", "a statement never changes")
		Expect(jsonPatch(ctx, env.Admin(), o, `[{"op":"move","from":"/spec/undeclared","path":"/spec/renamed"}]`)).To(unchanged)
		Expect(jsonPatch(ctx, env.Admin(), o, `[{"op":"remove","path":"/spec/undeclared"},{"op":"add","path":"/spec/renamed","value":"y"}]`)).To(unchanged)
	})
})

var _ = Describe("While the policies are away", Serial, func() {
	It("the schema still keeps statements from changing", func(ctx SpecContext) {
		s := theStage()
		labelled := func(k statementKind) error {
			return mergePatch(ctx, env.Client(k.meddler(s)), k.make(ctx, s), `{"metadata":{"labels":{"a":"b"}}}`)
		}
		binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "ctrlrun-statements-unchanged"}}
		withoutBinding(ctx, binding, func() bool { return labelled(statementKinds[0]) != nil }, func() {
			Eventually(func() error { return labelled(statementKinds[0]) }).WithTimeout(10 * time.Second).Should(Succeed())
			for _, k := range statementKinds {
				for f, v := range k.change {
					o := set(k.make(ctx, s), v, "spec", f)
					Expect(env.Client(k.meddler(s)).Update(ctx, o)).To(refusedBySchema("never changes"), k.kind)
				}
			}
		})
	})
})

var _ = Describe("Configuration that was stored before it was refused", Serial, func() {
	DescribeTable("can still be labelled, but not changed to anything that is refused", func(ctx SpecContext, policy, kind, name string, bad, worse, good fields) {
		s := theStage()
		c := env.Client(s.editor)
		ns := env.Namespace(GinkgoT(), nil)
		o := object(kind, ns, name, bad)
		binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: policy}}
		// Once it is stored, a create of the same name answers "already exists": another name shows that the policy is back.
		another := object(kind, env.Namespace(GinkgoT(), nil), name, bad)
		back := func() bool {
			return denial(c.Create(ctx, another.DeepCopy(), client.DryRunAll), []string{policy}) != ""
		}
		Expect(back()).To(BeTrue())
		withoutBinding(ctx, binding, back, func() {
			Eventually(func() error { return c.Create(ctx, o) }).WithTimeout(10 * time.Second).Should(Succeed())
		})

		Expect(mergePatch(ctx, c, o, `{"metadata":{"labels":{"a":"b"}}}`)).To(Succeed())
		Expect(c.Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
		o.Object["spec"] = worse
		Expect(c.Update(ctx, o.DeepCopy())).To(deniedBy(policy))
		o.Object["spec"] = good
		Expect(c.Update(ctx, o)).To(Succeed())
	},
		Entry("ActionPolicy", "ctrlrun-actionpolicies", "ActionPolicy", "p",
			fields{"actions": fields{}, "x": "y"}, fields{"actions": fields{}, "x": "z"}, fields{"actions": fields{}}),
		Entry("Grant", "ctrlrun-grants", "Grant", "g",
			terms(fields{"x": "y"}), terms(fields{"x": "z"}), terms(nil)),
		Entry("PolicyProposal", "ctrlrun-policyproposals", "PolicyProposal", "pp",
			proposed(fields{"x": "y"}), proposed(fields{"x": "z"}), proposed(nil)),
		Entry("Settings", "ctrlrun-settings", "Settings", "default",
			fields{"x": "y"}, fields{"x": "z"}, fields{"maxLeaseSeconds": int64(600)}),
	)
})

// proposed is the spec of a PolicyProposal, with more keys.
func proposed(more fields) fields {
	spec := fields{"targetRef": fields{"kind": "ActionPolicy", "name": "p"}, "content": fields{"actions": fields{}}}
	maps.Copy(spec, more)
	return spec
}

// readsOnly says whether a rule gives nothing but reading this one resource.
func readsOnly(r rbacv1.PolicyRule, resource string) bool {
	return slices.Equal(r.Resources, []string{resource}) &&
		!slices.ContainsFunc(r.Verbs, func(verb string) bool { return !slices.Contains([]string{"get", "list", "watch"}, verb) })
}
