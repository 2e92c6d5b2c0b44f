package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/records"
)

// story is what became of one effect: every attempt, and what is known now. It is the answer of `receipts --effect`, and its
// shape is documented in docs/cli.md: members are added, never renamed or removed.
type story struct {
	Namespace string         `json:"namespace"`
	Key       string         `json:"key"`
	Name      string         `json:"name"`
	Now       *storyNow      `json:"now"` // null: the record is not there
	Attempts  []storyAttempt `json:"attempts"`
	Refused   []storyRefused `json:"refused"` // actions that were not admitted for it
	// Observed are actions that were executed in observe mode although the effect was not theirs.
	Observed []storyObserved `json:"observed,omitempty"`
}

// storyNow is the record as it stands.
type storyNow struct {
	State   string     `json:"state"`
	Attempt int64      `json:"attempt"`
	Cause   string     `json:"cause,omitempty"`
	Since   *time.Time `json:"since,omitempty"`
	Action  string     `json:"action,omitempty"` // the holder
	// LateOutcome is what a report said that came after the lease was declared over, and LateOutcomeName its name. It settles
	// nothing, and may have come after the receipt was written.
	LateOutcome     string `json:"lateOutcome,omitempty"`
	LateOutcomeName string `json:"lateOutcomeName,omitempty"`
}

type storyAttempt struct {
	Attempt      int64           `json:"attempt"`
	ActionName   string          `json:"actionName,omitempty"`
	ActionUID    string          `json:"actionUID,omitempty"`
	ActionType   string          `json:"actionType,omitempty"`
	ActionHash   string          `json:"actionHash,omitempty"`
	Agent        string          `json:"agent,omitempty"`
	User         string          `json:"user,omitempty"`
	ProposedTime *time.Time      `json:"proposedTime,omitempty"`
	Decision     string          `json:"decision,omitempty"`
	Rule         string          `json:"rule,omitempty"` // the reason of the decision
	Policy       string          `json:"policy,omitempty"`
	Version      string          `json:"policyVersion,omitempty"`
	Approvals    []storyApproval `json:"approvals,omitempty"`
	Authority    *storyAuthority `json:"authority,omitempty"`
	WouldHave    *storyWouldHave `json:"wouldHave,omitempty"` // of one that was observed
	AdmittedTime *time.Time      `json:"admittedTime,omitempty"`
	Token        string          `json:"token,omitempty"`
	State        string          `json:"state,omitempty"` // of an attempt without a receipt yet
	Events       []storyEvent    `json:"events"`          // what its receipts say, in their order
}

// storyAuthority is what let the principal propose it.
type storyAuthority struct {
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	Root       string `json:"root"`
	BreakGlass bool   `json:"breakGlass,omitempty"`
}

// storyWouldHave is what enforce mode would have done.
type storyWouldHave struct {
	Decision      string `json:"decision"`
	Reason        string `json:"reason"`
	BlockedReason string `json:"blockedReason,omitempty"` // none: it would have run
}

type storyApproval struct {
	Approver string    `json:"approver"`
	Time     time.Time `json:"time"`
	Reason   string    `json:"reason,omitempty"`
	Name     string    `json:"name"`
}

// storyEvent is one receipt about an attempt.
type storyEvent struct {
	Seq         int64     `json:"seq"`
	Hash        string    `json:"hash"`
	Time        time.Time `json:"time"`
	Kind        string    `json:"kind"`
	Result      string    `json:"result"`
	Execution   string    `json:"execution,omitempty"` // how an observed action ended
	Reason      string    `json:"reason,omitempty"`    // a machine word; of an ambiguous one its cause
	Message     string    `json:"message,omitempty"`
	Reporter    string    `json:"reporter,omitempty"`
	Error       string    `json:"error,omitempty"`
	LateOutcome string    `json:"lateOutcome,omitempty"`
	Resolver    string    `json:"resolver,omitempty"`
	Observer    string    `json:"observer,omitempty"`  // the program that looked, where no person is the source
	Statement   string    `json:"statement,omitempty"` // the resolver's reason
	Evidence    string    `json:"evidence,omitempty"`
	Resolves    int64     `json:"resolves,omitempty"` // the seq that said ambiguous
	// Resolvers are all people who had to say the same, where one was not enough.
	Resolvers []storyResolver `json:"resolvers,omitempty"`
	Altered   bool            `json:"altered,omitempty"` // the document does not have the stored hash
}

type storyResolver struct {
	Resolver  string `json:"resolver"`
	Statement string `json:"statement,omitempty"`
	Evidence  string `json:"evidence,omitempty"`
	Resolves  int64  `json:"resolves"`
	Name      string `json:"name"`
}

type storyRefused struct {
	Seq        int64     `json:"seq"`
	Time       time.Time `json:"time"`
	ActionName string    `json:"actionName"`
	Agent      string    `json:"agent,omitempty"`
	Result     string    `json:"result"`
	Reason     string    `json:"reason,omitempty"`
	Message    string    `json:"message,omitempty"`
	Altered    bool      `json:"altered,omitempty"`
}

// storyObserved is an action that was executed in observe mode without the effect.
type storyObserved struct {
	storyRefused
	Execution string          `json:"execution,omitempty"`
	WouldHave *storyWouldHave `json:"wouldHave,omitempty"`
}

// tellEffect answers `receipts --effect`.
func (a *app) tellEffect(ctx context.Context, s *session, keyOrName string, output outputFlag) error {
	told, err := s.story(ctx, keyOrName)
	if err != nil {
		return err
	}
	for _, seq := range told.alteredSeqs() {
		a.note("receipt %d is altered: its document does not have the stored hash. Do not trust what it says; see kubectl ctrlrun receipts verify", seq)
	}
	return output.print(a, told, func() { a.printStory(told) })
}

// story collects it. A key is tried first: its name is another word, so that nobody can take the one for the other.
func (s *session) story(ctx context.Context, keyOrName string) (*story, error) {
	var tried []string
	for _, name := range []string{action.EffectName(keyOrName), objectName(keyOrName)} {
		if name == "" || slices.Contains(tried, name) {
			continue
		}
		tried = append(tried, name)
		told, err := s.storyOf(ctx, name)
		if told != nil || err != nil {
			return told, err
		}
	}
	if err := s.namespaceThere(ctx); err != nil {
		return nil, err
	}
	return nil, exit.Errorf(exit.Failure, "there is no effect and no receipt of %q in namespace %s: nothing was ever admitted under this key", keyOrName, s.Namespace())
}

// storyOf collects the story of the effect of a name; nil if nothing is known of it.
func (s *session) storyOf(ctx context.Context, name string) (*story, error) {
	told := &story{Namespace: s.Namespace(), Name: name, Attempts: []storyAttempt{}, Refused: []storyRefused{}}
	// The record first: what it says is never ahead of the receipts by more than what is on its way.
	record := &v1alpha1.Effect{}
	err := s.kube.Get(ctx, s.key(name), record)
	switch {
	case err == nil:
		told.Key, told.Now = record.Spec.Key, nowOf(record)
	case !apierrors.IsNotFound(err) || missingKind(err):
		return nil, explain(err)
	}
	receipts := 0
	err = s.eachReceipt(ctx, func(r *v1alpha1.Receipt) error {
		entry := records.Entry(r)
		document, err := receipt.Parse(entry)
		if err != nil {
			return uninterpreted(r, err) // a story that leaves something out would be another story
		}
		receipts++
		told.Key = cmp.Or(told.Key, document.EffectKey)
		told.add(document, entry)
		return nil
	}, kube.MatchingFields{"spec.effectName": name})
	if err != nil {
		return nil, err
	}
	if told.Now == nil && receipts == 0 {
		return nil, nil
	}
	if told.Now != nil {
		if err := s.addPresent(ctx, told, record); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(told.Attempts, func(a, b storyAttempt) int { return cmp.Compare(a.Attempt, b.Attempt) })
	return told, nil
}

func nowOf(record *v1alpha1.Effect) *storyNow {
	status := effectStatus(record)
	now := &storyNow{State: string(status.State), Attempt: status.Attempt, Cause: string(status.Cause), Since: orNil(status.LastTransitionTime.Time)}
	if status.Holder != nil {
		now.Action = status.Holder.Name
	}
	if late := status.LateOutcomeRef; late != nil {
		now.LateOutcome, now.LateOutcomeName = string(late.Result), late.Name
	}
	return now
}

// add takes one receipt into the story.
func (t *story) add(d receipt.Document, e receipt.Entry) {
	altered := canonical.Sum([]byte(e.Document)) != e.Hash
	if d.Attempt == 0 {
		refused := storyRefused{
			Seq: d.Seq, Time: d.FinishedTime, ActionName: d.ActionName, Result: string(d.Result), Reason: string(d.Reason), Message: d.Message, Altered: altered,
		}
		if d.Principal != nil {
			refused.Agent = d.Principal.Agent
		}
		if d.Result == decision.Observed {
			t.Observed = append(t.Observed, storyObserved{storyRefused: refused, Execution: string(d.Execution), WouldHave: wouldHaveOf(d)})
			return
		}
		t.Refused = append(t.Refused, refused)
		return
	}
	attempt := t.attempt(d.Attempt, d.ActionUID)
	attempt.ActionName = cmp.Or(attempt.ActionName, d.ActionName)
	attempt.ActionUID = cmp.Or(attempt.ActionUID, d.ActionUID)
	attempt.ActionType = cmp.Or(attempt.ActionType, d.ActionType)
	attempt.Token = cmp.Or(attempt.Token, d.Token)
	if d.Principal != nil {
		attempt.Agent, attempt.User = cmp.Or(attempt.Agent, d.Principal.Agent), cmp.Or(attempt.User, d.Principal.User)
	}
	if d.Kind == receipt.KindAction {
		attempt.ActionHash, attempt.Decision, attempt.Rule = d.ActionHash, string(d.Decision), d.DecisionReason
		attempt.ProposedTime, attempt.AdmittedTime = orNil(d.ProposedTime), orNil(d.AdmittedTime)
		if d.Policy != nil {
			attempt.Policy, attempt.Version = d.Policy.Name, d.Policy.Version
		}
		if by := d.Authority; by != nil {
			attempt.Authority = &storyAuthority{Kind: by.Kind, Name: by.Name, Root: by.Root, BreakGlass: by.BreakGlass}
		}
		attempt.WouldHave = wouldHaveOf(d)
		attempt.Approvals = nil
		for _, approval := range d.Approvals {
			attempt.Approvals = append(attempt.Approvals, storyApproval{Approver: approval.Approver, Time: approval.Time, Reason: approval.Reason, Name: approval.Name})
		}
	}
	var resolvers []storyResolver
	for _, r := range d.Resolvers {
		resolvers = append(resolvers, storyResolver{Resolver: r.Resolver, Statement: r.Statement, Evidence: r.Evidence, Resolves: r.Resolves.Seq, Name: r.Name})
	}
	attempt.Events = append(attempt.Events, storyEvent{
		Seq: d.Seq, Hash: e.Hash, Time: d.FinishedTime, Kind: d.Kind, Result: string(d.Result), Execution: string(d.Execution), Reason: string(d.Reason), Message: d.Message,
		Reporter: d.Reporter, Error: d.Error, LateOutcome: d.LateOutcomeName,
		Resolver: d.Resolver, Observer: d.Observer, Statement: d.Statement, Evidence: d.Evidence, Resolves: d.Resolves.Seq, Resolvers: resolvers, Altered: altered,
	})
}

// attempt finds an attempt, or begins it. Two actions may be admitted for one attempt only around a record that was lost,
// and each of them tells its own.
func (t *story) attempt(number int64, actionUID string) *storyAttempt {
	for i := range t.Attempts {
		known := &t.Attempts[i]
		if known.Attempt == number && (known.ActionUID == actionUID || known.ActionUID == "" || actionUID == "") {
			return known
		}
	}
	t.Attempts = append(t.Attempts, storyAttempt{Attempt: number, Events: []storyEvent{}})
	return &t.Attempts[len(t.Attempts)-1]
}

// addPresent tells of the present attempt what no receipt says yet.
func (s *session) addPresent(ctx context.Context, t *story, record *v1alpha1.Effect) error {
	status := effectStatus(record)
	if status.Attempt == 0 {
		return nil
	}
	uid := ""
	if status.Holder != nil {
		uid = string(status.Holder.UID)
	}
	attempt := t.attempt(status.Attempt, uid)
	if slices.ContainsFunc(attempt.Events, func(e storyEvent) bool { return e.Kind == receipt.KindAction }) {
		return nil
	}
	attempt.ActionType, attempt.Token = cmp.Or(attempt.ActionType, status.ActionType), cmp.Or(attempt.Token, status.Token)
	if len(attempt.Events) == 0 {
		attempt.State = string(status.State)
	}
	holder := status.Holder
	if holder == nil {
		return nil
	}
	attempt.ActionName, attempt.ActionUID, attempt.Agent, attempt.User = holder.Name, uid, holder.Agent, holder.User
	object := &v1alpha1.Action{}
	err := s.kube.Get(ctx, s.key(holder.Name), object)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || err == nil && object.UID != holder.UID {
		return nil
	}
	if err != nil {
		return explain(err)
	}
	attempt.ProposedTime, attempt.ActionHash = orNil(object.CreationTimestamp.Time), object.Status.ActionHash
	attempt.Decision = map[v1alpha1.ActionDecision]string{
		v1alpha1.DecisionAllow: string(decision.Allow), v1alpha1.DecisionRequireApproval: string(decision.Approve), v1alpha1.DecisionDeny: string(decision.Deny),
	}[object.Status.Decision]
	attempt.Rule = object.Status.DecisionReason
	if by := object.Status.Authority; by != nil {
		attempt.Authority = &storyAuthority{Kind: string(by.Kind), Name: by.Name, Root: by.Root, BreakGlass: by.BreakGlass}
	}
	if policy := object.Status.PolicyRef; policy != nil {
		attempt.Policy, attempt.Version = policy.Name, policy.Version
	}
	if execution := object.Status.Execution; execution != nil {
		attempt.AdmittedTime = orNil(execution.AdmissionTime.Time)
		for _, approval := range execution.Approvals {
			attempt.Approvals = append(attempt.Approvals, storyApproval{Approver: approval.Approver, Time: approval.Time.UTC(), Reason: approval.Reason, Name: approval.Name})
		}
	}
	return nil
}

func (t *story) alteredSeqs() []int64 {
	var seqs []int64
	for _, attempt := range t.Attempts {
		for _, event := range attempt.Events {
			if event.Altered {
				seqs = append(seqs, event.Seq)
			}
		}
	}
	for _, refused := range t.Refused {
		if refused.Altered {
			seqs = append(seqs, refused.Seq)
		}
	}
	for _, observed := range t.Observed {
		if observed.Altered {
			seqs = append(seqs, observed.Seq)
		}
	}
	slices.Sort(seqs)
	return seqs
}

// printStory tells it to a person, in the order in which it happened.
func (a *app) printStory(t *story) {
	f := a.fields()
	f.row("Effect", t.Name)
	f.row("Key", t.Key)
	f.row("Now", t.nowText())
	for _, attempt := range t.Attempts {
		f.gap()
		f.row("Attempt "+fmt.Sprint(attempt.Attempt), strings.TrimSpace(attempt.ActionType+" by action "+orDash(attempt.ActionName)))
		f.row("Proposed", at(attempt.ProposedTime, attempt.proposer()))
		if by := attempt.Authority; by != nil {
			f.row("Authority", authorityText(by.Kind, by.Name, by.Root, by.BreakGlass))
		}
		f.row("Decided", attempt.decided())
		f.row("Would have", attempt.WouldHave.text())
		for _, approval := range attempt.Approvals {
			f.row("Approved", at(&approval.Time, "by "+approval.Approver+quoted(approval.Reason)))
		}
		f.row("Admitted", at(attempt.AdmittedTime, ""))
		if attempt.State != "" {
			f.row("State", attempt.State+"; there is no receipt of it yet")
		}
		for _, event := range attempt.Events {
			f.row(event.label(), at(&event.Time, event.text()))
		}
		if now := t.Now; now != nil && now.LateOutcomeName != "" && now.Attempt == attempt.Attempt && !attempt.tells(now.LateOutcomeName) {
			f.row("Late report", fmt.Sprintf("%s: it came after the lease was over and settles nothing (%s)", now.LateOutcome, now.LateOutcomeName))
		}
	}
	if len(t.Refused)+len(t.Observed) > 0 {
		f.gap()
	}
	for _, refused := range t.Refused {
		f.row("Refused", at(&refused.Time, fmt.Sprintf("%s of %s: %s, %s (receipt %d)", refused.ActionName, orDash(refused.Agent), refused.Result, orDash(refused.Reason), refused.Seq)))
	}
	for _, observed := range t.Observed {
		f.row("Observed", at(&observed.Time, observed.text()))
	}
	f.flush()
	if t.Now != nil && t.Now.State == string(v1alpha1.EffectAmbiguous) {
		a.note("nobody knows whether it happened; find out, then run: %s", resolveCommandLine(t.Name, t.Namespace))
	}
}

func wouldHaveOf(d receipt.Document) *storyWouldHave {
	if d.WouldHave == nil {
		return nil
	}
	return &storyWouldHave{Decision: string(d.WouldHave.Decision), Reason: d.WouldHave.Reason, BlockedReason: d.WouldHave.BlockedReason}
}

func (w *storyWouldHave) text() string {
	if w == nil {
		return ""
	}
	return wouldHaveText(w.Decision, w.Reason, w.BlockedReason)
}

// tells reports whether a receipt of the attempt names a late report already.
func (s storyAttempt) tells(lateOutcome string) bool {
	return slices.ContainsFunc(s.Events, func(e storyEvent) bool { return e.LateOutcome == lateOutcome })
}

func (t *story) nowText() string {
	if t.Now == nil {
		return "there is no such Effect, although receipts name it: see kubectl ctrlrun receipts verify"
	}
	text := fmt.Sprintf("%s, attempt %d", t.Now.State, t.Now.Attempt)
	if t.Now.Cause != "" && t.Now.State == string(v1alpha1.EffectAmbiguous) {
		text += ", " + t.Now.Cause
	}
	if t.Now.Since != nil {
		text += ", since " + t.Now.Since.Format(time.RFC3339)
	}
	return text
}

func (s storyAttempt) proposer() string {
	text := "by " + orDash(s.Agent)
	if s.User != "" {
		text += " for " + s.User
	}
	return text
}

func (s storyAttempt) decided() string {
	if s.Decision == "" {
		return ""
	}
	text := s.Decision + ", " + s.Rule
	if s.Policy != "" {
		text += " of ActionPolicy " + s.Policy
	}
	if s.Version != "" {
		text += ", version " + s.Version
	}
	return text
}

// text says that the action was executed although the effect was not its own.
func (o storyObserved) text() string {
	text := fmt.Sprintf("%s of %s: executed without the effect, %s", o.ActionName, orDash(o.Agent), orDash(o.Execution))
	if would := o.WouldHave.text(); would != "" {
		text += "; enforce mode would have " + would
	}
	return text + fmt.Sprintf(" (receipt %d)", o.Seq)
}

func (e storyEvent) label() string {
	switch e.Kind {
	case receipt.KindResolution:
		return "Resolved"
	case receipt.KindStatusMissing:
		return "Record lost"
	}
	return "Ended"
}

func (e storyEvent) text() string {
	text := e.Result
	if e.Kind == receipt.KindResolution && e.Result == string(decision.Failed) {
		text = notExecuted
	}
	if e.Execution != "" {
		text += ", " + e.Execution
	}
	if e.Reason != "" {
		text += ", " + e.Reason
	}
	switch {
	case e.Reason == string(decision.LeaseLapsed):
		// The receipt names the operator, which concluded it: to people that would read as if somebody had reported.
		text += ": nobody reported before the lease was over"
	case e.Reporter != "":
		text += ", as reported by " + e.Reporter
	}
	resolvers := e.Resolvers
	if len(resolvers) == 0 && e.Resolver != "" {
		resolvers = []storyResolver{{Resolver: byObserver(e.Resolver, e.Observer), Statement: e.Statement, Evidence: e.Evidence}}
	}
	for i, r := range resolvers {
		text += map[bool]string{true: " by ", false: ", and by "}[i == 0] + r.Resolver + quoted(r.Statement)
		if r.Evidence != "" {
			text += ", evidence " + r.Evidence
		}
	}
	text += fmt.Sprintf(" (receipt %d)", e.Seq)
	if e.Altered {
		text += " ALTERED"
	}
	if e.Error != "" {
		text += "\nerror: " + e.Error
	}
	if e.LateOutcome != "" {
		text += "\na report came too late and settled nothing: " + e.LateOutcome
	}
	return text
}

func quoted(reason string) string {
	if reason == "" {
		return ""
	}
	return fmt.Sprintf(": %q", reason)
}

// at puts a time before a text.
func at(t *time.Time, text string) string {
	if t == nil {
		return text
	}
	return strings.TrimSpace(t.UTC().Format(time.RFC3339) + "  " + text)
}
