package controllers

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/flow"
)

const (
	// freshnessEvery is how often the caches of the decision kinds are compared with the apiserver.
	freshnessEvery = 2 * time.Second
	// freshnessTrust is how long after the start of the last equal round an action may be admitted.
	freshnessTrust = 10 * time.Second
	// freshnessRelist is how long one list is compared with the cache before another is made.
	freshnessRelist = time.Second
)

// decisionKinds are the kinds a decision reads from caches. A lagging cache of any of them could admit what the cluster
// no longer allows.
var decisionKinds = []schema.GroupVersionKind{
	v1alpha1.GroupVersion.WithKind("ActionPolicy"),
	v1alpha1.GroupVersion.WithKind("Settings"),
	v1alpha1.GroupVersion.WithKind("Grant"),
	v1alpha1.GroupVersion.WithKind("Executor"),
	v1alpha1.GroupVersion.WithKind("Delegation"),
	v1alpha1.GroupVersion.WithKind("Revocation"),
	corev1.SchemeGroupVersion.WithKind("Namespace"),
	// What says who made a statement. A watch of these that stalls would hide that they are gone.
	admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicy"),
	admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicyBinding"),
}

// freshness proves, again and again, that the caches decisions read hold what the apiserver holds. A consistent list costs
// far more than a get, so one round serves all actions instead of each action paying for its own.
type freshness struct {
	reader client.Reader // the apiserver itself
	cache  client.Reader
	lists  func(schema.GroupVersionKind) client.ObjectList // typed, as the cache holds them
	log    logr.Logger
	// changed is called when a hold is over.
	changed func()

	mu    sync.Mutex
	equal time.Time // start of the last equal round, monotonic
	start time.Time
	tried time.Time // end of the last round, equal or not
}

// Start runs rounds until the context ends. It does so on every replica: each proves its own caches.
func (f *freshness) Start(ctx context.Context) error {
	ticker := time.NewTicker(freshnessEvery)
	defer ticker.Stop()
	for {
		f.round(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (f *freshness) NeedLeaderElection() bool { return false }

func (f *freshness) round(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, freshnessTrust)
	defer cancel()
	type answer struct {
		began time.Time
		err   error
	}
	answers := make(chan answer, len(decisionKinds))
	for _, kind := range decisionKinds {
		go func() {
			began, err := f.compare(bounded, kind)
			answers <- answer{began, err}
		}()
	}
	began, failed := time.Now(), error(nil)
	for range decisionKinds {
		a := <-answers
		if a.err != nil {
			failed = a.err
		} else if a.began.Before(began) {
			began = a.began
		}
	}
	f.mu.Lock()
	held := f.equal.IsZero() || time.Since(f.equal) >= freshnessTrust
	if failed == nil {
		f.equal = began
	}
	f.tried = time.Now()
	f.mu.Unlock()
	switch {
	case failed == nil && held:
		f.changed()
	case failed != nil && held && ctx.Err() == nil:
		f.log.Error(failed, "The caches could not be proved equal to the apiserver; nothing is decided")
	}
}

// compare waits, within the round, for the cache to hold every object of a kind at the listed version or later, and none
// older that the list lacks. It gives the start of the list that it was equal to. An object that is deleted after a list
// makes that list unequal for ever, so it lists again after a while.
func (f *freshness) compare(ctx context.Context, kind schema.GroupVersionKind) (time.Time, error) {
	differs := ""
	for {
		began := time.Now()
		listed := &metav1.PartialObjectMetadataList{}
		listed.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := f.reader.List(ctx, listed); err != nil { // without a resourceVersion: consistent
			if ctx.Err() != nil && differs != "" {
				return began, lagging(differs)
			}
			return began, fmt.Errorf("list %s: %w", kind.Kind, err)
		}
		at, err := version(listed.ResourceVersion)
		if err != nil {
			return began, fmt.Errorf("list %s: %w", kind.Kind, err)
		}
		want := make(map[string]uint64, len(listed.Items))
		for i := range listed.Items {
			v, err := version(listed.Items[i].ResourceVersion)
			if err != nil {
				return began, fmt.Errorf("list %s: %w", kind.Kind, err)
			}
			want[string(listed.Items[i].UID)] = v
		}
		for time.Since(began) < freshnessRelist {
			if differs, err = f.difference(ctx, kind, want, at); err != nil || differs == "" {
				return began, err
			}
			select {
			case <-ctx.Done():
				return began, lagging(differs)
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
}

func lagging(difference string) error { return fmt.Errorf("the cache lags: %s", difference) }

func (f *freshness) difference(ctx context.Context, kind schema.GroupVersionKind, want map[string]uint64, at uint64) (string, error) {
	list := f.lists(kind)
	if err := f.cache.List(ctx, list); err != nil {
		return "", fmt.Errorf("read the cache of %s: %w", kind.Kind, err)
	}
	have := map[string]uint64{}
	difference := ""
	err := meta.EachListItem(list, func(o runtimeObject) error {
		m, err := meta.Accessor(o)
		if err != nil {
			return err
		}
		v, err := version(m.GetResourceVersion())
		if err != nil {
			return err
		}
		have[string(m.GetUID())] = v
		if _, listed := want[string(m.GetUID())]; !listed && v <= at {
			difference = fmt.Sprintf("%s %s/%s is gone", kind.Kind, m.GetNamespace(), m.GetName())
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	for uid, v := range want {
		if have[uid] < v {
			difference = fmt.Sprintf("%s with uid %s", kind.Kind, uid)
		}
	}
	return difference, nil
}

// version compares resource versions, which the apiserver has documented as comparable integers since 1.35.
func version(s string) (uint64, error) {
	v, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("resource version %q is no number: %w", s, err)
	}
	return v, nil
}

// Hold implements guard.
func (f *freshness) Hold() *flow.Hold {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.equal.IsZero() && time.Since(f.equal) < freshnessTrust {
		return nil
	}
	since := f.start
	if !f.equal.IsZero() {
		since = f.equal.Add(freshnessTrust)
	}
	return &flow.Hold{Reason: decision.CachesStale, Since: since, Message: "The operator cannot prove that what it knows of policies, grants, settings and namespaces is what the apiserver holds. Nothing is decided until it can; its log says what differs."}
}

// Until is when the last proof ends: what rests on it has to be written by then.
func (f *freshness) Until() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.equal.IsZero() {
		return f.equal
	}
	return f.equal.Add(freshnessTrust)
}

// Age is how long ago the last equal round began; before the first, how long ago the process did.
func (f *freshness) Age() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.equal.IsZero() {
		return time.Since(f.start)
	}
	return time.Since(f.equal)
}

// Idle is how long ago the last round ended, equal or not: an apiserver that is away is no reason to restart this process.
func (f *freshness) Idle() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tried.IsZero() {
		return time.Since(f.start)
	}
	return time.Since(f.tried)
}
