// Package stats counts what the receipts of a chain say, so that somebody can see how a namespace is doing without reading
// every one of them.
//
// Receipts are added one by one, in any order, and what is kept does not grow with their number: counters by word of closed
// lists, a bounded number of rows, and a histogram of waiting times. The same receipts give the same numbers.
//
// Only what is finished has a receipt. Actions that wait are not in any number here.
package stats

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/receipt"
)

// By is what the rows of a report stand for.
type By string

const (
	// ByType: one row for each action type.
	ByType By = "type"
	// ByAgent: one row for each agent.
	ByAgent By = "agent"
)

const (
	// MaxRows is how many rows a report has; what is beyond is summed up in Report.Others.
	MaxRows = 50
	// maxNames bounds how many different names are told apart. Agents choose the types they propose, so that without a bound
	// one of them could fill the memory of whoever counts.
	maxNames = 1000
	// Other is the name everything beyond maxNames is counted under.
	Other = "(other)"
)

// Expired is the word for an action that ran out of time. Its receipt says denied; the reason tells the two apart, and so
// do these numbers.
const Expired = "expired"

// results are the words of Report.Results that are always there. A word beyond them appears with its first receipt.
var results = []string{
	string(decision.Committed), string(decision.Failed), string(decision.Ambiguous), string(decision.Denied), Expired, string(decision.Blocked),
}

// Options say what is counted.
type Options struct {
	// Since is the earliest finished time that counts, inclusive. The zero time: all.
	Since time.Time
	// By is what the rows stand for; ByType if it is empty.
	By By
}

// Report is what was counted.
type Report struct {
	// Receipts of all kinds, and of them those of actions.
	Receipts int64 `json:"receipts"`
	Actions  int64 `json:"actions"`
	// First and Last finished time of what was counted, zero if nothing was.
	First time.Time `json:"-"`
	Last  time.Time `json:"-"`
	// Results: actions by how they ended.
	Results map[string]int64 `json:"results"`
	// Denied, Expired and Blocked: the actions that ended so, by reason.
	Denied  map[string]int64 `json:"denied"`
	Expired map[string]int64 `json:"expired"`
	Blocked map[string]int64 `json:"blocked"`
	// Ambiguous: the actions whose outcome nobody knew when they ended, by cause.
	Ambiguous map[string]int64 `json:"ambiguous"`
	// Observed: the actions that ran in observe mode. They are in none of the four above; what was refused even then is.
	Observed Observed `json:"observed"`
	// LostRecords: records of effects that were lost, so that the effect is ambiguous, whatever its actions were.
	LostRecords int64 `json:"lostRecords"`
	// Resolutions: what people said about them later.
	Resolutions Resolutions `json:"resolutions"`
	// Approvals: what people answered.
	Approvals Approvals `json:"approvals"`
	// By says what Rows stand for.
	By By `json:"by"`
	// Rows by number of actions, the most first; at most MaxRows.
	Rows []Row `json:"rows"`
	// Others sums up the rows that are not shown; nil if all are.
	Others *Row `json:"others"`
}

// Observed is what enforcing would have done with the actions that ran in observe mode, and how they ended. WouldHaveRun and
// the three shares add up to Actions; so do Executions.
type Observed struct {
	Actions int64 `json:"actions"`
	// WouldHaveRun: enforcing would have let them run too.
	WouldHaveRun int64 `json:"wouldHaveRun"`
	// WouldHaveBeenDenied, by what denies: authority, policy, or a person who was asked before.
	WouldHaveBeenDenied Share `json:"wouldHaveBeenDenied"`
	// WouldHaveNeededApproval, by what asks: they would have waited for people.
	WouldHaveNeededApproval Share `json:"wouldHaveNeededApproval"`
	// WouldHaveBeenBlocked, by what is in the way: nothing denies them, and the state of their effect refuses them.
	WouldHaveBeenBlocked Share `json:"wouldHaveBeenBlocked"`
	// Executions: committed, failed, ambiguous.
	Executions map[string]int64 `json:"executions"`
	// Ambiguous: those whose outcome nobody knew when they ended, by cause.
	Ambiguous map[string]int64 `json:"ambiguous"`
}

// Share is a part of the observed actions.
type Share struct {
	Actions int64 `json:"actions"`
	// Percent of the observed actions, to a tenth; 0 if there are none.
	Percent float64          `json:"percent"`
	Reasons map[string]int64 `json:"reasons"`
}

func newObserved() Observed {
	o := Observed{Executions: map[string]int64{}, Ambiguous: map[string]int64{}}
	for _, share := range o.shares() {
		share.Reasons = map[string]int64{}
	}
	for _, word := range []decision.Result{decision.Committed, decision.Failed, decision.Ambiguous} {
		o.Executions[string(word)] = 0
	}
	return o
}

func (o *Observed) shares() []*Share {
	return []*Share{&o.WouldHaveBeenDenied, &o.WouldHaveNeededApproval, &o.WouldHaveBeenBlocked}
}

// add counts the receipt of an action that ran in observe mode.
func (o *Observed) add(d receipt.Document) {
	o.Actions++
	count(o.Executions, string(d.Execution))
	if d.Execution == decision.Ambiguous {
		count(o.Ambiguous, string(d.Reason))
	}
	var would receipt.WouldHave
	if d.WouldHave != nil {
		would = *d.WouldHave
	}
	switch blocked := decision.Reason(would.BlockedReason); {
	case would.Decision == decision.Deny:
		o.WouldHaveBeenDenied.add(would.Reason)
	case blocked == decision.ApprovalDenied:
		o.WouldHaveBeenDenied.add(would.BlockedReason)
	case blocked == decision.ApprovalRequired, blocked == decision.ApprovalExpired:
		o.WouldHaveNeededApproval.add(would.Reason)
	case blocked != "":
		o.WouldHaveBeenBlocked.add(would.BlockedReason)
	default:
		o.WouldHaveRun++
	}
}

func (s *Share) add(reason string) {
	s.Actions++
	count(s.Reasons, reason)
}

// report is a copy, with percentages.
func (o Observed) report() Observed {
	o.Executions, o.Ambiguous = maps.Clone(o.Executions), maps.Clone(o.Ambiguous)
	for _, share := range o.shares() {
		share.Reasons = maps.Clone(share.Reasons)
		if o.Actions > 0 {
			share.Percent = round(100 * float64(share.Actions) / float64(o.Actions))
		}
	}
	return o
}

// Resolutions are statements about ambiguous effects that counted.
type Resolutions struct {
	Committed   int64 `json:"committed"`
	NotExecuted int64 `json:"notExecuted"`
}

// Approvals are answers of people to actions that are finished.
type Approvals struct {
	// Granted: approvals that counted.
	Granted int64 `json:"granted"`
	// Denied: actions that ended because somebody said no.
	Denied int64 `json:"denied"`
	// Expired: actions that ended because not enough people answered in time.
	Expired int64 `json:"expired"`
	// Invalidated: approvals that did not count, as far as receipts list them (receipt.MaxRefused statements an action).
	Invalidated int64 `json:"invalidated"`
	// Seconds from the proposal to each approval that counted; nil without any.
	Seconds *Waiting `json:"seconds"`
}

// Waiting describes a distribution of durations, in seconds. The quantiles are within two percent.
type Waiting struct {
	Median float64 `json:"median"`
	P95    float64 `json:"p95"`
}

// Row is the numbers of one action type or agent.
type Row struct {
	Name      string `json:"name"`
	Actions   int64  `json:"actions"`
	Committed int64  `json:"committed"`
	Failed    int64  `json:"failed"`
	Ambiguous int64  `json:"ambiguous"`
	Denied    int64  `json:"denied"`
	Expired   int64  `json:"expired"`
	Blocked   int64  `json:"blocked"`
	Observed  int64  `json:"observed"`
}

// Counter counts receipts.
type Counter struct {
	options Options
	report  Report
	rows    map[string]*Row
	waits   histogram
}

// New makes a Counter that has counted nothing.
func New(options Options) *Counter {
	if options.By == "" {
		options.By = ByType
	}
	c := &Counter{options: options, rows: map[string]*Row{}, report: Report{
		By: options.By, Results: map[string]int64{}, Denied: map[string]int64{}, Expired: map[string]int64{}, Blocked: map[string]int64{},
		Ambiguous: map[string]int64{}, Observed: newObserved(),
	}}
	for _, word := range results {
		c.report.Results[word] = 0
	}
	return c
}

// Add counts one receipt, unless it is from before Options.Since.
func (c *Counter) Add(d receipt.Document) {
	if !c.options.Since.IsZero() && d.FinishedTime.Before(c.options.Since) {
		return
	}
	r := &c.report
	r.Receipts++
	if r.First.IsZero() || d.FinishedTime.Before(r.First) {
		r.First = d.FinishedTime
	}
	if d.FinishedTime.After(r.Last) {
		r.Last = d.FinishedTime
	}
	switch d.Kind {
	case receipt.KindAction:
		c.action(d)
	case receipt.KindResolution:
		if d.Result == decision.Committed {
			r.Resolutions.Committed++
			return
		}
		r.Resolutions.NotExecuted++
	case receipt.KindStatusMissing:
		r.LostRecords++
	}
}

func (c *Counter) action(d receipt.Document) {
	r := &c.report
	r.Actions++
	ended := endOf(d)
	count(r.Results, ended)
	row := c.row(d)
	row.Actions++
	row.count(ended)
	reason := string(cmp.Or(d.Reason, decision.Reason(d.DecisionReason)))
	switch ended {
	case string(decision.Denied):
		count(r.Denied, reason)
	case Expired:
		count(r.Expired, reason)
	case string(decision.Blocked):
		count(r.Blocked, reason)
	case string(decision.Ambiguous):
		count(r.Ambiguous, reason)
	case string(decision.Observed):
		r.Observed.add(d)
	}
	switch d.Reason {
	case decision.ApprovalDenied:
		r.Approvals.Denied++
	case decision.ApprovalExpired:
		r.Approvals.Expired++
	}
	for _, refusal := range d.Refused {
		if refusal.Kind == "approval" {
			r.Approvals.Invalidated++
		}
	}
	for _, a := range d.Approvals {
		r.Approvals.Granted++
		c.waits.add(a.Time.Sub(d.ProposedTime))
	}
}

// endOf is how an action ended, in one word.
func endOf(d receipt.Document) string {
	if d.Result == decision.Denied && d.Reason.RanOut() {
		return Expired
	}
	return string(d.Result)
}

func (c *Counter) row(d receipt.Document) *Row {
	name := d.ActionType
	if c.options.By == ByAgent {
		name = "(unknown)"
		if d.Principal != nil && d.Principal.Agent != "" {
			name = d.Principal.Agent
		}
	}
	if c.rows[name] == nil && len(c.rows) >= maxNames {
		name = Other
	}
	if c.rows[name] == nil {
		c.rows[name] = &Row{Name: name}
	}
	return c.rows[name]
}

func (r *Row) count(ended string) {
	switch ended {
	case string(decision.Committed):
		r.Committed++
	case string(decision.Failed):
		r.Failed++
	case string(decision.Ambiguous):
		r.Ambiguous++
	case string(decision.Denied):
		r.Denied++
	case Expired:
		r.Expired++
	case string(decision.Blocked):
		r.Blocked++
	case string(decision.Observed):
		r.Observed++
	}
}

func (r *Row) add(o Row) {
	r.Actions += o.Actions
	r.Committed += o.Committed
	r.Failed += o.Failed
	r.Ambiguous += o.Ambiguous
	r.Denied += o.Denied
	r.Expired += o.Expired
	r.Blocked += o.Blocked
	r.Observed += o.Observed
}

// count counts a word. The words are of closed lists; the bound holds against a chain that somebody else wrote.
func count(words map[string]int64, word string) {
	if word == "" {
		word = "(none)"
	}
	if _, known := words[word]; !known && len(words) >= maxNames {
		word = Other
	}
	words[word]++
}

// Report is what was counted so far.
func (c *Counter) Report() Report {
	r := c.report
	r.Results, r.Denied, r.Expired, r.Blocked, r.Ambiguous = maps.Clone(r.Results), maps.Clone(r.Denied), maps.Clone(r.Expired),
		maps.Clone(r.Blocked), maps.Clone(r.Ambiguous)
	r.Observed = r.Observed.report()
	r.Approvals.Seconds = c.waits.describe()
	r.Rows = []Row{}
	for _, row := range c.rows {
		r.Rows = append(r.Rows, *row)
	}
	slices.SortFunc(r.Rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(b.Actions, a.Actions), cmp.Compare(a.Name, b.Name))
	})
	if len(r.Rows) > MaxRows {
		r.Others = &Row{Name: Other}
		for _, row := range r.Rows[MaxRows:] {
			r.Others.add(row)
		}
		r.Rows = r.Rows[:MaxRows:MaxRows]
	}
	return r
}
