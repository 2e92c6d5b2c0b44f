package timeline

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"ctrlrun.dev/operator/kernel/decision"
)

var noon = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

func TestAppendNumbersAndKeepsTheEnds(t *testing.T) {
	var events []Event
	for i := range 100 {
		before := slices.Clone(events)
		events = Append(events, Event{Time: noon, Type: ActionHeld, Data: map[string]string{"i": fmt.Sprint(i + 1)}})
		if got := Since(before, events); len(got) != 1 || got[0].Data["i"] != fmt.Sprint(i+1) {
			t.Fatalf("new after %d is %+v", i, got)
		}
	}
	if len(events) != MaxEvents {
		t.Fatalf("it keeps %d events", len(events))
	}
	for i, e := range events {
		want := int64(i + 1)
		if i >= keepFirst {
			want = int64(100 - MaxEvents + i + 1)
		}
		if e.Seq != want || e.Data["i"] != fmt.Sprint(want) {
			t.Errorf("event %d is %+v, want seq %d", i, e, want)
		}
	}
}

// Nobody who holds an earlier timeline sees it change.
func TestAppendDoesNotChangeWhatItIsGiven(t *testing.T) {
	data := map[string]string{"reason": strings.Repeat("ä", MaxData), "empty": ""}
	given := make([]Event, 1, 8)
	given[0] = Event{Seq: 4, Type: ActionProposed}
	first := Append(given, Event{Type: ActionDenied, Data: data})
	second := Append(given, Event{Type: ActionBlocked})
	if first[1].Type != ActionDenied || second[1].Type != ActionBlocked || first[1].Seq != 5 {
		t.Errorf("%+v %+v", first, second)
	}
	if len(data["reason"]) != 2*MaxData || len(first[1].Data["reason"]) != MaxData {
		t.Errorf("the value has %d bytes, the given one %d", len(first[1].Data["reason"]), len(data["reason"]))
	}
	if _, ok := first[1].Data["empty"]; ok {
		t.Error("nothing is written as an empty value")
	}
}

func TestReasons(t *testing.T) {
	seen := map[string]bool{}
	for _, kind := range Types() {
		r := kind.Reason()
		if seen[r] || r == "" || strings.ContainsAny(r, "_ ") || strings.ToUpper(r[:1]) != r[:1] {
			t.Errorf("%s is %q", kind, r)
		}
		seen[r] = true
	}
	if got := ExecutionCommitted.Reason(); got != "ExecutionCommitted" {
		t.Error(got)
	}
}

func TestEnd(t *testing.T) {
	type end struct {
		result decision.Result
		reason decision.Reason
	}
	for want, ends := range map[Type][]end{
		ExecutionCommitted:       {{result: decision.Committed}},
		ExecutionFailed:          {{result: decision.Failed}, {decision.Failed, decision.NeverBegan}},
		ExecutionAmbiguous:       {{decision.Ambiguous, decision.LeaseLapsed}, {result: decision.Observed}},
		ActionDenied:             {{decision.Denied, "rule[1]"}, {decision.Denied, decision.ApprovalDenied}},
		ActionExpired:            {{decision.Denied, decision.NotClaimed}, {decision.Denied, decision.ApprovalExpired}, {decision.Denied, decision.NotAfter}},
		EffectReservationRefused: {{decision.Blocked, decision.Duplicate}, {decision.Blocked, decision.AmbiguousEffect}},
		ActionBlocked:            {{decision.Blocked, decision.Withdrawn}, {decision.Blocked, decision.StatusMissing}},
	} {
		for _, e := range ends {
			if got := End(e.result, e.reason); got != want {
				t.Errorf("%s %s ends with %s, want %s", e.result, e.reason, got, want)
			}
		}
	}
}
