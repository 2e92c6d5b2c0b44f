package receipt

import (
	"errors"
	"maps"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/decision"
)

var (
	noon     = time.Date(2026, 11, 30, 12, 0, 0, 123e6, time.UTC)
	someHash = "sha256:" + strings.Repeat("0f", 32)
)

// actionDocument has no field that is null, apart from those of observed actions.
func actionDocument() Document {
	return Document{
		Kind: KindAction, SubjectUID: "action-uid", Epoch: 1,
		ClusterID: "cluster-uid", Namespace: "payments", NamespaceUID: "namespace-uid", FinishedTime: noon.Add(time.Minute),
		ActionName: "refund-txn-1", ActionUID: "action-uid", ActionType: "stripe.refund",
		Principal: &Principal{
			Agent: "system:serviceaccount:payments:refund-agent", User: "alice",
			Claims: map[string]any{"pod": "refund-0", "groups": []any{"system:authenticated"}}, Expires: noon.Add(time.Hour),
		},
		EffectKey: "refund:txn_1", EffectName: "refund-txn-1-x", EffectUID: "effect-uid", Attempt: 2, Token: "token",
		Result: decision.Committed, Reason: decision.PlainDecision, Message: "done",
		ActionHash: someHash, Resource: "payment:txn_1",
		Arguments:   map[string]any{"amount": big.NewInt(200000), "payment_id": "txn_1", "note": nil},
		Environment: "production", Decision: decision.Approve, DecisionReason: "rule[1]",
		Policy:            &Policy{Name: "payments", Version: "git-3f2c1a", Generation: 3, RulesHash: someHash},
		ApprovalsRequired: 1,
		Approvals: []Approval{{
			Approver: "bob", Groups: []string{"leads", "payments"}, Name: "refund-txn-1.bob", UID: "approval-uid", Time: noon.Add(time.Second), Reason: "ok",
			RulesHash: someHash,
		}},
		ExecutorMode: ModeAgent, ClaimID: "claim", Reporter: "system:serviceaccount:payments:refund-agent",
		Error: "none", Output: `{"rate":1.5}`, ProposedTime: noon, AdmittedTime: noon.Add(2 * time.Second), LateOutcomeName: "late.x",
		RulesHash: someHash, RefusedCount: 17,
		Refused:   []Refusal{{Kind: "approval", Name: "refund-txn-1.mallory", UID: "refused-uid", Speaker: "mallory", Reason: "SelfApproval", Time: noon}},
		Authority: &Authority{Kind: AuthorityDelegation, Name: "refunds-of-alice", BreakGlass: true, Root: "refunds"},

		Preconditions:         []Precondition{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", Pointer: "/spec/replicas"}},
		PreconditionAtRequest: someHash, PreconditionAtRecheck: someHash,
	}
}

// observedDocument has no field that is null.
func observedDocument() Document {
	d := actionDocument()
	d.Result, d.Execution = decision.Observed, decision.Committed
	d.ExecutorMode, d.Executor = ModeOperator, &Executor{Name: "refunds", Hash: someHash}
	d.WouldHave = &WouldHave{Decision: decision.Approve, Reason: "rule[1]", BlockedReason: "approval_required"}
	return d
}

func resolutionDocument() Document {
	a := actionDocument()
	return Document{
		Kind: KindResolution, SubjectUID: a.EffectUID, Ordinal: a.Attempt, Epoch: 1,
		ClusterID: a.ClusterID, Namespace: a.Namespace, NamespaceUID: a.NamespaceUID, FinishedTime: noon,
		ActionName: a.ActionName, ActionUID: a.ActionUID, ActionType: a.ActionType, Principal: a.Principal,
		EffectKey: a.EffectKey, EffectName: a.EffectName, EffectUID: a.EffectUID, Attempt: a.Attempt, Token: a.Token,
		Result: decision.Failed, Statement: "looked at the ledger of the bank", Evidence: "https://bank.example/1",
		Resolver: "carol", ResolutionName: "x.2.carol", ResolutionUID: "resolution-uid", Resolves: Link{7, someHash},
		Observer: "ledger-watcher",
		Resolvers: []Resolver{
			{Resolver: "dave", Name: "x.2.dave", UID: "dave-uid", Statement: "asked the bank", Resolves: Link{6, someHash}},
			{Resolver: "carol", Name: "x.2.carol", UID: "resolution-uid", Statement: "looked at the ledger of the bank", Evidence: "https://bank.example/1", Resolves: Link{7, someHash}},
		},
	}
}

func statusMissingDocument() Document {
	d := resolutionDocument()
	return Document{
		Kind: KindStatusMissing, SubjectUID: d.EffectUID, Ordinal: 4,
		ClusterID: d.ClusterID, Namespace: d.Namespace, NamespaceUID: d.NamespaceUID, FinishedTime: noon,
		ActionName: d.ActionName, ActionUID: d.ActionUID, ActionType: d.ActionType, Principal: d.Principal,
		EffectKey: d.EffectKey, EffectName: d.EffectName, EffectUID: d.EffectUID, Attempt: 1, Token: "token",
		Result: decision.Ambiguous, Reason: decision.StatusMissing, Message: "look at the remote",
	}
}

func ledgerAcceptedDocument() Document {
	return Document{
		Kind: KindLedgerAccepted, SubjectUID: "acceptance-uid", Epoch: 2,
		ClusterID: "cluster-uid", Namespace: "payments", NamespaceUID: "namespace-uid", FinishedTime: noon,
		Statement: "restored from a backup", Acceptor: "dave", AcceptanceName: "payments.dave", AcceptanceUID: "acceptance-uid",
		Accepted: Link{5, someHash},
	}
}

func eventDocument() Document {
	return Document{
		Kind: KindEvent, SubjectUID: "policy-uid", Ordinal: 3, Epoch: 2,
		ClusterID: "cluster-uid", Namespace: "payments", NamespaceUID: "namespace-uid", FinishedTime: noon,
		Event: "POLICY_IN_FORCE", Data: map[string]string{"policy": "payments", "generation": "3"},
	}
}

// deniedDocument has every field null that may be: it ended before there was anything to say.
func deniedDocument() Document {
	return Document{
		Kind: KindAction, SubjectUID: "action-uid",
		ClusterID: "cluster-uid", Namespace: "payments", NamespaceUID: "namespace-uid", FinishedTime: noon,
		ActionName: "refund", ActionUID: "action-uid", ActionType: "stripe.refund", Principal: &Principal{Agent: "agent"},
		Environment: "production", Result: decision.Denied, ProposedTime: noon,
	}
}

func documents() map[string]Document {
	lost := statusMissingDocument()
	lost.ActionName, lost.ActionUID, lost.ActionType, lost.Principal, lost.Token, lost.Reason, lost.Message = "", "", "", nil, "", "", ""
	free := observedDocument()
	free.Authority, free.Execution, free.WouldHave = nil, decision.Ambiguous, &WouldHave{Decision: decision.Allow, Reason: "decision"}
	return map[string]Document{
		"observed action": observedDocument(), "observed action that would run": free,
		"action": actionDocument(), "denied action": deniedDocument(), "resolution": resolutionDocument(),
		"status-missing": statusMissingDocument(), "lost holder": lost, "ledger-accepted": ledgerAcceptedDocument(),
		"event": eventDocument(),
	}
}

func TestDocumentRoundTrip(t *testing.T) {
	for name, d := range documents() {
		t.Run(name, func(t *testing.T) {
			e, err := d.Entry(Link{41, someHash})
			if err != nil {
				t.Fatal(err)
			}
			if id, err := IdentityOf(e); err != nil || id != d.Identity() {
				t.Errorf("identity %v, %v; want %v", id, err, d.Identity())
			}
			got, err := Parse(e)
			if err != nil {
				t.Fatal(err)
			}
			d.Seq, d.PrevHash = 42, someHash
			if !reflect.DeepEqual(got, d) {
				t.Errorf("read back\n%+v\nwant\n%+v", got, d)
			}
		})
	}
}

// Nulls are written out: what a receipt says nothing about, it says so, and every receipt of a kind has the same keys.
func TestKeysOfAKindAreClosed(t *testing.T) {
	const common = "cluster_id epoch finished_time kind namespace namespace_uid ordinal prev_hash schema seq subject_uid "
	const effect = "action_name action_type action_uid attempt effect_key effect_name effect_uid principal token "
	want := map[string]string{
		KindAction: common + effect + "action_hash admitted_time approvals approvals_required arguments authority claim_id decision decision_reason " +
			"environment error execution executor executor_mode late_outcome_name message output policy precondition_at_recheck precondition_at_request preconditions proposed_time reason refused refused_count " +
			"reporter resource result rounds rules_hash would_have",
		KindResolution:     common + effect + "evidence observer reason resolution_name resolution_uid resolver resolvers resolves result",
		KindStatusMissing:  common + effect + "message reason result",
		KindEvent:          common + "data event",
		KindLedgerAccepted: common + "acceptance_name acceptance_uid accepted acceptor reason",
	}
	for name, d := range documents() {
		keys := strings.Fields(want[d.Kind])
		slices.Sort(keys)
		if got := slices.Sorted(maps.Keys(d.Map())); !slices.Equal(got, keys) {
			t.Errorf("%s has the keys\n%q, want\n%q", name, got, keys)
		}
	}
	var null []string
	for key, v := range deniedDocument().Map() {
		if v == nil {
			null = append(null, key)
		}
	}
	slices.Sort(null)
	if got, want := strings.Join(null, " "), "action_hash admitted_time arguments attempt authority claim_id decision decision_reason effect_key "+
		"effect_name effect_uid error execution executor executor_mode late_outcome_name message output policy precondition_at_recheck precondition_at_request reason reporter resource rules_hash "+
		"token would_have"; got != want {
		t.Errorf("of an action that was denied at once these are null\n%s, want\n%s", got, want)
	}
}

// One person who was enough stands in no list; receipts of before there was one are read as such.
func TestOneResolverIsNoList(t *testing.T) {
	d := resolutionDocument()
	d.Resolvers = nil
	m := d.Map()
	if list, ok := m["resolvers"].([]any); !ok || len(list) != 0 {
		t.Errorf("resolvers is %v, want an empty list", m["resolvers"])
	}
	d.Seq, d.PrevHash = 1, Genesis
	for _, before := range []bool{false, true} {
		if before {
			delete(m, "resolvers")
		}
		e, err := Build(Start(), m)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Parse(e); err != nil || !reflect.DeepEqual(got, d) {
			t.Errorf("read\n%+v, %v\nwant\n%+v", got, err, d)
		}
	}
}

// A receipt that was written before the schema grew is read all the same: what its writer did not know is null.
func TestParseReadsWhatWasWrittenBeforeTheSchemaGrew(t *testing.T) {
	d := actionDocument()
	m := d.Map()
	for _, key := range []string{"rules_hash", "refused", "refused_count", "authority", "execution", "would_have",
		"executor", "preconditions", "precondition_at_request", "precondition_at_recheck"} {
		delete(m, key)
	}
	delete(m["approvals"].([]any)[0].(map[string]any), "rules_hash")
	e, err := Build(Start(), m)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse(e)
	if err != nil {
		t.Fatal(err)
	}
	d.Seq, d.PrevHash = 1, Genesis
	d.RulesHash, d.Refused, d.RefusedCount, d.Approvals[0].RulesHash, d.Authority = "", nil, 0, "", nil
	d.Executor, d.Preconditions, d.PreconditionAtRequest, d.PreconditionAtRecheck = nil, nil, "", ""
	if !reflect.DeepEqual(got, d) {
		t.Errorf("read\n%+v\nwant\n%+v", got, d)
	}
}

// The keys of observed actions came after the result observed had been promised: a receipt without them is read, and says
// not how the action ended.
func TestParseReadsObservedWithoutExecution(t *testing.T) {
	m := observedDocument().Map()
	for _, key := range []string{"authority", "execution", "would_have"} {
		delete(m, key)
	}
	e, err := Build(Start(), m)
	if err != nil {
		t.Fatal(err)
	}
	d, err := Parse(e)
	if err != nil || d.Authority != nil || d.Execution != "" || d.WouldHave != nil || d.Ended() != decision.Observed {
		t.Errorf("read %+v, %v", d, err)
	}
}

func TestEnded(t *testing.T) {
	for _, tc := range []struct{ result, execution, want decision.Result }{
		{decision.Committed, "", decision.Committed},
		{decision.Denied, "", decision.Denied},
		{decision.Observed, decision.Committed, decision.Committed},
		{decision.Observed, decision.Failed, decision.Failed},
		{decision.Observed, decision.Ambiguous, decision.Ambiguous},
		{decision.Observed, "", decision.Observed},
	} {
		if got := (Document{Result: tc.result, Execution: tc.execution}).Ended(); got != tc.want {
			t.Errorf("%s with execution %q ended %s, want %s", tc.result, tc.execution, got, tc.want)
		}
	}
}

func TestTimesAreWrittenInUTCMilliseconds(t *testing.T) {
	d := deniedDocument()
	d.ProposedTime = time.Date(2026, 11, 30, 13, 0, 0, 1_999_999, time.FixedZone("", 3600))
	if got := d.Map()["proposed_time"]; got != "2026-11-30T12:00:00.001Z" {
		t.Error(got)
	}
}

func TestParseRefuses(t *testing.T) {
	remove := func(key string) func(map[string]any) { return func(d map[string]any) { delete(d, key) } }
	in := func(key string, change func(map[string]any)) func(map[string]any) {
		return func(d map[string]any) { change(d[key].(map[string]any)) }
	}
	approval := func(change func(map[string]any)) func(map[string]any) {
		return func(d map[string]any) { change(d["approvals"].([]any)[0].(map[string]any)) }
	}
	all := func(changes ...func(map[string]any)) func(map[string]any) {
		return func(d map[string]any) {
			for _, change := range changes {
				change(d)
			}
		}
	}
	action, resolution, missing, accepted := actionDocument(), resolutionDocument(), statusMissingDocument(), ledgerAcceptedDocument()
	observed, event := observedDocument(), eventDocument()
	for name, tc := range map[string]struct {
		doc    Document
		change func(map[string]any)
		reason Reason
		says   string
	}{
		"another schema":             {action, set("schema", "ctrlrun.dev/receipt/v1"), UnknownSchema, "schema"},
		"no schema":                  {action, remove("schema"), UnknownSchema, "schema"},
		"another kind":               {action, set("kind", "contract"), UnknownKind, "kind"},
		"no kind":                    {action, remove("kind"), UnknownKind, "kind"},
		"a null kind":                {action, set("kind", nil), UnknownKind, "kind"},
		"an unknown key":             {action, set("approver", "bob"), Malformed, "approver is not a key"},
		"a key of another kind":      {action, set("resolver", "bob"), Malformed, "resolver is not a key"},
		"a missing key":              {action, remove("late_outcome_name"), Malformed, "late_outcome_name is missing"},
		"a missing number":           {action, remove("epoch"), Malformed, "epoch is missing"},
		"an empty string":            {action, set("message", ""), Malformed, "message is empty"},
		"null where it may not be":   {action, set("environment", nil), Malformed, "environment is null"},
		"a number for a string":      {action, set("message", big.NewInt(1)), Malformed, "message is not a string"},
		"a string for a number":      {action, set("epoch", "1"), Malformed, "epoch is not"},
		"a negative number":          {action, set("epoch", big.NewInt(-1)), Malformed, "epoch is not"},
		"a number beyond 64 bits":    {action, set("epoch", new(big.Int).Lsh(big.NewInt(1), 63)), Malformed, "epoch is not"},
		"attempt 0":                  {action, set("attempt", big.NewInt(0)), Malformed, "attempt is not"},
		"an unknown result":          {action, set("result", "Committed"), Malformed, "result is not one of"},
		"a null result":              {action, set("result", nil), Malformed, "result is null"},
		"an unknown decision":        {action, set("decision", "RequireApproval"), Malformed, "decision is not one of"},
		"an unknown mode":            {action, set("executor_mode", "Agent"), Malformed, "executor_mode is not one of"},
		"a hash that is none":        {action, set("action_hash", "sha256:x"), Malformed, "action_hash is not sha256"},
		"an upper-case hash":         {action, set("prev_hash", strings.ToUpper(someHash)), Malformed, "prev_hash is not sha256"},
		"seconds for milliseconds":   {action, set("proposed_time", "2026-11-30T12:00:00Z"), Malformed, "proposed_time is not"},
		"a time with an offset":      {action, set("proposed_time", "2026-11-30T12:00:00.000+00:00"), Malformed, "proposed_time is not"},
		"a decimal comma":            {action, set("proposed_time", "2026-11-30T12:00:00,000Z"), Malformed, "proposed_time is not"},
		"a day that is none":         {action, set("proposed_time", "2026-02-30T12:00:00.000Z"), Malformed, "proposed_time is not"},
		"arguments that are no map":  {action, set("arguments", []any{}), Malformed, "arguments is not an object"},
		"a principal that is a name": {action, set("principal", "agent"), Malformed, "principal is not an object"},
		"no principal":               {action, set("principal", nil), Malformed, "principal is null"},
		"a principal with a role":    {action, in("principal", set("role", "x")), Malformed, "principal.role is not a key"},
		"a principal without user":   {action, in("principal", remove("user")), Malformed, "principal.user is missing"},
		"a policy without hash":      {action, in("policy", set("rules_hash", nil)), Malformed, "policy.rules_hash is null"},
		"approvals that are null":    {action, set("approvals", nil), Malformed, "approvals is not a list"},
		"an approval that is a name": {action, set("approvals", []any{"bob"}), Malformed, "approvals[0] is not an object"},
		"an approval with more":      {action, approval(set("vote", "yes")), Malformed, "approvals[0].vote is not a key"},
		"an approval without time":   {action, approval(set("time", nil)), Malformed, "approvals[0].time is null"},
		"a group that is a number":   {action, approval(set("groups", []any{big.NewInt(1)})), Malformed, "approvals[0].groups holds"},
		"another subject":            {action, set("subject_uid", "other"), Malformed, "the identity is action/other/0"},
		"another ordinal":            {action, set("ordinal", big.NewInt(2)), Malformed, "the identity is action/action-uid/2"},
		"a decision without reason":  {action, set("decision_reason", nil), Malformed, "decision_reason"},
		"an attempt without effect":  {action, set("effect_uid", nil), Malformed, "effect_uid"},
		"an effect without name":     {action, set("effect_name", nil), Malformed, "effect_name"},
		"an effect without key":      {action, set("effect_key", nil), Malformed, "effect_key"},
		"admitted without a mode":    {action, set("executor_mode", nil), Malformed, "executor_mode"},
		"genesis in the middle":      {action, set("prev_hash", Genesis), Malformed, "genesis"},

		"an executor, and the agent executed it":    {observed, set("executor_mode", "agent"), Malformed, "executor is there, but"},
		"an executor that is a name":                {observed, set("executor", "refunds"), Malformed, "executor is not an object"},
		"an executor without a hash":                {observed, in("executor", remove("hash")), Malformed, "executor.hash is missing"},
		"an executor that has more":                 {observed, in("executor", set("url", "x")), Malformed, "executor.url is not a key"},
		"authority that is a name":                  {action, set("authority", "refunds"), Malformed, "authority is not an object"},
		"authority of another kind":                 {action, in("authority", set("kind", "Role")), Malformed, "authority.kind is not one of"},
		"authority without a name":                  {action, in("authority", set("name", nil)), Malformed, "authority.name is null"},
		"authority without a root":                  {action, in("authority", remove("root")), Malformed, "authority.root is missing"},
		"a break-glass that is a word":              {action, in("authority", set("break_glass", "true")), Malformed, "authority.break_glass is not a boolean"},
		"a break-glass that is null":                {action, in("authority", set("break_glass", nil)), Malformed, "authority.break_glass is not a boolean"},
		"authority that has more":                   {action, in("authority", set("depth", big.NewInt(1))), Malformed, "authority.depth is not a key"},
		"a grant that begins at another":            {action, in("authority", set("kind", "Grant")), Malformed, "authority.root is another grant"},
		"authority alone":                           {action, all(remove("execution"), remove("would_have")), Malformed, "execution is missing"},
		"authority and execution alone":             {action, remove("would_have"), Malformed, "would_have is missing"},
		"execution without authority":               {action, all(remove("authority"), remove("would_have")), Malformed, "execution is not a key"},
		"would_have without authority":              {action, all(remove("authority"), remove("execution")), Malformed, "would_have is not a key"},
		"an execution of what was not observed":     {action, set("execution", "committed"), Malformed, "execution is null, unless"},
		"a would_have of what was not observed":     {action, set("would_have", observed.WouldHave.document()), Malformed, "would_have is null, unless"},
		"observed, and not how it ended":            {observed, set("execution", nil), Malformed, "execution is null, unless"},
		"observed, and not what enforce would do":   {observed, set("would_have", nil), Malformed, "would_have is null, unless"},
		"an execution that was denied":              {observed, set("execution", "denied"), Malformed, "execution is not one of"},
		"an execution that was observed":            {observed, set("execution", "observed"), Malformed, "execution is not one of"},
		"a would_have that is a word":               {observed, set("would_have", "deny"), Malformed, "would_have is not an object"},
		"a would_have without decision":             {observed, in("would_have", set("decision", nil)), Malformed, "would_have.decision is null"},
		"a would_have that decides otherwise":       {observed, in("would_have", set("decision", "hold")), Malformed, "would_have.decision is not one of"},
		"a would_have without reason":               {observed, in("would_have", set("reason", nil)), Malformed, "would_have.reason is null"},
		"a would_have that leaves out blocked":      {observed, in("would_have", remove("blocked_reason")), Malformed, "would_have.blocked_reason is missing"},
		"a would_have with an empty blocked_reason": {observed, in("would_have", set("blocked_reason", "")), Malformed, "would_have.blocked_reason is empty"},
		"a would_have that has more":                {observed, in("would_have", set("result", "denied")), Malformed, "would_have.result is not a key"},
		"a resolution with authority":               {resolution, set("authority", nil), Malformed, "authority is not a key"},
		"a lost record with an execution":           {missing, set("execution", nil), Malformed, "execution is not a key"},
		"an acceptance with a would_have":           {accepted, set("would_have", nil), Malformed, "would_have is not a key"},
		"an event with authority":                   {event, set("authority", nil), Malformed, "authority is not a key"},

		"a resolution to ambiguous":         {resolution, set("result", "ambiguous"), Malformed, "result is not one of"},
		"a resolution of another attempt":   {resolution, set("attempt", big.NewInt(3)), Malformed, "the identity is"},
		"a resolution of another effect":    {resolution, set("effect_uid", "other"), Malformed, "the identity is"},
		"a resolution of no effect":         {resolution, set("effect_key", nil), Malformed, "effect_key is null"},
		"a resolution of nothing":           {resolution, set("resolves", nil), Malformed, "resolves is not an object"},
		"a resolution of an unnamed hash":   {resolution, in("resolves", remove("hash")), Malformed, "resolves.hash"},
		"a resolution of a hash at genesis": {resolution, in("resolves", set("seq", big.NewInt(0))), Malformed, "resolves seq 0"},
		"a resolution by nobody":            {resolution, set("resolver", nil), Malformed, "resolver is null"},
		"a lost record that committed":      {missing, set("result", "committed"), Malformed, "result is not one of"},
		"a lost record without attempt":     {missing, set("attempt", nil), Malformed, "attempt is null"},
		"an acceptance by nobody":           {accepted, set("acceptor", nil), Malformed, "acceptor is null"},
		"an acceptance of another object":   {accepted, set("acceptance_uid", "other"), Malformed, "the identity is"},
		"an acceptance with an effect":      {accepted, set("effect_key", "k"), Malformed, "effect_key is not a key"},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := tc.doc.Entry(Link{41, someHash})
			if err != nil {
				t.Fatal(err)
			}
			d, err := Parse(altered(t, e, tc.change))
			var refused *ParseError
			if !errors.As(err, &refused) {
				t.Fatalf("read as %+v, %v", d, err)
			}
			if refused.Seq != 42 || refused.Reason != tc.reason || !strings.Contains(refused.Detail, tc.says) {
				t.Errorf("error %q, want %s and %q for receipt 42", refused, tc.reason, tc.says)
			}
		})
	}

	e, err := action.Entry(Link{41, someHash})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		entry  Entry
		reason Reason
	}{
		"no document":       {Entry{42, e.Hash, ""}, UnreadableDocument},
		"a list":            {Entry{42, e.Hash, "[]"}, UnreadableDocument},
		"a key twice":       {Entry{42, e.Hash, `{"kind":"action",` + e.Document[1:]}, UnreadableDocument},
		"under another seq": {Entry{43, e.Hash, e.Document}, Malformed},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(tc.entry)
			var refused *ParseError
			if !errors.As(err, &refused) || refused.Reason != tc.reason || refused.Seq != tc.entry.Seq {
				t.Errorf("error %v, want %s of receipt %d", err, tc.reason, tc.entry.Seq)
			}
		})
	}
}

func TestEntryRefusesWhatParseWould(t *testing.T) {
	for name, change := range map[string]func(*Document){
		"a kind that does not exist":  func(d *Document) { d.Kind = "x" },
		"a subject that is another":   func(d *Document) { d.SubjectUID = "x" },
		"no result":                   func(d *Document) { d.Result = "" },
		"observed and nothing more":   func(d *Document) { d.Result = decision.Observed },
		"an execution in enforce":     func(d *Document) { d.Execution = decision.Committed },
		"a would_have in enforce":     func(d *Document) { d.WouldHave = &WouldHave{Decision: decision.Deny, Reason: "decision"} },
		"authority that names nobody": func(d *Document) { d.Authority = &Authority{Kind: AuthorityGrant} },
		"no time":                     func(d *Document) { d.FinishedTime = time.Time{} },
		"a year beyond the format":    func(d *Document) { d.FinishedTime = noon.AddDate(9000, 0, 0) },
		"an argument with a fraction": func(d *Document) { d.Arguments = map[string]any{"amount": 1.5} },
	} {
		t.Run(name, func(t *testing.T) {
			d := actionDocument()
			change(&d)
			if e, err := d.Entry(Start()); err == nil {
				t.Errorf("built %s", e.Document)
			}
		})
	}
}

// Something that ended must not stay without a receipt because of how other people described it.
func TestReducedIsAcceptable(t *testing.T) {
	deep := map[string]any{}
	for range canonical.MaxDepth {
		deep = map[string]any{"in": deep}
	}
	for name, change := range map[string]func(*Document){
		"an argument with a fraction":     func(d *Document) { d.Arguments = map[string]any{"amount": 1.5} },
		"arguments nested too deep":       func(d *Document) { d.Arguments = deep },
		"arguments that are too large":    func(d *Document) { d.Arguments = map[string]any{"x": strings.Repeat("x", MaxDocumentBytes)} },
		"an output that is too long":      func(d *Document) { d.Output = strings.Repeat("x", MaxDocumentBytes) },
		"an output that is no UTF-8":      func(d *Document) { d.Output = "\xff" },
		"an error that is too long":       func(d *Document) { d.Error = strings.Repeat("x", MaxDocumentBytes) },
		"claims with a fraction":          func(d *Document) { d.Principal.Claims = map[string]any{"age": 1.5} },
		"claims that are too large":       func(d *Document) { d.Principal.Claims = map[string]any{"x": strings.Repeat("x", MaxDocumentBytes)} },
		"all of it, and a long message":   func(d *Document) { d.Arguments, d.Output, d.Message = deep, "\xff", strings.Repeat("ä", 3000) },
		"a message a byte off characters": func(d *Document) { d.Arguments, d.Message = deep, "x"+strings.Repeat("ä", 3000) },
	} {
		t.Run(name, func(t *testing.T) {
			d := actionDocument()
			change(&d)
			before := maps.Clone(d.Principal.Claims)
			_, refusal := d.Entry(Link{41, someHash})
			if refusal == nil {
				t.Fatal("it is not refused")
			}
			reduced := d.Reduced(refusal)
			e, err := reduced.Entry(Link{41, someHash})
			if err != nil {
				t.Fatal(err)
			}
			got, err := Parse(e)
			if err != nil {
				t.Fatal(err)
			}
			if got.Arguments != nil || got.Output != "" || got.Error != "" || got.Principal.Claims != nil {
				t.Errorf("it still has what others put into it: %s", e.Document)
			}
			if len(d.Message) < 1000 && (!strings.HasPrefix(got.Message, d.Message) || !strings.Contains(got.Message, refusal.Error())) || len(got.Message) > 4096 {
				t.Errorf("it does not say what is left out, and why: %q", got.Message)
			}
			// All the rest is as it was.
			want := actionDocument()
			want.Arguments, want.Output, want.Error, want.Principal.Claims, want.Message = nil, "", "", nil, got.Message
			want.Seq, want.PrevHash = 42, someHash
			if !reflect.DeepEqual(got, want) {
				t.Errorf("it is\n%+v\nwant\n%+v", got, want)
			}
			if !reflect.DeepEqual(d.Principal.Claims, before) {
				t.Error("the document that was refused has changed")
			}
		})
	}
	t.Run("nobody proposed it", func(t *testing.T) {
		d := statusMissingDocument()
		d.Principal = nil
		reduced := d.Reduced(errors.New("too long"))
		if _, err := reduced.Entry(Link{41, someHash}); err != nil || !strings.Contains(reduced.Message, "too long") {
			t.Errorf("the message is %q, %v", reduced.Message, err)
		}
	})
}

// Whatever Parse accepts, Document holds completely: written again it is the same document.
func FuzzParse(f *testing.F) {
	for _, d := range documents() {
		e, err := d.Entry(Start())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(e.Seq, e.Document)
	}
	f.Fuzz(func(t *testing.T, seq int64, document string) {
		d, err := Parse(Entry{Seq: seq, Document: document})
		if err != nil {
			var refused *ParseError
			if !errors.As(err, &refused) || refused.Seq != seq {
				t.Fatalf("the error of receipt %d is %v", seq, err)
			}
			return
		}
		read, err := canonical.Parse([]byte(document))
		if err != nil {
			t.Fatalf("Parse accepted what canonical refuses: %v", err)
		}
		if !canonical.Equal(read, d.Map()) {
			t.Fatalf("%s\nwas read as\n%v", document, d.Map())
		}
	})
}

// The end of a credential is written where it was said, and nowhere else: what was written before reads as it did.
func TestPrincipalExpires(t *testing.T) {
	for name, expires := range map[string]time.Time{"said": noon, "not said": {}} {
		d := actionDocument()
		d.Principal.Expires = expires
		e, err := d.Entry(Link{Hash: Genesis})
		if err != nil {
			t.Fatal(err)
		}
		if written := strings.Contains(e.Document, "expires_time"); written == expires.IsZero() {
			t.Errorf("%s: written: %t", name, written)
		}
		read, err := Parse(e)
		if err != nil || !read.Principal.Expires.Equal(expires) {
			t.Errorf("%s: reads %v, %v", name, read.Principal.Expires, err)
		}
	}
	for _, bad := range []any{nil, "", "2026-11-30", "2026-11-30T12:00:00Z"} {
		m := actionDocument().Map()
		m["principal"].(map[string]any)["expires_time"] = bad
		e, err := Build(Link{Hash: Genesis}, m)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse(e); err == nil {
			t.Errorf("%v is taken for a time", bad)
		}
	}
}
