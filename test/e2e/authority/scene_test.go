package authority

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/kernel/timeline"
	"ctrlrun.dev/operator/records"
	"ctrlrun.dev/operator/test/testenv"
)

// payments is the policy of all scenes: small refunds are allowed, larger ones are asked about, huge ones denied.
const payments = `{
  "stripe.refund": {"effect": "refund:{payment_id}", "resource": "payment:{payment_id}", "rules": [
    {"when": {"amount_gte": 0, "amount_lte": 500}, "decision": "allow"},
    {"when": {"amount_gte": 0, "amount_lte": 5000}, "decision": "approve"},
    {"decision": "deny"}]},
  "note.write": {"decision": "allow"}
}`

// Amounts of refunds, by what policy says of them.
const (
	allowed = 100
	asked   = 2000
	denied  = 9000
)

// fields are a spec, or a part of one.
type fields map[string]any

// with changes some; nil leaves one out.
func (f fields) with(changes fields) fields {
	o := maps.Clone(f)
	for k, v := range changes {
		if v == nil {
			delete(o, k)
			continue
		}
		o[k] = v
	}
	return o
}

// into writes a spec as the API's type.
func (f fields) into(spec any) {
	GinkgoHelper()
	text, err := json.Marshal(f)
	Expect(err).NotTo(HaveOccurred())
	Expect(json.Unmarshal(text, spec)).To(Succeed())
}

// made is when the present scene was made.
var made time.Time

// at is so long after that, as specs say it: what is handed on ends no later than what it is a part of.
func at(d time.Duration) string { return made.Add(d).UTC().Format(time.RFC3339) }

// scene is a namespace where authority is required, and everybody who plays a part. No grant is in it yet.
type scene struct {
	ns string
	// agent proposes; night, dawn, noon and dusk are agents too, whom something may be handed on to.
	agent, night, dawn, noon, dusk testenv.User
	approver                       testenv.User
	// owner writes policies, grants and settings, and may weaken them; editor writes settings and may not.
	owner, editor testenv.User
	revoker       testenv.User
	// oncall may open envelopes, and nothing else.
	oncall testenv.User
}

func newScene() *scene {
	GinkgoHelper()
	s := setScene()
	s.settings(fields{"authority": "Required"})
	Eventually(func() []receipt.Document { return s.events(timeline.PolicyInForce) }).Should(HaveLen(1))
	Eventually(func() []receipt.Document { return s.events(timeline.SettingsInForce) }).Should(HaveLen(1))
	return s
}

// setScene makes a scene without Settings, which no operator has to have seen yet.
func setScene() *scene {
	GinkgoHelper()
	made = time.Now()
	ns := env.Namespace(GinkgoT(), nil)
	agent := func(name string) testenv.User { return testenv.ServiceAccountUser(ns, name) }
	s := &scene{
		ns: ns, agent: agent("refund-agent"), night: agent("night"), dawn: agent("dawn"), noon: agent("noon"), dusk: agent("dusk"),
		approver: testenv.User{Name: "alice"}, owner: testenv.User{Name: "paula"}, editor: testenv.User{Name: "eddie"},
		revoker: testenv.User{Name: "rosa"}, oncall: testenv.User{Name: "oncall"},
	}
	rule := func(resource string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{resource}, Verbs: verbs}
	}
	for _, err := range []error{
		env.Grant(ctx, ns, "ctrlrun-agent", s.agent, s.night, s.dawn, s.noon, s.dusk),
		env.Grant(ctx, ns, "ctrlrun-approver", s.approver),
		env.Grant(ctx, ns, "ctrlrun-policy-admin", s.owner),
		env.Grant(ctx, ns, "ctrlrun-revoker", s.revoker),
		env.Allow(ctx, ns, s.editor, rule("settings", "get", "create", "update", "delete")),
		env.Allow(ctx, ns, s.oncall, rule("delegations", "create"), rule("grants", "breakglass")),
	} {
		Expect(err).NotTo(HaveOccurred())
	}
	p := &v1alpha1.ActionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "payments"}}
	Expect(json.Unmarshal([]byte(`{"actions":`+payments+`}`), &p.Spec)).To(Succeed())
	Expect(env.Client(s.owner).Create(ctx, p)).To(Succeed())
	return s
}

// settings creates or replaces the namespace's Settings and returns when the operator has seen them.
func (s *scene) settings(spec fields) {
	GinkgoHelper()
	Expect(s.settingsAs(s.owner, spec)).To(Succeed())
	o := &v1alpha1.Settings{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: v1alpha1.SettingsName}}
	Eventually(func(g Gomega) {
		g.Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
		g.Expect(o.Status.ObservedGeneration).To(Equal(o.Generation))
	}).Should(Succeed())
}

func (s *scene) settingsAs(u testenv.User, spec fields) error {
	GinkgoHelper()
	return write(u, &v1alpha1.Settings{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: v1alpha1.SettingsName}}, func(o *v1alpha1.Settings) {
		o.Spec = v1alpha1.SettingsSpec{}
		spec.into(&o.Spec)
	})
}

// write creates an object or replaces its spec, as a user; the operator writes its status meanwhile.
func write[T client.Object](u testenv.User, o T, set func(T)) (err error) {
	for range 10 {
		err = env.Client(u).Get(ctx, client.ObjectKeyFromObject(o), o)
		set(o)
		if err != nil {
			return env.Client(u).Create(ctx, o)
		}
		if err = env.Client(u).Update(ctx, o); err == nil || !strings.Contains(err.Error(), "modified") {
			return err
		}
	}
	return err
}

// refunds are what most grants are about.
func (s *scene) refunds(changes fields) fields {
	return fields{
		"subject": fields{"agent": s.agent.Name}, "actions": []string{"stripe.*"}, "resources": []string{"payment:*"},
		"constraints": fields{"amount_lte": 100000}, "environments": []string{"production"}, "expirationTime": at(2 * time.Hour), "delegable": true,
	}.with(changes)
}

// grant creates or replaces a Grant, and returns when the operator has judged it.
func (s *scene) grant(name string, spec fields) *v1alpha1.Grant {
	GinkgoHelper()
	o := &v1alpha1.Grant{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name}}
	Expect(write(s.owner, o, func(o *v1alpha1.Grant) {
		o.Spec = v1alpha1.GrantSpec{}
		spec.into(&o.Spec)
		o.Spec.Raw = nil
	})).To(Succeed())
	Eventually(func(g Gomega) {
		g.Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
		g.Expect(o.Status.ObservedGeneration).To(Equal(o.Generation))
	}).Should(Succeed())
	return o
}

// removeGrant deletes a Grant, and returns when the operator has said so.
func (s *scene) removeGrant(name string) {
	GinkgoHelper()
	before := len(s.events(timeline.GrantRemoved))
	s.deleteGrant(name)
	Eventually(func() []receipt.Document { return s.events(timeline.GrantRemoved) }).Should(HaveLen(before + 1))
}

func (s *scene) deleteGrant(name string) {
	GinkgoHelper()
	Expect(env.Client(s.owner).Delete(ctx, &v1alpha1.Grant{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name}})).To(Succeed())
}

func grantRef(name string) fields      { return fields{"kind": "Grant", "name": name} }
func delegationRef(name string) fields { return fields{"kind": "Delegation", "name": name} }

// part is of what refunds grants, to another agent, and a little less.
func (s *scene) part(parent fields, to testenv.User, changes fields) fields {
	return fields{
		"parentRef": parent, "subject": fields{"agent": to.Name}, "actions": []string{"stripe.refund"}, "resources": []string{"payment:*"},
		"constraints": fields{"amount_lte": 50000}, "environments": []string{"production"}, "expirationTime": at(90 * time.Minute), "delegable": true,
	}.with(changes)
}

// delegate makes a Delegation as somebody.
func (s *scene) delegate(u testenv.User, name string, spec fields) *v1alpha1.Delegation {
	GinkgoHelper()
	o, err := s.delegates(u, name, spec)
	Expect(err).NotTo(HaveOccurred())
	return o
}

func (s *scene) delegates(u testenv.User, name string, spec fields) (*v1alpha1.Delegation, error) {
	GinkgoHelper()
	o := &v1alpha1.Delegation{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name}}
	spec.into(&o.Spec)
	return o, env.Client(u).Create(ctx, o)
}

// handed makes a Delegation that is accepted.
func (s *scene) handed(u testenv.User, name string, spec fields) *v1alpha1.Delegation {
	GinkgoHelper()
	o := s.delegate(u, name, spec)
	expectAccepted(o)
	return o
}

// chainOf hands refunds on: from the agent to night, from night to dawn, from dawn to noon, so many times.
func (s *scene) chainOf(depth int) []*v1alpha1.Delegation {
	GinkgoHelper()
	users := []testenv.User{s.agent, s.night, s.dawn, s.noon, s.dusk}
	parent := grantRef("refunds")
	var all []*v1alpha1.Delegation
	for i := range depth {
		name := "to-" + users[i+1].Name[strings.LastIndex(users[i+1].Name, ":")+1:]
		all = append(all, s.handed(users[i], name, s.part(parent, users[i+1], nil)))
		parent = delegationRef(name)
	}
	return all
}

// revocation is what a person would say who cuts a Delegation.
func (s *scene) revocation(u testenv.User, d *v1alpha1.Delegation) *v1alpha1.Revocation {
	reason := "it leaked"
	return &v1alpha1.Revocation{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: d.Name + "." + action.Speaker(u.Name)},
		Spec:       v1alpha1.RevocationSpec{DelegationRef: v1alpha1.ObjectReference{Name: d.Name, UID: d.UID}, Reason: &reason},
	}
}

// revoke cuts a Delegation and returns when the operator has said so.
func (s *scene) revoke(d *v1alpha1.Delegation) *v1alpha1.Revocation {
	GinkgoHelper()
	o := s.revocation(s.revoker, d)
	Expect(env.Client(s.revoker).Create(ctx, o)).To(Succeed())
	expectAccepted(o)
	return o
}

var counter atomic.Int64

// unique makes a value no other spec has.
func unique(prefix string) string { return fmt.Sprintf("%s-%d", prefix, counter.Add(1)) }

// proposed makes an Action of somebody.
func (s *scene) proposed(u testenv.User, kind string, arguments fields, more ...func(*v1alpha1.ActionSpec)) *v1alpha1.Action {
	GinkgoHelper()
	text, err := json.Marshal(arguments)
	Expect(err).NotTo(HaveOccurred())
	o := &v1alpha1.Action{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, GenerateName: "act-"}}
	o.Spec = v1alpha1.ActionSpec{ActionType: kind, Arguments: apiextensionsv1.JSON{Raw: text}, ClaimID: uuid.NewString()}
	for _, f := range more {
		f(&o.Spec)
	}
	Expect(env.Client(u).Create(ctx, o)).To(Succeed())
	return o
}

// unclaimed is an Action that no process waits for: it becomes Claimable first.
func unclaimed(spec *v1alpha1.ActionSpec) { spec.ClaimID = "" }

// refund proposes one.
func (s *scene) refund(u testenv.User, amount int, more ...func(*v1alpha1.ActionSpec)) *v1alpha1.Action {
	GinkgoHelper()
	return s.proposed(u, "stripe.refund", fields{"payment_id": unique("txn"), "amount": amount}, more...)
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

// eventsTold are the types of what is told of an Action, in their order.
func eventsTold(a *v1alpha1.Action) []timeline.Type {
	var all []timeline.Type
	for _, e := range a.Status.Timeline {
		all = append(all, timeline.Type(e.Type))
	}
	return all
}

// told is the data of the last event of a type.
func told(a *v1alpha1.Action, kind timeline.Type) map[string]string {
	GinkgoHelper()
	for _, e := range slices.Backward(a.Status.Timeline) {
		if e.Type == string(kind) {
			data := map[string]string{}
			for k, v := range e.Data {
				data[k] = string(v)
			}
			return data
		}
	}
	Fail(fmt.Sprintf("%s tells nothing of %s: %v", a.Name, kind, eventsTold(a)))
	return nil
}

// refusal is how authority refuses an Action: what its message names, and what AUTHORITY_DENIED says beside the reason.
type refusal struct {
	reason decision.Reason
	hints  []string
	data   map[string]string
}

// refused expects that an Action ended because authority refuses it, before anybody was asked and anything reserved.
func (s *scene) refused(a *v1alpha1.Action, r refusal) *v1alpha1.Action {
	GinkgoHelper()
	a = s.refusedSince(a, r)
	Expect(eventsTold(a)).To(Equal([]timeline.Type{timeline.ActionProposed, timeline.AuthorityDenied, timeline.ActionDenied}))
	Expect(a.Status.Approval).To(BeNil(), "people were asked")
	return a
}

// refusedSince expects that an Action ended because authority refuses it, whatever happened to it before.
func (s *scene) refusedSince(a *v1alpha1.Action, r refusal) *v1alpha1.Action {
	GinkgoHelper()
	a = s.reaches(a, v1alpha1.ActionDenied)
	Expect(a.Status.Reason).To(Equal(string(r.reason)), a.Status.Message)
	for _, hint := range append(r.hints, "Nothing was executed.") {
		Expect(a.Status.Message).To(ContainSubstring(hint))
	}
	Expect(a.Status.Decision).To(BeEquivalentTo("Deny"))
	Expect(a.Status.DecisionReason).To(Equal(string(r.reason)))
	Expect(a.Status.Authority).To(BeNil())
	Expect(a.Status.PolicyRef).To(BeNil(), "what policy says is not told to somebody who may not ask")
	Expect(a.Status.Execution).To(BeNil())
	s.noEffect(a)

	events := eventsTold(a)
	Expect(events[len(events)-2:]).To(Equal([]timeline.Type{timeline.AuthorityDenied, timeline.ActionDenied}))
	data, said := map[string]string{"reason": string(r.reason)}, told(a, timeline.AuthorityDenied)
	maps.Copy(data, r.data)
	if _, rooted := said["grant"]; !rooted {
		delete(said, "depth") // nobody knows how deep it is
	}
	Expect(said).To(Equal(data))
	Expect(told(a, timeline.ActionDenied)).To(HaveKeyWithValue("reason", string(r.reason)))

	d := s.receiptOf(a)
	Expect(d.Result).To(Equal(decision.Denied))
	Expect(d.Reason).To(Equal(r.reason))
	Expect(d.Decision).To(Equal(decision.Deny))
	Expect(d.DecisionReason).To(Equal(string(r.reason)))
	Expect(d.Authority).To(BeNil())
	Expect(d.Policy).To(BeNil())
	Expect(d.EffectUID).To(BeEmpty())
	Expect(d.Attempt).To(BeZero())
	Expect(d.ExecutorMode).To(BeEmpty())
	Expect(d.Message).To(Equal(a.Status.Message))
	return a
}

// noEffect expects that nothing is reserved for an Action.
func (s *scene) noEffect(a *v1alpha1.Action) {
	GinkgoHelper()
	list := &v1alpha1.EffectList{}
	Expect(env.Admin().List(ctx, list, client.InNamespace(s.ns))).To(Succeed())
	for _, e := range list.Items {
		Expect(a.Status.Effect == nil || e.Name != a.Status.Effect.Name).To(BeTrue(), "%s is reserved", e.Spec.Key)
	}
}

// reports states an outcome as a user.
func (s *scene) reports(u testenv.User, a *v1alpha1.Action, result v1alpha1.OutcomeResult) {
	GinkgoHelper()
	a = s.get(a)
	claimID := a.Status.Execution.ClaimID
	Expect(env.Client(u).Create(ctx, &v1alpha1.Outcome{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: flow.LockName(string(a.UID), claimID, a.Spec.Principal.Agent)},
		Spec:       v1alpha1.OutcomeSpec{ActionRef: v1alpha1.ObjectReference{Name: a.Name, UID: a.UID}, ClaimID: claimID, Result: result},
	})).To(Succeed())
}

// executed takes an Action that is or will be admitted to its end, and gives it with its receipt.
func (s *scene) executed(u testenv.User, a *v1alpha1.Action) (*v1alpha1.Action, receipt.Document) {
	GinkgoHelper()
	a = s.reaches(a, v1alpha1.ActionAdmitted)
	s.reports(u, a, v1alpha1.OutcomeCommitted)
	a = s.reaches(a, v1alpha1.ActionCommitted)
	d := s.receiptOf(a)
	Expect(d.Result).To(Equal(decision.Committed))
	return a, d
}

// passes expects that a small refund of somebody passes by an authority, as its status, its timeline and its receipt say.
func (s *scene) passes(u testenv.User, by v1alpha1.AuthorityReference, data map[string]string) *v1alpha1.Action {
	GinkgoHelper()
	a, d := s.executed(u, s.refund(u, allowed))
	s.passedBy(a, d, by, data)
	Expect(eventsTold(a)).To(Equal([]timeline.Type{timeline.ActionProposed, timeline.AuthorityResolved, timeline.PolicyEvaluated, timeline.EffectReserved, timeline.ExecutionStarted, timeline.ExecutionCommitted}))
	return a
}

func (s *scene) passedBy(a *v1alpha1.Action, d receipt.Document, by v1alpha1.AuthorityReference, data map[string]string) {
	GinkgoHelper()
	Expect(a.Status.Authority).To(HaveValue(Equal(by)))
	Expect(d.Authority).To(HaveValue(Equal(receipt.Authority{Kind: string(by.Kind), Name: by.Name, Root: by.Root, BreakGlass: by.BreakGlass})))
	want := map[string]string{"reason": string(decision.AuthorityGrant)}
	maps.Copy(want, data)
	Expect(told(a, timeline.AuthorityResolved)).To(Equal(want))
	Expect(d.DecisionReason).NotTo(Equal(string(decision.AuthorityGrant)), "who lets it pass is no reason of a decision")
}

func byGrant(name string) v1alpha1.AuthorityReference {
	return v1alpha1.AuthorityReference{Kind: v1alpha1.ParentGrant, Name: name, Root: name}
}

func byDelegation(name, root string) v1alpha1.AuthorityReference {
	return v1alpha1.AuthorityReference{Kind: v1alpha1.ParentDelegation, Name: name, Root: root}
}

func (s *scene) answer(u testenv.User, a *v1alpha1.Action, said v1alpha1.ApprovalDecision) {
	GinkgoHelper()
	a = s.get(a)
	o := &v1alpha1.Approval{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: a.Name + "." + action.Speaker(u.Name)},
		Spec: v1alpha1.ApprovalSpec{
			ActionRef: v1alpha1.ObjectReference{Name: a.Name, UID: a.UID}, ActionType: a.Spec.ActionType, ActionHash: a.Status.ActionHash, Decision: said,
		},
	}
	if e := a.Status.Effect; e != nil {
		o.Spec.EffectKey = &e.Key
	}
	Expect(env.Client(u).Create(ctx, o)).To(Succeed())
}

func (s *scene) claim(u testenv.User, a *v1alpha1.Action) {
	GinkgoHelper()
	a = s.get(a)
	Expect(env.Client(u).Create(ctx, &v1alpha1.Claim{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: a.Name + "." + action.Speaker(u.Name)},
		Spec:       v1alpha1.ClaimSpec{ActionRef: v1alpha1.ObjectReference{Name: a.Name, UID: a.UID}, ClaimID: uuid.NewString(), ClaimableTime: *a.Status.ClaimableTime},
	})).To(Succeed())
}

// conditionsOf reads an object again, and gives its conditions.
func conditionsOf(o client.Object) ([]metav1.Condition, error) {
	err := env.Admin().Get(ctx, client.ObjectKeyFromObject(o), o)
	switch o := o.(type) {
	case *v1alpha1.Delegation:
		return o.Status.Conditions, err
	case *v1alpha1.Revocation:
		return o.Status.Conditions, err
	case *v1alpha1.Grant:
		return o.Status.Conditions, err
	}
	return nil, fmt.Errorf("%T has no conditions here", o)
}

// condition waits for one of an object.
func condition(o client.Object, kind string) metav1.Condition {
	GinkgoHelper()
	var c *metav1.Condition
	Eventually(func(g Gomega) {
		all, err := conditionsOf(o)
		g.Expect(err).NotTo(HaveOccurred())
		c = meta.FindStatusCondition(all, kind)
		g.Expect(c).NotTo(BeNil())
	}).Should(Succeed())
	Expect(c.Message).NotTo(BeEmpty())
	return *c
}

// expectAccepted waits for a statement to count, and expects that its status names the receipt that says so.
func expectAccepted(o client.Object) {
	GinkgoHelper()
	c := condition(o, v1alpha1.AcceptedCondition)
	Expect(c.Status).To(Equal(metav1.ConditionTrue), "%s: %s", c.Reason, c.Message)
	Expect(c.Reason).To(Equal(v1alpha1.ReasonAccepted))
}

// revoked waits until a Delegation says that somebody cut it.
func revoked(d *v1alpha1.Delegation) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		all, err := conditionsOf(d)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(meta.IsStatusConditionTrue(all, v1alpha1.RevokedCondition)).To(BeTrue())
	}).Should(Succeed())
}

// chain is all of the namespace's receipts, by seq.
func (s *scene) chain() []v1alpha1.Receipt {
	GinkgoHelper()
	list := &v1alpha1.ReceiptList{}
	Expect(env.Admin().List(ctx, list, client.InNamespace(s.ns))).To(Succeed())
	return list.Items
}

// events are those on record in the namespace's chain, by type.
func (s *scene) events(kinds ...timeline.Type) []receipt.Document {
	GinkgoHelper()
	var found []receipt.Document
	for _, r := range s.chain() {
		d, err := receipt.Parse(records.Entry(&r))
		Expect(err).NotTo(HaveOccurred())
		if d.Kind == receipt.KindEvent && slices.Contains(kinds, timeline.Type(d.Event)) {
			found = append(found, d)
		}
	}
	return found
}

// eventsOf are what is on record of one Delegation.
func (s *scene) eventsOf(uid types.UID) []receipt.Document {
	GinkgoHelper()
	all := s.events(timeline.DelegationCreated, timeline.DelegationRejected, timeline.DelegationRevoked)
	return slices.DeleteFunc(all, func(d receipt.Document) bool { return d.SubjectUID != string(uid) })
}

// onRecord expects the receipts about one Delegation, each once, and that a status names the receipt.
func (s *scene) onRecord(d *v1alpha1.Delegation, kinds ...timeline.Type) []receipt.Document {
	GinkgoHelper()
	all := s.eventsOf(d.UID)
	var found []timeline.Type
	for _, e := range all {
		found = append(found, timeline.Type(e.Event))
	}
	Expect(found).To(Equal(kinds))
	return all
}

// quotes expects that a status names a receipt as it is stored.
func (s *scene) quotes(ref *v1alpha1.ReceiptReference, d receipt.Document) {
	GinkgoHelper()
	Expect(ref).NotTo(BeNil())
	Expect(ref.Seq).To(Equal(d.Seq))
	r := &v1alpha1.Receipt{}
	Expect(env.Admin().Get(ctx, types.NamespacedName{Namespace: s.ns, Name: ref.Name}, r)).To(Succeed())
	Expect(r.Spec.Seq).To(Equal(ref.Seq))
	Expect(r.Spec.Hash).To(Equal(ref.Hash))
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
	Expect(receipt.Verify(entries, receipt.Options{}).Breaks).To(BeEmpty())
}

// mayRepresent lets an agent act on behalf of users.
func (s *scene) mayRepresent(u testenv.User, users ...string) {
	GinkgoHelper()
	Expect(env.Allow(ctx, s.ns, u, rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"users"}, ResourceNames: users, Verbs: []string{"represent"}})).To(Succeed())
}
