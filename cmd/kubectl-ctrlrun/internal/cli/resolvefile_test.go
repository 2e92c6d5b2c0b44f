package cli

import (
	"strings"
	"testing"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
	"ctrlrun.dev/operator/kernel/action"
)

var (
	txnOne = action.EffectName("refund:txn_1")
	txnTwo = action.EffectName("refund:txn_2")
)

// TestAnswersOfAFile proves that both forms of a file give the same answers, and that a line of `effects -o jsonl` is taken
// with the answer added to it.
func TestAnswersOfAFile(t *testing.T) {
	lines := `{"effect":"` + txnOne + `","key":"refund:txn_1","namespace":"payments","attempt":2,"actionType":"stripe.refund","action":"x","agent":"bot",` +
		`"user":"u","state":"Ambiguous","cause":"LeaseLapsed","since":"2026-03-01T00:00:00Z","token":"t","receipt":"payments-000000000007",` +
		`"receiptHash":"sha256:a","lateOutcome":"Committed","arguments":{"amount":500,"payment_id":"txn_1"},"result":"committed","reason":"in their log"}` + "\n\n" +
		`{"key":"refund:txn_2","result":"not-executed","reason":"2026-03-01","evidence":"https://example.com","attempt":null}` + "\n"
	list := `- {effect: ` + txnOne + `, namespace: payments, attempt: 2, receiptHash: "sha256:a", result: Committed, reason: in their log}
- key: refund:txn_2
  result: NotExecuted
  reason: 2026-03-01
  evidence: https://example.com
`
	want := []resolving{
		{effect: txnOne, namespace: "payments", attempt: 2, receiptHash: "sha256:a", result: v1alpha1.ResolutionCommitted, reason: "in their log"},
		{effect: txnTwo, key: "refund:txn_2", result: v1alpha1.ResolutionNotExecuted, reason: "2026-03-01", evidence: "https://example.com"},
	}
	for name, text := range map[string]string{"lines": lines, "list": list} {
		read := parseAnswerLines
		if name == "list" {
			read = parseAnswerList
		}
		got, problems := read([]byte(text))
		if len(problems) > 0 || len(got) != len(want) {
			t.Fatalf("%s: %d answers, %v", name, len(got), problems)
		}
		for i := range want {
			got[i].line = 0
			if i == 0 {
				got[i].key = ""
			}
			if got[i] != want[i] {
				t.Errorf("%s: got %+v, want %+v", name, got[i], want[i])
			}
		}
	}
}

// TestAWrongFileIsRefusedAsAWhole proves that each mistake is named with its line, and that no connection is made before a
// file is in order: there is none in this test.
func TestAWrongFileIsRefusedAsAWhole(t *testing.T) {
	good := `{"key":"refund:txn_1","result":"committed","reason":"r"}` + "\n"
	for name, test := range map[string]struct{ text, want string }{
		"nothing":                       {"\n", "document is empty"},
		"no list":                       {"a: b\n", "line 1: expected a list"},
		"no result":                     {good + `{"key":"refund:txn_2","reason":"r"}`, "line 2: there is no result"},
		"another result":                {good + `{"key":"refund:txn_2","reason":"r","result":"failed"}`, `line 2: result is committed or not-executed, not "failed"`},
		"no reason":                     {good + `{"key":"refund:txn_2","result":"committed"}`, "a reason is needed"},
		"no evidence":                   {good + `{"key":"refund:txn_2","result":"not-executed","reason":"r"}`, "needs evidence"},
		"evidence of null":              {`{"key":"refund:txn_2","result":"not-executed","reason":"r","evidence":null}`, "needs evidence"},
		"no effect":                     {`{"result":"committed","reason":"r"}`, "line 1: there is no effect"},
		"another key than the name's":   {`{"effect":"` + txnOne + `","key":"refund:txn_2","result":"committed","reason":"r"}`, "has another key"},
		"an unknown key":                {`{"key":"k","reslut":"committed","reason":"r"}`, `unknown key "reslut"`},
		"an unknown key in a list":      {"- {key: k, reslut: committed, reason: r}\n", `line 1: unknown key "reslut"`},
		"a key given twice":             {`{"key":"k","key":"l","result":"committed","reason":"r"}`, "line 1: "},
		"an answer given twice":         {good + "\n" + good, "line 3: effect " + txnOne + " is answered by line 1 already"},
		"an attempt that is none":       {`{"key":"k","attempt":0,"result":"committed","reason":"r"}`, "attempt must be a whole number"},
		"an attempt that is text":       {`{"key":"k","attempt":"1","result":"committed","reason":"r"}`, "attempt must be a whole number"},
		"a reason that is no text":      {`{"key":"k","result":"committed","reason":7}`, "reason must be text"},
		"a reason that is too long":     {`{"key":"k","result":"committed","reason":"` + strings.Repeat("é", 1025) + `"}`, "1025 characters"},
		"evidence that is too long":     {`{"key":"k","result":"committed","reason":"r","evidence":"` + strings.Repeat("e", 2049) + `"}`, "2049 characters"},
		"a line that is no JSON":        {good + "committed\n", "line 2: "},
		"a line that is no object":      {good + "[]\n", "line 2: not a JSON object"},
		"several mistakes at once":      {`{"key":"k"}` + "\n" + `{"key":"l"}`, "4 mistakes in stdin"},
		"an effect that is no text":     {`{"effect":1,"result":"committed","reason":"r"}`, "1 mistake in stdin"},
		"evidence of null in a list":    {"- {key: k, result: not-executed, reason: r, evidence: null}\n", "needs evidence"},
		"a reason that is a list in it": {"- {key: k, result: committed, reason: [r]}\n", "reason must be text"},
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, test.text, "resolve", "-f", "-", "--yes")
			r.refused(t, exit.Failure)
			if !strings.Contains(r.stderr, test.want) || !strings.Contains(r.stderr, "nothing was stated") {
				t.Errorf("no %q in %s", test.want, r.stderr)
			}
		})
	}
}

// TestEveryMistakeOfALineIsNamed proves that a long file is corrected at once, and nothing that is wrong is said twice.
func TestEveryMistakeOfALineIsNamed(t *testing.T) {
	for name, text := range map[string]string{
		"lines": `{"attempt":0,"evidance":"x","reason":["r"],"result":"nope"}` + "\n",
		"list":  "- {attempt: 0, evidance: x, reason: [r], result: nope}\n",
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, text, "resolve", "-f", "-", "--yes")
			r.refused(t, exit.Failure)
			for _, want := range []string{
				"5 mistakes in stdin", "line 1: attempt must be a whole number", `line 1: unknown key "evidance"`, "line 1: reason must be text",
				`line 1: result is committed or not-executed, not "nope"`, "line 1: there is no effect",
			} {
				if strings.Count(r.stderr, want) != 1 {
					t.Errorf("not once %q in %s", want, r.stderr)
				}
			}
		})
	}
}

// TestWhatIsResolvedAlready proves which answers a second run may pass over, and which contradict what is recorded.
func TestWhatIsResolvedAlready(t *testing.T) {
	effect := &v1alpha1.Effect{Status: &v1alpha1.EffectStatus{
		State: v1alpha1.EffectCommitted, Attempt: 3,
		Resolution: &v1alpha1.EffectResolution{Name: "third", Resolver: "rita"},
		History: []v1alpha1.EffectHistory{
			{Attempt: 1, Result: "ambiguous"}, {Attempt: 1, Result: "resolved_not_executed", Resolution: "first"},
			{Attempt: 2, Result: "not_executed"}, {Attempt: 3, Result: "resolved_committed", Resolution: "third"},
		},
	}}
	for name, test := range map[string]struct {
		attempt int64
		result  v1alpha1.ResolutionResult
		done    string
	}{
		"the present attempt":            {3, v1alpha1.ResolutionCommitted, "already resolved by rita"},
		"whichever attempt":              {0, v1alpha1.ResolutionCommitted, "already resolved by rita"},
		"an earlier attempt":             {1, v1alpha1.ResolutionNotExecuted, "already resolved"},
		"the other result":               {3, v1alpha1.ResolutionNotExecuted, ""},
		"the other result, whichever":    {0, v1alpha1.ResolutionNotExecuted, ""},
		"the other result of an earlier": {1, v1alpha1.ResolutionCommitted, ""},
		"one that was reported":          {2, v1alpha1.ResolutionNotExecuted, ""},
		"one that never was":             {4, v1alpha1.ResolutionCommitted, ""},
	} {
		r := &resolving{attempt: test.attempt, result: test.result}
		done, err := r.settled(effect)
		if done != test.done || (err == nil) != (test.done != "") {
			t.Errorf("%s: %q, %v", name, done, err)
		}
	}
}

// TestTheReceiptThatIsAnswered proves that a resolution quotes the last receipt that says ambiguous of the present attempt, and
// none from before the record was lost: it would not count.
func TestTheReceiptThatIsAnswered(t *testing.T) {
	of := func(seq, attempt int64, kind, result string) v1alpha1.Receipt {
		return v1alpha1.Receipt{Spec: v1alpha1.ReceiptSpec{Seq: seq, Attempt: attempt, Kind: kind, Result: result}}
	}
	first := of(3, 1, "action", "ambiguous")
	second := of(7, 2, "action", "ambiguous")
	lost := of(9, 2, "status-missing", "ambiguous")
	for name, test := range map[string]struct {
		receipts []v1alpha1.Receipt
		status   v1alpha1.EffectStatus
		want     int64
	}{
		"of the attempt":        {[]v1alpha1.Receipt{first, second}, v1alpha1.EffectStatus{Attempt: 2}, 7},
		"not of the one before": {[]v1alpha1.Receipt{first}, v1alpha1.EffectStatus{Attempt: 2}, 0},
		"not a committed one":   {[]v1alpha1.Receipt{of(4, 2, "action", "committed"), of(5, 2, "resolution", "failed")}, v1alpha1.EffectStatus{Attempt: 2}, 0},
		"of the loss":           {[]v1alpha1.Receipt{second, lost}, v1alpha1.EffectStatus{Attempt: 2, Loss: &v1alpha1.EffectLoss{Ordinal: 1, Seq: 8}}, 9},
		"not from before it":    {[]v1alpha1.Receipt{second}, v1alpha1.EffectStatus{Attempt: 2, Loss: &v1alpha1.EffectLoss{Ordinal: 1, Seq: 8}}, 0},
	} {
		found := sayingAmbiguous(test.receipts, test.status)
		if found == nil && test.want != 0 || found != nil && found.Spec.Seq != test.want {
			t.Errorf("%s: %+v, want %d", name, found, test.want)
		}
	}
}
