package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

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
		"goes on after the head":          {lines: export(t, c...), flags: []string{"--head", head(c[3])}},
		"goes on from before any receipt": {lines: export(t, c...), flags: []string{"--head", receipt.Start().String()}},
		"empty, as it was then":           {lines: "", flags: []string{"--head", receipt.Start().String()}},
		"empty, seen with a head":         {lines: "", flags: []string{"--head", head(c[4])}, code: 3, breaks: []string{"head_mismatch 5"}},
		"empty":                           {lines: "", code: exit.Usage},
		"nothing but empty lines":         {lines: "\n\n", code: exit.Usage},
		"nothing after the start":         {lines: "", flags: []string{"--from", head(c[4])}, code: exit.Usage},
		"a head before the start":         {lines: export(t, c[2:]...), flags: []string{"--from", head(c[1]), "--head", head(c[0])}, code: exit.Usage},
		"a head after the start":          {lines: export(t, c[2:]...), flags: []string{"--from", head(c[1]), "--head", head(c[3])}},
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

// What people read stays short, whatever programs are told.
func TestReceiptsVerifyExplainsAGapOnce(t *testing.T) {
	c := chain(t, 40)
	partial := run(t, "", "receipts", "verify", "-f", write(t, "receipts.jsonl", export(t, c[33:]...)))
	if partial.code != exit.Failure || strings.Count(partial.stdout, "missing ") != 33 || !strings.Contains(partial.stdout, "missing 33\nlink_broken 34\n") {
		t.Errorf("exit code %d, stdout %q", partial.code, partial.stdout)
	}
	if strings.Count(partial.stderr, "missing ") != 1 || !strings.Contains(partial.stderr, "missing 1 to 33: ") || !strings.Contains(partial.stderr, "give --from 33:HASH") {
		t.Errorf("stderr %q", partial.stderr)
	}
	for name, flags := range map[string][]string{
		"in the middle":            {"-f", write(t, "receipts.jsonl", export(t, append(slices.Clone(c[:3]), c[20:]...)...))},
		"at the given begin":       {"-f", write(t, "receipts.jsonl", export(t, c[20:]...)), "--from", c[2].Link().String()},
		"beyond what can be named": {"-f", write(t, "receipts.jsonl", export(t, append(slices.Clone(c[:3]), faraway(t))...))},
	} {
		r := run(t, "", append([]string{"receipts", "verify"}, flags...)...)
		if r.code != exit.Failure || strings.Contains(r.stderr, "--from") || strings.Count(r.stderr, "missing ") != 1 {
			t.Errorf("%s: exit code %d, stderr %q", name, r.code, r.stderr)
		}
	}

	var broken []receipt.Entry
	for _, e := range chain(t, 300) {
		e.Hash = ""
		broken = append(broken, e)
	}
	r := run(t, "", "receipts", "verify", "-f", write(t, "receipts.jsonl", export(t, broken...)))
	if strings.Count(r.stdout, "hash_missing ") != 300 || strings.Count(r.stderr, "hash_missing ") != maxExplained || !strings.Contains(r.stderr, "there are more breaks") {
		t.Errorf("%d breaks on stdout, %d explained", strings.Count(r.stdout, "hash_missing "), strings.Count(r.stderr, "hash_missing "))
	}
}

// faraway is a receipt of a seq that leaves a gap no list could name.
func faraway(t *testing.T) receipt.Entry {
	t.Helper()
	e, err := receipt.Build(receipt.Link{Seq: 1 << 40, Hash: canonical.Sum(nil)}, map[string]any{"kind": "action", "subject_uid": "uid", "ordinal": 0})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestReceiptsVerifySaysOnceThatAFileIsLaidOut(t *testing.T) {
	for _, text := range []string{"{\n  \"seq\": 1,\n  \"hash\": \"\",\n  \"document\": \"{}\"\n}\n", "[\n  {\n  }\n]\n"} {
		r := run(t, "", "receipts", "verify", "-f", write(t, "receipts.json", text))
		if r.code != exit.Usage || r.stdout != "" || strings.Count(r.stderr, "\n") != 2 || !strings.Contains(r.stderr, "jq -c") {
			t.Errorf("exit code %d, stdout %q, stderr %q", r.code, r.stdout, r.stderr)
		}
	}
	// A damaged line among others is one line that is damaged.
	r := run(t, "", "receipts", "verify", "-f", write(t, "receipts.jsonl", export(t, chain(t, 2)...)+"{\n"))
	if r.code != exit.Usage || strings.Contains(r.stderr, "jq -c") {
		t.Errorf("exit code %d, stderr %q", r.code, r.stderr)
	}
}

func TestReceiptsVerifyNamesAnEmptyFileAmongOthers(t *testing.T) {
	full, empty := write(t, "full.jsonl", export(t, chain(t, 2)...)), write(t, "empty.jsonl", "")
	r := run(t, "", "receipts", "verify", "-f", full, "-f", empty)
	if r.code != exit.Done || !strings.Contains(r.stderr, "there is nothing in "+empty) {
		t.Errorf("exit code %d, stderr %q", r.code, r.stderr)
	}
}

func TestReceiptsVerifyTakesSeveralFilesAndStdin(t *testing.T) {
	c := chain(t, 4)
	first, second := write(t, "a.jsonl", export(t, c[2], c[3])), write(t, "b.jsonl", export(t, c[1], c[2]))
	r := run(t, export(t, c[0]), "receipts", "verify", "-f", first, second, "-f", "-", "--head", c[3].Link().String())
	r.answered(t, "intact: 4 receipts, head "+c[3].Link().String()+"\n")
}

// namedChain makes n linked receipts that say which chain they are of. from is the receipt they follow.
func namedChain(t *testing.T, namespace, cluster string, from receipt.Link, n int) []receipt.Entry {
	t.Helper()
	var entries []receipt.Entry
	for range n {
		entry, err := receipt.Build(from, map[string]any{
			"kind": "action", "subject_uid": fmt.Sprintf("%s-%d", namespace, from.Seq+1), "ordinal": 0, "namespace": namespace, "cluster_id": cluster,
			"arguments": map[string]any{"note": strings.Repeat("a", 400)},
		})
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, entry)
		from = entry.Link()
	}
	return entries
}

func TestReceiptsVerifyTellsChainsApart(t *testing.T) {
	orders, payments := namedChain(t, "orders", "c1", receipt.Start(), 3), namedChain(t, "payments", "c1", receipt.Start(), 4)
	elsewhere := namedChain(t, "orders", "c2", receipt.Start(), 2)
	restored := namedChain(t, "orders", "c2", orders[2].Link(), 2)
	altered := payments[1]
	altered.Document = strings.Replace(altered.Document, `"namespace":"payments"`, `"namespace":"paymentz"`, 1)
	gone := payments[1]
	gone.Document = "gone"
	unnamed := chain(t, 1)[0]
	all := export(t, append(slices.Clone(orders), payments...)...)
	head := func(e []receipt.Entry) string { return e[len(e)-1].Link().String() }

	for name, test := range map[string]struct {
		lines string
		flags []string
		code  exit.Code
		want  []string // lines of the answer, all of them
	}{
		"both intact": {lines: all, want: []string{
			"orders intact: 3 receipts, head " + head(orders), "payments intact: 4 receipts, head " + head(payments)}},
		"mixed": {lines: export(t, payments[3], orders[2], payments[0], orders[0], payments[2], orders[1], payments[1]), want: []string{
			"orders intact: 3 receipts, head " + head(orders), "payments intact: 4 receipts, head " + head(payments)}},
		"one broken": {lines: export(t, orders[0], orders[2]) + export(t, payments...), code: exit.Failure, want: []string{
			"missing 2 orders", "link_broken 3 orders",
			"orders broken: 2 breaks, 2 receipts, head " + head(orders), "payments intact: 4 receipts, head " + head(payments)}},
		"heads by name": {lines: all, flags: []string{"--head", "orders=" + head(orders), "--head", "payments=" + head(payments)}, want: []string{
			"orders intact: 3 receipts, head " + head(orders), "payments intact: 4 receipts, head " + head(payments)}},
		"one cut off": {lines: export(t, orders...) + export(t, payments[:2]...), flags: []string{"--head", "payments=" + head(payments)}, code: 3, want: []string{
			"orders intact: 3 receipts, head " + head(orders), "head_mismatch 4 payments", "payments short: 1 break, 2 receipts, head " + payments[1].Link().String()}},
		"one that is not there at all": {lines: export(t, orders...), flags: []string{"--head", "payments=" + head(payments)}, code: 3, want: []string{
			"orders intact: 3 receipts, head " + head(orders), "head_mismatch 4 payments", "payments short: 1 break, 0 receipts, head " + receipt.Start().String()}},
		"a partial one": {lines: export(t, orders...) + export(t, payments[2:]...), flags: []string{"--from", "payments=" + payments[1].Link().String()}, want: []string{
			"orders intact: 3 receipts, head " + head(orders), "payments intact: 2 receipts, head " + head(payments)}},
		"a head by the name of the only chain": {lines: export(t, orders...), flags: []string{"--head", "orders=" + head(orders)}, want: []string{
			"intact: 3 receipts, head " + head(orders)}},
		"an altered document is of the only chain": {lines: export(t, payments[0], altered, payments[2], payments[3]), code: exit.Failure, want: []string{
			"content_altered 2"}},
		"an unreadable document is of the only chain": {lines: export(t, payments[0], gone, payments[2], payments[3]), code: exit.Failure, want: []string{
			"content_altered 2"}},
		"an altered document among several chains": {lines: export(t, orders...) + export(t, payments[0], gone, payments[2], payments[3]), code: exit.Failure, want: []string{
			"content_altered 2 -", "missing 2 payments", "link_broken 3 payments",
			"- broken: 1 break, 0 receipts, head " + receipt.Start().String(),
			"orders intact: 3 receipts, head " + head(orders), "payments broken: 2 breaks, 3 receipts, head " + head(payments)}},
		"an intact one that names no chain does not pass": {lines: all + export(t, unnamed), code: exit.Failure, want: []string{
			"unchained 0 -",
			"- broken: 1 break, 0 receipts, head " + receipt.Start().String(),
			"orders intact: 3 receipts, head " + head(orders), "payments intact: 4 receipts, head " + head(payments)}},
		"one namespace in two clusters": {lines: export(t, append(slices.Clone(orders), elsewhere...)...), want: []string{
			"c1/orders intact: 3 receipts, head " + head(orders), "c2/orders intact: 2 receipts, head " + head(elsewhere)}},
		"restored in another cluster, and gone on there": {lines: export(t, append(slices.Clone(restored), orders...)...), want: []string{
			"intact: 5 receipts, head " + head(restored)}},
		"a line that cannot be read may have been of any": {lines: all + "{\n", code: exit.Usage, want: []string{
			"orders unreadable: 3 receipts, head " + head(orders), "payments unreadable: 4 receipts, head " + head(payments)}},
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, test.lines, append([]string{"receipts", "verify", "-f", "-"}, test.flags...)...)
			if r.code != test.code {
				t.Errorf("exit code %d, want %d: %s", r.code, test.code, r.stderr)
			}
			if got := strings.Split(strings.TrimSuffix(r.stdout, "\n"), "\n"); !slices.Equal(got, test.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
		})
	}

	t.Run("a head without a name", func(t *testing.T) {
		r := run(t, all, "receipts", "verify", "-f", "-", "--head", head(orders))
		r.refused(t, exit.Usage)
		if !strings.Contains(r.stderr, "orders, payments") || !strings.Contains(r.stderr, "--head NAMESPACE="+head(orders)) {
			t.Errorf("the message does not say what to do: %s", r.stderr)
		}
	})
}

// TestReceiptsVerifyEscapesWhatAFileSays proves that a stored hash, which may be any text, cannot write on the terminal.
func TestReceiptsVerifyEscapesWhatAFileSays(t *testing.T) {
	forged := namedChain(t, "payments", "c", receipt.Start(), 2)
	forged[1].Hash = "sha256:\x1b[2Jall is well\u202e"
	r := run(t, export(t, append(forged, namedChain(t, "shop", "c", receipt.Start(), 1)...)...), "receipts", "verify", "-f", "-")
	if r.code != exit.Failure || !strings.Contains(r.stdout, `payments broken: 1 break, 2 receipts, head 2:sha256:\x1b[2Jall is well\u202e`) {
		t.Errorf("%d %q %q", r.code, r.stdout, r.stderr)
	}
	if strings.ContainsAny(r.stdout+r.stderr, "\x1b\u202e") {
		t.Errorf("printed as it is: %q %q", r.stdout, r.stderr)
	}
}

// A verification of many receipts holds few of them in memory: here far more pass through a file than are held, in an order
// that is nearly the reverse. `go run ./test/bench/receipts` measures a million.
func TestReceiptsVerifyOfManyInAnyOrder(t *testing.T) {
	const n = 20_000
	c := namedChain(t, "payments", "c1", receipt.Start(), n)
	head := c[n-1].Link().String()
	slices.Reverse(c)
	for i := 0; i+7 < n; i += 7 {
		c[i], c[i+7] = c[i+7], c[i]
	}
	var in bytes.Buffer
	for _, e := range c {
		line, err := receipt.Line(e)
		if err != nil {
			t.Fatal(err)
		}
		in.Write(append(line, '\n'))
	}
	r := &reading{app: newTestApp(&in), spool: newSpool(), chains: newChains()}
	defer r.spool.close()
	r.spool.limit = 1000
	if err := r.read(context.Background(), "-"); err != nil {
		t.Fatal(err)
	}
	if len(r.spool.held) >= 1000 || len(r.spool.runs) != n/1000 {
		t.Errorf("%d digests are held, %d runs are in the file", len(r.spool.held), len(r.spool.runs))
	}
	heads, err := parseLinks("head", []string{head})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.judge(verifying{heads: heads}); err != nil {
		t.Error(err)
	}
}

func newTestApp(in io.Reader) *app {
	return &app{streams: genericiooptions.IOStreams{In: in, Out: io.Discard, ErrOut: io.Discard}}
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
