package cli

import (
	"fmt"
	"strings"
	"testing"

	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/receipt"
)

// chain makes n linked receipts.
func chain(t *testing.T, n int) []receipt.Entry {
	t.Helper()
	head := receipt.Start()
	var entries []receipt.Entry
	for i := range n {
		entry, err := receipt.Build(head, map[string]any{"kind": "action", "subject_uid": fmt.Sprintf("uid-%d", i+1), "ordinal": 0})
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, entry)
		head = entry.Link()
	}
	return entries
}

func export(t *testing.T, entries ...receipt.Entry) string {
	t.Helper()
	var b strings.Builder
	for _, entry := range entries {
		line, err := receipt.Line(entry)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(line)
		b.WriteByte('\n')
	}
	return b.String()
}

func TestReceiptsVerify(t *testing.T) {
	c := chain(t, 5)
	altered := c[2]
	altered.Document = strings.Replace(altered.Document, "uid-3", "uid-X", 1)
	rehashed := altered
	rehashed.Hash = canonical.Sum([]byte(rehashed.Document))
	unhashed := c[2]
	unhashed.Hash = ""
	renumbered := c[2]
	renumbered.Seq = 9
	unchained := c[2]
	unchained.Seq = 0
	head := func(e receipt.Entry) string { return e.Link().String() }

	for name, test := range map[string]struct {
		lines  string
		flags  []string
		code   exit.Code
		breaks []string
	}{
		"intact":                          {lines: export(t, c...)},
		"intact without any order":        {lines: export(t, c[3], c[0], c[4], c[2], c[1])},
		"equal lines twice":               {lines: export(t, c...) + export(t, c[1], c[4])},
		"empty lines":                     {lines: "\n" + export(t, c...) + "\n\n"},
		"ends with the head":              {lines: export(t, c...), flags: []string{"--head", head(c[4])}},
		"goes on after the head":          {lines: export(t, c...), flags: []string{"--head", head(c[3])}, code: exit.Failure, breaks: []string{"head_mismatch 4"}},
		"head of another hash":            {lines: export(t, c...), flags: []string{"--head", "5:" + c[3].Hash}, code: exit.Failure, breaks: []string{"head_mismatch 5"}},
		"cut off, seen with a head":       {lines: export(t, c[:3]...), flags: []string{"--head", head(c[4])}, code: 3, breaks: []string{"head_mismatch 5"}},
		"cut off, not seen without":       {lines: export(t, c[:3]...)},
		"altered":                         {lines: export(t, c[0], c[1], altered, c[3], c[4]), code: exit.Failure, breaks: []string{"content_altered 3"}},
		"altered with a new hash":         {lines: export(t, c[0], c[1], rehashed, c[3], c[4]), code: exit.Failure, breaks: []string{"link_broken 4"}},
		"removed":                         {lines: export(t, c[0], c[1], c[3], c[4]), code: exit.Failure, breaks: []string{"missing 3", "link_broken 4"}},
		"without a hash":                  {lines: export(t, c[0], c[1], unhashed, c[3], c[4]), code: exit.Failure, breaks: []string{"hash_missing 3"}},
		"stored under another seq":        {lines: export(t, c[0], c[1], c[2], c[3], c[4], renumbered), code: exit.Failure, breaks: []string{"content_altered 9"}},
		"without a seq":                   {lines: export(t, append(c, unchained)...), code: exit.Failure, breaks: []string{"unchained 0"}},
		"a partial file":                  {lines: export(t, c[2:]...), flags: []string{"--from", head(c[1])}},
		"a partial file taken as a whole": {lines: export(t, c[2:]...), code: exit.Failure, breaks: []string{"missing 1", "missing 2", "link_broken 3"}},
		"a partial file after another":    {lines: export(t, c[2:]...), flags: []string{"--from", "2:" + c[0].Hash}, code: exit.Failure, breaks: []string{"link_broken 3"}},
		"a line that is not JSON":         {lines: export(t, c...) + "{\n", code: exit.Usage},
		"a line with another member":      {lines: `{"seq":1,"hash":"","document":"{}","x":1}`, code: exit.Usage},
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, "", append([]string{"receipts", "verify", "-f", write(t, "receipts.jsonl", test.lines)}, test.flags...)...)
			if r.code != test.code {
				t.Fatalf("exit code %d, want %d\n%s%s", r.code, test.code, r.stdout, r.stderr)
			}
			for _, want := range test.breaks {
				if !strings.Contains("\n"+r.stdout, "\n"+want+"\n") {
					t.Errorf("no line %q in %q", want, r.stdout)
				}
			}
			if test.code == exit.Done && !strings.HasPrefix(r.stdout, "intact: ") {
				t.Errorf("an intact chain prints %q", r.stdout)
			}
			if test.code != exit.Done && strings.Contains(r.stdout, "intact") {
				t.Errorf("a chain that does not verify is called intact: %q", r.stdout)
			}
		})
	}
}

func TestReceiptsVerifyTakesSeveralFilesAndStdin(t *testing.T) {
	c := chain(t, 4)
	first, second := write(t, "a.jsonl", export(t, c[2], c[3])), write(t, "b.jsonl", export(t, c[1], c[2]))
	r := run(t, export(t, c[0]), "receipts", "verify", "-f", first, second, "-f", "-", "--head", c[3].Link().String())
	r.answered(t, "intact: 4 receipts, head "+c[3].Link().String()+"\n")
}

func TestReceiptsVerifyOfAMissingFileIsUnreadable(t *testing.T) {
	run(t, "", "receipts", "verify", "-f", "/nonexistent.jsonl").refused(t, exit.Usage)
}

func TestAChainIsJudgedAgainstHeadsItMustContain(t *testing.T) {
	c := chain(t, 3)
	found := map[int64]string{}
	for _, e := range c {
		found[e.Seq] = e.Hash
	}
	intact := receipt.Verify(c, receipt.Options{})
	for name, test := range map[string]struct {
		head receipt.Link
		want receipt.Verdict
	}{
		"the last":               {c[2].Link(), receipt.Intact},
		"an earlier one":         {c[0].Link(), receipt.Intact},
		"one that is not there":  {receipt.Link{Seq: 7, Hash: c[0].Hash}, receipt.Short},
		"one with another hash":  {receipt.Link{Seq: 2, Hash: c[0].Hash}, receipt.Broken},
		"the start of the chain": {receipt.Start(), receipt.Intact},
	} {
		t.Run(name, func(t *testing.T) {
			found := map[int64]string{0: receipt.Genesis, 1: found[1], 2: found[2], 3: found[3]}
			got := againstHeads(intact, map[string]receipt.Link{"head": test.head}, found)
			if got.Verdict != test.want {
				t.Errorf("verdict %s, want %s: %v", got.Verdict, test.want, got.Breaks)
			}
		})
	}
}
