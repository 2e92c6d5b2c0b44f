package verify

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"k8s.io/client-go/rest"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/kernel/guarantees"
)

// Options say what to verify, and how to reach the cluster.
type Options struct {
	// Config and Kube are of whoever runs this: they make the scratch namespace and who is in it, and do nothing else.
	Config *rest.Config
	Kube   kube.Client
	// Namespace the policies are from, for the report; Policies, Settings (nil: none), Grants, which are read where Settings require
	// them, and Environment are what is copied.
	Namespace   string
	Policies    []Policy
	Settings    *Settings
	Grants      []Grant
	Environment string
	// Selected are the guarantees to check.
	Selected map[guarantees.ID]bool
	// Version of this build.
	Version string
	// Executable is this program: it is started again for what needs processes.
	Executable string
	// Command makes the executor that runs a command, given the one exit code that means "not executed".
	Command func(notExecutedExit int, words []string) (client.Function, error)
	// Note tells people how it goes on.
	Note func(format string, args ...any)
}

// run is one run.
type run struct {
	Options
	absent string
	dir    string // of what stands for remote systems
	report *Report
}

// defaultLease is what actions ask for, if the Settings allow that much. None of them takes it.
const defaultLease = 300 * time.Second

func (r *run) lease() time.Duration {
	if r.Settings == nil {
		return defaultLease
	}
	return min(defaultLease, time.Duration(r.Settings.MaxLeaseSeconds)*time.Second)
}

// Run plans, makes the scratch namespace, plays every scenario that is applicable and selected, and removes the namespace. The
// error is an *UnusableError if there is nothing to verify or no right to, a *SilentError if no operator answers. With an error there
// is no report, unless it is a *LeftBehindError alone.
func Run(ctx context.Context, o Options) (*Report, error) {
	r := &run{Options: o, report: &Report{
		Schema: Schema, Catalogue: guarantees.Catalogue, Version: o.Version, Start: time.Now().UTC(),
		Namespace: o.Namespace, Environment: o.Environment, Policies: o.Policies, Settings: o.Settings, Grants: o.Grants,
	}}
	plans, err := r.plan()
	if err != nil {
		return nil, err
	}
	s := &scratch{namespace: newName(), id: newID(), config: o.Config}
	if s.admin, err = newAdmin(o.Config, o.Kube); err != nil {
		return nil, err
	}
	if err := s.mayCreate(ctx); err != nil {
		return nil, err
	}
	if r.dir, err = os.MkdirTemp("", namePrefix); err != nil {
		return nil, err
	}
	defer os.RemoveAll(r.dir)
	r.report.Scratch = Scratch{Namespace: s.namespace, Ledger: s.namespace}
	var removal error
	remove := func(ctx context.Context) {
		if s.unsure {
			o.Note("it is not known whether the scratch namespace %s was created: looking for it for %s, to remove it", s.namespace, removePatience)
		}
		r.report.Scratch.Removed, removal = s.remove(ctx)
		if removal == nil && !r.report.Scratch.Removed {
			o.Note("the scratch namespace is being deleted, and not gone yet: kubectl get namespace %s", s.namespace)
		}
	}
	err = in(ctx, func(ctx context.Context) error { return s.create(ctx, o.Environment) }, remove, func(ctx context.Context) error {
		o.Note("scratch namespace %s", s.namespace)
		return r.play(ctx, s, plans)
	})
	if err != nil {
		return nil, errors.Join(err, removal)
	}
	r.report.Finish = time.Now().UTC()
	r.report.count()
	return r.report, removal
}

// plan says what is to be driven. With nothing that is applicable and selected there is nothing to verify.
func (r *run) plan() ([]guarantees.Plan, error) {
	sources, err := Sources(r.Policies)
	if err != nil {
		return nil, err
	}
	if r.absent, err = guarantees.Absent(sources); err != nil {
		return nil, err
	}
	plans, err := guarantees.Plans(sources, r.Environment, r.authority(), r.Settings.proposed())
	if err != nil {
		return nil, err
	}
	var reasons []error
	for _, p := range plans {
		if !r.Selected[p.Guarantee.ID] {
			continue
		}
		if p.NotApplicable == "" {
			return plans, nil
		}
		reasons = append(reasons, fmt.Errorf("  %s %s", p.Guarantee.ID, p.NotApplicable))
	}
	return nil, unusable("nothing was verified: no guarantee is applicable to these policies\n%w", errors.Join(reasons...))
}

// authority is what the namespace says about who may propose; nil where nobody needs a grant.
func (r *run) authority() *guarantees.Authority {
	if !r.Settings.required() {
		return nil
	}
	a := &guarantees.Authority{MaxDepth: r.Settings.MaxDelegationDepth}
	for _, g := range r.Grants {
		a.Grants = append(a.Grants, g.document)
	}
	return a
}

// play sets the stage and plays the scenarios, in the order of the catalogue.
func (r *run) play(ctx context.Context, s *scratch, plans []guarantees.Plan) error {
	if err := s.people(ctx, r.approvers(plans), r.Settings.aliased()); err != nil {
		return err
	}
	if err := s.rules(ctx, r.Policies, r.Settings, r.Grants); err != nil {
		return err
	}
	// What takes time by itself begins first.
	stages, begun := map[guarantees.ID]*stage{}, map[guarantees.ID]error{}
	for _, p := range plans {
		stages[p.Guarantee.ID] = &stage{scratch: s, plan: p, run: r}
		if begin := beginnings()[p.Guarantee.ID]; begin != nil && r.Selected[p.Guarantee.ID] && p.NotApplicable == "" {
			err := begin(ctx, stages[p.Guarantee.ID])
			if f := (*finding)(nil); err != nil && !errors.As(err, &f) {
				return fmt.Errorf("%s %s: %w", p.Guarantee.ID, p.Guarantee.Title, err)
			}
			begun[p.Guarantee.ID] = err
		}
	}
	for _, p := range plans {
		result, err := r.result(ctx, stages[p.Guarantee.ID], begun[p.Guarantee.ID])
		if err != nil {
			return fmt.Errorf("%s %s: %w", p.Guarantee.ID, p.Guarantee.Title, err)
		}
		r.report.Guarantees = append(r.report.Guarantees, result)
	}
	return nil
}

// approvers is how many people are needed.
func (r *run) approvers(plans []guarantees.Plan) int {
	n := 0
	for _, p := range plans {
		for _, v := range p.Vectors {
			if r.Selected[p.Guarantee.ID] {
				n = max(n, v.Approvals)
			}
		}
	}
	return n
}

// result is what becomes of one guarantee, which has begun with that error.
func (r *run) result(ctx context.Context, stage *stage, err error) (Result, error) {
	p := stage.plan
	result := Result{ID: p.Guarantee.ID, Title: p.Guarantee.Title, Status: Pass, Arguments: []byte("null")}
	because := func(status Status, reason string) (Result, error) {
		result.Status, result.Reason = status, &reason
		return result, nil
	}
	if !r.Selected[p.Guarantee.ID] {
		return because(Skipped, notSelected)
	}
	if p.NotApplicable != "" {
		return because(NotApplicable, p.NotApplicable)
	}
	v := p.Vectors[0]
	result.ActionType, result.Arguments, result.EffectKey, result.Approvals = &v.ActionType, argumentsOf(v), v.EffectKey, v.Approvals
	begin := time.Now()
	if err == nil {
		result.Detail, err = scenarios()[p.Guarantee.ID](ctx, stage)
	}
	result.duration = time.Since(begin)
	var f *finding
	if errors.As(err, &f) {
		result.Counterexample = stage.counterexample(ctx, f)
		r.Note("%s %s: fail", p.Guarantee.ID, p.Guarantee.Title)
		return because(Fail, f.reason)
	}
	if err == nil {
		r.Note("%s %s: pass", p.Guarantee.ID, p.Guarantee.Title)
	}
	return result, err
}

// beginnings are the first halves of scenarios, by guarantee.
func beginnings() map[guarantees.ID]func(context.Context, *stage) error {
	return map[guarantees.ID]func(context.Context, *stage) error{guarantees.G20: leaves}
}

// scenarios by guarantee.
func scenarios() map[guarantees.ID]func(context.Context, *stage) (any, error) {
	return map[guarantees.ID]func(context.Context, *stage) (any, error){
		guarantees.G1: mutated, guarantees.G2: replayed, guarantees.G3: duplicate, guarantees.G4: oneWinner, guarantees.G5: blindRetry,
		guarantees.G6: unknownAction, guarantees.G7: noPrincipal, guarantees.G8: expired, guarantees.G9: escalation, guarantees.G10: unknownException,
		guarantees.G11: altered, guarantees.G14: renewedToken, guarantees.G15: ceiling, guarantees.G16: moved, guarantees.G17: unentitled,
		guarantees.G18: selfApproval, guarantees.G19: countedOnce, guarantees.G20: revokedCredential, guarantees.G21: unapprovedChange,
	}
}
