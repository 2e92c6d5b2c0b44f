package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os/exec"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/receipt"
)

// receipts: the policy and the settings that came into force; of the first four stories, three attempts and a resolution, two,
// three, two; of the fifth, the grant and the settings, two delegations, two that were refused, a revocation, two actions.
const wantReceipts = 2 + 4 + 2 + 3 + 2 + 2 + 2 + 2 + 1 + 2

// ambiguousReceipt is the first receipt of the stories: the one of the lost reply.
const ambiguousReceipt = 3

// proof: every action left one receipt, and anybody can check the chain with what every machine has.
func (d *demo) proof(ctx context.Context) error {
	d.tell(`Every action that ended left one receipt, so did what Rosa said, what was granted, handed on and cut, and the rules that decided. Each holds the
		hash of the one before.`)
	// What came into force is put on record within about a second of it.
	last := &v1alpha1.Receipt{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: receipt.Name(namespace, wantReceipts)}}
	if err := d.until(ctx, last, "there", func() bool { return true }); err != nil {
		return err
	}
	err := d.audrey.typesForTable(ctx, "kubectl ctrlrun receipts", "TYPE", "AGENT", "AGE")
	if err != nil {
		return err
	}
	receipts, err := d.receipts(ctx)
	if err != nil {
		return err
	}
	expect(d, fmt.Sprintf("there are %d receipts", wantReceipts), len(receipts), wantReceipts)
	r, err := d.audrey.types(ctx, "kubectl ctrlrun receipts verify")
	if err != nil {
		return err
	}
	expect(d, "the chain is intact", r.code, 0)
	expect(d, "all of it was verified", strings.Contains(r.output, fmt.Sprintf("intact: %d receipts, head %d:sha256:", wantReceipts, wantReceipts)), true)

	matching, seen, previous := 0, map[receipt.Identity]bool{}, receipt.Genesis
	for _, one := range receipts {
		e := receipt.Entry{Seq: one.Spec.Seq, Hash: one.Spec.Hash, Document: one.Spec.Document}
		document, err := receipt.Parse(e)
		if err != nil {
			return fmt.Errorf("receipt %d: %w", e.Seq, err)
		}
		id, err := receipt.IdentityOf(e)
		if err != nil {
			return fmt.Errorf("receipt %d: %w", e.Seq, err)
		}
		if e.Hash == fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(e.Document))) && document.PrevHash == previous && !seen[id] {
			matching++
		}
		seen[id], previous = true, e.Hash
	}
	expect(d, "each is the SHA-256 of its document, follows the one before, and is about something else", matching, wantReceipts)
	if err := d.byHand(ctx); err != nil {
		return err
	}
	if err := d.forged(ctx); err != nil {
		return err
	}
	expect(d, "in all stories together the provider paid four times", d.provider.total(), 4)
	return nil
}

// byHand checks one receipt without any program of ours, where the machine has one to do it with.
func (d *demo) byHand(ctx context.Context) error {
	for _, sum := range []string{"sha256sum", "shasum -a 256"} {
		if _, err := exec.LookPath(strings.Fields(sum)[0]); err != nil {
			continue
		}
		name := receipt.Name(namespace, wantReceipts)
		d.tell(`No program of ours is needed to check one.`)
		hash, err := d.audrey.types(ctx, "kubectl get receipt %s -o jsonpath={.spec.hash}", name)
		if err != nil {
			return err
		}
		computed, err := d.audrey.types(ctx, "kubectl get receipt %s -o jsonpath={.spec.document} | %s", name, sum)
		if err != nil {
			return err
		}
		got, _, _ := strings.Cut(computed.output, " ")
		expect(d, "they are the same", "sha256:"+got, strings.TrimSpace(hash.output))
		return nil
	}
	return nil
}

// forged: one word of an exported receipt is changed.
func (d *demo) forged(ctx context.Context) error {
	d.tell(`Somebody who would rather have had another result changes one word of an export.`)
	for _, command := range []string{
		"kubectl ctrlrun receipts export > receipts.jsonl",
		fmt.Sprintf("sed %ds/ambiguous/committed/ receipts.jsonl > forged.jsonl", ambiguousReceipt),
	} {
		if _, err := d.audrey.types(ctx, "%s", command); err != nil {
			return err
		}
	}
	r, err := d.audrey.types(ctx, "kubectl ctrlrun receipts verify -f forged.jsonl")
	if err != nil {
		return err
	}
	expect(d, "the change is found, and where", r.code == 1 && strings.Contains(r.output, fmt.Sprintf("%s %d\n", receipt.ContentAltered, ambiguousReceipt)), true)
	return nil
}
