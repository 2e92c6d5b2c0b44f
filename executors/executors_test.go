package executors_test

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"ctrlrun.dev/operator/executors"
	"ctrlrun.dev/operator/kernel/flow"
)

// An observer is told what names the attempt, and nothing of who asks.
func TestQuestion(t *testing.T) {
	look := executors.Look{Namespace: "payments", ActionName: "refund-2", ActionUID: "uid", EffectKey: "refund:\"ü\"\n", Attempt: 2, Token: "the-token"}
	got, err := look.Question()
	if want := `{"attempt":2,"effect_key":"refund:\"ü\"\n","token":"the-token"}`; err != nil || string(got) != want {
		t.Errorf("it is asked %s (%v), want %s", got, err, want)
	}
	look.EffectKey = "refund:\xff"
	if got, err := look.Question(); err == nil {
		t.Errorf("another key than the effect's is asked for: %s", got)
	}
}

func TestSaid(t *testing.T) {
	for text, want := range map[string]flow.Answer{
		`{"answer":"committed"}`:                      flow.AnswerCommitted,
		" {\n\t\"answer\" : \"not_executed\" }\r\n":   flow.AnswerNotExecuted,
		`{"\u0061nswer":"commi\u0074ted"}`:            flow.AnswerCommitted,
		`{"answer":"unknown"}`:                        flow.AnswerUnknown,
		``:                                            flow.AnswerUnknown,
		`committed`:                                   flow.AnswerUnknown,
		`"committed"`:                                 flow.AnswerUnknown,
		`["committed"]`:                               flow.AnswerUnknown,
		`{}`:                                          flow.AnswerUnknown,
		`{"answer":null}`:                             flow.AnswerUnknown,
		`{"answer":["committed"]}`:                    flow.AnswerUnknown,
		`{"answer":{"answer":"committed"}}`:           flow.AnswerUnknown,
		`{"answer":"Committed"}`:                      flow.AnswerUnknown,
		`{"answer":"committed "}`:                     flow.AnswerUnknown,
		`{"Answer":"committed"}`:                      flow.AnswerUnknown,
		`{"answer":"failed"}`:                         flow.AnswerUnknown,
		`{"answer":"committed","sure":false}`:         flow.AnswerUnknown,
		`{"answer":"committed","answer":"committed"}`: flow.AnswerUnknown,
		`{"answer":"committed","answer":"not_executed"}`: flow.AnswerUnknown,
		`{"answer":"committed"}{"answer":"committed"}`:   flow.AnswerUnknown,
		`{"answer":"committed"},`:                        flow.AnswerUnknown,
		`{"answer":"committed"`:                          flow.AnswerUnknown,
		"\ufeff{\"answer\":\"committed\"}":               flow.AnswerUnknown,
		"{\"answer\":\"committed\"}\x00":                 flow.AnswerUnknown,
	} {
		got, why := executors.Said([]byte(text))
		if got != want || (why == "") != (want != flow.AnswerUnknown) {
			t.Errorf("%q says %s (%q), want %s", text, got, why, want)
		}
	}
	_, silent := executors.Said([]byte(`{"answer":"unknown"}`))
	if _, garbled := executors.Said([]byte(`{"answer":"failed"}`)); silent == garbled {
		t.Errorf("that it does not know is told like garbage: %s", garbled)
	}
}

// Whatever the text, it settles something only if it is the one member with the one word, by another reader too; and of no other text
// anything is repeated.
func FuzzSaid(f *testing.F) {
	for _, seed := range []string{
		`{"answer":"committed"}`, `{"answer":"not_executed"}`, `{"answer":"unknown"}`, "", "{}", `"committed"`, `{"answer":"committed","answer":"committed"}`,
		` { "answer" : "committed" } `, `{"\u0061nswer":"committed"}`, `{"answer":"committed"} {}`, `{"answer":"confidential"}`, "{\"answer\":\"committed\xff\"}",
	} {
		f.Add([]byte(seed))
	}
	words := map[string]flow.Answer{"committed": flow.AnswerCommitted, "not_executed": flow.AnswerNotExecuted}
	f.Fuzz(func(t *testing.T, text []byte) {
		want := flow.AnswerUnknown
		var tokens []json.Token
		d := json.NewDecoder(bytes.NewReader(text))
		token, err := d.Token()
		for ; err == nil && len(tokens) < 5; token, err = d.Token() {
			tokens = append(tokens, token)
		}
		if err == io.EOF && len(tokens) == 4 && tokens[0] == json.Delim('{') && tokens[1] == "answer" && tokens[3] == json.Delim('}') {
			if word, ok := tokens[2].(string); ok && words[word] != "" {
				want = words[word]
			}
		}
		got, why := executors.Said(text)
		if got != want {
			t.Errorf("%q says %s, want %s", text, got, want)
		}
		if (why == "") != (got != flow.AnswerUnknown) {
			t.Errorf("%q says %s because %q", text, got, why)
		}
		if strings.Contains(why, "confidential") {
			t.Errorf("the text is repeated: %s", why)
		}
	})
}
