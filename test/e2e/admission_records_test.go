package e2e

import (
	"context"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/test/testenv"
)

// recordKind is one of the kinds that hold what the operator concluded.
type recordKind struct {
	kind    string
	valid   func(namespace string) *unstructured.Unstructured
	change  string // a merge patch that the schema accepts
	cluster bool
}

func executing() fields {
	return fields{
		"state": "Executing", "attempt": int64(1), "startedAttempts": int64(1), "actionType": "stripe.refund", "token": uuid.NewString(),
		"holder":              fields{"name": unique("action"), "uid": uuid.NewString(), "agent": "bot"},
		"leaseExpirationTime": someTime, "lastTransitionTime": "2026-01-02T03:04:05Z",
	}
}

func effect(namespace string, status fields) *unstructured.Unstructured {
	name := unique("effect")
	o := object("Effect", namespace, name, fields{"key": "refund:" + name})
	if status != nil {
		o.Object["status"] = status
	}
	return o
}

var recordKinds = []recordKind{
	{
		kind:   "Effect",
		valid:  func(ns string) *unstructured.Unstructured { return effect(ns, executing()) },
		change: `{"status":{"state":"Failed"}}`,
	},
	{
		kind: "Receipt",
		valid: func(ns string) *unstructured.Unstructured {
			return object("Receipt", ns, unique("receipt"), fields{"seq": int64(1), "hash": someHash, "document": "{}", "kind": "action"})
		},
		change: `{"metadata":{"labels":{"a":"b"}}}`,
	},
	{
		kind: "Ledger", cluster: true,
		valid:  func(string) *unstructured.Unstructured { return object("Ledger", "", unique("ledger"), nil) },
		change: `{"metadata":{"labels":{"a":"b"}}}`,
	},
}

var _ = Describe("A record", func() {
	var s *stage
	BeforeEach(func() { s = theStage() })

	for _, k := range recordKinds {
		Context("of kind "+k.kind, func() {
			var o *unstructured.Unstructured
			var meddler client.Client
			BeforeEach(func(ctx SpecContext) {
				o = k.valid(s.namespace)
				Expect(env.Client(operator).Create(ctx, o)).To(Succeed())
				meddler = env.Client(s.wildcard)
				if k.cluster {
					meddler = env.Client(s.editor)
				}
			})

			It("is made by the operator only", func(ctx SpecContext) {
				Expect(meddler.Create(ctx, k.valid(s.namespace))).To(deniedBy("ctrlrun-records", "written by the operator only"))
				Expect(apply(ctx, meddler, "kubectl", k.valid(s.namespace))).To(deniedBy("ctrlrun-records", "written by the operator only"))
				// The same rights in the whole cluster do not make an operator.
				Expect(env.Client(s.editor).Create(ctx, k.valid(s.namespace))).To(deniedBy("ctrlrun-records", "written by the operator only"))
			})

			It("is changed by the operator only", func(ctx SpecContext) {
				refused := deniedBy("ctrlrun-records", "written by the operator only")
				Expect(mergePatch(ctx, meddler, o, k.change)).To(refused)
				Expect(mergePatch(ctx, meddler, o, `{"metadata":{"annotations":{"a":"b"}}}`)).To(refused)
				Expect(jsonPatch(ctx, meddler, o, `[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`)).To(refused)
				labelled := identityOnly(o)
				labelled.SetLabels(map[string]string{"a": "b"})
				Expect(apply(ctx, meddler, "somebody", labelled)).To(refused)
			})

			It("has neither finalizers nor owners, not by the operator or an administrator either", func(ctx SpecContext) {
				for _, c := range []client.Client{env.Client(operator), env.Admin()} {
					held := k.valid(s.namespace)
					held.SetFinalizers([]string{"example.com/hold"})
					Expect(c.Create(ctx, held)).To(deniedBy("ctrlrun-metadata", "no finalizers"))
					owned := k.valid(s.namespace)
					owned.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "x", UID: "y"}})
					Expect(c.Create(ctx, owned)).To(deniedBy("ctrlrun-metadata", "no owners"))
				}
				Expect(mergePatch(ctx, env.Admin(), o, `{"metadata":{"finalizers":["example.com/hold"]}}`)).To(deniedBy("ctrlrun-metadata", "no finalizers"))
				Expect(mergePatch(ctx, meddler, o, `{"metadata":{"finalizers":["example.com/hold"]}}`)).To(deniedByOneOf([]string{"ctrlrun-metadata", "ctrlrun-records"}))
			})

			It("is never deleted, by nobody", func(ctx SpecContext) {
				refused := deniedBy("ctrlrun-records-kept", "never deleted")
				Expect(meddler.Delete(ctx, o)).To(refused)
				Expect(env.Admin().Delete(ctx, o)).To(refused)
				Expect(deleteForeground(ctx, env.Admin(), o)).To(refused)
				Expect(env.Client(operator).Delete(ctx, o)).To(MatchError(ContainSubstring("cannot delete resource")))

				for _, c := range []client.Client{meddler, env.Admin()} {
					options := []client.DeleteAllOfOption{client.MatchingFields{"metadata.name": o.GetName()}}
					if !k.cluster {
						options = append(options, client.InNamespace(s.namespace))
					}
					Expect(c.DeleteAllOf(ctx, identityOnly(o), options...)).To(refused)
				}
				now := identityOnly(o)
				Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(o), now)).To(Succeed())
				Expect(now.GetDeletionTimestamp()).To(BeNil())
				Expect(now.GetResourceVersion()).To(Equal(o.GetResourceVersion()))
			})

			It("passes an update that changes nothing", func(ctx SpecContext) {
				Expect(meddler.Update(ctx, o.DeepCopy())).To(Succeed())
			})
		})
	}

	It("of a ledger has a status that only the operator writes", func(ctx SpecContext) {
		o := recordKinds[2].valid("")
		Expect(env.Client(operator).Create(ctx, o)).To(Succeed())
		set(o, fields{"epoch": int64(0), "seq": int64(1), "hash": someHash, "namespaceUID": "uid"}, "status")
		Expect(env.Client(s.editor).Status().Update(ctx, o.DeepCopy())).To(deniedBy("ctrlrun-status", "written by the operator only"))
		Expect(env.Client(operator).Status().Update(ctx, o)).To(Succeed())
	})

	It("is not made by somebody who holds the operator's verb in a namespace", func(ctx SpecContext) {
		u := testenv.User{Name: unique("pretender")}
		Expect(env.Allow(ctx, s.namespace, u, rbacv1.PolicyRule{
			APIGroups: []string{"ctrlrun.dev"}, Resources: []string{"effects", "ledgers"}, Verbs: []string{"create", "operate"},
		})).To(Succeed())
		Expect(env.Client(u).Create(ctx, effect(s.namespace, executing()))).To(deniedBy("ctrlrun-records"))
	})
})

var _ = Describe("Deleting a statement", func() {
	var s *stage
	BeforeEach(func() { s = theStage() })

	for _, k := range statementKinds[1:] {
		It("of kind "+k.kind+" is the operator's", func(ctx SpecContext) {
			o := k.make(ctx, s)
			meddler := env.Client(k.meddler(s))
			refused := deniedBy("ctrlrun-statements-kept", "deleted by the operator only")
			Expect(env.Client(k.by(s)).Delete(ctx, o)).To(MatchError(ContainSubstring("cannot delete resource")))
			Expect(meddler.Delete(ctx, o)).To(refused)
			options := []client.DeleteAllOfOption{client.MatchingFields{"metadata.name": o.GetName()}}
			if k.namespaced() {
				options = append(options, client.InNamespace(s.namespace))
			}
			Expect(meddler.DeleteAllOf(ctx, identityOnly(o), options...)).To(refused)
			if k.namespaced() {
				Expect(env.Client(operator).Delete(ctx, o)).To(Succeed())
			}
		})
	}

	finish := func(ctx context.Context, o *unstructured.Unstructured) {
		set(o, fields{
			"state": "Denied", "reason": "unknown_action",
			"receiptRef": fields{"name": "chain-000000000001", "seq": int64(1), "hash": someHash},
		}, "status")
		ExpectWithOffset(1, env.Client(operator).Status().Update(ctx, o)).To(Succeed())
	}

	It("of kind Action waits for its receipt, whoever asks", func(ctx SpecContext) {
		o := statementKinds[0].make(ctx, s)
		refused := deniedBy("ctrlrun-statements-kept", "only once it has its receipt")
		for _, c := range []client.Client{env.Client(s.wildcard), env.Client(operator), env.Admin()} {
			Expect(c.Delete(ctx, o)).To(refused)
			Expect(deleteForeground(ctx, c, o)).To(refused)
		}
		for _, c := range []client.Client{env.Client(s.wildcard), env.Admin()} {
			Expect(c.DeleteAllOf(ctx, identityOnly(o), client.InNamespace(s.namespace), client.MatchingFields{"metadata.name": o.GetName()})).To(refused)
		}
		finish(ctx, o)
		Expect(env.Client(s.agent).Delete(ctx, o)).To(MatchError(ContainSubstring("cannot delete resource")))
		Expect(env.Client(operator).Delete(ctx, o)).To(Succeed())
		Expect(apierrors.IsNotFound(env.Admin().Get(ctx, client.ObjectKeyFromObject(o), o))).To(BeTrue())
	})

	It("in the foreground is ended by the garbage collector, which changes nothing else", func(ctx SpecContext) {
		o := statementKinds[0].make(ctx, s)
		finish(ctx, o)
		Expect(deleteForeground(ctx, env.Client(s.wildcard), o)).To(Succeed())
		Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
		Expect(o.GetFinalizers()).To(ConsistOf("foregroundDeletion"))

		collector := env.Client(s.wildcard)
		labelled := o.DeepCopy()
		labelled.SetFinalizers(nil)
		labelled.SetLabels(map[string]string{"a": "b"})
		Expect(collector.Update(ctx, labelled)).To(deniedBy("ctrlrun-statements-unchanged"))
		held := o.DeepCopy()
		held.SetFinalizers([]string{"foregroundDeletion", "example.com/hold"})
		Expect(collector.Update(ctx, held)).To(MatchError(ContainSubstring("finalizers")))
		Expect(mergePatch(ctx, collector, o, `{"metadata":{"finalizers":null}}`)).To(Succeed())
		Expect(apierrors.IsNotFound(env.Admin().Get(ctx, client.ObjectKeyFromObject(o), o))).To(BeTrue())
	})
})

var _ = Describe("A namespace that ends", func() {
	It("lets everything in it go, and nothing new in", func(ctx SpecContext) {
		s := newStage()
		var all []*unstructured.Unstructured
		for _, k := range statementKinds {
			if k.namespaced() {
				all = append(all, k.make(ctx, s))
			}
		}
		for _, k := range recordKinds {
			if !k.cluster {
				o := k.valid(s.namespace)
				Expect(env.Client(operator).Create(ctx, o)).To(Succeed())
				all = append(all, o)
			}
		}
		wildcard := env.Client(s.wildcard)
		for _, o := range all {
			Expect(wildcard.Delete(ctx, o)).To(deniedByOneOf([]string{"ctrlrun-statements-kept", "ctrlrun-records-kept"}))
		}
		Expect(env.Admin().Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}})).To(Succeed())

		set(all[0], fields{"state": "Blocked", "reason": "namespace_terminating"}, "status")
		Expect(env.Client(operator).Status().Update(ctx, all[0])).To(Succeed())

		// The apiserver's admission sees namespaces by a watch.
		Eventually(func() error { return wildcard.Delete(ctx, all[0]) }).WithTimeout(10 * time.Second).Should(Succeed())
		for _, o := range all[1:] {
			// In the foreground the garbage collector comes in between, with an update.
			Expect(deleteForeground(ctx, wildcard, o)).To(Succeed(), o.GetKind())
			Expect(mergePatch(ctx, wildcard, o, `{"metadata":{"labels":{"a":"b"}}}`)).To(deniedByOneOf([]string{"ctrlrun-statements-unchanged", "ctrlrun-records"}))
			Expect(mergePatch(ctx, wildcard, o, `{"metadata":{"finalizers":null}}`)).To(Succeed(), o.GetKind())
			Expect(apierrors.IsNotFound(env.Admin().Get(ctx, client.ObjectKeyFromObject(o), o))).To(BeTrue())
		}
		Expect(env.Client(operator).Create(ctx, effect(s.namespace, executing()))).To(MatchError(ContainSubstring("because it is being terminated")))
	})
})

// Only what is asked of the CRDs is tried, by dry run: the other tests need them.
var _ = Describe("Deleting a CRD", Serial, func() {
	for _, name := range []string{"effects", "receipts", "ledgers", "actions", "delegations", "revocations"} {
		It("of "+name+" needs an annotation first", func(ctx SpecContext) {
			crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name + ".ctrlrun.dev"}}
			refused := deniedBy("ctrlrun-crds-kept", "kubectl annotate crd "+crd.Name+" ctrlrun.dev/allow-uninstall=true")
			Expect(env.Admin().Delete(ctx, crd, client.DryRunAll)).To(refused)
			Expect(env.Admin().DeleteAllOf(ctx, crd, client.DryRunAll, client.MatchingFields{"metadata.name": crd.Name})).To(refused)

			annotate := func(ctx context.Context, value string) {
				patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"ctrlrun.dev/allow-uninstall":`+value+`}}}`))
				Expect(env.Admin().Patch(ctx, crd, patch)).To(Succeed())
			}
			DeferCleanup(func(ctx SpecContext) { annotate(ctx, "null") })
			annotate(ctx, `"no"`)
			Expect(env.Admin().Delete(ctx, crd, client.DryRunAll)).To(refused)
			annotate(ctx, `"true"`)
			Expect(env.Admin().Delete(ctx, crd, client.DryRunAll)).To(Succeed())
		})
	}

	It("of another group is nobody's business here", func(ctx SpecContext) {
		crd := &apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: "effects.example.com"},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
				Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "effects", Kind: "Effect"},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
					Name: "v1", Served: true, Storage: true,
					Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
				}},
			},
		}
		Expect(env.Admin().Create(ctx, crd)).To(Succeed())
		Expect(env.Admin().Delete(ctx, crd)).To(Succeed())
	})
})
