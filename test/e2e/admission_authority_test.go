package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/test/testenv"
)

// someday is not over yet.
const someday = "2126-01-02T03:04:05Z"

// changed copies fields and changes some; a nil value stays in it as null.
func changed(base, changes fields) fields {
	o := fields{}
	for _, m := range []fields{base, changes} {
		for k, v := range m {
			o[k] = v
		}
	}
	return o
}

// terms are the least that a Grant has.
func terms(changes fields) fields {
	return changed(fields{"subject": fields{"agent": "bot"}, "actions": []any{"stripe.refund"}}, changes)
}

// badTerms are refused of a Grant and of a Delegation; what the schema refuses too, it refuses first.
var badTerms = []struct {
	name    string
	changes fields
	refused types.GomegaMatcher
}{
	// A blank key would be dropped unseen, and what is left out is unlimited.
	{"blank resources", fields{"resources": nil}, deniedBy("ctrlrun-grants", "without a value: spec.resources")},
	{"blank constraints", fields{"constraints": nil}, deniedBy("ctrlrun-grants", "without a value: spec.constraints")},
	{"blank environments", fields{"environments": nil}, deniedBy("ctrlrun-grants", "without a value: spec.environments")},
	{"a blank expirationTime", fields{"expirationTime": nil}, deniedBy("ctrlrun-grants", "without a value: spec.expirationTime")},
	{"a blank delegable", fields{"delegable": nil}, deniedBy("ctrlrun-grants", "without a value: spec.delegable")},
	{"a blank user", fields{"subject": fields{"agent": "bot", "user": nil}}, deniedBy("ctrlrun-grants", "without a value: spec.subject.user")},
	{"a blank agent and no user", fields{"subject": fields{"agent": nil}}, refusedBySchema("would be everybody")},
	// Nor would a misspelt one be noticed.
	{"an unknown key of the subject", fields{"subject": fields{"agent": "bot", "group": "people"}}, deniedBy("ctrlrun-grants", "unknown: spec.subject.group")},
	// Patterns.
	{"a question mark in an action", fields{"actions": []any{"stripe.*", "stripe.refun?"}}, deniedBy("ctrlrun-grants", `no pattern of action types: "stripe.refun?";`)},
	{"a character class in an action", fields{"actions": []any{"stripe.[a-z]"}}, deniedBy("ctrlrun-grants", "no pattern of action types")},
	{"a leading star in an action", fields{"actions": []any{"stripe.*fund"}}, deniedBy("ctrlrun-grants", "no pattern of action types")},
	{"a star within an action", fields{"actions": []any{"stripe.re*fund"}}, deniedBy("ctrlrun-grants", "no pattern of action types")},
	{"two stars behind a word in an action", fields{"actions": []any{"stripe.a**"}}, deniedBy("ctrlrun-grants", "no pattern of action types")},
	{"two stars before the end of an action", fields{"actions": []any{"stripe.**.refund"}}, deniedBy("ctrlrun-grants", "no pattern of action types")},
	{"a wildcard before two stars in an action", fields{"actions": []any{"str*.**"}}, deniedBy("ctrlrun-grants", "no pattern of action types")},
	{"three stars in an action", fields{"actions": []any{"***"}}, deniedBy("ctrlrun-grants", "no pattern of action types")},
	{"an empty segment in an action", fields{"actions": []any{"stripe..refund"}}, deniedBy("ctrlrun-grants", "no pattern of action types")},
	{"a dot at the end of an action", fields{"actions": []any{"stripe."}}, deniedBy("ctrlrun-grants", "no pattern of action types")},
	{"a question mark in a resource", fields{"resources": []any{"payment:EU-?"}}, deniedBy("ctrlrun-grants", `no pattern of resources: "payment:EU-?";`)},
	{"a star within a resource", fields{"resources": []any{"payment:*-EU"}}, deniedBy("ctrlrun-grants", "no pattern of resources")},
	{"two stars before the end of a resource", fields{"resources": []any{"**:EU"}}, deniedBy("ctrlrun-grants", "no pattern of resources")},
	{"a wildcard before two stars in a resource", fields{"resources": []any{"*:**"}}, deniedBy("ctrlrun-grants", "no pattern of resources")},
	{"an empty segment in a resource", fields{"resources": []any{"payment:"}}, deniedBy("ctrlrun-grants", "no pattern of resources")},
	{"a question mark in a user name", fields{"subject": fields{"agent": "bot", "user": "alic?"}}, deniedBy("ctrlrun-grants", "no pattern of user names: spec.subject.user")},
	{"an environment that is a pattern", fields{"environments": []any{"production", "staging-*"}}, deniedBy("ctrlrun-grants", `no environment can be named "staging-*"`)},
	// Constraints.
	{"empty constraints", fields{"constraints": fields{}}, deniedBy("ctrlrun-grants", "spec.constraints is empty")},
	{"a constraint without operator", fields{"constraints": fields{"amount": int64(1)}}, deniedBy("ctrlrun-grants", "no operator in spec.constraints: amount")},
	{"a constraint with an unknown operator", fields{"constraints": fields{"amount_like": "x"}}, deniedBy("ctrlrun-grants", "no operator in ")},
	{"a constraint on no argument", fields{"constraints": fields{"_eq": int64(1)}}, deniedBy("ctrlrun-grants", "no operator in ")},
	{"a text to compare with", fields{"constraints": fields{"amount_lte": "100"}}, deniedBy("ctrlrun-grants", "wrong operand in spec.constraints: amount_lte")},
	{"a bool to compare with", fields{"constraints": fields{"amount_lt": true}}, deniedBy("ctrlrun-grants", "wrong operand in ")},
	{"null to compare with", fields{"constraints": fields{"amount_gt": nil}}, deniedBy("ctrlrun-grants", "wrong operand in ")},
	{"a fraction to compare with", fields{"constraints": fields{"amount_gte": 1.5}}, deniedBy("ctrlrun-grants", "wrong operand in ")},
	{"a fraction to be equal to", fields{"constraints": fields{"amount_eq": 1.5}}, deniedBy("ctrlrun-grants", "wrong operand in ")},
	{"a fraction in a list", fields{"constraints": fields{"amount_in": []any{int64(1), 1.5}}}, deniedBy("ctrlrun-grants", "wrong operand in ")},
	{"a list that is none", fields{"constraints": fields{"amount_in": "EUR"}}, deniedBy("ctrlrun-grants", "wrong operand in ")},
	{"the agent in a constraint", fields{"constraints": fields{"agent_eq": "bot"}}, deniedBy("ctrlrun-grants", "reserved name in spec.constraints: agent_eq")},
	{"the resource in a constraint", fields{"constraints": fields{"resource_eq": "a:b"}}, deniedBy("ctrlrun-grants", "reserved name in ")},
	{"constraints that are no object", fields{"constraints": []any{"amount_lte"}}, refusedBySchema("must be of type object")},
	// What the schema can say.
	{"an empty subject", fields{"subject": fields{}}, refusedBySchema("would be everybody")},
	{"an empty agent", fields{"subject": fields{"agent": ""}}, refusedBySchema("at least 1 chars long")},
	{"no actions", fields{"actions": []any{}}, refusedBySchema("at least 1 items")},
	{"an empty action", fields{"actions": []any{""}}, refusedBySchema("at least 1 chars long")},
	{"no resources", fields{"resources": []any{}}, refusedBySchema("at least 1 items")},
	{"no environments", fields{"environments": []any{}}, refusedBySchema("at least 1 items")},
	{"a time that is none", fields{"expirationTime": "tomorrow"}, refusedBySchema("must be of type date-time")},
	{"delegable without end", fields{"delegable": true}, refusedBySchema("needs expirationTime")},
}

// goodTerms are accepted of a Grant and of a Delegation.
var goodTerms = map[string]fields{
	"with everything there is": {
		"subject": fields{"agent": "system:serviceaccount:payments:bot", "user": "alice@example.com"},
		"actions": []any{"stripe.refund", "stripe.*", "stripe.re*", "aws.**", "*", "**", "*.refund", "a*.b*.c"}, "resources": []any{"payment:EU-*", "payment:*", "a:b:c", "payment:**", "**", "a.b:c.d"},
		"constraints": fields{"amount_lte": int64(500), "currency_in": []any{"EUR", int64(1), nil}}, "environments": []any{"production", "eu-1.b_c"},
		"expirationTime": someday, "delegable": true,
	},
	"with constraints of every type": {
		"constraints": fields{"a_eq": nil, "b_eq": true, "c_neq": "x", "d_eq": []any{int64(1)}, "e_eq": fields{"f": "g"}, "h_in": []any{}, "i_gt": int64(-1)},
	},
	"with names that only look reserved": {"constraints": fields{"agents_eq": "x", "my_agent_eq": "x", "eq_eq": "x", "a.b_eq": "x"}},
	"that says it is not delegable":      {"delegable": false},
}

var _ = Describe("A Grant", func() {
	var s *stage
	BeforeEach(func() { s = theStage() })

	grant := func(spec fields) *unstructured.Unstructured {
		return object("Grant", s.namespace, unique("grant"), spec)
	}
	create := func(ctx context.Context, spec fields) error {
		return env.Client(s.policyAdmin).Create(ctx, grant(spec))
	}
	envelope := func(changes fields) fields {
		return terms(changed(fields{"grantType": "BreakGlass", "maxDurationSeconds": int64(14400)}, changes))
	}

	for _, t := range badTerms {
		It("is refused with "+t.name, func(ctx SpecContext) {
			Expect(create(ctx, terms(t.changes))).To(t.refused)
		})
	}
	for name, changes := range goodTerms {
		It("is accepted "+name, func(ctx SpecContext) {
			Expect(create(ctx, terms(changes))).To(Succeed())
		})
	}

	DescribeTable("is refused", func(ctx SpecContext, spec fields, refused types.GomegaMatcher) {
		Expect(create(ctx, spec)).To(refused)
	},
		Entry("with an unknown key", terms(fields{"action": []any{"stripe.*"}}), deniedBy("ctrlrun-grants", "unknown: spec.action;")),
		Entry("with a key in snake case", terms(fields{"expires_at": someday}), deniedBy("ctrlrun-grants", "unknown: spec.expires_at;")),
		Entry("with a decision", terms(fields{"decision": "allow"}), deniedBy("ctrlrun-grants", "unknown: spec.decision;")),
		Entry("with a key that only a Delegation has", terms(fields{"breakGlass": true}), deniedBy("ctrlrun-grants", "unknown: spec.breakGlass;")),
		Entry("with a blank agent beside a user", terms(fields{"subject": fields{"agent": nil, "user": "alice"}}), deniedBy("ctrlrun-grants", "without a value: spec.subject.agent")),
		Entry("with a blank grantType", terms(fields{"grantType": nil}), refusedBySchema("Unsupported value: null")),
		Entry("with a blank maxDurationSeconds", terms(fields{"maxDurationSeconds": nil}), deniedBy("ctrlrun-grants", "without a value: spec.maxDurationSeconds")),
		Entry("to agents by two stars", terms(fields{"subject": fields{"agent": "**"}}), deniedBy("ctrlrun-grants", "no pattern of user names: spec.subject.agent")),
		Entry("to agents by two stars at the end", terms(fields{"subject": fields{"agent": "system:**"}}), deniedBy("ctrlrun-grants", "no pattern of user names")),
		Entry("to agents by a star within", terms(fields{"subject": fields{"agent": "system:*:bot"}}), deniedBy("ctrlrun-grants", "no pattern of user names")),
		Entry("to agents by a leading star", terms(fields{"subject": fields{"agent": "*-bot"}}), deniedBy("ctrlrun-grants", "no pattern of user names")),
		Entry("to agents by a character class", terms(fields{"subject": fields{"agent": "bot-[0-9]"}}), deniedBy("ctrlrun-grants", "no pattern of user names")),
		Entry("to users by two stars", terms(fields{"subject": fields{"user": "**"}}), deniedBy("ctrlrun-grants", "no pattern of user names: spec.subject.user")),
		Entry("of a type of its own", terms(fields{"grantType": "Temporary"}), refusedBySchema("Unsupported value")),
		Entry("of type BreakGlass without a longest duration", terms(fields{"grantType": "BreakGlass"}), refusedBySchema("needs maxDurationSeconds")),
		Entry("of type Standard with a longest duration", terms(fields{"maxDurationSeconds": int64(600)}), refusedBySchema("needs maxDurationSeconds, and no other may have it")),
		Entry("of type BreakGlass for more than four hours", envelope(fields{"maxDurationSeconds": int64(14401)}), refusedBySchema("less than or equal to 14400")),
		Entry("of type BreakGlass for less than a minute", envelope(fields{"maxDurationSeconds": int64(59)}), refusedBySchema("greater than or equal to 60")),
		Entry("of type BreakGlass and delegable", envelope(fields{"delegable": false}), refusedBySchema("neither delegable nor expirationTime")),
		Entry("of type BreakGlass with an end", envelope(fields{"expirationTime": someday}), refusedBySchema("neither delegable nor expirationTime")),
	)

	DescribeTable("is accepted", func(ctx SpecContext, spec fields) {
		Expect(create(ctx, spec)).To(Succeed())
	},
		Entry("of type BreakGlass", envelope(nil)),
		Entry("to every agent of a namespace", terms(fields{"subject": fields{"agent": "system:serviceaccount:payments:*"}})),
		Entry("to every agent", terms(fields{"subject": fields{"agent": "*"}})),
		Entry("to any agent of a user", terms(fields{"subject": fields{"user": "alice@example.com"}})),
	)

	It("is complete once it is stored", func(ctx SpecContext) {
		o := grant(terms(nil))
		Expect(env.Client(s.policyAdmin).Create(ctx, o)).To(Succeed())
		Expect(get(o, "spec", "grantType")).To(Equal("Standard"))
		Expect(get(o, "status", "observedGeneration")).To(Equal(int64(-1)))
	})

	It("is judged when it is edited as when it is made, by every way of editing", func(ctx SpecContext) {
		c := env.Client(s.policyAdmin)
		o := grant(terms(fields{"resources": []any{"payment:*"}}))
		Expect(c.Create(ctx, o)).To(Succeed())
		Expect(c.Update(ctx, set(o.DeepCopy(), []any{"payment:**:x"}, "spec", "resources"))).To(deniedBy("ctrlrun-grants", "no pattern of resources"))
		Expect(mergePatch(ctx, c, o, `{"spec":{"resource":["payment:*"]}}`)).To(deniedBy("ctrlrun-grants", "unknown: spec.resource;"))
		Expect(jsonPatch(ctx, c, o, `[{"op":"replace","path":"/spec/resources","value":null}]`)).To(deniedBy("ctrlrun-grants", "without a value: spec.resources"))
		applied := set(identityOnly(o), terms(fields{"constraints": nil}), "spec")
		Expect(apply(ctx, c, "gitops", applied)).To(deniedBy("ctrlrun-grants", "without a value: spec.constraints"))
		Expect(mergePatch(ctx, c, o, `{"spec":{"resources":["invoice:*"]}}`)).To(Succeed())
	})

	It("belongs to GitOps: its labels, owners and finalizers are free, and it can be deleted", func(ctx SpecContext) {
		o := grant(terms(nil))
		o.SetFinalizers([]string{"example.com/gitops"})
		o.SetLabels(map[string]string{"a": "b"})
		c := env.Client(s.policyAdmin)
		Expect(c.Create(ctx, o)).To(Succeed())
		Expect(c.Delete(ctx, o)).To(Succeed())
		Expect(mergePatch(ctx, c, o, `{"metadata":{"finalizers":null}}`)).To(Succeed())
	})

	It("is not made by an agent", func(ctx SpecContext) {
		Expect(env.Client(s.agent).Create(ctx, grant(terms(nil)))).To(MatchError(ContainSubstring("cannot create resource")))
	})

	It("of the largest size that the schema allows is judged within its cost", func(ctx SpecContext) {
		list := func(n, length int, separator string) []any {
			var l []any
			for i := range n {
				p := fmt.Sprintf("%02d%s", i, separator)
				for len(p)+4 <= length-1 {
					p += "ab" + separator
				}
				l = append(l, p+strings.Repeat("a", length-1-len(p))+"*")
			}
			return l
		}
		constraints := fields{}
		for i := range 64 {
			var in []any
			for j := range 64 {
				in = append(in, fmt.Sprintf("value-%d", j))
			}
			constraints[fmt.Sprintf("%s_%d_in", strings.Repeat("a", 100), i)] = in
		}
		spec := fields{
			"subject": fields{"agent": strings.Repeat("a", 512), "user": strings.Repeat("b", 512)}, "actions": list(64, 253, "."), "resources": list(64, 512, ":"),
			"constraints": constraints, "expirationTime": someday, "delegable": true,
		}
		var environments []any
		for i := range 16 {
			environments = append(environments, fmt.Sprintf("%s-%02d", strings.Repeat("e", 60), i))
		}
		spec["environments"] = environments
		o := grant(spec)
		Expect(env.Client(s.policyAdmin).Create(ctx, o)).To(Succeed())
		resources := append([]any{}, spec["resources"].([]any)...)
		resources[63] = "payment:*:**"
		Expect(env.Client(s.policyAdmin).Update(ctx, set(o.DeepCopy(), resources, "spec", "resources"))).To(deniedBy("ctrlrun-grants", `no pattern of resources: "payment:*:**"`))
		constraints["one_more_eq"] = "x"
		Expect(env.Client(s.policyAdmin).Update(ctx, set(o.DeepCopy(), constraints, "spec", "constraints"))).To(refusedBySchema("must have at most 64 items"))
		// Handed on whole, it is judged by more policies.
		delegation := changed(spec, fields{"parentRef": fields{"kind": "Grant", "name": o.GetName()}, "reason": strings.Repeat("r", 1024)})
		delete(constraints, "one_more_eq")
		delegation["subject"] = fields{"agent": strings.Repeat("a", 512)}
		Expect(env.Client(s.agent).Create(ctx, object("Delegation", s.namespace, unique("delegation"), delegation))).To(Succeed())
	})
})

var _ = Describe("A Delegation", func() {
	var s *stage
	BeforeEach(func() { s = theStage() })

	delegation := func(changes fields) *unstructured.Unstructured {
		return object("Delegation", s.namespace, unique("delegation"), terms(changed(fields{"parentRef": fields{"kind": "Grant", "name": "refunds"}}, changes)))
	}
	create := func(ctx context.Context, changes fields) error {
		return env.Client(s.agent).Create(ctx, delegation(changes))
	}

	for _, t := range badTerms {
		It("is refused with "+t.name, func(ctx SpecContext) {
			Expect(create(ctx, t.changes)).To(t.refused)
		})
	}
	for name, changes := range goodTerms {
		It("is accepted "+name, func(ctx SpecContext) {
			Expect(create(ctx, changes)).To(Succeed())
		})
	}

	DescribeTable("is refused", func(ctx SpecContext, changes fields, refused types.GomegaMatcher) {
		Expect(create(ctx, changes)).To(refused)
	},
		Entry("to agents by a pattern", fields{"subject": fields{"agent": "bot-*"}}, deniedBy("ctrlrun-delegations", "spec.subject.agent must be one user name")),
		Entry("to any agent", fields{"subject": fields{"agent": "*"}}, deniedBy("ctrlrun-delegations", "spec.subject.agent must be one user name")),
		Entry("to any agent of a user", fields{"subject": fields{"user": "alice"}}, deniedBy("ctrlrun-delegations", "spec.subject.agent must be one user name")),
		Entry("for users by a pattern", fields{"subject": fields{"agent": "bot", "user": "alice*"}}, deniedBy("ctrlrun-delegations", "spec.subject.user must be one user name")),
		Entry("to a blank agent of a user", fields{"subject": fields{"agent": nil, "user": "alice"}}, deniedByOneOf([]string{"ctrlrun-delegations", "ctrlrun-grants"})),
		Entry("to an agent by two stars", fields{"subject": fields{"agent": "**"}}, deniedByOneOf([]string{"ctrlrun-delegations", "ctrlrun-grants"})),
		Entry("with an agent that no pattern can be", fields{"subject": fields{"agent": "bot?"}}, deniedBy("ctrlrun-grants", "no pattern of user names")),
		Entry("with a key that only a Grant has", fields{"grantType": "BreakGlass"}, deniedBy("ctrlrun-delegations", "unknown: spec.grantType;")),
		Entry("with a key in snake case", fields{"break_glass": true}, deniedBy("ctrlrun-delegations", "unknown: spec.break_glass;")),
		Entry("with a blank breakGlass", fields{"breakGlass": nil}, deniedBy("ctrlrun-grants", "without a value: spec.breakGlass")),
		Entry("with a blank reason", fields{"reason": nil}, deniedBy("ctrlrun-grants", "without a value: spec.reason")),
		Entry("with an empty reason", fields{"reason": ""}, refusedBySchema("at least 1 chars long")),
		Entry("without parent", fields{"parentRef": fields{}}, refusedBySchema("Required value")),
		Entry("of an Action", fields{"parentRef": fields{"kind": "Action", "name": "x"}}, refusedBySchema("Unsupported value")),
		Entry("in an emergency without reason", fields{"breakGlass": true, "expirationTime": someday}, refusedBySchema("takes a reason and an expirationTime")),
		Entry("in an emergency without end", fields{"breakGlass": true, "reason": "outage"}, refusedBySchema("takes a reason and an expirationTime")),
	)

	It("has any name of up to 100 characters", func(ctx SpecContext) {
		o := delegation(nil)
		o.SetName(strings.Repeat("a", 100))
		Expect(env.Client(s.agent).Create(ctx, o)).To(Succeed())
		o = delegation(nil)
		o.SetName(strings.Repeat("a", 101))
		Expect(env.Client(s.agent).Create(ctx, o)).To(refusedBySchema("at most 100 characters"))
		o = delegation(nil)
		o.SetName("")
		o.SetGenerateName("refunds-")
		Expect(env.Client(s.agent).Create(ctx, o)).To(Succeed())
	})

	It("leaves room in that name for whoever revokes it, whatever theirs is", func(ctx SpecContext) {
		u := testenv.User{Name: strings.Repeat("long-name-", 30)}
		Expect(env.Grant(ctx, s.namespace, "ctrlrun-revoker", u)).To(Succeed())
		name := strings.Repeat("b", 100)
		o := object("Revocation", s.namespace, name+"."+action.Speaker(u.Name)+".99", fields{"delegationRef": fields{"name": name, "uid": "x"}})
		Expect(env.Client(u).Create(ctx, o)).To(Succeed())
	})

	Context("made for somebody", func() {
		onBehalf := func(user string) *unstructured.Unstructured {
			return set(delegation(nil), user, "spec", "delegator", "user")
		}
		delegate := rbacv1.PolicyRule{APIGroups: []string{"ctrlrun.dev"}, Resources: []string{"delegations"}, Verbs: []string{"create"}}

		It("needs the verb represent on that name", func(ctx SpecContext) {
			u := testenv.ServiceAccountUser(s.namespace, unique("representative"))
			Expect(env.Allow(ctx, s.namespace, u, delegate, rbacv1.PolicyRule{
				APIGroups: []string{"ctrlrun.dev"}, Resources: []string{"users"}, ResourceNames: []string{"alice"}, Verbs: []string{"represent"},
			})).To(Succeed())
			o := onBehalf("alice")
			Expect(env.Client(u).Create(ctx, o)).To(Succeed())
			Expect(get(o, "spec", "delegator", "agent")).To(Equal(u.Name))
			Expect(env.Client(u).Create(ctx, onBehalf("bob"))).To(deniedBy("ctrlrun-delegations", `act on behalf of "bob"`, `verb "represent"`))
			Expect(env.Client(s.agent).Create(ctx, onBehalf("alice"))).To(deniedBy("ctrlrun-delegations", `act on behalf of "alice"`))
		})

		It("does not get it by the verb impersonate", func(ctx SpecContext) {
			u := testenv.User{Name: unique("impersonator")}
			Expect(env.Allow(ctx, "", u, delegate, rbacv1.PolicyRule{
				APIGroups: []string{"", "ctrlrun.dev"}, Resources: []string{"users"}, Verbs: []string{"impersonate"},
			})).To(Succeed())
			Expect(env.Client(u).Create(ctx, onBehalf("alice"))).To(deniedBy("ctrlrun-delegations", `act on behalf of "alice"`))
		})
	})

	Context("that opens a grant in an emergency", func() {
		open := func(kind, name string) *unstructured.Unstructured {
			return delegation(fields{"parentRef": fields{"kind": kind, "name": name}, "breakGlass": true, "reason": "outage", "expirationTime": someday})
		}
		refused := func(name string) types.GomegaMatcher {
			return deniedBy("ctrlrun-delegations", `you may not open grant "`+name+`"`, `you need the verb "breakglass" on grants.ctrlrun.dev, resourceName "`+name+`"`)
		}
		entitled := func(ctx context.Context, namespace string, verbs []string, names ...string) testenv.User {
			u := testenv.User{Name: unique("on-call")}
			ExpectWithOffset(1, env.Allow(ctx, s.namespace, u, rbacv1.PolicyRule{APIGroups: []string{"ctrlrun.dev"}, Resources: []string{"delegations"}, Verbs: []string{"create"}})).To(Succeed())
			if len(verbs) > 0 {
				ExpectWithOffset(1, env.Allow(ctx, namespace, u, rbacv1.PolicyRule{APIGroups: []string{"ctrlrun.dev"}, Resources: []string{"grants"}, ResourceNames: names, Verbs: verbs})).To(Succeed())
			}
			return u
		}

		It("needs the verb breakglass on that grant", func(ctx SpecContext) {
			u := entitled(ctx, s.namespace, []string{"breakglass"}, "emergency")
			Expect(env.Client(u).Create(ctx, open("Grant", "emergency"))).To(Succeed())
			Expect(env.Client(u).Create(ctx, open("Grant", "emergency-2"))).To(refused("emergency-2"))
			Expect(env.Client(entitled(ctx, s.namespace, []string{"breakglass"})).Create(ctx, open("Grant", "emergency"))).To(Succeed())
		})

		It("is not the right to create, nor any other verb, nor the verb elsewhere", func(ctx SpecContext) {
			Expect(env.Client(entitled(ctx, s.namespace, nil)).Create(ctx, open("Grant", "emergency"))).To(refused("emergency"))
			Expect(env.Client(entitled(ctx, s.namespace, []string{"get", "create", "update", "delete"})).Create(ctx, open("Grant", "emergency"))).To(refused("emergency"))
			Expect(env.Client(entitled(ctx, env.Namespace(GinkgoT(), nil), []string{"breakglass"})).Create(ctx, open("Grant", "emergency"))).To(refused("emergency"))
			Expect(env.Client(s.agent).Create(ctx, open("Grant", "emergency"))).To(refused("emergency"))
		})

		It("is not given by the right to write grants, and is by wildcards in the namespace", func(ctx SpecContext) {
			u := testenv.User{Name: unique("owner")}
			Expect(env.Grant(ctx, s.namespace, "ctrlrun-policy-admin", u)).To(Succeed())
			Expect(env.Grant(ctx, s.namespace, "ctrlrun-agent", u)).To(Succeed())
			Expect(env.Client(u).Create(ctx, open("Grant", "emergency"))).To(refused("emergency"))
			Expect(env.Client(s.wildcard).Create(ctx, open("Grant", "emergency"))).To(Succeed())
		})

		It("opens a Grant and nothing else", func(ctx SpecContext) {
			Expect(env.Client(s.wildcard).Create(ctx, open("Delegation", "emergency"))).To(deniedBy("ctrlrun-delegations", "set spec.parentRef.kind to Grant"))
		})

		It("takes nothing for an emergency that says it is none", func(ctx SpecContext) {
			Expect(env.Client(s.agent).Create(ctx, delegation(fields{"breakGlass": false}))).To(Succeed())
		})
	})
})

var _ = Describe("A Revocation", func() {
	var s *stage
	BeforeEach(func() { s = theStage() })
	k := statementKinds[7]

	revocation := func(u testenv.User, name string) *unstructured.Unstructured {
		return object("Revocation", s.namespace, name+"."+action.Speaker(u.Name), fields{"delegationRef": fields{"name": name, "uid": "uid-1"}})
	}
	refused := func(name string) types.GomegaMatcher {
		return deniedBy(k.policy, `you may not revoke Delegation "`+name+`"`, `you need the verb "revoke" on delegations.ctrlrun.dev, resourceName "`+name+`"`)
	}
	entitled := func(ctx context.Context, namespace string, verbs []string, names ...string) testenv.User {
		u := testenv.User{Name: unique("revoker")}
		ExpectWithOffset(1, env.Allow(ctx, s.namespace, u, rbacv1.PolicyRule{APIGroups: []string{"ctrlrun.dev"}, Resources: []string{"revocations"}, Verbs: []string{"create"}})).To(Succeed())
		if len(verbs) > 0 {
			ExpectWithOffset(1, env.Allow(ctx, namespace, u, rbacv1.PolicyRule{APIGroups: []string{"ctrlrun.dev"}, Resources: []string{"delegations"}, ResourceNames: names, Verbs: verbs})).To(Succeed())
		}
		return u
	}
	create := func(ctx context.Context, u testenv.User, name string) error {
		return env.Client(u).Create(ctx, revocation(u, name))
	}

	It("needs the verb revoke on that Delegation", func(ctx SpecContext) {
		u := entitled(ctx, s.namespace, []string{"revoke"}, "night", "day")
		Expect(create(ctx, u, "night")).To(Succeed())
		Expect(create(ctx, u, "nigh")).To(refused("nigh"))
		Expect(create(ctx, u, "night.1")).To(refused("night.1"))
		Expect(create(ctx, entitled(ctx, s.namespace, []string{"revoke"}), "night")).To(Succeed())
		Expect(create(ctx, s.wildcard, "night")).To(Succeed())
	})

	It("is not the right to create, nor any other verb, nor the verb elsewhere", func(ctx SpecContext) {
		Expect(create(ctx, entitled(ctx, s.namespace, nil), "night")).To(refused("night"))
		Expect(create(ctx, entitled(ctx, s.namespace, []string{"get", "create", "update", "delete"}), "night")).To(refused("night"))
		Expect(create(ctx, entitled(ctx, s.namespace, []string{"revoke"}, "night.*", "*"), "night")).To(refused("night"))
		Expect(create(ctx, entitled(ctx, env.Namespace(GinkgoT(), nil), []string{"revoke"}), "night")).To(refused("night"))
	})

	It("is made by whoever owns the grants as well, and not by an agent", func(ctx SpecContext) {
		Expect(create(ctx, s.policyAdmin, unique("owned"))).To(Succeed())
		Expect(create(ctx, s.agent, "night")).To(MatchError(ContainSubstring("cannot create resource")))
	})

	It("has a reason with a value, or none", func(ctx SpecContext) {
		o := k.valid(s, s.revoker)
		Expect(env.Client(s.revoker).Create(ctx, set(o.DeepCopy(), nil, "spec", "reason"))).To(deniedBy(k.policy, "spec.reason has no value"))
		unstructured.RemoveNestedField(o.Object, "spec", "reason")
		Expect(env.Client(s.revoker).Create(ctx, o)).To(Succeed())
	})
})

// The example of a page is what people copy.
var _ = Describe("What is documented of authority", func() {
	examples := func(page string) []*unstructured.Unstructured {
		text, err := os.ReadFile(filepath.Join(env.Root, "docs", page))
		ExpectWithOffset(1, err).NotTo(HaveOccurred())
		var found []*unstructured.Unstructured
		for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(text, -1) {
			data, err := yaml.YAMLToJSON(block[1])
			ExpectWithOffset(1, err).NotTo(HaveOccurred())
			o := &unstructured.Unstructured{}
			ExpectWithOffset(1, o.UnmarshalJSON(data)).To(Succeed())
			o.SetNamespace(theStage().namespace)
			found = append(found, o)
		}
		ExpectWithOffset(1, found).NotTo(BeEmpty())
		return found
	}

	It("is accepted as it stands there", func(ctx SpecContext) {
		s := theStage()
		rosa := testenv.User{Name: "rosa@example.com"}
		Expect(env.Grant(ctx, s.namespace, "ctrlrun-revoker", rosa)).To(Succeed())
		for page, u := range map[string]testenv.User{"grant.md": s.policyAdmin, "delegation.md": s.agent, "revocation.md": rosa} {
			for _, o := range examples(page) {
				Expect(env.Client(u).Create(ctx, o)).To(Succeed(), page)
			}
		}
	})

	It("has a Role for an emergency that opens the grant of the example, and no other", func(ctx SpecContext) {
		s := theStage()
		objects, err := env.Render(ctx, "config/samples/roles")
		Expect(err).NotTo(HaveOccurred())
		role := &rbacv1.Role{}
		for _, o := range objects {
			if o.GetKind() == "Role" && o.GetName() == "break-glass-refunds" {
				Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, role)).To(Succeed())
			}
		}
		u := testenv.User{Name: unique("on-call")}
		Expect(env.Allow(ctx, s.namespace, u, role.Rules...)).To(Succeed())
		open := func(grant string) error {
			return env.Client(u).Create(ctx, object("Delegation", s.namespace, unique("delegation"), terms(fields{
				"parentRef": fields{"kind": "Grant", "name": grant}, "breakGlass": true, "reason": "outage", "expirationTime": someday,
			})))
		}
		Expect(open(examples("grant.md")[1].GetName())).To(Succeed())
		Expect(open("refunds")).To(deniedBy("ctrlrun-delegations", `you may not open grant "refunds"`))
	})
})
