package pods

import (
	"context"
	"encoding/json"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/records"
	"ctrlrun.dev/operator/test/testenv"
)

// alice approves.
var alice = testenv.User{Name: "alice@example.com"}

// namespace is one in which something is governed.
type namespace string

// actions are those whose arguments have a value, the earliest first.
func (ns namespace) actions(ctx context.Context, value string) []v1alpha1.Action {
	GinkgoHelper()
	list := &v1alpha1.ActionList{}
	Expect(env.Admin().List(ctx, list, client.InNamespace(ns))).To(Succeed())
	var found []v1alpha1.Action
	for _, a := range list.Items {
		var arguments map[string]any
		Expect(json.Unmarshal(a.Spec.Arguments.Raw, &arguments)).To(Succeed())
		for _, v := range arguments {
			if v == value {
				found = append(found, a)
			}
		}
	}
	return found
}

// ended waits until one of the actions with a value has come to a state, and has its receipt.
func (ns namespace) ended(ctx context.Context, value string, state v1alpha1.ActionState) (*v1alpha1.Action, receipt.Document) {
	GinkgoHelper()
	var ended *v1alpha1.Action
	Eventually(ctx, func(g Gomega) {
		all := ns.actions(ctx, value)
		for i := range all {
			if all[i].Status.State == state && all[i].Status.ReceiptRef != nil {
				ended = &all[i]
				return
			}
		}
		g.Expect(all).To(ContainElement(HaveField("Status.State", state)), "%s has not ended", value)
		g.Expect(ended).NotTo(BeNil(), "%s has no receipt", value)
	}).Should(Succeed())
	return ended, ns.receipt(ctx, ended)
}

func (ns namespace) receipt(ctx context.Context, a *v1alpha1.Action) receipt.Document {
	GinkgoHelper()
	o := &v1alpha1.Receipt{}
	Expect(env.Admin().Get(ctx, client.ObjectKey{Namespace: string(ns), Name: a.Status.ReceiptRef.Name}, o)).To(Succeed())
	document, err := receipt.Parse(records.Entry(o))
	Expect(err).NotTo(HaveOccurred())
	return document
}

func (ns namespace) effect(ctx context.Context, key string) *v1alpha1.Effect {
	GinkgoHelper()
	e := &v1alpha1.Effect{}
	Expect(env.Admin().Get(ctx, client.ObjectKey{Namespace: string(ns), Name: action.EffectName(key)}, e)).To(Succeed())
	return e
}

// asked waits until the only action with a value waits for people.
func (ns namespace) asked(ctx context.Context, value string) *v1alpha1.Action {
	GinkgoHelper()
	var a *v1alpha1.Action
	Eventually(ctx, func(g Gomega) {
		found := ns.actions(ctx, value)
		g.Expect(found).To(HaveLen(1))
		a = &found[0]
		g.Expect(a.Status.State).To(Equal(v1alpha1.ActionAwaitingApproval))
	}).Should(Succeed())
	return a
}

// approve says yes, as Alice.
func (ns namespace) approve(ctx context.Context, a *v1alpha1.Action) {
	GinkgoHelper()
	Expect(env.Client(alice).Create(ctx, &v1alpha1.Approval{
		ObjectMeta: metav1.ObjectMeta{Namespace: string(ns), Name: a.Name + "." + action.Speaker(alice.Name)},
		Spec: v1alpha1.ApprovalSpec{
			ActionRef: v1alpha1.ObjectReference{Name: a.Name, UID: a.UID}, ActionType: a.Spec.ActionType,
			ActionHash: a.Status.ActionHash, EffectKey: &a.Status.Effect.Key, Decision: v1alpha1.Approved,
		},
	})).To(Succeed())
}

// pods are those with a label.
func (ns namespace) pods(ctx context.Context, label, value string) []corev1.Pod {
	GinkgoHelper()
	list := &corev1.PodList{}
	Expect(env.Admin().List(ctx, list, client.InNamespace(ns), client.MatchingLabels{label: value})).To(Succeed())
	return list.Items
}

// running waits until exactly one pod has a label, and it runs.
func (ns namespace) running(ctx context.Context, label, value string) *corev1.Pod {
	GinkgoHelper()
	var pod *corev1.Pod
	Eventually(ctx, func(g Gomega) {
		all := ns.pods(ctx, label, value)
		g.Expect(all).To(HaveLen(1))
		pod = &all[0]
		g.Expect(pod.DeletionTimestamp).To(BeNil())
		g.Expect(pod.Status.Phase).To(Equal(corev1.PodRunning), "%+v", pod.Status)
	}).Should(Succeed())
	return pod
}

// proposedBy expects that what an apiserver vouched for names the pod.
func proposedBy(d receipt.Document, pod *corev1.Pod) {
	GinkgoHelper()
	Expect(d.Principal).NotTo(BeNil())
	Expect(d.Principal.Agent).To(Equal(fmt.Sprintf("system:serviceaccount:%s:%s", pod.Namespace, pod.Spec.ServiceAccountName)))
	Expect(d.Principal.Claims).To(And(
		HaveKeyWithValue("pod_name", pod.Name), HaveKeyWithValue("pod_uid", string(pod.UID)), HaveKeyWithValue("node_name", testenv.NodeName)))
}
