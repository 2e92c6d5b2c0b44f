package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/test/testenv"
)

// policy is an ActionPolicy with one entry, of action x.y.
func policy(namespace string, entry any) *unstructured.Unstructured {
	return object("ActionPolicy", namespace, unique("policy"), fields{"actions": fields{"x.y": entry}})
}

func rule(when any) fields {
	return fields{"rules": []any{fields{"when": when, "decision": "allow"}}}
}

var _ = Describe("An ActionPolicy", func() {
	var s *stage
	BeforeEach(func() { s = theStage() })

	DescribeTable("is refused", func(ctx SpecContext, entry any, refused types.GomegaMatcher) {
		Expect(env.Client(s.policyAdmin).Create(ctx, policy(s.namespace, entry))).To(refused)
	},
		// A blank key would be dropped unseen, and so would a blank entry.
		Entry("with a blank entry", nil, deniedBy("ctrlrun-actionpolicies", `without a value: actions["x.y"]`)),
		Entry("with a blank when", rule(nil), deniedBy("ctrlrun-actionpolicies", `without a value: actions["x.y"].rules: when`)),
		Entry("with a blank effect", fields{"decision": "allow", "effect": nil}, deniedBy("ctrlrun-actionpolicies", `without a value: actions["x.y"].effect`)),
		Entry("with a blank resource", fields{"decision": "allow", "resource": nil}, deniedBy("ctrlrun-actionpolicies", `without a value: actions["x.y"].resource`)),
		Entry("with blank rules", fields{"rules": nil}, refusedBySchema("either decision or rules")),
		Entry("with blank rules beside a decision", fields{"decision": "allow", "rules": nil}, deniedBy("ctrlrun-actionpolicies", `without a value: actions["x.y"].rules`)),
		Entry("with a blank decision", fields{"decision": nil}, refusedBySchema("Unsupported value: null")),
		Entry("with a blank mcp", fields{"decision": "allow", "mcp": nil}, deniedBy("ctrlrun-actionpolicies", `without a value: actions["x.y"].mcp`)),
		Entry("with a blank option of mcp", fields{"decision": "allow", "mcp": fields{"not_executed_on_error": nil}}, deniedBy("ctrlrun-actionpolicies", `without a value: actions["x.y"].mcp.not_executed_on_error`)),
		Entry("with a blank approvalsRequired", fields{"decision": "approve", "approvalsRequired": nil}, deniedBy("ctrlrun-actionpolicies", `without a value: actions["x.y"].approvalsRequired`)),
		Entry("with a blank approvalTTLSeconds", fields{"decision": "approve", "approvalTTLSeconds": nil}, deniedBy("ctrlrun-actionpolicies", `without a value: actions["x.y"].approvalTTLSeconds`)),
		Entry("with a blank maxAttempts", fields{"decision": "approve", "maxAttempts": nil}, deniedBy("ctrlrun-actionpolicies", `without a value: actions["x.y"].maxAttempts`)),
		// A misspelt key would be ignored.
		Entry("with a misspelt effect", fields{"decision": "allow", "efect": "a:{b}"}, deniedBy("ctrlrun-actionpolicies", `unknown: actions["x.y"].efect`)),
		Entry("with a key in snake case", fields{"decision": "approve", "approvals_required": int64(2)}, deniedBy("ctrlrun-actionpolicies", `unknown: actions["x.y"].approvals_required`)),
		Entry("with a misspelt when", fields{"rules": []any{fields{"wenn": fields{"a_eq": "x"}, "decision": "allow"}}}, deniedBy("ctrlrun-actionpolicies", `unknown: actions["x.y"].rules: wenn`)),
		Entry("with an unknown option of mcp", fields{"decision": "allow", "mcp": fields{"retry": true}}, deniedBy("ctrlrun-actionpolicies", `unknown: actions["x.y"].mcp.retry`)),
		// Conditions.
		Entry("with an empty when", rule(fields{}), deniedBy("ctrlrun-actionpolicies", "empty when in the rules of x.y")),
		Entry("with a condition without operator", rule(fields{"amount": int64(1)}), deniedBy("ctrlrun-actionpolicies", `no operator in actions["x.y"].rules.when: amount`)),
		Entry("with an unknown operator", rule(fields{"amount_like": "x"}), deniedBy("ctrlrun-actionpolicies", "no operator in ")),
		Entry("with a condition on no argument", rule(fields{"_eq": int64(1)}), deniedBy("ctrlrun-actionpolicies", "no operator in ")),
		Entry("with a text to compare with", rule(fields{"amount_lte": "100"}), deniedBy("ctrlrun-actionpolicies", "wrong operand in ", "amount_lte")),
		Entry("with a bool to compare with", rule(fields{"amount_lte": true}), deniedBy("ctrlrun-actionpolicies", "wrong operand in ")),
		Entry("with null to compare with", rule(fields{"amount_gt": nil}), deniedBy("ctrlrun-actionpolicies", "wrong operand in ")),
		Entry("with a fraction to compare with", rule(fields{"amount_lte": 1.5}), deniedBy("ctrlrun-actionpolicies", "wrong operand in ")),
		Entry("with a fraction to be equal to", rule(fields{"amount_eq": 1.5}), deniedBy("ctrlrun-actionpolicies", "wrong operand in ")),
		Entry("with a fraction in a list", rule(fields{"amount_in": []any{int64(1), 1.5}}), deniedBy("ctrlrun-actionpolicies", "wrong operand in ")),
		Entry("with a list that is none", rule(fields{"amount_in": int64(1)}), deniedBy("ctrlrun-actionpolicies", "wrong operand in ")),
		Entry("with the agent in a condition", rule(fields{"agent_eq": "bot"}), deniedBy("ctrlrun-actionpolicies", "reserved name in ", "agent_eq")),
		Entry("with the user in a condition", rule(fields{"user_neq": "bob"}), deniedBy("ctrlrun-actionpolicies", "reserved name in ", "user_neq")),
		Entry("with an expiry in a condition", rule(fields{"expires_at_lt": int64(5)}), deniedBy("ctrlrun-actionpolicies", "reserved name in ", "expires_at_lt")),
		// What the schema can say.
		Entry("with a decision of its own", fields{"decision": "maybe"}, refusedBySchema("Unsupported value")),
		Entry("with a decision and rules", fields{"decision": "allow", "rules": []any{fields{"decision": "deny"}}}, refusedBySchema("either decision or rules")),
		Entry("with neither", fields{"effect": "a:{b}"}, refusedBySchema("either decision or rules")),
		Entry("with no rules", fields{"rules": []any{}}, refusedBySchema("should have at least 1 items")),
		Entry("with a rule without decision", fields{"rules": []any{fields{"when": fields{"a_eq": "x"}}}}, refusedBySchema("Required value")),
		Entry("with a brace too many", fields{"decision": "allow", "effect": "a:{b}}"}, refusedBySchema("should match")),
		Entry("with a placeholder that is a path", fields{"decision": "allow", "effect": "a:{b.c}"}, refusedBySchema("should match")),
		Entry("with an empty template", fields{"decision": "allow", "effect": ""}, refusedBySchema("should be at least 1 chars long")),
		Entry("with a blank resolutionsRequired", fields{"decision": "allow", "resolutionsRequired": nil}, deniedBy("ctrlrun-actionpolicies", `without a value: actions["x.y"].resolutionsRequired`)),
		Entry("with a misspelt resolutionsRequired", fields{"decision": "allow", "resolutionRequired": int64(2)}, deniedBy("ctrlrun-actionpolicies", `unknown: actions["x.y"].resolutionRequired;`)),
		Entry("with nobody to resolve", fields{"decision": "allow", "resolutionsRequired": int64(0)}, refusedBySchema("greater than or equal to 1")),
		Entry("with more to resolve than there may be", fields{"decision": "allow", "resolutionsRequired": int64(11)}, refusedBySchema("less than or equal to 10")),
		Entry("with a text for a number of people", fields{"decision": "allow", "resolutionsRequired": "2"}, refusedBySchema("must be of type integer")),
		Entry("with nobody to approve", fields{"decision": "approve", "approvalsRequired": int64(0)}, refusedBySchema("greater than or equal to 1")),
	)

	It("is refused with blank or unknown keys of its own", func(ctx SpecContext) {
		c := env.Client(s.policyAdmin)
		o := policy(s.namespace, fields{"decision": "allow"})
		Expect(c.Create(ctx, set(o.DeepCopy(), nil, "spec", "version"))).To(deniedBy("ctrlrun-actionpolicies", "without a value: spec.version"))
		Expect(c.Create(ctx, set(o.DeepCopy(), "v1", "spec", "schema"))).To(deniedBy("ctrlrun-actionpolicies", "unknown: spec.schema"))
		unnamed := set(o.DeepCopy(), fields{"": fields{"decision": "allow"}}, "spec", "actions")
		Expect(c.Create(ctx, unnamed)).To(deniedBy("ctrlrun-actionpolicies", "1 to 253 characters"))
		long := set(o.DeepCopy(), fields{strings.Repeat("a", 254): fields{"decision": "allow"}}, "spec", "actions")
		Expect(c.Create(ctx, long)).To(deniedBy("ctrlrun-actionpolicies", "1 to 253 characters"))
	})

	DescribeTable("is accepted", func(ctx SpecContext, entry any) {
		Expect(env.Client(s.policyAdmin).Create(ctx, policy(s.namespace, entry))).To(Succeed())
	},
		Entry("with everything there is", fields{
			"effect": "a:{b}:{resource}", "resource": "r:{c}", "mcp": fields{"not_executed_on_error": true},
			"approvalTTLSeconds": int64(60), "approvalsRequired": int64(2), "maxAttempts": int64(3), "resolutionsRequired": int64(10),
			"rules": []any{fields{"when": fields{"a_gte": int64(1), "a_lt": int64(5), "b_in": []any{"x", int64(1), nil}}, "decision": "approve"}, fields{"decision": "deny"}},
		}),
		Entry("with values of every type", rule(fields{
			"a_eq": nil, "b_eq": true, "c_neq": "x", "d_eq": []any{int64(1)}, "e_eq": fields{"f": "g"}, "h_in": []any{}, "i_gt": int64(-1),
		})),
		Entry("with names that only look reserved", rule(fields{"agents_eq": "x", "agent_id_eq": "x", "my_agent_eq": "x", "a.b_eq": "x"})),
		Entry("with an argument named like an operator", rule(fields{"eq_eq": "x", "a_neq_eq": "x"})),
	)

	It("that denies everything is accepted", func(ctx SpecContext) {
		Expect(env.Client(s.policyAdmin).Create(ctx, object("ActionPolicy", s.namespace, unique("policy"), fields{"actions": fields{}}))).To(Succeed())
	})

	It("is judged when it is edited as when it is made, by every way of editing", func(ctx SpecContext) {
		c := env.Client(s.policyAdmin)
		o := policy(s.namespace, fields{"decision": "deny"})
		Expect(c.Create(ctx, o)).To(Succeed())
		refused := deniedBy("ctrlrun-actionpolicies", `unknown: actions["x.y"].efect`)
		Expect(c.Update(ctx, set(o.DeepCopy(), "a", "spec", "actions", "x.y", "efect"))).To(refused)
		Expect(mergePatch(ctx, c, o, `{"spec":{"actions":{"x.y":{"efect":"a"}}}}`)).To(refused)
		applied := set(identityOnly(o), fields{"x.y": fields{"decision": "deny", "efect": "a"}}, "spec", "actions")
		Expect(apply(ctx, c, "gitops", applied)).To(refused)
		blank := set(identityOnly(o), fields{"x.y": fields{"decision": "deny", "effect": nil}}, "spec", "actions")
		Expect(apply(ctx, c, "gitops", blank)).To(deniedBy("ctrlrun-actionpolicies", `without a value: actions["x.y"].effect`))
		Expect(apply(ctx, c, "gitops", set(blank, fields{"x.y": fields{"decision": "allow"}}, "spec", "actions"))).To(Succeed())
	})

	It("belongs to GitOps: its labels, owners and finalizers are free", func(ctx SpecContext) {
		o := policy(s.namespace, fields{"decision": "deny"})
		o.SetFinalizers([]string{"example.com/gitops"})
		o.SetLabels(map[string]string{"a": "b"})
		c := env.Client(s.policyAdmin)
		Expect(c.Create(ctx, o)).To(Succeed())
		Expect(c.Delete(ctx, o)).To(Succeed())
		Expect(mergePatch(ctx, c, o, `{"metadata":{"finalizers":null}}`)).To(Succeed())
	})

	It("of the largest size that the schema allows is judged within its cost", func(ctx SpecContext) {
		actions := fields{}
		for a := range 64 {
			var rules []any
			for range 16 {
				when := fields{}
				for c := range 16 {
					when[fmt.Sprintf("argument_%d_lte", c)] = int64(c)
				}
				rules = append(rules, fields{"when": when, "decision": "approve"})
			}
			actions[fmt.Sprintf("provider.action-%d", a)] = fields{"rules": rules, "effect": "a:{b}"}
		}
		o := object("ActionPolicy", s.namespace, unique("policy"), fields{"actions": actions})
		Expect(env.Client(s.policyAdmin).Create(ctx, o)).To(Succeed())
		set(o, int64(1), "spec", "actions", "provider.action-63", "misspelt")
		Expect(env.Client(s.policyAdmin).Update(ctx, o)).To(deniedBy("ctrlrun-actionpolicies", `unknown: actions["provider.action-63"].misspelt`))
	})
})

var _ = Describe("Settings", func() {
	var s *stage
	BeforeEach(func() { s = theStage() })

	settings := func(spec fields) *unstructured.Unstructured {
		return object("Settings", env.Namespace(GinkgoT(), nil), "default", spec)
	}

	DescribeTable("are refused", func(ctx SpecContext, spec fields, refused types.GomegaMatcher) {
		Expect(env.Client(s.editor).Create(ctx, settings(spec))).To(refused)
	},
		Entry("with a misspelt key", fields{"mod": "Enforce"}, deniedBy("ctrlrun-settings", "unknown: spec.mod")),
		Entry("with a blank mode", fields{"mode": nil}, refusedBySchema("Unsupported value: null")),
		Entry("with a blank authority", fields{"authority": nil}, refusedBySchema("Unsupported value: null")),
		Entry("with a blank duration", fields{"maxLeaseSeconds": nil}, deniedBy("ctrlrun-settings", "without a value: spec.maxLeaseSeconds")),
		Entry("with a mode of its own", fields{"mode": "Advise"}, refusedBySchema("Unsupported value")),
		Entry("with an authority of its own", fields{"authority": "Optional"}, refusedBySchema("Unsupported value")),
		Entry("with a blank depth", fields{"maxDelegationDepth": nil}, deniedBy("ctrlrun-settings", "without a value: spec.maxDelegationDepth")),
		Entry("with a negative depth", fields{"maxDelegationDepth": int64(-1)}, refusedBySchema("greater than or equal to 0")),
		Entry("with a depth without bound", fields{"maxDelegationDepth": int64(17)}, refusedBySchema("less than or equal to 16")),
		Entry("with a lease that is no lease", fields{"maxLeaseSeconds": int64(1)}, refusedBySchema("greater than or equal to 30")),
	)

	It("have one name", func(ctx SpecContext) {
		o := settings(fields{})
		o.SetName("other")
		Expect(env.Client(s.editor).Create(ctx, o)).To(refusedBySchema("named default"))
	})

	It("are complete once they are stored", func(ctx SpecContext) {
		o := settings(nil)
		Expect(env.Client(s.editor).Create(ctx, o)).To(Succeed())
		Expect(get(o, "spec")).To(Equal(fields{
			"mode": "Enforce", "authority": "NotRequired", "policyChanges": "Free",
			"approvalTTLSeconds": int64(900), "maxLeaseSeconds": int64(86400), "finishedTTLSeconds": int64(86400),
			"maxDelegationDepth": int64(3),
		}))
	})
})

// Whether or not the schema knows the mode Observe: for these tests it does.
var _ = Describe("Weakening Settings", Serial, Ordered, func() {
	var s *stage
	BeforeAll(func(ctx SpecContext) {
		s = theStage()
		crd := &unstructured.Unstructured{Object: fields{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}}
		crd.SetName("settings.ctrlrun.dev")
		setModes := func(ctx SpecContext, modes []any) {
			value, err := json.Marshal(modes)
			Expect(err).NotTo(HaveOccurred())
			const path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/mode/enum"
			Expect(jsonPatch(ctx, env.Admin(), crd, fmt.Sprintf(`[{"op":"replace","path":"%s","value":%s}]`, path, value))).To(Succeed())
		}
		Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(crd), crd)).To(Succeed())
		version := get(crd, "spec", "versions").([]any)[0].(fields)
		shipped, _, err := unstructured.NestedSlice(version, "schema", "openAPIV3Schema", "properties", "spec", "properties", "mode", "enum")
		Expect(err).NotTo(HaveOccurred())
		setModes(ctx, []any{"Enforce", "Observe"})
		DeferCleanup(func(ctx SpecContext) { setModes(ctx, shipped) })
		weak := object("Settings", s.namespace, "default", fields{"mode": "Observe", "authority": "Required"})
		Eventually(func() error { return env.Admin().Create(ctx, weak.DeepCopy(), client.DryRunAll) }).WithTimeout(10 * time.Second).Should(Succeed())
	})

	weakened := deniedBy("ctrlrun-settings-govern", `you need the verb "govern" on settings.ctrlrun.dev`)

	It("needs the verb govern, by an edit, by creating and by deleting", func(ctx SpecContext) {
		editor := env.Client(s.editor)
		ns := env.Namespace(GinkgoT(), nil)
		Expect(editor.Create(ctx, object("Settings", ns, "default", fields{"mode": "Observe"}))).To(weakened)
		strict := object("Settings", ns, "default", fields{"mode": "Enforce", "authority": "Required"})
		Expect(editor.Create(ctx, strict)).To(Succeed())

		Expect(editor.Update(ctx, set(strict.DeepCopy(), "Observe", "spec", "mode"))).To(weakened)
		Expect(mergePatch(ctx, editor, strict, `{"spec":{"authority":"NotRequired"}}`)).To(weakened)
		Expect(mergePatch(ctx, editor, strict, `{"spec":{"authority":null}}`)).To(weakened)
		Expect(jsonPatch(ctx, editor, strict, `[{"op":"remove","path":"/spec"}]`)).To(weakened)
		Expect(apply(ctx, editor, "gitops", set(identityOnly(strict), fields{"mode": "Observe"}, "spec"))).To(weakened)
		Expect(editor.Delete(ctx, strict)).To(weakened)
		Expect(editor.DeleteAllOf(ctx, identityOnly(strict), client.InNamespace(ns))).To(weakened)
		// What weakens nothing is free.
		Expect(mergePatch(ctx, editor, strict, `{"spec":{"approvalTTLSeconds":600}}`)).To(Succeed())

		governor := testenv.User{Name: unique("governor")}
		Expect(env.Grant(ctx, ns, "ctrlrun-policy-admin", governor)).To(Succeed())
		Expect(mergePatch(ctx, env.Client(governor), strict, `{"spec":{"mode":"Observe","authority":"NotRequired"}}`)).To(Succeed())
		// And to strengthen them again is.
		Expect(mergePatch(ctx, editor, strict, `{"spec":{"mode":"Enforce","authority":"Required"}}`)).To(Succeed())
		Expect(env.Client(governor).Delete(ctx, strict)).To(Succeed())
	})

	It("is to let grants be handed on further, where they are required", func(ctx SpecContext) {
		editor := env.Client(s.editor)
		ns := env.Namespace(GinkgoT(), nil)
		o := object("Settings", ns, "default", fields{"maxDelegationDepth": int64(16)})
		Expect(editor.Create(ctx, o)).To(Succeed())
		Expect(mergePatch(ctx, editor, o, `{"spec":{"maxDelegationDepth":2}}`)).To(Succeed())
		Expect(mergePatch(ctx, editor, o, `{"spec":{"maxDelegationDepth":5}}`)).To(Succeed())
		// What is strengthened at the same time was free before.
		Expect(mergePatch(ctx, editor, o, `{"spec":{"authority":"Required","maxDelegationDepth":4}}`)).To(Succeed())

		deeper := deniedBy("ctrlrun-settings-govern", "maxDelegationDepth raised while authority is Required", `you need the verb "govern"`)
		Expect(mergePatch(ctx, editor, o, `{"spec":{"maxDelegationDepth":5}}`)).To(deeper)
		Expect(mergePatch(ctx, editor, o, `{"spec":{"maxDelegationDepth":1}}`)).To(Succeed())
		Expect(mergePatch(ctx, editor, o, `{"spec":{"maxDelegationDepth":2}}`)).To(deeper)
		// Left out, it is 3.
		Expect(mergePatch(ctx, editor, o, `{"spec":{"maxDelegationDepth":null}}`)).To(deeper)
		Expect(apply(ctx, editor, "gitops", set(identityOnly(o), fields{"authority": "Required", "maxDelegationDepth": int64(3)}, "spec"))).To(deeper)

		governor := testenv.User{Name: unique("governor")}
		Expect(env.Grant(ctx, ns, "ctrlrun-policy-admin", governor)).To(Succeed())
		Expect(mergePatch(ctx, env.Client(governor), o, `{"spec":{"maxDelegationDepth":null}}`)).To(Succeed())
		Expect(mergePatch(ctx, editor, o, `{"spec":{"maxDelegationDepth":4}}`)).To(deeper)
	})

	It("is not possible by the same verb in another namespace or on another kind", func(ctx SpecContext) {
		u := testenv.User{Name: unique("governor")}
		ns := env.Namespace(GinkgoT(), nil)
		Expect(env.Grant(ctx, env.Namespace(GinkgoT(), nil), "ctrlrun-policy-admin", u)).To(Succeed())
		Expect(env.Allow(ctx, ns, u,
			rbacv1.PolicyRule{APIGroups: []string{"ctrlrun.dev"}, Resources: []string{"settings"}, Verbs: []string{"create"}},
			rbacv1.PolicyRule{APIGroups: []string{"ctrlrun.dev"}, Resources: []string{"ledgers"}, Verbs: []string{"govern"}},
		)).To(Succeed())
		Expect(env.Client(u).Create(ctx, object("Settings", ns, "default", fields{"mode": "Observe"}))).To(weakened)
	})
})
