package verify

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/receipt"
)

// keptPolicy is the admission policy that keeps receipts from being deleted.
const keptPolicy = "ctrlrun-records-kept"

// altered: G11. A receipt of the scratch chain is altered in a copy, one member at a time, and each time the verification names it.
// In the cluster nobody can alter or delete it.
func altered(ctx context.Context, s *stage) (any, error) {
	o, err := s.leaveReceipt(ctx)
	if err != nil {
		return nil, err
	}
	entries, err := s.chain(ctx)
	if err != nil {
		return nil, err
	}
	head := receipt.Link{Seq: o.Status.ReceiptRef.Seq, Hash: o.Status.ReceiptRef.Hash}
	members, err := s.detected(receipt.Verify, entries, head)
	if err != nil {
		return nil, err
	}
	detail := map[string]any{"receipts": len(entries), "seq": head.Seq, "altered": slices.Sorted(maps.Keys(members))}
	return detail, s.kept(ctx, o, members["result"])
}

// judge is what verifies a chain.
type judge func([]receipt.Entry, receipt.Options) receipt.Report

// detected checks that the chain is intact as it is, and that it is not with any member of the receipt at head altered. It gives the
// altered documents.
func (s *stage) detected(verify judge, entries []receipt.Entry, head receipt.Link) (map[string]string, error) {
	s.control = true
	if report := verify(entries, receipt.Options{Head: &head}); report.Verdict != receipt.Intact {
		return nil, s.fail("the chain as it was written is intact", "it is %s: %v", report.Verdict, report.Breaks)
	}
	at := slices.IndexFunc(entries, func(e receipt.Entry) bool { return e.Seq == head.Seq })
	if at < 0 {
		return nil, s.fail(fmt.Sprintf("the chain has receipt %d, to which its action refers", head.Seq), "it has not")
	}
	s.control = false
	members, err := alterations(entries[at])
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		copied := slices.Clone(entries)
		copied[at].Document = members[name]
		report := verify(copied, receipt.Options{Head: &head})
		if len(report.Breaks) != 1 || report.Breaks[0].Name != receipt.ContentAltered || report.Breaks[0].Seq != head.Seq {
			return nil, s.fail(fmt.Sprintf("receipt %d with another %s is named: %s %d", head.Seq, name, receipt.ContentAltered, head.Seq),
				"it is %s: %v", report.Verdict, report.Breaks)
		}
	}
	return members, nil
}

// leaveReceipt drives an action to whatever end the policy gives it.
func (s *stage) leaveReceipt(ctx context.Context) (*v1alpha1.Action, error) {
	s.control = true
	defer func() { s.control = false }()
	v := s.plan.Vectors[0]
	r, err := s.remoteFor("receipt")
	if err != nil {
		return nil, err
	}
	call, err := s.propose(ctx, "receipt", v)
	if err != nil {
		return nil, err
	}
	if v.Decision == decision.Deny {
		return s.over(ctx, call.Action().Name)
	}
	if err := s.settle(ctx, call.Action().Name, v); err != nil {
		return nil, err
	}
	if err := s.commits(ctx, call, r); err != nil {
		return nil, err
	}
	return s.over(ctx, call.Action().Name)
}

// chain is the scratch namespace's, as it is exported.
func (s *stage) chain(ctx context.Context) ([]receipt.Entry, error) {
	list := &v1alpha1.ReceiptList{}
	if err := s.viewer.kube().List(ctx, list, kube.InNamespace(s.namespace)); err != nil {
		return nil, fmt.Errorf("list the receipts: %w", err)
	}
	var entries []receipt.Entry
	for i := range list.Items {
		spec := list.Items[i].Spec
		entries = append(entries, receipt.Entry{Seq: spec.Seq, Hash: spec.Hash, Document: spec.Document})
	}
	return entries, nil
}

// alterations are the document of a receipt with one member changed, by the member's name. Each is a document again, in canonical
// form: only the hash can tell.
func alterations(e receipt.Entry) (map[string]string, error) {
	value, err := canonical.Parse([]byte(e.Document))
	if err != nil {
		return nil, fmt.Errorf("receipt %d: %w", e.Seq, err)
	}
	document, ok := value.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("receipt %d is not an object", e.Seq)
	}
	out := map[string]string{}
	for name, other := range map[string]any{
		"arguments": map[string]any{"ctrlrun_verify_altered": true}, "decision": "altered", "result": "altered", "finished_time": "2026-01-01T00:00:00.000Z",
	} {
		changed := maps.Clone(document)
		changed[name] = other
		text, err := canonical.Encode(changed)
		if err != nil {
			return nil, fmt.Errorf("alter receipt %d: %w", e.Seq, err)
		}
		out[name] = string(text)
	}
	return out, nil
}

// kept checks that somebody whom RBAC lets update and delete receipts can do neither.
func (s *stage) kept(ctx context.Context, o *v1alpha1.Action, document string) error {
	stored := &v1alpha1.Receipt{}
	key := kube.ObjectKey{Namespace: s.namespace, Name: o.Status.ReceiptRef.Name}
	if err := s.tamperer.kube().Get(ctx, key, stored); err != nil {
		return fmt.Errorf("read receipt %s: %w", key.Name, err)
	}
	changed := stored.DeepCopy()
	changed.Spec.Document = document
	err := s.tamperer.kube().Update(ctx, changed)
	switch {
	case err == nil:
		return s.fail("an update of receipt "+key.Name+" is refused", "it was taken")
	case !client.Refused(err) && !apierrors.IsInvalid(err):
		return err
	}
	expected := "a deletion of receipt " + key.Name + " is refused by " + keptPolicy
	err = s.tamperer.kube().Delete(ctx, stored)
	switch {
	case err == nil:
		return s.fail(expected, "it was deleted")
	case !client.Refused(err):
		return err
	case !strings.Contains(err.Error(), "ValidatingAdmissionPolicy '"+keptPolicy+"'"):
		return s.fail(expected, "it is refused by something else: %v", err)
	}
	return nil
}
