// Command executor measures how many actions a second the operator itself can execute by HTTP: the ceiling of an Executor without a
// bound. By turns in one run, agents only propose and wait for the end, and agents execute the same actions themselves with the SDK; on
// a real etcd and kube-apiserver, with the built operator as a process. The provider answers at once, in this process.
//
//	make build && go run ./test/bench/executor --agents 1,16,64 --seconds 20
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	sdk "ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/client/transport"
	"ctrlrun.dev/operator/test/testenv"
	"ctrlrun.dev/operator/test/testenv/assets"
)

const namespace = "payments"

func main() {
	agents := flag.String("agents", "1,16,64", "how many agents, one after the other")
	seconds := flag.Int("seconds", 20, "how long each is measured")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := measure(ctx, *agents, time.Duration(*seconds)*time.Second); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func measure(ctx context.Context, agents string, long time.Duration) (err error) {
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
	var calls atomic.Int64
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			calls.Add(1)
		}
		w.WriteHeader(http.StatusCreated)
	}))
	defer provider.Close()
	agent, err := prepare(ctx, env, provider.URL)
	if err != nil {
		return err
	}
	fmt.Println("agents  executed by the operator  by the agents   (actions a second)")
	for _, text := range strings.Split(agents, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return fmt.Errorf("--agents: %q is no number of agents", text)
		}
		var rates [2]float64
		for i, once := range []func(context.Context) error{agent.proposes, func(ctx context.Context) error { return agent.executes(ctx, provider.URL) }} {
			before := calls.Load()
			done, took, err := together(ctx, n, long, once)
			if err != nil {
				return err
			}
			if sent := calls.Load() - before; sent != done {
				return fmt.Errorf("%d actions are committed, and the provider was called %d times", done, sent)
			}
			rates[i] = float64(done) / took.Seconds()
		}
		fmt.Printf("%6d  %24.1f  %14.1f\n", n, rates[0], rates[1])
	}
	return nil
}

// together lets agents take one action after the other, until the time is over and each has ended its last. It gives how many were
// committed in how long.
func together(ctx context.Context, agents int, long time.Duration, once func(context.Context) error) (int64, time.Duration, error) {
	began := time.Now()
	var done atomic.Int64
	var all sync.WaitGroup
	failed := make([]error, agents)
	for i := range agents {
		all.Go(func() {
			for time.Since(began) < long && failed[i] == nil {
				if failed[i] = once(ctx); failed[i] == nil {
					done.Add(1)
				}
			}
		})
	}
	all.Wait()
	return done.Load(), time.Since(began), errors.Join(failed...)
}

// prepare makes the namespace, the Executor, and an agent.
func prepare(ctx context.Context, env *testenv.Environment, provider string) (*agent, error) {
	user := testenv.ServiceAccountUser(namespace, "refund-agent")
	most := int32(256)
	executor := &v1alpha1.Executor{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "refunds"},
		Spec: v1alpha1.ExecutorSpec{
			ActionTypes: []string{"executed.refund"}, ServiceAccountName: "refunds", MaxConcurrent: &most,
			HTTP: &v1alpha1.HTTPExecutor{Method: http.MethodPost, URL: provider + "/refunds", TimeoutSeconds: 30, Committed: []int32{http.StatusCreated}},
		},
	}
	if err := env.Admin().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		return nil, err
	}
	err := errors.Join(
		env.Admin().Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "refunds"}}),
		env.Grant(ctx, namespace, "ctrlrun-agent", user),
		env.Grant(ctx, namespace, "ctrlrun-operator-executors", testenv.OperatorUser()),
		env.Policy(ctx, namespace, `{"actions":{"executed.refund":{"effect":"executed:{payment_id}","decision":"allow"},"stripe.refund":{"effect":"refund:{payment_id}","decision":"allow"}}}`),
		env.WaitForAdmission(ctx),
		env.Admin().Create(ctx, executor),
	)
	if err != nil {
		return nil, err
	}
	for !meta.IsStatusConditionTrue(executor.Status.Conditions, v1alpha1.ReadyCondition) {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
		if err := env.Admin().Get(ctx, kube.ObjectKeyFromObject(executor), executor); err != nil {
			return nil, err
		}
	}
	cfg := env.Config(user)
	cfg.QPS = -1
	c, err := sdk.New(cfg, namespace)
	if err != nil {
		return nil, err
	}
	return &agent{sdk: c, http: (&transport.Transport{}).Client(30 * time.Second)}, nil
}

type agent struct {
	sdk  *sdk.Client
	http *http.Client
}

// proposes leaves the execution to the operator.
func (a *agent) proposes(ctx context.Context) error {
	call, err := a.sdk.Propose(ctx, sdk.Proposal{
		ActionType: "executed.refund", Arguments: map[string]any{"payment_id": uuid.NewString(), "amount": 500}, NotAfter: time.Now().Add(time.Hour),
	})
	if err != nil {
		return err
	}
	_, err = call.Wait(ctx)
	return err
}

// executes sends the same request itself.
func (a *agent) executes(ctx context.Context, provider string) error {
	_, err := a.sdk.Protect(ctx, sdk.Proposal{
		ActionType: "stripe.refund", Arguments: map[string]any{"payment_id": uuid.NewString(), "amount": 500},
	}, func(ctx context.Context, x sdk.Execution) (any, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, provider+"/refunds", bytes.NewReader(x.CanonicalArguments))
		if err != nil {
			return nil, sdk.NotExecuted(err)
		}
		request.Header.Set("Idempotency-Key", x.Token)
		response, err := a.http.Do(request)
		if err != nil {
			return nil, err
		}
		defer response.Body.Close() // it was only read
		if response.StatusCode != http.StatusCreated {
			return nil, fmt.Errorf("the provider says %s", response.Status)
		}
		return nil, nil
	})
	return err
}
