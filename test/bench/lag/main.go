// Command lag measures how long a receipt takes when many actions of one namespace finish at once. All receipts of a
// namespace are one chain, so they are written one after the other; this shows what that costs.
//
// It runs a real etcd and kube-apiserver, the built operator as a process, and an agent that proposes, executes and reports
// allowed actions at a fixed rate, whether or not the earlier ones are done. The lag of an action is from the moment its
// report was accepted to the moment its receipt is seen by a watch. It fails if the 99th percentile is not below a limit.
//
// An action whose admission waited for long asks whether its agent is still there. This one claims it, as every agent would,
// so that a rate at which the operator falls behind ends too: late, and with the figures that say so.
//
//	make build && go run ./test/bench/lag --rate 100 --seconds 30
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	sdk "ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/test/testenv"
	"ctrlrun.dev/operator/test/testenv/assets"
)

func main() {
	rate := flag.Int("rate", 100, "how many actions are proposed a second")
	seconds := flag.Int("seconds", 30, "for how long")
	limit := flag.Duration("limit", time.Second, "what the 99th percentile has to be below")
	verbose := flag.Bool("metrics", false, "print the operator's own histogram too")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := measure(ctx, *rate, time.Duration(*seconds)*time.Second, *limit, *verbose); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

const namespace = "payments"

// bench is one run.
type bench struct {
	client client.WithWatch
	agent  string

	mu       sync.Mutex
	actions  map[string]*times // by uid
	todo     chan func(context.Context)
	lost     chan error // of the watch
	refused  int
	finished int
	changed  chan struct{}
}

// times of one action, by this process's clock.
type times struct {
	sent, proposed, admitted, reported, finished time.Time
	// claimable is the Action's claimableTime of the last claim, and claims is how many there were.
	claimable time.Time
	claims    int
}

func measure(ctx context.Context, rate int, duration, limit time.Duration, verbose bool) (err error) {
	root, err := assets.Root()
	if err != nil {
		return err
	}
	if _, err := assets.Ensure(ctx, root, os.Stderr); err != nil {
		return err
	}
	env, err := testenv.Start(ctx, testenv.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, env.Stop()) }()
	operator, err := env.StartOperatorProcess("--leader-elect=false", "--kube-api-qps=2000", "--concurrency=16")
	if err != nil {
		return err
	}
	if err := operator.WaitReady(ctx); err != nil {
		return err
	}
	agent := testenv.ServiceAccountUser(namespace, "refund-agent")
	b := &bench{agent: agent.Name, actions: map[string]*times{}, todo: make(chan func(context.Context), 1<<16), lost: make(chan error, 1), changed: make(chan struct{}, 1)}
	if err := b.prepare(ctx, env, agent); err != nil {
		return err
	}
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := b.watch(watching); err != nil {
		return err
	}
	fmt.Printf("warming up: 50 actions\n")
	if err := b.propose(ctx, 50, 50); err != nil {
		return err
	}
	b.forget()
	n := rate * int(duration/time.Second)
	fmt.Printf("%d actions at %d a second\n", n, rate)
	began := time.Now()
	if err := b.propose(ctx, n, rate); err != nil {
		return err
	}
	if b.refused == n {
		return errors.New("not one action was committed: there is nothing to measure")
	}
	lag := b.report(n, time.Since(began))
	if verbose {
		if err := show(operator.Metrics, "ctrlrun_receipt_lag_seconds"); err != nil {
			return err
		}
	}
	if lag >= limit {
		return fmt.Errorf("the 99th percentile of the lag is %s, not below %s", lag, limit)
	}
	return nil
}

func (b *bench) prepare(ctx context.Context, env *testenv.Environment, agent testenv.User) error {
	if err := env.Admin().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		return err
	}
	if err := env.Grant(ctx, namespace, "ctrlrun-agent", agent); err != nil {
		return err
	}
	b.client = env.Client(agent)
	if err := env.Policy(ctx, namespace, `{"actions":{"stripe.refund":{"effect":"refund:{payment_id}","resource":"payment:{payment_id}","decision":"allow"}}}`); err != nil {
		return err
	}
	return env.WaitForAdmission(ctx)
}

// watch follows all actions of the namespace by one watch. It claims as soon as one asks for it, and reports as soon as one
// is admitted.
func (b *bench) watch(ctx context.Context) error {
	list := &v1alpha1.ActionList{}
	if err := b.client.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return err
	}
	go func() {
		from, err := list.ResourceVersion, error(nil)
		for err == nil {
			from, err = b.follow(ctx, from)
		}
		b.lost <- fmt.Errorf("watching the actions: %w", err)
	}()
	for range 32 {
		go func() {
			for {
				select {
				case <-ctx.Done():
					return
				case do := <-b.todo:
					do(ctx)
				}
			}
		}()
	}
	return nil
}

// follow watches from a resource version on, and gives the one it has come to when the watch ends: kube-apiserver ends those
// that are not read fast enough, and here they share the processors with everything else.
func (b *bench) follow(ctx context.Context, from string) (string, error) {
	w, err := b.client.Watch(ctx, &v1alpha1.ActionList{}, &client.ListOptions{Namespace: namespace, Raw: &metav1.ListOptions{ResourceVersion: from}})
	if err != nil {
		return from, err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		a, ok := e.Object.(*v1alpha1.Action)
		if !ok {
			return from, apierrors.FromObject(e.Object)
		}
		from = a.ResourceVersion
		b.seen(a)
	}
	return from, nil
}

func (b *bench) seen(a *v1alpha1.Action) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.of(a)
	now := time.Now()
	switch {
	case a.Status.ReceiptRef != nil && t.finished.IsZero():
		t.finished = now
		b.finished++
		if a.Status.State != v1alpha1.ActionCommitted {
			b.refused++
		}
	case a.Status.State == v1alpha1.ActionAdmitted && t.admitted.IsZero():
		t.admitted = now
		b.todo <- func(ctx context.Context) { b.execute(ctx, a) }
	case a.Status.State == v1alpha1.ActionClaimable && a.Status.ClaimableTime != nil && !t.claimable.Equal(a.Status.ClaimableTime.Time):
		t.claimable = a.Status.ClaimableTime.Time
		t.claims++
		name := sdk.StatementName(a.Name, b.agent)
		if t.claims > 1 {
			name = fmt.Sprintf("%s.%d", name, t.claims)
		}
		b.todo <- func(ctx context.Context) { b.claim(ctx, a, name) }
	default:
		return
	}
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

func (b *bench) of(a *v1alpha1.Action) *times {
	t := b.actions[string(a.UID)]
	if t == nil {
		t = &times{}
		b.actions[string(a.UID)] = t
	}
	return t
}

// claim says that the agent is still there, as the SDK does.
func (b *bench) claim(ctx context.Context, a *v1alpha1.Action, name string) {
	o := &v1alpha1.Claim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.ClaimSpec{
			ActionRef: v1alpha1.ObjectReference{Name: a.Name, UID: a.UID}, ClaimID: a.Spec.ClaimID, ClaimableTime: *a.Status.ClaimableTime,
		},
	}
	if err := b.client.Create(ctx, o); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "claim:", err)
	}
}

// execute does nothing, and says that it is done.
func (b *bench) execute(ctx context.Context, a *v1alpha1.Action) {
	o := &v1alpha1.Outcome{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: flow.LockName(string(a.UID), a.Status.Execution.ClaimID, b.agent)},
		Spec: v1alpha1.OutcomeSpec{
			ActionRef: v1alpha1.ObjectReference{Name: a.Name, UID: a.UID}, ClaimID: a.Status.Execution.ClaimID, Result: v1alpha1.OutcomeCommitted,
		},
	}
	if err := b.client.Create(ctx, o); err != nil {
		if ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "report:", err)
		}
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.of(a).reported = time.Now()
}

// patience is how long the operator may do nothing that the agent sees.
const patience = 2 * time.Minute

// propose creates n actions, so many a second, and returns when all of them are finished.
func (b *bench) propose(ctx context.Context, n, rate int) error {
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	errs := make(chan error, n)
	for range n {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		go func() { errs <- b.create(ctx) }()
	}
	for range n {
		if err := <-errs; err != nil {
			return err
		}
	}
	for {
		b.mu.Lock()
		done := b.finished
		b.mu.Unlock()
		if done >= n {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-b.lost:
			return err
		case <-time.After(patience):
			return fmt.Errorf("only %d of %d actions are finished, and nothing happened for %s", done, n, patience)
		case <-b.changed:
		}
	}
}

func (b *bench) create(ctx context.Context) error {
	id := uuid.NewString()
	o := &v1alpha1.Action{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "refund-" + id},
		Spec: v1alpha1.ActionSpec{
			ActionType: "stripe.refund", ClaimID: uuid.NewString(), LeaseDurationSeconds: 300,
			Arguments: apiextensionsv1.JSON{Raw: []byte(`{"payment_id":"` + id + `","amount":2000}`)},
		},
	}
	sent := time.Now()
	if err := b.client.Create(ctx, o); err != nil {
		return fmt.Errorf("propose: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.of(o)
	t.sent, t.proposed = sent, time.Now()
	return nil
}

func (b *bench) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.actions, b.finished, b.refused = map[string]*times{}, 0, 0
}

// report prints the figures and returns the 99th percentile of the lag.
func (b *bench) report(n int, took time.Duration) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	var admission, lags, whole []time.Duration
	var first, last time.Time
	claimed := 0
	for _, t := range b.actions {
		if t.finished.IsZero() || t.reported.IsZero() {
			continue
		}
		if t.claims > 0 {
			claimed++
		}
		admission = append(admission, t.admitted.Sub(t.sent))
		// The watch may show the receipt before the report's own response is here.
		lags = append(lags, max(0, t.finished.Sub(t.reported)))
		whole = append(whole, t.finished.Sub(t.sent))
		if first.IsZero() || t.finished.Before(first) {
			first = t.finished
		}
		if t.finished.After(last) {
			last = t.finished
		}
	}
	fmt.Printf("finished %d in %s, %.1f a second; ended otherwise than committed: %d; admitted so late that they had to be claimed: %d\n",
		n, took.Round(time.Millisecond), float64(len(lags)-1)/last.Sub(first).Seconds(), b.refused, claimed)
	fmt.Printf("%-34s %8s %8s %8s %8s\n", "", "p50", "p95", "p99", "max")
	line := func(name string, all []time.Duration) time.Duration {
		slices.Sort(all)
		at := func(p float64) time.Duration {
			return all[min(len(all)-1, int(p*float64(len(all))))].Round(time.Millisecond)
		}
		fmt.Printf("%-34s %8s %8s %8s %8s\n", name, at(0.50), at(0.95), at(0.99), at(1))
		return at(0.99)
	}
	line("proposed to admitted", admission)
	lag := line("report accepted to receipt seen", lags)
	line("proposed to receipt seen", whole)
	return lag
}

// show prints lines of the operator's metrics.
func show(url, name string) error {
	response, err := http.Get(url) //nolint:noctx // a benchmark
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(body)) {
		if strings.HasPrefix(line, name) {
			fmt.Print(line)
		}
	}
	return nil
}
