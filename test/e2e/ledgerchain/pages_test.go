package ledgerchain

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/controllers/records"
	"ctrlrun.dev/operator/test/testenv"
)

var _ = Describe("a list of several pages", func() {
	It("gives each object as it is, and takes nothing back that it gave before", func(ctx SpecContext) {
		ns := namespace()
		agent := testenv.ServiceAccountUser(ns, "refund-agent")
		Expect(env.Grant(ctx, ns, "ctrlrun-agent", agent)).To(Succeed())
		for name, claimed := range map[string]bool{"a": true, "b": false, "c": true} {
			o := &v1alpha1.Action{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
			o.Spec = v1alpha1.ActionSpec{ActionType: "stripe.refund", Arguments: apiextensionsv1.JSON{Raw: []byte(`{}`)}}
			if claimed {
				o.Labels = map[string]string{"of": name}
				at := metav1.NewTime(time.Now().Add(time.Hour))
				o.Spec.NotAfter = &at
			}
			Expect(env.Client(agent).Create(ctx, o)).To(Succeed())
		}
		var all []v1alpha1.Action
		pages := 0
		Expect(records.EachPage(ctx, env.Admin(), "actions", 1, func() *v1alpha1.ActionList { return &v1alpha1.ActionList{} }, func(page *v1alpha1.ActionList) error {
			pages++
			all = append(all, page.Items...)
			return nil
		}, client.InNamespace(ns))).To(Succeed())
		Expect(pages).To(Equal(3))
		for i, name := range []string{"a", "b", "c"} {
			o := &v1alpha1.Action{}
			Expect(env.Admin().Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, o)).To(Succeed())
			all[i].TypeMeta, o.TypeMeta = metav1.TypeMeta{}, metav1.TypeMeta{}
			Expect(all[i]).To(Equal(*o))
		}
	})
})
