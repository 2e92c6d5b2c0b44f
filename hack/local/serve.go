package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/test/testenv"
)

const (
	namespace = "payments"
	admin     = "admin"
	viewer    = "ctrlrun-viewer"
)

// restart asks the supervisor to start the operator again, with the flags that are written down now.
const restart = syscall.SIGUSR1

// people are the users that get a kubeconfig. What they may do comes from config/samples/roles, as a team would have it, and
// from a ClusterRole that they have in the whole cluster; one right of each shows that the apiserver has taken these up.
var people = []struct {
	role       string
	user       testenv.User
	everywhere string
	mayVerb    string
	resource   string
	name       string
}{
	{"agent", testenv.ServiceAccountUser(namespace, "refund-agent"), "", "create", "actions", ""},
	{"approver", testenv.User{Name: "alice@example.com", Groups: []string{"refund-approvers"}}, "", "approve", "actiontypes", "stripe.*"},
	{"resolver", testenv.User{Name: "rosa@example.com", Groups: []string{"on-call"}}, viewer, "resolve", "actiontypes", "stripe.*"},
	{"auditor", testenv.User{Name: "audrey@example.com", Groups: []string{"auditors"}}, viewer, "list", "receipts", ""},
}

// serve runs everything until it is asked to stop. Its output is the log.
func serve(ctx context.Context, p place) (err error) {
	ctrllog.SetLogger(klog.Background())
	again := make(chan os.Signal, 1)
	signal.Notify(again, restart)
	defer signal.Stop(again)
	options := testenv.Options{Dir: p.run}
	table, err := said(p.node())
	if err != nil {
		return err
	}
	if len(table) > 0 {
		images, err := readTable(table[0])
		if err != nil {
			return err
		}
		options.Workloads = &testenv.Workloads{Images: images}
	}
	env, err := testenv.Start(ctx, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, env.Stop()) }()
	started, err := children()
	if err != nil {
		return err
	}
	for _, name := range []string{"etcd", "kube-apiserver"} {
		pid, ok := started[name]
		if !ok {
			return fmt.Errorf("%s is not among the processes started here: %v", name, started)
		}
		if err := p.record(name, pid); err != nil {
			return err
		}
	}
	for name, pid := range env.WorkloadProcesses() {
		if err := p.record(name, pid); err != nil {
			return err
		}
	}
	operator, err := startOperator(ctx, env, p)
	if err != nil {
		return err
	}
	if err := prepare(ctx, env, p); err != nil {
		return err
	}
	if err := p.sayReady(env, operator); err != nil {
		return err
	}
	for ended := operator.Done(); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-ended:
			// The control plane stays, so that one can look at what happened.
			fmt.Fprintln(os.Stderr, "the operator ended; see", p.operatorLog())
			ended = nil
		case <-again:
			if err := operator.Stop(); err != nil {
				fmt.Fprintln(os.Stderr, "stopping the operator:", err)
			}
			next, err := startOperator(ctx, env, p)
			if err == nil {
				operator, ended = next, next.Done()
				err = p.sayReady(env, operator)
			}
			result := ""
			if err != nil {
				result = err.Error()
				fmt.Fprintln(os.Stderr, "starting the operator again:", err)
			}
			if err := say(p.restarted(), result); err != nil {
				return err
			}
		}
	}
}

// startOperator starts the operator with the flags that are written down, and returns when it is ready.
func startOperator(ctx context.Context, env *testenv.Environment, p place) (*testenv.OperatorProcess, error) {
	flags, err := said(p.flags())
	if err != nil {
		return nil, err
	}
	operator, err := env.StartOperatorProcess(append([]string{"--v=1"}, flags...)...)
	if err != nil {
		return nil, err
	}
	if err := p.record(operatorName, operator.PID()); err != nil {
		return nil, errors.Join(err, operator.Stop())
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := operator.WaitReady(ctx); err != nil {
		return nil, fmt.Errorf("%w; its log ends with: %s", errors.Join(err, operator.Stop()), end(p.operatorLog(), 1))
	}
	return operator, nil
}

func (p place) sayReady(env *testenv.Environment, operator *testenv.OperatorProcess) error {
	return say(p.ready(), env.AdminConfig().Host, env.Assets, operator.Metrics)
}

// prepare makes the namespace, its policy and its people, and returns when an agent can act.
func prepare(ctx context.Context, env *testenv.Environment, p place) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if err := env.Admin().Create(ctx, ns); err != nil {
		return err
	}
	if err := testenv.WriteKubeconfig(p.kubeconfig(admin), env.AdminConfig(), admin, namespace); err != nil {
		return err
	}
	if err := applySamples(ctx, env, p); err != nil {
		return err
	}
	for _, one := range people {
		if one.everywhere != "" {
			if err := env.Grant(ctx, "", one.everywhere, one.user); err != nil {
				return err
			}
		}
		right := authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: one.mayVerb, Group: v1alpha1.GroupVersion.Group, Resource: one.resource, Name: one.name,
		}
		if err := env.WaitForAccess(ctx, one.user, right); err != nil {
			return err
		}
		if err := testenv.WriteKubeconfig(p.kubeconfig(one.role), env.Config(one.user), one.user.Name, namespace); err != nil {
			return err
		}
	}
	if err := waitForPolicy(ctx, env); err != nil {
		return err
	}
	return env.WaitForAdmission(ctx)
}

// applySamples applies them as a user would. They are the field manager's who applies, so that an edited copy can be applied
// with the same command and is no conflict.
func applySamples(ctx context.Context, env *testenv.Environment, p place) error {
	cmd := exec.CommandContext(ctx, env.Kubectl(), "--kubeconfig="+p.kubeconfig(admin),
		"apply", "--server-side", "-k", filepath.Join(p.root, "config", "samples"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("applying config/samples: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

func waitForPolicy(ctx context.Context, env *testenv.Environment) error {
	policy := &v1alpha1.ActionPolicy{}
	for {
		if err := env.Admin().Get(ctx, client.ObjectKey{Namespace: namespace, Name: "payments"}, policy); err != nil {
			return fmt.Errorf("waiting for the policy to be in force: %w", err)
		}
		if apimeta.IsStatusConditionTrue(policy.Status.Conditions, v1alpha1.ReadyCondition) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the policy is not in force: %w: %v", ctx.Err(), policy.Status.Conditions)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
