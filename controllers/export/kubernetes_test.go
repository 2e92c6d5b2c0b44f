package export

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"ctrlrun.dev/operator/controllers/observe"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/kernel/timeline"
)

// noted is an Event as the recorder got it.
type noted struct {
	regarding, related             *corev1.ObjectReference
	kind, reason, action, sentence string
}

// notebook is a recorder that remembers.
type notebook struct {
	mu    sync.Mutex
	notes []noted
}

func (n *notebook) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	one := noted{kind: kind, reason: reason, action: action, sentence: fmt.Sprintf(note, args...)}
	one.regarding, _ = regarding.(*corev1.ObjectReference)
	one.related, _ = related.(*corev1.ObjectReference)
	n.notes = append(n.notes, one)
}

// told gives the Events that come of what is observed.
func told(t *testing.T, which string, observed func(observe.Observer)) []noted {
	t.Helper()
	n := &notebook{}
	k := NewKubernetesEvents(n, which, logr.Discard())
	observed(k)
	closed(t, k.Queue)
	if k.Dropped() != 0 {
		t.Fatalf("%d were dropped", k.Dropped())
	}
	return n.notes
}

// everything is one write for each word of the vocabulary that belongs to an action.
func everything(o observe.Observer) {
	for i, kind := range timeline.Types() {
		o.ActionWritten(actionWrite(timeline.Event{Seq: int64(i + 1), Time: at, Type: kind, Data: map[string]string{
			"reason": "the_reason", "approver": "alice", "approval": "refund.alice", "required": "2", "expires": "2026-03-01T13:00:00.000Z", "attempt": "1", "resolver": "oncall", "resolution": "r1", "result": "committed",
			"decision": "allow", "name": "refunds", "generation": "3", "admission_since": "y", "skew_us": "1", "direction": "ahead", "threshold_us": "2",
			"grant": "refunds", "delegation": "refunds.alice", "delegator": "alice", "parent": "refunds", "revoker": "bob",
		}}))
	}
}

func TestEveryWordHasAKubernetesEvent(t *testing.T) {
	warnings := map[string]bool{
		"ApprovalDenied": true, "ActionDenied": true, "ActionBlocked": true, "EffectReservationRefused": true, "ExecutionAmbiguous": true,
		"AdmissionGap": true, "ClockSkewDetected": true, "AuthorityDenied": true, "DelegationRejected": true,
	}
	all := told(t, AllEvents, everything)
	if len(all) != len(timeline.Types()) {
		t.Fatalf("%d Events for %d words", len(all), len(timeline.Types()))
	}
	for i, kind := range timeline.Types() {
		e := all[i]
		if e.reason != kind.Reason() || (e.kind == corev1.EventTypeWarning) != warnings[e.reason] {
			t.Errorf("%s: %s %s", kind, e.kind, e.reason)
		}
		if e.sentence == "" || e.sentence == e.reason+"." || strings.Contains(e.sentence, "unknown") || !strings.HasSuffix(e.sentence, ".") {
			t.Errorf("%s: %q is no sentence about it", kind, e.sentence)
		}
		if e.action == "" || e.regarding == nil || e.regarding.Kind != "Action" || e.regarding.UID == "" || e.regarding.ResourceVersion != "" {
			t.Errorf("%s: action %q regarding %v", kind, e.action, e.regarding)
		}
	}
	seen := map[string]bool{}
	for _, e := range all {
		if seen[e.sentence] {
			t.Errorf("%s says the same as another: %q", e.reason, e.sentence)
		}
		seen[e.sentence] = true
	}
}

func TestNotableEvents(t *testing.T) {
	want := map[string]bool{}
	for _, kind := range []timeline.Type{
		timeline.ApprovalRequested, timeline.ApprovalDenied, timeline.ApprovalExpired, timeline.ActionDenied, timeline.ActionBlocked, timeline.ActionExpired,
		timeline.EffectReservationRefused, timeline.ExecutionFailed, timeline.ExecutionAmbiguous, timeline.EffectResolved,
		timeline.PolicyInForce, timeline.PolicyRemoved, timeline.SettingsInForce, timeline.SettingsRemoved, timeline.AdmissionGap, timeline.ClockSkewDetected,
		timeline.GrantInForce, timeline.GrantRemoved, timeline.DelegationCreated, timeline.DelegationRejected, timeline.DelegationRevoked,
	} {
		want[kind.Reason()] = true
	}
	for _, which := range []string{"", NotableEvents} {
		got := map[string]bool{}
		for _, e := range told(t, which, everything) {
			got[e.reason] = true
			if !want[e.reason] {
				t.Errorf("%q: %s is told", which, e.reason)
			}
		}
		for reason := range want {
			if !got[reason] {
				t.Errorf("%q: %s is not told", which, reason)
			}
		}
	}
	if got := told(t, NoEvents, everything); len(got) != 0 {
		t.Errorf("none: %v", got)
	}
	for word, want := range map[string]bool{"": true, "notable": true, "all": true, "none": true, "some": false} {
		if (CheckKubernetesEvents(word) == nil) != want {
			t.Errorf("%q: allowed is %t", word, !want)
		}
	}
}

// The message of a status says what to do about its last event. It is no format, and never longer than an Event takes.
func TestNoteIsTheMessage(t *testing.T) {
	got := told(t, NotableEvents, func(o observe.Observer) {
		w := actionWrite(
			timeline.Event{Type: timeline.ApprovalDenied, Data: map[string]string{"approver": "alice"}},
			timeline.Event{Type: timeline.ActionDenied, Data: map[string]string{"reason": "approval_denied"}},
		)
		w.After.Message = "100%s sure: " + strings.Repeat("é", 1000)
		o.ActionWritten(w)
	})
	if len(got) != 2 || got[0].sentence != "alice said no. Nothing is executed." {
		t.Fatalf("got %v", got)
	}
	if s := got[1].sentence; !strings.HasPrefix(s, "100%s sure: é") || len(s) > maxNote || !strings.HasSuffix(s, "…") {
		t.Errorf("got %d bytes: %.40q", len(s), s)
	}
}

func TestAmbiguityNamesTheEffect(t *testing.T) {
	got := told(t, NotableEvents, func(o observe.Observer) {
		w := finished("ambiguous")
		w.Receipt.EffectName, w.Receipt.EffectUID = "refund-1", "e0e0e0e0-0000-4000-8000-000000000001"
		w.Events = []timeline.Event{{Type: timeline.ExecutionAmbiguous}, {Type: timeline.ActionDenied}}
		o.ActionWritten(w)
	})
	if r := got[0].related; r == nil || r.Kind != "Effect" || r.Name != "refund-1" || r.UID != "e0e0e0e0-0000-4000-8000-000000000001" || r.Namespace != "payments" {
		t.Errorf("related is %v", r)
	}
	if got[1].related != nil {
		t.Errorf("related is %v", got[1].related)
	}
}

func TestEventsWithoutAnAction(t *testing.T) {
	c := newChain()
	kind := func(t timeline.Type, ordinal int64, data map[string]string) receipt.Document {
		return receipt.Document{Kind: receipt.KindEvent, SubjectUID: "a0a0a0a0-0000-4000-8000-000000000001", Ordinal: ordinal, Event: string(t), Data: data}
	}
	got := told(t, NotableEvents, func(o observe.Observer) {
		o.ReceiptAppended(c.append(t, policyInForce(3, "")))
		o.ReceiptAppended(c.append(t, policyInForce(4, "")))
		o.ReceiptAppended(c.append(t, kind(timeline.SettingsInForce, 1, map[string]string{"generation": "1"})))
		o.ReceiptAppended(c.append(t, kind(timeline.AdmissionGap, 2, map[string]string{"admission_since": "12:05"})))
		o.ReceiptAppended(c.append(t, kind(timeline.GrantInForce, 6, map[string]string{"name": "refunds", "generation": "6"})))
		o.ReceiptAppended(c.append(t, kind(timeline.GrantRemoved, 0, map[string]string{"name": "refunds"})))
		o.ReceiptAppended(c.append(t, kind(timeline.DelegationCreated, 7, map[string]string{
			"delegation": "task", "parent": "refunds", "delegator": "alice", "expires": "13:00", "break_glass": "false", "reason": "words of alice"})))
		o.ReceiptAppended(c.append(t, kind(timeline.DelegationCreated, 8, map[string]string{
			"delegation": "urgent", "parent": "refunds", "delegator": "alice", "expires": "13:00", "break_glass": "true", "reason": "words of alice"})))
		o.ReceiptAppended(c.append(t, kind(timeline.DelegationRejected, 9, map[string]string{"delegation": "wide", "reason": "authority_escalation"})))
		o.ReceiptAppended(c.append(t, kind(timeline.DelegationRevoked, 1, map[string]string{"delegation": "task", "revoker": "bob", "reason": "words of bob"})))
	})
	if len(got) != 10 {
		t.Fatalf("got %v", got)
	}
	for i, want := range []struct{ kind, name, uid, says string }{
		{"ActionPolicy", "refunds", "a0a0a0a0-0000-4000-8000-000000000001", "Generation 3 of ActionPolicy refunds"},
		{"ActionPolicy", "refunds", "a0a0a0a0-0000-4000-8000-000000000001", "Generation 4 of ActionPolicy refunds"},
		{"Settings", "default", "a0a0a0a0-0000-4000-8000-000000000001", "Generation 1 of the Settings"},
		{"Ledger", "payments", "", "before 12:05 does not count"},
		{"Grant", "refunds", "a0a0a0a0-0000-4000-8000-000000000001", "Generation 6 of Grant refunds"},
		{"Grant", "refunds", "a0a0a0a0-0000-4000-8000-000000000001", "Grant refunds is gone"},
		{"Delegation", "task", "a0a0a0a0-0000-4000-8000-000000000001", "alice handed authority on: Delegation task of refunds counts until 13:00."},
		{"Delegation", "urgent", "a0a0a0a0-0000-4000-8000-000000000001", "alice broke the glass: Delegation urgent of refunds counts until 13:00."},
		{"Delegation", "wide", "a0a0a0a0-0000-4000-8000-000000000001", "Delegation wide was refused and gives no authority: authority_escalation."},
		{"Delegation", "task", "a0a0a0a0-0000-4000-8000-000000000001", "bob revoked Delegation task"},
	} {
		e := got[i]
		if r := e.regarding; r.Kind != want.kind || r.Name != want.name || string(r.UID) != want.uid || r.Namespace != "payments" || !strings.Contains(e.sentence, want.says) {
			t.Errorf("%d: %v: %s", i, r, e.sentence)
		}
		if warns := e.kind == corev1.EventTypeWarning; warns != slices.Contains([]string{"payments", "urgent", "wide"}, want.name) {
			t.Errorf("%d: %s is %s", i, e.reason, e.kind)
		}
		if strings.Contains(e.sentence, "words of") {
			t.Errorf("%d: it quotes people: %s", i, e.sentence)
		}
		// Or the recorder would count the second policy as a repetition of the first, with its sentence.
		if want := fmt.Sprintf("payments-%012d", i+1); e.related.Kind != "Receipt" || e.related.Name != want {
			t.Errorf("%d: related is %v, want receipt %s", i, e.related, want)
		}
	}
}

// A storm of Events is told slowly, within its bound, and whoever observes does not wait for it.
func TestStormIsPacedAndBounded(t *testing.T) {
	n := &notebook{}
	k := NewKubernetesEvents(n, NotableEvents, logr.Discard())
	start := time.Now()
	for i := range 5000 {
		k.ActionWritten(actionWrite(timeline.Event{Seq: int64(i), Type: timeline.ActionDenied}))
	}
	if took := time.Since(start); took > time.Second {
		t.Errorf("5000 writes took %s", took)
	}
	if k.Dropped() < 2800 {
		t.Errorf("%d of 5000 were dropped", k.Dropped())
	}
	eventually(t, "a burst is told", func() bool { n.mu.Lock(); defer n.mu.Unlock(); return len(n.notes) >= eventBurst })
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if k.Close(ctx) == nil {
		t.Error("two thousand Events were told at once")
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if most := eventBurst + int(time.Since(start).Seconds()*eventsPerSecond) + 2; len(n.notes) > most {
		t.Errorf("%d Events in %s", len(n.notes), time.Since(start))
	}
}
