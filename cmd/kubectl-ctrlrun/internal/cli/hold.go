package cli

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/records"
)

// systemNamespace is the operator's own: what it has found out about admission is in the Ledger of it.
const systemNamespace = "ctrlrun-system"

// applyAdmission is what ends the hold.
const applyAdmission = "kubectl apply --server-side --force-conflicts -k config/admission"

// admission is what is known of the policies that say who makes a statement.
type admission struct {
	missing string    // why statements do not count at present; "": nothing is known to be wrong
	since   time.Time // in force since, as the operator says; zero: it does not say so
	counts  time.Time // from when on statements count, which is some seconds after a gap has ended; zero: it is not known
	hidden  bool      // the operator's Ledger may not be read
}

// counting reports whether a statement that is made now counts. The apiserver stamps objects with whole seconds.
func (a admission) counting(now time.Time) bool {
	return a.missing == "" && (a.counts.IsZero() || now.Truncate(time.Second).After(a.counts))
}

// admission asks the Ledger of the operator's namespace. Whoever may not read it learns of a hold from the Actions that it holds.
func (s *session) admission(ctx context.Context) admission {
	ledger, err := s.ledgerOf(ctx, systemNamespace)
	if err == nil && ledger != nil && ledger.Status != nil {
		condition := meta.FindStatusCondition(ledger.Status.Conditions, v1alpha1.AdmissionInForceCondition)
		if condition != nil && condition.Status == metav1.ConditionTrue {
			found := admission{since: condition.LastTransitionTime.Time}
			if ledger.Status.AdmissionSince != nil {
				found.counts = ledger.Status.AdmissionSince.Time
			}
			return found
		}
		if condition != nil && condition.Status == metav1.ConditionFalse {
			return admission{missing: condition.Message}
		}
	}
	found := admission{hidden: err != nil}
	pending := &v1alpha1.ActionList{}
	if err := s.kube.List(ctx, pending, kube.InNamespace(s.Namespace()), notCanary, kube.MatchingFields{"status.state": string(v1alpha1.ActionPending)}, kube.Limit(records.PageSize)); err != nil {
		return found
	}
	for i := range pending.Items {
		if pending.Items[i].Status.Reason == string(decision.AdmissionMissing) {
			found.missing = "the policies that say who makes a statement are not in force, and everything holds"
		}
	}
	return found
}

const (
	// holdPatience is how long a hold may be over before the operator says so: it writes that a moment after.
	holdPatience = 5 * time.Second
	// gapPatience is how long a gap may be over before statements count again.
	gapPatience = 20 * time.Second
)

// refuseVoid stops a statement that could never count before it is made: nobody can say afterwards who made it. If statements
// are about to count again, it waits for that.
func (a *app) refuseVoid(ctx context.Context, s *session) error {
	begin, waiting := time.Now(), false
	for {
		found := s.admission(ctx)
		switch since := time.Since(begin); {
		case found.counting(time.Now()):
			return nil
		case found.missing == "" && since > gapPatience:
			return exit.Errorf(exit.Waiting, "nothing was stated: the admission policies were missing, and statements count again from %s on only; "+
				"then state it", found.counts.UTC().Format(time.RFC3339))
		case found.missing == "" && !waiting:
			waiting = true
			a.note("the admission policies were missing; statements count again from %s on: waiting", found.counts.UTC().Format(time.RFC3339))
		case found.missing != "" && since > holdPatience:
			return exit.Errorf(exit.Waiting, "nothing was stated, for it would never count: admission is missing, so nobody can say who states it: %s\n"+
				"a cluster-admin has to run: %s; then state it", found.missing, applyAdmission)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
	}
}

const silentNote = "the operator has not answered; is it running? kubectl get pods -A -l app.kubernetes.io/name=ctrlrun,app.kubernetes.io/component=operator"

// silence says why a statement that was made is not judged, as far as anybody can see.
func (s *session) silence(ctx context.Context) string {
	if found := s.admission(ctx); found.missing != "" {
		return "admission is missing, and everything holds: " + found.missing + ". It does not count if it was made since; then make it again after " + applyAdmission
	}
	return silentNote
}
