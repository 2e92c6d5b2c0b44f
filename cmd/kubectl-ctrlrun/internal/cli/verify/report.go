package verify

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"ctrlrun.dev/operator/kernel/guarantees"
)

// Schema is the schema of the report as JSON. docs/verify.md has it.
const Schema = "ctrlrun.dev/verify/v1alpha1"

// Status is what became of one guarantee.
type Status string

const (
	// Pass: it holds, and its control works.
	Pass Status = "pass"
	// Fail: it does not hold, or its control does not work.
	Fail Status = "fail"
	// NotApplicable: the policy gives no occasion for it. It is not counted.
	NotApplicable Status = "not_applicable"
	// Skipped: --only names others.
	Skipped Status = "skipped"
)

// notSelected is why a guarantee is skipped.
const notSelected = "not selected"

// Report is the answer of a run.
type Report struct {
	Schema    string    `json:"schema"`
	Catalogue string    `json:"catalogue"`
	Version   string    `json:"version"`
	Start     time.Time `json:"startTime"`
	Finish    time.Time `json:"finishTime"`
	// Namespace whose policies, Settings and environment were copied; the policies may be from files instead.
	Namespace   string    `json:"namespace"`
	Environment string    `json:"environment"`
	Policies    []Policy  `json:"policies"`
	Settings    *Settings `json:"settings"`
	// Grants of the namespace; none are read where nobody needs one.
	Grants  []Grant `json:"grants"`
	Scratch Scratch `json:"scratch"`
	// Partial: not all guarantees were selected.
	Partial    bool     `json:"partial"`
	Summary    Summary  `json:"summary"`
	Guarantees []Result `json:"guarantees"`
}

// Scratch is what was made and removed.
type Scratch struct {
	Namespace string `json:"namespace"`
	// Removed: false if the namespace is still being deleted, or could not be.
	Removed bool `json:"removed"`
	// Ledger stays behind.
	Ledger string `json:"ledger"`
}

// Summary counts. What is not applicable is in no other number.
type Summary struct {
	Passed        int `json:"passed"`
	Failed        int `json:"failed"`
	Applicable    int `json:"applicable"`
	NotApplicable int `json:"notApplicable"`
	Skipped       int `json:"skipped"`
}

// Result is what became of one guarantee, and what was driven for it.
type Result struct {
	ID     guarantees.ID `json:"id"`
	Title  string        `json:"title"`
	Status Status        `json:"status"`
	// Reason is why it failed, is not applicable or was skipped; nil only if it passed.
	Reason *string `json:"reason"`
	// ActionType, Arguments, EffectKey and Approvals are of the first action that was driven; nil if none was.
	ActionType *string         `json:"actionType"`
	Arguments  json.RawMessage `json:"arguments"`
	EffectKey  *string         `json:"effectKey"`
	Approvals  int             `json:"approvals"`
	// Detail is what there is to say beside the verdict, or nil.
	Detail any `json:"detail"`
	// Counterexample is nil unless it failed.
	Counterexample *Counterexample `json:"counterexample"`

	duration time.Duration
}

// Counterexample is what was to be seen, what was seen, and the records of the actions of the scenario.
type Counterexample struct {
	Expected string            `json:"expected"`
	Observed string            `json:"observed"`
	Receipts []json.RawMessage `json:"receipts"`
	Events   []Event           `json:"events"`
	Effects  []Effect          `json:"effects"`
}

// Event is one of an Action's timeline.
type Event struct {
	Action string            `json:"action"`
	Seq    int64             `json:"seq"`
	Time   time.Time         `json:"time"`
	Type   string            `json:"type"`
	Data   map[string]string `json:"data"`
}

// Effect is the record of an effect as it was when the scenario ended.
type Effect struct {
	Name    string `json:"name"`
	Key     string `json:"key"`
	State   string `json:"state"`
	Attempt int64  `json:"attempt"`
	Holder  string `json:"holder"`
}

// count makes the summary.
func (r *Report) count() {
	r.Summary, r.Partial = Summary{}, false
	for _, g := range r.Guarantees {
		switch g.Status {
		case Pass:
			r.Summary.Passed++
		case Fail:
			r.Summary.Failed++
		case NotApplicable:
			r.Summary.NotApplicable++
		case Skipped:
			r.Summary.Skipped++
			r.Partial = true
		}
	}
	r.Summary.Applicable = r.Summary.Passed + r.Summary.Failed
}

// Exit codes. Those of a run that did not come to a report are in Unusable and Broken.
const (
	// Passed: all that is applicable holds, and something is.
	Passed = 0
	// Failed: a guarantee does not hold.
	Failed = 1
	// Unusable: there is nothing to verify, or no right to do so. Nothing was driven.
	Unusable = 2
	// Broken: it could not be found out.
	Broken = 3
)

// ExitCode is that of a run with this report. What is not applicable never changes it, unless nothing else is there.
func (r *Report) ExitCode() int {
	switch {
	case r.Summary.Failed > 0:
		return Failed
	case r.Summary.Applicable == 0:
		return Unusable
	}
	return Passed
}

// UnusableError says that there is nothing to verify or no right to do so, and what to do about it.
type UnusableError struct{ Err error }

func (e *UnusableError) Error() string { return e.Err.Error() }

// Unwrap gives errors.As the cause.
func (e *UnusableError) Unwrap() error { return e.Err }

func unusable(format string, args ...any) error {
	return &UnusableError{Err: fmt.Errorf(format, args...)}
}

// verdict is the last line of the report for people.
func (r *Report) verdict() string {
	text := fmt.Sprintf("%d/%d declared guarantees pass.", r.Summary.Passed, r.Summary.Applicable)
	if ids := r.having(NotApplicable); len(ids) > 0 {
		text += fmt.Sprintf(" %d not applicable: %s.", len(ids), strings.Join(ids, ", "))
	}
	if ids := r.having(Skipped); len(ids) > 0 {
		text += fmt.Sprintf(" %d not selected: %s.", len(ids), strings.Join(ids, ", "))
	}
	return text
}

func (r *Report) having(status Status) []string {
	var ids []string
	for _, g := range r.Guarantees {
		if g.Status == status {
			ids = append(ids, string(g.ID))
		}
	}
	return ids
}
