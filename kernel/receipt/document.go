package receipt

import (
	"fmt"
	"math/big"
	"strings"
	"time"

	"ctrlrun.dev/operator/kernel/decision"
)

// Kinds of receipts this version writes and interprets.
const (
	// KindAction: an action finished, admitted or not.
	KindAction = "action"
	// KindResolution: a person, or a program that looked, said what really happened to an ambiguous effect.
	KindResolution = "resolution"
	// KindStatusMissing: the ledger record of an effect was lost, so that the effect counts as ambiguous.
	KindStatusMissing = "status-missing"
	// KindLedgerAccepted: a person accepted a head the operator could not vouch for; a new epoch begins.
	KindLedgerAccepted = "ledger-accepted"
	// KindEvent: something happened without an action that decisions rest on, such as a policy that came into force.
	KindEvent = "event"
)

// Kinds are all of them.
func Kinds() []string {
	return []string{KindAction, KindResolution, KindStatusMissing, KindLedgerAccepted, KindEvent}
}

// Mode says who executed an admitted action.
type Mode string

const (
	// ModeAgent: the agent executed it and reported.
	ModeAgent Mode = "agent"
	// ModeOperator: an executor of the operator did.
	ModeOperator Mode = "operator"
)

// TimeLayout is how times stand in documents: UTC, milliseconds, always with a Z.
const TimeLayout = "2006-01-02T15:04:05.000Z"

// Document is a receipt for those who read or write its content. Each kind has a closed set of keys; a field that is not
// among those of the kind is not written, and is zero after Parse. "", nil and the zero time are written as null where
// the comment says "or null", and refused everywhere else.
type Document struct {
	// All kinds.

	Kind         string
	SubjectUID   string    // uid of what the receipt is about: ActionUID, EffectUID, AcceptanceUID, or the object of an event
	Ordinal      int64     // action, ledger-accepted: 0; resolution: Attempt; status-missing, event: counts per subject
	Seq          int64     // set by Build
	PrevHash     string    // set by Build
	Epoch        int64     // of the ledger
	ClusterID    string    // uid of the namespace kube-system
	Namespace    string    // the chain's name
	NamespaceUID string    // tells a namespace from a later one of the same name
	FinishedTime time.Time // when the operator drew the conclusion

	// Kinds action, resolution and status-missing: one attempt of one effect, and the action that holds it. An action
	// receipt has the first four always and the rest or null; the other two kinds have the three of the effect and
	// Attempt always, and of the action what the ledger record still said, or null.

	ActionName string
	ActionUID  string
	ActionType string // what a policy names, for example stripe.refund
	Principal  *Principal
	EffectKey  string // null: the action has none, or it could not be computed
	EffectName string
	EffectUID  string
	Attempt    int64  // from 1; 0 is written as null: nothing was reserved
	Token      string // idempotency token of the attempt, or null
	Result     decision.Result

	// Kinds action and status-missing.

	Reason  decision.Reason // why it ended so, or null
	Message string          // what, why, what to do now; or null

	// Kind action.

	ActionHash        string         // or null: it ended before there was one
	Resource          string         // or null
	Arguments         map[string]any // canonical values, or null: they have no canonical form
	Environment       string
	Decision          decision.Decision // or null: it ended undecided
	DecisionReason    string            // null with Decision
	Policy            *Policy           // or null: no policy decided
	ApprovalsRequired int64
	Approvals         []Approval // those that counted
	ExecutorMode      Mode       // or null: never admitted
	ClaimID           string     // the claim that was admitted, or null
	Reporter          string     // who stated the outcome, or null
	Error             string     // as reported, or null
	Output            string     // as reported: JSON as text, since it may hold what has no canonical form; or null
	ProposedTime      time.Time
	AdmittedTime      time.Time       // null with ExecutorMode
	LateOutcomeName   string          // a report that came after the lapse and settled nothing, or null
	RulesHash         string          // of everything that decided in the namespace, or null with Decision
	Refused           []Refusal       // statements about it that did not count, as far as they were seen; at most MaxRefused
	RefusedCount      int64           // how many there were
	Authority         *Authority      // what let the principal propose it, or null: nothing had to, or nothing did
	Execution         decision.Result // how an observed action ended; null exactly if Result is not observed
	WouldHave         *WouldHave      // what enforce mode would have done; null exactly if Result is not observed

	Rounds   int64     // how often its executor asked back
	Executor *Executor // what executed it for the operator, or null: its agent did, or nobody

	Preconditions         []Precondition // what had to stay as it was
	PreconditionAtRequest string         // fingerprint of it when the action began to wait, or null: it did not wait, or nobody could say
	PreconditionAtRecheck string         // fingerprint of it right before its effect was reserved, or null: it did not get there, or nobody could say

	// Kinds resolution and ledger-accepted.

	Statement string // the reason the person gave, under the key reason; or null

	// Kind resolution.

	Resolver       string
	ResolutionName string
	ResolutionUID  string
	Evidence       string // or null
	Resolves       Link   // the receipt that said ambiguous
	Observer       string // what looked, where no person is the source; "": a person said it
	// Resolvers are all people who had to say the same, in the order in which they said it, where one was not enough; else there
	// are none. The last of them is Resolver. At most MaxResolvers.
	Resolvers []Resolver

	// Kind event.

	Event string            // a word of the vocabulary of package timeline
	Data  map[string]string // what happened to what, by snake_case key

	// Kind ledger-accepted.

	Acceptor       string
	AcceptanceName string
	AcceptanceUID  string
	Accepted       Link // the head the chain is continued from
}

// Principal is who asked for an action.
type Principal struct {
	Agent  string         // or null: it was proposed while nobody was there to say who did
	User   string         // on whose behalf, or null
	Claims map[string]any // what the apiserver vouched for beside the name, or null; never hashed into the action
	// Expires is the last moment of the agent's credential, as it said; the zero time is not written.
	Expires time.Time
}

// Policy is the policy that decided.
type Policy struct {
	Name       string
	Version    string // free text of its author, or null
	Generation int64
	RulesHash  string
}

// Precondition names one part of one object that had to stay as it was.
type Precondition struct {
	APIVersion string
	Kind       string
	Name       string
	Pointer    string // JSON pointer to the part
}

// Kinds of authority.
const (
	AuthorityGrant      = "Grant"
	AuthorityDelegation = "Delegation"
)

// Authority is the grant or delegation that let a principal propose an action.
type Authority struct {
	Kind       string // AuthorityGrant or AuthorityDelegation
	Name       string
	BreakGlass bool
	Root       string // name of the Grant its chain begins at; of a Grant its own
}

// Executor is what executed an action for the operator.
type Executor struct {
	Name string
	Hash string // of its spec
}

// WouldHave is what enforce mode would have done with an action that was observed.
type WouldHave struct {
	Decision      decision.Decision // of authority and policy, the stricter
	Reason        string
	BlockedReason string // why it would not have run at once, or null: it would have
}

// Approval is an approval that counted.
type Approval struct {
	Approver  string
	Groups    []string
	Name      string
	UID       string
	Time      time.Time
	Reason    string // or null
	RulesHash string // of everything that decided in the namespace when it was accepted, or null
}

// MaxResolvers is how many people a receipt of a resolution names at most.
const MaxResolvers = 10

// Resolver is one of several people who said the same of an ambiguous effect.
type Resolver struct {
	Resolver  string
	Name      string
	UID       string
	Statement string // the reason, under the key reason; or null
	Evidence  string // or null
	Resolves  Link   // the receipt that said ambiguous
}

// MaxRefused is how many refused statements a receipt lists.
const MaxRefused = 16

// Refusal is a statement about an action that did not count.
type Refusal struct {
	Kind    string // approval, claim or outcome
	Name    string
	UID     string
	Speaker string // who made it, or null
	Reason  string // the word of its condition Accepted, as documents write it: self_approval
	Time    time.Time
}

// Identity is what the document says it is about.
func (d Document) Identity() Identity {
	return Identity{Kind: d.Kind, SubjectUID: d.SubjectUID, Ordinal: d.Ordinal}
}

// Ended is the result of what was executed: of an observed action its Execution, of all others Result. It is observed only
// where a receipt does not say how the action ended.
func (d Document) Ended() decision.Result {
	if d.Execution != "" {
		return d.Execution
	}
	return d.Result
}

// Entry makes the receipt that follows head, and refuses a document that Parse would refuse: nothing is ever written that
// its own reader does not take.
func (d Document) Entry(head Link) (Entry, error) {
	e, err := Build(head, d.Map())
	if err != nil {
		return Entry{}, err
	}
	if _, err := Parse(e); err != nil {
		return Entry{}, err
	}
	return e, nil
}

// Reduced is the document without what other people put into it, for one that Entry refuses: an argument without canonical
// form, an output that is too long. Something that ended must not stay without a receipt because of how it was described.
func (d Document) Reduced(refusal error) Document {
	d.Arguments, d.Output, d.Error = nil, "", ""
	if d.Principal != nil {
		p := *d.Principal
		p.Claims = nil
		d.Principal = &p
	}
	d.Message = fmt.Sprintf("%s (Arguments, output, error and claims are left out: %v.)", d.Message, refusal)
	if len(d.Message) > maxReducedMessage {
		d.Message = strings.ToValidUTF8(d.Message[:maxReducedMessage], "")
	}
	return d
}

const maxReducedMessage = 4096

// Map is the document as canonical values: exactly the keys of its kind, nulls written out. Of an unknown kind only the
// keys every kind has are written.
func (d Document) Map() map[string]any {
	m := map[string]any{
		"schema":        Schema,
		"kind":          d.Kind,
		"subject_uid":   d.SubjectUID,
		"ordinal":       number(d.Ordinal),
		"seq":           number(d.Seq),
		"prev_hash":     d.PrevHash,
		"epoch":         number(d.Epoch),
		"cluster_id":    d.ClusterID,
		"namespace":     d.Namespace,
		"namespace_uid": d.NamespaceUID,
		"finished_time": orNullTime(d.FinishedTime),
	}
	switch d.Kind {
	case KindAction:
		d.putEffect(m)
		d.putAction(m)
	case KindResolution:
		d.putEffect(m)
		m["result"] = orNull(string(d.Result))
		m["reason"] = orNull(d.Statement)
		m["evidence"] = orNull(d.Evidence)
		m["resolver"] = d.Resolver
		m["resolution_name"] = d.ResolutionName
		m["resolution_uid"] = d.ResolutionUID
		m["resolves"] = d.Resolves.document()
		resolvers := make([]any, len(d.Resolvers))
		for i, r := range d.Resolvers {
			resolvers[i] = r.document()
		}
		m["resolvers"] = resolvers
		m["observer"] = orNull(d.Observer)
	case KindStatusMissing:
		d.putEffect(m)
		m["result"] = orNull(string(d.Result))
		m["reason"] = orNull(string(d.Reason))
		m["message"] = orNull(d.Message)
	case KindEvent:
		data := make(map[string]any, len(d.Data))
		for k, v := range d.Data {
			data[k] = v
		}
		m["event"] = d.Event
		m["data"] = data
	case KindLedgerAccepted:
		m["reason"] = orNull(d.Statement)
		m["acceptor"] = d.Acceptor
		m["acceptance_name"] = d.AcceptanceName
		m["acceptance_uid"] = d.AcceptanceUID
		m["accepted"] = d.Accepted.document()
	}
	return m
}

// putEffect writes the keys that say which attempt of which effect, and whose action it was.
func (d Document) putEffect(m map[string]any) {
	m["action_name"] = orNull(d.ActionName)
	m["action_uid"] = orNull(d.ActionUID)
	m["action_type"] = orNull(d.ActionType)
	m["principal"] = d.Principal.document()
	m["effect_key"] = orNull(d.EffectKey)
	m["effect_name"] = orNull(d.EffectName)
	m["effect_uid"] = orNull(d.EffectUID)
	m["attempt"] = orNullNumber(d.Attempt)
	m["token"] = orNull(d.Token)
}

func (d Document) putAction(m map[string]any) {
	approvals := make([]any, len(d.Approvals))
	for i, a := range d.Approvals {
		approvals[i] = a.document()
	}
	var arguments any
	if d.Arguments != nil {
		arguments = d.Arguments
	}
	m["action_hash"] = orNull(d.ActionHash)
	m["resource"] = orNull(d.Resource)
	m["arguments"] = arguments
	m["environment"] = d.Environment
	m["decision"] = orNull(string(d.Decision))
	m["decision_reason"] = orNull(d.DecisionReason)
	m["policy"] = d.Policy.document()
	m["approvals_required"] = number(d.ApprovalsRequired)
	m["approvals"] = approvals
	m["executor_mode"] = orNull(string(d.ExecutorMode))
	m["claim_id"] = orNull(d.ClaimID)
	m["reporter"] = orNull(d.Reporter)
	m["result"] = orNull(string(d.Result))
	m["reason"] = orNull(string(d.Reason))
	m["message"] = orNull(d.Message)
	m["error"] = orNull(d.Error)
	m["output"] = orNull(d.Output)
	m["proposed_time"] = orNullTime(d.ProposedTime)
	m["admitted_time"] = orNullTime(d.AdmittedTime)
	m["late_outcome_name"] = orNull(d.LateOutcomeName)
	refused := make([]any, len(d.Refused))
	for i, r := range d.Refused {
		refused[i] = r.document()
	}
	m["rules_hash"] = orNull(d.RulesHash)
	m["refused"] = refused
	m["refused_count"] = number(d.RefusedCount)
	m["authority"] = d.Authority.document()
	m["execution"] = orNull(string(d.Execution))
	m["would_have"] = d.WouldHave.document()
	preconditions := make([]any, len(d.Preconditions))
	for i, p := range d.Preconditions {
		preconditions[i] = map[string]any{"api_version": p.APIVersion, "kind": p.Kind, "name": p.Name, "pointer": p.Pointer}
	}
	m["rounds"] = number(d.Rounds)
	m["executor"] = d.Executor.document()
	m["preconditions"] = preconditions
	m["precondition_at_request"] = orNull(d.PreconditionAtRequest)
	m["precondition_at_recheck"] = orNull(d.PreconditionAtRecheck)
}

func (p *Principal) document() any {
	if p == nil {
		return nil
	}
	var claims any
	if p.Claims != nil {
		claims = p.Claims
	}
	m := map[string]any{"agent": orNull(p.Agent), "user": orNull(p.User), "claims": claims}
	if !p.Expires.IsZero() {
		m["expires_time"] = p.Expires.UTC().Format(TimeLayout)
	}
	return m
}

func (p *Policy) document() any {
	if p == nil {
		return nil
	}
	return map[string]any{
		"name":       p.Name,
		"version":    orNull(p.Version),
		"generation": number(p.Generation),
		"rules_hash": p.RulesHash,
	}
}

func (a *Authority) document() any {
	if a == nil {
		return nil
	}
	return map[string]any{"kind": a.Kind, "name": a.Name, "break_glass": a.BreakGlass, "root": a.Root}
}

func (x *Executor) document() any {
	if x == nil {
		return nil
	}
	return map[string]any{"name": x.Name, "hash": x.Hash}
}

func (w *WouldHave) document() any {
	if w == nil {
		return nil
	}
	return map[string]any{"decision": string(w.Decision), "reason": w.Reason, "blocked_reason": orNull(w.BlockedReason)}
}

func (a Approval) document() any {
	groups := make([]any, len(a.Groups))
	for i, g := range a.Groups {
		groups[i] = g
	}
	return map[string]any{
		"approver":   a.Approver,
		"groups":     groups,
		"name":       a.Name,
		"uid":        a.UID,
		"time":       orNullTime(a.Time),
		"reason":     orNull(a.Reason),
		"rules_hash": orNull(a.RulesHash),
	}
}

func (r Resolver) document() any {
	return map[string]any{
		"resolver": r.Resolver,
		"name":     r.Name,
		"uid":      r.UID,
		"reason":   orNull(r.Statement),
		"evidence": orNull(r.Evidence),
		"resolves": r.Resolves.document(),
	}
}

func (r Refusal) document() any {
	return map[string]any{
		"kind":    r.Kind,
		"name":    r.Name,
		"uid":     r.UID,
		"speaker": orNull(r.Speaker),
		"reason":  r.Reason,
		"time":    orNullTime(r.Time),
	}
}

func (l Link) document() any {
	return map[string]any{"seq": number(l.Seq), "hash": l.Hash}
}

func number(n int64) any { return big.NewInt(n) }

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func orNullNumber(n int64) any {
	if n == 0 {
		return nil
	}
	return number(n)
}

func orNullTime(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UTC().Format(TimeLayout)
}
