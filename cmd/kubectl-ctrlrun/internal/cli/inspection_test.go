package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/kernel/timeline"
)

// documentedSchema is the JSON Schema in docs/inspection.md.
func documentedSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "inspection.md"))
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```json\n(.*?)```").FindSubmatch(page)
	if block == nil {
		t.Fatal("docs/inspection.md has no schema")
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(block[1]))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	if err := compiler.AddResource("inspection.json", document); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("inspection.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// printed is an inspection as a program reads it.
func printed(t *testing.T, x *inspection) (string, any) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	x, err := x.forPrograms(scheme)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	a := &app{streams: genericiooptions.IOStreams{Out: &out, ErrOut: &out}}
	if err := (&outputFlag{format: jsonFormat}).print(a, x, nil); err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(out.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	return out.String(), value
}

func objectMeta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: "payments", UID: "u", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}}
}

func finished(t *testing.T) *inspection {
	t.Helper()
	x := newInspection()
	x.Action = &v1alpha1.Action{ObjectMeta: objectMeta("a")}
	x.Action.Status.Timeline = []v1alpha1.TimelineEvent{
		{Seq: 1, Time: metav1.NewMicroTime(time.Date(2026, 3, 1, 12, 0, 0, 5000, time.UTC)), Type: string(timeline.ActionProposed), Data: map[string]v1alpha1.TimelineText{"agent": "bot"}},
		{Seq: 2, Time: metav1.NewMicroTime(time.Date(2026, 3, 1, 12, 0, 1, 0, time.UTC)), Type: string(timeline.ExecutionCommitted)},
	}
	x.Events = eventsOf(x.Action)
	x.Effect = &v1alpha1.Effect{ObjectMeta: objectMeta("e")}
	x.Approvals = []v1alpha1.Approval{{ObjectMeta: objectMeta("a.alice")}}
	entry, err := pastRefund("a", 1).Entry(receipt.Start())
	if err != nil {
		t.Fatal(err)
	}
	x.Receipt = rawDocument(&v1alpha1.Receipt{Spec: v1alpha1.ReceiptSpec{Document: entry.Document}})
	return x
}

// TestTheDocumentedSchemaHolds proves that what is printed is what the page promises, and that the schema refuses what is not.
func TestTheDocumentedSchemaHolds(t *testing.T) {
	schema := documentedSchema(t)
	gone := finished(t)
	gone.Action, gone.Reduced = nil, true
	gone.Events = reducedEvents(pastRefund("a", 1), nil)
	waiting := finished(t)
	waiting.Receipt, waiting.Effect, waiting.Approvals = newInspection().Receipt, nil, newInspection().Approvals
	hidden := finished(t)
	hidden.Approvals, hidden.Hidden = newInspection().Approvals, []string{"approvals"}
	for name, x := range map[string]*inspection{"nothing": newInspection(), "finished": finished(t), "gone": gone, "waiting": waiting, "hidden": hidden} {
		text, value := printed(t, x)
		if err := schema.Validate(value); err != nil {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
	}
	text, _ := printed(t, finished(t))
	for name, broken := range map[string]string{
		"another schema":      strings.Replace(text, inspectionSchema, inspectionSchema+"2", 1),
		"an unknown member":   strings.Replace(text, `"reduced"`, `"more": 1, "reduced"`, 1),
		"a missing member":    strings.Replace(text, `"reduced": false,`, "", 1),
		"another kind":        strings.Replace(text, `"kind": "Effect"`, `"kind": "Action"`, 1),
		"managed fields":      strings.Replace(text, `"metadata": {`, `"metadata": {"managedFields": [],`, 1),
		"a time that is none": strings.ReplaceAll(text, `"2026-03-01T12:00:00.000005Z"`, `"yesterday"`),
		"an unknown hidden":   strings.Replace(text, `"hidden": []`, `"hidden": ["x"]`, 1),
		"a seq of zero":       strings.ReplaceAll(text, `"seq": 2`, `"seq": 0`),
	} {
		if broken == text {
			t.Fatalf("%s: the text was not changed: %s", name, text)
		}
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(broken))
		if err != nil {
			t.Fatal(name, err)
		}
		if schema.Validate(value) == nil {
			t.Errorf("%s passes", name)
		}
	}
}

// TestTheDocumentedEventsAreAll proves that the page names the whole vocabulary of actions.
func TestTheDocumentedEventsAreAll(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "inspection.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "## Events")
	for _, word := range timeline.Types() {
		if word == timeline.PolicyInForce { // from here on without an action
			break
		}
		if !strings.Contains(table, "`"+string(word)+"`") {
			t.Errorf("%s is not documented", word)
		}
	}
}

// TestReducedEvents proves that a receipt gives the events it has a time for, in the order in which they happened, with the
// words a timeline would have.
func TestReducedEvents(t *testing.T) {
	at := func(seconds int) time.Time { return time.Date(2026, 3, 1, 12, 0, seconds, 0, time.UTC) }
	d := pastRefund("a", 1)
	d.ProposedTime, d.AdmittedTime, d.FinishedTime = at(0), at(20), at(30)
	d.Approvals = []receipt.Approval{{Name: "a.alice", Approver: "alice", Time: at(10)}}
	d.Refused = []receipt.Refusal{{Kind: "approval", Name: "a.bot", Speaker: "bot", Reason: "self_approval", Time: at(5)}, {Kind: "claim", Name: "x", Time: at(6)}}
	d.Result, d.Reason = decision.Ambiguous, decision.LeaseLapsed
	resolved := receipt.Document{Kind: receipt.KindResolution, Result: decision.Failed, Resolver: "rita", ResolutionName: "r", FinishedTime: at(60)}
	want := []inspectedEvent{
		{1, "2026-03-01T12:00:00.000Z", "ACTION_PROPOSED", map[string]string{"action_type": "stripe.refund", "agent": "bot"}},
		{2, "2026-03-01T12:00:05.000Z", "APPROVAL_INVALIDATED", map[string]string{"approval": "a.bot", "approver": "bot", "reason": "self_approval"}},
		{3, "2026-03-01T12:00:10.000Z", "APPROVAL_GRANTED", map[string]string{"approval": "a.alice", "approver": "alice"}},
		{4, "2026-03-01T12:00:20.000Z", "EXECUTION_STARTED", map[string]string{"attempt": "1", "claim_id": "c"}},
		{5, "2026-03-01T12:00:30.000Z", "EXECUTION_AMBIGUOUS", map[string]string{"reason": "lease_lapsed"}},
		{6, "2026-03-01T12:01:00.000Z", "EFFECT_RESOLVED", map[string]string{"resolved_by": "human", "resolver": "rita", "resolution": "r", "result": "failed"}},
	}
	if got := reducedEvents(d, []receipt.Document{resolved}); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// TestTimelineLines proves the form of a line, and that what agents wrote cannot break it.
func TestTimelineLines(t *testing.T) {
	var out bytes.Buffer
	a := &app{streams: genericiooptions.IOStreams{Out: &out}}
	a.printEvents([]inspectedEvent{
		{1, "t1", "ACTION_PROPOSED", map[string]string{"b": "two words", "a": "x", "c": ""}},
		{12, "t2", "EXECUTION_FAILED", map[string]string{"reason": "a\nb=\"c\"\x1b"}},
		{13, "t3", "EFFECT_RESOLVED", map[string]string{"result": "failed"}}, // in the words of whoever stated it
		{14, "t4", "EXECUTION_FAILED", map[string]string{"result": "failed"}},
	})
	want := "\n1   t1  ACTION_PROPOSED   a=x b=\"two words\"\n12  t2  EXECUTION_FAILED  reason=\"a\\nb=\\\"c\\\"\\x1b\"\n" +
		"13  t3  EFFECT_RESOLVED   result=not-executed\n14  t4  EXECUTION_FAILED  result=failed\n"
	if out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

// TestResolvedText proves that how an effect was resolved is said once, in the words in which it was stated.
func TestResolvedText(t *testing.T) {
	for message, want := range map[string]string{
		"rosa resolved its effect: Failed (Resolution r).":             "rosa resolved its effect: not executed (Resolution r).",
		"rosa resolved its effect: Committed (Resolution r).":          "rosa resolved its effect: Committed (Resolution r).",
		"Failed@example.com resolved its effect: Failed (Resolution).": "Failed@example.com resolved its effect: not executed (Resolution).",
	} {
		if got := resolvedText(&metav1.Condition{Reason: "Failed", Message: message}); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestLeaseText proves that how long a lease still is, or that it is over, is said only while somebody may have to act on it.
func TestLeaseText(t *testing.T) {
	end := time.Date(2026, 3, 1, 12, 5, 0, 0, time.UTC)
	for _, test := range []struct {
		state v1alpha1.ActionState
		now   time.Time
		want  string
	}{
		{v1alpha1.ActionAdmitted, end.Add(-90 * time.Second), "2026-03-01T12:05:00Z, in 90s"},
		{v1alpha1.ActionAdmitted, end.Add(time.Second), "2026-03-01T12:05:00Z: it is over, and nobody has reported"},
		{v1alpha1.ActionCommitted, end.Add(-time.Second), "2026-03-01T12:05:00Z"},
	} {
		object := &v1alpha1.Action{}
		object.Status.State = test.state
		object.Status.Execution = &v1alpha1.ActionExecution{LeaseExpirationTime: metav1.NewMicroTime(end)}
		if got := leaseText(object, test.now); got != test.want {
			t.Errorf("%s: got %q, want %q", test.state, got, test.want)
		}
	}
	if got := leaseText(&v1alpha1.Action{}, end); got != "" {
		t.Errorf("without an execution: %q", got)
	}
}

// TestLastEnd proves that of a name that was given twice the later action is meant.
func TestLastEnd(t *testing.T) {
	of := func(seq int64, kind string) v1alpha1.Receipt {
		return v1alpha1.Receipt{Spec: v1alpha1.ReceiptSpec{Seq: seq, Kind: kind}}
	}
	all := []v1alpha1.Receipt{of(1, "action"), of(2, "action"), of(3, "resolution")}
	if got := lastEnd(all); got == nil || got.Spec.Seq != 2 {
		t.Errorf("got %v", got)
	}
	if got := lastEnd(slices.Clone(all[2:])); got != nil {
		t.Errorf("a resolution is no end of an action: %v", got)
	}
}

// TestAReservationThatWasRefusedNamesItsKey proves that a reduced timeline says of the end what a timeline says of it.
func TestAReservationThatWasRefusedNamesItsKey(t *testing.T) {
	d := pastRefund("a", 1)
	d.Result, d.Reason, d.AdmittedTime = decision.Blocked, decision.Duplicate, time.Time{}
	events := reducedEvents(d, nil)
	want := map[string]string{"reason": "duplicate", "effect_key": "refund:a"}
	if last := events[len(events)-1]; last.Type != string(timeline.EffectReservationRefused) || !reflect.DeepEqual(last.Data, want) {
		t.Errorf("got %+v", last)
	}
}

// TestAReceiptThatIsGoneIsNamed proves that somebody who inspects an action learns that its receipt is not there, and that one
// they may not read, or that is not written yet, is not called gone.
func TestAReceiptThatIsGoneIsNamed(t *testing.T) {
	named := func(x *inspection) *inspection {
		x.Action.Status.ReceiptRef = &v1alpha1.ReceiptReference{Name: "payments-000000000007"}
		return x
	}
	gone, hidden, running := named(finished(t)), named(finished(t)), finished(t)
	gone.Receipt, hidden.Receipt, running.Receipt = newInspection().Receipt, newInspection().Receipt, newInspection().Receipt
	hidden.Hidden = []string{"receipt"}
	for name, test := range map[string]struct {
		x    *inspection
		want string
	}{
		"gone":    {gone, "receipt payments-000000000007, which the action names, is not there: see kubectl ctrlrun receipts verify -n payments\n"},
		"hidden":  {hidden, "receipt: not visible to you\n"},
		"there":   {named(finished(t)), ""},
		"running": {running, ""},
		"deleted": {newInspection(), ""},
	} {
		var out, errOut bytes.Buffer
		a := &app{streams: genericiooptions.IOStreams{Out: &out, ErrOut: &errOut}}
		if a.noteMissing(test.x); errOut.String() != test.want || out.Len() > 0 {
			t.Errorf("%s: %q on stderr, %q on stdout", name, errOut.String(), out.String())
		}
	}
}

// observedRefund is a refund that an approver would have been asked about, and that was executed in observe mode.
func observedRefund() receipt.Document {
	d := pastRefund("a", 1)
	d.Result, d.Execution = decision.Observed, decision.Failed
	d.WouldHave = &receipt.WouldHave{Decision: decision.Approve, Reason: "rule[1]", BlockedReason: "approval_required"}
	d.Authority = &receipt.Authority{Kind: receipt.AuthorityDelegation, Name: "urgent", BreakGlass: true, Root: "refunds"}
	return d
}

// ofReceipt is the inspection of an action with this receipt.
func ofReceipt(t *testing.T, d receipt.Document) *inspection {
	t.Helper()
	x := finished(t)
	entry, err := d.Entry(receipt.Start())
	if err != nil {
		t.Fatal(err)
	}
	x.Receipt = rawDocument(&v1alpha1.Receipt{Spec: v1alpha1.ReceiptSpec{Document: entry.Document}})
	return x
}

// TestAnObservedActionIsShownAsSuch proves that a person sees how it ended, what enforce mode would have done, and by what it
// was proposed; also once the action is gone.
func TestAnObservedActionIsShownAsSuch(t *testing.T) {
	show := func(print func(*app)) string {
		var out bytes.Buffer
		print(&app{streams: genericiooptions.IOStreams{Out: &out, ErrOut: &out}})
		return strings.Join(strings.Fields(out.String()), " ")
	}
	x := ofReceipt(t, observedRefund())
	x.Action.Status.Authority = &v1alpha1.AuthorityReference{Kind: "Delegation", Name: "urgent", Root: "refunds", BreakGlass: true}
	x.Action.Status.ReceiptRef = &v1alpha1.ReceiptReference{Name: "payments-000000000001"}
	authority, result, would := "Authority: Delegation urgent, from Grant refunds, break glass", "Result: observed, failed, 2026-03-01T12:00:00Z",
		"Would have: stopped at approval_required (approve, rule[1])"
	shown := show(func(a *app) { a.printAction(x, "") })
	gone := show(func(a *app) { a.printGone(x) })
	for _, want := range []string{authority, result, would} {
		if !strings.Contains(shown, want) || !strings.Contains(gone, want) {
			t.Errorf("%q is not in %q, or not in %q", want, shown, gone)
		}
	}
	if enforced := show(func(a *app) { a.printAction(finished(t), ""); a.printGone(finished(t)) }); strings.Contains(enforced, "Would have") || strings.Contains(enforced, "Authority") {
		t.Errorf("in enforce mode it says %q", enforced)
	}
	schema := documentedSchema(t)
	if text, value := printed(t, x); schema.Validate(value) != nil || !strings.Contains(text, `"would_have": {`) {
		t.Errorf("%v\n%s", schema.Validate(value), text)
	}
}

func TestWouldHaveAndAuthorityInWords(t *testing.T) {
	if got := wouldHaveText("allow", "decision", ""); got != "run (allow, decision)" {
		t.Error(got)
	}
	for _, tc := range []struct {
		kind, name, root string
		breakGlass       bool
		want             string
	}{
		{"Grant", "refunds", "refunds", false, "Grant refunds"},
		{"Grant", "refunds", "", true, "Grant refunds, break glass"},
		{"Delegation", "task", "task", false, "Delegation task, from Grant task"},
		{"", "", "", true, ""},
	} {
		if got := authorityText(tc.kind, tc.name, tc.root, tc.breakGlass); got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
}

// TestAReducedTimelineEndsAsTheExecutionDid proves that of an observed action the end is told that its own timeline has.
func TestAReducedTimelineEndsAsTheExecutionDid(t *testing.T) {
	for execution, want := range map[decision.Result]timeline.Type{
		decision.Committed: timeline.ExecutionCommitted, decision.Failed: timeline.ExecutionFailed, decision.Ambiguous: timeline.ExecutionAmbiguous,
	} {
		d := observedRefund()
		d.Execution = execution
		events := reducedEvents(d, nil)
		if got := events[len(events)-1].Type; got != string(want) {
			t.Errorf("%s ends with %s, want %s", execution, got, want)
		}
	}
}

// TestTheWideTableOfReceipts proves that it has what only documents say, a word a column.
func TestTheWideTableOfReceipts(t *testing.T) {
	var list []v1alpha1.Receipt
	head := receipt.Start()
	free := observedRefund()
	free.SubjectUID, free.ActionUID, free.Authority, free.WouldHave = "b", "b", nil, &receipt.WouldHave{Decision: decision.Allow, Reason: "decision"}
	enforced := pastRefund("c", 1)
	for _, d := range []receipt.Document{observedRefund(), free, enforced, enforced} {
		e, err := d.Entry(head)
		if err != nil {
			t.Fatal(err)
		}
		head = e.Link()
		list = append(list, v1alpha1.Receipt{Spec: v1alpha1.ReceiptSpec{
			Seq: e.Seq, Hash: "HASH", Document: e.Document, Kind: d.Kind, Result: string(d.Result), ActionName: "ACTION",
		}})
	}
	list[3].Spec.Document = "{}"
	var out bytes.Buffer
	(&app{streams: genericiooptions.IOStreams{Out: &out}}).printReceipts(list, receiptColumns{wide: true})
	var got []string
	for line := range strings.Lines(out.String()) {
		cells := strings.Fields(line)
		got = append(got, strings.Join(cells[len(cells)-5:], " "))
	}
	want := []string{
		"ACTION AUTHORITY EXECUTION WOULD-HAVE HASH", "ACTION Delegation/urgent failed approval_required HASH", "ACTION - failed run HASH", "ACTION - - - HASH",
		"ACTION <unreadable> <unreadable> <unreadable> HASH",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q:\n%s", got, want, out.String())
	}
}
