package receipt

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/decision"
)

// Parse interprets a receipt. It refuses what it does not know in full: another schema or kind, an unknown or missing key,
// a value that cannot stand there. The error is a *ParseError, which names the seq.
//
// Parse does not compare the hash. That is the work of a Fold or a Verifier, and a person has to be able to read an
// altered receipt.
func Parse(e Entry) (Document, error) {
	refuse := func(r Reason, format string, args ...any) (Document, error) {
		return Document{}, &ParseError{Seq: e.Seq, Reason: r, Detail: fmt.Sprintf(format, args...)}
	}
	doc, err := open(e.Document)
	if err != nil {
		return refuse(UnreadableDocument, "%v", err)
	}
	if schema, ok := doc["schema"].(string); !ok || schema != Schema {
		return refuse(UnknownSchema, "schema is not %q; read it with the version that wrote it, or a later one", Schema)
	}
	kind, _ := doc["kind"].(string)
	if !slices.Contains(Kinds(), kind) {
		return refuse(UnknownKind, "kind is not one of %s; read it with a later version", strings.Join(Kinds(), ", "))
	}

	// reader consumes what it reads, hence the copy; a shallow one, because nested objects are not changed.
	r := &reader{members: maps.Clone(doc)}
	d := r.document(kind)
	if d.Seq != e.Seq {
		r.fail("seq", "is not the seq %d the receipt is stored under", e.Seq)
	}
	r.end()
	if r.err != nil {
		return refuse(Malformed, "%v", r.err)
	}
	if err := d.consistent(); err != nil {
		return refuse(Malformed, "%v", err)
	}
	return d, nil
}

func (r *reader) document(kind string) Document {
	r.text("schema")
	d := Document{
		Kind:         r.text("kind"),
		SubjectUID:   r.text("subject_uid"),
		Ordinal:      r.number("ordinal", 0),
		Seq:          r.number("seq", 1),
		PrevHash:     r.hash("prev_hash"),
		Epoch:        r.number("epoch", 0),
		ClusterID:    r.text("cluster_id"),
		Namespace:    r.text("namespace"),
		NamespaceUID: r.text("namespace_uid"),
		FinishedTime: r.time("finished_time"),
	}
	switch kind {
	case KindAction:
		r.effect(&d, r.text, r.orNull)
		r.action(&d)
	case KindResolution:
		r.effect(&d, r.orNull, r.text)
		d.Result = decision.Result(r.oneOf("result", string(decision.Committed), string(decision.Failed)))
		d.Statement = r.orNull("reason")
		d.Evidence = r.orNull("evidence")
		d.Resolver = r.text("resolver")
		d.ResolutionName = r.text("resolution_name")
		d.ResolutionUID = r.text("resolution_uid")
		d.Resolves = r.link("resolves")
		if r.has("resolvers") {
			d.Resolvers = r.resolvers()
		}
		if r.has("observer") {
			d.Observer = r.orNull("observer")
		}
	case KindStatusMissing:
		r.effect(&d, r.orNull, r.text)
		d.Result = decision.Result(r.oneOf("result", string(decision.Ambiguous)))
		d.Reason = decision.Reason(r.orNull("reason"))
		d.Message = r.orNull("message")
	case KindEvent:
		d.Event = r.text("event")
		d.Data = r.data("data")
	case KindLedgerAccepted:
		d.Statement = r.orNull("reason")
		d.Acceptor = r.text("acceptor")
		d.AcceptanceName = r.text("acceptance_name")
		d.AcceptanceUID = r.text("acceptance_uid")
		d.Accepted = r.link("accepted")
	}
	return d
}

// effect reads what putEffect writes. ofAction and ofEffect read the keys of the two objects: of those a receipt is about
// none may be null.
func (r *reader) effect(d *Document, ofAction, ofEffect func(key string) string) {
	d.ActionName = ofAction("action_name")
	d.ActionUID = ofAction("action_uid")
	d.ActionType = ofAction("action_type")
	d.Principal = r.principal()
	d.EffectKey = ofEffect("effect_key")
	d.EffectName = ofEffect("effect_name")
	d.EffectUID = ofEffect("effect_uid")
	d.Attempt = r.numberOrNull("attempt", 1)
	d.Token = r.orNull("token")
}

func (r *reader) action(d *Document) {
	d.ActionHash = r.hashOrNull("action_hash")
	d.Resource = r.orNull("resource")
	d.Arguments = r.objectOrNull("arguments")
	d.Environment = r.text("environment")
	d.Decision = decision.Decision(r.oneOfOrNull("decision",
		string(decision.Allow), string(decision.Approve), string(decision.Deny)))
	d.DecisionReason = r.orNull("decision_reason")
	d.Policy = r.policy()
	d.ApprovalsRequired = r.number("approvals_required", 0)
	d.Approvals = r.approvals()
	d.ExecutorMode = Mode(r.oneOfOrNull("executor_mode", string(ModeAgent), string(ModeOperator)))
	d.ClaimID = r.orNull("claim_id")
	d.Reporter = r.orNull("reporter")
	d.Result = decision.Result(r.oneOf("result", string(decision.Committed), string(decision.Failed),
		string(decision.Ambiguous), string(decision.Denied), string(decision.Blocked), string(decision.Observed)))
	d.Reason = decision.Reason(r.orNull("reason"))
	d.Message = r.orNull("message")
	d.Error = r.orNull("error")
	d.Output = r.orNull("output")
	d.ProposedTime = r.time("proposed_time")
	d.AdmittedTime = r.timeOrNull("admitted_time")
	d.LateOutcomeName = r.orNull("late_outcome_name")
	if r.has("rules_hash") {
		d.RulesHash = r.hashOrNull("rules_hash")
	}
	if r.has("refused") {
		d.Refused = r.refused()
		d.RefusedCount = r.number("refused_count", int64(len(d.Refused)))
	}
	if r.has("authority") {
		d.Authority = r.authority()
		d.Execution = decision.Result(r.oneOfOrNull("execution",
			string(decision.Committed), string(decision.Failed), string(decision.Ambiguous)))
		d.WouldHave = r.wouldHave()
		// Not among the rules of consistent: a receipt of before these keys existed says observed and nothing more.
		observed := d.Result == decision.Observed
		if observed != (d.Execution != "") {
			r.fail("execution", "is null, unless the result is observed")
		}
		if observed != (d.WouldHave != nil) {
			r.fail("would_have", "is null, unless the result is observed")
		}
	}
	if r.has("executor") {
		d.Executor = r.executor()
		if d.Executor != nil && d.ExecutorMode != ModeOperator {
			r.fail("executor", "is there, but the agent executed it, or nobody")
		}
	}
	if r.has("rounds") {
		d.Rounds = r.number("rounds", 0)
	}
	if r.has("preconditions") {
		d.Preconditions = r.preconditions()
		d.PreconditionAtRequest = r.hashOrNull("precondition_at_request")
		d.PreconditionAtRecheck = r.hashOrNull("precondition_at_recheck")
	}
}

// maxData is how many keys the data of an event has at most.
const maxData = 32

// consistent refuses fields that contradict each other: the identity has to be that of the object described, since the
// append rule is about the one and readers look at the other.
func (d Document) consistent() error {
	want := d.Identity()
	switch d.Kind {
	case KindAction:
		want.SubjectUID, want.Ordinal = d.ActionUID, 0
	case KindResolution:
		want.SubjectUID, want.Ordinal = d.EffectUID, d.Attempt
	case KindStatusMissing:
		want.SubjectUID = d.EffectUID
	case KindLedgerAccepted:
		want.SubjectUID, want.Ordinal = d.AcceptanceUID, 0
	}
	if d.Identity() != want {
		return fmt.Errorf("the identity is %s, the content is that of %s", d.Identity(), want)
	}
	if (d.Seq == 1) != (d.PrevHash == Genesis) {
		return errors.New("prev_hash: the genesis hash stands in receipt 1, and only there")
	}
	switch d.Kind {
	case KindAction:
		if d.Principal == nil {
			return errors.New("principal is null")
		}
		if (d.Decision == "") != (d.DecisionReason == "") {
			return errors.New("decision and decision_reason are null together, or neither is")
		}
		if (d.EffectUID == "") != (d.Attempt == 0) {
			return errors.New("effect_uid and attempt are null together, or neither is")
		}
		if d.EffectUID != "" && d.EffectName == "" {
			return errors.New("effect_name is null, but an effect was reserved")
		}
		if d.EffectName != "" && d.EffectKey == "" {
			return errors.New("effect_key is null, but there is an effect")
		}
		if (d.ExecutorMode == "") != d.AdmittedTime.IsZero() {
			return errors.New("executor_mode and admitted_time are null together, or neither is")
		}
	case KindEvent:
		if len(d.Data) > maxData {
			return fmt.Errorf("data has %d keys, more than %d", len(d.Data), maxData)
		}
	case KindResolution, KindStatusMissing:
		if d.Attempt == 0 {
			return errors.New("attempt is null")
		}
	}
	return nil
}

func (r *reader) principal() *Principal {
	m := r.objectOrNull("principal")
	if m == nil {
		return nil
	}
	sub := r.enter("principal", m)
	p := &Principal{
		Agent:  sub.orNull("agent"),
		User:   sub.orNull("user"),
		Claims: sub.objectOrNull("claims"),
	}
	if _, told := m["expires_time"]; told {
		p.Expires = sub.time("expires_time")
	}
	r.leave(sub)
	return p
}

func (r *reader) policy() *Policy {
	m := r.objectOrNull("policy")
	if m == nil {
		return nil
	}
	sub := r.enter("policy", m)
	p := &Policy{
		Name:       sub.text("name"),
		Version:    sub.orNull("version"),
		Generation: sub.number("generation", 0),
		RulesHash:  sub.hash("rules_hash"),
	}
	r.leave(sub)
	return p
}

func (r *reader) authority() *Authority {
	m := r.objectOrNull("authority")
	if m == nil {
		return nil
	}
	sub := r.enter("authority", m)
	a := &Authority{
		Kind:       sub.oneOf("kind", AuthorityGrant, AuthorityDelegation),
		Name:       sub.text("name"),
		BreakGlass: sub.boolean("break_glass"),
		Root:       sub.text("root"),
	}
	if a.Kind == AuthorityGrant && a.Root != a.Name {
		sub.fail("root", "is another grant; the chain of a grant begins at itself")
	}
	r.leave(sub)
	return a
}

func (r *reader) executor() *Executor {
	m := r.objectOrNull("executor")
	if m == nil {
		return nil
	}
	sub := r.enter("executor", m)
	x := &Executor{Name: sub.text("name"), Hash: sub.hash("hash")}
	r.leave(sub)
	return x
}

func (r *reader) wouldHave() *WouldHave {
	m := r.objectOrNull("would_have")
	if m == nil {
		return nil
	}
	sub := r.enter("would_have", m)
	w := &WouldHave{
		Decision:      decision.Decision(sub.oneOf("decision", string(decision.Allow), string(decision.Approve), string(decision.Deny))),
		Reason:        sub.text("reason"),
		BlockedReason: sub.orNull("blocked_reason"),
	}
	r.leave(sub)
	return w
}

func (r *reader) approvals() []Approval {
	var approvals []Approval
	r.objects("approvals", func(sub *reader) {
		a := Approval{
			Approver: sub.text("approver"),
			Name:     sub.text("name"),
			UID:      sub.text("uid"),
			Time:     sub.time("time"),
			Reason:   sub.orNull("reason"),
		}
		if sub.has("rules_hash") {
			a.RulesHash = sub.hashOrNull("rules_hash")
		}
		for _, g := range sub.list("groups") {
			group, ok := g.(string)
			if !ok {
				sub.fail("groups", "holds something that is not a string")
			}
			a.Groups = append(a.Groups, group)
		}
		approvals = append(approvals, a)
	})
	return approvals
}

func (r *reader) preconditions() []Precondition {
	var named []Precondition
	r.objects("preconditions", func(sub *reader) {
		named = append(named, Precondition{APIVersion: sub.text("api_version"), Kind: sub.text("kind"), Name: sub.text("name"), Pointer: sub.text("pointer")})
	})
	return named
}

func (r *reader) resolvers() []Resolver {
	var resolvers []Resolver
	r.objects("resolvers", func(sub *reader) {
		resolvers = append(resolvers, Resolver{
			Resolver:  sub.text("resolver"),
			Name:      sub.text("name"),
			UID:       sub.text("uid"),
			Statement: sub.orNull("reason"),
			Evidence:  sub.orNull("evidence"),
			Resolves:  sub.link("resolves"),
		})
	})
	if len(resolvers) > MaxResolvers {
		r.fail("resolvers", "has more than %d people", MaxResolvers)
	}
	return resolvers
}

func (r *reader) refused() []Refusal {
	var refused []Refusal
	r.objects("refused", func(sub *reader) {
		refused = append(refused, Refusal{
			Kind:    sub.text("kind"),
			Name:    sub.text("name"),
			UID:     sub.text("uid"),
			Speaker: sub.orNull("speaker"),
			Reason:  sub.text("reason"),
			Time:    sub.time("time"),
		})
	})
	if len(refused) > MaxRefused {
		r.fail("refused", "has more than %d statements", MaxRefused)
	}
	return refused
}

// objects reads a list of objects.
func (r *reader) objects(key string, read func(sub *reader)) {
	for i, item := range r.list(key) {
		key := fmt.Sprintf("%s[%d]", key, i)
		m, ok := item.(map[string]any)
		if !ok {
			r.fail(key, "is not an object")
			return
		}
		sub := r.enter(key, m)
		read(sub)
		r.leave(sub)
	}
}

// data reads an object whose every value is a string.
func (r *reader) data(key string) map[string]string {
	m := r.objectOrNull(key)
	if m == nil {
		r.fail(key, "is null")
		return nil
	}
	data := make(map[string]string, len(m))
	for k, v := range m {
		text, ok := v.(string)
		if !ok {
			r.fail(key+"."+k, "is not a string")
		}
		data[k] = text
	}
	return data
}

func (r *reader) link(key string) Link {
	v := r.take(key)
	m, ok := v.(map[string]any)
	if !ok {
		r.fail(key, "is not an object")
		return Link{}
	}
	sub := r.enter(key, m)
	l := Link{Seq: sub.number("seq", 0), Hash: sub.hash("hash")}
	r.leave(sub)
	if err := l.validate(); err != nil {
		r.fail(key, "%v", err)
	}
	return l
}

// reader takes members out of an object one by one. It keeps the first error, so that a document is read without a branch
// after every field; what is left in the end is unknown.
type reader struct {
	path    string
	members map[string]any
	err     error
}

func (r *reader) fail(key, format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%s%s %s", r.path, key, fmt.Sprintf(format, args...))
	}
}

func (r *reader) enter(key string, m map[string]any) *reader {
	return &reader{path: r.path + key + ".", members: maps.Clone(m)}
}

func (r *reader) leave(sub *reader) {
	sub.end()
	if r.err == nil {
		r.err = sub.err
	}
}

// end refuses the members nobody asked for.
func (r *reader) end() {
	if len(r.members) > 0 {
		r.fail(slices.Sorted(maps.Keys(r.members))[0], "is not a key of this kind")
	}
}

// has reports whether a key is there that earlier writers of this schema did not write. The schema grows by such keys alone:
// what they left out is read as null.
func (r *reader) has(key string) bool {
	_, ok := r.members[key]
	return ok
}

func (r *reader) take(key string) any {
	v, ok := r.members[key]
	if !ok {
		r.fail(key, "is missing")
	}
	delete(r.members, key)
	return v
}

// orNull reads a non-empty string, or null as "".
func (r *reader) orNull(key string) string {
	switch v := r.take(key).(type) {
	case nil:
		return ""
	case string:
		if v == "" {
			r.fail(key, "is empty; nothing is written as null")
		}
		return v
	}
	r.fail(key, "is not a string")
	return ""
}

func (r *reader) text(key string) string {
	s := r.orNull(key)
	if s == "" {
		r.fail(key, "is null")
	}
	return s
}

func (r *reader) boolean(key string) bool {
	b, ok := r.take(key).(bool)
	if !ok {
		r.fail(key, "is not a boolean")
	}
	return b
}

func (r *reader) oneOfOrNull(key string, words ...string) string {
	s := r.orNull(key)
	if s != "" && !slices.Contains(words, s) {
		r.fail(key, "is not one of %q", words)
	}
	return s
}

func (r *reader) oneOf(key string, words ...string) string {
	s := r.oneOfOrNull(key, words...)
	if s == "" {
		r.fail(key, "is null")
	}
	return s
}

func (r *reader) hashOrNull(key string) string {
	s := r.orNull(key)
	if s != "" && !validHash(s) {
		r.fail(key, "is not sha256: and 64 lower-case hexadecimal digits")
	}
	return s
}

func (r *reader) hash(key string) string {
	s := r.hashOrNull(key)
	if s == "" {
		r.fail(key, "is null")
	}
	return s
}

// numberOrNull reads an integer of at least lowest, or null as 0.
func (r *reader) numberOrNull(key string, lowest int64) int64 {
	v := r.take(key)
	if v == nil {
		return 0
	}
	n, ok := integer(v)
	if !ok || n < lowest {
		r.fail(key, "is not a 64-bit integer of at least %d", lowest)
	}
	return n
}

func (r *reader) number(key string, lowest int64) int64 {
	if r.members[key] == nil {
		r.fail(key, "is missing or null")
	}
	return r.numberOrNull(key, lowest)
}

// timeOrNull reads a time, or null as the zero time. Only the one spelling Map writes is taken.
func (r *reader) timeOrNull(key string) time.Time {
	s := r.orNull(key)
	if s == "" {
		return time.Time{}
	}
	t, err := time.Parse(TimeLayout, s)
	if err != nil || t.IsZero() || t.Format(TimeLayout) != s {
		r.fail(key, "is not a UTC time with milliseconds, like %s", TimeLayout)
	}
	return t
}

func (r *reader) time(key string) time.Time {
	t := r.timeOrNull(key)
	if t.IsZero() {
		r.fail(key, "is null")
	}
	return t
}

func (r *reader) objectOrNull(key string) map[string]any {
	v := r.take(key)
	if v == nil {
		return nil
	}
	m, ok := v.(map[string]any)
	if !ok {
		r.fail(key, "is not an object")
		return nil
	}
	return canonical.Clone(m).(map[string]any)
}

func (r *reader) list(key string) []any {
	items, ok := r.take(key).([]any)
	if !ok {
		r.fail(key, "is not a list")
	}
	return items
}
