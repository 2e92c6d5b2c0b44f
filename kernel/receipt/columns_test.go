package receipt

import "testing"

func TestColumnsAreCopiesOfTheDocument(t *testing.T) {
	a := actionDocument()
	want := Columns{
		Kind: "action", Result: "committed", Reason: "decision", ActionType: "stripe.refund", ActionName: "refund-txn-1",
		Agent: "system:serviceaccount:payments:refund-agent", EffectName: "refund-txn-1-x", Attempt: 2,
	}
	if got := a.Columns(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got, want := ledgerAcceptedDocument().Columns(), (Columns{Kind: "ledger-accepted"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	event := Document{Kind: KindEvent, Event: "POLICY_IN_FORCE"}
	if got, want := event.Columns(), (Columns{Kind: "event", Reason: "POLICY_IN_FORCE"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// What is computed when a receipt is written and what is computed when it is read back are compared with one another.
func TestColumnsSurviveReadingBack(t *testing.T) {
	for _, d := range []Document{actionDocument(), resolutionDocument(), statusMissingDocument(), ledgerAcceptedDocument()} {
		e, err := d.Entry(Start())
		if err != nil {
			t.Fatal(err)
		}
		read, err := Parse(e)
		if err != nil {
			t.Fatal(err)
		}
		if read.Columns() != d.Columns() {
			t.Errorf("%s: written with %+v, read with %+v", d.Kind, d.Columns(), read.Columns())
		}
	}
}
