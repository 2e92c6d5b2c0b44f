package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/kernel/timeline"
)

// The page docs/receipts.md promises that jq and sha256sum are enough. What it shows is taken out of it here and run.

const receiptsPage = "docs/receipts.md"

// block is what stands between fences.
type block struct{ language, text string }

func page(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", filepath.FromSlash(receiptsPage)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func blocks(markdown string) []block {
	var found []block
	for _, m := range regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$").FindAllStringSubmatch(markdown, -1) {
		found = append(found, block{m[1], m[2]})
	}
	return found
}

// commands of the page that run without a cluster, by what is in them and in no other.
const (
	oneReceipt  = "sed -n 3p receipts.jsonl"
	verifyFile  = "# verify-receipts.sh FILE"
	sortLines   = "sort_by(.seq)"
	verifyHead  = `sh verify-receipts.sh receipts.jsonl "$HEAD"`
	notedHeads  = "payments.heads"
	readThem    = `select(.result == "ambiguous")`
	needCluster = "kubectl"
)

// command is the one block of the page with that text.
func command(t testing.TB, with string) string {
	t.Helper()
	var found []string
	for _, b := range blocks(page(t)) {
		if b.language == "sh" && strings.Contains(b.text, with) {
			found = append(found, b.text)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%s has %d blocks with %q, want one", receiptsPage, len(found), with)
	}
	return found[0]
}

// bench is a directory as somebody has it who follows the page.
type bench struct {
	t   testing.TB
	dir string
}

func newBench(t testing.TB, export string) bench {
	t.Helper()
	for _, tool := range []string{"sh", "jq", "sha256sum"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed, so the commands of %s are not run; a Debian package has it", tool, receiptsPage)
		}
	}
	b := bench{t, t.TempDir()}
	b.write("receipts.jsonl", export)
	b.write("verify-receipts.sh", command(t, verifyFile))
	return b
}

func (b bench) write(name, text string) {
	b.t.Helper()
	if err := os.WriteFile(filepath.Join(b.dir, name), []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

func (b bench) read(name string) string {
	b.t.Helper()
	text, err := os.ReadFile(filepath.Join(b.dir, name))
	if err != nil {
		b.t.Fatal(err)
	}
	return string(text)
}

// sh runs lines of the page; environment is of the form NAME=value.
func (b bench) sh(script string, environment ...string) (stdout string, code int) {
	b.t.Helper()
	var out, diagnostics bytes.Buffer
	cmd := exec.Command("sh", "-c", script)
	cmd.Dir, cmd.Stdout, cmd.Stderr = b.dir, &out, &diagnostics
	cmd.Env = append(os.Environ(), environment...)
	err := cmd.Run()
	var exited *exec.ExitError
	if err != nil && !errors.As(err, &exited) {
		b.t.Fatal(err)
	}
	if diagnostics.Len() > 0 {
		b.t.Logf("on stderr: %s", diagnostics.String())
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// goldenLines are real exported lines, of every kind.
func goldenLines(t testing.TB) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "kernel", "receipt", "testdata", "golden.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.Collect(strings.Lines(string(text)))
}

func entryOf(t testing.TB, line string) receipt.Entry {
	t.Helper()
	e, err := receipt.ParseLine([]byte(strings.TrimSpace(line)))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func lineOf(t testing.TB, e receipt.Entry) string {
	t.Helper()
	line, err := receipt.Line(e)
	if err != nil {
		t.Fatal(err)
	}
	return string(line) + "\n"
}

// rebuilt is a receipt whose document says something else, with the hash of what it says now.
func rebuilt(t testing.TB, line string, change func(map[string]any)) string {
	t.Helper()
	e := entryOf(t, line)
	v, err := canonical.Parse([]byte(e.Document))
	if err != nil {
		t.Fatal(err)
	}
	doc := v.(map[string]any)
	change(doc)
	text, err := canonical.Encode(doc)
	if err != nil {
		t.Fatal(err)
	}
	seq, err := json.Marshal(doc["seq"])
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(seq, &e.Seq); err != nil {
		t.Fatal(err)
	}
	e.Document, e.Hash = string(text), canonical.Sum(text)
	return lineOf(t, e)
}

// rewritten is another history: every receipt says something else, and the chain is intact.
func rewritten(t testing.TB, lines []string) []string {
	t.Helper()
	var out []string
	prev := receipt.Genesis
	for _, line := range lines {
		line = rebuilt(t, line, func(d map[string]any) { d["namespace"], d["prev_hash"] = "forged", prev })
		prev = entryOf(t, line).Hash
		out = append(out, line)
	}
	return out
}

// awkward is a chain with everything in it that a shell or another JSON reader could stumble over.
func awkward(t testing.TB) []string {
	t.Helper()
	var out []string
	head := receipt.Start()
	for _, text := range []string{"plain", `\n \\ \u0041 %s %d $HOME $(id) "quoted" 'single'`, "* ? [a]", "é \u2028 \x7f 😀", "\x01\t\r\n", "  spaces  ", "-n", "-e", ""} {
		e, err := receipt.Build(head, map[string]any{"kind": "future", "subject_uid": "u", "ordinal": 0, "text": text, "size": new(big.Int).Lsh(big.NewInt(1), 80)})
		if err != nil {
			t.Fatal(err)
		}
		head = e.Link()
		out = append(out, lineOf(t, e))
	}
	return out
}

// Every command of the page is run by a test, or needs a cluster.
func TestReceiptsPageHasNoOtherCommands(t *testing.T) {
	tested := []string{oneReceipt, verifyFile, sortLines, verifyHead, notedHeads, readThem, needCluster}
	for _, b := range blocks(page(t)) {
		if b.language == "sh" && !slices.ContainsFunc(tested, func(with string) bool { return strings.Contains(b.text, with) }) {
			t.Errorf("nothing runs this block of %s:\n%s", receiptsPage, b.text)
		}
	}
}

func TestReceiptsPageChecksOneReceipt(t *testing.T) {
	lines := goldenLines(t)
	b := newBench(t, strings.Join(lines, ""))
	out, code := b.sh(command(t, oneReceipt))
	hash := entryOf(t, lines[2]).Hash
	if want := strings.TrimPrefix(hash, "sha256:") + "  -\n" + hash + "\n"; out != want || code != 0 {
		t.Errorf("printed %q, exit code %d; want %q", out, code, want)
	}
}

// The loop of the page on an intact chain and on each kind of tampering, beside what the plugin's verifier says.
func TestReceiptsPageChecksAChain(t *testing.T) {
	lines := goldenLines(t)
	head := entryOf(t, lines[len(lines)-1]).Link().String()
	with := func(edits map[int]string) []string {
		out := slices.Clone(lines)
		for n, line := range edits {
			out[n-1] = line
		}
		return out
	}
	moved := func(n int, seq int64) string {
		e := entryOf(t, lines[n-1])
		e.Seq = seq
		return lineOf(t, e)
	}
	renumbered := func(n int, seq int64) string {
		return rebuilt(t, lines[n-1], func(d map[string]any) { d["seq"] = seq })
	}
	forged := rewritten(t, lines)
	forgedHead := entryOf(t, forged[len(forged)-1]).Link().String()
	funny := awkward(t)
	last := slices.Clone(lines)
	last[len(last)-1] = strings.TrimSuffix(last[len(last)-1], "\n")
	amount := func(d map[string]any) { d["arguments"].(map[string]any)["amount"] = 1 }

	for name, tc := range map[string]struct {
		lines []string
		head  string
		want  string
		code  int
		// verdict of the plugin's verifier
		verdict receipt.Verdict
	}{
		"intact":                         {lines, "", "intact " + head, 0, receipt.Intact},
		"intact, up to the head":         {lines, head, "intact " + head, 0, receipt.Intact},
		"without the last line end":      {last, head, "intact " + head, 0, receipt.Intact},
		"intact, with awkward texts":     {funny, "", "intact " + entryOf(t, funny[len(funny)-1]).Link().String(), 0, receipt.Intact},
		"empty":                          {nil, "", "empty", 2, receipt.Intact},
		"empty, as it was then":          {nil, receipt.Start().String(), "intact " + receipt.Start().String(), 0, receipt.Intact},
		"up to before any receipt":       {lines, receipt.Start().String(), "intact " + head, 0, receipt.Intact},
		"a head of another hash":         {lines, "6:" + entryOf(t, lines[4]).Hash, "head_mismatch 6", 1, receipt.Broken},
		"an altered argument":            {with(map[int]string{3: strings.Replace(lines[2], "350000", "1", 1)}), "", "content_altered 3", 1, receipt.Broken},
		"an altered hash":                {with(map[int]string{3: strings.Replace(lines[2], `"hash":"sha256:`, `"hash":"sha256:0`, 1)}), "", "content_altered 3", 1, receipt.Broken},
		"altered, with a hash of it":     {with(map[int]string{3: rebuilt(t, lines[2], amount)}), "", "link_broken 4", 1, receipt.Broken},
		"the last one altered":           {with(map[int]string{8: strings.Replace(lines[7], "dora", "mallory", 1)}), "", "content_altered 8", 1, receipt.Broken},
		"the last one made anew":         {with(map[int]string{8: rebuilt(t, lines[7], func(d map[string]any) { d["acceptor"] = "mallory" })}), head, "head_mismatch 8", 1, receipt.Broken},
		"the first one deleted":          {lines[1:], "", "missing 1", 1, receipt.Broken},
		"one in the middle deleted":      {slices.Delete(slices.Clone(lines), 2, 3), "", "missing 3", 1, receipt.Broken},
		"one put in":                     {slices.Insert(slices.Clone(lines), 3, rebuilt(t, lines[2], amount)), "", "missing 4", 1, receipt.Broken},
		"two lines exchanged":            {with(map[int]string{3: lines[3], 4: lines[2]}), "", "missing 3", 1, receipt.Intact},
		"a line twice":                   {slices.Insert(slices.Clone(lines), 3, lines[2]), "", "missing 4", 1, receipt.Intact},
		"two receipts exchanged":         {with(map[int]string{3: moved(4, 3), 4: moved(3, 4)}), "", "content_altered 3", 1, receipt.Broken},
		"exchanged, with hashes of it":   {with(map[int]string{3: renumbered(4, 3), 4: renumbered(3, 4)}), "", "link_broken 3", 1, receipt.Broken},
		"cut off, and nobody knows":      {lines[:6], "", "intact " + entryOf(t, lines[5]).Link().String(), 0, receipt.Intact},
		"cut off, and the head is known": {lines[:6], head, "head_mismatch 8", 3, receipt.Short},
		"nothing left, the head known":   {nil, head, "head_mismatch 8", 3, receipt.Short},
		"written anew, nobody knows":     {forged, "", "intact " + forgedHead, 0, receipt.Intact},
		"written anew, the head known":   {forged, head, "head_mismatch 8", 1, receipt.Broken},
		"longer than the head":           {lines, entryOf(t, lines[5]).Link().String(), "intact " + head, 0, receipt.Intact},
		"a line that is damaged":         {with(map[int]string{3: lines[2][:100] + "\n"}), "", "unreadable 3", 2, receipt.Unreadable},
		"an empty line":                  {with(map[int]string{3: "\n" + lines[2]}), "", "unreadable 3", 2, receipt.Intact},
		"a line that is something else":  {with(map[int]string{3: "{}\n"}), "", "unreadable 3", 2, receipt.Unreadable},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, strings.Join(tc.lines, ""))
			script := "sh verify-receipts.sh receipts.jsonl"
			if tc.head != "" {
				script = command(t, verifyHead)
			}
			out, code := b.sh(script, "HEAD="+tc.head)
			if out != tc.want+"\n" || code != tc.code {
				t.Errorf("printed %q, exit code %d; want %q and %d", out, code, tc.want, tc.code)
			}
			verifier := receipt.Options{}
			if tc.head != "" {
				link, err := receipt.ParseLink(tc.head)
				if err != nil {
					t.Fatal(err)
				}
				verifier.Head = &link
			}
			if got := verdict(tc.lines, verifier); got != tc.verdict {
				t.Errorf("the plugin's verifier says %s, want %s", got, tc.verdict)
			}
		})
	}

	t.Run("no file", func(t *testing.T) {
		b := newBench(t, "")
		if out, code := b.sh("sh verify-receipts.sh other.jsonl"); out != "" || code == 0 {
			t.Errorf("printed %q, exit code %d", out, code)
		}
	})
	t.Run("no jq", func(t *testing.T) {
		// A tool that is not there must not look like a chain that is intact.
		b := newBench(t, strings.Join(lines, ""))
		sh, err := exec.LookPath("sh")
		if err != nil {
			t.Fatal(err)
		}
		if out, code := b.sh(sh+" verify-receipts.sh receipts.jsonl", "PATH="+b.dir); strings.Contains(out, "intact") || code == 0 {
			t.Errorf("printed %q, exit code %d", out, code)
		}
	})
}

func verdict(lines []string, opts receipt.Options) receipt.Verdict {
	var entries []receipt.Entry
	v := receipt.NewVerifier(opts)
	for _, line := range strings.Split(strings.Join(lines, ""), "\n") {
		if line == "" {
			continue
		}
		e, err := receipt.ParseLine([]byte(line))
		if err != nil {
			v.Unreadable(line, err)
			continue
		}
		entries = append(entries, e)
	}
	for _, e := range receipt.BySeq(entries) {
		if err := v.Add(e); err != nil {
			panic(err) // sorted
		}
	}
	return v.Report().Verdict
}

// Lines in another order, files that overlap and files of several chains become one file that can be checked.
func TestReceiptsPageSortsLines(t *testing.T) {
	lines := goldenLines(t)
	shuffled := slices.Concat(lines[4:], rewritten(t, lines), lines[:5], lines[2:3]) // what is rewritten is of another namespace
	b := newBench(t, strings.Join(shuffled, ""))
	if out, code := b.sh(command(t, sortLines)); code != 0 {
		t.Fatalf("printed %q, exit code %d", out, code)
	}
	out, code := b.sh("sh verify-receipts.sh sorted.jsonl")
	if want := "intact " + entryOf(t, lines[7]).Link().String() + "\n"; out != want || code != 0 {
		t.Errorf("printed %q, exit code %d; want %q", out, code, want)
	}
	if got := b.read("sorted.jsonl"); got != strings.Join(lines, "") {
		t.Errorf("sorting changed lines:\n%s", got)
	}
}

// Heads that were noted show a history that was written anew, which nothing else does.
func TestReceiptsPageComparesNotedHeads(t *testing.T) {
	lines := goldenLines(t)
	noted := func(n int) string { return entryOf(t, lines[n-1]).Link().String() + "\n" }
	forgedLate := slices.Clone(lines)
	prev := entryOf(t, lines[4]).Hash
	for i := 5; i < len(forgedLate); i++ {
		forgedLate[i] = rebuilt(t, lines[i], func(d map[string]any) { d["cluster_id"], d["prev_hash"] = "forged", prev })
		prev = entryOf(t, forgedLate[i]).Hash
	}
	for name, tc := range map[string]struct {
		lines []string
		want  string
		code  int
	}{
		"the same chain, grown":        {lines, "", 0},
		"written anew":                 {rewritten(t, lines), noted(3) + noted(6) + "these heads are not in the chain\n", 1},
		"written anew from receipt 6":  {forgedLate, noted(6) + "these heads are not in the chain\n", 1},
		"cut off before a head":        {lines[:5], noted(6) + "these heads are not in the chain\n", 1},
		"everything deleted":           {nil, noted(3) + noted(6) + "these heads are not in the chain\n", 1},
		"cut off behind all the heads": {lines[:6], "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, strings.Join(tc.lines, ""))
			b.write("payments.heads", noted(3)+noted(6))
			out, code := b.sh(command(t, notedHeads))
			if out != tc.want || code != tc.code {
				t.Errorf("printed %q, exit code %d; want %q and %d", out, code, tc.want, tc.code)
			}
		})
	}
}

func TestReceiptsPageReadsDocuments(t *testing.T) {
	b := newBench(t, strings.Join(goldenLines(t), ""))
	out, code := b.sh(command(t, readThem))
	want := `{"seq":4,"action_type":"stripe.refund","arguments":{"amount":2000,"payment_id":"txn_3"},"reason":"lease_lapsed"}` + "\n"
	if !strings.HasPrefix(out, want) || strings.Count(out, "\n") != 2 || code != 0 {
		t.Errorf("printed %q, exit code %d; want %q and the lost record", out, code, want)
	}
}

// What the page shows is what is printed.
func TestReceiptsPageShowsWhatIsPrinted(t *testing.T) {
	b := newBench(t, strings.Join(goldenLines(t), ""))
	shown := 0
	for _, block := range blocks(page(t)) {
		input, output, _ := strings.Cut(block.text, "\n")
		line, ok := strings.CutPrefix(input, "$ ")
		if block.language != "console" || !ok {
			continue
		}
		shown++
		if got, _ := b.sh(line); got != output {
			t.Errorf("%s prints %q, the page says %q", line, got, output)
		}
	}
	if shown == 0 {
		t.Error("the page shows nothing")
	}
}

// The examples are documents that were written: golden receipts, at least one of each kind.
func TestReceiptsPageExamples(t *testing.T) {
	var written []any
	for _, line := range goldenLines(t) {
		v, err := canonical.Parse([]byte(entryOf(t, line).Document))
		if err != nil {
			t.Fatal(err)
		}
		written = append(written, v)
	}
	kinds := map[string]bool{}
	for _, b := range blocks(page(t)) {
		if b.language != "json" {
			continue
		}
		v, err := canonical.Parse([]byte(b.text))
		if err != nil {
			t.Errorf("%v:\n%s", err, b.text)
			continue
		}
		if !slices.ContainsFunc(written, func(w any) bool { return canonical.Equal(v, w) }) {
			t.Errorf("this is no golden receipt:\n%s", b.text)
		}
		kinds[v.(map[string]any)["kind"].(string)] = true
	}
	for _, kind := range receipt.Kinds() {
		if !kinds[kind] {
			t.Errorf("there is no example of kind %s", kind)
		}
	}
}

// The tables have every key of every kind, and say of each whether it may be null and whether it came later.
func TestReceiptsPageTables(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "kernel", "receipt", "testdata", "v1alpha1-frozen.json"))
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]struct {
		Keys map[string]struct {
			Types    []string
			Required bool
		}
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for _, section := range strings.Split(page(t), "\n### ")[1:] {
		title, body, _ := strings.Cut(section, "\n")
		body, _, _ = strings.Cut(body, "\n## ")
		sections[title] = body
	}
	for _, kind := range receipt.Kinds() {
		t.Run(kind, func(t *testing.T) {
			told := tableRows(sections["Every kind"])
			for key, row := range tableRows(sections[kind]) {
				if _, twice := told[key]; twice {
					t.Errorf("%s is in two tables", key)
				}
				told[key] = row
			}
			for key, is := range schema[kind].Keys {
				row, ok := told[key]
				switch {
				case strings.HasSuffix(key, "[]"):
				case !ok:
					t.Errorf("%s is not in the table", key)
				case (row.nullWhen != "") != slices.Contains(is.Types, "null"):
					t.Errorf("%s is null when %q, its types are %q", key, row.nullWhen, is.Types)
				case strings.HasPrefix(row.meaning, "*later*") == is.Required:
					t.Errorf("%s: %q, but required is %t", key, row.meaning, is.Required)
				}
			}
			for key := range told {
				if _, ok := schema[kind].Keys[key]; !ok {
					t.Errorf("there is no key %s", key)
				}
			}
		})
	}

	events := sections[receipt.KindEvent]
	for _, word := range timeline.Types()[slices.Index(timeline.Types(), timeline.PolicyInForce):] {
		if !strings.Contains(events, fmt.Sprintf("\n| `%s` |", word)) {
			t.Errorf("the event %s is not explained", word)
		}
	}
	for _, name := range []string{
		receipt.ContentAltered, receipt.LinkBroken, receipt.Missing, receipt.HeadMismatch, receipt.Unchained, receipt.HashMissing,
		receipt.MirrorMismatch, receipt.NameMismatch, receipt.OriginMismatch, receipt.ReferenceBroken, receipt.EffectMismatch,
	} {
		if !strings.Contains(page(t), fmt.Sprintf("\n| `%s` |", name)) {
			t.Errorf("the break %s is not explained", name)
		}
	}
}

type tableRow struct{ meaning, nullWhen string }

// tableRows reads the table of keys of a section: its first column names one key or several.
func tableRows(section string) map[string]tableRow {
	rows := map[string]tableRow{}
	_, table, _ := strings.Cut(section, "| Key | Meaning | Null when |\n|---|---|---|\n")
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 5 {
			break
		}
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
			rows[m[1]] = tableRow{strings.TrimSpace(cells[2]), strings.TrimSpace(cells[3])}
		}
	}
	return rows
}

// The same on what a cluster exports: the loop, and the schema that the plugin's users check documents with.
var _ = Describe("an exported chain", func() {
	AfterEach(reportOperatorLog)

	It("is checked by what docs/receipts.md says, and valid in the published schema", func(ctx SpecContext) {
		s := newCLIStage()
		startOperator(ctx)
		Expect(s.run(s.agent, refund("page-1", "5", "--", "true")...).Code).To(Equal(0))
		Expect(s.run(s.agent, refund("page-2", "9000", "--", "true")...).Code).To(Equal(3))
		Expect(s.run(s.agent, refund("page-3", "5", "--", "false")...).Code).To(Equal(6))
		resolved := s.run(s.resolver, "resolve", "--key", "refund:page-3", "--committed", "--reason", "it is in the list", "--yes")
		Expect(resolved.Code).To(Equal(0), resolved.Stderr)

		var exported cliResult
		var head string
		Eventually(func(g Gomega) {
			exported = s.run(s.view, "receipts", "export")
			g.Expect(exported.Code).To(Equal(0), exported.Stderr)
			noted := s.run(s.view, "receipts", "head")
			g.Expect(noted.Code).To(Equal(0), noted.Stderr)
			head = strings.TrimSpace(noted.Stdout)
			g.Expect(exported.Stdout).To(ContainSubstring(`"kind\":\"resolution`))
			lines := strings.SplitAfter(strings.TrimSpace(exported.Stdout), "\n")
			g.Expect(head).To(Equal(entryOf(GinkgoTB(), lines[len(lines)-1]).Link().String()))
		}).WithTimeout(20 * time.Second).Should(Succeed())

		By("asking the published schema")
		published, err := jsonschema.UnmarshalJSON(bytes.NewReader(receipt.JSONSchema()))
		Expect(err).NotTo(HaveOccurred())
		compiler := jsonschema.NewCompiler()
		compiler.AssertFormat()
		Expect(compiler.AddResource(receipt.SchemaID, published)).To(Succeed())
		schema, err := compiler.Compile(receipt.SchemaID)
		Expect(err).NotTo(HaveOccurred())
		for line := range strings.Lines(exported.Stdout) {
			e := entryOf(GinkgoTB(), line)
			document, err := jsonschema.UnmarshalJSON(strings.NewReader(e.Document))
			Expect(err).NotTo(HaveOccurred())
			Expect(schema.Validate(document)).To(Succeed(), e.Document)
		}

		By("running the loop of the page")
		b := newBench(GinkgoTB(), exported.Stdout)
		out, code := b.sh(command(GinkgoTB(), verifyHead), "HEAD="+head)
		Expect(out).To(Equal("intact " + head + "\n"))
		Expect(code).To(Equal(0))
		b.write("receipts.jsonl", strings.Replace(exported.Stdout, "page-1", "page-9", 1))
		out, code = b.sh(command(GinkgoTB(), verifyHead), "HEAD="+head)
		Expect(out).To(MatchRegexp(`^content_altered \d+\n$`))
		Expect(code).To(Equal(1))
	}, SpecTimeout(3*time.Minute))
})
