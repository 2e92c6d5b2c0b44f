package action_test

import (
	"encoding/json"
	"os"
	"testing"

	"ctrlrun.dev/operator/kernel/action"
)

func TestHashVectors(t *testing.T) {
	data, err := os.ReadFile("../testdata/vectors/hash.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		ID        string          `json:"id"`
		Input     json.RawMessage `json:"input"`
		Raw       string          `json:"input_raw"`
		Want      string          `json:"want"`
		WantError bool            `json:"want_error"`
	}
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) == 0 {
		t.Fatal("the vector file has no cases")
	}
	for _, tc := range cases {
		t.Run(tc.ID, func(t *testing.T) {
			text := []byte(tc.Raw)
			if tc.Input != nil {
				text = tc.Input
			}
			p, err := action.ParseDocument(text)
			if tc.WantError {
				if err == nil {
					t.Fatalf("accepted, want a refusal")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got, err := p.Hash(); err != nil || got != tc.Want {
				t.Errorf("hash = %s, %v, want %s", got, err, tc.Want)
			}
		})
	}
}
