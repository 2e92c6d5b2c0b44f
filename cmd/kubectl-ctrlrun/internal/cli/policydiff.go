package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/policy"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/records"
)

const policyDiffLong = `Show what policies would have decided about what really happened, before they are in force.

The last receipts of the namespace are evaluated again, each with its arguments, principal, resource and environment, by the
policies that are given, as the union they will be. Every decision that would be another one is shown. Policies of another
namespace are left out; a directory stands for the policies in it, with -R also below it.

Watch the templates. Another "effect:" makes another key, and what is committed under the old one blocks nothing any more.
Another "resource:" makes another hash, and approvals that were given do not fit any more.

Without a cluster: -r takes exported receipts, and --against the policies that are in force, for their templates.

It decides and writes nothing. The exit code is 0; with --exit-code it is 1 if anything changes.`

const policyDiffSchema = "ctrlrun.dev/policydiff/v1alpha1"

// policyDiff is the answer of policy diff.
type policyDiff struct {
	Schema    string `json:"schema"`
	Namespace string `json:"namespace"`
	// Replayed receipts, and of them those that would be decided alike, by the same rule or by another one.
	Replayed int `json:"replayed"`
	Same     int `json:"same"`
	Rerouted int `json:"rerouted"`
	// Skipped receipts say too little to be evaluated again.
	Skipped   []skippedReceipt  `json:"skipped"`
	Changes   []decisionChange  `json:"changes"`
	Templates []*templateChange `json:"templates"`
	// Removed action types are in force and not among the policies that are given; null if it is not known what is in force.
	Removed []string `json:"removed"`
}

type skippedReceipt struct {
	Seq    int64  `json:"seq"`
	Reason string `json:"reason"`
}

type decisionChange struct {
	Seq        int64   `json:"seq"`
	Action     string  `json:"action"`
	ActionType string  `json:"actionType"`
	Then       decided `json:"then"`
	Now        decided `json:"now"`
	Message    string  `json:"message,omitempty"`
}

type decided struct {
	Decision  decision.Decision `json:"decision"`
	Reason    decision.Reason   `json:"reason"`
	Approvals int               `json:"approvals,omitempty"`
}

func decidedOf(v policy.Verdict) decided { return decided(v) }

func (d decided) String() string {
	text := string(d.Decision)
	if d.Approvals > 1 {
		text += fmt.Sprintf(" by %d", d.Approvals)
	}
	return fmt.Sprintf("%s (%s)", text, d.Reason)
}

// templateChange is a template that makes something else of the same proposals.
type templateChange struct {
	ActionType string              `json:"actionType"`
	Kind       policy.TemplateKind `json:"kind"`
	// Then and Now are the templates, "" for none. Then is null if it is not known what is in force.
	Then *string `json:"then"`
	Now  *string `json:"now"`
	// Replayed receipts whose key or resource is another one.
	Replayed int `json:"replayed"`
	// CommittedKeys and OpenKeys are effects that block no second attempt any more: those that happened, and those that are
	// executing or ambiguous. Null for a resource.
	CommittedKeys *int `json:"committedKeys"`
	OpenKeys      *int `json:"openKeys"`
	// Counted says what was counted: all effects of the namespace, or only those of the replayed receipts.
	Counted string `json:"counted,omitempty"`
}

// differing is the command line of policy diff.
type differing struct {
	files, receipts, against []string
	recursive, exitCode      bool
	last                     int
	out                      outputFlag
}

func (a *app) policyDiffCommand() *cobra.Command {
	d := &differing{}
	cmd := &cobra.Command{
		Use:   "diff -f FILE...",
		Short: "Show which past decisions would be others",
		Long:  policyDiffLong,
		Example: "  kubectl ctrlrun policy diff -f deploy/policies/ -n payments\n" +
			"  kubectl ctrlrun policy diff -f new/ --against old/ -r receipts.jsonl --exit-code",
		RunE: func(cmd *cobra.Command, args []string) error {
			d.files = append(d.files, args...)
			if err := d.check(); err != nil {
				return err
			}
			answer, err := a.policyDiff(cmd.Context(), d)
			if err != nil {
				return err
			}
			if err := d.out.print(a, answer, func() { a.printPolicyDiff(answer) }); err != nil {
				return err
			}
			if d.exitCode && answer.differs() {
				return exit.Errorf(exit.Failure, "the policies differ from what decided so far")
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVarP(&d.files, "filename", "f", nil, "a proposed policy, a directory of them, or - for stdin; may be repeated")
	flags.BoolVarP(&d.recursive, "recursive", "R", false, "take the policies below a directory too")
	flags.IntVar(&d.last, "last", 1000, "how many receipts of actions to evaluate again, from the end of the chain")
	flags.StringArrayVarP(&d.receipts, "receipts", "r", nil, "exported receipts instead of those of the cluster, or - for stdin; may be repeated")
	flags.StringArrayVar(&d.against, "against", nil, "the policies that are in force, instead of those of the cluster; may be repeated")
	flags.BoolVar(&d.exitCode, "exit-code", false, "exit with 1 if anything changes")
	d.out.addTo(cmd)
	return cmd
}

func (d *differing) check() error {
	if err := d.out.check(); err != nil {
		return err
	}
	switch {
	case len(d.files) == 0:
		return exit.Errorf(exit.Usage, "name the proposed policies: -f FILE, or -f - for stdin")
	case d.last < 1:
		return exit.Errorf(exit.Usage, "--last is 1 or more")
	}
	return onceStdin(slices.Concat(d.files, d.receipts, d.against)...)
}

func (d *differing) walk() recursion {
	if d.recursive {
		return below
	}
	return within
}

// policyDiff needs a cluster only for what the command line does not give: receipts, the policies in force, and the effects.
func (a *app) policyDiff(ctx context.Context, d *differing) (*policyDiff, error) {
	var s *session
	var past *history
	var err error
	if len(d.receipts) > 0 {
		if past, err = a.readHistory(d.receipts, d.last); err != nil {
			return nil, err
		}
	} else {
		if s, err = a.connect(ctx); err != nil {
			return nil, err
		}
		if past, err = s.history(ctx, d.last); err != nil {
			return nil, err
		}
	}
	proposed, err := a.policiesOf(d.files, d.walk(), past.namespace)
	if err != nil {
		return nil, err
	}
	var inForce *policy.Set
	switch {
	case len(d.against) > 0:
		if inForce, err = a.policiesOf(d.against, d.walk(), past.namespace); err != nil {
			return nil, err
		}
	case s != nil:
		if inForce, err = s.policiesInForce(ctx); exit.Of(err) == exit.Refused {
			a.note("the policies in force are %s: templates are compared by what they made of the receipts only", notVisible)
		} else if err != nil {
			return nil, err
		}
	}
	c := newComparison(past, proposed, inForce)
	if s != nil && c.needsEffects() {
		if err := c.countEffects(ctx, s); exit.Of(err) == exit.Refused {
			a.note("effects are %s: keys are counted from the receipts", notVisible)
			if err := s.readSettled(ctx, past); err != nil {
				return nil, err
			}
		} else if err != nil {
			return nil, err
		}
	}
	return c.answer(past.settled), nil
}

// policiesOf is the union of the policies in files, as far as they are of a namespace.
func (a *app) policiesOf(paths []string, walk recursion, namespace string) (*policy.Set, error) {
	files, err := a.readPolicies(paths, walk)
	if err != nil {
		return nil, err
	}
	var ours []policyFile
	for _, file := range files {
		// A policy with an error may not even say its namespace.
		if of := file.document.Namespace; of == "" || of == namespace {
			ours = append(ours, file)
		}
	}
	if others := len(files) - len(ours); others > 0 {
		a.note("%s of other namespaces than %s left out", count(others, "policy"), displayLine(namespace))
	}
	if len(ours) == 0 {
		return nil, exit.Errorf(exit.Usage, "there is no policy of namespace %s in %s", namespace, strings.Join(paths, ", "))
	}
	return policySet(ours)
}

// policiesInForce is the union of the policies of the cluster.
func (s *session) policiesInForce(ctx context.Context) (*policy.Set, error) {
	var sources []policy.Source
	var page v1alpha1.ActionPolicyList
	err := s.eachPage(ctx, &page, func() error {
		for i := range page.Items {
			if o := &page.Items[i]; records.InForce(o) {
				source, _ := records.Policy(o)
				sources = append(sources, source)
			}
		}
		return nil
	}, kube.InNamespace(s.Namespace()))
	if err != nil {
		return nil, err
	}
	return policy.NewSet(sources), nil
}

// history is the last receipts of actions of one namespace, by seq.
type history struct {
	namespace string
	last      int
	receipts  []receipt.Document
	settled   map[string]settlement // by the name of the effect: the last that was said of it after an action had ended
}

// settlement is what a receipt says of an effect that no action is about: a person resolved it, or its record was lost.
type settlement struct {
	seq    int64
	result decision.Result
}

// settle keeps the latest settlement of each effect, in whatever order they come.
func (h *history) settle(d receipt.Document) {
	if h.settled == nil {
		h.settled = map[string]settlement{}
	}
	if d.Seq > h.settled[d.EffectName].seq {
		h.settled[d.EffectName] = settlement{seq: d.Seq, result: d.Result}
	}
}

// add keeps the last receipts, and not many more of them.
func (h *history) add(d receipt.Document) {
	h.receipts = append(h.receipts, d)
	if len(h.receipts) >= 2*h.last+1024 {
		h.trim()
	}
}

// trim orders by seq, which a file need not be in, and may have twice.
func (h *history) trim() {
	bySeq := func(a, b receipt.Document) int { return cmp.Compare(a.Seq, b.Seq) }
	slices.SortStableFunc(h.receipts, bySeq)
	h.receipts = slices.CompactFunc(h.receipts, func(a, b receipt.Document) bool { return a.Seq == b.Seq })
	if excess := len(h.receipts) - h.last; excess > 0 {
		h.receipts = slices.Clone(h.receipts[excess:])
	}
}

// history reads the last receipts of the namespace. Only those are interpreted that are replayed.
func (s *session) history(ctx context.Context, last int) (*history, error) {
	if err := s.namespaceThere(ctx); err != nil {
		return nil, err
	}
	var kept []v1alpha1.Receipt
	var page v1alpha1.ReceiptList
	if err := s.eachPage(ctx, &page, func() error {
		kept = append(kept, page.Items...)
		if excess := len(kept) - last; excess > 0 {
			kept = slices.Clone(kept[excess:])
		}
		return nil
	}, kube.InNamespace(s.Namespace()), kube.MatchingFields{"spec.kind": receipt.KindAction}); err != nil {
		return nil, err
	}
	h := &history{namespace: s.Namespace(), last: last}
	for i := range kept {
		document, err := receipt.Parse(records.Entry(&kept[i]))
		if err != nil {
			return nil, uninterpreted(&kept[i], err)
		}
		h.add(document)
	}
	h.trim()
	return h, nil
}

// readSettled reads what was said of effects after their actions had ended.
func (s *session) readSettled(ctx context.Context, h *history) error {
	for _, kind := range []string{receipt.KindResolution, receipt.KindStatusMissing} {
		err := s.eachReceipt(ctx, func(r *v1alpha1.Receipt) error {
			document, err := receipt.Parse(records.Entry(r))
			if err != nil {
				return uninterpreted(r, err)
			}
			h.settle(document)
			return nil
		}, kube.MatchingFields{"spec.kind": kind})
		if err != nil {
			return err
		}
	}
	return nil
}

// readHistory reads exported receipts. They are not verified here: receipts verify does.
func (a *app) readHistory(paths []string, last int) (*history, error) {
	byNamespace := map[string]*history{}
	for _, path := range paths {
		err := a.eachExported(path, func(e receipt.Entry) error {
			document, err := receipt.Parse(e)
			if err != nil {
				return exit.With(exit.Failure, err)
			}
			settles := document.Kind == receipt.KindResolution || document.Kind == receipt.KindStatusMissing
			if document.Kind != receipt.KindAction && !settles {
				return nil
			}
			h := byNamespace[document.Namespace]
			if h == nil {
				h = &history{namespace: document.Namespace, last: last}
				byNamespace[document.Namespace] = h
			}
			if settles {
				h.settle(document)
				return nil
			}
			h.add(document)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	wanted := ""
	if a.config.Namespace != nil {
		wanted = *a.config.Namespace
	}
	names := sortedKeys(byNamespace)
	switch {
	case wanted == "" && len(names) == 1:
		wanted = names[0]
	case wanted == "" && len(names) > 1:
		return nil, exit.Errorf(exit.Usage, "the receipts are of several namespaces (%s): choose one with -n", strings.Join(names, ", "))
	}
	h := byNamespace[wanted]
	if h == nil || len(h.receipts) == 0 {
		return nil, exit.Errorf(exit.Usage, "there is no receipt of an action in %s", strings.Join(paths, ", "))
	}
	h.trim()
	return h, nil
}

// eachExported reads a file of exported receipts line by line. What cannot be read is an error: a comparison that leaves
// receipts out would be a wrong one.
func (a *app) eachExported(path string, each func(receipt.Entry) error) error {
	in := a.streams.In
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return usage(err)
		}
		defer f.Close()
		in = f
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 64<<10), maxReceiptLine)
	for number := 1; lines.Scan(); number++ {
		text := bytes.TrimSpace(lines.Bytes())
		if len(text) == 0 {
			continue
		}
		entry, err := receipt.ParseLine(text)
		if err != nil {
			return exit.Errorf(exit.Usage, "%s:%d: %w", inputName(path), number, err)
		}
		if err := each(entry); err != nil {
			return exit.With(exit.Of(err), fmt.Errorf("%s:%d: %w", inputName(path), number, err))
		}
	}
	if err := lines.Err(); err != nil {
		return exit.Errorf(exit.Usage, "read %s: %w", inputName(path), err)
	}
	return nil
}

// pastOf rebuilds what was decided about, or says why it cannot be.
func pastOf(d receipt.Document) (past policy.Past, skip string) {
	switch {
	case d.Decision == "":
		return past, "it ended before a policy decided"
	case !policy.ByPolicy(decision.Reason(d.DecisionReason)):
		return past, "it was decided by " + d.DecisionReason + ", not by a policy"
	case d.Arguments == nil:
		return past, "its arguments are not recorded"
	case d.Principal == nil || d.Principal.Agent == "":
		return past, "nobody is known to have proposed it"
	}
	past = policy.Past{
		Proposal: action.Proposal{
			Name: d.ActionType, Arguments: d.Arguments, Principal: action.Principal{Agent: d.Principal.Agent, User: optional(d.Principal.User)},
			Resource: optional(d.Resource), Environment: d.Environment,
		},
		Verdict:   policy.Verdict{Decision: d.Decision, Reason: decision.Reason(d.DecisionReason)},
		EffectKey: optional(d.EffectKey),
	}
	if d.Decision == decision.Approve {
		past.Verdict.Approvals = int(d.ApprovalsRequired)
	}
	return past, ""
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// comparison collects what is different.
type comparison struct {
	proposed, inForce *policy.Set // inForce is nil if it is not known
	diff              *policyDiff
	templates         map[template]*templateChange
	freed             map[template]map[string]receipt.Document // by key that blocks nothing any more: the last replayed receipt of it
	kept              map[string]bool                          // keys that are made as before
}

type template struct {
	actionType string
	kind       policy.TemplateKind
}

func newComparison(past *history, proposed, inForce *policy.Set) *comparison {
	c := &comparison{
		proposed: proposed, inForce: inForce, templates: map[template]*templateChange{}, freed: map[template]map[string]receipt.Document{},
		kept: map[string]bool{},
		diff: &policyDiff{Schema: policyDiffSchema, Namespace: past.namespace, Skipped: []skippedReceipt{}, Changes: []decisionChange{}, Templates: []*templateChange{}},
	}
	if inForce != nil {
		c.diff.Removed = append([]string{}, policy.Removed(inForce, proposed)...)
		for _, change := range policy.TemplateChanges(inForce, proposed) {
			c.templates[template{change.Action, change.Kind}] = &templateChange{ActionType: change.Action, Kind: change.Kind, Then: &change.Then, Now: &change.Now}
		}
	}
	for _, d := range past.receipts {
		c.replay(d)
	}
	return c
}

func (c *comparison) replay(d receipt.Document) {
	past, skip := pastOf(d)
	if skip != "" {
		c.diff.Skipped = append(c.diff.Skipped, skippedReceipt{Seq: d.Seq, Reason: skip})
		return
	}
	c.diff.Replayed++
	r := c.proposed.Replay(past)
	switch {
	case r.Decided():
		c.diff.Changes = append(c.diff.Changes, decisionChange{
			Seq: d.Seq, Action: d.ActionName, ActionType: d.ActionType, Then: decidedOf(r.Then), Now: decidedOf(r.Now), Message: r.Message,
		})
	case r.Rerouted():
		c.diff.Rerouted++
	default:
		c.diff.Same++
	}
	if r.Rehashed() {
		if t := c.template(d.ActionType, policy.ResourceTemplate); t != nil {
			t.Replayed++
		}
	}
	switch {
	case r.Freed():
		c.free(d)
	case r.KeyThen != nil:
		c.kept[*r.KeyThen] = true
	}
}

// template is the entry of a template that changed, or nil if what is in force makes the same of it: then the change is an
// earlier one.
func (c *comparison) template(actionType string, kind policy.TemplateKind) *templateChange {
	key := template{actionType, kind}
	if c.templates[key] == nil && (c.inForce == nil || !c.inForce.Counts(actionType)) {
		c.templates[key] = &templateChange{ActionType: actionType, Kind: kind}
	}
	return c.templates[key]
}

// free notes a key that blocks nothing any more. Only what was admitted says what became of it: an action that was refused leaves
// the key as it is. Of several attempts the last one counts.
func (c *comparison) free(d receipt.Document) {
	t := c.template(d.ActionType, policy.EffectTemplate)
	if t == nil {
		return
	}
	t.Replayed++
	if d.Attempt == 0 {
		return
	}
	key := template{d.ActionType, policy.EffectTemplate}
	if c.freed[key] == nil {
		c.freed[key] = map[string]receipt.Document{}
	}
	if d.Seq > c.freed[key][d.EffectKey].Seq {
		c.freed[key][d.EffectKey] = d
	}
}

// needsEffects reports whether there are keys to count.
func (c *comparison) needsEffects() bool {
	for key := range c.templates {
		if key.kind == policy.EffectTemplate {
			return true
		}
	}
	return false
}

// countEffects counts every key of the namespace that a changed template does not make any more. Of an effect whose receipt
// was not replayed the arguments are not known: it counts, unless a replay made its key again.
func (c *comparison) countEffects(ctx context.Context, s *session) error {
	committed, open := map[template]int{}, map[template]int{}
	var page v1alpha1.EffectList
	err := s.eachPage(ctx, &page, func() error {
		for i := range page.Items {
			effect := &page.Items[i]
			status := effectStatus(effect)
			key := template{status.ActionType, policy.EffectTemplate}
			if c.templates[key] == nil || c.kept[effect.Spec.Key] {
				continue
			}
			switch status.State {
			case v1alpha1.EffectCommitted:
				committed[key]++
			case v1alpha1.EffectReserved, v1alpha1.EffectExecuting, v1alpha1.EffectAmbiguous:
				open[key]++
			}
		}
		return nil
	}, kube.InNamespace(s.Namespace()), notCanary)
	if err != nil {
		return err
	}
	for key, t := range c.templates {
		if key.kind == policy.EffectTemplate {
			t.CommittedKeys, t.OpenKeys, t.Counted = new(committed[key]), new(open[key]), "effects"
		}
	}
	return nil
}

// countFreed counts the keys of the replayed receipts that a changed template does not make any more, by what is known of
// them: settled has what was said of an effect after its action had ended.
func (c *comparison) countFreed(key template, settled map[string]settlement) (committed, open int) {
	for _, d := range c.freed[key] {
		result := d.Result
		if later := settled[d.EffectName]; later.seq > d.Seq {
			result = later.result
		}
		switch result {
		case decision.Committed:
			committed++
		case decision.Ambiguous:
			open++
		}
	}
	return committed, open
}

func (c *comparison) answer(settled map[string]settlement) *policyDiff {
	for key, t := range c.templates {
		if key.kind == policy.EffectTemplate && t.Counted == "" {
			committed, open := c.countFreed(key, settled)
			t.CommittedKeys, t.OpenKeys, t.Counted = &committed, &open, "receipts"
		}
		c.diff.Templates = append(c.diff.Templates, t)
	}
	slices.SortFunc(c.diff.Templates, func(a, b *templateChange) int {
		return cmp.Or(strings.Compare(a.ActionType, b.ActionType), strings.Compare(string(a.Kind), string(b.Kind)))
	})
	return c.diff
}

func (d *policyDiff) differs() bool {
	return len(d.Changes) > 0 || len(d.Templates) > 0 || len(d.Removed) > 0
}

func (a *app) printPolicyDiff(d *policyDiff) {
	if len(d.Changes) > 0 {
		t := a.table("SEQ", "ACTION", "TYPE", "THEN", "NOW")
		for _, change := range d.Changes {
			t.row(fmt.Sprint(change.Seq), change.Action, change.ActionType, change.Then.String(), change.Now.String())
		}
		t.flush()
		a.println()
	}
	a.println(displayLine(d.counts()))
	for _, line := range d.pairs() {
		a.println("  " + line)
	}
	for _, line := range d.skippedLines() {
		a.println(line)
	}
	for _, t := range d.Templates {
		a.println()
		a.println(displayLine(t.shout()))
	}
	for _, name := range d.Removed {
		a.println()
		a.println(displayLine(fmt.Sprintf("ATTENTION: %s is in force and not in these policies: every proposal of it will be denied (unknown_action)", name)))
	}
	if !d.differs() {
		a.println("nothing changes")
	}
}

func (d *policyDiff) counts() string {
	text := fmt.Sprintf("%s of namespace %s evaluated again: %s, %d the same", count(d.Replayed, "receipt"), d.Namespace, countChanges(len(d.Changes)), d.Same)
	if d.Rerouted > 0 {
		text += fmt.Sprintf(", %d the same by another rule", d.Rerouted)
	}
	return text
}

func countChanges(n int) string {
	if n == 1 {
		return "1 decision changes"
	}
	return fmt.Sprintf("%d decisions change", n)
}

// pairs counts the changes by what they were and become.
func (d *policyDiff) pairs() []string {
	counts := map[string]int{}
	for _, change := range d.Changes {
		counts[fmt.Sprintf("%s -> %s", change.Then.Decision, change.Now.Decision)]++
	}
	var lines []string
	for _, pair := range sortedKeys(counts) {
		lines = append(lines, fmt.Sprintf("%d %s", counts[pair], pair))
	}
	return lines
}

// skippedLines names the receipts that could not be evaluated, by why.
func (d *policyDiff) skippedLines() []string {
	why := map[string][]string{}
	for _, skipped := range d.Skipped {
		why[skipped.Reason] = append(why[skipped.Reason], fmt.Sprint(skipped.Seq))
	}
	var lines []string
	for _, reason := range sortedKeys(why) {
		lines = append(lines, displayLine(fmt.Sprintf("skipped %d: %s: %s", len(why[reason]), reason, boundedList("receipt", why[reason]))))
	}
	return lines
}

// shout says what a changed template does to what is there.
func (t *templateChange) shout() string {
	text := fmt.Sprintf("ATTENTION: the %s template of %s changes", t.Kind, t.ActionType)
	switch {
	case t.Then == nil:
	case *t.Then == "":
		text = fmt.Sprintf("ATTENTION: %s gets the %s template %q", t.ActionType, t.Kind, *t.Now)
	case *t.Now == "":
		text = fmt.Sprintf("ATTENTION: %s loses its %s template %q", t.ActionType, t.Kind, *t.Then)
	default:
		text += fmt.Sprintf(" from %q to %q", *t.Then, *t.Now)
	}
	if t.Kind == policy.ResourceTemplate {
		return text + fmt.Sprintf(": %s would have another hash; approvals that were given do not fit any more, and what waits is blocked", count(t.Replayed, "replayed action"))
	}
	if t.Then != nil && *t.Then == "" {
		return text + ": what was executed before has no key, and blocks nothing"
	}
	keys := fmt.Sprintf("%d keys that are committed no longer block", *t.CommittedKeys)
	if *t.CommittedKeys == 1 {
		keys = "1 key that is committed no longer blocks"
	}
	text += ": " + keys
	if *t.OpenKeys > 0 {
		text += fmt.Sprintf(", and %d executing or ambiguous ones", *t.OpenKeys)
	}
	if t.Counted == "receipts" {
		text += " (of the replayed receipts)"
	}
	return text
}
