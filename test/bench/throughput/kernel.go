package main

import (
	"errors"
	"fmt"
	"math/big"
	"strings"
	"syscall"
	"testing"
	"time"

	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/policy"
)

// timing is what a part of the kernel takes by itself.
type timing struct {
	Name    string `json:"name"`
	NsPerOp int64  `json:"nsPerOp"`
	// ProcessorNsPerOp is processor time, garbage collection included: on a busy machine it is what the other would be on a
	// quiet one.
	ProcessorNsPerOp int64 `json:"processorNsPerOp"`
	AllocsPerOp      int64 `json:"allocsPerOp"`
	BytesPerOp       int64 `json:"bytesPerOp"`
}

const (
	hashing  = "hash"
	deciding = "decide"
	rules    = 100
)

// kernelTimings measures the hash of an action, and a whole decision about it: its hash, resource and effect key, and rules of
// which only the last one matches.
func kernelTimings() ([]timing, error) {
	set, err := longPolicy(rules)
	if err != nil {
		return nil, err
	}
	p := proposal()
	if e, err := set.Evaluate(p); err != nil || e.Reason != decision.Rule(rules-1) || e.EffectKey == nil {
		return nil, fmt.Errorf("the kernel does not decide by the last rule, but %s (%s): %w", e.Decision, e.Reason, err)
	}
	hash, err := timed(hashing, func() error { _, err := p.Hash(); return err })
	if err != nil {
		return nil, err
	}
	decide, err := timed(deciding, func() error { _, err := set.Evaluate(p); return err })
	return []timing{hash, decide}, err
}

func timed(name string, do func() error) (timing, error) {
	var used time.Duration
	var failed error
	r := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		before, err := ownProcessorTime()
		for failed = err; failed == nil && b.Loop(); {
			failed = do()
		}
		after, err := ownProcessorTime()
		used, failed = after-before, errors.Join(failed, err)
	})
	if failed != nil {
		return timing{}, failed
	}
	return timing{Name: name, NsPerOp: r.NsPerOp(), ProcessorNsPerOp: used.Nanoseconds() / int64(r.N), AllocsPerOp: r.AllocsPerOp(), BytesPerOp: r.AllocedBytesPerOp()}, nil
}

// ownProcessorTime is finer than what /proc says of other processes.
func ownProcessorTime() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, err
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

func proposal() action.Proposal {
	return action.Proposal{
		Name:        "stripe.refund",
		Arguments:   map[string]any{"payment_id": "txn_000000001", "amount": big.NewInt(2000), "currency": "eur", "note": `the customer said "it never arrived"`},
		Principal:   action.Principal{Agent: "system:serviceaccount:payments:refund-agent"},
		Environment: "production",
	}
}

// longPolicy has n rules, and all but the last are about smaller amounts. An ActionPolicy may have 16 for one action; a policy
// document may have more.
func longPolicy(n int) (*policy.Set, error) {
	var text strings.Builder
	text.WriteString("schema: ctrlrun.policy/v2\nactions:\n  stripe.refund:\n    effect: \"refund:{payment_id}\"\n    resource: \"payment:{payment_id}\"\n    rules:\n")
	for i := range n - 1 {
		fmt.Fprintf(&text, "    - {when: {amount_gte: %d, amount_lte: %d}, decision: approve}\n", 10*i, 10*i+9)
	}
	text.WriteString("    - {when: {amount_lte: 50000}, decision: allow}\n")
	document, findings, err := policy.ParseYAML("policy.yaml", []byte(text.String()))
	if err != nil {
		return nil, err
	}
	if policy.HasErrors(findings) {
		return nil, fmt.Errorf("the policy is invalid: %v", findings)
	}
	return policy.NewSet([]policy.Source{document.Source("payments")}), nil
}
