// Command receipts measures how fast `kubectl ctrlrun receipts verify` verifies a large export, and how much memory it takes.
// It writes a chain of realistic receipts, gives it to the built plugin in several orders, and prints time and peak memory
// of each. It fails if a limit is exceeded.
//
//	make build && go run ./test/bench/receipts -n 1000000
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/big"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/receipt"
)

func main() {
	n := flag.Int("n", 1_000_000, "how many receipts")
	binary := flag.String("binary", filepath.Join("bin", "kubectl-ctrlrun"), "the plugin; `make build` puts it there")
	limit := flag.Duration("limit", time.Minute, "how long one verification may take")
	memory := flag.Int64("memory", 200, "how many MB of memory it may take")
	flag.Parse()
	if err := measure(*n, *binary, *limit, *memory<<20); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// run is one order in which the receipts are given.
type run struct {
	name  string
	files []string
	stdin string
}

func measure(n int, binary string, limit time.Duration, memory int64) error {
	dir, err := os.MkdirTemp("", "ctrlrun-bench-receipts-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	in := func(name string) string { return filepath.Join(dir, name) }
	began := time.Now()
	chain, err := write(in("ordered.jsonl"), n)
	if err != nil {
		return err
	}
	fmt.Printf("%d receipts, %d bytes a document, %.2f GB, written in %s\n", n, chain.documents/int64(n), float64(chain.size)/1e9, time.Since(began).Round(time.Second))
	report := func(r run) error {
		took, busy, peak, err := verify(binary, r, chain.head)
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		fmt.Printf("%-32s %8s  %8s of processor time  %4d MB\n", r.name, took.Round(10*time.Millisecond), busy.Round(10*time.Millisecond), peak>>20)
		if took > limit || peak > memory {
			return fmt.Errorf("%s: %s and %d MB, the limits are %s and %d MB", r.name, took, peak>>20, limit, memory>>20)
		}
		return nil
	}
	if err := report(run{name: "one file, in order", files: []string{in("ordered.jsonl")}}); err != nil {
		return err
	}
	if err := report(run{name: "stdin, in order", files: []string{"-"}, stdin: in("ordered.jsonl")}); err != nil {
		return err
	}
	if err := shuffle(in("ordered.jsonl"), in("shuffled.jsonl"), chain); err != nil {
		return err
	}
	if err := report(run{name: "one file, shuffled", files: []string{in("shuffled.jsonl")}}); err != nil {
		return err
	}
	if err := report(run{name: "stdin, shuffled", files: []string{"-"}, stdin: in("shuffled.jsonl")}); err != nil {
		return err
	}
	if err := os.Remove(in("shuffled.jsonl")); err != nil {
		return err
	}
	if err := split(in("ordered.jsonl"), in("odd.jsonl"), in("even.jsonl")); err != nil {
		return err
	}
	return report(run{name: "two files, every second line", files: []string{in("even.jsonl"), in("odd.jsonl")}})
}

// written is a chain in a file.
type written struct {
	head      receipt.Link
	starts    []int64 // of each line
	size      int64
	documents int64
}

func write(path string, n int) (written, error) {
	var w written
	f, err := os.Create(path)
	if err != nil {
		return w, err
	}
	defer f.Close()
	out := bufio.NewWriterSize(f, 1<<20)
	w.head = receipt.Start()
	for i := range n {
		document := document(i).Map()
		document["schema"], document["seq"], document["prev_hash"] = receipt.Schema, big.NewInt(w.head.Seq+1), w.head.Hash
		// Encoded here and not by Document.Entry, which reads everything back: it would take longer than the measurement.
		text, err := canonical.Encode(document)
		if err != nil {
			return w, err
		}
		e := receipt.Entry{Seq: w.head.Seq + 1, Hash: canonical.Sum(text), Document: string(text)}
		if i == 0 {
			if _, err := receipt.Parse(e); err != nil {
				return w, fmt.Errorf("the receipts are not realistic: %w", err)
			}
		}
		line, err := receipt.Line(e)
		if err != nil {
			return w, err
		}
		w.starts = append(w.starts, w.size)
		w.size += int64(len(line)) + 1
		w.documents += int64(len(text))
		w.head = e.Link()
		if _, err := out.Write(append(line, '\n')); err != nil {
			return w, err
		}
	}
	if err := out.Flush(); err != nil {
		return w, err
	}
	return w, f.Close()
}

// document is a refund that one person approved.
func document(i int) receipt.Document {
	at := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC).Add(time.Duration(i) * 10 * time.Millisecond)
	uid := fmt.Sprintf("%08x-2f0c-4c52-9f5e-%012x", i, i*7)
	key := fmt.Sprintf("refund:txn_%09d", i)
	name := fmt.Sprintf("refund-txn-%09d-5hmiu43tei32ka76ypbe", i)
	agent := "system:serviceaccount:payments:refund-agent"
	return receipt.Document{
		Kind: receipt.KindAction, SubjectUID: uid, ClusterID: "6a1f2b5e-7d1e-4b8a-9a50-1f2a3b4c5d6e",
		Namespace: "payments", NamespaceUID: "0c9d8e7f-1234-4abc-8def-0123456789ab", FinishedTime: at.Add(3 * time.Second),
		ActionName: name, ActionUID: uid, ActionType: "stripe.refund",
		Principal: &receipt.Principal{Agent: agent, User: "alice@example.com", Claims: map[string]any{
			"groups": []any{"system:serviceaccounts", "system:serviceaccounts:payments", "system:authenticated"},
			"pod":    map[string]any{"name": "refund-agent-7d9c5b6f4-x2x9k", "uid": uid},
		}},
		EffectKey: key, EffectName: name, EffectUID: uid, Attempt: 1, Token: canonical.Sum([]byte(key))[7:],
		Result: decision.Committed, Message: "It was executed, and its executor reported success.",
		ActionHash: canonical.Sum([]byte(uid)), Resource: fmt.Sprintf("payment:txn_%09d", i),
		Arguments: map[string]any{
			"payment_id": fmt.Sprintf("txn_%09d", i), "amount": big.NewInt(int64(100 + i%5000)), "currency": "eur",
			"note": "the customer said \"it never arrived\"",
		},
		Environment: "production", Decision: decision.Approve, DecisionReason: "rule[1]",
		Policy:            &receipt.Policy{Name: "payments", Version: "git-3f2c1a", Generation: 3, RulesHash: canonical.Sum([]byte("rules"))},
		ApprovalsRequired: 1,
		Approvals: []receipt.Approval{{
			Approver: "bob@example.com", Groups: []string{"finance", "system:authenticated"}, Name: name + ".bob-example-com", UID: uid,
			Time: at.Add(time.Second), Reason: "looked at the delivery",
		}},
		ExecutorMode: receipt.ModeAgent, ClaimID: uid, Reporter: agent, ProposedTime: at, AdmittedTime: at.Add(2 * time.Second),
	}
}

func shuffle(from, to string, chain written) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	defer f.Close()
	out := bufio.NewWriterSize(f, 1<<20)
	var line []byte
	for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(len(chain.starts)) {
		end := chain.size
		if i+1 < len(chain.starts) {
			end = chain.starts[i+1]
		}
		line = append(line[:0], make([]byte, end-chain.starts[i])...)
		if _, err := in.ReadAt(line, chain.starts[i]); err != nil {
			return err
		}
		if _, err := out.Write(line); err != nil {
			return err
		}
	}
	return errors.Join(out.Flush(), f.Close())
}

func split(from, odd, even string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	var outs [2]*bufio.Writer
	for i, path := range []string{odd, even} {
		f, err := os.Create(path)
		if err != nil {
			return err
		}
		defer f.Close()
		outs[i] = bufio.NewWriterSize(f, 1<<20)
	}
	lines := bufio.NewReaderSize(in, 1<<20)
	for i := 0; ; i++ {
		line, err := lines.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			return errors.Join(outs[0].Flush(), outs[1].Flush())
		}
		if err != nil {
			return err
		}
		if _, err := outs[i%2].Write(line); err != nil {
			return err
		}
	}
}

// verify runs the plugin as a process, and asks the system what it took. Processor time is the figure to compare on a machine
// that does something else too.
func verify(binary string, r run, head receipt.Link) (took, busy time.Duration, peak int64, err error) {
	args := []string{"receipts", "verify", "--head", head.String()}
	for _, file := range r.files {
		args = append(args, "-f", file)
	}
	cmd := exec.Command(binary, args...)
	if r.stdin != "" {
		// A pipe, as from another program: a file would be stdin too, but one that can be read again.
		f, err := os.Open(r.stdin)
		if err != nil {
			return 0, 0, 0, err
		}
		defer f.Close()
		cmd.Stdin = struct{ io.Reader }{f}
	}
	began := time.Now()
	output, err := cmd.CombinedOutput()
	took = time.Since(began)
	if err != nil || !strings.HasPrefix(string(output), "intact: ") {
		return 0, 0, 0, fmt.Errorf("it says %q: %w", output[:min(len(output), 1000)], err)
	}
	usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0, 0, 0, errors.New("this system does not say how much memory a process took")
	}
	return took, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), usage.Maxrss << 10, nil
}
