package cli

import (
	"math/big"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ctrlrun.dev/operator/client"
)

func TestArguments(t *testing.T) {
	equalInts := cmp.Comparer(func(a, b *big.Int) bool { return a.Cmp(b) == 0 })
	for name, test := range map[string]struct {
		words []string
		want  map[string]any
	}{
		"none":                       {nil, map[string]any{}},
		"a string":                   {[]string{"id=txn_1"}, map[string]any{"id": "txn_1"}},
		"a digit is still a string":  {[]string{"id=5"}, map[string]any{"id": "5"}},
		"an empty string":            {[]string{"id="}, map[string]any{"id": ""}},
		"more equal signs":           {[]string{"q=a=b:=c"}, map[string]any{"q": "a=b:=c"}},
		"JSON":                       {[]string{"n:=5", "b:=true", "z:=null"}, map[string]any{"n": big.NewInt(5), "b": true, "z": nil}},
		"JSON with equal signs":      {[]string{`s:="a=b"`}, map[string]any{"s": "a=b"}},
		"a list":                     {[]string{`l:=["a",1]`}, map[string]any{"l": []any{"a", big.NewInt(1)}}},
		"a name with a colon inside": {[]string{"a:b=c"}, map[string]any{"a:b": "c"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := (&app{}).arguments("", test.words)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got, equalInts); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Arguments reach the apiserver in the form that is hashed, whatever way they were written.
func TestArgumentsBecomeCanonical(t *testing.T) {
	arguments, err := (&app{}).arguments("", []string{"b:=1", `a:={"z":"<é>","y":[]}`})
	if err != nil {
		t.Fatal(err)
	}
	got, err := client.CanonicalArguments(arguments)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"a":{"y":[],"z":"<é>"},"b":1}`; string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
