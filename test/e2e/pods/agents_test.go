package pods

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/receipt"
)

const (
	manifests = "config/samples/agents"
	appName   = "app.kubernetes.io/name"
)

// refunds is the namespace that the samples name.
const refunds namespace = "refunds"

// pointTo corrects the provider's URL, as the samples ask whoever applies them to.
func pointTo(o *unstructured.Unstructured, provider string, path ...string) {
	GinkgoHelper()
	containers, found, err := unstructured.NestedSlice(o.Object, path...)
	Expect(err).NotTo(HaveOccurred())
	Expect(found).To(BeTrue())
	corrected := 0
	for _, variable := range containers[0].(map[string]any)["env"].([]any) {
		if v := variable.(map[string]any); v["name"] == "PROVIDER_URL" {
			v["value"], corrected = provider, corrected+1
		}
	}
	Expect(corrected).To(Equal(1))
	Expect(unstructured.SetNestedSlice(o.Object, containers, path...)).To(Succeed())
}

// deploy applies the samples as they say: the namespace, the policies, and the agents.
func deploy(ctx context.Context, p *provider) {
	GinkgoHelper()
	agents, err := env.Render(ctx, manifests)
	Expect(err).NotTo(HaveOccurred())
	policies, err := env.Render(ctx, manifests+"/policies")
	Expect(err).NotTo(HaveOccurred())
	isNamespace := func(o *unstructured.Unstructured) bool { return o.GetKind() == "Namespace" }
	first := slices.IndexFunc(agents, isNamespace)
	Expect(first).NotTo(Equal(-1))
	for _, objects := range [][]*unstructured.Unstructured{{agents[first]}, policies, agents} {
		for _, o := range objects {
			switch o.GetKind() {
			case "Deployment":
				pointTo(o, p.URL+"/v1/refunds", "spec", "template", "spec", "containers")
			case "CronJob":
				pointTo(o, p.URL+"/v1/payouts", "spec", "jobTemplate", "spec", "template", "spec", "containers")
			}
			Expect(env.Admin().Apply(ctx, client.ApplyConfigurationFromUnstructured(o.DeepCopy()), client.FieldOwner("samples"))).To(Succeed(), "%s %s", o.GetKind(), o.GetName())
		}
	}
}

// request is an item of the list that the Deployment works off.
type request struct {
	Type      string         `json:"actionType"`
	Arguments map[string]any `json:"arguments"`
}

// wants adds refunds to the list, as whoever runs the Deployment does.
func wants(ctx context.Context, amounts map[string]int) {
	GinkgoHelper()
	o := &corev1.ConfigMap{}
	Expect(env.Admin().Get(ctx, client.ObjectKey{Namespace: string(refunds), Name: "refund-requests"}, o)).To(Succeed())
	var all []request
	Expect(json.Unmarshal([]byte(o.Data["refunds.json"]), &all)).To(Succeed())
	for payment, amount := range amounts {
		all = append(all, request{"stripe.refund", map[string]any{"payment_id": payment, "amount": amount}})
	}
	text, err := json.Marshal(all)
	Expect(err).NotTo(HaveOccurred())
	o.Data["refunds.json"] = string(text)
	Expect(env.Admin().Update(ctx, o)).To(Succeed())
}

// payOut makes a Job of the CronJob's template, as `kubectl create job --from` does.
func payOut(ctx context.Context, name string) {
	GinkgoHelper()
	o := &batchv1.CronJob{}
	Expect(env.Admin().Get(ctx, client.ObjectKey{Namespace: string(refunds), Name: "payout-agent"}, o)).To(Succeed())
	Expect(env.Admin().Create(ctx, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.Namespace, Name: name, Labels: o.Spec.JobTemplate.Labels,
			Annotations:     map[string]string{"cronjob.kubernetes.io/instantiate": "manual"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(o, batchv1.SchemeGroupVersion.WithKind("CronJob"))},
		},
		Spec: o.Spec.JobTemplate.Spec,
	})).To(Succeed())
}

// complete waits until a Job is.
func complete(ctx context.Context, name string) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		j := &batchv1.Job{}
		g.Expect(env.Admin().Get(ctx, client.ObjectKey{Namespace: string(refunds), Name: name}, j)).To(Succeed())
		g.Expect(j.Status.Conditions).To(ContainElement(And(HaveField("Type", batchv1.JobComplete), HaveField("Status", corev1.ConditionTrue))), "%+v", j.Status)
		g.Expect(j.Status.Failed).To(BeZero())
	}).Should(Succeed())
}

// The pods are restricted by the namespace's own label, so that they run at all shows that they keep to the standard.
var _ = Describe("the agents of the samples, deployed", Ordered, func() {
	var p *provider
	BeforeAll(func(ctx context.Context) {
		p = newProvider()
		deploy(ctx, p)
		Expect(env.Grant(ctx, string(refunds), "ctrlrun-approver", alice)).To(Succeed())
	}, NodeTimeout(time.Minute))

	// committed expects one effect, by one call of the pod, with the token of the attempt.
	committed := func(ctx context.Context, payment string, pod *corev1.Pod) receipt.Document {
		GinkgoHelper()
		a, d := refunds.ended(ctx, payment, v1alpha1.ActionCommitted)
		proposedBy(d, pod)
		Expect(d.ExecutorMode).To(Equal(receipt.ModeAgent))
		calls := p.of(payment)
		Expect(calls).To(HaveLen(1))
		Expect(calls[0].token).To(And(Not(BeEmpty()), Equal(a.Status.Execution.Token), Equal(d.Token)))
		Expect(calls[0].body).To(MatchJSON(a.Spec.Arguments.Raw))
		return d
	}

	It("work off the Deployment's list, one call each", func(ctx SpecContext) {
		pod := refunds.running(ctx, appName, "refund-agent")
		d := committed(ctx, "txn_1", pod)
		Expect(d.Output).To(Equal(`{"id":"re_txn_1"}`))

		asked := refunds.asked(ctx, "txn_2")
		Expect(p.of("txn_2")).To(BeEmpty())
		refunds.approve(ctx, asked)
		Expect(committed(ctx, "txn_2", pod).Approvals).To(ConsistOf(HaveField("Approver", alice.Name)))
	}, SpecTimeout(2*time.Minute))

	It("make the CronJob's payout of a day once, however often it is started", func(ctx SpecContext) {
		payOut(ctx, "payout-1")
		pod := refunds.running(ctx, batchv1.JobNameLabel, "payout-1")
		var day string
		Eventually(ctx, func(g Gomega) {
			list := &v1alpha1.ActionList{}
			g.Expect(env.Admin().List(ctx, list, client.InNamespace(refunds))).To(Succeed())
			for _, a := range list.Items {
				var arguments struct {
					Day string `json:"day"`
				}
				if a.Spec.ActionType == "stripe.payout" {
					g.Expect(json.Unmarshal(a.Spec.Arguments.Raw, &arguments)).To(Succeed())
					day = arguments.Day
				}
			}
			g.Expect(day).NotTo(BeEmpty())
		}).Should(Succeed())
		refunds.approve(ctx, refunds.asked(ctx, day))
		Expect(committed(ctx, day, pod).EffectKey).To(Equal("payout:" + day))
		Expect(p.of(day)[0].path).To(Equal("/v1/payouts"))
		complete(ctx, "payout-1")

		if time.Now().UTC().Format(time.DateOnly) != day {
			Skip("the day is over, and the next payout is another one")
		}
		payOut(ctx, "payout-2")
		complete(ctx, "payout-2")
		Expect(p.of(day)).To(HaveLen(1))
	}, SpecTimeout(2*time.Minute))

	It("leave to the lease what a killed pod did, and go on with the rest in the next", func(ctx SpecContext) {
		p.hold("txn_3")
		wants(ctx, map[string]int{"txn_3": 3000, "txn_4": 400000})
		killed := refunds.running(ctx, appName, "refund-agent")
		Eventually(ctx, func() []call { return p.of("txn_3") }).Should(HaveLen(1))
		waiting := refunds.asked(ctx, "txn_4")
		// Long before the provider answers and the pod could report.
		Expect(env.Admin().Delete(ctx, killed, client.GracePeriodSeconds(1))).To(Succeed())
		Eventually(ctx, func() error { return env.Admin().Get(ctx, client.ObjectKeyFromObject(killed), killed) }).ShouldNot(Succeed())
		next := refunds.running(ctx, appName, "refund-agent")
		Expect(next.UID).NotTo(Equal(killed.UID))

		By("doing what is new, and what people were asked for already, whom it does not ask again")
		wants(ctx, map[string]int{"txn_5": 5000})
		committed(ctx, "txn_5", next)
		refunds.approve(ctx, waiting)
		a, d := refunds.ended(ctx, "txn_4", v1alpha1.ActionCommitted)
		Expect(a.UID).To(Equal(waiting.UID))
		proposedBy(d, killed)
		Expect(p.of("txn_4")).To(HaveLen(1))
		Expect(refunds.actions(ctx, "txn_4")).To(HaveLen(1))

		By("not doing again what the killed one may have done")
		_, blocked := refunds.ended(ctx, "txn_3", v1alpha1.ActionBlocked)
		Expect(blocked.Reason).To(BeEquivalentTo("in_progress"))
		Expect(refunds.effect(ctx, "refund:txn_3").Status.State).To(Equal(v1alpha1.EffectExecuting))
		clock.Advance(GinkgoT(), 5*time.Minute+flow.LapseGrace+time.Second)
		_, d = refunds.ended(ctx, "txn_3", v1alpha1.ActionAmbiguous)
		proposedBy(d, killed)
		Expect(refunds.effect(ctx, "refund:txn_3").Status).To(HaveValue(And(
			HaveField("State", v1alpha1.EffectAmbiguous), HaveField("Cause", v1alpha1.CauseLeaseLapsed))))
		Eventually(ctx, func() []v1alpha1.Action { return refunds.actions(ctx, "txn_3") }).Should(ContainElement(And(
			HaveField("Status.State", v1alpha1.ActionBlocked), HaveField("Status.Reason", "ambiguous"))))
		Expect(p.of("txn_3")).To(HaveLen(1))
		for _, payment := range []string{"txn_1", "txn_2"} { // the next pod knows of neither
			Eventually(ctx, func() []v1alpha1.Action { return refunds.actions(ctx, payment) }).Should(ContainElement(And(
				HaveField("Status.State", v1alpha1.ActionBlocked), HaveField("Status.Reason", "duplicate"))))
			Expect(p.of(payment)).To(HaveLen(1))
		}
	}, SpecTimeout(3*time.Minute))

	It("report what they did when their pod is deleted meanwhile and has its time", func(ctx SpecContext) {
		release := p.hold("txn_6")
		wants(ctx, map[string]int{"txn_6": 600})
		pod := refunds.running(ctx, appName, "refund-agent")
		Eventually(ctx, func() []call { return p.of("txn_6") }).Should(HaveLen(1))
		Expect(env.Admin().Delete(ctx, pod)).To(Succeed())
		release()
		committed(ctx, "txn_6", pod)
	}, SpecTimeout(2*time.Minute))
})
