package judge

import (
	"cmp"
	"fmt"
	"slices"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/records"
)

// chain verifies the receipts as `kubectl ctrlrun receipts verify` does: their bytes and links, the copies beside them, what
// Actions refer to and what Effects say. Nothing moves any more, so nothing has to be read again. It also folds the chain,
// which refuses a second receipt of one identity.
func chain(s State) []Finding {
	receipts := slices.SortedFunc(slices.Values(s.Receipts), func(a, b v1alpha1.Receipt) int { return cmp.Compare(a.Spec.Seq, b.Spec.Seq) })
	var entries []receipt.Entry
	for i := range receipts {
		entries = append(entries, records.Entry(&receipts[i]))
	}
	var found []Finding
	broken := func(b receipt.Break) {
		found = append(found, Finding{Rule: b.Name, Detail: fmt.Sprintf("receipt %d: %s", b.Seq, b.Detail)})
	}
	report := receipt.Verify(entries, receipt.Options{Head: headOf(s.Ledger)})
	for _, b := range report.Breaks {
		broken(b)
	}
	cross := crossCheck(s, receipts)
	for i := range receipts {
		stored := records.Stored(&receipts[i])
		if err := cross.Add(stored, receipt.DigestOf(entries[i])); err != nil {
			found = append(found, Finding{Rule: "unreadable", Detail: err.Error()})
		}
	}
	holdEffects(s, cross)
	for _, b := range cross.Breaks() {
		broken(b)
	}
	if report.Verdict == receipt.Intact {
		found = append(found, refold(entries)...)
	}
	return found
}

func headOf(ledger *v1alpha1.Ledger) *receipt.Link {
	if ledger == nil || ledger.Status == nil || ledger.Status.Seq == 0 {
		return nil
	}
	return &receipt.Link{Seq: ledger.Status.Seq, Hash: ledger.Status.Hash}
}

// crossCheck knows what the Actions refer to.
func crossCheck(s State, receipts []v1alpha1.Receipt) *receipt.CrossCheck {
	cross := receipt.NewCrossCheck(receipt.Place{Namespace: s.Namespace, NamespaceUID: s.NamespaceUID, ClusterID: s.ClusterID})
	for i := range s.Actions {
		if r, finished := records.Reference(&s.Actions[i]); finished {
			cross.Refer(r)
		}
	}
	return cross
}

// holdEffects holds the Effects against the receipts, those too that receipts name and that are not there.
func holdEffects(s State, cross *receipt.CrossCheck) {
	there := map[string]bool{}
	for i := range s.Effects {
		e := &s.Effects[i]
		there[e.Name] = true
		if e.Status == nil {
			continue // it counts as Ambiguous, and is a finding of its own
		}
		if doubt := cross.Judge(records.EffectSays(e)); doubt != (receipt.Doubt{}) {
			cross.Contradicted(doubt)
		}
	}
	for _, name := range cross.EffectNames() {
		if there[name] {
			continue
		}
		if doubt := cross.Judge(receipt.Record{Name: name, Absent: true}); doubt != (receipt.Doubt{}) {
			cross.Contradicted(doubt)
		}
	}
}

// refold adds the receipts one by one, as whoever appends does.
func refold(entries []receipt.Entry) []Finding {
	fold := receipt.NewFold(receipt.Start())
	for _, e := range entries {
		if err := fold.Add(e); err != nil {
			return []Finding{{Rule: "the chain does not fold", Detail: err.Error()}}
		}
	}
	return nil
}
