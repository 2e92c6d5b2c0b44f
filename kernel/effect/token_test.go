package effect_test

import (
	"encoding/json"
	"math/big"
	"os"
	"regexp"
	"strings"
	"testing"

	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/effect"
)

func TestTokenVectors(t *testing.T) {
	data, err := os.ReadFile("../testdata/vectors/token.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		ID        string          `json:"id"`
		Effect    string          `json:"effect"`
		Attempt   json.RawMessage `json:"attempt"`
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
			attempt, err := effect.ParseAttempt(strings.Trim(string(tc.Attempt), `"`))
			got := ""
			if err == nil {
				got, err = effect.Token(tc.Effect, attempt)
			}
			if (err != nil) != tc.WantError || got != tc.Want {
				t.Errorf("token = %q, %v, want %q, error %v", got, err, tc.Want, tc.WantError)
			}
		})
	}
}

func TestTokenRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		key     string
		attempt *big.Int
	}{
		"no key":                  {"", big.NewInt(1)},
		"no attempt":              {"k", nil},
		"attempt zero":            {"k", big.NewInt(0)},
		"a negative attempt":      {"k", big.NewInt(-1)},
		"a key that is not UTF-8": {"\xff", big.NewInt(1)},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := effect.Token(tc.key, tc.attempt); err == nil || got != "" {
				t.Errorf("Token = %q, %v, want a refusal", got, err)
			}
		})
	}
}

func TestParseAttempt(t *testing.T) {
	for text, ok := range map[string]bool{
		"1": true, "10": true, "340282366920938463463374607431768211457": true, strings.Repeat("9", canonical.MaxDigits): true,
		"": false, "0": false, "01": false, "+1": false, "-1": false, " 1": false, "1 ": false, "1.0": false, "1e1": false,
		"0x1": false, "1_0": false, "true": false, "\u0661": false, strings.Repeat("9", canonical.MaxDigits+1): false,
	} {
		n, err := effect.ParseAttempt(text)
		if (err == nil) != ok {
			t.Errorf("ParseAttempt(%.20q) = %v, want ok %v", text, err, ok)
		}
		if ok && n.String() != text {
			t.Errorf("ParseAttempt(%.20q) = %.20s", text, n)
		}
	}
}

func FuzzToken(f *testing.F) {
	f.Add("refund:txn_1", uint64(1), uint64(2))
	f.Add("\xff", uint64(0), uint64(1))
	shape := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	f.Fuzz(func(t *testing.T, key string, a, b uint64) {
		first, err := effect.Token(key, new(big.Int).SetUint64(a))
		if err != nil {
			return
		}
		if !shape.MatchString(first) {
			t.Fatalf("%q is not a version 8 UUID", first)
		}
		if second, err := effect.Token(key, new(big.Int).SetUint64(b)); err == nil && (first == second) != (a == b) {
			t.Fatalf("attempts %d and %d have tokens %s and %s", a, b, first, second)
		}
	})
}
