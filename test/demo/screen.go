package main

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// columns is how wide the output may get; only single words that are longer exceed it.
const columns = 98

// screen is where the demo is told. Colours are for terminals only.
type screen struct {
	out    io.Writer
	colour bool
}

func newScreen(out *os.File) *screen {
	info, err := out.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0
	return &screen{out: out, colour: terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

func (s *screen) say(format string, args ...any) {
	fmt.Fprintln(s.out, strings.TrimRight(fmt.Sprintf(format, args...), " "))
}

// indent is before whatever a command printed.
const indent = "    "

// tell writes a paragraph.
func (s *screen) tell(text string) {
	s.say("")
	for _, l := range wrap(strings.Join(strings.Fields(text), " "), columns) {
		s.say("%s", l)
	}
}

// answer writes what a command printed.
func (s *screen) answer(output string) {
	if output == "" {
		return
	}
	for l := range strings.SplitSeq(strings.TrimRight(output, "\n"), "\n") {
		for i, part := range wrap(l, columns-len(indent)-2) {
			if i > 0 {
				part = "  " + part
			}
			s.say("%s%s", indent, part)
		}
	}
}

// table writes what a command printed as a table, without some columns: a table whose lines are wrapped is none.
func (s *screen) table(output string, without ...string) {
	rows := strings.TrimRight(output, "\n")
	if at := strings.LastIndex(rows, "\n\n"); at >= 0 {
		s.answer(rows[:at])
		s.say("")
		rows = rows[at+2:]
	}
	lines := strings.Split(rows, "\n")
	for _, name := range without {
		from := strings.Index(lines[0], name+" ")
		if from < 0 {
			from = strings.Index(lines[0], name) // the last one
		}
		if from < 0 {
			continue
		}
		width := len(lines[0]) - from
		if next := strings.TrimLeft(lines[0][from+len(name):], " "); next != "" {
			width -= len(next)
		}
		for i, l := range lines {
			end := min(from+width, len(l))
			if width == len(lines[0])-from && i > 0 {
				end = len(l)
			}
			lines[i] = l[:min(from, len(l))] + l[end:]
		}
	}
	for _, l := range lines {
		s.say("%s%s", indent, l)
	}
	s.say("%s(the columns %s are left out here)", indent, strings.Join(without, ", "))
}

// refused says in one line that cannot be missed what did not happen, and what prevented it.
func (s *screen) refused(word, by string) {
	for i, l := range wrap(by, columns-11) {
		if i == 0 {
			s.say("  %s  %s", s.red(fmt.Sprintf("%-7s", word)), l)
			continue
		}
		s.say("%11s%s", "", l)
	}
}

func (s *screen) bold(text string) string  { return s.paint("1", text) }
func (s *screen) red(text string) string   { return s.paint("1;31", text) }
func (s *screen) green(text string) string { return s.paint("32", text) }
func (s *screen) cyan(text string) string  { return s.paint("36", text) }

func (s *screen) paint(code, text string) string {
	if !s.colour {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// wrap cuts a line at spaces. Its own indentation and the columns of a table that fits stay as they are.
func wrap(text string, width int) []string {
	var lines []string
	for len([]rune(text)) > width {
		runes := []rune(text)
		at := strings.LastIndex(string(runes[:width+1]), " ")
		if strings.TrimSpace(text[:max(at, 0)]) == "" {
			next := strings.Index(strings.TrimLeft(text, " "), " ")
			if next < 0 {
				break
			}
			at = len(text) - len(strings.TrimLeft(text, " ")) + next
		}
		lines = append(lines, strings.TrimRight(text[:at], " "))
		text = strings.TrimLeft(text[at:], " ")
	}
	return append(lines, text)
}
