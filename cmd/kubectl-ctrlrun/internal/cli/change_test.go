package cli

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/records"
)

func TestLineDiff(t *testing.T) {
	for name, test := range map[string]struct{ before, after, want string }{
		"what comes":              {"", "a b", "+ a|+ b"},
		"what goes":               {"a b", "", "- a|- b"},
		"one line":                {"a b c", "a x c", "  a|- b|+ x|  c"},
		"what is far is left out": {"a b c d e f g", "a b c d e f x", "  ...|  d|  e|  f|- g|+ x"},
		"nothing":                 {"a b c", "a b c", "  ..."},
		"two places":              {"1 a b c d e f g h 2", "x a b c d e f g h y", "- 1|+ x|  a|  b|  c|  ...|  f|  g|  h|- 2|+ y"},
		"a line that moves":       {"a b c", "c a b", "+ c|  a|  b|- c"},
	} {
		t.Run(name, func(t *testing.T) {
			got := lineDiff(strings.Fields(test.before), strings.Fields(test.after))
			if d := cmp.Diff(strings.Split(test.want, "|"), got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestWhatAChangeIsInIsShown(t *testing.T) {
	before := strings.Split("{|  a: {|    b: 1|  }|  c: {|    d: [|      1|      2|      3|      4|      5|    ]|  }|}", "|")
	after := strings.Split("{|  a: {|    b: 1|  }|  c: {|    d: [|      1|      2|      3|      4|      6|    ]|  }|}", "|")
	want := strings.Split("  {|  ...|    c: {|      d: [|  ...|        2|        3|        4|-       5|+       6|      ]|    }|  }", "|")
	if d := cmp.Diff(want, lineDiff(before, after)); d != "" {
		t.Error(d)
	}
}

func TestLargeTextsAreShownWhole(t *testing.T) {
	long := strings.Fields(strings.Repeat("x ", 3000))
	if got := lineDiff(long, long); len(got) != 6000 || got[0] != "- x" || got[5999] != "+ x" {
		t.Errorf("got %d lines", len(got))
	}
}

func TestContentIsShownOnlyWithItsHash(t *testing.T) {
	spec := []byte(`{"actions":{"x":{"decision":"allow"}},"version":"a\n  b"}`)
	hash, err := records.ContentHash(v1alpha1.TargetActionPolicy, spec)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := contentOf(v1alpha1.TargetActionPolicy, spec, hash)
	if err != nil || len(lines) != 8 || !strings.Contains(lines[6], `"a\n  b"`) {
		t.Errorf("got %q, %v: a text of several lines has to stay on one", lines, err)
	}
	if _, err := contentOf(v1alpha1.TargetGrant, spec, hash); err == nil {
		t.Error("the content of another kind has the same hash")
	}
	if _, err := contentOf(v1alpha1.TargetActionPolicy, []byte(`{"actions":{"x":{"decision":"deny"}}}`), hash); err == nil {
		t.Error("other content was shown as what is asked about")
	}
}
