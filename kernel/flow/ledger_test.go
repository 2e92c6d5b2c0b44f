package flow_test

import (
	"errors"
	"strings"
	"testing"

	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/receipt"
)

var errNotRead = errors.New("not read")

// stored are the hashes of receipts 1 to 5.
func stored(seq int64) (string, error) {
	if seq < 1 || seq > 5 {
		return "", nil
	}
	return hashAt(seq), nil
}

func hashAt(seq int64) string { return "sha256:" + strings.Repeat(string(rune('0'+seq)), 64) }

func linkAt(seq int64) *receipt.Link { return &receipt.Link{Seq: seq, Hash: hashAt(seq)} }

// A namespace holds as soon as its chain does not fit everything that is remembered of it.
func TestCheckLedger(t *testing.T) {
	genesis := receipt.Start()
	empty := func(int64) (string, error) { return "", nil }
	for name, tc := range map[string]struct {
		change func(*flow.LedgerView)
		says   string // "" : it fits
	}{
		"it fits": {nil, ""},
		"a new chain": {func(v *flow.LedgerView) {
			v.Recorded, v.Remembered, v.HighestRef, v.At = nil, nil, receipt.Link{}, empty
		}, ""},
		"a new chain, its ledger written": {func(v *flow.LedgerView) {
			v.Recorded, v.Remembered, v.HighestRef, v.At = &genesis, nil, receipt.Link{}, empty
		}, ""},
		"longer than the ledger says":                         {func(v *flow.LedgerView) { v.Recorded = linkAt(2) }, ""},
		"this process has not seen it":                        {func(v *flow.LedgerView) { v.Remembered = nil }, ""},
		"no action refers to it":                              {func(v *flow.LedgerView) { v.HighestRef = receipt.Link{} }, ""},
		"no ledger, but receipts":                             {func(v *flow.LedgerView) { v.Recorded, v.Remembered, v.HighestRef = nil, nil, receipt.Link{} }, "is missing"},
		"no ledger, no receipts, but an action refers to one": {func(v *flow.LedgerView) { v.Recorded, v.Remembered, v.At = nil, nil, empty }, "is missing"},
		"the ledger disappeared":                              {func(v *flow.LedgerView) { v.Recorded = nil }, "disappeared"},
		"it was held, and nobody accepted":                    {func(v *flow.LedgerView) { v.Held = "held: kubectl ctrlrun ledger accept payments" }, "held"},
		"another namespace of that name":                      {func(v *flow.LedgerView) { v.RecordedUID = "before" }, "created again"},
		"shorter than the ledger says":                        {func(v *flow.LedgerView) { v.Recorded = linkAt(6) }, "Receipt 6 is missing"},
		"another receipt than the ledger says":                {func(v *flow.LedgerView) { v.Recorded = &receipt.Link{Seq: 4, Hash: hashAt(9)} }, "Receipt 4 is another one"},
		"shorter than this process remembers":                 {func(v *flow.LedgerView) { v.Remembered = linkAt(7) }, "Receipt 7 is missing"},
		"another receipt than this process remembers":         {func(v *flow.LedgerView) { v.Remembered = &receipt.Link{Seq: 5, Hash: hashAt(9)} }, "Receipt 5 is another one"},
		"another one than an action says":                     {func(v *flow.LedgerView) { v.HighestRef.Hash = "another" }, "refers to receipt 3:another"},
		"shorter than an action says":                         {func(v *flow.LedgerView) { v.HighestRef = receipt.Link{Seq: 6, Hash: "another"} }, "refers to receipt 6"},
	} {
		t.Run(name, func(t *testing.T) {
			v := flow.LedgerView{Namespace: "payments", NamespaceUID: "namespace", RecordedUID: "namespace", Recorded: linkAt(4), Remembered: linkAt(5), HighestRef: *linkAt(3), At: stored}
			if tc.change != nil {
				tc.change(&v)
			}
			hold, err := flow.CheckLedger(v)
			if err != nil {
				t.Fatal(err)
			}
			if (hold == "") != (tc.says == "") || !strings.Contains(hold, tc.says) {
				t.Errorf("it holds with %q, want %q", hold, tc.says)
			}
			if hold != "" && !strings.Contains(hold, "kubectl ctrlrun ledger accept payments") {
				t.Errorf("%q does not say what to do", hold)
			}
			asked := false
			v.At = func(int64) (string, error) { asked = true; return "", errNotRead }
			if hold, err := flow.CheckLedger(v); asked && hold == "" && !errors.Is(err, errNotRead) {
				t.Errorf("what could not be read is %q, %v", hold, err)
			}
		})
	}
}

func TestAcceptance(t *testing.T) {
	acceptance := flow.Acceptance{Name: "l", UID: "l-uid", Namespace: "payments", NamespaceUID: "namespace", Head: *linkAt(5), AcceptedBy: erin, Reason: "restored"}
	chain := func(seq int64) (receipt.Entry, bool, error) {
		hash, err := stored(seq)
		return receipt.Entry{Seq: seq, Hash: hash}, hash != "", err
	}
	world := aWorld()
	world.Epoch = 2
	own, err := acceptance.Document(world, flow.Snapshot{Now: noon}).Entry(acceptance.Head)
	if err != nil {
		t.Fatal(err)
	}
	foreign := acceptance
	foreign.UID = "other-uid"
	other, err := foreign.Document(world, flow.Snapshot{Now: noon}).Entry(acceptance.Head)
	if err != nil {
		t.Fatal(err)
	}
	followedBy := func(next receipt.Entry) func(int64) (receipt.Entry, bool, error) {
		return func(seq int64) (receipt.Entry, bool, error) {
			if seq == 6 {
				return next, true, nil
			}
			return chain(seq)
		}
	}
	for name, tc := range map[string]struct {
		change  func(*flow.Acceptance)
		notHeld bool
		at      func(int64) (receipt.Entry, bool, error)
		want    string
	}{
		"the last receipt":                        {},
		"nothing is held":                         {notHeld: true, want: "LedgerNotHeld"},
		"another namespace":                       {change: func(a *flow.Acceptance) { a.NamespaceUID = "before" }, want: "Mismatch"},
		"another hash":                            {change: func(a *flow.Acceptance) { a.Head.Hash = hashAt(9) }, want: "Mismatch"},
		"a receipt that is not there":             {change: func(a *flow.Acceptance) { a.Head = *linkAt(6) }, want: "Mismatch"},
		"a receipt before the last":               {change: func(a *flow.Acceptance) { a.Head = *linkAt(4) }, want: "Mismatch"},
		"the beginning, of a chain with receipts": {change: func(a *flow.Acceptance) { a.Head = receipt.Start() }, want: "Mismatch"},
		"the beginning, of an empty chain":        {change: func(a *flow.Acceptance) { a.Head = receipt.Start() }, at: func(int64) (receipt.Entry, bool, error) { return receipt.Entry{}, false, nil }},
		"seq 0 with a hash":                       {change: func(a *flow.Acceptance) { a.Head = *linkAt(0) }, want: "Mismatch"},
		"the beginning's hash with a seq":         {change: func(a *flow.Acceptance) { a.Head.Hash = receipt.Genesis }, want: "Mismatch"},
		"its own receipt follows":                 {at: followedBy(own)},
		"another acceptance's receipt follows":    {at: followedBy(other), want: "Mismatch"},
		"something unreadable follows":            {at: followedBy(receipt.Entry{Seq: 6, Hash: hashAt(6), Document: "{"}), want: "Mismatch"},
	} {
		t.Run(name, func(t *testing.T) {
			a, at := acceptance, chain
			if tc.change != nil {
				tc.change(&a)
			}
			if tc.at != nil {
				at = tc.at
			}
			reason, message, err := flow.JudgeAcceptance(a, "namespace", !tc.notHeld, at)
			if err != nil || reason != tc.want || (message == "") != (reason == "") {
				t.Errorf("JudgeAcceptance = %q, %q, %v, want %q", reason, message, err, tc.want)
			}
		})
	}
	t.Run("what cannot be read", func(t *testing.T) {
		if _, _, err := flow.JudgeAcceptance(acceptance, "namespace", true, func(int64) (receipt.Entry, bool, error) { return receipt.Entry{}, false, errNotRead }); !errors.Is(err, errNotRead) {
			t.Errorf("the error is %v", err)
		}
	})
	t.Run("its receipt is the first of the next epoch", func(t *testing.T) {
		d, err := receipt.Parse(own)
		if err != nil {
			t.Fatal(err)
		}
		if d.Epoch != 3 || d.Accepted != acceptance.Head || d.Acceptor != erin || d.AcceptanceUID != "l-uid" || d.Statement != "restored" || d.Kind != receipt.KindLedgerAccepted || d.Seq != 6 {
			t.Errorf("it is %+v", d)
		}
		if world.Epoch != 2 {
			t.Errorf("the world that was given is in epoch %d", world.Epoch)
		}
	})
}
