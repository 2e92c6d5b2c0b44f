package execution

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/test/testenv"
)

var _ = Describe("making an Executor", func() {
	It("takes the right to be its ServiceAccount", func() {
		s := newScene()
		o := s.executor("refunds", func(spec *v1alpha1.ExecutorSpec) { spec.ServiceAccountName = "default" })
		refused(env.Client(s.admin).Create(ctx, o), `serviceaccounts/token "default"`)
		Expect(env.Client(s.admin).Create(ctx, s.executor("refunds"))).To(Succeed())
	})

	It("cannot be undone by changing it", func() {
		s := newScene()
		o := s.executes(s.executor("refunds"))
		o.Spec.HTTP.URL += "/x"
		refused(env.Client(s.admin).Update(ctx, o), "does not change")
		o = s.executor("refunds")
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"http":{"headers":[{"name":"Authorization","value":"none"}]}}}`))
		refused(env.Client(s.admin).Patch(ctx, o, patch), "does not change")
		patch = client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"team":"payments"}}}`))
		Expect(env.Client(s.admin).Patch(ctx, o, patch)).To(Succeed())
	})

	It("is judged by the operator alone", func() {
		s := newScene()
		o := s.executes(s.executor("refunds"))
		s.may(s.admin, rbacv1.PolicyRule{APIGroups: []string{"ctrlrun.dev"}, Resources: []string{"executors/status"}, Verbs: []string{"update"}})
		o.Status.Hash = "sha256:0"
		refused(env.Client(s.admin).Status().Update(ctx, o), "written by the operator only")
	})

	It("takes the verb govern where policy changes are proposed", func() {
		s := newScene()
		maker := testenv.User{Name: "maker"}
		s.may(maker, rbacv1.PolicyRule{APIGroups: []string{"ctrlrun.dev"}, Resources: []string{"executors"}, Verbs: []string{"create", "delete"}})
		s.may(maker, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, Verbs: []string{"create"}})
		proposed := v1alpha1.PolicyChangesProposed
		settings := &v1alpha1.Settings{Spec: v1alpha1.SettingsSpec{PolicyChanges: &proposed}}
		settings.Namespace, settings.Name = s.ns, v1alpha1.SettingsName
		Expect(env.Client(s.admin).Create(ctx, settings)).To(Succeed())
		Eventually(func() error { return env.Client(maker).Create(ctx, s.executor("refunds"), client.DryRunAll) }).Should(MatchError(ContainSubstring("made and deleted by those who govern there")))
		Expect(env.Client(s.admin).Create(ctx, s.executor("refunds"))).To(Succeed())
		refused(env.Client(maker).Delete(ctx, s.executor("refunds")), "made and deleted by those who govern there")
	})

	It("is as easy as the samples say", func() {
		s := newScene()
		objects, err := env.Render(ctx, "config/samples/executors")
		Expect(err).NotTo(HaveOccurred())
		var account, executor bool
		for _, o := range objects {
			account, executor = account || o.GetKind() == "ServiceAccount", executor || o.GetKind() == "Executor"
			o.SetNamespace(s.ns)
			if o.GetKind() == "ServiceAccount" {
				continue // the scene has one of that name
			}
			Expect(env.Admin().Create(ctx, o)).To(Succeed())
			if o.GetKind() == "Executor" {
				Eventually(func(g Gomega) {
					x := &v1alpha1.Executor{}
					g.Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(o), x)).To(Succeed())
					g.Expect(meta.IsStatusConditionTrue(x.Status.Conditions, v1alpha1.ReadyCondition)).To(BeTrue(), "%+v", x.Status.Conditions)
				}).Should(Succeed())
			}
		}
		Expect(account && executor).To(BeTrue())
	})

	DescribeTable("refuses",
		func(change func(spec map[string]any), text string) {
			s := newScene()
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(s.executor("refunds"))
			Expect(err).NotTo(HaveOccurred())
			delete(content, "status")
			change(content["spec"].(map[string]any))
			o := &unstructured.Unstructured{Object: content}
			o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Executor"))
			refused(env.Client(s.admin).Create(ctx, o), text)
		},
		Entry("a key that is misspelt", func(spec map[string]any) { spec["actionType"] = "x" }, "unknown: spec.actionType"),
		Entry("a key in http that is misspelt", func(spec map[string]any) { httpOf(spec)["timeout"] = int64(3) }, "unknown: spec.http.timeout"),
		Entry("a key in a header that is misspelt", func(spec map[string]any) { header(spec)["valueForm"] = "x" }, "Authorization"),
		Entry("a blank key", func(spec map[string]any) { httpOf(spec)["notExecuted"] = nil }, "without a value: spec.http.notExecuted"),
		Entry("no way to execute", func(spec map[string]any) { delete(spec, "http") }, "exactly one of"),
		Entry("two ways to execute", func(spec map[string]any) {
			spec["job"] = map[string]any{"template": map[string]any{}, "timeoutSeconds": int64(10)}
		}, "exactly one of"),
		Entry("what the operator itself carries out", func(spec map[string]any) { spec["actionTypes"] = []any{"ctrlrun.policy.change"} }, "carried out by the operator itself"),
		Entry("a header that names an argument", func(spec map[string]any) { header(spec)["name"] = "X-{payment_id}" }, "name"),
		Entry("a committed status that says otherwise", func(spec map[string]any) { httpOf(spec)["committed"] = []any{int64(500)} }, "committed"),
		Entry("a status that would be both", func(spec map[string]any) { httpOf(spec)["notExecuted"] = []any{int64(200)} }, "notExecuted"),
		Entry("no type", func(spec map[string]any) { spec["actionTypes"] = []any{} }, "actionTypes"),
		Entry("more types than there may be", func(spec map[string]any) {
			var types []any
			for i := range 65 {
				types = append(types, fmt.Sprintf("t.%d", i))
			}
			spec["actionTypes"] = types
		}, "actionTypes"),
	)
})

func httpOf(spec map[string]any) map[string]any { return spec["http"].(map[string]any) }

func header(spec map[string]any) map[string]any {
	return httpOf(spec)["headers"].([]any)[0].(map[string]any)
}
