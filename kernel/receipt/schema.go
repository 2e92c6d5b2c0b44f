package receipt

import (
	"bytes"
	"math"

	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/decision"
)

// SchemaID identifies the JSON Schema of [Schema]. Nothing is served there.
const SchemaID = "https://" + Schema

// JSONSchema is the JSON Schema, draft 2020-12, of the documents of this version: indented, with a line end. It is for
// those who read receipts with other programs. Whatever Parse takes is valid, and what Parse refuses is not, except for
// what a JSON Schema cannot say:
//
//   - how the JSON is written: canonical numbers, no key twice, at most canonical.MaxDepth levels, MaxDocumentBytes;
//   - that two keys have the same value: subject_uid and ordinal are those of what the receipt is about, seq is the one the
//     receipt is stored under, and root is the name of an authority that is a Grant;
//   - that refused_count is at least the number of statements in refused;
//   - that a day exists, unless the validator asserts formats, and that a time is not 0001-01-01T00:00:00.000Z.
//
// The schema grows by keys that need not be there, by kinds, and by words of an enumeration. A key never goes, never
// changes its type and never becomes required.
func JSONSchema() []byte {
	var b bytes.Buffer
	writeIndented(&b, documentSchema(), "\n")
	b.WriteByte('\n')
	return b.Bytes()
}

// object is a JSON object that keeps its order, because people read schemas from the top.
type object []member

type member struct {
	name  string
	value any // object, []any, string, int64, bool or nil
}

// key is one member of a document.
type key struct {
	name  string
	value object
	text  string
	// later marks a key that receipts of before it existed do not have. All others are required.
	later bool
}

func documentSchema() object {
	kinds := []struct {
		name, text string
		keys       []key
		rules      []any
	}{
		{KindAction, "An action finished, admitted or not.", actionKeys(), actionRules()},
		{KindResolution, "A person, or a program that looked, said what really happened to an ambiguous effect.", resolutionKeys(), nil},
		{KindStatusMissing, "The record of an effect was lost, so that the effect counts as ambiguous.", statusMissingKeys(), nil},
		{KindLedgerAccepted, "A person accepted a head that the operator could not vouch for; a new epoch begins.", ledgerAcceptedKeys(), nil},
		{KindEvent, "Something happened without an action that decisions rest on.", eventKeys(), nil},
	}
	var oneOf, names []any
	defs := definitions()
	for _, k := range kinds {
		keys := append(commonKeys(k.name), k.keys...)
		kind := object{{"description", k.text}}
		kind = append(kind, closed(keys, "object")...)
		kind = append(kind, member{"allOf", append([]any{genesisRule("seq", "prev_hash", 1)}, k.rules...)})
		defs = append(defs, member{k.name, kind})
		oneOf = append(oneOf, ref(k.name))
		names = append(names, k.name)
	}
	return object{
		{"$schema", "https://json-schema.org/draft/2020-12/schema"},
		{"$id", SchemaID},
		{"title", Schema},
		{"description", "One receipt: the document that is hashed. The key kind says which of the forms it has. Each form is closed, and nulls are written out. " +
			"A key whose description begins with Later is not in receipts that were written before it existed."},
		{"type", "object"},
		{"required", []any{"schema", "kind"}},
		{"properties", object{
			{"schema", object{{"const", Schema}}},
			{"kind", object{{"enum", names}}},
		}},
		{"oneOf", oneOf},
		{"$defs", defs},
	}
}

// commonKeys are those of every kind.
func commonKeys(kind string) []key {
	return []key{
		{name: "schema", value: object{{"const", Schema}}, text: "The schema of this document."},
		{name: "kind", value: object{{"const", kind}}, text: "What kind of thing happened."},
		{name: "subject_uid", value: text(), text: "Uid of what the receipt is about. With kind and ordinal it is unique in the chain."},
		{name: "ordinal", value: ordinal(kind), text: "Tells several receipts of one kind about one subject apart."},
		{name: "seq", value: integerFrom(1), text: "The place in the chain, from 1."},
		{name: "prev_hash", value: hash(), text: "Hash of the receipt before: of its exact document. Of the first one sha256: and 64 zeros."},
		{name: "epoch", value: integerFrom(0), text: "How many heads were accepted by people before this receipt."},
		{name: "cluster_id", value: text(), text: "Uid of the cluster's namespace kube-system."},
		{name: "namespace", value: text(), text: "The namespace, which is the chain's name."},
		{name: "namespace_uid", value: text(), text: "Tells the namespace from a later one of the same name."},
		{name: "finished_time", value: instant(), text: "When the operator drew the conclusion."},
	}
}

// ordinal has one value where a thing happens once, and is the attempt of a resolution.
func ordinal(kind string) object {
	switch kind {
	case KindAction, KindLedgerAccepted:
		return object{{"const", int64(0)}}
	case KindResolution:
		return integerFrom(1)
	}
	return integerFrom(0)
}

// effectKeys say which attempt of which effect, and whose action it was. of is how a key of the action may be written, about
// how one of the effect may, principal and attempt how these may.
func effectKeys(of, about, principal, attempt object) []key {
	return []key{
		{name: "action_name", value: of, text: "Name of the action that made the attempt."},
		{name: "action_uid", value: of, text: "Its uid."},
		{name: "action_type", value: of, text: "What the agent wanted to do, as a policy names it, for example stripe.refund."},
		{name: "principal", value: principal, text: "Who asked for it."},
		{name: "effect_key", value: about, text: "What the effect is known by, for example refund:txn_1."},
		{name: "effect_name", value: about, text: "Name of the effect's record."},
		{name: "effect_uid", value: about, text: "Uid of the effect's record; null: nothing was reserved."},
		{name: "attempt", value: attempt, text: "Which attempt of the effect, from 1; null: nothing was reserved."},
		{name: "token", value: nullable(text()), text: "The idempotency token of the attempt."},
	}
}

func actionKeys() []key {
	keys := effectKeys(text(), nullable(text()), narrowed("principal", "object"), nullable(integerFrom(1)))
	return append(keys, []key{
		{name: "action_hash", value: nullable(hash()), text: "Hash of the action; null: it ended before there was one."},
		{name: "resource", value: nullable(text()), text: "What is acted on, for example payment:txn_1."},
		{name: "arguments", value: ref("objectOrNull"), text: "The canonical arguments; null: they have no canonical form, or are too large."},
		{name: "environment", value: text(), text: "The environment, for example production."},
		{name: "decision", value: nullable(words(decision.Allow, decision.Approve, decision.Deny)), text: "What the policy said; null: it ended undecided."},
		{name: "decision_reason", value: nullable(text()), text: "Why the policy said so, for example rule[1]."},
		{name: "policy", value: ref("policyOrNull"), text: "The policy that decided; null: none did."},
		{name: "approvals_required", value: integerFrom(0), text: "How many people had to approve."},
		{name: "approvals", value: object{{"type", "array"}, {"items", ref("approval")}}, text: "The approvals that counted."},
		{name: "executor_mode", value: nullable(words(ModeAgent, ModeOperator)), text: "Who executed it; null: it was never admitted."},
		{name: "claim_id", value: nullable(text()), text: "The claim that was admitted."},
		{name: "reporter", value: nullable(text()), text: "Who stated the outcome."},
		{name: "result", value: words(decision.Committed, decision.Failed, decision.Ambiguous, decision.Denied, decision.Blocked, decision.Observed), text: "How it ended."},
		{name: "reason", value: nullable(text()), text: "Why it ended so, in one word."},
		{name: "message", value: nullable(text()), text: "What happened, why, and what to do, for people."},
		{name: "error", value: nullable(text()), text: "The error, as reported."},
		{name: "output", value: nullable(text()), text: "The output, as reported: JSON as text."},
		{name: "proposed_time", value: instant(), text: "When it was proposed, by the apiserver's clock."},
		{name: "admitted_time", value: nullable(instant()), text: "When it was admitted; null: never."},
		{name: "late_outcome_name", value: nullable(text()), text: "A report that came after the lease had lapsed, and settled nothing."},
		{name: "rules_hash", value: nullable(hash()), text: "Later. Hash of everything that decided in the namespace.", later: true},
		{name: "refused", value: object{{"type", "array"}, {"maxItems", int64(MaxRefused)}, {"items", ref("refusal")}},
			text: "Later. Statements about it that did not count, the first of them.", later: true},
		{name: "refused_count", value: integerFrom(0), text: "Later. How many statements did not count.", later: true},
		{name: "authority", value: ref("authorityOrNull"), text: "Later. What let the principal propose it; null: nothing had to, or nothing did.", later: true},
		{name: "execution", value: nullable(words(decision.Committed, decision.Failed, decision.Ambiguous)),
			text: "Later. How an observed action ended; null: it was not observed.", later: true},
		{name: "would_have", value: ref("wouldHaveOrNull"), text: "Later. What enforce mode would have done with an observed action; null: it was not observed.", later: true},
		{name: "rounds", value: integerFrom(0), text: "Later. How often its executor asked back, so that somebody went on with an answer which nobody approved.", later: true},
		{name: "executor", value: ref("executorOrNull"), text: "Later. What executed it for the operator; null: its agent did, or nobody.", later: true},
		{name: "preconditions", value: object{{"type", "array"}, {"items", ref("precondition")}},
			text: "Later. What had to stay as it was.", later: true},
		{name: "precondition_at_request", value: nullable(hash()), text: "Later. Fingerprint of that when the action began to wait; null: it did not wait, or nobody could say.", later: true},
		{name: "precondition_at_recheck", value: nullable(hash()),
			text: "Later. Fingerprint of that right before the effect was reserved; null: it did not get there, or nobody could say.", later: true},
	}...)
}

// actionRules say which keys of an action are null together.
func actionRules() []any {
	return []any{
		nullTogether("decision", "decision_reason"),
		nullTogether("effect_uid", "attempt"),
		nullTogether("executor_mode", "admitted_time"),
		needs("effect_uid", "effect_name"),
		needs("effect_name", "effect_key"),
		object{{"dependentRequired", object{
			{"refused", []any{"refused_count"}},
			{"refused_count", []any{"refused"}},
		}}},
		object{{"dependentRequired", object{
			{"authority", []any{"execution", "would_have"}},
			{"execution", []any{"authority", "would_have"}},
			{"would_have", []any{"authority", "execution"}},
		}}},
		object{{"dependentRequired", object{
			{"preconditions", []any{"precondition_at_request", "precondition_at_recheck"}},
			{"precondition_at_request", []any{"preconditions", "precondition_at_recheck"}},
			{"precondition_at_recheck", []any{"preconditions", "precondition_at_request"}},
		}}},
		nullUnless("execution", "result", decision.Observed),
		nullUnless("would_have", "result", decision.Observed),
	}
}

func resolutionKeys() []key {
	keys := effectKeys(nullable(text()), text(), ref("principal"), integerFrom(1))
	return append(keys, []key{
		{name: "result", value: words(decision.Committed, decision.Failed), text: "What the person said: it happened, or nothing did."},
		{name: "reason", value: nullable(text()), text: "The reason the person gave."},
		{name: "evidence", value: nullable(text()), text: "What the person named as evidence."},
		{name: "resolver", value: text(), text: "Who said it."},
		{name: "resolution_name", value: text(), text: "Name of the Resolution."},
		{name: "resolution_uid", value: text(), text: "Its uid."},
		{name: "resolves", value: ref("link"), text: "The receipt that said ambiguous."},
		{name: "resolvers", value: object{{"type", "array"}, {"maxItems", int64(MaxResolvers)}, {"items", ref("resolver")}},
			text: "Later. All people who had to say the same, in the order in which they did, the last of them resolver; none: one was enough.", later: true},
		{name: "observer", value: nullable(text()), text: "Later. What looked, where a program and not a person is the source; null: a person said it.", later: true},
	}...)
}

func statusMissingKeys() []key {
	keys := effectKeys(nullable(text()), text(), ref("principal"), integerFrom(1))
	return append(keys, []key{
		{name: "result", value: words(decision.Ambiguous), text: "How the attempt counts from now on."},
		{name: "reason", value: nullable(text()), text: "Why it counts so, in one word."},
		{name: "message", value: nullable(text()), text: "What happened, why, and what to do, for people."},
	}...)
}

func ledgerAcceptedKeys() []key {
	return []key{
		{name: "reason", value: nullable(text()), text: "The reason the person gave."},
		{name: "acceptor", value: text(), text: "Who accepted the head."},
		{name: "acceptance_name", value: text(), text: "Name of the LedgerAcceptance."},
		{name: "acceptance_uid", value: text(), text: "Its uid."},
		{name: "accepted", value: ref("link"), text: "The head from which the chain goes on."},
	}
}

func eventKeys() []key {
	return []key{
		{name: "event", value: text(), text: "What happened, in one word, for example POLICY_IN_FORCE. Take a word you do not know as one that was added."},
		{name: "data", value: object{{"type", "object"}, {"maxProperties", int64(maxData)}, {"additionalProperties", object{{"type", "string"}}}},
			text: "What happened to what."},
	}
}

// definitions are the objects inside documents.
func definitions() object {
	principal := closed([]key{
		{name: "agent", value: nullable(text()), text: "The agent's user name; null: it was proposed while nobody was there to say who did."},
		{name: "user", value: nullable(text()), text: "On whose behalf."},
		{name: "claims", value: ref("objectOrNull"), text: "What the apiserver vouched for beside the name, such as the pod."},
		{name: "expires_time", value: instant(), text: "Later. The last moment of the agent's credential, as it said; not there: it did not say.", later: true},
	}, "object", "null")
	policy := closed([]key{
		{name: "name", value: text(), text: "Name of the ActionPolicy."},
		{name: "version", value: nullable(text()), text: "The version its author wrote into it."},
		{name: "generation", value: integerFrom(0), text: "Its generation."},
		{name: "rules_hash", value: hash(), text: "Hash of its parsed actions."},
	}, "object", "null")
	approval := closed([]key{
		{name: "approver", value: text(), text: "Who approved."},
		{name: "groups", value: object{{"type", "array"}, {"items", object{{"type", "string"}}}}, text: "The groups of the approver at that time."},
		{name: "name", value: text(), text: "Name of the Approval."},
		{name: "uid", value: text(), text: "Its uid."},
		{name: "time", value: instant(), text: "When it was made."},
		{name: "reason", value: nullable(text()), text: "The reason the approver gave."},
		{name: "rules_hash", value: nullable(hash()), text: "Later. Hash of everything that decided in the namespace when the approval was accepted.", later: true},
	}, "object")
	authority := closed([]key{
		{name: "kind", value: words(AuthorityGrant, AuthorityDelegation), text: "Whether it is a grant or a delegation."},
		{name: "name", value: text(), text: "Its name."},
		{name: "break_glass", value: object{{"type", "boolean"}}, text: "Whether it is for emergencies."},
		{name: "root", value: text(), text: "Name of the Grant its chain begins at; of a grant its own."},
	}, "object", "null")
	executor := closed([]key{
		{name: "name", value: text(), text: "Name of the Executor."},
		{name: "hash", value: hash(), text: "Hash of its spec, as it was approved."},
	}, "object", "null")
	wouldHave := closed([]key{
		{name: "decision", value: words(decision.Allow, decision.Approve, decision.Deny), text: "What authority and policy said, the stricter of the two."},
		{name: "reason", value: text(), text: "Why it said so, for example rule[1]."},
		{name: "blocked_reason", value: nullable(text()), text: "Why it would not have run at once, for example approval_required; null: it would have."},
	}, "object", "null")
	refusal := closed([]key{
		{name: "kind", value: text(), text: "What was stated: approval, claim or outcome."},
		{name: "name", value: text(), text: "Name of the statement."},
		{name: "uid", value: text(), text: "Its uid."},
		{name: "speaker", value: nullable(text()), text: "Who made it."},
		{name: "reason", value: text(), text: "Why it did not count, for example self_approval."},
		{name: "time", value: instant(), text: "When it was made."},
	}, "object")
	precondition := closed([]key{
		{name: "api_version", value: text(), text: "API version of the object, for example apps/v1."},
		{name: "kind", value: text(), text: "Its kind."},
		{name: "name", value: text(), text: "Its name."},
		{name: "pointer", value: text(), text: "JSON pointer to the part, for example /spec/replicas."},
	}, "object")
	resolver := closed([]key{
		{name: "resolver", value: text(), text: "Who said it."},
		{name: "name", value: text(), text: "Name of the Resolution."},
		{name: "uid", value: text(), text: "Its uid."},
		{name: "reason", value: nullable(text()), text: "The reason the person gave."},
		{name: "evidence", value: nullable(text()), text: "What the person named as evidence."},
		{name: "resolves", value: ref("link"), text: "The receipt that said ambiguous."},
	}, "object")
	link := closed([]key{
		{name: "seq", value: integerFrom(0), text: "The place in the chain; 0 is before the first receipt."},
		{name: "hash", value: hash(), text: "The hash of the receipt there."},
	}, "object")
	link = append(link, genesisRule("seq", "hash", 0)...)
	return object{
		{"value", object{
			{"description", "A canonical value: numbers are integers, of any size."},
			{"type", []any{"null", "boolean", "integer", "string", "array", "object"}},
			{"items", ref("value")},
			{"additionalProperties", ref("value")},
		}},
		{"objectOrNull", object{
			{"type", []any{"object", "null"}},
			{"additionalProperties", ref("value")},
		}},
		{"principal", principal},
		{"policyOrNull", policy},
		{"authorityOrNull", authority},
		{"executorOrNull", executor},
		{"wouldHaveOrNull", wouldHave},
		{"approval", approval},
		{"refusal", refusal},
		{"precondition", precondition},
		{"resolver", resolver},
		{"link", link},
	}
}

// closed is an object, or whatever else types say, with exactly these keys.
func closed(keys []key, types ...string) object {
	var properties object
	var required []any
	for _, k := range keys {
		properties = append(properties, member{k.name, append(object{{"description", k.text}}, k.value...)})
		if !k.later {
			required = append(required, k.name)
		}
	}
	return object{
		{"type", oneOrMore(types)},
		{"properties", properties},
		{"required", required},
		{"additionalProperties", false},
	}
}

func text() object { return object{{"type", "string"}, {"minLength", int64(1)}} }

func hash() object { return object{{"type", "string"}, {"pattern", "^sha256:[0-9a-f]{64}$"}} }

func instant() object {
	return object{
		{"type", "string"},
		{"format", "date-time"},
		{"pattern", `^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]\.[0-9]{3}Z$`},
	}
}

func integerFrom(lowest int64) object {
	return object{{"type", "integer"}, {"minimum", lowest}, {"maximum", int64(math.MaxInt64)}}
}

func words[T ~string](all ...T) object {
	list := make([]any, len(all))
	for i, w := range all {
		list[i] = string(w)
	}
	return object{{"type", "string"}, {"enum", list}}
}

// nullable takes null too.
func nullable(value object) object {
	out := make(object, len(value))
	for i, m := range value {
		switch list, _ := m.value.([]any); {
		case m.name == "type":
			m.value = []any{m.value, "null"}
		case m.name == "enum":
			m.value = append(append([]any(nil), list...), nil)
		}
		out[i] = m
	}
	return out
}

func ref(definition string) object { return object{{"$ref", "#/$defs/" + definition}} }

// narrowed is a definition of which only one type may stand here.
func narrowed(definition, only string) object {
	return append(ref(definition), member{"type", only})
}

// nullTogether says that both keys are null, or neither is.
func nullTogether(a, b string) object {
	return object{
		{"if", where(a, isNull())},
		{"then", where(b, isNull())},
		{"else", where(b, object{{"not", isNull()}})},
	}
}

// needs says that b is not null unless a is.
func needs(a, b string) object {
	return object{
		{"if", where(a, object{{"not", isNull()}})},
		{"then", where(b, object{{"not", isNull()}})},
	}
}

// nullUnless says of a later key that it is null, unless another one is a word: then it is not.
func nullUnless(later, other string, word decision.Result) object {
	is := where(other, object{{"const", string(word)}})
	return object{
		{"if", object{{"required", []any{later}}}},
		{"then", object{
			{"if", is},
			{"then", where(later, object{{"not", isNull()}})},
			{"else", where(later, isNull())},
		}},
	}
}

// genesisRule says that the genesis hash stands with this seq, and only there.
func genesisRule(seq, hash string, first int64) object {
	genesis := object{{"const", Genesis}}
	return object{
		{"if", where(seq, object{{"const", first}})},
		{"then", where(hash, genesis)},
		{"else", where(hash, object{{"not", genesis}})},
	}
}

func where(key string, value object) object {
	return object{{"properties", object{{key, value}}}}
}

func isNull() object { return object{{"type", "null"}} }

func oneOrMore(types []string) any {
	if len(types) == 1 {
		return types[0]
	}
	list := make([]any, len(types))
	for i, t := range types {
		list[i] = t
	}
	return list
}

// writeIndented writes JSON with two spaces a level. newline is the line end with the indentation so far.
func writeIndented(b *bytes.Buffer, value any, newline string) {
	deeper := newline + "  "
	switch v := value.(type) {
	case object:
		b.WriteByte('{')
		for i, m := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(deeper)
			writeIndented(b, m.name, deeper)
			b.WriteString(": ")
			writeIndented(b, m.value, deeper)
		}
		b.WriteString(newline + "}")
	case []any:
		b.WriteByte('[')
		for i, item := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(deeper)
			writeIndented(b, item, deeper)
		}
		b.WriteString(newline + "]")
	default:
		// Words, numbers and booleans of this file: they have a canonical form.
		scalar, _ := canonical.Encode(v)
		b.Write(scalar)
	}
}
