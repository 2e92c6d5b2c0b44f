package protocol

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/records"
	"ctrlrun.dev/operator/test/testenv"
)

// payments is the policy of most scenes: small refunds are allowed, larger ones are asked about, huge ones denied. A note
// has no effect key, and a twice.approved needs two people.
const payments = `{
  "stripe.refund": {"effect": "refund:{payment_id}", "resource": "payment:{payment_id}", "rules": [
    {"when": {"amount_gte": 0, "amount_lte": 500}, "decision": "allow"},
    {"when": {"amount_gte": 0, "amount_lte": 5000}, "decision": "approve"},
    {"decision": "deny"}]},
  "note.write": {"decision": "allow"},
  "note.publish": {"decision": "approve"},
  "grant.admin": {"effect": "grant:{to}", "decision": "approve", "approvalsRequired": 2},
  "mail.send": {"effect": "mail:{id}", "decision": "allow", "maxAttempts": 2}
}`

// scene is a namespace with a policy and everybody who plays a part.
type scene struct {
	ns                                     string
	agent, rival, approver, second, oncall testenv.User
	policyAdmin                            testenv.User
}

func newScene() *scene {
	GinkgoHelper()
	return newSceneWith(payments, nil)
}

func newSceneWith(actions string, labels map[string]string) *scene {
	GinkgoHelper()
	s := setScene(actions, labels)
	s.inForce("payments")
	// Nothing is appended by itself from here on.
	Eventually(func() []v1alpha1.Receipt { return s.chain() }).Should(HaveLen(1))
	return s
}

// setScene makes a scene whose policy no operator may have judged yet.
func setScene(actions string, labels map[string]string) *scene {
	GinkgoHelper()
	ns := env.Namespace(GinkgoT(), labels)
	s := &scene{
		ns:          ns,
		agent:       testenv.ServiceAccountUser(ns, "refund-agent"),
		rival:       testenv.ServiceAccountUser(ns, "rival-agent"),
		approver:    testenv.User{Name: "alice", Groups: []string{"payments-leads"}},
		second:      testenv.User{Name: "bob", Groups: []string{"payments-leads"}},
		oncall:      testenv.User{Name: "oncall"},
		policyAdmin: testenv.User{Name: "paula"},
	}
	Expect(env.Grant(ctx, ns, "ctrlrun-agent", s.agent, s.rival)).To(Succeed())
	Expect(env.Grant(ctx, ns, "ctrlrun-approver", s.approver, s.second)).To(Succeed())
	Expect(env.Grant(ctx, ns, "ctrlrun-resolver", s.oncall)).To(Succeed())
	Expect(env.Grant(ctx, ns, "ctrlrun-policy-admin", s.policyAdmin)).To(Succeed())
	s.writePolicy("payments", actions)
	return s
}

// policy creates or replaces a policy and returns when it is in force.
func (s *scene) policy(name, actions string) {
	GinkgoHelper()
	s.writePolicy(name, actions)
	s.inForce(name)
}

// inForce waits until the operator has judged the present generation of a policy.
func (s *scene) inForce(name string) {
	GinkgoHelper()
	p := &v1alpha1.ActionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name}}
	Eventually(func(g Gomega) {
		g.Expect(env.Client(s.policyAdmin).Get(ctx, client.ObjectKeyFromObject(p), p)).To(Succeed())
		g.Expect(p.Status.ObservedGeneration).To(Equal(p.Generation))
	}).Should(Succeed())
}

func (s *scene) writePolicy(name, actions string) {
	GinkgoHelper()
	c := env.Client(s.policyAdmin)
	spec := v1alpha1.ActionPolicySpec{}
	Expect(json.Unmarshal([]byte(`{"actions":`+actions+`}`), &spec)).To(Succeed())
	Eventually(func(g Gomega) {
		p := &v1alpha1.ActionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name}}
		err := c.Get(ctx, client.ObjectKeyFromObject(p), p)
		p.Spec = spec
		if err != nil {
			g.Expect(c.Create(ctx, p)).To(Succeed())
			return
		}
		g.Expect(c.Update(ctx, p)).To(Succeed()) // the operator writes its status meanwhile
	}).Should(Succeed())
}

// settings replaces the namespace's Settings.
func (s *scene) settings(spec string) {
	GinkgoHelper()
	o := &v1alpha1.Settings{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: v1alpha1.SettingsName}}
	Expect(json.Unmarshal([]byte(spec), &o.Spec)).To(Succeed())
	Expect(env.Client(s.policyAdmin).Create(ctx, o)).To(Succeed())
	Eventually(func(g Gomega) {
		g.Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
		g.Expect(o.Status.ObservedGeneration).To(Equal(o.Generation))
	}).Should(Succeed())
}

var counter atomic.Int64

// unique makes a value no other spec has.
func unique(prefix string) string { return fmt.Sprintf("%s_%d", prefix, counter.Add(1)) }

// proposal makes an Action. Without further words it is one of a process that waits for its admission.
type proposal struct {
	name, kind, arguments, claimID string
	mutate                         []func(*v1alpha1.Action)
}

func refund(payment string, amount int) proposal {
	return proposal{kind: "stripe.refund", arguments: fmt.Sprintf(`{"payment_id":%q,"amount":%d}`, payment, amount), claimID: uuid.NewString()}
}

func act(kind, arguments string) proposal {
	return proposal{kind: kind, arguments: arguments, claimID: uuid.NewString()}
}

func (p proposal) unclaimed() proposal { p.claimID = ""; return p }

func (p proposal) with(f func(*v1alpha1.Action)) proposal {
	p.mutate = append(p.mutate, f)
	return p
}

func (p proposal) object(ns string) *v1alpha1.Action {
	o := &v1alpha1.Action{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: p.name}}
	if p.name == "" {
		o.GenerateName = "act-"
	}
	o.Spec = v1alpha1.ActionSpec{ActionType: p.kind, Arguments: apiextensionsv1.JSON{Raw: []byte(p.arguments)}, ClaimID: p.claimID}
	for _, f := range p.mutate {
		f(o)
	}
	return o
}

// propose creates an Action as the agent.
func (s *scene) propose(p proposal) *v1alpha1.Action {
	GinkgoHelper()
	return s.proposeAs(s.agent, p)
}

func (s *scene) proposeAs(u testenv.User, p proposal) *v1alpha1.Action {
	GinkgoHelper()
	o := p.object(s.ns)
	Expect(env.Client(u).Create(ctx, o)).To(Succeed())
	return o
}

// get reads an Action again.
func (s *scene) get(a *v1alpha1.Action) *v1alpha1.Action {
	GinkgoHelper()
	o := &v1alpha1.Action{}
	Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(a), o)).To(Succeed())
	return o
}

// reaches waits until an Action is in a state, and, if that is terminal, finished.
func (s *scene) reaches(a *v1alpha1.Action, state v1alpha1.ActionState, reason ...string) *v1alpha1.Action {
	GinkgoHelper()
	var o *v1alpha1.Action
	Eventually(func(g Gomega) {
		o = s.get(a)
		g.Expect(o.Status.State).To(Equal(state), "reason %q: %s", o.Status.Reason, o.Status.Message)
		g.Expect(!state.Terminal() || o.Status.ReceiptRef != nil).To(BeTrue(), "%s has no receipt yet", o.Name)
	}).Should(Succeed())
	if len(reason) > 0 {
		Expect(o.Status.Reason).To(Equal(reason[0]), o.Status.Message)
	}
	if state.Terminal() && o.Status.Reason != "" {
		Expect(o.Status.Message).NotTo(BeEmpty())
	}
	return o
}

// report states an outcome as a user.
func (s *scene) report(u testenv.User, a *v1alpha1.Action, result v1alpha1.OutcomeResult) *v1alpha1.Outcome {
	GinkgoHelper()
	o := s.outcome(s.get(a), result)
	Expect(env.Client(u).Create(ctx, o)).To(Succeed())
	return o
}

func (s *scene) outcome(a *v1alpha1.Action, result v1alpha1.OutcomeResult) *v1alpha1.Outcome {
	claimID := a.Spec.ClaimID
	if x := a.Status.Execution; x != nil {
		claimID = x.ClaimID
	}
	return &v1alpha1.Outcome{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: flow.LockName(string(a.UID), claimID, a.Spec.Principal.Agent)},
		Spec: v1alpha1.OutcomeSpec{
			ActionRef: v1alpha1.ObjectReference{Name: a.Name, UID: a.UID},
			ClaimID:   claimID, Result: result,
		},
	}
}

// approval makes the answer a person would give who read the Action.
func (s *scene) approval(u testenv.User, a *v1alpha1.Action, decision v1alpha1.ApprovalDecision) *v1alpha1.Approval {
	o := &v1alpha1.Approval{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: a.Name + "." + action.Speaker(u.Name)},
		Spec: v1alpha1.ApprovalSpec{
			ActionRef:  v1alpha1.ObjectReference{Name: a.Name, UID: a.UID},
			ActionType: a.Spec.ActionType, ActionHash: a.Status.ActionHash, Decision: decision,
		},
	}
	if a.Status.Effect != nil {
		o.Spec.EffectKey = &a.Status.Effect.Key
	}
	return o
}

func (s *scene) approve(u testenv.User, a *v1alpha1.Action) *v1alpha1.Approval {
	GinkgoHelper()
	o := s.approval(u, s.get(a), v1alpha1.Approved)
	Expect(env.Client(u).Create(ctx, o)).To(Succeed())
	return o
}

func (s *scene) deny(u testenv.User, a *v1alpha1.Action) *v1alpha1.Approval {
	GinkgoHelper()
	o := s.approval(u, s.get(a), v1alpha1.Denied)
	Expect(env.Client(u).Create(ctx, o)).To(Succeed())
	return o
}

// claim says that a process of the user is there.
func (s *scene) claim(u testenv.User, a *v1alpha1.Action) *v1alpha1.Claim {
	GinkgoHelper()
	o := s.claimFor(u, s.get(a))
	Expect(env.Client(u).Create(ctx, o)).To(Succeed())
	return o
}

func (s *scene) claimFor(u testenv.User, a *v1alpha1.Action) *v1alpha1.Claim {
	o := &v1alpha1.Claim{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: a.Name + "." + action.Speaker(u.Name)},
		Spec:       v1alpha1.ClaimSpec{ActionRef: v1alpha1.ObjectReference{Name: a.Name, UID: a.UID}, ClaimID: uuid.NewString()},
	}
	if a.Status.ClaimableTime != nil {
		o.Spec.ClaimableTime = *a.Status.ClaimableTime
	}
	return o
}

// resolve states what really happened, as a person who read the effect's last ambiguous receipt.
func (s *scene) resolve(u testenv.User, key string, result v1alpha1.ResolutionResult) *v1alpha1.Resolution {
	GinkgoHelper()
	o := s.resolution(u, s.effect(key), s.ambiguousReceipt(key), result)
	Expect(env.Client(u).Create(ctx, o)).To(Succeed())
	return o
}

func (s *scene) resolution(u testenv.User, e *v1alpha1.Effect, quoted v1alpha1.Receipt, result v1alpha1.ResolutionResult) *v1alpha1.Resolution {
	o := &v1alpha1.Resolution{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: fmt.Sprintf("%s.%d.%s", e.Name, e.Status.Attempt, action.Speaker(u.Name))},
		Spec: v1alpha1.ResolutionSpec{
			EffectRef: v1alpha1.ObjectReference{Name: e.Name, UID: e.UID}, Attempt: e.Status.Attempt, ActionType: e.Status.ActionType,
			Result: result, ReceiptRef: v1alpha1.ReceiptReference{Name: quoted.Name, Hash: quoted.Spec.Hash},
			Reason: "the provider's dashboard says so",
		},
	}
	if result == v1alpha1.ResolutionNotExecuted {
		o.Spec.Evidence = "https://provider.example.com/log/1"
	}
	return o
}

// ambiguousReceipt is the newest receipt that says the effect is ambiguous.
func (s *scene) ambiguousReceipt(key string) v1alpha1.Receipt {
	GinkgoHelper()
	var found *v1alpha1.Receipt
	for _, r := range s.receipts() {
		if r.Spec.EffectName == action.EffectName(key) && r.Spec.Result == "ambiguous" {
			found = &r
		}
	}
	Expect(found).NotTo(BeNil(), "no ambiguous receipt of %s", key)
	return *found
}

// effect reads the record of a key.
func (s *scene) effect(key string) *v1alpha1.Effect {
	GinkgoHelper()
	o := &v1alpha1.Effect{}
	Expect(env.Admin().Get(ctx, types.NamespacedName{Namespace: s.ns, Name: action.EffectName(key)}, o)).To(Succeed())
	Expect(o.Spec.Key).To(Equal(key))
	return o
}

// effectReaches waits until the record of a key is in a state.
func (s *scene) effectReaches(key string, state v1alpha1.EffectState) *v1alpha1.Effect {
	GinkgoHelper()
	var o *v1alpha1.Effect
	Eventually(func(g Gomega) {
		o = &v1alpha1.Effect{}
		g.Expect(env.Admin().Get(ctx, types.NamespacedName{Namespace: s.ns, Name: action.EffectName(key)}, o)).To(Succeed())
		g.Expect(o.Status).NotTo(BeNil())
		g.Expect(o.Status.State).To(Equal(state))
	}).Should(Succeed())
	return o
}

// verdict waits for the condition Accepted of a statement.
func verdict(o client.Object) metav1.Condition {
	GinkgoHelper()
	var c *metav1.Condition
	Eventually(func(g Gomega) {
		g.Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
		var conditions []metav1.Condition
		switch o := o.(type) {
		case *v1alpha1.Approval:
			conditions = o.Status.Conditions
		case *v1alpha1.Claim:
			conditions = o.Status.Conditions
		case *v1alpha1.Outcome:
			conditions = o.Status.Conditions
		case *v1alpha1.Resolution:
			conditions = o.Status.Conditions
		case *v1alpha1.LedgerAcceptance:
			conditions = o.Status.Conditions
		}
		c = meta.FindStatusCondition(conditions, v1alpha1.AcceptedCondition)
		g.Expect(c).NotTo(BeNil())
	}).Should(Succeed())
	Expect(c.Message).NotTo(BeEmpty())
	return *c
}

// expectRefused waits for a statement to be refused for a reason.
func expectRefused(o client.Object, reason string) {
	GinkgoHelper()
	c := verdict(o)
	Expect(c.Status).To(Equal(metav1.ConditionFalse), c.Message)
	Expect(c.Reason).To(Equal(reason), c.Message)
}

// expectAccepted waits for a statement to count.
func expectAccepted(o client.Object) {
	GinkgoHelper()
	c := verdict(o)
	Expect(c.Status).To(Equal(metav1.ConditionTrue), c.Message)
}

// chain is all of the namespace's receipts, by seq.
func (s *scene) chain() []v1alpha1.Receipt {
	GinkgoHelper()
	list := &v1alpha1.ReceiptList{}
	Expect(env.Admin().List(ctx, list, client.InNamespace(s.ns))).To(Succeed())
	return list.Items
}

// receipts are those of the chain that are not about policies and settings.
func (s *scene) receipts() []v1alpha1.Receipt {
	GinkgoHelper()
	return slices.DeleteFunc(s.chain(), func(r v1alpha1.Receipt) bool { return r.Spec.Kind == receipt.KindEvent })
}

// receiptOf is the receipt of an Action, as its document says it.
func (s *scene) receiptOf(a *v1alpha1.Action) receipt.Document {
	GinkgoHelper()
	for _, r := range s.receipts() {
		d, err := receipt.Parse(records.Entry(&r))
		Expect(err).NotTo(HaveOccurred())
		if d.Kind == receipt.KindAction && d.ActionUID == string(a.UID) {
			return d
		}
	}
	Fail("no receipt of " + a.Name)
	return receipt.Document{}
}

// chainHolds verifies the whole chain, and that no identity has two receipts.
func (s *scene) chainHolds() {
	GinkgoHelper()
	var entries []receipt.Entry
	seen := map[receipt.Identity]int64{}
	for _, r := range s.chain() {
		e := records.Entry(&r)
		id, err := receipt.IdentityOf(e)
		Expect(err).NotTo(HaveOccurred())
		Expect(seen).NotTo(HaveKey(id), "a second receipt of %s at %d", id, e.Seq)
		seen[id] = e.Seq
		entries = append(entries, e)
	}
	report := receipt.Verify(entries, receipt.Options{})
	Expect(report.Breaks).To(BeEmpty())
}

// committed takes a small refund to its end.
func (s *scene) committed(payment string) *v1alpha1.Action {
	GinkgoHelper()
	a := s.reaches(s.propose(refund(payment, 100)), v1alpha1.ActionAdmitted)
	s.report(s.agent, a, v1alpha1.OutcomeCommitted)
	return s.reaches(a, v1alpha1.ActionCommitted)
}

// ambiguous takes a small refund to an unknown end.
func (s *scene) ambiguous(payment string) *v1alpha1.Action {
	GinkgoHelper()
	a := s.reaches(s.propose(refund(payment, 100)), v1alpha1.ActionAdmitted)
	s.report(s.agent, a, v1alpha1.OutcomeUnknown)
	return s.reaches(a, v1alpha1.ActionAmbiguous)
}
