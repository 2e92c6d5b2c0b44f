// Package controllers is the shell around the kernel: it watches, reads, asks the kernel for the next step, and does it.
//
// One reconciler per kind. The two that matter run passes over an Action or an Effect; the others tell speakers whether
// their statement counts, and authors whether their policy is valid. Nothing in this package knows a rule of the protocol.
// What it does know is how to read: which objects a cache may answer for, and which only the apiserver itself.
//
// Leader election only saves work. Every write is a create whose name is unique, or guarded by the version that was read,
// so that two operators at once, however late one of them is, stay safe.
package controllers

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/controllers/export"
	"ctrlrun.dev/operator/controllers/metrics"
	"ctrlrun.dev/operator/controllers/observe"
	"ctrlrun.dev/operator/kernel/flow"
)

// Options of an operator.
type Options struct {
	// Namespace is the operator's own: of its lease, its canaries and the Ledger that says since when admission is in force.
	Namespace string
	// LeaderElection lets replicas take turns. It saves work; safety does not rest on it.
	LeaderElection bool
	// MetricsAddress and ProbeAddress to listen on; "0": none.
	MetricsAddress, ProbeAddress string
	// Concurrency is how many Actions, and how many Effects, are worked on at once. Default 8.
	Concurrency int
	// Clock that leases and expiries are judged by. Default: the machine's.
	Clock Clock
	// Logger. Default: controller-runtime's.
	Logger logr.Logger
	// Observers hear of every write, after it was made.
	Observers []observe.Observer
	// Registry of the metrics. Default: controller-runtime's; several operators of one process need one each.
	Registry prometheus.Registerer
	// Version of the operator, for the metrics.
	Version string
	// KubernetesEvents says which events of a timeline become Kubernetes Events: notable, all or none. Default: notable.
	KubernetesEvents string
	// Executors executes what the operator itself is to execute. Default: nothing, and every Executor is invalid.
	Executors Executors
	// Crash is called before and after each write of the protocol with its name. For tests that end the operator there.
	Crash func(point string)
}

// Scheme knows the kinds of this project and those of Kubernetes.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(scheme.AddToScheme(s))
	utilruntime.Must(v1alpha1.AddToScheme(s))
	return s
}

// New builds an operator. It does nothing until it is started.
func New(cfg *rest.Config, o Options) (ctrl.Manager, error) {
	if o.Namespace == "" {
		return nil, fmt.Errorf("the operator needs the name of its own namespace")
	}
	if o.Clock == nil {
		o.Clock = systemClock{}
	}
	if o.Concurrency == 0 {
		o.Concurrency = 8
	}
	if o.Executors == nil {
		o.Executors = noExecutors{}
	}
	if o.Crash == nil {
		o.Crash = func(string) {}
	}
	if o.Logger.GetSink() == nil {
		o.Logger = ctrl.Log
	}
	cfg = rest.CopyConfig(cfg)
	skew := &skewGuard{changed: func() {}, detected: make(chan flow.Skew, 1)}
	cfg.Wrap(skew.wrap)
	graceful := 20 * time.Second
	skipNames := true
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:                        Scheme(),
		Logger:                        o.Logger,
		Cache:                         caches(),
		NewCache:                      newStatementCache,
		Client:                        client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&v1alpha1.Receipt{}}}},
		Metrics:                       metricsserver.Options{BindAddress: o.MetricsAddress},
		HealthProbeBindAddress:        o.ProbeAddress,
		LeaderElection:                o.LeaderElection,
		LeaderElectionID:              "operator.ctrlrun.dev",
		LeaderElectionNamespace:       o.Namespace,
		LeaderElectionReleaseOnCancel: true,
		GracefulShutdownTimeout:       &graceful,
		Controller:                    config.Controller{SkipNameValidation: &skipNames},
	})
	if err != nil {
		return nil, fmt.Errorf("build the manager: %w", err)
	}
	return mgr, build(mgr, o, skew)
}

// caches hold what decisions and waiting need, and no more: unfinished Actions, unsettled Effects, and of statements what
// statementCache says.
func caches() cache.Options {
	short := &shorten{}
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&v1alpha1.Action{}:   {Field: fields.OneTermEqualSelector("status.receiptRef.name", "")},
			&v1alpha1.Outcome{}:  {Transform: short.outcome},
			&v1alpha1.Approval{}: {Transform: short.approval},
			&v1alpha1.Claim{}:    {Transform: short.claim},
			&v1alpha1.Effect{}: {Field: fields.AndSelectors(
				fields.OneTermNotEqualSelector("status.state", string(v1alpha1.EffectCommitted)),
				fields.OneTermNotEqualSelector("status.state", string(v1alpha1.EffectFailed)),
			)},
		},
	}
}

func build(mgr ctrl.Manager, o Options, skew *skewGuard) error {
	ctx := context.Background()
	reader := mgr.GetAPIReader()

	kubeSystem := &corev1.Namespace{}
	if err := reader.Get(ctx, types.NamespacedName{Name: "kube-system"}, kubeSystem); err != nil {
		return fmt.Errorf("read the cluster's id (the uid of kube-system): %w", err)
	}
	review := &authenticationv1.SelfSubjectReview{}
	if err := mgr.GetClient().Create(ctx, review); err != nil {
		return fmt.Errorf("ask the apiserver who this operator is: %w", err)
	}
	if err := index(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}

	all := &broadcast{client: mgr.GetClient(), again: make(chan struct{}, 1)}

	admitted, err := newAdmissionGuard()
	if err != nil {
		return err
	}
	fresh := &freshness{start: time.Now(), reader: reader, cache: mgr.GetCache(), lists: listOf}
	policies := &policyCache{cache: mgr.GetCache(), parsed: map[types.NamespacedName]parsedPolicy{}, sets: map[string]madeSet{}}
	keep := newRetention()
	w := &worlds{
		cache: mgr.GetCache(), reader: reader, writer: mgr.GetClient(), clock: o.Clock, clusterID: string(kubeSystem.UID), identity: review.Status.UserInfo.Username,
		admission: admitted, guards: []guard{skew, fresh}, proved: fresh.Until, retain: keep.Add, policies: policies, authority: newAuthorityCache(mgr.GetCache()), chains: map[string]*openChain{},
	}
	w.executors = &executorCache{cache: mgr.GetCache(), check: o.Executors.Check, judged: map[types.UID]judgedExecutor{}}
	running := newExecutions(o.Executors)
	checkpoints := newCheckpointer(w)
	preconditions, err := newParts(mgr.GetClient(), mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("make the clients for preconditions: %w", err)
	}
	p := &passes{
		client: mgr.GetClient(), reader: reader, clock: o.Clock, worlds: w, parts: preconditions, executions: running,
		identity: review.Status.UserInfo.Username, crash: o.Crash,
	}
	w.appended, w.crash = checkpoints.Grew, o.Crash
	if w.observer, err = observers(mgr, o, w, admitted, fresh, skew); err != nil {
		return err
	}
	w.recreate = func(ctx context.Context, key types.NamespacedName, effectKey string) error {
		if _, err := p.runEffect(ctx, key, effectKey); err != nil {
			return err
		}
		// A pass may end before its last step. Only the record itself proves that the key is not free.
		if err := reader.Get(ctx, key, &v1alpha1.Effect{}); err != nil {
			return fmt.Errorf("re-create effect %s: %w", key.Name, err)
		}
		return nil
	}
	keep.client, keep.reader, keep.clock, keep.worlds = mgr.GetClient(), reader, o.Clock, w
	admitted.namespace, admitted.cache, admitted.reader, admitted.writer, admitted.config = o.Namespace, mgr.GetCache(), reader, mgr.GetClient(), mgr.GetConfig()
	admitted.identity = review.Status.UserInfo.Username
	admitted.log, admitted.changed = o.Logger.WithName("admission"), all.Tell
	admitted.ledger = func(ctx context.Context) error {
		ns := &corev1.Namespace{}
		if err := reader.Get(ctx, types.NamespacedName{Name: o.Namespace}, ns); err != nil {
			return fmt.Errorf("read the operator's namespace: %w", err)
		}
		_, err := w.open(ctx, ns)
		return err
	}
	fresh.log, fresh.changed = o.Logger.WithName("freshness"), all.Tell
	skew.changed = all.Tell
	all.jumped = o.Clock.Changed()
	all.retained = keep

	for _, r := range []interface{ Start(context.Context) error }{&watchPolicies{cache: mgr.GetCache(), guard: admitted}, admitted, fresh, all, keep, checkpoints, running, &rollback{worlds: w, log: o.Logger.WithName("rollback")}, &skewRecorder{namespace: o.Namespace, worlds: w, detected: skew.detected}} {
		if err := mgr.Add(r); err != nil {
			return err
		}
	}
	if err := setup(mgr, o, p, w, all); err != nil {
		return err
	}
	return probes(mgr, o, admitted, fresh)
}

func setup(mgr ctrl.Manager, o Options, p *passes, w *worlds, all *broadcast) error {
	c, reader := mgr.GetClient(), mgr.GetAPIReader()
	workers := func(n int) controller.Options {
		// After an outage of the apiserver everybody waits for this to look again.
		return controller.Options{MaxConcurrentReconciles: n, RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](5*time.Millisecond, 15*time.Second)}
	}
	first := newFirstLook(mgr.GetCache())
	all.retained.found, all.retained.foundAll = first.finished, first.end
	many, few, one := workers(o.Concurrency), workers(2), workers(1)
	for _, err := range []error{
		(&actionReconciler{client: c, passes: p}).setup(mgr, many, all.listen()),
		(&effectReconciler{client: c, passes: p}).setup(mgr, many, all.listen()),
		approvalJudge().with(mgr, w, nil).setup(mgr, "approval", few, func() client.ObjectList { return &v1alpha1.ApprovalList{} }),
		claimJudge().with(mgr, w, nil).setup(mgr, "claim", few, func() client.ObjectList { return &v1alpha1.ClaimList{} }),
		outcomeJudge().with(mgr, w, first).setup(mgr, "outcome", few, func() client.ObjectList { return &v1alpha1.OutcomeList{} }),
		(&policyReconciler{client: c, reader: reader, clock: o.Clock, policies: w.policies}).setup(mgr, one),
		(&chainOpener{worlds: w, changed: all.Tell}).setup(mgr, few),
		(&rulesRecorder{client: c, reader: reader, clock: o.Clock, policies: w.policies, worlds: w}).setup(mgr, few),
		(&executorReconciler{client: c, clock: o.Clock, executors: w.executors}).setup(mgr, one),
		(&grantReconciler{client: c, clock: o.Clock}).setup(mgr, one),
		(&delegationReconciler{client: c, reader: reader, clock: o.Clock, worlds: w}).setup(mgr, few, all.listen()),
		(&revocationReconciler{client: c, reader: reader, clock: o.Clock, worlds: w}).setup(mgr, few, all.listen()),
		newProposalReconciler(mgr, o.Clock, w, p.identity, o.Crash).setup(mgr, few, all.listen()),
		(&settingsReconciler{client: c, clock: o.Clock, retained: all.retained}).setup(mgr, one),
		(&acceptanceReconciler{client: c, reader: reader, clock: o.Clock, worlds: w, changed: all.Tell}).setup(mgr, one),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

func index(ctx context.Context, indexer client.FieldIndexer) error {
	if err := indexStatements(ctx, indexer); err != nil {
		return err
	}
	if err := indexer.IndexField(ctx, &v1alpha1.Resolution{}, byEffectName, func(o client.Object) []string {
		return []string{o.(*v1alpha1.Resolution).Spec.EffectRef.Name}
	}); err != nil {
		return err
	}
	if err := indexer.IndexField(ctx, &v1alpha1.Action{}, byEffectName, func(o client.Object) []string {
		if e := o.(*v1alpha1.Action).Status.Effect; e != nil {
			return []string{e.Name}
		}
		return nil
	}); err != nil {
		return err
	}
	return indexer.IndexField(ctx, &v1alpha1.Effect{}, byHolderUID, func(o client.Object) []string {
		if s := o.(*v1alpha1.Effect).Status; s != nil && s.Holder != nil {
			return []string{string(s.Holder.UID)}
		}
		return nil
	})
}

// observers are all who hear of writes: those of the options, the metrics, and the Kubernetes Events.
func observers(mgr ctrl.Manager, o Options, w *worlds, admitted *admissionGuard, fresh *freshness, skew *skewGuard) (observe.Observer, error) {
	all := slices.Clone(o.Observers)
	if o.KubernetesEvents != export.NoEvents {
		events := export.NewKubernetesEvents(mgr.GetEventRecorder("ctrlrun-operator"), o.KubernetesEvents, o.Logger.WithName("events"))
		all = append(all, events)
		if err := mgr.Add(closing{events}); err != nil {
			return nil, err
		}
	}
	var sinks []export.Sink
	var names []string
	for _, one := range all {
		if sink, ok := one.(export.Sink); ok {
			sinks, names = append(sinks, sink), append(names, sink.Name())
		}
	}
	metered := metrics.New(mgr.GetCache(), o.Clock.Now, metrics.Guards{
		AdmissionHeld: func() (string, bool) {
			if h := admitted.Hold(); h != nil {
				return string(h.Reason), true
			}
			return "", false
		},
		Freshness:      fresh.Age,
		ClockOffset:    skew.Ahead,
		Chains:         w.heads,
		HeldNamespaces: w.held,
		Version:        o.Version,
	}, names...)
	for _, sink := range sinks {
		sink.OnDrop(metered.SinkDropped)
	}
	registry := o.Registry
	switch {
	case registry != nil:
	case o.MetricsAddress == "0":
		registry = prometheus.NewRegistry() // nobody scrapes it
	default:
		registry = ctrlmetrics.Registry
	}
	if err := metered.Register(registry); err != nil {
		return nil, err
	}
	return observe.All(o.Logger.WithName("observe"), append(all, metered)...), nil
}

// closing gives a sink that belongs to the manager a moment to write what waits, when the manager ends.
type closing struct{ sink export.Sink }

// Start implements manager.Runnable.
func (c closing) Start(ctx context.Context) error {
	<-ctx.Done()
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = c.sink.Close(bounded) // what did not fit is counted as dropped
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (closing) NeedLeaderElection() bool { return false }

// probes: alive means that rounds of the freshness proof are made, equal or not; ready means that statements made now count.
func probes(mgr ctrl.Manager, o Options, guard *admissionGuard, fresh *freshness) error {
	if err := mgr.AddHealthzCheck("rounds", func(*http.Request) error {
		if idle := fresh.Idle(); idle > time.Minute {
			return fmt.Errorf("no freshness round has ended for %s", idle.Round(time.Second))
		}
		return nil
	}); err != nil {
		return err
	}
	return mgr.AddReadyzCheck("admission", func(*http.Request) error {
		if h := guard.Hold(); h != nil {
			return fmt.Errorf("%s: %s", h.Reason, h.Message)
		}
		if h := fresh.Hold(); h != nil {
			return fmt.Errorf("%s: %s", h.Reason, h.Message)
		}
		// A creationTimestamp has whole seconds: only one second later is everything that is created now surely after it.
		if since := guard.Since(); !o.Clock.Now().After(since.Add(time.Second)) {
			return fmt.Errorf("statements count from %s on", since.UTC().Format(time.RFC3339))
		}
		return nil
	})
}

func listOf(kind schema.GroupVersionKind) client.ObjectList {
	switch kind.Kind {
	case "ActionPolicy":
		return &v1alpha1.ActionPolicyList{}
	case "Settings":
		return &v1alpha1.SettingsList{}
	case "Grant":
		return &v1alpha1.GrantList{}
	case "Executor":
		return &v1alpha1.ExecutorList{}
	case "Delegation":
		return &v1alpha1.DelegationList{}
	case "Revocation":
		return &v1alpha1.RevocationList{}
	case "ValidatingAdmissionPolicy":
		return &admissionregistrationv1.ValidatingAdmissionPolicyList{}
	case "ValidatingAdmissionPolicyBinding":
		return &admissionregistrationv1.ValidatingAdmissionPolicyBindingList{}
	}
	return &corev1.NamespaceList{}
}

// watchPolicies wakes the guard when an admission policy or binding changes.
type watchPolicies struct {
	cache cache.Cache
	guard *admissionGuard
}

// Start implements manager.Runnable.
func (w *watchPolicies) Start(ctx context.Context) error {
	wake := toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { w.guard.Wake() },
		UpdateFunc: func(any, any) { w.guard.Wake() },
		DeleteFunc: func(any) { w.guard.Wake() },
	}
	for _, o := range []client.Object{&admissionregistrationv1.ValidatingAdmissionPolicy{}, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}} {
		informer, err := w.cache.GetInformer(ctx, o)
		if err != nil {
			return err
		}
		if _, err := informer.AddEventHandler(wake); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (w *watchPolicies) NeedLeaderElection() bool { return false }

// broadcast makes everything unfinished be looked at again: a reason to hold is gone, or the clock jumped.
type broadcast struct {
	client   client.Client
	to       []chan<- event.GenericEvent
	again    chan struct{}
	jumped   <-chan struct{}
	retained *retention
}

// listen gives another who is told of each namespace. It is called before Start.
func (b *broadcast) listen() <-chan event.GenericEvent {
	to := make(chan event.GenericEvent, 1024)
	b.to = append(b.to, to)
	return to
}

// Tell asks for it, soon.
func (b *broadcast) Tell() {
	select {
	case b.again <- struct{}{}:
	default:
	}
}

// Start implements manager.Runnable.
func (b *broadcast) Start(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-b.again:
		case <-b.jumped:
			b.retained.Look()
		}
		list := &corev1.NamespaceList{}
		if err := b.client.List(ctx, list); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Cannot list namespaces")
			time.AfterFunc(time.Second, b.Tell)
			continue
		}
		for i := range list.Items {
			for _, to := range b.to {
				select {
				case to <- event.GenericEvent{Object: &list.Items[i]}:
				case <-ctx.Done():
					return nil
				}
			}
		}
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (b *broadcast) NeedLeaderElection() bool { return true }
