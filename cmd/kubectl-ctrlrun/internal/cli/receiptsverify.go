package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
	"ctrlrun.dev/operator/kernel/receipt"
)

const receiptsVerifyLong = `Verify a chain of receipts: of the namespace, or with -f of exported files, without a cluster.

A file has one receipt a line, as export writes it. Order is by seq, never by line; a receipt may be in several files. Every
break is printed as "name seq":

  content_altered   the document does not have the stored hash, or says another seq
  link_broken       prev_hash is not the hash of the receipt before; or two receipts at one seq
  missing           there is a later receipt, but not this one
  head_mismatch     the head that was given, or the Ledger's, is not in the chain: it ends before, or has another hash there
  unchained         receipts without a seq, or of none of several chains
  hash_missing      a receipt without a stored hash

In a cluster the chain is also held against what is around it:

  mirror_mismatch   a field beside the document is not what the document says
  name_mismatch     the object is not named by the chain and its seq
  origin_mismatch   the document is of another namespace or cluster than its epoch of this chain
  reference_broken  an Action refers to a receipt that is not there, or to another one than its own
  effect_mismatch   an Effect is contradicted by the receipts of its key, or is missing, or has no receipt although it should

The operator goes on working meanwhile: what may only be on its way is read again before it is reported. What you may not
read is not checked, and a note on stderr says so. A receipt of a newer schema or kind verifies by its bytes, but cannot be
interpreted: then the verdict is unreadable, and the seq is named.

Without a head that you noted somewhere else, receipts cut off at the end cannot be missed: give it with --head. The chain
must contain it and may go on after it, so every head that was ever noted will do. A partial file begins after --from. In a
cluster the namespace's Ledger is a head, if you can see it.

A file without any receipt is refused, unless --head says what to expect, for it proves nothing: an export that failed leaves
one. So is a namespace that does not exist and never had a chain.

Files may hold several chains, as export -A writes them, and -A verifies all chains of the cluster. Each is verified by
itself: a break is printed as "name seq namespace", and each chain has one line with its verdict. --head and --from then
name their chain: --head NAMESPACE=SEQ:HASH, once for each.

Exit code 0: intact. 1: broken. 2: unreadable, or there is nothing to verify. 3: intact, but it ends before the head that was given. Of several chains it is
the worst: unreadable, then broken, then short.`

// maxReceiptLine bounds one line: a document of 1 MiB whose every character is escaped.
const maxReceiptLine = 6*receipt.MaxDocumentBytes + 4096

// maxNotedUnread bounds how many lines that cannot be read are named on stderr. All of them are counted.
const maxNotedUnread = 1000

// verifying is what the flags of verify say.
type verifying struct {
	files       []string
	everywhere  bool
	heads, from links
}

func (a *app) receiptsVerifyCommand() *cobra.Command {
	var v verifying
	var heads, from []string
	cmd := &cobra.Command{
		Use:     "verify [-f FILE...] [--head SEQ:HASH] [--from SEQ:HASH]",
		Short:   "Verify a chain of receipts",
		Long:    receiptsVerifyLong,
		Example: "  kubectl ctrlrun receipts verify -n payments\n  kubectl ctrlrun receipts verify -f receipts.jsonl --head 42:sha256:9f86...",
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			v.files = append(v.files, args...)
			if v.heads, err = parseLinks("head", heads); err != nil {
				return err
			}
			if v.from, err = parseLinks("from", from); err != nil {
				return err
			}
			if len(v.files) > 0 {
				if v.everywhere {
					return exit.Errorf(exit.Usage, "-A is for a cluster; files are verified with all the chains that are in them")
				}
				return a.verifyFiles(cmd.Context(), v)
			}
			s, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			return a.verifyCluster(cmd.Context(), s, v)
		},
	}
	cmd.Flags().StringArrayVarP(&v.files, "filename", "f", nil, "a file of exported receipts, or - for stdin; may be repeated")
	cmd.Flags().StringArrayVar(&heads, "head", nil, "a head that the chain must contain, as SEQ:HASH; of several chains NAMESPACE=SEQ:HASH")
	cmd.Flags().StringArrayVar(&from, "from", nil, "the receipt after which the file begins, as SEQ:HASH; of several chains NAMESPACE=SEQ:HASH")
	cmd.Flags().BoolVarP(&v.everywhere, "all-namespaces", "A", false, "all chains of the cluster")
	return cmd
}

// reading is a pass over files: it keeps a digest of every receipt, and judges them once they are in order.
type reading struct {
	app     *app
	spool   *spool
	chains  *chains
	unread  int
	taken   int      // receipts
	empty   []string // files without anything
	scratch []byte
}

// verifyFiles verifies files without a cluster, however many receipts they hold, and in any order.
func (a *app) verifyFiles(ctx context.Context, v verifying) error {
	if err := onceStdin(v.files...); err != nil {
		return err
	}
	r := &reading{app: a, spool: newSpool(), chains: newChains()}
	defer r.spool.close()
	for _, file := range v.files {
		if err := r.read(ctx, file); err != nil {
			return err
		}
	}
	return r.judge(v)
}

// read reads a file line by line. A line that cannot be read is noted, and the rest is still judged.
func (r *reading) read(ctx context.Context, path string) error {
	in := r.app.streams.In
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return exit.With(exit.Usage, err)
		}
		defer f.Close()
		in = f
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 64<<10), maxReceiptLine)
	number, before := 0, r.taken+r.unread
	for lines.Scan() {
		number++
		if err := ctx.Err(); err != nil {
			return err
		}
		text := bytes.TrimSpace(lines.Bytes())
		if len(text) == 0 {
			continue
		}
		var digest receipt.Digest
		var err error
		if digest, r.scratch, err = receipt.DigestLine(text, r.scratch); err != nil {
			if r.taken+r.unread == before && laidOut(text) {
				r.unreadable(path, number, errors.New("this is JSON over several lines, and was not read; one receipt a line is needed, which jq -c makes of it"))
				return nil
			}
			r.unreadable(path, number, err)
			continue
		}
		r.taken++
		chain, err := r.chains.of(digest)
		if err != nil {
			return err
		}
		if err := r.spool.add(chain, digest); err != nil {
			return err
		}
	}
	number++
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		r.unreadable(path, number, errors.New("the line is longer than any receipt; nothing from here on was read"))
	} else if err != nil {
		return exit.With(exit.Usage, fmt.Errorf("read %s: %w", inputName(path), err))
	}
	if r.taken+r.unread == before {
		r.empty = append(r.empty, inputName(path))
	}
	return nil
}

// laidOut reports whether the first line of a file is one of JSON that was laid out for reading. To name each of its lines
// would help nobody.
func laidOut(first []byte) bool { return slices.Contains([]string{"{", "[", "[{"}, string(first)) }

func (r *reading) unreadable(path string, line int, err error) {
	if r.unread++; r.unread > maxNotedUnread {
		return
	}
	r.app.note("%s: %s", displayLine(fmt.Sprintf("%s:%d", inputName(path), line)), oneLine(err.Error()))
}

// judge verifies what was read, each chain by itself.
func (r *reading) judge(v verifying) error {
	if r.taken+r.unread == 0 && len(v.heads.names()) == 0 && v.heads.only == nil {
		return exit.Errorf(exit.Usage, "there is nothing in it: %s, and nothing was verified; an export that failed leaves such a file",
			noReceiptIn(r.empty))
	}
	for _, file := range r.empty {
		r.app.note("there is nothing in %s: an export that failed leaves such a file", displayLine(file))
	}
	real := r.chains.settle()
	labels := make([]string, 0, len(real))
	for _, number := range real {
		labels = append(labels, r.chains.all[number].label)
	}
	label := ""
	if len(labels) > 0 {
		label = labels[0]
	}
	named := append(v.heads.names(), v.from.names()...)
	if len(labels) <= 1 && !slices.ContainsFunc(named, func(name string) bool { return name != label }) {
		return r.judgeOne(v, label)
	}
	for _, name := range named {
		if !slices.Contains(labels, name) {
			labels = append(labels, name)
		}
	}
	slices.Sort(labels)
	return r.judgeSeveral(v, real, labels)
}

// judgeOne verifies the one chain there is.
func (r *reading) judgeOne(v verifying, label string) error {
	printer := r.app.breakPrinter("")
	opts := receipt.Options{Each: printer.add}
	if head, given := v.heads.forOne(label); given {
		opts.Head = head
	}
	from, given := v.from.forOne(label)
	if given {
		opts.From = *from
	}
	if err := headAfter(opts.Head, opts.From); err != nil {
		return err
	}
	printer.partial = !given
	verifier := receipt.NewVerifier(opts)
	if err := r.spool.each(func(s spooled) error { return verifier.AddDigest(s.digest) }); err != nil {
		return err
	}
	printer.flush()
	return r.app.reportVerification(unreadToo(verifier.Report(), r.unread))
}

// judgeSeveral verifies chains of the given names, of which some may have no receipt at all.
func (r *reading) judgeSeveral(v verifying, real []int, labels []string) error {
	for _, given := range []links{v.heads, v.from} {
		if err := given.needNames(labels); err != nil {
			return err
		}
	}
	verifiers, printers := map[string]*receipt.Verifier{}, map[string]*breakPrinter{}
	for _, label := range labels {
		printers[label] = r.app.breakPrinter(label)
		opts := receipt.Options{Each: printers[label].add}
		if head, given := v.heads.of[label]; given {
			opts.Head = &head
		}
		from, given := v.from.of[label]
		opts.From, printers[label].partial = from, !given
		if err := headAfter(opts.Head, from); err != nil {
			return err
		}
		verifiers[label] = receipt.NewVerifier(opts)
	}
	err := r.spool.each(func(s spooled) error {
		if number := r.chains.place(s.chain, real); number != noChain {
			return verifiers[r.chains.all[number].label].AddDigest(s.digest)
		}
		rest := verifiers[unplaced]
		if rest == nil {
			printers[unplaced] = r.app.breakPrinter(unplaced)
			rest = receipt.NewVerifier(receipt.Options{From: allBut(), Each: printers[unplaced].add})
			verifiers[unplaced] = rest
		}
		if s.digest.Fault == "" && s.digest.Stored == s.digest.Computed {
			s.digest.Seq = 0 // intact, but in no chain
		}
		return rest.AddDigest(s.digest)
	})
	if err != nil {
		return err
	}
	t := r.app.tally()
	for _, label := range sortedKeys(verifiers) {
		printers[label].flush()
		report := verifiers[label].Report()
		if label == unplaced {
			report.Head = receipt.Start()
		}
		t.add(label, unreadToo(report, r.unread))
	}
	return t.verdict()
}

// unreadToo is the report of a verification that could not read a number of lines: nobody can say what they held.
func unreadToo(report receipt.Report, unread int) receipt.Report {
	if report.UnreadCount += unread; report.UnreadCount > 0 {
		report.Verdict = receipt.Unreadable
	}
	return report
}

// headAfter refuses a head about which a partial file can say nothing: to call that broken would be wrong.
func headAfter(head *receipt.Link, from receipt.Link) error {
	if head == nil || head.Seq >= from.Seq {
		return nil
	}
	return exit.Errorf(exit.Usage, "--head %s is before --from %s: a file that begins after it says nothing about it; verify the whole chain", head, from)
}

func noReceiptIn(files []string) string {
	return "there is no receipt in " + displayLine(strings.Join(files, ", "))
}

// maxExplained bounds how many breaks of a chain are explained to people. Programs are told all of them.
const maxExplained = 100

// breakPrinter prints the breaks of one chain: on stdout each of them for programs, and on stderr what they mean for people,
// to whom a gap is one thing however many receipts are missing in it.
type breakPrinter struct {
	app       *app
	label     string
	partial   bool // it may be a partial file that nobody said is one
	explained int
	gap       receipt.Break // missing receipts that were not explained yet: from Seq, Through the last
}

// breakPrinter starts with the breaks of a chain. label names the chain where there are several.
func (a *app) breakPrinter(label string) *breakPrinter { return &breakPrinter{app: a, label: label} }

func (p *breakPrinter) add(b receipt.Break) {
	p.app.println(p.line(b.Name, fmt.Sprint(b.Seq)))
	if b.Name != receipt.Missing {
		p.flush()
		p.explain(p.line(b.Name, fmt.Sprint(b.Seq)), b.Detail)
		return
	}
	if p.gap.Name == "" || b.Seq != p.gap.Through+1 {
		p.flush()
		p.gap = b
	}
	p.gap.Through = max(b.Seq, b.Through)
}

// flush explains the gap that was printed last.
func (p *breakPrinter) flush() {
	gap := p.gap
	p.gap = receipt.Break{}
	switch {
	case gap.Name == "":
		return
	case gap.Seq == gap.Through:
		p.explain(p.line(gap.Name, fmt.Sprint(gap.Seq)), gap.Detail)
	default:
		p.explain(p.line(gap.Name, fmt.Sprintf("%d to %d", gap.Seq, gap.Through)), fmt.Sprintf("there is none of these %d receipts", gap.Through-gap.Seq+1))
	}
	if gap.Seq == 1 && p.partial {
		name := ""
		if p.label != "" {
			name = p.label + "="
		}
		p.app.note("the file begins with receipt %d: if no more was exported, give --from %s%d:HASH, with the hash of receipt %d as you noted it",
			gap.Through+1, displayLine(name), gap.Through, gap.Through)
	}
}

func (p *breakPrinter) line(name, seq string) string {
	return strings.TrimSuffix(fmt.Sprintf("%s %s %s", name, seq, displayLine(p.label)), " ")
}

func (p *breakPrinter) explain(line, detail string) {
	switch p.explained++; {
	case p.explained <= maxExplained:
		p.app.note("%s: %s", line, oneLine(detail))
	case p.explained == maxExplained+1:
		p.app.note("there are more breaks: each has its line on stdout")
	}
}

// printBreaks prints breaks that are known together.
func (a *app) printBreaks(breaks []receipt.Break, label string) {
	printer := a.breakPrinter(label)
	for _, b := range breaks {
		printer.add(b)
	}
	printer.flush()
}

// reportVerification ends the verification of one chain, whose breaks were printed but for those that come last.
func (a *app) reportVerification(report receipt.Report) error {
	a.printBreaks(report.Breaks, "")
	code := exit.Code(report.Verdict.ExitCode())
	switch report.Verdict {
	case receipt.Intact:
		if report.Count == 0 {
			a.note("WARNING: nothing was verified, for there is no receipt in it")
		}
		a.println(verdictOf(report))
		return nil
	case receipt.Short:
		return exit.Errorf(code, "the chain is intact but ends at %s, before the head that was given: receipts are missing at its end", report.Head)
	case receipt.Unreadable:
		return exit.Errorf(code, "%s could not be read, so nobody can say what the chain holds", count(report.UnreadCount, "part"))
	}
	return exit.Errorf(code, "the chain is broken: %s", count(report.BreakCount, "break"))
}

// verdictOf is the verdict on one chain in a line.
func verdictOf(report receipt.Report) string {
	line := string(report.Verdict) + ": "
	if report.BreakCount > 0 {
		line += count(report.BreakCount, "break") + ", "
	}
	return line + count(report.Count, "receipt") + ", head " + report.Head.String()
}

// tally counts the verdicts over several chains.
type tally struct {
	app   *app
	found map[receipt.Verdict][]string
	all   int
}

func (a *app) tally() *tally { return &tally{app: a, found: map[receipt.Verdict][]string{}} }

// add prints the verdict on one chain.
func (t *tally) add(label string, report receipt.Report) {
	t.app.printBreaks(report.Breaks, label)
	t.app.println(displayLine(label), displayLine(verdictOf(report)))
	t.found[report.Verdict] = append(t.found[report.Verdict], label)
	t.all++
}

// verdict is the worst of all.
func (t *tally) verdict() error {
	for _, verdict := range []receipt.Verdict{receipt.Unreadable, receipt.Broken, receipt.Short} {
		if labels := t.found[verdict]; len(labels) > 0 {
			return exit.Errorf(exit.Code(verdict.ExitCode()), "of %s %d %s %s: %s", count(t.all, "chain"), len(labels),
				map[bool]string{true: "is", false: "are"}[len(labels) == 1], verdict, strings.Join(labels, ", "))
		}
	}
	return nil
}
