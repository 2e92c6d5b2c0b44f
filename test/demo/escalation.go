package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/action"
)

// The chain of the story, each a part of the one before: whom it is for, and up to which amount.
const (
	ofHead    = "amount_lte: 10000000"
	ofFinance = "amount_lte: 2500000"
	ofSupport = "amount_lte: 200000"
	tooMuch   = "amount_lte: 5000000"
)

// escalation: authority gets smaller with each step it is handed on, and no step makes it larger again.
func (d *demo) escalation(ctx context.Context) error {
	if err := d.requireAuthority(ctx); err != nil {
		return err
	}
	if err := d.handOn(ctx); err != nil {
		return err
	}
	if err := d.proposeTooMuch(ctx); err != nil {
		return err
	}
	if err := d.widen(ctx); err != nil {
		return err
	}
	return d.cut(ctx)
}

// requireAuthority: from here on policy alone lets nobody propose.
func (d *demo) requireAuthority(ctx context.Context) error {
	d.tell(`Policy says what may be done, a grant says who may do it. The policy asks two people for every stripe.payout, of any amount.
		Olga grants payouts up to 100,000.00 to the head of finance, who may hand them on; and from now on grants are required.`)
	if err := d.write("grant.yaml", "apiVersion: ctrlrun.dev/v1alpha1\nkind: Grant\nmetadata:\n  name: payouts\nspec:\n"+
		d.terms("  ", d.head.user.Name, ofHead, "delegable: true")); err != nil {
		return err
	}
	for _, command := range []string{
		"cat grant.yaml",
		"kubectl apply --server-side -f grant.yaml",
		`kubectl patch settings default --type=merge -p '{"spec":{"authority":"Required"}}'`,
	} {
		r, err := d.olga.types(ctx, "%s", command)
		if err != nil {
			return err
		}
		if r.code != 0 {
			return fmt.Errorf("%s: exit code %d", command, r.code)
		}
	}
	grant := &v1alpha1.Grant{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "payouts"}}
	err := d.until(ctx, grant, "in force", func() bool {
		return meta.IsStatusConditionTrue(grant.Status.Conditions, v1alpha1.ReadyCondition)
	})
	if err != nil {
		return err
	}
	settings := &v1alpha1.Settings{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.SettingsName}}
	return d.until(ctx, settings, "in force", func() bool { return settings.Status.ObservedGeneration == settings.Generation })
}

// handOn makes the chain.
func (d *demo) handOn(ctx context.Context) error {
	for _, step := range []struct {
		story                  string
		by                     *person
		parent, name, to, upTo string
		last                   string
		depth                  int64
		// shown are the last lines that are shown: the table of the first is enough, and that of the second is too wide.
		shown int
	}{
		{`The head of finance hands a quarter of it on to the agent of finance, which may hand it on again.`, d.head, "Grant/payouts", "finance", d.finance.user.Name, ofFinance, "delegable: true", 1, 100},
		{`That agent hands 2,000.00 on to the agent of the support, which may not.`, d.finance, "Delegation/finance", "support", d.support.user.Name, ofSupport, "", 2, 4},
	} {
		d.tell(step.story)
		if err := d.write(step.name+".yaml", d.terms("", step.to, step.upTo, step.last)); err != nil {
			return err
		}
		r, err := step.by.typesLong(ctx, step.shown, "kubectl ctrlrun delegate --parent %s --name %s \\\n-f %s.yaml --yes", step.parent, step.name, step.name)
		if err != nil {
			return err
		}
		expect(d, "it is accepted", r.code, 0)
		made, err := d.judged(ctx, step.name)
		if err != nil {
			return err
		}
		expect(d, fmt.Sprintf("it is %d below the grant", step.depth), made.Status.Depth, step.depth)
	}
	return nil
}

// proposeTooMuch: what is beyond the grant is refused before policy asks anybody.
func (d *demo) proposeTooMuch(ctx context.Context) error {
	d.tell(`The agent of the support proposes 50,000.00.`)
	r, err := d.support.types(ctx, "kubectl ctrlrun propose stripe.payout payout_id=po_1 amount:=5000000 --wait")
	if err != nil {
		return err
	}
	over, err := d.ended(ctx, action.EffectName("payout:po_1"))
	if err != nil {
		return err
	}
	d.denied(over)
	expect(d, "it is denied by its own limit", ending(over), "Denied authority_constraint")
	expect(d, "exit code 3", r.code, 3)
	expect(d, "and nobody was asked", over.Status.Approval == nil, true)
	return nil
}

// widen: the verdict is the operator's, so a client that asks nobody before it creates something is refused all the same.
func (d *demo) widen(ctx context.Context) error {
	for _, attempt := range []struct {
		story        string
		by           *person
		parent, name string
		to, upTo     string
		says, want   string
	}{
		{`The agent of finance, which has 25,000.00, hands 50,000.00 on. It does not ask the plugin, which would tell it, but creates the object.`,
			d.finance, "finance", "wider", d.support.user.Name, tooMuch, "a part is never larger than the whole", "Containment (constraints)"},
		{`The agent of the support hands on what it has, and not a cent more.`,
			d.support, "support", "friend", d.rival.user.Name, ofSupport, "what may not be handed on is not", "ParentNotDelegable"},
	} {
		d.tell(attempt.story)
		file := attempt.name + ".yaml"
		if err := d.write(file, "apiVersion: ctrlrun.dev/v1alpha1\nkind: Delegation\nmetadata:\n  name: "+attempt.name+"\nspec:\n"+
			"  parentRef: {kind: Delegation, name: "+attempt.parent+"}\n"+d.terms("  ", attempt.to, attempt.upTo, "")); err != nil {
			return err
		}
		r, err := attempt.by.types(ctx, "kubectl create -f %s", file)
		if err != nil {
			return err
		}
		expect(d, "it may say it", r.code, 0)
		made, err := d.judged(ctx, attempt.name)
		if err != nil {
			return err
		}
		if _, err := attempt.by.types(ctx, "kubectl get delegation %s \\\n-o jsonpath='{.status.conditions[?(@.type==\"Accepted\")].message}'", attempt.name); err != nil {
			return err
		}
		c := meta.FindStatusCondition(made.Status.Conditions, v1alpha1.AcceptedCondition)
		reason := c.Reason
		if made.Status.Dimension != "" {
			reason += " (" + made.Status.Dimension + ")"
		}
		d.say("")
		d.refused("REFUSED", fmt.Sprintf("by the operator, Accepted=%s, reason %s: %s", c.Status, reason, made.Name))
		expect(d, attempt.says, string(c.Status)+" "+reason, "False "+attempt.want)
	}
	return nil
}

// cut: what is within the chain goes on to policy, until one write ends the chain.
func (d *demo) cut(ctx context.Context) error {
	d.tell(`1,500.00 are within every limit above it, so the policy is asked, which asks two people.`)
	r, err := d.support.types(ctx, "kubectl ctrlrun propose stripe.payout payout_id=po_2 amount:=150000 --wait")
	if err != nil {
		return err
	}
	expect(d, "it waits for people: exit code 5", r.code, 5)
	name := action.EffectName("payout:po_2")
	asked, err := d.reaches(ctx, name, v1alpha1.ActionAwaitingApproval)
	if err != nil {
		return err
	}
	expect(d, "the policy asks two", asked.Status.Approval.Required, 2)

	d.tell(`Before they answer, somebody sees the token of the agent of finance in a log. Olga cuts the chain in its middle.`)
	if r, err = d.olga.typesLong(ctx, 1, "kubectl ctrlrun revoke finance --yes --reason 'its token is in a log'"); err != nil {
		return err
	}
	expect(d, "it is revoked", r.code, 0)
	over, err := d.ended(ctx, name)
	if err != nil {
		return err
	}
	d.denied(over)
	expect(d, "what waits is denied: all that hangs below is cut", ending(over), "Denied authority_revoked")
	return d.olga.typesForTable(ctx, "kubectl ctrlrun grants", "SUBJECT", "ACTIONS", "CONSTRAINTS", "ENVIRONMENTS", "EXPIRES")
}

// write puts a file where people type.
func (d *demo) write(name, text string) error {
	return os.WriteFile(filepath.Join(d.work, name), []byte(text), 0o600)
}

// terms are what is granted: payouts of at most so much, all until the same moment.
func (d *demo) terms(indent, agent, limit, more string) string {
	lines := []string{
		"subject: {agent: " + fmt.Sprintf("%q", agent) + "}",
		"actions: [stripe.payout]",
		"constraints: {" + limit + "}",
		"expirationTime: " + fmt.Sprintf("%q", d.started.Add(24*time.Hour).UTC().Format(time.RFC3339)),
	}
	if more != "" {
		lines = append(lines, more)
	}
	return indent + strings.Join(lines, "\n"+indent) + "\n"
}

// judged waits until the operator has said whether a Delegation grants anything.
func (d *demo) judged(ctx context.Context, name string) (*v1alpha1.Delegation, error) {
	o := &v1alpha1.Delegation{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	return o, d.until(ctx, o, "judged", func() bool {
		return meta.FindStatusCondition(o.Status.Conditions, v1alpha1.AcceptedCondition) != nil
	})
}

// denied shows that the operator denied an Action.
func (d *demo) denied(a *v1alpha1.Action) {
	d.say("")
	d.refused("BLOCKED", fmt.Sprintf("by the operator, reason %s: %s", a.Status.Reason, a.Name))
}
