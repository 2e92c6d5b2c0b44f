package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/records"
)

const receiptsExportLong = `Write the receipts, one a line: {"seq":42,"hash":"sha256:...","document":"..."}. The document is the exact string that was
hashed, so jq and sha256sum verify it; kubectl ctrlrun receipts verify -f verifies the chain. A damaged chain is written as it
is.

-A writes all chains of the cluster, by namespace and then seq. --since-seq goes on with an earlier export: give it the last
seq that you have; with -A it is the same for each chain. What it writes is a partial file, which verify takes with
--from SEQ:HASH, or together with the earlier one.

--output-file writes a file that is there in full or not at all: it takes the place of an earlier one only when everything is
in it. Only you may read it, for receipts hold what agents did for whom.`

// exporting is what the flags of export say.
type exporting struct {
	everywhere bool
	since      int64
	file       string
}

func (a *app) receiptsExportCommand() *cobra.Command {
	var x exporting
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write the receipts as lines of JSON",
		Long:  receiptsExportLong,
		Example: "  kubectl ctrlrun receipts export -n payments > receipts.jsonl\n" +
			"  head -1 receipts.jsonl | jq -rj .document | sha256sum\n" +
			"  kubectl ctrlrun receipts export -n payments --since-seq $(tail -1 receipts.jsonl | jq .seq) >> receipts.jsonl",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if x.since < 0 {
				return exit.Errorf(exit.Usage, "--since-seq is the last seq that you have, 0 for none: %d is negative", x.since)
			}
			s, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			if x.file == "" {
				return a.export(cmd.Context(), s, x, a.streams.Out)
			}
			return inPlace(x.file, func(w io.Writer) error { return a.export(cmd.Context(), s, x, w) })
		},
	}
	cmd.Flags().Int64Var(&x.since, "since-seq", 0, "only receipts after this seq")
	cmd.Flags().StringVar(&x.file, "output-file", "", "write this file, in full or not at all")
	cmd.Flags().BoolVarP(&x.everywhere, "all-namespaces", "A", false, "all chains of the cluster")
	return cmd
}

// export writes the chains, and says on stderr what it wrote.
func (a *app) export(ctx context.Context, s *session, x exporting, w io.Writer) error {
	names := []string{s.Namespace()}
	if x.everywhere {
		var err error
		if names, err = a.chainNames(ctx, s); err != nil {
			return err
		}
	}
	out := bufio.NewWriterSize(w, 1<<16)
	written := 0
	for _, name := range names {
		err := s.eachReceiptOf(ctx, name, func(r *v1alpha1.Receipt) error {
			if r.Spec.Seq <= x.since {
				return nil
			}
			line, err := receipt.Line(records.Entry(r))
			if err != nil {
				return err
			}
			written++
			_, err = out.Write(append(line, '\n'))
			return err
		})
		if err != nil {
			return fmt.Errorf("namespace %s: %w", name, err)
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if written > 0 || x.since > 0 {
		a.note("exported %s", count(written, "receipt"))
		return nil
	}
	return a.empty(ctx, s, x.everywhere, false, "no receipts")
}

// inPlace writes a file beside path and then gives it that name: whoever reads path finds the earlier file or all of the new
// one, whatever happens in between.
func inPlace(path string, write func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	if err := write(f); err != nil {
		return err
	}
	// Without it, a machine that stops right after the rename may come up with an empty file under the name.
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

func (a *app) receiptsSchemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of receipt documents",
		Long: "Print the JSON Schema of the documents in receipts, of schema " + receipt.Schema + ". A later version only adds to it.\n\n" +
			"It describes the document, not the line or the object around it.",
		Example: "  kubectl ctrlrun receipts schema > receipt.schema.json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := a.streams.Out.Write(append(receipt.JSONSchema(), '\n'))
			return err
		},
	}
}
