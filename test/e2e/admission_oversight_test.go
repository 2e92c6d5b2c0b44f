package e2e

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"

	"ctrlrun.dev/operator/test/testenv"
)

// texts are n different ones of that length.
func texts(n, length int) []any {
	all := make([]any, n)
	for i := range all {
		t := fmt.Sprintf("%d-", i)
		all[i] = t + strings.Repeat("x", length-len(t))
	}
	return all
}

var _ = Describe("Who is asked, in an ActionPolicy,", func() {
	var s *stage
	BeforeEach(func() { s = theStage() })
	asking := func(changes fields) fields { return changed(fields{"effect": "a:{b}", "decision": "approve"}, changes) }

	DescribeTable("is refused", func(ctx SpecContext, entry fields, refused types.GomegaMatcher) {
		Expect(env.Client(s.policyAdmin).Create(ctx, policy(s.namespace, asking(entry)))).To(refused)
	},
		Entry("blank", fields{"approverGroups": nil}, deniedBy("ctrlrun-actionpolicies", `without a value: actions["x.y"].approverGroups`)),
		Entry("misspelt", fields{"approverGroup": []any{"finance"}}, deniedBy("ctrlrun-actionpolicies", `unknown: actions["x.y"].approverGroup;`)),
		Entry("in snake case", fields{"approver_groups": []any{"finance"}}, deniedBy("ctrlrun-actionpolicies", `unknown: actions["x.y"].approver_groups`)),
		Entry("as nobody", fields{"approverGroups": []any{}}, refusedBySchema("should have at least 1 items")),
		Entry("as a text", fields{"approverGroups": "finance"}, refusedBySchema("must be of type array")),
		Entry("as an object", fields{"approverGroups": fields{"finance": true}}, refusedBySchema("must be of type array")),
		Entry("with a group that is null", fields{"approverGroups": []any{"finance", nil}}, refusedBySchema("must be of type string")),
		Entry("with a group that is a number", fields{"approverGroups": []any{int64(7)}}, refusedBySchema("must be of type string")),
		Entry("with a group without a name", fields{"approverGroups": []any{""}}, refusedBySchema("should be at least 1 chars long")),
		Entry("with a group of a longer name than is stamped", fields{"approverGroups": texts(1, 257)}, refusedBySchema("Too long")),
		Entry("with more groups than can be pinned", fields{"approverGroups": texts(17, 8)}, refusedBySchema("must have at most 16 items")),
	)

	It("is refused in a rule: the whole entry asks the same people", func(ctx SpecContext) {
		rules := fields{"rules": []any{fields{"decision": "approve", "approverGroups": []any{"finance"}}}}
		Expect(env.Client(s.policyAdmin).Create(ctx, policy(s.namespace, rules))).To(deniedBy("ctrlrun-actionpolicies", `unknown: actions["x.y"].rules: approverGroups`))
	})

	It("is accepted as long as it can be, and changed", func(ctx SpecContext) {
		c := env.Client(s.policyAdmin)
		o := policy(s.namespace, asking(fields{"approverGroups": texts(16, 256)}))
		Expect(c.Create(ctx, o)).To(Succeed())
		Expect(mergePatch(ctx, c, o, `{"spec":{"actions":{"x.y":{"approverGroups":["finance"]}}}}`)).To(Succeed())
		Expect(mergePatch(ctx, c, o, `{"spec":{"actions":{"x.y":{"approverGroups":[]}}}}`)).To(refusedBySchema("should have at least 1 items"))
		Expect(jsonPatch(ctx, c, o, `[{"op":"remove","path":"/spec/actions/x.y/approverGroups"}]`)).To(Succeed())
	})
})

var _ = Describe("Names of one person, in Settings,", func() {
	var s *stage
	BeforeEach(func() { s = theStage() })

	DescribeTable("are refused", func(ctx SpecContext, spec fields, refused types.GomegaMatcher) {
		Expect(env.Client(s.policyAdmin).Create(ctx, object("Settings", s.namespace, "default", spec))).To(refused)
	},
		Entry("blank", fields{"identityAliases": nil}, deniedBy("ctrlrun-settings", "spec.identityAliases")),
		Entry("misspelt", fields{"identityAlias": []any{[]any{"a", "b"}}}, deniedBy("ctrlrun-settings", "spec.identityAlias")),
		Entry("in snake case", fields{"identity_aliases": []any{[]any{"a", "b"}}}, deniedBy("ctrlrun-settings", "spec.identity_aliases")),
		Entry("as a text", fields{"identityAliases": "alice"}, refusedBySchema("must be of type array")),
		Entry("as one list", fields{"identityAliases": []any{"alice", "alice-admin"}}, refusedBySchema("must be of type array")),
		Entry("as an object", fields{"identityAliases": fields{"alice": []any{"alice-admin"}}}, refusedBySchema("must be of type array")),
		Entry("with a person that is null", fields{"identityAliases": []any{nil}}, refusedBySchema("must be of type array")),
		Entry("with a person of no name", fields{"identityAliases": []any{[]any{}}}, refusedBySchema("should have at least 2 items")),
		Entry("with a person of one name", fields{"identityAliases": []any{[]any{"alice"}}}, refusedBySchema("should have at least 2 items")),
		Entry("with a person of too many", fields{"identityAliases": []any{texts(9, 8)}}, refusedBySchema("must have at most 8 items")),
		Entry("with a name that is null", fields{"identityAliases": []any{[]any{"alice", nil}}}, refusedBySchema("must be of type string")),
		Entry("with a name that is a number", fields{"identityAliases": []any{[]any{"alice", int64(7)}}}, refusedBySchema("must be of type string")),
		Entry("with a name of nobody", fields{"identityAliases": []any{[]any{"alice", ""}}}, refusedBySchema("should be at least 1 chars long")),
		Entry("with a longer name than the apiserver stamps", fields{"identityAliases": []any{texts(2, 513)}}, refusedBySchema("Too long")),
		Entry("with too many people", fields{"identityAliases": func() []any {
			var all []any
			for range 65 {
				all = append(all, texts(2, 8))
			}
			return all
		}()}, refusedBySchema("must have at most 64 items")),
	)

	apart := deniedBy("ctrlrun-settings-govern", "names of one person taken out of identityAliases", `you need the verb "govern" on settings.ctrlrun.dev`)

	It("are added by whoever may edit Settings, and taken out with the verb govern only", func(ctx SpecContext) {
		editor := env.Client(s.editor)
		ns := env.Namespace(GinkgoT(), nil)
		o := object("Settings", ns, "default", fields{"identityAliases": []any{[]any{"alice", "alice-admin"}}})
		Expect(editor.Create(ctx, o)).To(Succeed())
		for _, patch := range []string{
			`[["alice","alice-admin"],["bob","bob-admin"]]`, `[["bob","bob-admin"],["alice","alice-admin"]]`,
			`[["bob-admin","bob"],["root","alice-admin","alice"]]`, `[["bob","bob-admin","carol","dave","root","alice","alice-admin"]]`,
		} {
			Expect(mergePatch(ctx, editor, o, `{"spec":{"identityAliases":`+patch+`}}`)).To(Succeed(), patch)
		}
		Expect(mergePatch(ctx, editor, o, `{"spec":{"identityAliases":[["alice","alice-admin","root"],["bob","bob-admin"]]}}`)).To(apart, "one person is made two")
		governor := testenv.User{Name: unique("governor")}
		Expect(env.Grant(ctx, ns, "ctrlrun-policy-admin", governor)).To(Succeed())
		Expect(mergePatch(ctx, env.Client(governor), o, `{"spec":{"identityAliases":[["alice","alice-admin","root"],["bob","bob-admin"]]}}`)).To(Succeed())

		for _, patch := range []string{
			`[["alice","alice-admin"],["bob","bob-admin"]]`, `[["alice","alice-admin","root"]]`, `[["alice","alice-admin","root"],["bob","rob"]]`, `[]`,
		} {
			Expect(mergePatch(ctx, editor, o, `{"spec":{"identityAliases":`+patch+`}}`)).To(apart, patch)
		}
		Expect(jsonPatch(ctx, editor, o, `[{"op":"remove","path":"/spec/identityAliases"}]`)).To(apart)
		Expect(jsonPatch(ctx, editor, o, `[{"op":"remove","path":"/spec"}]`)).To(apart)
		Expect(apply(ctx, editor, "gitops", set(identityOnly(o), []any{[]any{"alice", "root"}}, "spec", "identityAliases"))).To(apart)
		Expect(editor.Delete(ctx, o)).To(apart)
		Expect(mergePatch(ctx, editor, o, `{"spec":{"approvalTTLSeconds":600}}`)).To(Succeed(), "what else is changed is free")
		Expect(env.Client(governor).Delete(ctx, o)).To(Succeed())
	})

	It("are judged the same where there are as many as there can be", func(ctx SpecContext) {
		editor := env.Client(s.editor)
		ns := env.Namespace(GinkgoT(), nil)
		person := func(i int) []any {
			all := texts(8, 512)
			for n := range all {
				// They differ at the end only, which is what comparing takes longest for.
				all[n] = strings.Repeat("x", 505) + fmt.Sprintf("%03d-%03d", i, n)
			}
			return all
		}
		var all []any
		for i := range 64 {
			all = append(all, person(i))
		}
		o := object("Settings", ns, "default", fields{"identityAliases": all})
		Expect(editor.Create(ctx, o)).To(Succeed())
		kept := append([]any{}, all[1:]...)
		kept = append(kept, all[0])
		Expect(editor.Update(ctx, set(o, kept, "spec", "identityAliases"))).To(Succeed(), "in another order")
		fewer := append([]any{}, kept[:63]...)
		fewer = append(fewer, kept[63].([]any)[:7])
		Expect(editor.Update(ctx, set(o.DeepCopy(), fewer, "spec", "identityAliases"))).To(apart)
		governor := testenv.User{Name: unique("governor")}
		Expect(env.Grant(ctx, ns, "ctrlrun-policy-admin", governor)).To(Succeed())
		Expect(env.Client(governor).Update(ctx, set(o.DeepCopy(), fewer, "spec", "identityAliases"))).To(Succeed())
	})
})
