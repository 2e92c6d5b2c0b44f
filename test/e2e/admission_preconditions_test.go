package e2e

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
)

var _ = Describe("The preconditions of an Action", func() {
	var s *stage
	BeforeEach(func() { s = theStage() })
	replicas := func(changes fields) fields {
		return changed(fields{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "pointer": "/spec/replicas"}, changes)
	}
	many := func(n int) []any {
		all := make([]any, n)
		for i := range all {
			all[i] = replicas(nil)
		}
		return all
	}

	DescribeTable("are refused", func(ctx SpecContext, preconditions any, refused types.GomegaMatcher) {
		o := set(statementKinds[0].valid(s, s.agent), preconditions, "spec", "preconditions")
		Expect(env.Client(s.agent).Create(ctx, o)).To(refused)
	},
		Entry("blank", nil, deniedBy("ctrlrun-actions", "spec.preconditions has no value")),
		Entry("as an empty list", []any{}, refusedBySchema("should have at least 1 items")),
		Entry("as one object", replicas(nil), refusedBySchema("must be of type array")),
		Entry("with nothing in it", []any{nil}, refusedBySchema("spec.preconditions[0]")),
		Entry("with more than can be looked at", many(9), refusedBySchema("must have at most 8 items")),
		Entry("with a misspelt key", []any{replicas(nil), replicas(fields{"path": "/spec"})}, deniedBy("ctrlrun-actions", "a key in spec.preconditions beside")),
		Entry("with a namespace: it is the Action's", []any{replicas(fields{"namespace": "kube-system"})}, deniedBy("ctrlrun-actions", "a key in spec.preconditions beside")),
		Entry("without a pointer", []any{fields{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}, refusedBySchema("pointer: Required value")),
		Entry("with a pointer to everything", []any{replicas(fields{"pointer": ""})}, refusedBySchema("pointer")),
		Entry("with a pointer that is none", []any{replicas(fields{"pointer": "spec.replicas"})}, refusedBySchema("pointer")),
		Entry("with a tilde that escapes nothing", []any{replicas(fields{"pointer": "/a~2b"})}, refusedBySchema("pointer")),
		Entry("with no kind", []any{replicas(fields{"kind": ""})}, refusedBySchema("kind")),
		Entry("with a resource for a kind", []any{replicas(fields{"kind": "deployments"})}, refusedBySchema("kind")),
		Entry("with no name", []any{replicas(fields{"name": ""})}, refusedBySchema("name")),
		Entry("with a name that is a path", []any{replicas(fields{"name": "a/b"})}, refusedBySchema("name")),
		Entry("with a name that leads up", []any{replicas(fields{"name": ".."})}, refusedBySchema("name")),
		Entry("with a name that looks like something else", []any{replicas(fields{"name": "x\x1b[2K\nApproved: yes"})}, refusedBySchema("name")),
		Entry("with a pointer that looks like something else", []any{replicas(fields{"pointer": "/spec\n\x1b[1mFAKE"})}, refusedBySchema("pointer")),
		Entry("with a name that is null", []any{replicas(fields{"name": nil})}, refusedBySchema("name")),
		Entry("with no version", []any{replicas(fields{"apiVersion": "apps"})}, refusedBySchema("apiVersion")),
		Entry("of a Secret", []any{replicas(nil), fields{"apiVersion": "v1", "kind": "Secret", "name": "token", "pointer": "/data/token"}}, refusedBySchema("a Secret is no precondition")),
	)

	It("are accepted, with escapes, as many as can be looked at", func(ctx SpecContext) {
		all := many(7)
		all = append(all, fields{"apiVersion": "v1", "kind": "ConfigMap", "name": "limits", "pointer": "/metadata/annotations/example.com~1max~0"})
		o := set(statementKinds[0].valid(s, s.agent), all, "spec", "preconditions")
		Expect(env.Client(s.agent).Create(ctx, o)).To(Succeed())
		Expect(mergePatch(ctx, env.Admin(), o, `{"spec":{"preconditions":null}}`)).To(MatchError(ContainSubstring("an Action never changes")))
	})
})
