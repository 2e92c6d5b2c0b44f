package cli

import "testing"

func TestDisplayShowsWhatCouldDeceive(t *testing.T) {
	for name, test := range map[string]struct{ in, want string }{
		"letters of any script stay":   {"Zürich 東京 naïve", "Zürich 東京 naïve"},
		"escape sequence":              {"\x1b[2Jgone", `\x1b[2Jgone`},
		"carriage return":              {"amount 5\rX", `amount 5\x0dX`},
		"right-to-left override":       {"a\u202etxt", `a\u202etxt`},
		"zero width space":             {"pay\u200bpal", `pay\u200bpal`},
		"no-break space":               {"a\u00a0b", `a\u00a0b`},
		"delete":                       {"a\x7fb", `a\x7fb`},
		"tag characters above 16 bits": {"a\U000e0041b", `a\U000e0041b`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := displayLine(test.in); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
	if got := displayLine("a\nb\tc"); got != `a\x0ab\x09c` {
		t.Errorf("a line keeps a line break: %q", got)
	}
	if got := oneLine("a\nb\x1b\n"); got != `a b\x1b` {
		t.Errorf("a message is not one line: %q", got)
	}
	if got := display("a\nb"); got != "a\nb" {
		t.Errorf("a text loses its line break: %q", got)
	}
}
