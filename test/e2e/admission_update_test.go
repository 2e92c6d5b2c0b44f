package e2e

import (
	"context"
	"fmt"
	"maps"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/test/testenv"
)

const statusMessage = `{"status":{"conditions":[{"type":"Accepted","status":"True","reason":"Accepted","message":"forged","lastTransitionTime":"2026-01-02T03:04:05Z"}]}}`

// unchangedOr matches the refusal of a change to a statement's metadata. What also breaks ctrlrun-metadata may be answered
// by it: the apiserver reports one.
func unchangedOr(policies ...string) types.GomegaMatcher {
	return deniedByOneOf(append(policies, "ctrlrun-statements-unchanged"))
}

var _ = Describe("A statement, once made,", func() {
	var s *stage
	BeforeEach(func() { s = theStage() })

	ofEveryStatement(func(k statementKind) {
		var o *unstructured.Unstructured
		var meddler client.Client
		BeforeEach(func(ctx SpecContext) {
			o = k.make(ctx, s)
			meddler = env.Client(k.meddler(s))
		})

		It("is not updated by whoever made it", func(ctx SpecContext) {
			for f, v := range k.change {
				Expect(env.Client(k.by(s)).Update(ctx, set(o.DeepCopy(), v, "spec", f))).To(MatchError(ContainSubstring("cannot update resource")))
			}
		})

		It("does not change for a user with every right, an administrator or the operator", func(ctx SpecContext) {
			for f, v := range k.change {
				for _, c := range []client.Client{meddler, env.Admin()} {
					// The rule of the CRD comes first; either may answer.
					Expect(c.Update(ctx, set(o.DeepCopy(), v, "spec", f))).To(MatchError(ContainSubstring("never changes")))
				}
			}
			Expect(env.Client(operator).Update(ctx, o.DeepCopy())).To(MatchError(ContainSubstring("cannot update resource")))
		})

		It("does not get a key it never had", func(ctx SpecContext) {
			Expect(meddler.Update(ctx, set(o.DeepCopy(), "x", "spec", "undeclared"))).To(MatchError(ContainSubstring("never changes")))
			Expect(env.Admin().Update(ctx, set(o.DeepCopy(), "x", "spec", "undeclared"))).To(MatchError(ContainSubstring("never changes")))
		})

		DescribeTable("keeps its metadata", func(ctx SpecContext, change func(*unstructured.Unstructured)) {
			changed := o.DeepCopy()
			change(changed)
			Expect(meddler.Update(ctx, changed)).To(unchangedOr("ctrlrun-metadata"))
		},
			Entry("label", func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{"a": "b"}) }),
			Entry("annotation", func(o *unstructured.Unstructured) { o.SetAnnotations(map[string]string{"a": "b"}) }),
			Entry("reserved label", func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{"ctrlrun.dev/canary": "true"}) }),
			Entry("finalizer", func(o *unstructured.Unstructured) { o.SetFinalizers([]string{"example.com/hold"}) }),
			Entry("owner", func(o *unstructured.Unstructured) {
				o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "x", UID: "y"}})
			}),
		)

		It("keeps its metadata against every kind of patch", func(ctx SpecContext) {
			Expect(mergePatch(ctx, meddler, o, `{"metadata":{"labels":{"a":"b"}}}`)).To(unchangedOr())
			Expect(jsonPatch(ctx, meddler, o, `[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`)).To(unchangedOr())
			labelled := identityOnly(o)
			labelled.SetLabels(map[string]string{"a": "b"})
			Expect(apply(ctx, meddler, "somebody", labelled)).To(unchangedOr())
			// Even to own a field that stays as it is would change the object. The list of owners is there to be made once.
			same := identityOnly(o)
			for f := range k.change {
				set(same, get(o, "spec", f), "spec", f)
			}
			Expect(apply(ctx, meddler, "somebody", same.DeepCopy())).To(Succeed())
			Expect(apply(ctx, meddler, "somebody-else", same)).To(unchangedOr())
		})

		It("gets no finalizer and no owner from an administrator either", func(ctx SpecContext) {
			Expect(mergePatch(ctx, env.Admin(), o, `{"metadata":{"finalizers":["example.com/hold"]}}`)).To(deniedBy("ctrlrun-metadata", "no finalizers"))
			Expect(mergePatch(ctx, env.Admin(), o, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"y"}]}}`)).To(deniedBy("ctrlrun-metadata", "no owners"))
		})

		It("has a status that only the operator writes", func(ctx SpecContext) {
			patch := statusMessage
			if k.kind == "Action" {
				patch = `{"status":{"message":"forged"}}`
			}
			err := meddler.Status().Patch(ctx, o.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(patch)))
			Expect(err).To(deniedBy("ctrlrun-status", "written by the operator only"))
			forged := identityOnly(o)
			set(forged, fields{}, "status")
			Expect(meddler.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(forged), client.FieldOwner("somebody"), client.ForceOwnership)).
				To(deniedBy("ctrlrun-status", "written by the operator only"))
			// By way of the object itself nothing reaches the status.
			through := o.DeepCopy()
			set(through, fields{"conditions": []any{}, "message": "forged"}, "status")
			Expect(meddler.Update(ctx, through)).To(Succeed())
			Expect([]any{get(through, "status")}).To(Equal([]any{get(o, "status")}))

			set(through, []any{fields{"type": "Accepted", "status": "True", "reason": "Accepted", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"}}, "status", "conditions")
			Expect(env.Client(operator).Status().Update(ctx, through)).To(Succeed())
		})

		It("passes an update that changes nothing, as storage migration makes it", func(ctx SpecContext) {
			// The first one may write: a default that was filled in on reading becomes part of what is stored.
			Expect(meddler.Update(ctx, o)).To(Succeed())
			migrated := identityOnly(o)
			migrated.SetUID(o.GetUID())
			migrated.SetResourceVersion(o.GetResourceVersion())
			Expect(apply(ctx, meddler, "storage-version-migrator-controller", migrated)).To(Succeed())
			Expect(meddler.Get(ctx, client.ObjectKeyFromObject(o), migrated)).To(Succeed())
			// It brings at most who owns which field.
			for _, x := range []*unstructured.Unstructured{o, migrated} {
				x.SetManagedFields(nil)
				x.SetResourceVersion("")
			}
			Expect(migrated).To(Equal(o))
		})
	})

	// Some of these pass the rule of the CRD and some the policy; none passes both.
	DescribeTable("keeps its arguments: an Action does not change by", func(ctx SpecContext, before, after fields) {
		k := statementKinds[0]
		o := set(k.valid(s, s.agent), before, "spec", "arguments")
		Expect(env.Client(s.agent).Create(ctx, o)).To(Succeed())
		changed := o.DeepCopy()
		set(changed, after, "spec", "arguments")
		for _, c := range []client.Client{env.Client(s.wildcard), env.Admin()} {
			Expect(c.Update(ctx, changed.DeepCopy())).To(MatchError(ContainSubstring("never changes")))
		}
		now := identityOnly(o)
		Expect(env.Client(s.agent).Get(ctx, client.ObjectKeyFromObject(o), now)).To(Succeed())
		Expect(get(now, "spec", "arguments")).To(Equal(get(o, "spec", "arguments")))
	},
		Entry("another value", fields{"amount": int64(2000)}, fields{"amount": int64(5000)}),
		Entry("another name of a value", fields{"amount": int64(2000)}, fields{"amouny": int64(2000)}),
		Entry("another name and another value", fields{"amount": int64(2000)}, fields{"total": int64(5000)}),
		Entry("a nested value", fields{"a": fields{"b": int64(1)}}, fields{"a": fields{"b": int64(2)}}),
		Entry("a nested name", fields{"a": fields{"b": int64(1)}}, fields{"a": fields{"c": int64(1)}}),
		Entry("a name within a list", fields{"a": []any{fields{"b": int64(1)}}}, fields{"a": []any{fields{"c": int64(1)}}}),
		Entry("the order of a list", fields{"a": []any{"x", "y"}}, fields{"a": []any{"y", "x"}}),
		Entry("true for 1", fields{"a": int64(1)}, fields{"a": true}),
		Entry("1 for true", fields{"a": true}, fields{"a": int64(1)}),
		Entry(`"1" for 1`, fields{"a": int64(1)}, fields{"a": "1"}),
		Entry("null for a value", fields{"a": "x"}, fields{"a": nil}),
		Entry("nothing for null", fields{"a": nil, "b": "x"}, fields{"b": "x"}),
		Entry("one argument more", fields{"a": "x"}, fields{"a": "x", "b": "y"}),
		Entry("no arguments", fields{"a": "x"}, fields{}),
	)

	DescribeTable("keeps the types of its arguments, however the change is sent", func(ctx SpecContext, number string) {
		k := statementKinds[0]
		o := set(k.valid(s, s.agent), fields{"amount": int64(1)}, "spec", "arguments")
		Expect(env.Client(s.agent).Create(ctx, o)).To(Succeed())
		patch := fmt.Sprintf(`{"spec":{"arguments":{"amount":%s}}}`, number)
		Expect(mergePatch(ctx, env.Client(s.wildcard), o, patch)).To(MatchError(ContainSubstring("never changes")))
	},
		Entry("1.5", "1.5"),
		Entry("1e1", "1e1"),
		Entry("a text", `"1"`),
	)

	It("keeps who made it, whatever is undeclared beside it", func(ctx SpecContext) {
		k := statementKinds[0]
		o := k.make(ctx, s)
		principal := maps.Clone(get(o, "spec", "principal").(fields))
		principal["user"] = "alice"
		Expect(env.Client(s.wildcard).Update(ctx, set(o.DeepCopy(), principal, "spec", "principal"))).To(MatchError(ContainSubstring("never changes")))
		delete(principal, "user")
		principal["usr"] = "alice"
		Expect(env.Client(s.wildcard).Update(ctx, set(o.DeepCopy(), principal, "spec", "principal"))).To(MatchError(ContainSubstring("never changes")))
	})
})

var _ = Describe("A status of configuration", func() {
	DescribeTable("is written by the operator only", func(ctx SpecContext, kind, name string, spec fields) {
		s := theStage()
		ns := env.Namespace(GinkgoT(), nil)
		o := object(kind, ns, name, spec)
		Expect(env.Admin().Create(ctx, o)).To(Succeed())
		Expect(get(o, "status", "observedGeneration")).To(Equal(int64(-1)))
		forge := func(u testenv.User) error {
			return env.Client(u).Status().Update(ctx, set(o.DeepCopy(), int64(1), "status", "observedGeneration"))
		}
		Expect(forge(s.editor)).To(deniedBy("ctrlrun-status", "written by the operator only"))
		Expect(forge(operator)).To(Succeed())
	},
		Entry("ActionPolicy", "ActionPolicy", "p", fields{"actions": fields{}}),
		Entry("Settings", "Settings", "default", fields{}),
		Entry("Grant", "Grant", "g", terms(nil)),
		Entry("PolicyProposal", "PolicyProposal", "pp", proposed(nil)),
	)

	It("does not come with a new object", func(ctx context.Context) {
		o := object("ActionPolicy", env.Namespace(GinkgoT(), nil), "p", fields{"actions": fields{}})
		set(o, int64(1), "status", "observedGeneration")
		Expect(env.Admin().Create(ctx, o)).To(Succeed())
		Expect(get(o, "status", "observedGeneration")).To(Equal(int64(-1)))
	})
})
