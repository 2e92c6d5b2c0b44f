package cli

import (
	"fmt"
	"strings"
	"unicode"
)

// display makes text safe to show on a terminal. Whoever proposes an action chooses its arguments, and a person decides by
// what the screen says: escape sequences, control characters and the invisible characters that reorder text are written out
// as escapes, so that nothing can look like something else. Newlines stay: messages have several lines.
func display(s string) string {
	return escape(s, "\n")
}

// displayLine is display for one line or one table cell: newlines and tabs are written out too.
func displayLine(s string) string {
	return escape(s, "")
}

// oneLine is displayLine for a message of several lines: it joins them, for a message is no less clear for it.
func oneLine(s string) string {
	return displayLine(strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' }), " "))
}

func escape(s, keep string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case strings.ContainsRune(keep, r), unicode.IsPrint(r):
			b.WriteRune(r)
		case r <= 0xff && r < 0x20 || r == 0x7f:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}
