// Package executors executes admitted actions for the operator: by an HTTP request, a Job or a write to the Kubernetes API.
//
// Each way has a package of its own. Whether nothing was executed is never concluded from the kind of an error: it is Failed only if
// that is proved, and Ambiguous whenever it is not.
package executors

import (
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/kernel/flow"
)

// Call is one execution, as it was admitted.
type Call struct {
	Namespace  string
	ActionName string
	ActionUID  string
	ActionType string
	// Arguments as canonical JSON: what was hashed, shown and approved.
	Arguments []byte
	EffectKey string
	Attempt   int64
	// Token is the attempt's idempotency token.
	Token string
	// Going: with what it goes on after it was asked back; nil: it begins.
	Going *flow.Going
}

// Result is what is known of an execution.
type Result struct {
	// State is Committed, Failed (for certain nothing was executed) or Ambiguous.
	State effect.State
	// Continuation, with State Ambiguous: the other side asks back, and Output is what. Where nobody goes on, nobody knows.
	Continuation string
	// Output is a JSON value of at most MaxOutput bytes, or nil.
	Output []byte
	// Stated: it is Failed because the other side stated so, not because this side concluded it.
	Stated bool
	// Error in a sentence. No argument and no secret is in it, for it is stored and shown.
	Error string
}

// MaxOutput is the most of an output that is kept, in bytes.
const MaxOutput = 16 << 10

// Committed says that it happened.
func Committed(output []byte) Result { return Result{State: effect.Committed, Output: output} }

// NotExecuted says that for certain nothing was executed.
func NotExecuted(why string) Result { return Result{State: effect.Failed, Error: why} }

// Unknown says that neither is certain.
func Unknown(why string) Result { return Result{State: effect.Ambiguous, Error: why} }

// AskedBack says that the other side asks back.
func AskedBack(continuation string, question []byte, why string) Result {
	return Result{State: effect.Ambiguous, Continuation: continuation, Output: question, Error: why}
}

// Output is a text of others as an output that can be kept, in canonical form: strict JSON, every number an int64, not too long. For
// any other text it is nil: what happened is on record without it.
func Output(text []byte) []byte {
	if len(text) > MaxOutput {
		return nil
	}
	value, err := canonical.Parse(text)
	if err != nil {
		return nil
	}
	if _, ok := action.CheckStored(value); !ok {
		return nil
	}
	encoded, err := canonical.Encode(value)
	if err != nil || len(encoded) > MaxOutput {
		return nil
	}
	return encoded
}

// Look is one question what became of an attempt, and whose it is.
type Look struct {
	Namespace  string
	ActionName string // of the Action that asks
	ActionUID  string
	// What is asked.
	EffectKey string
	Attempt   int64
	Token     string
}

// Question is all that an observer is told, in canonical JSON.
func (l Look) Question() ([]byte, error) {
	return canonical.Encode(map[string]any{"attempt": l.Attempt, "effect_key": l.EffectKey, "token": l.Token})
}

// Said reads the answer of an observer: an object of the one member answer. Whatever it does not know is unknown, and so is every other
// text; why says which, and holds nothing of it.
func Said(text []byte) (answer flow.Answer, why string) {
	value, err := canonical.Parse(text)
	members, ok := value.(map[string]any)
	if err == nil && ok && len(members) == 1 {
		switch members["answer"] {
		case "committed":
			return flow.AnswerCommitted, ""
		case "not_executed":
			return flow.AnswerNotExecuted, ""
		case "unknown":
			return flow.AnswerUnknown, "it does not know"
		}
	}
	return flow.AnswerUnknown, `it was answered with something else than {"answer": "committed"}, not_executed or unknown`
}
