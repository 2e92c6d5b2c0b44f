package e2e

import (
	"maps"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/records"
)

// A list that is filled again and again must not tell of one page what only the one before had: a decoder that does not begin with
// an empty target does that.
var _ = Describe("A list in pages", func() {
	It("gives each object as it is, and leaves those before as they were", func(ctx SpecContext) {
		s := newStage()
		for range 5 {
			statementKinds[0].make(ctx, s)
		}
		all := func() *v1alpha1.ActionList {
			list := &v1alpha1.ActionList{}
			Expect(env.Admin().List(ctx, list, client.InNamespace(s.namespace))).To(Succeed())
			return list
		}
		pending := fields{"state": "Pending", "firstSeq": int64(3)}
		admitted := maps.Clone(pending)
		maps.Copy(admitted, fields{
			"state": "Admitted", "actionHash": someHash, "effect": fields{"name": "e", "key": "k", "attempt": int64(1)},
			"execution": fields{"mode": "Agent", "claimID": uuid.NewString(), "token": "t", "leaseExpirationTime": someTime, "admissionTime": someTime},
		})
		// The first page has what the others lack.
		for _, a := range all().Items[:2] {
			for _, status := range []fields{pending, admitted} {
				o := object("Action", a.Namespace, a.Name, nil)
				Expect(env.Client(operator).Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
				o.Object["status"] = status
				Expect(env.Client(operator).Status().Update(ctx, o)).To(Succeed())
			}
		}
		want := all().Items
		Expect(want).To(HaveLen(5))
		Expect(want[1].Status.Execution).NotTo(BeNil())

		var got []v1alpha1.Action
		page, pages := &v1alpha1.ActionList{}, 0
		Expect(records.EachPage(ctx, env.Admin(), page, func() error {
			pages++
			got = append(got, page.Items...)
			return nil
		}, client.InNamespace(s.namespace), client.Limit(2))).To(Succeed())
		Expect(pages).To(Equal(3))
		for i := range want {
			Expect(got[i].Name).To(Equal(want[i].Name))
			Expect(got[i].Status).To(Equal(want[i].Status), "%d", i)
		}
		Expect(got).To(HaveLen(len(want)))
	})

	It("ends, of built-in kinds too", func(ctx SpecContext) {
		ns := env.Namespace(GinkgoT(), nil)
		for _, name := range []string{"a", "b", "c"} {
			Expect(env.Admin().Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}})).To(Succeed())
		}
		var got []string
		page := &corev1.ConfigMapList{}
		Expect(records.EachPage(ctx, env.Admin(), page, func() error {
			for i := range page.Items {
				got = append(got, page.Items[i].Name)
			}
			return nil
		}, client.InNamespace(ns), client.Limit(1))).To(Succeed())
		Expect(got).To(Equal([]string{"a", "b", "c"}))
	})
})
