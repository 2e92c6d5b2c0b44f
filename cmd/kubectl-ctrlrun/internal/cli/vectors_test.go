package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
)

// vectors reads one file of published cases. Numbers stay what is written: some have more digits than a float64.
func vectors[T any](t *testing.T, name string) []T {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "kernel", "testdata", "vectors", name))
	if err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var cases []T
	if err := decoder.Decode(&cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) == 0 {
		t.Fatalf("%s has no cases", name)
	}
	return cases
}

func TestHashVectors(t *testing.T) {
	type vector struct {
		ID        string          `json:"id"`
		Input     json.RawMessage `json:"input"`
		Raw       *string         `json:"input_raw"`
		Want      string          `json:"want"`
		WantError bool            `json:"want_error"`
	}
	for _, v := range vectors[vector](t, "hash.json") {
		t.Run(v.ID, func(t *testing.T) {
			document := string(v.Input)
			if v.Raw != nil {
				document = *v.Raw
			}
			for _, r := range []result{
				run(t, document, "hash", "-f", "-"),
				run(t, "", "hash", "-f", write(t, "action.json", document)),
			} {
				if v.WantError {
					r.refused(t, exit.Failure)
					continue
				}
				r.answered(t, v.Want+"\n")
			}
		})
	}
}

func TestEvaluateVectors(t *testing.T) {
	type vector struct {
		ID        string          `json:"id"`
		Policy    json.RawMessage `json:"policy"`
		Action    json.RawMessage `json:"action"`
		Want      json.RawMessage `json:"want"`
		WantError bool            `json:"want_error"`
	}
	anything := `{"name":"a","arguments":{},"principal":{"agent":"x"}}`
	for _, v := range vectors[vector](t, "evaluate.json") {
		t.Run(v.ID, func(t *testing.T) {
			policy := write(t, "policy.yaml", string(v.Policy))
			document := anything
			if v.Action != nil {
				document = string(v.Action)
			}
			r := run(t, document, "evaluate", "--policy", policy, "--action", "-", "-o", "json")
			lint := run(t, "", "lint", "-f", policy)
			if v.WantError {
				r.refused(t, exit.Failure)
				if v.Action == nil && lint.code != exit.Failure {
					t.Errorf("lint exits %d for a policy that must not load", lint.code)
				}
				return
			}
			if lint.code != exit.Done {
				t.Errorf("lint refuses a valid policy: %s%s", lint.stdout, lint.stderr)
			}
			if r.code != exit.Done {
				t.Fatalf("exit code %d: %s", r.code, r.stderr)
			}
			var got, want bytes.Buffer
			if err := json.Compact(&got, []byte(r.stdout)); err != nil {
				t.Fatalf("not JSON: %v: %s", err, r.stdout)
			}
			if err := json.Compact(&want, v.Want); err != nil {
				t.Fatal(err)
			}
			if got.String() != want.String() {
				t.Errorf("got  %s\nwant %s", &got, &want)
			}
		})
	}
}

func TestTokenVectors(t *testing.T) {
	type vector struct {
		ID        string `json:"id"`
		Effect    string `json:"effect"`
		Attempt   any    `json:"attempt"`
		Want      string `json:"want"`
		WantError bool   `json:"want_error"`
	}
	for _, v := range vectors[vector](t, "token.json") {
		t.Run(v.ID, func(t *testing.T) {
			r := run(t, "", "token", "--effect", v.Effect, "--attempt", fmt.Sprint(v.Attempt))
			if v.WantError {
				r.refused(t, exit.Failure)
				return
			}
			r.answered(t, v.Want+"\n")
		})
	}
}

func TestPatternVectors(t *testing.T) {
	type vector struct {
		ID        string `json:"id"`
		Op        string `json:"op"`
		Kind      string `json:"kind"`
		Pattern   string `json:"pattern"`
		Value     string `json:"value"`
		Parent    string `json:"parent"`
		Child     string `json:"child"`
		Want      bool   `json:"want"`
		WantError bool   `json:"want_error"`
	}
	for _, v := range vectors[vector](t, "pattern.json") {
		t.Run(v.ID, func(t *testing.T) {
			first, second := v.Pattern, v.Value
			if v.Op == "contains" {
				first, second = v.Parent, v.Child
			}
			r := run(t, "", "pattern", v.Op, "--kind", v.Kind, "--", first, second)
			if v.WantError {
				if r.code == exit.Done {
					t.Error("exit code 0 for a pattern that must be refused")
				}
				r.refused(t, r.code)
				return
			}
			r.answered(t, fmt.Sprintln(v.Want))
		})
	}
}
