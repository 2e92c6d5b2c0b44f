package export

import (
	"context"
	"fmt"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clientevents "k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/controllers/observe"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/kernel/timeline"
	"ctrlrun.dev/operator/records"
)

// Which things become Kubernetes Events.
const (
	// NotableEvents: what a person has to see or to act on.
	NotableEvents = "notable"
	// AllEvents: everything in an Action's timeline.
	AllEvents = "all"
	// NoEvents: nothing.
	NoEvents = "none"
)

// CheckKubernetesEvents refuses a word that is none of those.
func CheckKubernetesEvents(which string) error {
	switch which {
	case "", NotableEvents, AllEvents, NoEvents:
		return nil
	}
	return fmt.Errorf("which things become Kubernetes Events: %q is not one of %s, %s, %s", which, NotableEvents, AllEvents, NoEvents)
}

const (
	// eventsPerSecond and eventBurst keep Events from competing with decisions for the apiserver. The recorder has no bound
	// of its own: it starts a goroutine for each Event, and keeps it while the apiserver does not answer.
	eventsPerSecond = 20
	eventBurst      = 50
	// maxNote is the most bytes an Event's note may have.
	maxNote = 1024
)

// KubernetesEvents tells people what happened, where they look first.
type KubernetesEvents struct {
	*Queue[kubernetesEvent]
	which    string
	recorder clientevents.EventRecorder
	pace     flowcontrol.RateLimiter
}

// kubernetesEvent is an Event that is not written yet.
type kubernetesEvent struct {
	regarding, related *corev1.ObjectReference
	kind               string // Normal or Warning
	reason, action     string
	note               string
}

// NewKubernetesEvents writes Events by a recorder: which of NotableEvents, AllEvents and NoEvents; empty is NotableEvents.
func NewKubernetesEvents(recorder clientevents.EventRecorder, which string, log logr.Logger) *KubernetesEvents {
	k := &KubernetesEvents{which: which, recorder: recorder, pace: flowcontrol.NewTokenBucketRateLimiter(eventsPerSecond, eventBurst)}
	k.Queue = NewQueue("kubernetes-events", Limits{Items: 2048, Bytes: 4 << 20, Batch: 1}, k.write, log)
	return k
}

// ActionWritten implements observe.Observer.
func (k *KubernetesEvents) ActionWritten(w observe.ActionWrite) {
	for i, e := range w.Events {
		if !k.wanted(e.Type) {
			continue
		}
		event := kubernetesEvent{
			regarding: &corev1.ObjectReference{
				APIVersion: v1alpha1.GroupVersion.String(), Kind: "Action", Namespace: w.Object.Namespace, Name: w.Object.Name, UID: w.Object.UID,
			},
			kind: eventKind(e), reason: e.Type.Reason(), action: stepOf(e.Type),
			note: sentence(e),
		}
		// The message of a status says what its last event led to, and what to do now.
		if i == len(w.Events)-1 && w.After.Message != "" && e.Type != timeline.EffectResolved {
			event.note = w.After.Message
		}
		if f := w.After.Effect; f != nil && aboutEffect(e.Type) {
			event.related = &corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Effect", Namespace: w.Object.Namespace, Name: f.Name}
			if w.Receipt != nil && w.Receipt.EffectName == f.Name {
				event.related.UID = types.UID(w.Receipt.EffectUID)
			}
		}
		k.put(event)
	}
}

// EffectWritten implements observe.Observer.
func (k *KubernetesEvents) EffectWritten(observe.EffectWrite) {}

// ReceiptAppended implements observe.Observer: for what happens without an Action.
func (k *KubernetesEvents) ReceiptAppended(a observe.ReceiptAppend) {
	d := a.Document
	event := kubernetesEvent{
		// One Event for each receipt: without it the recorder counts a second one as a repetition of the first.
		related: &corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Receipt", Namespace: d.Namespace, Name: receipt.Name(d.Namespace, d.Seq)},
	}
	switch d.Kind {
	case receipt.KindEvent:
		t := timeline.Type(d.Event)
		if !k.wanted(t) {
			return
		}
		e := timeline.Event{Type: t, Data: d.Data}
		event.regarding = subject(d)
		event.kind, event.reason, event.action = eventKind(e), t.Reason(), stepOf(t)
		event.note = sentence(e)
	case receipt.KindStatusMissing:
		t := timeline.ExecutionAmbiguous
		if !k.wanted(t) {
			return
		}
		event.regarding = &corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Effect", Namespace: d.Namespace, Name: d.EffectName, UID: types.UID(d.EffectUID)}
		event.kind, event.reason, event.action = eventKind(timeline.Event{Type: t}), t.Reason(), stepOf(t)
		event.note = d.Message
	default:
		return
	}
	k.put(event)
}

// subject is the object that an event without an Action is about.
func subject(d receipt.Document) *corev1.ObjectReference {
	ref := &corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Namespace: d.Namespace, UID: types.UID(d.SubjectUID)}
	switch timeline.Type(d.Event) {
	case timeline.PolicyInForce, timeline.PolicyRemoved:
		ref.Kind, ref.Name = "ActionPolicy", d.Data["name"]
	case timeline.SettingsInForce, timeline.SettingsRemoved:
		ref.Kind, ref.Name = "Settings", v1alpha1.SettingsName
	case timeline.GrantInForce, timeline.GrantRemoved:
		ref.Kind, ref.Name = "Grant", d.Data["name"]
	case timeline.DelegationCreated, timeline.DelegationRejected, timeline.DelegationRevoked:
		ref.Kind, ref.Name = "Delegation", d.Data["delegation"]
	default:
		// A Ledger is in no namespace. Its Event is, or nobody who looks there would see it.
		ref.Kind, ref.Name, ref.UID = "Ledger", d.Namespace, ""
	}
	return ref
}

func (k *KubernetesEvents) put(e kubernetesEvent) {
	e.note = records.Clip(strings.TrimSpace(e.note), maxNote)
	if e.note == "" {
		e.note = e.reason
	}
	k.Put(e, 512+len(e.note))
}

func (k *KubernetesEvents) write(ctx context.Context, batch []kubernetesEvent) (int, error) {
	for i, e := range batch {
		if err := k.pace.Wait(ctx); err != nil {
			return i, err
		}
		if e.related == nil {
			k.recorder.Eventf(e.regarding, nil, e.kind, e.reason, e.action, "%s", e.note)
			continue
		}
		k.recorder.Eventf(e.regarding, e.related, e.kind, e.reason, e.action, "%s", e.note)
	}
	return len(batch), nil
}

func (k *KubernetesEvents) wanted(t timeline.Type) bool {
	switch k.which {
	case AllEvents:
		return true
	case NoEvents:
		return false
	}
	return notable(t)
}

// notable is what a person has to see or to act on.
func notable(t timeline.Type) bool {
	switch t {
	case timeline.ApprovalRequested, timeline.ApprovalDenied, timeline.ApprovalExpired,
		timeline.ActionDenied, timeline.ActionBlocked, timeline.ActionExpired,
		timeline.EffectReservationRefused, timeline.ExecutionFailed, timeline.ExecutionAmbiguous, timeline.EffectResolved,
		timeline.PolicyInForce, timeline.PolicyRemoved, timeline.SettingsInForce, timeline.SettingsRemoved,
		timeline.GrantInForce, timeline.GrantRemoved, timeline.DelegationCreated, timeline.DelegationRejected, timeline.DelegationRevoked,
		timeline.AdmissionGap, timeline.ClockSkewDetected:
		return true
	}
	return false
}

// eventKind is Warning for what went against somebody's will, and for a glass that was broken.
func eventKind(e timeline.Event) string {
	switch e.Type {
	case timeline.AuthorityDenied, timeline.ApprovalDenied, timeline.ActionDenied, timeline.ActionBlocked, timeline.EffectReservationRefused,
		timeline.ExecutionAmbiguous, timeline.DelegationRejected, timeline.AdmissionGap, timeline.ClockSkewDetected:
		return corev1.EventTypeWarning
	case timeline.DelegationCreated:
		if breaksGlass(e) {
			return corev1.EventTypeWarning
		}
	}
	return corev1.EventTypeNormal
}

// breaksGlass reports whether an event is about authority for emergencies.
func breaksGlass(e timeline.Event) bool { return e.Data["break_glass"] == "true" }

// aboutEffect reports whether an event says something about the Effect, too.
func aboutEffect(t timeline.Type) bool {
	switch t {
	case timeline.EffectReserved, timeline.EffectReservationRefused, timeline.ExecutionAmbiguous, timeline.EffectResolved:
		return true
	}
	return false
}

// stepOf is what the operator did when it happened, in one word for programs.
func stepOf(t timeline.Type) string {
	switch t {
	case timeline.ActionProposed, timeline.ActionHeld, timeline.AuthorityResolved, timeline.AuthorityDenied, timeline.PolicyEvaluated,
		timeline.ActionDenied, timeline.ActionBlocked, timeline.ActionExpired:
		return "Decide"
	case timeline.ApprovalRequested, timeline.ApprovalGranted, timeline.ApprovalDenied, timeline.ApprovalExpired,
		timeline.ApprovalInvalidated, timeline.ApprovalConsumed:
		return "Approve"
	case timeline.EffectReserved, timeline.EffectReservationRefused:
		return "Reserve"
	case timeline.ActionClaimable, timeline.ExecutionStarted:
		return "Admit"
	case timeline.ExecutionCommitted, timeline.ExecutionFailed, timeline.ExecutionAmbiguous:
		return "Settle"
	case timeline.EffectResolved, timeline.ReconciliationStarted, timeline.ReconciliationResolved:
		return "Resolve"
	}
	return "Govern"
}

// sentence says what an event means to a person, by what it carries: never by arguments.
func sentence(e timeline.Event) string {
	// of is a value of the event, or what to say where it has none.
	of := func(key, otherwise string) string {
		if v := e.Data[key]; v != "" {
			return v
		}
		return otherwise
	}
	// because appends the reason, if there is one.
	because := func(s string) string {
		if r := e.Data["reason"]; r != "" {
			return s + ": " + r + "."
		}
		return s + "."
	}
	switch e.Type {
	case timeline.ActionProposed:
		return "It was proposed."
	case timeline.ActionHeld:
		return because("It cannot be decided at present and waits")
	case timeline.AuthorityResolved:
		if d := e.Data["delegation"]; d != "" {
			return fmt.Sprintf("Delegation %s, which begins at Grant %s, lets the agent propose it.", d, of("grant", "unknown"))
		}
		return fmt.Sprintf("Grant %s lets the agent propose it.", of("grant", "unknown"))
	case timeline.AuthorityDenied:
		return because("No Grant and no Delegation lets the agent propose it")
	case timeline.PolicyEvaluated:
		return because("The policy says " + of("decision", "nothing"))
	case timeline.ApprovalRequested:
		return fmt.Sprintf("It waits for %s approval(s) until %s. To answer: kubectl ctrlrun approve or deny.", of("required", "1"), of("expires", "its expiry"))
	case timeline.ApprovalGranted:
		return of("approver", "Somebody") + " approved it."
	case timeline.ApprovalDenied:
		return of("approver", "Somebody") + " said no. Nothing is executed."
	case timeline.ApprovalExpired:
		return "Not enough people answered in time. Nothing is executed; propose it again if it is still wanted."
	case timeline.ApprovalInvalidated:
		return because("An approval does not count")
	case timeline.ActionClaimable:
		return fmt.Sprintf("It may be executed, and waits until %s for a process that claims it: kubectl ctrlrun claim.", of("expires", "its expiry"))
	case timeline.ApprovalConsumed:
		return fmt.Sprintf("The approval of %s was spent.", of("approver", "somebody"))
	case timeline.EffectReserved:
		return fmt.Sprintf("Its effect is reserved for it, attempt %s.", of("attempt", "unknown"))
	case timeline.EffectReservationRefused:
		return because("Its effect cannot be reserved")
	case timeline.ExecutionStarted:
		return "One process was admitted to execute it."
	case timeline.ExecutionSuspended:
		return "Its executor asked back, and waits for a process that goes on with the answer."
	case timeline.ExecutionResumed:
		return "One process goes on after its executor asked back."
	case timeline.ReconciliationStarted:
		return "An Executor is asked what became of an effect that nobody knows of."
	case timeline.ReconciliationResolved:
		switch e.Data["answer"] {
		case "committed":
			return "The Executor that was asked said that the effect happened."
		case "not_executed":
			return "The Executor that was asked said that the effect did not happen."
		}
		return "The Executor that was asked did not know what became of the effect."
	case timeline.ExecutionCommitted:
		return "It was executed."
	case timeline.ExecutionFailed:
		return "It was not executed. It may be proposed again."
	case timeline.ExecutionAmbiguous:
		return because("Nobody knows whether it was executed. Find out, then say so with kubectl ctrlrun resolve; nothing is tried again before")
	case timeline.ActionDenied:
		return because("It was denied, and nothing was executed")
	case timeline.ActionBlocked:
		return because("It was blocked, and nothing was executed")
	case timeline.ActionExpired:
		return because("It expired, and nothing was executed")
	case timeline.EffectResolved:
		return fmt.Sprintf("%s said what really happened: %s (Resolution %s).", of("resolver", "Somebody"), of("result", "unknown"), of("resolution", "unknown"))
	case timeline.PolicyInForce:
		return fmt.Sprintf("Generation %s of ActionPolicy %s decides from now on.", of("generation", "unknown"), of("name", "unknown"))
	case timeline.PolicyRemoved:
		return fmt.Sprintf("ActionPolicy %s is gone and decides nothing any more.", of("name", "unknown"))
	case timeline.SettingsInForce:
		return fmt.Sprintf("Generation %s of the Settings holds from now on.", of("generation", "unknown"))
	case timeline.SettingsRemoved:
		return "The Settings are gone; the defaults hold."
	case timeline.GrantInForce:
		return fmt.Sprintf("Generation %s of Grant %s gives authority from now on.", of("generation", "unknown"), of("name", "unknown"))
	case timeline.GrantRemoved:
		return fmt.Sprintf("Grant %s is gone: neither it nor what was delegated from it gives authority any more.", of("name", "unknown"))
	case timeline.DelegationCreated:
		how := "handed authority on"
		if breaksGlass(e) {
			how = "broke the glass"
		}
		// What the delegator wrote is theirs: it stands in the Delegation and the receipt.
		return fmt.Sprintf("%s %s: Delegation %s of %s counts until %s.", of("delegator", "Somebody"), how, of("delegation", "unknown"), of("parent", "unknown"),
			of("expires", "its parent ends"))
	case timeline.DelegationRejected:
		return because(fmt.Sprintf("Delegation %s was refused and gives no authority", of("delegation", "unknown")))
	case timeline.DelegationRevoked:
		return fmt.Sprintf("%s revoked Delegation %s: neither it nor what was delegated from it gives authority any more.", of("revoker", "Somebody"), of("delegation", "unknown"))
	case timeline.AdmissionGap:
		return fmt.Sprintf("The admission policies were away or changed. What was stated before %s does not count; propose and approve it again.",
			of("admission_since", "they were back"))
	case timeline.ClockSkewDetected:
		return fmt.Sprintf("The operator's clock is off the apiserver's by %s microseconds (%s); beyond %s nothing is decided. Set the clocks of the nodes right.",
			of("skew_us", "unknown"), of("direction", "in an unknown direction"), of("threshold_us", "the bound"))
	}
	return e.Type.Reason() + "."
}
