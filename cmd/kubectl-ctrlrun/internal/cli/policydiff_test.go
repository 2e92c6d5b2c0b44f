package cli

import (
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/receipt"
)

// pastRefund is the receipt of a refund that was allowed by the first rule and happened.
func pastRefund(id string, amount int64) receipt.Document {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	key := "refund:" + id
	return receipt.Document{
		Kind: receipt.KindAction, SubjectUID: "uid-" + id, ClusterID: "c", Namespace: "payments", NamespaceUID: "n", FinishedTime: at,
		ActionName: action.EffectName(key), ActionUID: "uid-" + id, ActionType: "stripe.refund", Principal: &receipt.Principal{Agent: "bot"},
		EffectKey: key, EffectName: action.EffectName(key), EffectUID: "e", Attempt: 1, Token: "t", Result: decision.Committed,
		ActionHash: "sha256:" + strings.Repeat("0f", 32), Resource: "payment:" + id,
		Arguments:   map[string]any{"payment_id": id, "amount": big.NewInt(amount)},
		Environment: "production", Decision: decision.Allow, DecisionReason: "rule[0]",
		ExecutorMode: receipt.ModeAgent, ClaimID: "c", Reporter: "bot", ProposedTime: at, AdmittedTime: at,
	}
}

// chainOf is an exported chain.
func chainOf(t *testing.T, documents ...receipt.Document) []string {
	t.Helper()
	head := receipt.Start()
	var lines []string
	for _, d := range documents {
		entry, err := d.Entry(head)
		if err != nil {
			t.Fatal(err)
		}
		line, err := receipt.Line(entry)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, string(line))
		head = receipt.Link{Seq: entry.Seq, Hash: entry.Hash}
	}
	return lines
}

func pastRefunds(t *testing.T) []string {
	asked := pastRefund("c", 5000)
	asked.Decision, asked.DecisionReason, asked.ApprovalsRequired, asked.Result, asked.Reason = decision.Approve, "rule[1]", 1, decision.Ambiguous, decision.LeaseLapsed
	reduced := pastRefund("d", 1)
	reduced.Arguments = nil
	lease := pastRefund("e", 1)
	lease.Decision, lease.DecisionReason, lease.Result, lease.Reason = decision.Deny, "lease_too_long", decision.Denied, decision.LeaseTooLong
	undecided := pastRefund("f", 1)
	undecided.Decision, undecided.DecisionReason, undecided.Result, undecided.Reason = "", "", decision.Blocked, decision.Withdrawn
	for _, d := range []*receipt.Document{&lease, &undecided} {
		d.ExecutorMode, d.ClaimID, d.Reporter, d.AdmittedTime, d.Attempt, d.Token, d.EffectUID = "", "", "", time.Time{}, 0, "", ""
	}
	event := receipt.Document{
		Kind: receipt.KindEvent, SubjectUID: "p", Ordinal: 1, ClusterID: "c", Namespace: "payments", NamespaceUID: "n", FinishedTime: asked.FinishedTime,
		Event: "POLICY_IN_FORCE", Data: map[string]string{},
	}
	return chainOf(t, pastRefund("a", 400), pastRefund("b", 500), asked, event, reduced, lease, undecided)
}

func diff(t *testing.T, lines []string, proposed string, args ...string) result {
	t.Helper()
	receipts := write(t, "receipts.jsonl", strings.Join(lines, "\n")+"\n")
	return run(t, "", append([]string{"policy", "diff", "-f", write(t, "new.yaml", proposed), "-r", receipts}, args...)...)
}

// TestPolicyDiffWithoutACluster proves what is found in exported receipts alone: changed decisions, what was skipped, and
// templates that make something else.
func TestPolicyDiffWithoutACluster(t *testing.T) {
	lines := pastRefunds(t)
	for name, test := range map[string]struct {
		proposed string
		args     []string
		code     exit.Code
		want     []string
		not      []string
	}{
		"the same policy": {
			proposed: refunds, args: []string{"--exit-code"},
			want: []string{"3 receipts of namespace payments evaluated again: 0 decisions change, 3 the same\n", "nothing changes",
				"skipped 1: its arguments are not recorded: receipt 5", "skipped 1: it was decided by lease_too_long, not by a policy: receipt 6",
				"skipped 1: it ended before a policy decided: receipt 7"},
			not: []string{"ATTENTION", "SEQ"},
		},
		"a lower limit": {
			proposed: strings.Replace(refunds, "amount_lte: 500}", "amount_lte: 450}", 1), args: []string{"--exit-code"}, code: exit.Failure,
			want: []string{"1 decision changes, 2 the same", "1 allow -> approve", "allow (rule[0])", "approve (rule[1])", action.EffectName("refund:b")},
			not:  []string{action.EffectName("refund:a"), "ATTENTION"},
		},
		"without the flag changes are no failure": {
			proposed: strings.Replace(refunds, "amount_lte: 500}", "amount_lte: 450}", 1), want: []string{"1 decision changes"},
		},
		"only the last": {
			proposed: strings.Replace(refunds, "amount_lte: 500}", "amount_lte: 450}", 1), args: []string{"--last", "4"}, want: []string{"1 receipt of namespace", "0 decisions change"},
		},
		"gone": {
			proposed: refundsManifestOf("other.action"), want: []string{"3 decisions change", "deny (unknown_action)", "2 allow -> deny", "1 approve -> deny"},
		},
		"another effect template": {
			proposed: strings.Replace(refunds, `"refund:{payment_id}"`, `"r:{payment_id}"`, 1), args: []string{"--exit-code"}, code: exit.Failure,
			want: []string{"ATTENTION: the effect template of stripe.refund changes: 2 keys that are committed no longer block, and 1 executing or ambiguous ones (of the replayed receipts)"},
		},
		"another resource template": {
			proposed: strings.Replace(refunds, `"payment:{payment_id}"`, `"pay:{payment_id}"`, 1),
			want:     []string{"ATTENTION: the resource template of stripe.refund changes: 3 replayed actions would have another hash"},
		},
		"an invalid policy": {proposed: strings.Replace(refunds, "effect:", "efect:", 1), code: exit.Failure},
		"a policy of another namespace": {
			proposed: strings.Replace(refundsManifest, "name: other", "name: other, namespace: elsewhere", 1), code: exit.Usage,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := diff(t, lines, test.proposed, test.args...)
			if r.code != test.code {
				t.Fatalf("exit code %d: %s%s", r.code, r.stdout, r.stderr)
			}
			for _, want := range test.want {
				if !strings.Contains(r.stdout, want) {
					t.Errorf("no %q in\n%s", want, r.stdout)
				}
			}
			for _, not := range test.not {
				if strings.Contains(r.stdout, not) {
					t.Errorf("%q in\n%s", not, r.stdout)
				}
			}
		})
	}
}

func refundsManifestOf(name string) string {
	return strings.Replace(refundsManifest, "stripe.refund", name, 1)
}

// TestPolicyDiffAgainstFiles proves that with the policies in force templates are named, and that what they changed already
// is not shouted again.
func TestPolicyDiffAgainstFiles(t *testing.T) {
	lines := pastRefunds(t)
	changed := strings.Replace(refunds, `"refund:{payment_id}"`, `"r:{payment_id}"`, 1)
	r := diff(t, lines, changed, "--against", write(t, "old.yaml", refunds))
	if want := `changes from "refund:{payment_id}" to "r:{payment_id}": 2 keys`; !strings.Contains(r.stdout, want) {
		t.Errorf("no %q in %s%s", want, r.stdout, r.stderr)
	}
	if r := diff(t, lines, changed, "--against", write(t, "old.yaml", changed), "--exit-code"); r.code != exit.Done || strings.Contains(r.stdout, "ATTENTION") {
		t.Errorf("%d %s%s", r.code, r.stdout, r.stderr)
	}
	removed := diff(t, lines[:1], refunds, "--against", write(t, "old.yaml", refunds+"  iam.grant: {decision: approve}\n"), "--exit-code")
	if removed.code != exit.Failure || !strings.Contains(removed.stdout, "ATTENTION: iam.grant is in force and not in these policies") {
		t.Errorf("%d %s%s", removed.code, removed.stdout, removed.stderr)
	}
	lost := diff(t, lines, strings.Replace(refunds, "    effect: \"refund:{payment_id}\"\n", "", 1), "--against", write(t, "old.yaml", refunds))
	if want := `stripe.refund loses its effect template "refund:{payment_id}": 2 keys that are committed no longer block`; !strings.Contains(lost.stdout, want) {
		t.Errorf("no %q in %s%s", want, lost.stdout, lost.stderr)
	}
}

// TestPolicyDiffAsJSON proves the members that programs read.
func TestPolicyDiffAsJSON(t *testing.T) {
	r := diff(t, pastRefunds(t), strings.Replace(strings.Replace(refunds, "amount_lte: 500}", "amount_lte: 450}", 1), `"refund:{payment_id}"`, `"r:{payment_id}"`, 1), "-o", "json")
	var got map[string]any
	if err := json.Unmarshal([]byte(r.stdout), &got); err != nil {
		t.Fatalf("%v: %s%s", err, r.stdout, r.stderr)
	}
	change := got["changes"].([]any)[0].(map[string]any)
	delete(change, "message")
	want := map[string]any{
		"seq": 2.0, "action": action.EffectName("refund:b"), "actionType": "stripe.refund",
		"then": map[string]any{"decision": "allow", "reason": "rule[0]"}, "now": map[string]any{"decision": "approve", "reason": "rule[1]", "approvals": 1.0},
	}
	if !reflect.DeepEqual(change, want) {
		t.Errorf("got %v", change)
	}
	template := map[string]any{
		"actionType": "stripe.refund", "kind": "effect", "then": nil, "now": nil, "replayed": 3.0, "committedKeys": 2.0, "openKeys": 1.0, "counted": "receipts",
	}
	if !reflect.DeepEqual(got["templates"], []any{template}) || got["removed"] != nil || got["schema"] != policyDiffSchema || len(got["skipped"].([]any)) != 3 {
		t.Errorf("got %v", got)
	}
}

// TestPolicyDiffReadsFilesAsTheyAre proves that neither the order of lines nor lines given twice matter, that receipts of
// several namespaces ask for a choice, and that nothing that cannot be read is passed over.
func TestPolicyDiffReadsFilesAsTheyAre(t *testing.T) {
	lines := pastRefunds(t)
	mixed := append(slices.Clone(lines), lines[0], lines[2])
	slices.Reverse(mixed)
	lower := strings.Replace(refunds, "amount_lte: 500}", "amount_lte: 450}", 1)
	if a, b := diff(t, lines, lower), diff(t, mixed, lower); a.stdout != b.stdout || a.code != exit.Done {
		t.Errorf("%s\nis not\n%s", a.stdout, b.stdout)
	}
	other := pastRefund("x", 1)
	other.Namespace = "elsewhere"
	both := append(slices.Clone(lines), chainOf(t, other)...)
	if r := diff(t, both, refunds); r.code != exit.Usage || !strings.Contains(r.stderr, "elsewhere, payments") {
		t.Errorf("%d %s", r.code, r.stderr)
	}
	if r := diff(t, both, refunds, "-n", "elsewhere"); r.code != exit.Done || !strings.Contains(r.stdout, "1 receipt of namespace elsewhere") {
		t.Errorf("%d %s%s", r.code, r.stdout, r.stderr)
	}
	diff(t, append(slices.Clone(lines), "{}"), refunds).refused(t, exit.Usage)
	newer := strings.Replace(lines[1], `ctrlrun.dev/receipt/v1alpha1`, `ctrlrun.dev/receipt/v9`, 1)
	r := diff(t, []string{lines[0], newer}, refunds)
	r.refused(t, exit.Failure)
	if !strings.Contains(r.stderr, "receipt 2 cannot be interpreted") {
		t.Errorf("the seq is not named: %s", r.stderr)
	}
}

// TestHistoryIsBounded proves that of a long chain only the last receipts are kept, whatever the order.
func TestHistoryIsBounded(t *testing.T) {
	h := &history{last: 10}
	for i := range 5000 {
		d := receipt.Document{Seq: int64((i*7919)%5000 + 1)}
		if h.add(d); len(h.receipts) > 2*h.last+1024 {
			t.Fatalf("%d are kept", len(h.receipts))
		}
	}
	h.trim()
	if len(h.receipts) != 10 || h.receipts[0].Seq != 4991 || h.receipts[9].Seq != 5000 {
		t.Errorf("kept %d, from %d", len(h.receipts), h.receipts[0].Seq)
	}
}

// TestPolicyDiffTakesDirectories proves that a directory stands for the policies in it, and with -R for those below it.
func TestPolicyDiffTakesDirectories(t *testing.T) {
	dir := t.TempDir()
	for path, text := range map[string]string{"a.yaml": refunds, "role.yaml": role, "deep/b.yaml": refundsManifestOf("iam.grant"), "notes.txt": "x"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, path), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	granted := pastRefund("g", 1)
	granted.ActionType, granted.Decision, granted.DecisionReason = "iam.grant", decision.Deny, "decision"
	granted.EffectKey, granted.EffectName, granted.Resource = "", "", ""
	granted.ExecutorMode, granted.ClaimID, granted.Reporter, granted.AdmittedTime, granted.Attempt, granted.Token, granted.EffectUID = "", "", "", time.Time{}, 0, "", ""
	granted.Result, granted.Reason = decision.Denied, "decision"
	receipts := write(t, "receipts.jsonl", strings.Join(chainOf(t, pastRefund("a", 1), granted), "\n"))
	for args, want := range map[string]string{
		"":   "0 decisions change, 1 the same, 1 the same by another rule", // iam.grant is unknown in the directory itself
		"-R": "0 decisions change, 2 the same\n",
	} {
		r := run(t, "", append([]string{"policy", "diff", "-f", dir, "-r", receipts}, strings.Fields(args)...)...)
		if r.code != exit.Done || !strings.Contains(r.stdout, want) {
			t.Errorf("%q: %d %s%s", args, r.code, r.stdout, r.stderr)
		}
	}
	if r := run(t, "", "policy", "diff", "-f", t.TempDir(), "-r", receipts); r.code != exit.Usage {
		t.Errorf("an empty directory: %s", fmt.Sprint(r))
	}
}

// TestPolicyDiffCountsKeysAsTheyStand proves that of exported receipts a key counts as what was found out about it since, not as
// its action ended.
func TestPolicyDiffCountsKeysAsTheyStand(t *testing.T) {
	unknown := func(id string) receipt.Document {
		d := pastRefund(id, 1)
		d.Result, d.Reason = decision.Ambiguous, decision.ReportedUnknown
		return d
	}
	settles := func(id string, kind string, result decision.Result) receipt.Document {
		of := pastRefund(id, 1)
		d := receipt.Document{
			Kind: kind, SubjectUID: "e-" + id, Ordinal: 1, ClusterID: "c", Namespace: "payments", NamespaceUID: "n", FinishedTime: of.FinishedTime,
			ActionName: of.ActionName, ActionUID: of.ActionUID, ActionType: of.ActionType, Principal: of.Principal,
			EffectKey: of.EffectKey, EffectName: of.EffectName, EffectUID: "e-" + id, Attempt: 1, Token: of.Token, Result: result,
		}
		if kind == receipt.KindStatusMissing {
			d.Reason = decision.StatusMissing
			return d
		}
		d.Statement, d.Evidence, d.Resolver, d.ResolutionName, d.ResolutionUID = "r", "e", "rita", "r", "r"
		d.Resolves = receipt.Link{Seq: 1, Hash: "sha256:" + strings.Repeat("0f", 32)}
		return d
	}
	again := unknown("d")
	again.SubjectUID, again.ActionUID, again.Attempt = "uid-d2", "uid-d2", 2
	lines := chainOf(t,
		pastRefund("a", 1), // committed
		unknown("b"), settles("b", receipt.KindResolution, decision.Failed),
		unknown("c"), settles("c", receipt.KindResolution, decision.Committed),
		unknown("d"), settles("d", receipt.KindResolution, decision.Failed), again, // open again
		pastRefund("e", 1), settles("e", receipt.KindStatusMissing, decision.Ambiguous), // its record was lost
		unknown("f"))
	want := "2 keys that are committed no longer block, and 3 executing or ambiguous ones (of the replayed receipts)"
	reversed := slices.Clone(lines)
	slices.Reverse(reversed)
	for _, order := range [][]string{lines, reversed} {
		r := diff(t, order, strings.Replace(refunds, `"refund:{payment_id}"`, `"r:{payment_id}"`, 1))
		if !strings.Contains(r.stdout, want) {
			t.Errorf("no %q in %s%s", want, r.stdout, r.stderr)
		}
	}
}

// TestPolicyDiffEscapesWhatAFileSays proves that a namespace in a file of receipts cannot write on the terminal.
func TestPolicyDiffEscapesWhatAFileSays(t *testing.T) {
	forged := pastRefund("a", 1)
	forged.Namespace = "pay\x1b[2Jments\u202e"
	both := refundsManifest + "---\n" + strings.Replace(refundsManifest, "name: other", "name: other, namespace: elsewhere", 1)
	r := diff(t, chainOf(t, forged), both)
	if r.code != exit.Done || !strings.Contains(r.stdout, `of namespace pay\x1b[2Jments\u202e evaluated again`) || !strings.Contains(r.stderr, `than pay\x1b[2Jments\u202e left out`) {
		t.Errorf("%d %q %q", r.code, r.stdout, r.stderr)
	}
	if strings.ContainsAny(r.stdout+r.stderr, "\x1b\u202e") {
		t.Errorf("printed as it is: %q %q", r.stdout, r.stderr)
	}
}
