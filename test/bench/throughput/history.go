package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/google/uuid"

	"ctrlrun.dev/operator/api/v1alpha1"
	sdk "ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/records"
)

// life is one action with everything that is stored of it. Copies of it differ in what tells actions apart, and are as true
// as it is: keys, names, tokens and hashes are computed as the product computes them.
type life struct {
	action  v1alpha1.Action
	effect  v1alpha1.Effect
	objects []entry // all but the receipt
	receipt *entry  // nil: it has none yet
}

// lifeOf is that of the only action with the given name.
func lifeOf(ctx context.Context, from *store, name string) (*life, error) {
	l := &life{}
	for _, resource := range []string{"actions", "effects", "outcomes", "receipts"} {
		all, err := from.records(ctx, resource)
		if err != nil {
			return nil, err
		}
		for _, e := range all {
			if !strings.Contains(e.value, name) {
				continue
			}
			if resource == "receipts" {
				l.receipt = &e
				continue
			}
			l.objects = append(l.objects, e)
			into := map[string]any{"actions": &l.action, "effects": &l.effect, "outcomes": &v1alpha1.Outcome{}}[resource]
			if err := json.Unmarshal([]byte(e.value), into); err != nil {
				return nil, fmt.Errorf("%s: %w", e.key, err)
			}
		}
	}
	if l.action.Name != name || l.effect.Name == "" {
		return nil, fmt.Errorf("etcd does not hold action %s and its effect", name)
	}
	return l, nil
}

// another is a copy of it, and what makes one of the rest.
func (l *life) another() (*life, *strings.Replacer, error) {
	id := strings.TrimPrefix(l.action.Name, "refund-")
	next := uuid.NewString()
	key := strings.Replace(l.effect.Spec.Key, id, next, 1)
	token, err := effect.Token(key, big.NewInt(1))
	if err != nil {
		return nil, nil, err
	}
	pairs := []string{
		id, next,
		l.effect.Name, action.EffectName(key),
		l.effect.Status.Token, token,
		l.action.Spec.ClaimID, uuid.NewString(),
		string(l.action.UID), uuid.NewString(),
		string(l.effect.UID), uuid.NewString(),
	}
	hash, err := hashWith(l.action, strings.NewReplacer(pairs...))
	if err != nil {
		return nil, nil, err
	}
	change := strings.NewReplacer(append(pairs, l.action.Status.ActionHash, hash)...)
	c := &life{}
	for _, e := range l.objects {
		c.objects = append(c.objects, entry{key: change.Replace(e.key), value: change.Replace(e.value)})
	}
	return c, change, nil
}

// hashWith is the hash of the action with other arguments.
func hashWith(a v1alpha1.Action, change *strings.Replacer) (string, error) {
	a.Spec.Arguments.Raw = []byte(change.Replace(string(a.Spec.Arguments.Raw)))
	if a.Status.Resource != nil {
		resource := change.Replace(*a.Status.Resource)
		a.Status.Resource = &resource
	}
	p, err := sdk.KernelProposal(&a, v1alpha1.DefaultEnvironment)
	if err != nil {
		return "", err
	}
	return p.Hash()
}

// linked is the copy's receipt, as the link after head.
func (l *life) linked(change *strings.Replacer, head receipt.Link) (entry, receipt.Link, error) {
	o := &v1alpha1.Receipt{}
	text := change.Replace(l.receipt.value)
	if err := json.Unmarshal([]byte(text), o); err != nil {
		return entry{}, head, err
	}
	document, err := receipt.Parse(records.Entry(o))
	if err != nil {
		return entry{}, head, err
	}
	link, err := document.Entry(head)
	if err != nil {
		return entry{}, head, err
	}
	value, err := withFields(text, func(o map[string]any) {
		metadata, spec := o["metadata"].(map[string]any), o["spec"].(map[string]any)
		metadata["name"], metadata["uid"] = receipt.Name(namespace, link.Seq), uuid.NewString()
		spec["seq"], spec["hash"], spec["document"] = link.Seq, link.Hash, link.Document
	})
	key := l.receipt.key[:strings.LastIndex(l.receipt.key, "/")+1] + receipt.Name(namespace, link.Seq)
	return entry{key: key, value: value}, link.Link(), err
}

// withFields changes an object, whose numbers stay as they are.
func withFields(text string, change func(map[string]any)) (string, error) {
	var o map[string]any
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&o); err != nil {
		return "", err
	}
	change(o)
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(o)
	return strings.TrimSpace(b.String()), err
}

// finishedActions writes n more copies of a finished action with their receipts, and the head that the chain then has.
func finishedActions(ctx context.Context, to *store, like string, n int) error {
	l, err := lifeOf(ctx, to, like)
	if err != nil {
		return err
	}
	if l.receipt == nil {
		return fmt.Errorf("action %s has no receipt", like)
	}
	chain, err := to.records(ctx, "receipts")
	if err != nil {
		return err
	}
	newest := &v1alpha1.Receipt{}
	last := slices.MaxFunc(chain, func(a, b entry) int { return strings.Compare(a.key, b.key) })
	if err := json.Unmarshal([]byte(last.value), newest); err != nil {
		return err
	}
	head := records.Entry(newest).Link()
	for done := 0; done < n; {
		var all []entry
		for ; done < n && len(all) < 10*batch; done++ {
			c, change, err := l.another()
			if err != nil {
				return err
			}
			var link entry
			if link, head, err = l.linked(change, head); err != nil {
				return err
			}
			all = append(all, append(c.objects, link)...)
		}
		if err := to.write(ctx, all); err != nil {
			return err
		}
	}
	return setHead(ctx, to, head)
}

// setHead is the operator's checkpoint.
func setHead(ctx context.Context, to *store, head receipt.Link) error {
	ledgers, err := to.read(ctx, "/registry/ctrlrun.dev/ledgers/"+namespace)
	if err != nil {
		return err
	}
	if len(ledgers) != 1 {
		return fmt.Errorf("etcd holds %d ledgers of %s, not one", len(ledgers), namespace)
	}
	value, err := withFields(ledgers[0].value, func(o map[string]any) {
		status := o["status"].(map[string]any)
		status["seq"], status["hash"] = head.Seq, head.Hash
	})
	if err != nil {
		return err
	}
	return to.write(ctx, []entry{{key: ledgers[0].key, value: value}})
}

// admittedActions writes n more copies of an action that is admitted and not reported, and gives all of them, the first
// included.
func admittedActions(ctx context.Context, to *store, like string, n int) ([]v1alpha1.Action, error) {
	l, err := lifeOf(ctx, to, like)
	if err != nil {
		return nil, err
	}
	if l.action.Status.State != v1alpha1.ActionAdmitted || l.receipt != nil || len(l.objects) != 2 {
		return nil, fmt.Errorf("action %s is not one that is admitted and waits for its report", like)
	}
	actions := []v1alpha1.Action{l.action}
	var all []entry
	for range n {
		c, _, err := l.another()
		if err != nil {
			return nil, err
		}
		all = append(all, c.objects...)
		a := v1alpha1.Action{}
		if err := json.Unmarshal([]byte(c.objects[0].value), &a); err != nil {
			return nil, err
		}
		actions = append(actions, a)
	}
	return actions, to.write(ctx, all)
}
