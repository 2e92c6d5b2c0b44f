package oversight

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/controllers"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/precondition"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/test/testenv"
)

const allowed = `{"stripe.refund": {"effect": "refund:{payment_id}", "decision": "allow"}}`

// limits is a ConfigMap, and the right to get it of whoever is named.
func (s *scene) limits(data map[string]string, readers ...testenv.User) *corev1.ConfigMap {
	GinkgoHelper()
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "limits"}, Data: data}
	Expect(env.Admin().Create(ctx, o)).To(Succeed())
	for _, u := range readers {
		s.mayGetLimits(u)
	}
	return o
}

func (s *scene) mayGetLimits(u testenv.User) {
	GinkgoHelper()
	Expect(env.Allow(ctx, s.ns, u, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{"limits"}, Verbs: []string{"get"}})).To(Succeed())
}

func maxOfLimits() v1alpha1.Precondition {
	return v1alpha1.Precondition{APIVersion: "v1", Kind: "ConfigMap", Name: "limits", Pointer: "/data/max"}
}

// resting proposes a refund that rests on parts of objects.
func (s *scene) resting(on ...v1alpha1.Precondition) *v1alpha1.Action {
	GinkgoHelper()
	o := &v1alpha1.Action{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, GenerateName: "act-"},
		Spec: v1alpha1.ActionSpec{
			ActionType: kind, Arguments: apiextensionsv1.JSON{Raw: []byte(`{"payment_id":"` + unique("txn") + `"}`)}, Preconditions: on,
		},
	}
	Expect(env.Client(s.agent).Create(ctx, o)).To(Succeed())
	return o
}

// fingerprint is what the receipt of an Action has to say of limits as they are now.
func (s *scene) fingerprint(o *corev1.ConfigMap) string {
	GinkgoHelper()
	now := &corev1.ConfigMap{}
	Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(o), now)).To(Succeed())
	f, err := precondition.Fingerprint([]precondition.Part{{
		Ref: precondition.Ref{APIVersion: "v1", Kind: "ConfigMap", Name: "limits", Pointer: "/data/max"}, UID: string(now.UID), Value: now.Data["max"],
	}})
	Expect(err).NotTo(HaveOccurred())
	return f
}

func (s *scene) setMax(o *corev1.ConfigMap, value string) {
	GinkgoHelper()
	Expect(env.Admin().Patch(ctx, o, client.RawPatch("application/merge-patch+json", []byte(`{"data":{"max":"`+value+`"}}`)))).To(Succeed())
}

var _ = Describe("What an Action rests on", func() {
	var s *scene
	var alice testenv.User
	BeforeEach(func() {
		s = newScene(one)
		alice = s.approvers("alice")[0]
	})
	readers := func() []testenv.User { return []testenv.User{s.agent, testenv.OperatorUser()} }

	It("is noted when people are asked, compared before its effect is reserved, and on record", func() {
		limits := s.limits(map[string]string{"max": "100", "other": "1"}, readers()...)
		a := s.reaches(s.resting(maxOfLimits()), v1alpha1.ActionAwaitingApproval)
		then := s.fingerprint(limits)
		Expect(*a.Status.Preconditions).To(Equal(v1alpha1.ActionPreconditions{AtRequest: then}))
		Expect(env.Admin().Patch(ctx, limits, client.RawPatch("application/merge-patch+json", []byte(`{"data":{"other":"2"}}`)))).To(Succeed())

		_, d := s.executed(a, s.approve(alice, a))
		Expect(d.Preconditions).To(Equal([]receipt.Precondition{{APIVersion: "v1", Kind: "ConfigMap", Name: "limits", Pointer: "/data/max"}}))
		Expect(d.PreconditionAtRequest).To(Equal(then))
		Expect(d.PreconditionAtRecheck).To(Equal(then))
		Expect(*s.get(a).Status.Preconditions).To(Equal(v1alpha1.ActionPreconditions{AtRequest: then, AtRecheck: then}))
	})

	It("keeps an approved Action from its effect once it is another, and spends no approval", func() {
		limits := s.limits(map[string]string{"max": "100"}, readers()...)
		a := s.reaches(s.resting(maxOfLimits()), v1alpha1.ActionAwaitingApproval)
		then := s.fingerprint(limits)
		yes := s.approve(alice, a)
		a = s.reaches(a, v1alpha1.ActionClaimable)
		s.setMax(limits, "50")
		s.claim(a)

		a = s.reaches(a, v1alpha1.ActionBlocked)
		Expect(a.Status.Reason).To(Equal(string(decision.PreconditionChanged)))
		Expect(a.Status.Message).To(ContainSubstring("v1/ConfigMap/limits#/data/max"))
		Expect(a.Status.Message).NotTo(Or(ContainSubstring("100"), ContainSubstring("50")))
		Expect(a.Status.Execution).To(BeNil())
		Expect(said(a)).To(ContainElement("APPROVAL_INVALIDATED precondition_changed"))
		s.noEffect(a)
		d := s.receiptOf(a)
		Expect(d.Result).To(Equal(decision.Blocked))
		Expect(d.PreconditionAtRequest).To(Equal(then))
		Expect(d.PreconditionAtRecheck).To(Equal(s.fingerprint(limits)))
		Expect(d.PreconditionAtRecheck).NotTo(Equal(then))
		Expect(d.Approvals).To(BeEmpty())
		expectAccepted(yes)
		s.chainHolds()
	})

	It("is compared with each yes: whoever says it looks at what is there then", func() {
		limits := s.limits(map[string]string{"max": "100"}, readers()...)
		a := s.reaches(s.resting(maxOfLimits()), v1alpha1.ActionAwaitingApproval)
		s.setMax(limits, "50")
		s.approve(alice, a)
		Expect(s.reaches(a, v1alpha1.ActionBlocked).Status.Reason).To(Equal(string(decision.PreconditionChanged)))
		s.setMax(limits, "100")
		Expect(s.get(a).Status.State).To(Equal(v1alpha1.ActionBlocked))
	})

	It("may change and change back while nobody looks", func() {
		limits := s.limits(map[string]string{"max": "100"}, readers()...)
		a := s.reaches(s.resting(maxOfLimits()), v1alpha1.ActionAwaitingApproval)
		s.setMax(limits, "50")
		s.setMax(limits, "100")
		s.executed(a, s.approve(alice, a))
	})

	It("is compared before people are asked about an Action that waited for a process before", func() {
		s.policy(allowed)
		limits := s.limits(map[string]string{"max": "100"}, readers()...)
		a := s.reaches(s.resting(maxOfLimits()), v1alpha1.ActionClaimable)
		s.setMax(limits, "50")
		s.policy(one)
		a = s.reaches(a, v1alpha1.ActionBlocked)
		Expect(a.Status.Reason).To(Equal(string(decision.PreconditionChanged)))
		Expect(a.Status.Approval).To(BeNil(), "nobody was asked")
	})

	It("may be the Namespace itself, by a Role in it", func() {
		for _, u := range readers() {
			Expect(env.Allow(ctx, s.ns, u, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{s.ns}, Verbs: []string{"get"}})).To(Succeed())
		}
		s.reaches(s.resting(v1alpha1.Precondition{APIVersion: "v1", Kind: "Namespace", Name: s.ns, Pointer: "/metadata/labels"}), v1alpha1.ActionAwaitingApproval)
	})

	It("is another once the object was deleted and made again", func() {
		limits := s.limits(map[string]string{"max": "100"}, readers()...)
		a := s.reaches(s.resting(maxOfLimits()), v1alpha1.ActionAwaitingApproval)
		s.approve(alice, a)
		a = s.reaches(a, v1alpha1.ActionClaimable)
		Expect(env.Admin().Delete(ctx, limits)).To(Succeed())
		s.limits(map[string]string{"max": "100"})
		s.claim(a)
		Expect(s.reaches(a, v1alpha1.ActionBlocked).Status.Reason).To(Equal(string(decision.PreconditionChanged)))
		s.noEffect(a)
	})

	DescribeTable("keeps an approved Action from its effect where it cannot be compared", func(undo func(limits *corev1.ConfigMap), says string) {
		limits := s.limits(map[string]string{"max": "100", "other": "1"}, readers()...)
		a := s.reaches(s.resting(maxOfLimits()), v1alpha1.ActionAwaitingApproval)
		s.approve(alice, a)
		a = s.reaches(a, v1alpha1.ActionClaimable)
		undo(limits)
		s.claim(a)
		a = s.reaches(a, v1alpha1.ActionBlocked)
		Expect(a.Status.Reason).To(Equal(string(decision.PreconditionUnavailable)))
		Expect(a.Status.Message).To(ContainSubstring(says))
		s.noEffect(a)
		d := s.receiptOf(a)
		Expect(d.PreconditionAtRequest).NotTo(BeEmpty())
		Expect(d.PreconditionAtRecheck).To(BeEmpty())
	},
		Entry("because the object is gone", func(o *corev1.ConfigMap) { Expect(env.Admin().Delete(ctx, o)).To(Succeed()) }, `ConfigMap "limits" does not exist`),
		Entry("because the part is gone", func(o *corev1.ConfigMap) {
			Expect(env.Admin().Patch(ctx, o, client.RawPatch("application/json-patch+json", []byte(`[{"op":"remove","path":"/data/max"}]`)))).To(Succeed())
		}, `ConfigMap "limits" has nothing at "/data/max"`),
	)

	DescribeTable("has to be there before anybody is asked", func(on v1alpha1.Precondition, says string) {
		s.limits(map[string]string{"max": "100"}, readers()...)
		Expect(env.Allow(ctx, s.ns, s.agent, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps", "services"}, Verbs: []string{"get"}})).To(Succeed())
		a := s.reaches(s.resting(on), v1alpha1.ActionDenied)
		Expect(a.Status.Reason).To(Equal(string(decision.PreconditionUnavailable)))
		Expect(a.Status.Message).To(ContainSubstring(says))
		Expect(a.Status.Decision).To(Equal(v1alpha1.DecisionRequireApproval), "the policy did not deny it")
		Expect(a.Status.Approval).To(BeNil())
		d := s.receiptOf(a)
		Expect(d.Result).To(Equal(decision.Denied))
		Expect(d.Decision).To(Equal(decision.Approve))
		Expect(d.PreconditionAtRequest).To(BeEmpty())
	},
		Entry("a part that is not there", v1alpha1.Precondition{APIVersion: "v1", Kind: "ConfigMap", Name: "limits", Pointer: "/data/min"}, `ConfigMap "limits" has nothing at "/data/min"`),
		Entry("a kind that nobody knows", v1alpha1.Precondition{APIVersion: "shop.example/v1", Kind: "Order", Name: "limits", Pointer: "/spec"}, "knows no kind Order of shop.example/v1"),
		Entry("a kind that cannot be read", v1alpha1.Precondition{APIVersion: "authorization.k8s.io/v1", Kind: "LocalSubjectAccessReview", Name: "x", Pointer: "/spec"}, "may not get localsubjectaccessreviews.authorization.k8s.io"),
		Entry("a subresource", v1alpha1.Precondition{APIVersion: "v1", Kind: "PodExecOptions", Name: "x", Pointer: "/spec"}, "knows no kind PodExecOptions of v1"),
		Entry("a version that nobody serves", v1alpha1.Precondition{APIVersion: "v7", Kind: "ConfigMap", Name: "limits", Pointer: "/data"}, "knows no kind ConfigMap of v7"),
		Entry("an object the operator may not get", v1alpha1.Precondition{APIVersion: "v1", Kind: "Service", Name: "web", Pointer: "/spec"}, `the operator may not get services "web"`),
	)

	It("is an object that the agent may get: it learns through no fingerprint what it may not read", func() {
		s.limits(map[string]string{"max": "100"}, testenv.OperatorUser())
		a := s.reaches(s.resting(maxOfLimits()), v1alpha1.ActionDenied)
		Expect(a.Status.Reason).To(Equal(string(decision.PreconditionUnavailable)))
		Expect(a.Status.Message).To(ContainSubstring(s.agent.Name + ` may not get configmaps "limits"`))
		Expect(a.Status.Preconditions).To(BeNil())
	})

	It("holds no fraction", func() {
		Expect(env.Allow(ctx, "", s.agent, rbacv1.PolicyRule{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"}, Verbs: []string{"get"}})).To(Succeed())
		Expect(env.Allow(ctx, "", testenv.OperatorUser(), rbacv1.PolicyRule{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"}, Verbs: []string{"get"}})).To(Succeed())
		name := unique("ratio")
		name = "ratios" + name[len("ratio_"):] + ".example.com"
		crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}}
		half := 0.5
		plural := name[:len(name)-len(".example.com")]
		crd.Spec = apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: "Ratio", ListKind: "RatioList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{
				OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"ratio": {Type: "number", Minimum: &half}}},
			}}},
		}
		Expect(env.Admin().Create(ctx, crd)).To(Succeed())
		DeferCleanup(func() { Expect(env.Admin().Delete(ctx, crd)).To(Succeed()) })
		a := s.reaches(s.resting(v1alpha1.Precondition{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition", Name: name, Pointer: "/spec/versions/0/schema"}), v1alpha1.ActionDenied)
		Expect(a.Status.Message).To(ContainSubstring("has no canonical form: it holds a number"))
		// The same object, of the whole cluster, without the fraction.
		s.reaches(s.resting(v1alpha1.Precondition{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition", Name: name, Pointer: "/spec/names"}), v1alpha1.ActionAwaitingApproval)
	})

	It("is asked for again while the apiserver does not answer, and nothing is denied for that", func() {
		service := apiService("orders.example.com", map[string]any{"namespace": s.ns, "name": "nobody", "port": int64(443)})
		Expect(env.Admin().Create(ctx, service)).To(Succeed())
		DeferCleanup(func() { Expect(client.IgnoreNotFound(env.Admin().Delete(ctx, service))).To(Succeed()) })
		a := s.resting(v1alpha1.Precondition{APIVersion: "orders.example.com/v1", Kind: "Order", Name: "o1", Pointer: "/spec"})
		Eventually(func(g Gomega) {
			now := s.get(a)
			g.Expect(now.Status.State).To(Equal(v1alpha1.ActionPending), now.Status.Message)
			g.Expect(now.Status.Reason).To(Equal(string(decision.PreconditionUnavailable)), now.Status.Message)
			g.Expect(now.Status.Message).To(ContainSubstring("cannot be compared at present"))
		}).Should(Succeed())
		Expect(env.Admin().Delete(ctx, service)).To(Succeed())
		Expect(s.reaches(a, v1alpha1.ActionDenied).Status.Message).To(ContainSubstring("knows no kind Order"))
	})

	It("is compared as well where nobody has to be asked, but a process was waited for", func() {
		s.policy(allowed)
		limits := s.limits(map[string]string{"max": "100"}, readers()...)
		a := s.reaches(s.resting(maxOfLimits()), v1alpha1.ActionClaimable)
		Expect(a.Status.Preconditions.AtRequest).To(Equal(s.fingerprint(limits)))
		s.setMax(limits, "50")
		s.claim(a)
		Expect(s.reaches(a, v1alpha1.ActionBlocked).Status.Reason).To(Equal(string(decision.PreconditionChanged)))
		s.noEffect(a)
	})

	It("is compared by the operator that takes over", func() {
		limits := s.limits(map[string]string{"max": "100"}, readers()...)
		a := s.reaches(s.resting(maxOfLimits()), v1alpha1.ActionAwaitingApproval)
		s.approve(alice, a)
		a = s.reaches(a, v1alpha1.ActionClaimable)
		Expect(operator.Stop()).To(Succeed())
		s.setMax(limits, "50")
		s.claim(a)
		operator = startOperator(controllers.Options{})
		Expect(s.reaches(a, v1alpha1.ActionBlocked).Status.Reason).To(Equal(string(decision.PreconditionChanged)))
	})

	It("is compared in observe mode too, and what would have happened is on record", func() {
		s.policy(allowed)
		observe := v1alpha1.ModeObserve
		o := &v1alpha1.Settings{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: v1alpha1.SettingsName}, Spec: v1alpha1.SettingsSpec{Mode: &observe}}
		Expect(env.Client(s.owner).Create(ctx, o)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
			g.Expect(o.Status.ObservedGeneration).To(Equal(o.Generation))
		}).Should(Succeed())
		limits := s.limits(map[string]string{"max": "100"}, readers()...)
		a := s.reaches(s.resting(maxOfLimits()), v1alpha1.ActionClaimable)
		s.setMax(limits, "50")
		s.claim(a)
		a = s.reaches(a, v1alpha1.ActionAdmitted)
		Expect(a.Status.WouldHave.BlockedReason).To(Equal(string(decision.PreconditionChanged)))
		s.report(a, v1alpha1.OutcomeCommitted)
		s.reaches(a, v1alpha1.ActionObserved)
		d := s.receiptOf(a)
		Expect(d.WouldHave.BlockedReason).To(Equal(string(decision.PreconditionChanged)))
		Expect(d.PreconditionAtRecheck).To(Equal(s.fingerprint(limits)))
	})

	It("has fingerprints that are written once, by the operator too", func() {
		limits := s.limits(map[string]string{"max": "100"}, readers()...)
		a := s.reaches(s.resting(maxOfLimits()), v1alpha1.ActionAwaitingApproval)
		another := a.DeepCopy()
		another.Status.Preconditions.AtRequest = "sha256:" + strings.Repeat("0", 64)
		Expect(env.Client(testenv.OperatorUser()).Status().Update(ctx, another)).To(MatchError(ContainSubstring("a fingerprint is written once")))
		another = s.get(a)
		another.Status.Preconditions = nil
		Expect(env.Client(testenv.OperatorUser()).Status().Update(ctx, another)).To(MatchError(ContainSubstring("a fingerprint is written once")))
		Expect(s.get(a).Status.Preconditions.AtRequest).To(Equal(s.fingerprint(limits)))
	})
})
