package verify

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"ctrlrun.dev/operator/kernel/authority"
	"ctrlrun.dev/operator/kernel/guarantees"
)

// word is how people read a status.
func (s Status) word() string {
	return map[Status]string{Pass: "PASS", Fail: "FAIL", NotApplicable: "N/A", Skipped: "SKIP"}[s]
}

// WriteText writes the report for people. Escape makes text from elsewhere harmless on a terminal. The last line is the verdict.
func (r *Report) WriteText(w io.Writer, escape func(string) string) error {
	var b bytes.Buffer
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "kubectl ctrlrun\t%s, catalogue %s\n", r.Version, r.Catalogue)
	for _, p := range r.Policies {
		fmt.Fprintf(t, "Policy\t%s, %d actions, %s\n", escape(p.title()), p.Count, p.RulesHash)
	}
	fmt.Fprintf(t, "Settings\t%s\n", r.Settings.title())
	if r.Settings.required() {
		fmt.Fprintf(t, "Grants\t%s\n", escape(r.grantsTitle()))
	}
	fmt.Fprintf(t, "Environment\t%s\n", escape(r.Environment))
	fmt.Fprintf(t, "Scratch\tnamespace %s, %s; the Ledger %s stays, as every Ledger does\n", r.Scratch.Namespace, r.Scratch.end(), r.Scratch.Ledger)
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(&b)
	for _, g := range r.Guarantees {
		t := tabwriter.NewWriter(&b, 5, 0, 1, ' ', 0)
		fmt.Fprintf(t, "%s\t%s\t%-32s  %s\n", g.Status.word(), g.ID, g.Title, escape(g.line()))
		if err := t.Flush(); err != nil {
			return err
		}
		if g.Counterexample != nil {
			g.Counterexample.write(&b, escape)
		}
	}
	fmt.Fprintf(&b, "\n%s\n", r.verdict())
	_, err := w.Write(b.Bytes())
	return err
}

func (s Scratch) end() string {
	if s.Removed {
		return "removed"
	}
	return "not gone yet"
}

func (p Policy) title() string {
	text := p.Origin
	if p.Generation > 0 {
		text += fmt.Sprintf(" generation %d", p.Generation)
	}
	if p.Version != "" {
		text += ", version " + p.Version
	}
	return text
}

func (s *Settings) title() string {
	if s == nil {
		return "none, so the defaults"
	}
	text := fmt.Sprintf("copied: approvalTTLSeconds %d, maxLeaseSeconds %d", s.ApprovalTTLSeconds, s.MaxLeaseSeconds)
	if s.required() {
		text += fmt.Sprintf(", authority %s, maxDelegationDepth %d", s.Authority, s.MaxDelegationDepth)
	}
	if s.aliased() {
		text += ", identityAliases with people of the scratch namespace"
	}
	if s.proposed() {
		text += ", policyChanges Proposed for G21"
	}
	return text
}

// grantsTitle says which grants were copied.
func (r *Report) grantsTitle() string {
	var names []string
	for _, g := range r.Grants {
		if g.Copied {
			names = append(names, g.Name)
		}
	}
	if len(names) == 0 {
		return "none, so nobody may propose"
	}
	return fmt.Sprintf("copied, for the scratch agent: %s", strings.Join(names, ", "))
}

// line is what stands behind the title: why it has no other verdict, or what was driven.
func (g Result) line() string {
	switch {
	case g.Status == NotApplicable, g.Status == Skipped:
		return *g.Reason
	case g.ActionType == nil:
		return ""
	}
	text := fmt.Sprintf("%s %s", *g.ActionType, g.Arguments)
	if g.Approvals > 0 {
		text += fmt.Sprintf(", approved by %d", g.Approvals)
	}
	if g.ID == guarantees.G4 {
		text = fmt.Sprintf("(%d processes) %s", guarantees.Processes, text)
	}
	if h, ok := g.Detail.(handedOn); ok {
		text = fmt.Sprintf("(%d of %d dimensions) %s", len(h.Exercised), len(authority.Dimensions()), text)
	}
	if g.Status == Fail {
		text += ": " + *g.Reason
	}
	return text
}

func (c *Counterexample) write(w io.Writer, escape func(string) string) {
	say := func(format string, args ...any) {
		fmt.Fprintf(w, "          %s\n", escape(fmt.Sprintf(format, args...)))
	}
	say("expected: %s", c.Expected)
	say("observed: %s", c.Observed)
	for _, r := range c.Receipts {
		say("receipt:  %s", r)
	}
	for _, e := range c.Events {
		var words []string
		for _, key := range slices.Sorted(maps.Keys(e.Data)) {
			words = append(words, key+"="+e.Data[key])
		}
		say("event:    %s %d %s %s %s", e.Action, e.Seq, e.Time.UTC().Format(time.RFC3339Nano), e.Type, strings.Join(words, " "))
	}
	for _, e := range c.Effects {
		say("effect:   %s %s, attempt %d, held by %s, key %s", e.Name, e.State, e.Attempt, e.Holder, e.Key)
	}
}

// WriteJSON writes the report for programs.
func (r *Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	// Arguments may hold < > and &, which Go would write as \u003c. Programs compare these strings.
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}
