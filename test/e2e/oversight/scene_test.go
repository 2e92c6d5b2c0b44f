package oversight

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/kernel/timeline"
	"ctrlrun.dev/operator/records"
	"ctrlrun.dev/operator/test/testenv"
)

const (
	kind = "stripe.refund"
	// one asks one person, two ask two; board and finance of those groups only.
	one     = `{"stripe.refund": {"effect": "refund:{payment_id}", "decision": "approve"}}`
	two     = `{"stripe.refund": {"effect": "refund:{payment_id}", "decision": "approve", "approvalsRequired": 2}}`
	finance = `{"stripe.refund": {"effect": "refund:{payment_id}", "decision": "approve", "approverGroups": ["finance", "audit"]}}`
	board   = `{"stripe.refund": {"effect": "refund:{payment_id}", "decision": "approve", "approverGroups": ["board"]}}`
)

// scene is a namespace with a policy, an agent and whoever owns both policies and settings.
type scene struct {
	ns           string
	agent, owner testenv.User
}

func newScene(actions string) *scene {
	GinkgoHelper()
	s := setScene(actions)
	s.inForce()
	return s
}

// setScene makes a scene whose policy no operator may have judged yet.
func setScene(actions string) *scene {
	GinkgoHelper()
	ns := env.Namespace(GinkgoT(), nil)
	s := &scene{ns: ns, agent: testenv.ServiceAccountUser(ns, "refund-agent"), owner: testenv.User{Name: "paula"}}
	Expect(env.Grant(ctx, ns, "ctrlrun-agent", s.agent)).To(Succeed())
	Expect(env.Grant(ctx, ns, "ctrlrun-policy-admin", s.owner)).To(Succeed())
	s.writePolicy(actions)
	return s
}

// policy replaces the policy, and returns when it is in force.
func (s *scene) policy(actions string) {
	GinkgoHelper()
	s.writePolicy(actions)
	s.inForce()
}

func (s *scene) inForce() {
	GinkgoHelper()
	p := &v1alpha1.ActionPolicy{}
	Eventually(func(g Gomega) {
		g.Expect(env.Admin().Get(ctx, types.NamespacedName{Namespace: s.ns, Name: "payments"}, p)).To(Succeed())
		g.Expect(p.Status.ObservedGeneration).To(Equal(p.Generation))
	}).Should(Succeed())
}

func (s *scene) writePolicy(actions string) {
	GinkgoHelper()
	c := env.Client(s.owner)
	p := &v1alpha1.ActionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "payments"}}
	Eventually(func(g Gomega) {
		err := c.Get(ctx, client.ObjectKeyFromObject(p), p)
		p.Spec = v1alpha1.ActionPolicySpec{}
		g.Expect(json.Unmarshal([]byte(`{"actions":`+actions+`}`), &p.Spec)).To(Succeed())
		if err != nil {
			g.Expect(c.Create(ctx, p)).To(Succeed())
			return
		}
		g.Expect(c.Update(ctx, p)).To(Succeed()) // the operator writes its status meanwhile
	}).Should(Succeed())
}

// people says which names are one person, and returns when that is in force.
func (s *scene) people(aliases ...v1alpha1.IdentityAlias) {
	GinkgoHelper()
	o := &v1alpha1.Settings{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: v1alpha1.SettingsName}, Spec: v1alpha1.SettingsSpec{IdentityAliases: aliases}}
	Expect(env.Client(s.owner).Create(ctx, o)).To(Succeed())
	Eventually(func(g Gomega) {
		g.Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
		g.Expect(o.Status.ObservedGeneration).To(Equal(o.Generation))
	}).Should(Succeed())
}

// right is a Role for one subject, that can be taken away.
type right struct {
	role  *rbacv1.Role
	asked authorizationv1.SubjectAccessReviewSpec
}

// mayApprove gives a subject the right to approve some types, by a Role and a RoleBinding of its own. u is somebody who has it then.
func (s *scene) mayApprove(u testenv.User, subject rbacv1.Subject, types ...string) *right {
	GinkgoHelper()
	group := v1alpha1.GroupVersion.Group
	subject.APIGroup = rbacv1.GroupName
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{GenerateName: "approver-", Namespace: s.ns}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{group}, Resources: []string{"approvals"}, Verbs: []string{"create"}},
		{APIGroups: []string{group}, Resources: []string{"actiontypes"}, ResourceNames: types, Verbs: []string{"approve"}},
	}}
	Expect(env.Admin().Create(ctx, role)).To(Succeed())
	Expect(env.Admin().Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name, Namespace: s.ns}, Subjects: []rbacv1.Subject{subject},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
	})).To(Succeed())
	r := &right{role: role, asked: authorizationv1.SubjectAccessReviewSpec{
		User: u.Name, Groups: u.Groups, ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: s.ns, Group: group, Resource: "actiontypes", Verb: "approve", Name: types[0]},
	}}
	Eventually(r.allowed).Should(BeTrue())
	return r
}

func (r *right) allowed() (bool, error) {
	review := &authorizationv1.SubjectAccessReview{Spec: r.asked}
	err := env.Admin().Create(ctx, review)
	return review.Status.Allowed, err
}

// revoke deletes the Role, and returns when the apiserver's authorizer knows.
func (r *right) revoke() {
	GinkgoHelper()
	Expect(env.Admin().Delete(ctx, r.role.DeepCopy())).To(Succeed())
	Eventually(r.allowed).Should(BeFalse())
}

// restore makes the Role again.
func (r *right) restore() {
	GinkgoHelper()
	again := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: r.role.Name, Namespace: r.role.Namespace}, Rules: r.role.Rules}
	Expect(env.Admin().Create(ctx, again)).To(Succeed())
	Eventually(r.allowed).Should(BeTrue())
}

// approver is somebody with the right to approve refunds by their name, in some groups.
func (s *scene) approver(name string, groups ...string) (testenv.User, *right) {
	GinkgoHelper()
	u := testenv.User{Name: name, Groups: groups}
	return u, s.mayApprove(u, rbacv1.Subject{Kind: rbacv1.UserKind, Name: name}, kind)
}

// approvers are several, in no groups.
func (s *scene) approvers(names ...string) []testenv.User {
	GinkgoHelper()
	var all []testenv.User
	for _, name := range names {
		u, _ := s.approver(name)
		all = append(all, u)
	}
	return all
}

// mayRepresent lets the agent act on behalf of a user.
func (s *scene) mayRepresent(user string) {
	GinkgoHelper()
	Expect(env.Allow(ctx, s.ns, s.agent, rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"users"}, ResourceNames: []string{user}, Verbs: []string{"represent"}})).To(Succeed())
}

var counter atomic.Int64

// unique makes a value no other spec has.
func unique(prefix string) string { return fmt.Sprintf("%s_%d", prefix, counter.Add(1)) }

// propose creates a refund as the agent, on behalf of users if there are any.
func (s *scene) propose(actionType string, user ...string) *v1alpha1.Action {
	GinkgoHelper()
	o := &v1alpha1.Action{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, GenerateName: "act-"},
		Spec:       v1alpha1.ActionSpec{ActionType: actionType, Arguments: apiextensionsv1.JSON{Raw: fmt.Appendf(nil, `{"payment_id":%q}`, unique("txn"))}},
	}
	for _, u := range user {
		o.Spec.Principal.User = &u
	}
	Expect(env.Client(s.agent).Create(ctx, o)).To(Succeed())
	return o
}

// asked is a refund that people are asked about.
func (s *scene) asked(user ...string) *v1alpha1.Action {
	GinkgoHelper()
	return s.reaches(s.propose(kind, user...), v1alpha1.ActionAwaitingApproval)
}

func (s *scene) get(a *v1alpha1.Action) *v1alpha1.Action {
	GinkgoHelper()
	o := &v1alpha1.Action{}
	Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(a), o)).To(Succeed())
	return o
}

// reaches waits until an Action is in a state, and, if that is terminal, finished.
func (s *scene) reaches(a *v1alpha1.Action, state v1alpha1.ActionState) *v1alpha1.Action {
	GinkgoHelper()
	var o *v1alpha1.Action
	Eventually(func(g Gomega) {
		o = s.get(a)
		g.Expect(o.Status.State).To(Equal(state), "reason %q: %s", o.Status.Reason, o.Status.Message)
		g.Expect(!state.Terminal() || o.Status.ReceiptRef != nil).To(BeTrue(), "%s has no receipt yet", o.Name)
	}).Should(Succeed())
	return o
}

// waits waits until an Action asks people, counts that many of them, and says something.
func (s *scene) waits(a *v1alpha1.Action, votes string, words ...string) *v1alpha1.Action {
	GinkgoHelper()
	var o *v1alpha1.Action
	Eventually(func(g Gomega) {
		o = s.get(a)
		g.Expect(o.Status.State).To(Equal(v1alpha1.ActionAwaitingApproval), o.Status.Message)
		g.Expect(o.Status.Approval.Votes).To(Equal(votes), o.Status.Message)
		for _, w := range words {
			g.Expect(o.Status.Message).To(ContainSubstring(w))
		}
	}).Should(Succeed())
	Expect(o.Status.Execution).To(BeNil())
	return o
}

// answer makes the answer a person would give who read the Action; try is "" or, of another one, its number.
func (s *scene) answer(u testenv.User, a *v1alpha1.Action, said v1alpha1.ApprovalDecision, try string) *v1alpha1.Approval {
	GinkgoHelper()
	a = s.get(a)
	o := &v1alpha1.Approval{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: a.Name + "." + action.Speaker(u.Name) + try},
		Spec: v1alpha1.ApprovalSpec{
			ActionRef:  v1alpha1.ObjectReference{Name: a.Name, UID: a.UID},
			ActionType: a.Spec.ActionType, ActionHash: a.Status.ActionHash, Decision: said,
		},
	}
	if a.Status.Effect != nil {
		o.Spec.EffectKey = &a.Status.Effect.Key
	}
	Expect(env.Client(u).Create(ctx, o)).To(Succeed())
	return o
}

func (s *scene) approve(u testenv.User, a *v1alpha1.Action) *v1alpha1.Approval {
	GinkgoHelper()
	return s.answer(u, a, v1alpha1.Approved, "")
}

// claim says that a process of the agent is there; each says so under the next name.
func (s *scene) claim(a *v1alpha1.Action) *v1alpha1.Claim {
	GinkgoHelper()
	a = s.get(a)
	o := &v1alpha1.Claim{Spec: v1alpha1.ClaimSpec{ActionRef: v1alpha1.ObjectReference{Name: a.Name, UID: a.UID}, ClaimID: uuid.NewString(), ClaimableTime: *a.Status.ClaimableTime}}
	list := &v1alpha1.ClaimList{}
	Expect(env.Admin().List(ctx, list, client.InNamespace(s.ns))).To(Succeed())
	name := a.Name + "." + action.Speaker(s.agent.Name)
	mine := slices.DeleteFunc(list.Items, func(c v1alpha1.Claim) bool { return c.Spec.ActionRef.UID != a.UID })
	if len(mine) > 0 {
		name = fmt.Sprintf("%s.%d", name, len(mine)+1)
	}
	o.Namespace, o.Name = s.ns, name
	Expect(env.Client(s.agent).Create(ctx, o)).To(Succeed())
	return o
}

// executed claims a Claimable Action, executes it and gives it with its receipt, and expects whose approvals were spent.
func (s *scene) executed(a *v1alpha1.Action, spent ...*v1alpha1.Approval) (*v1alpha1.Action, receipt.Document) {
	GinkgoHelper()
	s.claim(s.reaches(a, v1alpha1.ActionClaimable))
	return s.ends(a, spent...)
}

// ends reports the outcome of an Action that is, or will be, admitted.
func (s *scene) ends(a *v1alpha1.Action, spent ...*v1alpha1.Approval) (*v1alpha1.Action, receipt.Document) {
	GinkgoHelper()
	a = s.reaches(a, v1alpha1.ActionAdmitted)
	s.report(a, v1alpha1.OutcomeCommitted)
	a = s.reaches(a, v1alpha1.ActionCommitted)
	d := s.receiptOf(a)
	want, got, stored := map[string][]string{}, map[string][]string{}, map[string][]string{}
	for _, x := range spent {
		want[string(x.UID)] = append([]string{x.Spec.Approver}, x.Spec.Claims.Groups...)
	}
	for _, x := range d.Approvals {
		got[x.UID] = append([]string{x.Approver}, x.Groups...)
	}
	for _, x := range a.Status.Execution.Approvals {
		stored[string(x.UID)] = append([]string{x.Approver}, x.Groups...)
	}
	Expect(got).To(Equal(want), "the receipt names who approved, with their groups")
	Expect(stored).To(Equal(want))
	s.chainHolds()
	return a, d
}

func (s *scene) report(a *v1alpha1.Action, result v1alpha1.OutcomeResult) {
	GinkgoHelper()
	claimID := a.Status.Execution.ClaimID
	Expect(env.Client(s.agent).Create(ctx, &v1alpha1.Outcome{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: flow.LockName(string(a.UID), claimID, a.Spec.Principal.Agent)},
		Spec:       v1alpha1.OutcomeSpec{ActionRef: v1alpha1.ObjectReference{Name: a.Name, UID: a.UID}, ClaimID: claimID, Result: result},
	})).To(Succeed())
}

// verdict waits for the condition Accepted of a statement.
func verdict(o client.Object) metav1.Condition {
	GinkgoHelper()
	var c *metav1.Condition
	Eventually(func(g Gomega) {
		g.Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
		switch o := o.(type) {
		case *v1alpha1.Approval:
			c = meta.FindStatusCondition(o.Status.Conditions, v1alpha1.AcceptedCondition)
		case *v1alpha1.Resolution:
			c = meta.FindStatusCondition(o.Status.Conditions, v1alpha1.AcceptedCondition)
		}
		g.Expect(c).NotTo(BeNil())
	}).Should(Succeed())
	return *c
}

func expectAccepted(o client.Object) {
	GinkgoHelper()
	c := verdict(o)
	Expect(c.Status).To(Equal(metav1.ConditionTrue), c.Message)
}

func expectRefused(o client.Object, reason string, words ...string) {
	GinkgoHelper()
	c := verdict(o)
	Expect(c.Status).To(Equal(metav1.ConditionFalse), c.Message)
	Expect(c.Reason).To(Equal(reason), c.Message)
	for _, w := range words {
		Expect(c.Message).To(ContainSubstring(w))
	}
}

// said is the part of an Action's timeline that is about people, each event with its reason and who it is about.
func said(a *v1alpha1.Action) []string {
	var all []string
	for _, e := range a.Status.Timeline {
		switch timeline.Type(e.Type) {
		case timeline.ApprovalRequested, timeline.ApprovalGranted, timeline.ApprovalDenied, timeline.ApprovalInvalidated, timeline.ApprovalConsumed, timeline.ActionClaimable:
			line := e.Type
			for _, key := range []string{"reason", "approver"} {
				if v := e.Data[key]; v != "" {
					line += " " + string(v)
				}
			}
			all = append(all, line)
		}
	}
	return all
}

// receiptOf is the receipt of an Action, as its document says it.
func (s *scene) receiptOf(a *v1alpha1.Action) receipt.Document {
	GinkgoHelper()
	for _, r := range s.chain() {
		d, err := receipt.Parse(records.Entry(&r))
		Expect(err).NotTo(HaveOccurred())
		if d.Kind == receipt.KindAction && d.ActionUID == string(a.UID) {
			return d
		}
	}
	Fail("no receipt of " + a.Name)
	return receipt.Document{}
}

func (s *scene) chain() []v1alpha1.Receipt {
	GinkgoHelper()
	list := &v1alpha1.ReceiptList{}
	Expect(env.Admin().List(ctx, list, client.InNamespace(s.ns))).To(Succeed())
	return list.Items
}

func (s *scene) chainHolds() {
	GinkgoHelper()
	var entries []receipt.Entry
	for _, r := range s.chain() {
		entries = append(entries, records.Entry(&r))
	}
	Expect(receipt.Verify(entries, receipt.Options{}).Breaks).To(BeEmpty())
}

// noEffect expects that nothing is reserved for an Action.
func (s *scene) noEffect(a *v1alpha1.Action) {
	GinkgoHelper()
	err := env.Admin().Get(ctx, types.NamespacedName{Namespace: s.ns, Name: s.get(a).Status.Effect.Name}, &v1alpha1.Effect{})
	Expect(client.IgnoreNotFound(err)).To(Succeed())
	Expect(err).To(HaveOccurred(), "its effect is reserved")
}
