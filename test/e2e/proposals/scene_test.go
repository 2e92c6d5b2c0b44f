package proposals

import (
	"encoding/json"
	"fmt"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/policy"
	"ctrlrun.dev/operator/test/testenv"
)

type fields = map[string]any

const (
	// asksOne is the policy by which one person is asked about changes.
	asksOne = `{"ctrlrun.policy.change": {"effect": "policy:{proposal_uid}:{generation}", "decision": "approve"}}`
	manager = "kustomize-controller"
)

// scene is a namespace whose policies and grants are changed by proposals.
type scene struct {
	ns string
	// flux applies what is in Git, alice may approve changes, paula governs, and wim may write policies and grants but not govern.
	flux, alice, paula, wim testenv.User
}

// newScene makes a namespace with Settings that say Proposed, and a policy named changes with those actions; "": none.
func newScene(actions string) *scene {
	GinkgoHelper()
	ns := env.Namespace(GinkgoT(), nil)
	s := &scene{
		ns: ns, flux: testenv.ServiceAccountUser("flux-system", "kustomize-controller"), alice: testenv.User{Name: "alice"},
		paula: testenv.User{Name: "paula"}, wim: testenv.User{Name: "wim"},
	}
	group := v1alpha1.GroupVersion.Group
	for _, err := range []error{
		env.Grant(ctx, ns, "ctrlrun-policy-proposer", s.flux),
		env.Grant(ctx, ns, "ctrlrun-policy-admin", s.paula),
		env.Grant(ctx, ns, "ctrlrun-operator-proposals", testenv.OperatorUser()),
		env.Allow(ctx, ns, s.wim, rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{"actionpolicies", "grants", "policyproposals", "settings"}, Verbs: []string{"get", "create", "update", "patch", "delete", "deletecollection", "list"}}),
		env.Grant(ctx, ns, "ctrlrun-approver", s.alice, s.flux), // flux as well: what stops it is that it proposed
	} {
		Expect(err).NotTo(HaveOccurred())
	}
	if actions != "" {
		Expect(s.write(s.paula, "ActionPolicy", "changes", fields{"actions": values(actions)})).To(Succeed())
	}
	Expect(s.write(s.paula, "Settings", "default", fields{"policyChanges": "Proposed"})).To(Succeed())
	s.enforced()
	return s
}

// enforced returns when the apiserver, which learns of Settings by a watch, refuses who does not govern.
func (s *scene) enforced() {
	GinkgoHelper()
	Eventually(func() error {
		return env.Client(s.wim).Create(ctx, object("Grant", s.ns, "probe", aGrant()), client.DryRunAll)
	}).Should(MatchError(ContainSubstring("policyChanges: Proposed")))
}

func values(text string) (v fields) {
	GinkgoHelper()
	Expect(json.Unmarshal([]byte(text), &v)).To(Succeed())
	return v
}

func aGrant() fields {
	return fields{"subject": fields{"agent": "system:serviceaccount:payments:bot"}, "actions": []any{"stripe.*"}}
}

// aPolicy lets refunds up to an amount run.
func aPolicy(limit int) fields {
	return fields{"actions": fields{"stripe.refund": fields{
		"effect": "refund:{payment_id}",
		"rules":  []any{fields{"when": fields{"amount_gte": int64(0), "amount_lte": int64(limit)}, "decision": "allow"}, fields{"decision": "approve"}},
	}}}
}

func object(kind, namespace, name string, spec fields) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: fields{}}
	o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	o.SetNamespace(namespace)
	o.SetName(name)
	if spec != nil {
		o.Object["spec"] = spec
	}
	return o
}

// write creates an object, or replaces its spec.
func (s *scene) write(u testenv.User, kind, name string, spec fields) error {
	c := env.Client(u)
	for {
		o := object(kind, s.ns, name, nil)
		if err := c.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return c.Create(ctx, object(kind, s.ns, name, spec))
		}
		o.Object["spec"] = spec
		if err := c.Update(ctx, o); !apierrors.IsConflict(err) { // the operator writes its status meanwhile
			return err
		}
	}
}

// applies is a server-side apply, as GitOps tools make it.
func (s *scene) applies(u testenv.User, name string, spec fields) {
	GinkgoHelper()
	Expect(env.Client(u).Apply(ctx, client.ApplyConfigurationFromUnstructured(object("PolicyProposal", s.ns, name, spec)), client.FieldOwner(manager), client.ForceOwnership)).To(Succeed())
}

var names atomic.Int64

func unique(prefix string) string { return fmt.Sprintf("%s-%d", prefix, names.Add(1)) }

// of is a proposal about a policy.
func of(name string, content fields) fields {
	return fields{"targetRef": fields{"kind": "ActionPolicy", "name": name}, "content": content, "reason": "as agreed"}
}

// proposes applies a proposal as flux.
func (s *scene) proposes(name string, spec fields) *v1alpha1.PolicyProposal {
	GinkgoHelper()
	s.applies(s.flux, name, spec)
	return s.proposal(name)
}

func (s *scene) proposal(name string) *v1alpha1.PolicyProposal {
	GinkgoHelper()
	o := &v1alpha1.PolicyProposal{}
	Expect(env.Admin().Get(ctx, types.NamespacedName{Namespace: s.ns, Name: name}, o)).To(Succeed())
	return o
}

// reaches waits until the proposal's present generation has that state, and gives it.
func (s *scene) reaches(name string, state v1alpha1.ProposalState) *v1alpha1.PolicyProposal {
	GinkgoHelper()
	var o *v1alpha1.PolicyProposal
	Eventually(func(g Gomega) {
		o = s.proposal(name)
		g.Expect(o.Status.ObservedGeneration).To(Equal(o.Generation))
		g.Expect(o.Status.State).To(Equal(state), "%+v", o.Status)
	}).Should(Succeed())
	ready, stalled := meta.FindStatusCondition(o.Status.Conditions, "Ready"), meta.FindStatusCondition(o.Status.Conditions, "Stalled")
	Expect(ready.ObservedGeneration).To(Equal(o.Generation))
	Expect(ready.Status == metav1.ConditionTrue).To(Equal(state == v1alpha1.ProposalApplied))
	if state == v1alpha1.ProposalRefused || state == v1alpha1.ProposalReplaced {
		Expect(stalled.Status).To(Equal(metav1.ConditionTrue))
	}
	return o
}

// asked waits until people are asked about the proposal's present generation, and gives the Action.
func (s *scene) asked(name string) *v1alpha1.Action {
	GinkgoHelper()
	a := &v1alpha1.Action{}
	Eventually(func(g Gomega) {
		o := s.proposal(name)
		g.Expect(o.Status.ObservedGeneration).To(Equal(o.Generation))
		g.Expect(o.Status.ActionRef).NotTo(BeNil(), "%+v", o.Status)
		g.Expect(env.Admin().Get(ctx, types.NamespacedName{Namespace: s.ns, Name: o.Status.ActionRef.Name}, a)).To(Succeed())
		g.Expect(a.UID).To(Equal(o.Status.ActionRef.UID))
		g.Expect(a.Status.State).To(Equal(v1alpha1.ActionAwaitingApproval), "%+v", a.Status)
	}).Should(Succeed())
	return a
}

func (s *scene) action(a *v1alpha1.Action) *v1alpha1.Action {
	GinkgoHelper()
	next := &v1alpha1.Action{}
	Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(a), next)).To(Succeed())
	return next
}

// ends waits until an Action has its receipt.
func (s *scene) ends(a *v1alpha1.Action, state v1alpha1.ActionState) *v1alpha1.Action {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		a = s.action(a)
		g.Expect(a.Status.ReceiptRef).NotTo(BeNil(), "%+v", a.Status)
	}).Should(Succeed())
	Expect(a.Status.State).To(Equal(state), "%+v", a.Status)
	return a
}

// answers says yes or no to an Action as it is.
func (s *scene) answers(u testenv.User, a *v1alpha1.Action, d v1alpha1.ApprovalDecision) *v1alpha1.Approval {
	GinkgoHelper()
	a = s.action(a)
	o := &v1alpha1.Approval{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: a.Name + "." + action.Speaker(u.Name)},
		Spec: v1alpha1.ApprovalSpec{
			ActionRef: v1alpha1.ObjectReference{Name: a.Name, UID: a.UID}, ActionType: a.Spec.ActionType, ActionHash: a.Status.ActionHash, Decision: d,
		},
	}
	if a.Status.Effect != nil {
		o.Spec.EffectKey = &a.Status.Effect.Key
	}
	Expect(env.Client(u).Create(ctx, o)).To(Succeed())
	return o
}

func (s *scene) approves(u testenv.User, a *v1alpha1.Action) *v1alpha1.Approval {
	GinkgoHelper()
	return s.answers(u, a, v1alpha1.Approved)
}

// verdict waits for what the operator says of an Approval.
func verdict(o *v1alpha1.Approval) *metav1.Condition {
	GinkgoHelper()
	var c *metav1.Condition
	Eventually(func(g Gomega) {
		g.Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
		c = meta.FindStatusCondition(o.Status.Conditions, v1alpha1.AcceptedCondition)
		g.Expect(c).NotTo(BeNil())
	}).Should(Succeed())
	return c
}

// spec is that of an object as it is stored; nil: it is not there.
func (s *scene) spec(kind, name string) fields {
	GinkgoHelper()
	o := object(kind, s.ns, name, nil)
	err := env.Admin().Get(ctx, client.ObjectKeyFromObject(o), o)
	if err != nil {
		Expect(client.IgnoreNotFound(err)).To(Succeed())
		return nil
	}
	spec, _, err := unstructured.NestedMap(o.Object, "spec")
	Expect(err).NotTo(HaveOccurred())
	return spec
}

func change(a *v1alpha1.Action) policy.Change {
	GinkgoHelper()
	c, err := policy.ReadChange(a.Spec.Arguments.Raw)
	Expect(err).NotTo(HaveOccurred())
	return c
}

// inForce waits until an ActionPolicy is judged.
func (s *scene) inForce(name string) {
	GinkgoHelper()
	o := &v1alpha1.ActionPolicy{}
	Eventually(func(g Gomega) {
		g.Expect(env.Admin().Get(ctx, types.NamespacedName{Namespace: s.ns, Name: name}, o)).To(Succeed())
		g.Expect(o.Status.ObservedGeneration).To(Equal(o.Generation))
		g.Expect(meta.IsStatusConditionTrue(o.Status.Conditions, "Ready")).To(BeTrue())
	}).Should(Succeed())
}
