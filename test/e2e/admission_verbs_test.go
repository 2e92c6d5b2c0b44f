package e2e

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"

	"ctrlrun.dev/operator/test/testenv"
)

// observedKind is a Resolution that a program made.
var observedKind = func() statementKind {
	k := statementKinds[4]
	spec := k.spec
	k.spec = func() (fields, string) {
		s, subject := spec()
		return edit(s, fields{"observer": "ledger-watcher"}), subject
	}
	return k
}()

var _ = Describe("The right to answer", func() {
	var s *stage
	BeforeEach(func() { s = theStage() })

	for _, verb := range []struct {
		name, resource string
		kind           statementKind
	}{
		{"approve", "approvals", statementKinds[1]},
		{"resolve", "resolutions", statementKinds[4]},
		{"observe", "resolutions", observedKind},
	} {
		Context("by the verb "+verb.name, func() {
			// entitled makes somebody who may create such statements and has the verb on the names, if there are any.
			entitled := func(ctx SpecContext, names ...string) testenv.User {
				u := testenv.User{Name: unique(verb.name)}
				rules := []rbacv1.PolicyRule{{APIGroups: []string{"ctrlrun.dev"}, Resources: []string{verb.resource}, Verbs: []string{"create"}}}
				if len(names) > 0 {
					rules = append(rules, rbacv1.PolicyRule{
						APIGroups: []string{"ctrlrun.dev"}, Resources: []string{"actiontypes"}, ResourceNames: names, Verbs: []string{verb.name},
					})
				}
				Expect(env.Allow(ctx, s.namespace, u, rules...)).To(Succeed())
				return u
			}
			answer := func(ctx SpecContext, u testenv.User, actionType string) error {
				return env.Client(u).Create(ctx, set(verb.kind.valid(s, u), actionType, "spec", "actionType"))
			}

			DescribeTable("reaches", func(ctx SpecContext, name, actionType string) {
				Expect(answer(ctx, entitled(ctx, name), actionType)).To(Succeed())
			},
				Entry("a type", "stripe.refund", "stripe.refund"),
				Entry("a type of one word", "deploy", "deploy"),
				Entry("what begins with one word", "stripe.*", "stripe.refund"),
				Entry("what begins with it, deeper down", "stripe.*", "stripe.refund.partial.eu.v2.x"),
				Entry("what begins with two words", "stripe.refund.*", "stripe.refund.partial"),
				Entry("what begins with three words", "a.b.c.*", "a.b.c.d"),
				Entry("what begins with four words", "a.b.c.d.*", "a.b.c.d.e.f"),
			)
			DescribeTable("does not reach", func(ctx SpecContext, name, actionType string) {
				Expect(answer(ctx, entitled(ctx, name), actionType)).To(deniedBy(verb.kind.policy,
					`you may not `+verb.name, `of type "`+actionType+`"`, `you need the verb "`+verb.name+`" on actiontypes.ctrlrun.dev, resourceName "`+actionType+`"`))
			},
				Entry("another type", "stripe.refund", "stripe.payout"),
				Entry("another case", "stripe.refund", "Stripe.Refund"),
				Entry("the prefix itself", "stripe.*", "stripe"),
				Entry("what begins with the same letters", "stripe.*", "stripex.refund"),
				Entry("a type above", "stripe.refund.*", "stripe.refund"),
				Entry("anything by a bare star", "*", "stripe.refund"),
				Entry("anything by a half word", "str*", "stripe.refund"),
				Entry("what begins with five words", "a.b.c.d.e.*", "a.b.c.d.e.f"),
				Entry("the very long", "other.*", strings.Repeat("a.", 60)+"a"),
			)
			It("is not the right to create", func(ctx SpecContext) {
				Expect(answer(ctx, entitled(ctx), "stripe.refund")).To(deniedBy(verb.kind.policy, "you may not "+verb.name))
			})
			It("is not given by another verb", func(ctx SpecContext) {
				u := entitled(ctx)
				Expect(env.Allow(ctx, s.namespace, u, rbacv1.PolicyRule{
					APIGroups: []string{"ctrlrun.dev"}, Resources: []string{"actiontypes"}, Verbs: []string{"get", "create", "govern"},
				})).To(Succeed())
				Expect(answer(ctx, u, "stripe.refund")).To(deniedBy(verb.kind.policy, "you may not "+verb.name))
			})
			It("ends with the namespace", func(ctx SpecContext) {
				u := entitled(ctx)
				Expect(env.Allow(ctx, env.Namespace(GinkgoT(), nil), u, rbacv1.PolicyRule{
					APIGroups: []string{"ctrlrun.dev"}, Resources: []string{"actiontypes"}, Verbs: []string{verb.name},
				})).To(Succeed())
				Expect(answer(ctx, u, "stripe.refund")).To(deniedBy(verb.kind.policy, "you may not "+verb.name))
			})
			It("is about types, never about patterns", func(ctx SpecContext) {
				Expect(answer(ctx, entitled(ctx, "stripe.*"), "stripe.*")).To(deniedBy(verb.kind.policy, "never a pattern"))
			})
		})
	}

	DescribeTable("of people and that of programs are two", func(ctx SpecContext, kind statementKind, verb, other string) {
		u := testenv.User{Name: unique(verb)}
		Expect(env.Allow(ctx, s.namespace, u,
			rbacv1.PolicyRule{APIGroups: []string{"ctrlrun.dev"}, Resources: []string{"resolutions"}, Verbs: []string{"create"}},
			rbacv1.PolicyRule{APIGroups: []string{"ctrlrun.dev"}, Resources: []string{"actiontypes"}, Verbs: []string{other}},
		)).To(Succeed())
		Expect(env.Client(u).Create(ctx, kind.valid(s, u))).To(deniedBy(kind.policy, "you may not "+verb))
	},
		Entry("a person is no program", observedKind, "observe", "resolve"),
		Entry("a program is no person", statementKinds[4], "resolve", "observe"),
	)
	DescribeTable("of the operator is about what its own programs saw", func(ctx SpecContext, kind statementKind, want OmegaMatcher) {
		u := testenv.User{Name: unique("operator")}
		Expect(env.Allow(ctx, "", u,
			rbacv1.PolicyRule{APIGroups: []string{"ctrlrun.dev"}, Resources: []string{"resolutions"}, Verbs: []string{"create"}},
			rbacv1.PolicyRule{APIGroups: []string{"ctrlrun.dev"}, Resources: []string{"ledgers"}, Verbs: []string{"operate"}},
		)).To(Succeed())
		Expect(env.Client(u).Create(ctx, kind.valid(s, u))).To(want)
	},
		Entry("which it may say", observedKind, Succeed()),
		Entry("and not what a person does", statementKinds[4], deniedBy("ctrlrun-resolutions", "you may not resolve")),
	)
	It("of a program says which", func(ctx SpecContext) {
		Expect(env.Client(s.resolver).Create(ctx, set(observedKind.valid(s, s.resolver), "", "spec", "observer"))).To(refusedBySchema("spec.observer"))
		Expect(env.Client(s.resolver).Create(ctx, set(observedKind.valid(s, s.resolver), strings.Repeat("x", 254), "spec", "observer"))).To(refusedBySchema("spec.observer"))
	})

	It("of a ledger is held in the whole cluster, not in the namespace it is about", func(ctx SpecContext) {
		k := statementKinds[5]
		u := testenv.User{Name: unique("owner")}
		Expect(env.Allow(ctx, "", u, rbacv1.PolicyRule{
			APIGroups: []string{"ctrlrun.dev"}, Resources: []string{"ledgeracceptances"}, Verbs: []string{"create"},
		})).To(Succeed())
		govern := rbacv1.PolicyRule{APIGroups: []string{"ctrlrun.dev"}, Resources: []string{"ledgers"}, Verbs: []string{"govern"}}
		Expect(env.Allow(ctx, s.namespace, u, govern)).To(Succeed())
		o := k.valid(s, u)
		Expect(env.Client(u).Create(ctx, o.DeepCopy())).To(deniedBy(k.policy, "you may not accept the head of ledger", "ClusterRoleBinding"))
		govern.ResourceNames = []string{get(o, "spec", "ledger").(string)}
		Expect(env.Allow(ctx, "", u, govern)).To(Succeed())
		Expect(env.Client(u).Create(ctx, o.DeepCopy())).To(Succeed())
		Expect(env.Client(u).Create(ctx, k.valid(s, u))).To(deniedBy(k.policy, "you may not accept the head of ledger"))
	})
})
