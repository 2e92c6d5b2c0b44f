package observe

import (
	"encoding/json"
	"fmt"
	"slices"
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
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/kernel/timeline"
	"ctrlrun.dev/operator/records"
	"ctrlrun.dev/operator/test/testenv"
)

// payments is the policy of all scenes: small refunds are allowed, larger ones are asked about, huge ones denied. Mail may be tried
// once.
const payments = `{
  "stripe.refund": {"effect": "refund:{payment_id}", "rules": [
    {"when": {"amount_gte": 0, "amount_lte": 500}, "decision": "allow"},
    {"when": {"amount_gte": 0, "amount_lte": 5000}, "decision": "approve"},
    {"decision": "deny"}]},
  "note.write": {"decision": "allow"},
  "mail.send": {"effect": "mail:{id}", "decision": "allow", "maxAttempts": 1}
}`

// Amounts of refunds, by what policy says of them.
const (
	allowed = 100
	asked   = 2000
	denied  = 9000
)

// lapsed is a time after which the lease of whoever was admitted is declared over.
const lapsed = 5*time.Minute + flow.LapseGrace + time.Second

// scene is a namespace and everybody who plays a part.
type scene struct {
	ns           string
	agent, night testenv.User
	approver     testenv.User
	resolver     testenv.User
	// owner writes policies, grants and settings, and may weaken them; editor writes settings and may not.
	owner, editor testenv.User
	viewer        testenv.User
}

// observing is a scene in observe mode.
func observing() *scene {
	GinkgoHelper()
	return newScene(`{"mode":"Observe"}`)
}

func enforcing() *scene {
	GinkgoHelper()
	return newScene(`{}`)
}

func newScene(settings string) *scene {
	GinkgoHelper()
	s := setScene()
	s.settings(settings)
	Eventually(func() []receipt.Document { return s.events(timeline.PolicyInForce) }).Should(HaveLen(1))
	Eventually(func() []receipt.Document { return s.events(timeline.SettingsInForce) }).Should(HaveLen(1))
	return s
}

// setScene makes a scene without Settings, which no operator has to have seen yet.
func setScene() *scene {
	GinkgoHelper()
	ns := env.Namespace(GinkgoT(), nil)
	s := &scene{
		ns: ns, agent: testenv.ServiceAccountUser(ns, "refund-agent"), night: testenv.ServiceAccountUser(ns, "night"),
		approver: testenv.User{Name: "alice"}, resolver: testenv.User{Name: "oncall"}, owner: testenv.User{Name: "paula"},
		editor: testenv.User{Name: "eddie"}, viewer: testenv.User{Name: "vera"},
	}
	for _, err := range []error{
		env.Grant(ctx, ns, "ctrlrun-agent", s.agent, s.night),
		env.Grant(ctx, ns, "ctrlrun-approver", s.approver),
		env.Grant(ctx, ns, "ctrlrun-resolver", s.resolver),
		env.Grant(ctx, ns, "ctrlrun-policy-admin", s.owner),
		env.Grant(ctx, ns, "ctrlrun-viewer", s.viewer),
		env.Allow(ctx, ns, s.editor, rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"settings"}, Verbs: []string{"get", "create", "update", "patch", "delete"}}),
	} {
		Expect(err).NotTo(HaveOccurred())
	}
	p := &v1alpha1.ActionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "payments"}}
	Expect(json.Unmarshal([]byte(`{"actions":`+payments+`}`), &p.Spec)).To(Succeed())
	Expect(env.Client(s.owner).Create(ctx, p)).To(Succeed())
	return s
}

// settings creates the namespace's Settings, or changes what is named of them, and returns when the operator goes by them.
func (s *scene) settings(spec string) {
	GinkgoHelper()
	Expect(s.settingsAs(s.owner, spec)).To(Succeed())
	s.settingsInForce()
}

func (s *scene) settingsInForce() *v1alpha1.Settings {
	GinkgoHelper()
	o := s.theSettings()
	Eventually(func(g Gomega) {
		g.Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
		g.Expect(o.Status.ObservedGeneration).To(Equal(o.Generation))
	}).Should(Succeed())
	return o
}

func (s *scene) theSettings() *v1alpha1.Settings {
	return &v1alpha1.Settings{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: v1alpha1.SettingsName}}
}

func (s *scene) settingsAs(u testenv.User, spec string) error {
	GinkgoHelper()
	o := s.theSettings()
	if err := env.Admin().Get(ctx, client.ObjectKeyFromObject(o), o); err == nil {
		return env.Client(u).Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"spec":`+spec+`}`)))
	}
	Expect(json.Unmarshal([]byte(spec), &o.Spec)).To(Succeed())
	return env.Client(u).Create(ctx, o)
}

// enforce and observe are the one line by which the mode is switched.
func (s *scene) enforce() { GinkgoHelper(); s.settings(`{"mode":"Enforce"}`) }
func (s *scene) observe() { GinkgoHelper(); s.settings(`{"mode":"Observe"}`) }

var counter atomic.Int64

// unique makes a value no other spec has.
func unique(prefix string) string { return fmt.Sprintf("%s-%d", prefix, counter.Add(1)) }

// proposal makes an Action. Without further words it is one of a process that waits for its admission.
type proposal struct {
	kind, arguments, claimID string
	lease                    int64
}

func act(kind, arguments string) proposal {
	return proposal{kind: kind, arguments: arguments, claimID: uuid.NewString()}
}

func refund(payment string, amount int) proposal {
	return act("stripe.refund", fmt.Sprintf(`{"payment_id":%q,"amount":%d}`, payment, amount))
}

func mail(id string) proposal { return act("mail.send", fmt.Sprintf(`{"id":%q}`, id)) }

func (p proposal) unclaimed() proposal { p.claimID = ""; return p }

// propose creates an Action as the agent.
func (s *scene) propose(p proposal) *v1alpha1.Action {
	GinkgoHelper()
	return s.proposeAs(s.agent, p)
}

func (s *scene) proposeAs(u testenv.User, p proposal) *v1alpha1.Action {
	GinkgoHelper()
	o := &v1alpha1.Action{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, GenerateName: "act-"}}
	o.Spec = v1alpha1.ActionSpec{ActionType: p.kind, Arguments: apiextensionsv1.JSON{Raw: []byte(p.arguments)}, ClaimID: p.claimID, LeaseDurationSeconds: p.lease}
	Expect(env.Client(u).Create(ctx, o)).To(Succeed())
	return o
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

// report states an outcome as the agent.
func (s *scene) report(a *v1alpha1.Action, result v1alpha1.OutcomeResult) {
	GinkgoHelper()
	a = s.get(a)
	claimID := a.Status.Execution.ClaimID
	Expect(env.Client(s.agent).Create(ctx, &v1alpha1.Outcome{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: flow.LockName(string(a.UID), claimID, a.Spec.Principal.Agent)},
		Spec:       v1alpha1.OutcomeSpec{ActionRef: v1alpha1.ObjectReference{Name: a.Name, UID: a.UID}, ClaimID: claimID, Result: result},
	})).To(Succeed())
}

// ends takes an Action of an enforcing namespace to its end.
func (s *scene) ends(p proposal, result v1alpha1.OutcomeResult, state v1alpha1.ActionState) *v1alpha1.Action {
	GinkgoHelper()
	a := s.reaches(s.propose(p), v1alpha1.ActionAdmitted)
	s.report(a, result)
	return s.reaches(a, state)
}

// ran takes an Action of an observing namespace to its end.
func (s *scene) ran(p proposal, result v1alpha1.OutcomeResult) *v1alpha1.Action {
	GinkgoHelper()
	return s.ends(p, result, v1alpha1.ActionObserved)
}

func (s *scene) claim(a *v1alpha1.Action) {
	GinkgoHelper()
	a = s.reaches(a, v1alpha1.ActionClaimable)
	Expect(env.Client(s.agent).Create(ctx, &v1alpha1.Claim{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: a.Name + "." + action.Speaker(s.agent.Name)},
		Spec:       v1alpha1.ClaimSpec{ActionRef: v1alpha1.ObjectReference{Name: a.Name, UID: a.UID}, ClaimID: uuid.NewString(), ClaimableTime: *a.Status.ClaimableTime},
	})).To(Succeed())
}

func (s *scene) answer(a *v1alpha1.Action, said v1alpha1.ApprovalDecision) {
	GinkgoHelper()
	a = s.get(a)
	Expect(env.Client(s.approver).Create(ctx, &v1alpha1.Approval{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: a.Name + "." + action.Speaker(s.approver.Name)},
		Spec: v1alpha1.ApprovalSpec{
			ActionRef: v1alpha1.ObjectReference{Name: a.Name, UID: a.UID}, ActionType: a.Spec.ActionType, ActionHash: a.Status.ActionHash,
			EffectKey: &a.Status.Effect.Key, Decision: said,
		},
	})).To(Succeed())
}

// effect reads the record of a key.
func (s *scene) effect(key string) *v1alpha1.Effect {
	GinkgoHelper()
	o := &v1alpha1.Effect{}
	Expect(env.Admin().Get(ctx, types.NamespacedName{Namespace: s.ns, Name: action.EffectName(key)}, o)).To(Succeed())
	return o
}

func (s *scene) effects() []v1alpha1.Effect {
	GinkgoHelper()
	list := &v1alpha1.EffectList{}
	Expect(env.Admin().List(ctx, list, client.InNamespace(s.ns))).To(Succeed())
	return list.Items
}

// documents are the receipts of the chain, by seq.
func (s *scene) documents() []receipt.Document {
	GinkgoHelper()
	var all []receipt.Document
	for _, r := range s.chain() {
		d, err := receipt.Parse(records.Entry(&r))
		Expect(err).NotTo(HaveOccurred())
		all = append(all, d)
	}
	return all
}

func (s *scene) chain() []v1alpha1.Receipt {
	GinkgoHelper()
	list := &v1alpha1.ReceiptList{}
	Expect(env.Admin().List(ctx, list, client.InNamespace(s.ns))).To(Succeed())
	return list.Items
}

// events are those on record in the namespace's chain, by type.
func (s *scene) events(kind timeline.Type) []receipt.Document {
	GinkgoHelper()
	return slices.DeleteFunc(s.documents(), func(d receipt.Document) bool { return d.Kind != receipt.KindEvent || d.Event != string(kind) })
}

// receiptOf is the one receipt of an Action.
func (s *scene) receiptOf(a *v1alpha1.Action) receipt.Document {
	GinkgoHelper()
	all := slices.DeleteFunc(s.documents(), func(d receipt.Document) bool { return d.Kind != receipt.KindAction || d.ActionUID != string(a.UID) })
	Expect(all).To(HaveLen(1), "receipts of "+a.Name)
	return all[0]
}

// chainHolds verifies the whole chain.
func (s *scene) chainHolds() {
	GinkgoHelper()
	var entries []receipt.Entry
	for _, r := range s.chain() {
		entries = append(entries, records.Entry(&r))
	}
	Expect(receipt.Verify(entries, receipt.Options{}).Breaks).To(BeEmpty())
}

// told are the types of what is told of an Action, in their order.
func told(a *v1alpha1.Action) []timeline.Type {
	var all []timeline.Type
	for _, e := range a.Status.Timeline {
		all = append(all, timeline.Type(e.Type))
	}
	return all
}

// toldReason is the reason of the last event of a type, or "-" if there is none.
func toldReason(a *v1alpha1.Action, kind timeline.Type) string {
	for _, e := range slices.Backward(a.Status.Timeline) {
		if e.Type == string(kind) {
			return string(e.Data["reason"])
		}
	}
	return "-"
}

// condition waits for one of an object's conditions.
func condition(o client.Object, kind string) metav1.Condition {
	GinkgoHelper()
	var c *metav1.Condition
	Eventually(func(g Gomega) {
		g.Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
		var all []metav1.Condition
		switch o := o.(type) {
		case *v1alpha1.Settings:
			all = o.Status.Conditions
		case *v1alpha1.Action:
			all = o.Status.Conditions
		case *v1alpha1.Resolution:
			all = o.Status.Conditions
		case *v1alpha1.Delegation:
			all = o.Status.Conditions
		case *v1alpha1.Approval:
			all = o.Status.Conditions
		}
		c = meta.FindStatusCondition(all, kind)
		g.Expect(c).NotTo(BeNil())
	}).Should(Succeed())
	return *c
}
