package judge

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/receipt"
)

func TestAHealthyRun(t *testing.T) {
	s, injections := healthy(t)
	v := Judge(s.State, injections)
	if !v.OK() {
		t.Errorf("found %+v", v.Findings())
	}
	for name, found := range map[string][]Finding{
		"duplicates": v.Duplicates, "lost": v.Lost, "wrongFailed": v.WrongFailed, "chain": v.Chain, "unexplained": v.Unexplained,
	} {
		if found == nil {
			t.Errorf("%s is null, and not empty", name)
		}
	}
	if v.Approved != 0 || v.Resolved != 0 {
		t.Errorf("%d admitted by approval, %d resolved, and nobody was asked", v.Approved, v.Resolved)
	}
	s.Actions[0].Status.Execution.Approvals = []v1alpha1.SpentApproval{{}}
	if v := Judge(s.State, injections); v.Approved != 1 {
		t.Errorf("%d admitted by approval, and one was", v.Approved)
	}
	if v.Ambiguous != 2 || v.Explained["kill"] != 1 || v.Explained["lost-answer"] != 1 {
		t.Errorf("%d ambiguous, explained by %v", v.Ambiguous, v.Explained)
	}
	if v.Actions != 5 || v.Attempts != 5 || v.Executions != 3 || v.Receipts != 5 || v.Effects != 4 {
		t.Errorf("it counted %+v", v)
	}
}

// TestWhatWasObservedIsJudgedByWhatItDid proves that an attempt in observe mode is explained, executed once and reported rightly as
// any other, and that a report which its record contradicts is found.
func TestWhatWasObservedIsJudgedByWhatItDid(t *testing.T) {
	s, injections := healthy(t)
	before := Judge(s.State, injections)
	s.execute(s.observed("o1", 1, decision.Committed, ""))
	s.observed("o2", 1, decision.Failed, "")
	lapsed := s.observed("o3", 1, decision.Ambiguous, decision.LeaseLapsed)
	if v := Judge(s.State, injections); len(v.Unexplained) != 1 || v.Unexplained[0].Rule != noExplanation || len(v.Lost)+len(v.Duplicates)+len(v.WrongFailed)+len(v.Chain) > 0 {
		t.Errorf("nothing explains what became ambiguous, and that is all: %+v", v)
	}
	injection := injections[0]
	injection.ActionUID = string(lapsed.UID)
	s.resolve("o3", 1, decision.Failed)
	s.execute(s.attempt("o3", 2, decision.Committed, "")) // so that only its receipt knows what the first was
	if v := Judge(s.State, injections); len(v.Unexplained) != 1 {
		t.Errorf("it was ambiguous whatever came after: %+v", v.Unexplained)
	}
	if v := Judge(s.State, append(injections, injection)); !v.OK() || v.Ambiguous != before.Ambiguous+1 {
		t.Errorf("it is explained: %+v", v)
	}
	s.Outcomes[len(s.Outcomes)-2].Spec.Result = v1alpha1.OutcomeCommitted // of o2, which is Failed
	if v := Judge(s.State, append(injections, injection)); len(v.Lost) == 0 {
		t.Error("a report that the record contradicts is not found")
	}
}

// TestEveryViolationIsReported are the positive controls: what is judged can be found, and by the question it belongs to.
func TestEveryViolationIsReported(t *testing.T) {
	duplicates := func(v Verdict) []Finding { return v.Duplicates }
	lost := func(v Verdict) []Finding { return v.Lost }
	wrong := func(v Verdict) []Finding { return v.WrongFailed }
	chain := func(v Verdict) []Finding { return v.Chain }
	unexplained := func(v Verdict) []Finding { return v.Unexplained }
	for name, test := range map[string]struct {
		do   func(*scene, *[]Injection)
		in   func(Verdict) []Finding
		rule string
	}{
		"an attempt executed twice": {func(s *scene, _ *[]Injection) { s.execute(&s.Actions[0]) }, duplicates, "executed more than once"},
		"a key executed in two attempts": {func(s *scene, _ *[]Injection) { s.execute(&s.Actions[1]) },
			duplicates, "executed in two attempts"},
		"a key committed in two attempts": {func(s *scene, _ *[]Injection) { s.attempt("a", 2, decision.Committed, "") },
			duplicates, "committed in two attempts"},
		"two Actions admitted for one attempt": {func(s *scene, _ *[]Injection) { s.attempt("a", 1, decision.Committed, "") },
			duplicates, "two Actions were admitted for one attempt"},
		"an execution of an attempt nobody was admitted for": {func(s *scene, _ *[]Injection) {
			a := s.Actions[0].DeepCopy()
			a.Status.Effect.Key = "x"
			s.execute(a)
		}, duplicates, "executed without admission"},
		"an execution by another process than the admitted": {func(s *scene, _ *[]Injection) { s.Executions[0].ClaimID = "another" },
			duplicates, "executed without admission"},
		"an execution with another token": {func(s *scene, _ *[]Injection) { s.Executions[0].Token = "another" },
			duplicates, "executed without admission"},

		"an Action that did not finish": {func(s *scene, _ *[]Injection) {
			s.Actions = append(s.Actions, v1alpha1.Action{Status: v1alpha1.ActionStatus{State: v1alpha1.ActionAwaitingApproval}})
		}, lost, "an Action that did not finish"},
		"an Action without its reference": {func(s *scene, _ *[]Injection) { s.Actions[0].Status.ReceiptRef = nil }, lost, "an Action that did not finish"},
		"a finished Action without receipt": {func(s *scene, _ *[]Injection) { s.Receipts = s.Receipts[:len(s.Receipts)-1] },
			lost, "a finished Action without a receipt"},
		"an Effect that did not settle": {func(s *scene, _ *[]Injection) {
			s.effect("e", &v1alpha1.EffectStatus{State: v1alpha1.EffectExecuting, Attempt: 1})
		}, lost, "an Effect that did not settle"},
		"an Effect without status": {func(s *scene, _ *[]Injection) { s.effect("e", nil) }, lost, "an Effect that did not settle"},
		"a report that the record contradicts": {func(s *scene, _ *[]Injection) { s.Outcomes[0].Spec.Result = v1alpha1.OutcomeNotExecuted },
			lost, "a report that the record contradicts"},
		"a report that was overruled by a lapse": {func(s *scene, _ *[]Injection) { s.report(&s.Actions[3], v1alpha1.OutcomeCommitted) },
			lost, "a report that the record contradicts"},
		"a stored report that is gone": {func(s *scene, _ *[]Injection) { s.Outcomes = s.Outcomes[1:] }, lost, "a stored report that is gone"},
		"an execution that nothing accounts for": {func(s *scene, _ *[]Injection) {
			a := s.Actions[0].DeepCopy()
			a.Status.Effect.Attempt = 9
			s.execute(a)
		}, lost, "an execution that no record accounts for"},

		"Failed, but executed":          {func(s *scene, _ *[]Injection) { s.execute(&s.Actions[1]) }, wrong, "Failed, but executed"},
		"never begun, but executed":     {func(s *scene, _ *[]Injection) { neverBegan(s) }, wrong, "Failed, but executed"},
		"resolved as not, but executed": {func(s *scene, _ *[]Injection) { s.resolve("d", 1, decision.Failed) }, wrong, "Failed, but executed"},
		"a receipt that was altered":    {func(s *scene, _ *[]Injection) { alter(s, 2) }, chain, receipt.ContentAltered},
		"a receipt that was taken away": {func(s *scene, _ *[]Injection) { s.Receipts = slices.Delete(s.Receipts, 1, 2) }, chain, receipt.Missing},
		"a chain that ends before":      {func(s *scene, _ *[]Injection) { truncate(s) }, chain, receipt.HeadMismatch},
		"a copy beside the document":    {func(s *scene, _ *[]Injection) { s.Receipts[0].Spec.Result = "failed" }, chain, receipt.MirrorMismatch},
		"an Action that refers to another": {func(s *scene, _ *[]Injection) {
			s.Actions[0].Status.ReceiptRef = s.Actions[2].Status.ReceiptRef
		}, chain, receipt.ReferenceBroken},
		"an Effect that receipts contradict": {func(s *scene, _ *[]Injection) { s.Effects[0].Status.State = v1alpha1.EffectFailed }, chain, receipt.EffectMismatch},
		"an Effect that is gone":             {func(s *scene, _ *[]Injection) { s.Effects = s.Effects[1:] }, chain, receipt.EffectMismatch},
		"two receipts of one action":         {func(s *scene, _ *[]Injection) { again(s, 0) }, chain, "the chain does not fold"},

		"nothing was injected":                     {func(_ *scene, i *[]Injection) { *i = nil }, unexplained, noExplanation},
		"injected into another":                    {func(_ *scene, i *[]Injection) { (*i)[0].ActionUID = "uid-1" }, unexplained, noExplanation},
		"injected into another key":                {func(_ *scene, i *[]Injection) { (*i)[1].EffectKey = "a" }, unexplained, noExplanation},
		"injected into another attempt of the key": {func(_ *scene, i *[]Injection) { (*i)[1].Attempt = 2 }, unexplained, noExplanation},
		"only the key is known":                    {func(_ *scene, i *[]Injection) { (*i)[1].Attempt = 0 }, unexplained, noExplanation},
		"in another namespace":                     {func(_ *scene, i *[]Injection) { (*i)[0].Namespace = "orders" }, unexplained, noExplanation},
		"recorded too late":                        {func(_ *scene, i *[]Injection) { (*i)[0].Time = noon.Add(time.Millisecond) }, unexplained, noExplanation},
		"of a kind that cannot cause":              {func(_ *scene, i *[]Injection) { (*i)[0].Causes = nil }, unexplained, noExplanation},
		"of another cause":                         {func(_ *scene, i *[]Injection) { (*i)[1].Causes = (*i)[0].Causes }, unexplained, noExplanation},
		"too short to let a lease lapse":           {func(_ *scene, i *[]Injection) { (*i)[0].HoldUp = enough - 1 }, unexplained, noExplanation},
		"an Outcome that does not count": {func(s *scene, _ *[]Injection) {
			s.attempt("e", 1, decision.Ambiguous, decision.OutcomeNotAccepted)
		}, unexplained, noExplanation},
	} {
		t.Run(name, func(t *testing.T) {
			s, injections := healthy(t)
			test.do(s, &injections)
			v := Judge(s.State, injections)
			if !slices.ContainsFunc(test.in(v), func(f Finding) bool { return f.Rule == test.rule }) {
				t.Errorf("not reported as %q: %+v", test.rule, v.Findings())
			}
			if v.OK() {
				t.Error("the verdict is OK")
			}
		})
	}
}

const noExplanation = "an Ambiguous attempt that no injection explains"

func TestWhatExplains(t *testing.T) {
	lapse := []v1alpha1.EffectCause{v1alpha1.CauseLeaseLapsed}
	before := noon // its admission: until then nobody has anything to report
	over := func(after time.Duration) []Injection {
		return []Injection{{Time: before, Over: before.Add(after), Kind: "outage", Action: "c.1", Causes: lapse, HoldUp: time.Hour}}
	}
	for name, test := range map[string]struct {
		injections []Injection
		want       string
	}{
		"mostly before the lease":            {[]Injection{{Time: noon.Add(-9 * time.Second), Kind: "stop", Action: "c.1", Causes: lapse, HoldUp: enough}}, ""},
		"before the lease, and enough of it": {[]Injection{{Time: noon.Add(-time.Hour), Kind: "stop", Action: "c.1", Causes: lapse, HoldUp: time.Hour + enough}}, "stop"},
		"an outage that was over after 3 s":  {over(3 * time.Second), ""},
		"an outage that took long":           {over(enough), "outage"},
		"over later than it can have been":   {[]Injection{{Time: before, Over: noon.Add(time.Hour), Kind: "stall", Action: "c.1", Causes: lapse, HoldUp: enough - 1}}, ""},
		"the piece of work":                  {[]Injection{{Time: before, Kind: "late", Work: "work-uid-1", Causes: lapse, HoldUp: enough}}, "late"},
		"the name":                           {[]Injection{{Time: before, Kind: "late", Action: "c.1", Causes: lapse, HoldUp: enough}}, "late"},
		"several together":                   {[]Injection{{Time: before, Kind: "late", Action: "c.1", Causes: lapse, HoldUp: 4 * time.Second}, {Time: before, Kind: "refuse", Action: "c.1", Causes: lapse, HoldUp: 6 * time.Second}}, "refuse"},
		"the first that is set decides":      {[]Injection{{Time: before, Kind: "late", Work: "work-uid-2", Action: "c.1", Causes: lapse, HoldUp: enough}}, ""},
		"over before the lease began":        {[]Injection{{Time: noon.Add(-enough - time.Second), Kind: "late", Action: "c.1", Causes: lapse, HoldUp: enough}}, ""},
		"killed before the lease began":      {[]Injection{{Time: noon.Add(-time.Hour), Kind: "kill", Action: "c.1", Causes: lapse, HoldUp: Forever}}, "kill"},
		"several, but too short":             {[]Injection{{Time: before, Kind: "late", Action: "c.1", Causes: lapse, HoldUp: 4 * time.Second}, {Time: before, Kind: "refuse", Action: "c.1", Causes: lapse, HoldUp: 5 * time.Second}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.attempt("c", 1, decision.Ambiguous, decision.LeaseLapsed)
			v := Judge(s.State, test.injections)
			if got := v.Explained[test.want] == 1; got != (test.want != "") || (len(v.Unexplained) == 1) != (test.want == "") {
				t.Errorf("explained by %v, unexplained %v; want %q", v.Explained, v.Unexplained, test.want)
			}
		})
	}
}

// TestAnAgentThatCouldNotSayThatItGaveUp: what held it up then explains a lapse however much later it is admitted. What was over
// by then does not: it could have said so.
func TestAnAgentThatCouldNotSayThatItGaveUp(t *testing.T) {
	held := Injection{Time: noon.Add(-time.Hour), Kind: "outage", Action: "c.1", Causes: []v1alpha1.EffectCause{v1alpha1.CauseLeaseLapsed}, HoldUp: enough}
	for name, test := range map[string]struct {
		left time.Time
		want int
	}{
		"held up when it left":                 {noon.Add(-time.Hour + enough - time.Second), 0},
		"left when it had hardly tried again":  {noon.Add(-time.Hour + enough + near), 0},
		"held up, but free again when it left": {noon.Add(-30 * time.Minute), 1},
		"left before it was held up":           {noon.Add(-2 * time.Hour), 1},
		"was there when it was its turn":       {noon.Add(time.Minute), 1},
		"never left":                           {time.Time{}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			a := s.attempt("c", 1, decision.Ambiguous, decision.LeaseLapsed)
			s.Left = map[string]time.Time{string(a.UID): test.left}
			if v := Judge(s.State, []Injection{held}); len(v.Unexplained) != test.want {
				t.Errorf("%d unexplained, want %d: %v", len(v.Unexplained), test.want, v.Findings())
			}
		})
	}
}

// TestResolvedAttempts: what a person says ends an Ambiguous attempt, which must be explained all the same.
func TestResolvedAttempts(t *testing.T) {
	s, injections := healthy(t)
	s.resolve("c", 1, decision.Failed)
	s.resolve("d", 1, decision.Committed)
	if v := Judge(s.State, injections); !v.OK() || v.Ambiguous != 2 || v.Resolved != 2 {
		t.Errorf("%d ambiguous, %d resolved, found %+v", v.Ambiguous, v.Resolved, v.Findings())
	}
	if v := Judge(s.State, nil); len(v.Unexplained) != 2 {
		t.Errorf("without injections %d are unexplained", len(v.Unexplained))
	}
}

func TestAnAttemptThatNeverBeganIsNoViolation(t *testing.T) {
	s, injections := healthy(t)
	neverBegan(s)
	s.Executions = s.Executions[:len(s.Executions)-1]
	if v := Judge(s.State, injections); !v.OK() {
		t.Errorf("found %+v", v.Findings())
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestJournal(t *testing.T) {
	var to bytes.Buffer
	j := NewJournal(&to)
	started := time.Now()
	if err := j.Record(Injection{Kind: "kill", HoldUp: Forever}, Injection{Kind: "late"}); err != nil {
		t.Fatal(err)
	}
	kept := j.Injections()
	if len(kept) != 2 || kept[0].Kind != "kill" || kept[1].Kind != "late" || kept[0].Time.Before(started) {
		t.Errorf("kept %+v", kept)
	}
	lines := strings.Split(strings.TrimSpace(to.String()), "\n")
	var first Injection
	if err := json.Unmarshal([]byte(lines[0]), &first); err != nil || len(lines) != 2 || first.HoldUp != Forever || first.Kind != "kill" {
		t.Errorf("wrote %q, read back %+v, %v", lines, first, err)
	}
	if err := j.Over("late", started.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if kept := j.Injections(); !kept[0].Over.IsZero() || !kept[1].Over.Equal(started.Add(time.Minute)) {
		t.Errorf("kept %+v after the second was over", kept)
	}
	if !strings.Contains(to.String(), `"kind":"late is over"`) {
		t.Errorf("wrote %q", to.String())
	}
	if err := NewJournal(failingWriter{}).Record(Injection{Kind: "kill"}); err == nil {
		t.Error("what could not be written counts as recorded")
	}
}

func TestPrint(t *testing.T) {
	s, injections := healthy(t)
	s.execute(&s.Actions[0])
	var out strings.Builder
	if err := Judge(s.State, injections).Print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Committed 2", "duplicates  ", "FOUND executed more than once", "lost-answer 1"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// neverBegan adds a record whose attempt was released, and an execution of it all the same.
func neverBegan(s *scene) {
	s.effect("e", &v1alpha1.EffectStatus{
		State: v1alpha1.EffectFailed, Attempt: 1, Holder: &v1alpha1.EffectHolder{Name: "e.1", UID: "uid-e"},
		History: []v1alpha1.EffectHistory{{Attempt: 1, Result: "never_began"}},
	})
	a := s.Actions[0].DeepCopy()
	a.Name, a.UID, a.Status.Effect.Key = "e.1", "uid-e", "e"
	s.execute(a)
}

// resolve settles an Ambiguous attempt by what a person says.
func (s *scene) resolve(key string, number int64, result decision.Result) {
	s.t.Helper()
	for i := range s.Effects {
		e := &s.Effects[i]
		if e.Spec.Key != key {
			continue
		}
		s.receipt(receipt.Document{
			Kind: receipt.KindResolution, SubjectUID: string(e.UID), Ordinal: number, EffectKey: key, EffectName: e.Name, EffectUID: string(e.UID),
			Attempt: number, Token: e.Status.Token, ActionName: e.Status.Holder.Name, ActionUID: string(e.Status.Holder.UID), ActionType: "pay",
			Principal: &receipt.Principal{Agent: agent}, Result: result, Statement: "looked", Evidence: "https://remote.example/1", Resolver: "oncall",
			ResolutionName: "r", ResolutionUID: "r-uid", Resolves: receipt.Link{Seq: 1, Hash: s.Receipts[0].Spec.Hash},
		})
		e.Status.State = map[decision.Result]v1alpha1.EffectState{decision.Committed: v1alpha1.EffectCommitted, decision.Failed: v1alpha1.EffectFailed}[result]
		e.Status.Resolution = &v1alpha1.EffectResolution{Name: "r", UID: "r-uid"}
	}
}

// alter changes what the receipt of a seq says.
func alter(s *scene, seq int) {
	r := &s.Receipts[seq-1]
	r.Spec.Document = strings.Replace(r.Spec.Document, `"failed"`, `"committed"`, 1)
}

// truncate cuts the last receipt off, of which the Ledger knows.
func truncate(s *scene) {
	last := s.Receipts[len(s.Receipts)-1]
	s.Ledger = &v1alpha1.Ledger{Status: &v1alpha1.LedgerStatus{Seq: last.Spec.Seq, Hash: last.Spec.Hash}}
	s.Receipts = s.Receipts[:len(s.Receipts)-1]
}

// again appends the receipt at an index a second time.
func again(s *scene, index int) {
	d, err := receipt.Parse(receipt.Entry{Seq: s.Receipts[index].Spec.Seq, Hash: s.Receipts[index].Spec.Hash, Document: s.Receipts[index].Spec.Document})
	if err != nil {
		s.t.Fatal(err)
	}
	s.receipt(d)
}
