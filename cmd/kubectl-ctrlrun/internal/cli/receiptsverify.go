package cli

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
	"ctrlrun.dev/operator/kernel/receipt"
)

const receiptsVerifyLong = `Verify a chain of receipts: of the namespace, or with -f of exported files, without a cluster.

A file has one receipt a line, as export writes it. Order is by seq, never by line; a receipt may be in several files. Every
break is printed as "name seq": content_altered, link_broken, missing, head_mismatch, unchained, hash_missing.

Without a head that you noted somewhere else, receipts cut off at the end cannot be missed: give it with --head. A partial
file begins after --from. In a cluster the namespace's Ledger is the head, if you can see it.

Exit code 0: intact. 1: broken. 2: unreadable. 3: intact, but it ends before the head that was given.`

// maxReceiptLine bounds one line: a document of 1 MiB whose every character is escaped.
const maxReceiptLine = 6*receipt.MaxDocumentBytes + 4096

func (a *app) receiptsVerifyCommand() *cobra.Command {
	var files []string
	var head, from string
	cmd := &cobra.Command{
		Use:     "verify [-f FILE...] [--head SEQ:HASH] [--from SEQ:HASH]",
		Short:   "Verify a chain of receipts",
		Long:    receiptsVerifyLong,
		Example: "  kubectl ctrlrun receipts verify -n payments\n  kubectl ctrlrun receipts verify -f receipts.jsonl --head 42:sha256:9f86...",
		RunE: func(cmd *cobra.Command, args []string) error {
			files = append(files, args...)
			opts, err := verifyOptions(head, from)
			if err != nil {
				return err
			}
			if len(files) > 0 {
				return a.verifyFiles(files, opts)
			}
			s, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			return a.verifyCluster(cmd.Context(), s, opts)
		},
	}
	cmd.Flags().StringArrayVarP(&files, "filename", "f", nil, "a file of exported receipts, or - for stdin; may be repeated")
	cmd.Flags().StringVar(&head, "head", "", "the head the chain must end with, as SEQ:HASH")
	cmd.Flags().StringVar(&from, "from", "", "the receipt after which the file begins, as SEQ:HASH")
	return cmd
}

func verifyOptions(head, from string) (receipt.Options, error) {
	var opts receipt.Options
	if head != "" {
		link, err := receipt.ParseLink(head)
		if err != nil {
			return opts, exit.Errorf(exit.Usage, "--head: %w", err)
		}
		opts.Head = &link
	}
	if from != "" {
		link, err := receipt.ParseLink(from)
		if err != nil {
			return opts, exit.Errorf(exit.Usage, "--from: %w", err)
		}
		opts.From = link
	}
	return opts, nil
}

func (a *app) verifyFiles(files []string, opts receipt.Options) error {
	if err := onceStdin(files...); err != nil {
		return err
	}
	verifier := receipt.NewVerifier(opts)
	var entries []receipt.Entry
	for _, file := range files {
		found, err := a.readReceipts(file, verifier.Unreadable)
		if err != nil {
			return exit.With(exit.Usage, err)
		}
		entries = append(entries, found...)
	}
	for _, entry := range receipt.BySeq(entries) {
		if err := verifier.Add(entry); err != nil {
			return err
		}
	}
	return a.reportVerification(verifier.Report())
}

// readReceipts reads a file line by line. A line that cannot be read is noted, and the rest is still judged.
func (a *app) readReceipts(path string, unreadable func(where string, err error)) ([]receipt.Entry, error) {
	in := a.streams.In
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	var entries []receipt.Entry
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 64<<10), maxReceiptLine)
	number := 0
	where := func() string { return fmt.Sprintf("%s:%d", inputName(path), number) }
	for lines.Scan() {
		number++
		text := bytes.TrimSpace(lines.Bytes())
		if len(text) == 0 {
			continue
		}
		entry, err := receipt.ParseLine(text)
		if err != nil {
			unreadable(where(), err)
			continue
		}
		entries = append(entries, entry)
	}
	number++
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		unreadable(where(), errors.New("the line is longer than any receipt; nothing from here on was read"))
	} else if err != nil {
		return nil, fmt.Errorf("read %s: %w", inputName(path), err)
	}
	return entries, nil
}

// reportVerification prints the breaks for programs on stdout, and what they mean for people on stderr.
func (a *app) reportVerification(report receipt.Report) error {
	for _, b := range report.Breaks {
		a.println(b.Name, b.Seq)
		a.note("%s %d: %s", b.Name, b.Seq, oneLine(b.Detail))
	}
	for _, u := range report.Unread {
		a.note("%s: %s", displayLine(u.Where), oneLine(u.Detail))
	}
	code := exit.Code(report.Verdict.ExitCode())
	switch report.Verdict {
	case receipt.Intact:
		if report.Count == 0 {
			a.note("nothing was verified: there is no receipt in it")
		}
		a.println("intact:", count(report.Count, "receipt")+", head", report.Head.String())
		return nil
	case receipt.Short:
		return exit.Errorf(code, "the chain is intact but ends at %s, before the head that was given: receipts are missing at its end", report.Head)
	case receipt.Unreadable:
		return exit.Errorf(code, "%s could not be read, so nobody can say what the chain holds", count(len(report.Unread), "part"))
	}
	return exit.Errorf(code, "the chain is broken: %s", count(len(report.Breaks), "break"))
}
