package controllers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/policy"
	"ctrlrun.dev/operator/records"
)

// maxWarnings is how many warnings a policy's status shows.
const maxWarnings = 32

// policyReconciler says of each ActionPolicy whether it is valid, and what in it looks like a mistake. What decides is the
// content of the cache, not this status.
type policyReconciler struct {
	client   client.Client
	reader   client.Reader
	clock    Clock
	policies *policyCache
}

var _ reconcile.Reconciler = &policyReconciler{}

// Reconcile implements reconcile.Reconciler.
func (r *policyReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	o := &v1alpha1.ActionPolicy{}
	if err := r.client.Get(ctx, request.NamespacedName, o); err != nil {
		if apierrors.IsNotFound(err) {
			r.policies.forget(request.NamespacedName)
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, err
	}
	parsed := r.policies.parse(o)
	next := o.DeepCopy()
	warnings, err := r.warnings(ctx, o, parsed)
	if err != nil {
		return ctrl.Result{}, err
	}
	conflicts, err := r.conflicts(ctx, o, parsed)
	if err != nil {
		return ctrl.Result{}, err
	}
	s := &next.Status
	s.ObservedGeneration, s.RulesHash, s.ActionCount = o.Generation, parsed.source.RulesHash, int64(len(parsed.source.Actions))
	s.WarningCount, s.Warnings = int64(len(warnings)), nil
	if len(warnings) > 0 {
		s.Warnings = warnings[:min(len(warnings), maxWarnings)]
	}
	var problems []string
	for _, f := range parsed.findings {
		if !f.Warning {
			problems = append(problems, describe(f))
		}
	}
	set := func(kind string, status bool, reason, message string) {
		records.SetCondition(&s.Conditions, o.Generation, r.clock.Now(), kind, status, reason, message)
	}
	switch {
	case len(problems) > 0:
		message := "The actions it names are denied (policy_invalid) until it is corrected: " + strings.Join(problems, "; ")
		set(v1alpha1.ReadyCondition, false, "PolicyInvalid", message)
		set(v1alpha1.StalledCondition, true, "PolicyInvalid", message)
	case len(conflicts) > 0:
		message := "Defined differently by another ActionPolicy of this namespace, and therefore denied (policy_conflict): " + strings.Join(conflicts, ", ")
		set(v1alpha1.ReadyCondition, false, "PolicyConflict", message)
		set(v1alpha1.StalledCondition, true, "PolicyConflict", message)
	default:
		set(v1alpha1.ReadyCondition, true, "InForce", fmt.Sprintf("Generation %d is in force.", o.Generation))
		set(v1alpha1.StalledCondition, false, "InForce", "Nothing is wrong with it.")
	}
	if len(problems) == 0 {
		s.EffectTemplates = effectTemplates(parsed)
	}
	if !equalStatus(o.Status, next.Status) {
		if err := r.client.Status().Update(ctx, next); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
	}
	return ctrl.Result{}, nil
}

// conflicts are the actions another policy of the namespace defines differently.
func (r *policyReconciler) conflicts(ctx context.Context, o *v1alpha1.ActionPolicy, parsed parsedPolicy) ([]string, error) {
	set, err := r.policies.set(ctx, o.Namespace)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, name := range set.Conflicts() {
		if _, ours := parsed.source.Actions[name]; ours {
			names = append(names, name)
		}
	}
	return names, nil
}

// warnings are the policy's own, and those about a changed effect template: the keys it used to make no longer block.
func (r *policyReconciler) warnings(ctx context.Context, o *v1alpha1.ActionPolicy, parsed parsedPolicy) ([]string, error) {
	var warnings []string
	for _, f := range parsed.findings {
		if f.Warning {
			warnings = append(warnings, clipped(describe(f)))
		}
	}
	if o.Status.ObservedGeneration == o.Generation {
		// Said when the change came; it stays until the next.
		for _, w := range o.Status.Warnings {
			if strings.Contains(w, changedTemplate) {
				warnings = append(warnings, w)
			}
		}
		return warnings, nil
	}
	templates := effectTemplates(parsed)
	for _, action := range slices.Sorted(maps.Keys(o.Status.EffectTemplates)) {
		before, now := o.Status.EffectTemplates[action], templates[action]
		if _, still := parsed.source.Actions[action]; !still || before == now {
			continue
		}
		committed, err := r.committed(ctx, o.Namespace, action)
		if err != nil {
			return nil, err
		}
		if committed > 0 {
			warnings = append(warnings, clipped(fmt.Sprintf("spec.actions[%q].effect: %s from %q to %q: %d committed keys no longer block", action, changedTemplate, before, now, committed)))
		}
	}
	return warnings, nil
}

// describe says where in the spec something is wrong, and what.
func describe(f policy.Finding) string {
	if f.Path == "" {
		return "spec: " + f.Message
	}
	return "spec." + f.Path + ": " + f.Message
}

// clipped fits a warning into its field.
func clipped(s string) string { return records.Clip(s, 512) }

const changedTemplate = "the template changed"

func (r *policyReconciler) committed(ctx context.Context, namespace, action string) (n int, err error) {
	list := &v1alpha1.EffectList{}
	err = records.EachPage(ctx, r.reader, list, func() error {
		for i := range list.Items {
			if list.Items[i].Status.ActionType == action {
				n++
			}
		}
		return nil
	}, client.InNamespace(namespace), client.MatchingFields{"status.state": string(v1alpha1.EffectCommitted)}, client.Limit(100))
	if err != nil {
		return 0, fmt.Errorf("count committed effects: %w", err)
	}
	return n, nil
}

func effectTemplates(parsed parsedPolicy) map[string]string {
	templates := map[string]string{}
	for name, entry := range parsed.source.Actions {
		if !entry.Effect.IsZero() {
			templates[name] = entry.Effect.String()
		}
	}
	if len(templates) == 0 {
		return nil
	}
	return templates
}

func (r *policyReconciler) setup(mgr ctrl.Manager, options controller.Options) error {
	return ctrl.NewControllerManagedBy(mgr).Named("actionpolicy").
		For(&v1alpha1.ActionPolicy{}).
		// A conflict is between two; the other one has to say so too.
		Watches(&v1alpha1.ActionPolicy{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
			list := &v1alpha1.ActionPolicyList{}
			if err := r.client.List(ctx, list, client.InNamespace(o.GetNamespace())); err != nil {
				return nil
			}
			var requests []reconcile.Request
			for i := range list.Items {
				if list.Items[i].Name != o.GetName() {
					requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: list.Items[i].Name}})
				}
			}
			return requests
		}), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(options).
		Complete(r)
}

// chainOpener opens the chain of every namespace that has a policy: it will have receipts. So people see its Ledger, and a
// rollback is noticed before the first action comes.
type chainOpener struct {
	worlds  *worlds
	changed func()
}

var _ reconcile.Reconciler = &chainOpener{}

// Reconcile implements reconcile.Reconciler.
func (r *chainOpener) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	_, open, err := r.worlds.world(ctx, request.Name)
	if err != nil {
		if errors.Is(err, errNoNamespace) {
			err = nil
		}
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.newEpoch(ctx, request.Name, open)
}

// newEpoch opens the chain anew if another operator has had another head accepted.
func (r *chainOpener) newEpoch(ctx context.Context, namespace string, open *openChain) error {
	l := &v1alpha1.Ledger{}
	if err := r.worlds.cache.Get(ctx, types.NamespacedName{Name: namespace}, l); err != nil || l.Status == nil {
		return client.IgnoreNotFound(err)
	}
	open.mu.Lock()
	behind := l.Status.Epoch > open.epoch
	open.mu.Unlock()
	if !behind {
		return nil
	}
	ns := &corev1.Namespace{}
	if err := r.worlds.cache.Get(ctx, types.NamespacedName{Name: namespace}, ns); err != nil {
		return client.IgnoreNotFound(err)
	}
	if err := r.worlds.reopen(ctx, ns); err != nil {
		return err
	}
	r.changed()
	return nil
}

func (r *chainOpener) setup(mgr ctrl.Manager, options controller.Options) error {
	return ctrl.NewControllerManagedBy(mgr).Named("chain").
		Watches(&v1alpha1.ActionPolicy{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
			return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: o.GetNamespace()}}}
		}), builder.WithPredicates(predicate.Funcs{
			UpdateFunc: func(event.UpdateEvent) bool { return false },
			DeleteFunc: func(event.DeleteEvent) bool { return false },
		})).
		Watches(&v1alpha1.Ledger{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(ledgerTurns)).
		WithOptions(options).
		Complete(r)
}

// settingsReconciler says of Settings that they are in force.
type settingsReconciler struct {
	client   client.Client
	clock    Clock
	retained *retention
}

var _ reconcile.Reconciler = &settingsReconciler{}

// Reconcile implements reconcile.Reconciler.
func (r *settingsReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	r.retained.Look()
	o := &v1alpha1.Settings{}
	if err := r.client.Get(ctx, request.NamespacedName, o); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	next := o.DeepCopy()
	next.Status.ObservedGeneration = o.Generation
	records.SetCondition(&next.Status.Conditions, o.Generation, r.clock.Now(), v1alpha1.ReadyCondition, true, "InForce", fmt.Sprintf("Generation %d is in force.", o.Generation))
	records.SetCondition(&next.Status.Conditions, o.Generation, r.clock.Now(), v1alpha1.StalledCondition, false, "InForce", "Nothing is wrong with them.")
	if records.Settings(o).Observe {
		records.SetCondition(&next.Status.Conditions, o.Generation, r.clock.Now(), v1alpha1.EnforcingCondition, false, string(v1alpha1.ModeObserve), "Observe mode: nothing is enforced. Every action runs; what enforcing would have done is in status.wouldHave and in the receipts. To enforce: spec.mode: Enforce.")
	} else {
		records.SetCondition(&next.Status.Conditions, o.Generation, r.clock.Now(), v1alpha1.EnforcingCondition, true, string(v1alpha1.ModeEnforce), "What is not allowed is refused.")
	}
	if equalStatus(o.Status, next.Status) {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, client.IgnoreNotFound(r.client.Status().Update(ctx, next))
}

func (r *settingsReconciler) setup(mgr ctrl.Manager, options controller.Options) error {
	return ctrl.NewControllerManagedBy(mgr).Named("settings").For(&v1alpha1.Settings{}).WithOptions(options).Complete(r)
}
