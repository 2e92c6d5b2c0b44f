// Command sdk measures what the Go SDK adds to the time of an action. One agent takes actions through their whole life, by turns with the
// SDK and by the same statements sent with a plain client, on a real etcd and kube-apiserver and the built operator as a process. One
// action is on its way at a time, so that what is measured is time and not throughput. The function executes nothing.
//
// The plain client sends what an agent cannot do without: it creates the Action, watches it by its name from then on, creates the Outcome
// when it is admitted, and reads the receipt that the Action names at its end. It checks nothing and survives nothing.
//
//	make build && go run ./test/bench/sdk --pairs 300
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	sdk "ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/test/testenv"
	"ctrlrun.dev/operator/test/testenv/assets"
)

const namespace = "payments"

func main() {
	pairs := flag.Int("pairs", 300, "how many actions each way takes")
	limit := flag.Float64("limit", 1.1, "what the median with the SDK, by the median without it, must not be above; 0: no limit")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := measure(ctx, *pairs, *limit); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// warmUp is how many actions each way takes before anything is measured, block how many pairs one ratio of the spread is made of.
const warmUp, block = 20, 25

func measure(ctx context.Context, pairs int, limit float64) (err error) {
	if pairs < block {
		return fmt.Errorf("--pairs is at least %d", block)
	}
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
	operator, err := env.StartOperatorProcess("--leader-elect=false")
	if err != nil {
		return err
	}
	if err := operator.WaitReady(ctx); err != nil {
		return err
	}
	bare, governed, err := prepare(ctx, env)
	if err != nil {
		return err
	}
	ways := []func(context.Context) error{bare.once, governed.once}
	taken := make([][]time.Duration, len(ways))
	for n := range warmUp + pairs {
		for i := range ways {
			way := (i + n) % len(ways) // each begins every second pair
			began := time.Now()
			if err := ways[way](ctx); err != nil {
				return err
			}
			if n >= warmUp {
				taken[way] = append(taken[way], time.Since(began))
			}
		}
	}
	ratio := report(taken[0], taken[1])
	if limit > 0 && ratio > limit {
		return fmt.Errorf("the SDK takes %.3f of the time without it, more than %.3f", ratio, limit)
	}
	return nil
}

// prepare makes the namespace, and one agent for both ways. It may read receipts, so that both end with the proof.
func prepare(ctx context.Context, env *testenv.Environment) (*bareAgent, *sdkAgent, error) {
	agent := testenv.ServiceAccountUser(namespace, "refund-agent")
	if err := env.Admin().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		return nil, nil, err
	}
	err := errors.Join(
		env.Grant(ctx, namespace, "ctrlrun-agent", agent),
		env.Allow(ctx, namespace, agent, rbacv1.PolicyRule{
			APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"receipts"}, Verbs: []string{"get"},
		}),
		env.Policy(ctx, namespace, `{"actions":{"stripe.refund":{"effect":"refund:{payment_id}","rules":[{"decision":"allow"}]}}}`),
		env.WaitForAdmission(ctx),
	)
	if err != nil {
		return nil, nil, err
	}
	cfg := env.Config(agent)
	cfg.QPS = -1
	c, err := sdk.New(cfg, namespace)
	if err != nil {
		return nil, nil, err
	}
	return &bareAgent{client: env.Client(agent), user: agent.Name}, &sdkAgent{c}, nil
}

func report(bare, governed []time.Duration) float64 {
	var ratios []float64
	for part := range len(bare) / block {
		from, to := part*block, (part+1)*block
		ratios = append(ratios, float64(median(governed[from:to]))/float64(median(bare[from:to])))
	}
	slices.Sort(ratios)
	a, b := median(bare), median(governed)
	ratio := float64(b) / float64(a)
	fmt.Printf("%d actions each way, by turns\n", len(bare))
	fmt.Printf("plain client  median %s\n", a.Round(10*time.Microsecond))
	fmt.Printf("SDK           median %s\n", b.Round(10*time.Microsecond))
	fmt.Printf("SDK by plain  %.3f; of each %d pairs from %.3f to %.3f\n", ratio, block, ratios[0], ratios[len(ratios)-1])
	return ratio
}

func median(of []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[len(sorted)/2]
}

// sdkAgent is an agent with the SDK.
type sdkAgent struct{ sdk *sdk.Client }

func (a *sdkAgent) once(ctx context.Context) error {
	receipt, err := a.sdk.Protect(ctx, sdk.Proposal{
		ActionType: "stripe.refund", Arguments: map[string]any{"payment_id": uuid.NewString(), "amount": 500},
	}, func(context.Context, sdk.Execution) (any, error) { return nil, nil })
	return errors.Join(err, receipt.Unread)
}

// bareAgent is an agent with a client that knows the kinds and nothing else.
type bareAgent struct {
	client kube.WithWatch
	user   string
}

func (a *bareAgent) once(ctx context.Context) error {
	id, claim := uuid.NewString(), uuid.NewString()
	o := &v1alpha1.Action{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "refund-" + id},
		Spec: v1alpha1.ActionSpec{
			ActionType: "stripe.refund", ClaimID: claim, LeaseDurationSeconds: 300,
			Arguments: apiextensionsv1.JSON{Raw: fmt.Appendf(nil, `{"payment_id":%q,"amount":500}`, id)},
		},
	}
	if err := a.client.Create(ctx, o); err != nil {
		return fmt.Errorf("propose: %w", err)
	}
	events, err := a.client.Watch(ctx, &v1alpha1.ActionList{}, kube.InNamespace(namespace), kube.MatchingFields{"metadata.name": o.Name},
		&kube.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: o.ResourceVersion}})
	if err != nil {
		return fmt.Errorf("watch %s: %w", o.Name, err)
	}
	defer events.Stop()
	reported := false
	for e := range events.ResultChan() {
		now, ok := e.Object.(*v1alpha1.Action)
		switch {
		case !ok:
			return apierrors.FromObject(e.Object)
		case now.Status.ReceiptRef != nil:
			if now.Status.State != v1alpha1.ActionCommitted {
				return fmt.Errorf("action %s ended %s: %s", now.Name, now.Status.State, now.Status.Message)
			}
			return a.client.Get(ctx, kube.ObjectKey{Namespace: namespace, Name: now.Status.ReceiptRef.Name}, &v1alpha1.Receipt{})
		case now.Status.State == v1alpha1.ActionAdmitted && !reported:
			reported = true
			err := a.client.Create(ctx, &v1alpha1.Outcome{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: sdk.LockName(now, claim, a.user)},
				Spec: v1alpha1.OutcomeSpec{
					ActionRef: v1alpha1.ObjectReference{Name: now.Name, UID: now.UID}, ClaimID: claim, Result: v1alpha1.OutcomeCommitted,
				},
			})
			if err != nil {
				return fmt.Errorf("report: %w", err)
			}
		}
	}
	return fmt.Errorf("the watch of %s ended", o.Name)
}
