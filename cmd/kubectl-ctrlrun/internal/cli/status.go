package cli

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	corev1 "k8s.io/api/core/v1"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
	"ctrlrun.dev/operator/records"
)

const notVisible = "not visible to you"

// screen is what the command without arguments shows.
type screen struct {
	session  *session
	policies []v1alpha1.ActionPolicy
	waiting  []v1alpha1.Action
	pending  []v1alpha1.Action
	claims   []v1alpha1.Action
	effects  []v1alpha1.Effect
	unseen   map[string]bool
	known    admission
}

// status prints one screen: who you are, where, what waits, and the next step.
func (a *app) status(ctx context.Context) error {
	s, err := a.connect(ctx)
	if err != nil {
		return err
	}
	if err := s.namespaceThere(ctx); err != nil {
		return err
	}
	view := &screen{session: s, unseen: map[string]bool{}, known: s.admission(ctx)}
	if err := view.read(ctx); err != nil {
		return err
	}
	t := a.fields()
	t.row("You", s.user.Username)
	t.row("Cluster", s.cluster)
	t.row("Namespace", view.namespace(ctx))
	t.row("Mode", view.mode(ctx))
	t.row("BREAK GLASS", view.emergencies(ctx))
	t.row("Policies", view.policyLine())
	t.row("Waiting for approval", view.waitingLine())
	t.row("Waiting for a claim", view.count("claimable actions", len(view.claims)))
	t.row("Ambiguous effects", view.ambiguousLine())
	t.row("Held", view.heldLine())
	t.row("Admission", view.admission(ctx))
	t.gap()
	t.row("Next", view.next(ctx))
	t.flush()
	return nil
}

// read collects what the screen counts. What may not be read is said on the screen; a cluster without ctrlrun is an error.
func (v *screen) read(ctx context.Context) error {
	actions := func(state v1alpha1.ActionState, into *[]v1alpha1.Action) func() error {
		return func() error {
			var list v1alpha1.ActionList
			err := v.session.kube.List(ctx, &list, v.here(), notCanary, kube.MatchingFields{"status.state": string(state)})
			*into = list.Items
			return err
		}
	}
	for _, part := range []struct {
		name string
		read func() error
	}{
		{"policies", func() error {
			var list v1alpha1.ActionPolicyList
			err := v.session.kube.List(ctx, &list, v.here())
			v.policies = list.Items
			return err
		}},
		{"actions", actions(v1alpha1.ActionAwaitingApproval, &v.waiting)},
		{"pending actions", actions(v1alpha1.ActionPending, &v.pending)},
		{"claimable actions", actions(v1alpha1.ActionClaimable, &v.claims)},
		{"effects", func() error {
			list, err := v.session.effects(ctx, string(v1alpha1.EffectAmbiguous), false)
			v.effects = list.Items
			return err
		}},
	} {
		err := part.read()
		if exit.Of(err) == exit.Refused || apierrors.IsForbidden(err) {
			v.unseen[part.name] = true
			continue
		}
		if err != nil {
			return explain(err)
		}
	}
	return nil
}

func (v *screen) here() kube.InNamespace { return kube.InNamespace(v.session.Namespace()) }

func (v *screen) count(what string, n int) string {
	if v.unseen[what] {
		return notVisible
	}
	return fmt.Sprint(n)
}

func (v *screen) namespace(ctx context.Context) string {
	name := v.session.Namespace()
	var namespace corev1.Namespace
	if err := v.session.kube.Get(ctx, kube.ObjectKey{Name: name}, &namespace); err != nil {
		return name
	}
	return fmt.Sprintf("%s, environment %s", name, records.Environment(&namespace))
}

// emergencies says how many envelopes are open here, and until when; nothing where there are none, or whoever asks may not look.
func (v *screen) emergencies(ctx context.Context) string {
	var list v1alpha1.DelegationList
	if err := v.session.kube.List(ctx, &list, v.here()); err != nil {
		return ""
	}
	open, last := 0, time.Time{}
	for i := range list.Items {
		if until, yes := records.BrokenGlass(&list.Items[i], time.Now()); yes {
			open++
			if until.After(last) {
				last = until
			}
		}
	}
	if open == 0 {
		return ""
	}
	return fmt.Sprintf("%d open for an emergency, the last until %s; who and why: kubectl ctrlrun grants", open, last.UTC().Format(time.RFC3339))
}

func (v *screen) mode(ctx context.Context) string {
	var settings v1alpha1.Settings
	err := v.session.kube.Get(ctx, v.session.key(v1alpha1.SettingsName), &settings)
	switch {
	case apierrors.IsNotFound(err):
		return string(v1alpha1.ModeEnforce) + ", no Settings"
	case err != nil:
		return notVisible
	case settings.Spec.Mode == nil:
		return string(v1alpha1.ModeEnforce)
	}
	return string(*settings.Spec.Mode)
}

func (v *screen) policyLine() string {
	text := v.count("policies", len(v.policies))
	if invalid := v.invalid(); len(invalid) > 0 {
		text += ", not valid: " + strings.Join(invalid, ", ")
	}
	return text
}

func (v *screen) invalid() []string {
	var names []string
	for _, policy := range v.policies {
		if meta.IsStatusConditionTrue(policy.Status.Conditions, v1alpha1.StalledCondition) {
			names = append(names, policy.Name)
		}
	}
	return names
}

func (v *screen) waitingLine() string {
	if v.unseen["actions"] {
		return notVisible
	}
	return some(len(v.waiting), func(i int) string {
		return fmt.Sprintf("%s (%s, votes %s)", v.waiting[i].Name, v.waiting[i].Spec.ActionType, votes(&v.waiting[i]))
	})
}

func (v *screen) ambiguousLine() string {
	if v.unseen["effects"] {
		return notVisible
	}
	return some(len(v.effects), func(i int) string {
		return fmt.Sprintf("%s (%s)", v.effects[i].Name, effectStatus(&v.effects[i]).Cause)
	})
}

// some is a number and the first few of what is counted: one screen stays one screen.
func some(n int, name func(int) string) string {
	const shown = 5
	lines := []string{fmt.Sprint(n)}
	for i := 0; i < n && i < shown; i++ {
		lines = append(lines, name(i))
	}
	if n > shown {
		lines = append(lines, fmt.Sprintf("and %d more", n-shown))
	}
	return strings.Join(lines, "\n")
}

// heldLine says why undecided actions wait. Nothing is denied by a hold.
func (v *screen) heldLine() string {
	if v.unseen["pending actions"] {
		return notVisible
	}
	reasons := map[string]int{}
	for i := range v.pending {
		if reason := v.pending[i].Status.Reason; reason != "" {
			reasons[reason]++
		}
	}
	var words []string
	for reason, n := range reasons {
		words = append(words, fmt.Sprintf("%d by %s", n, reason))
	}
	sort.Strings(words)
	if len(words) == 0 {
		return "nothing"
	}
	return strings.Join(words, ", ")
}

// silent reports whether an Action has waited for its first word from the operator for too long.
func (v *screen) silent() bool {
	for i := range v.pending {
		if client.Untouched(&v.pending[i]) && time.Since(v.pending[i].CreationTimestamp.Time) > client.SilentAfter {
			return true
		}
	}
	return false
}

func (v *screen) admission(ctx context.Context) string {
	ledger, err := v.session.ledger(ctx)
	text := ""
	switch {
	case v.known.missing != "":
		text = "missing: " + v.known.missing
	case v.known.hidden:
		text = notVisible
	case !v.known.since.IsZero():
		text = "in force since " + v.known.since.UTC().Format(time.RFC3339)
	}
	if text != "" {
		if held := heldLedger(ledger); held != "" {
			text += "\n" + held
		}
		return text
	}
	switch {
	case err != nil:
		return notVisible
	case ledger == nil:
		return "no ledger yet: it begins with the first receipt, or the operator does not run"
	case ledger.Status == nil:
		return "unknown: the ledger has no status"
	}
	if held := heldLedger(ledger); held != "" {
		return held
	}
	if since := ledger.Status.AdmissionSince; since != nil {
		return fmt.Sprintf("in force for %s", ago(metav1.NewTime(since.Time)))
	}
	return "not proven yet: the operator has not seen it refuse a forged statement"
}

// heldLedger says why a chain is held, if it is.
func heldLedger(ledger *v1alpha1.Ledger) string {
	if ledger == nil || ledger.Status == nil {
		return ""
	}
	ready := meta.FindStatusCondition(ledger.Status.Conditions, v1alpha1.ReadyCondition)
	if ready == nil || ready.Status != metav1.ConditionFalse {
		return ""
	}
	return fmt.Sprintf("held, %s: %s", ready.Reason, ready.Message)
}

// next is the one thing most worth doing now.
func (v *screen) next(ctx context.Context) string {
	if v.known.missing != "" {
		return applyAdmission + " by a cluster-admin: until then nothing is decided, and what anybody states never counts"
	}
	if v.silent() {
		return silentNote
	}
	asked := map[string]bool{}
	for i := range v.effects {
		effect := &v.effects[i]
		actionType := effectStatus(effect).ActionType
		if asked[actionType] {
			continue
		}
		asked[actionType] = true
		if may, err := v.session.mayOn(ctx, "resolve", actionType); err == nil && may.allowed {
			return "find out what happened, then: " + resolveCommandLine(effect.Name, effect.Namespace)
		}
	}
	for i := range v.waiting {
		waiting := &v.waiting[i]
		if may, err := v.session.mayOn(ctx, "approve", waiting.Spec.ActionType); err == nil && may.allowed && waiting.Spec.Principal.Agent != v.session.user.Username {
			return fmt.Sprintf("kubectl ctrlrun approve %s -n %s", waiting.Name, waiting.Namespace)
		}
	}
	for i := range v.claims {
		if v.claims[i].Spec.Principal.Agent == v.session.user.Username {
			return claimCommandLine(&v.claims[i])
		}
	}
	if len(v.policies) == 0 && !v.unseen["policies"] {
		return "kubectl ctrlrun init writes a first policy: without one every action is denied"
	}
	if invalid := v.invalid(); len(invalid) > 0 {
		return fmt.Sprintf("policy %s is not valid, or contradicts another, and that denies actions: kubectl get actionpolicy %s -n %s -o yaml says where", invalid[0], invalid[0], v.session.Namespace())
	}
	return "nothing waits for you"
}
