package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
)

// people are the users that get a kubeconfig. What they may do comes from config/samples/roles, as a team would have it; one
// right of each shows that the apiserver has taken these roles up.
var people = []struct {
	role     string
	user     testenv.User
	mayVerb  string
	resource string
	name     string
}{
	{"agent", testenv.ServiceAccountUser(namespace, "refund-agent"), "create", "actions", ""},
	{"approver", testenv.User{Name: "alice@example.com", Groups: []string{"refund-approvers"}}, "approve", "actiontypes", "stripe.*"},
	{"resolver", testenv.User{Name: "rosa@example.com", Groups: []string{"on-call"}}, "resolve", "actiontypes", "stripe.*"},
}

// serve runs everything until it is asked to stop. Its output is the log.
func serve(ctx context.Context, p place) (err error) {
	ctrllog.SetLogger(klog.Background())
	env, err := testenv.Start(ctx, testenv.Options{Dir: p.run})
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
	operator, err := env.StartOperatorProcess("--v=1")
	if err != nil {
		return err
	}
	if err := p.record("ctrlrun-operator", operator.PID()); err != nil {
		return err
	}
	if err := prepare(ctx, env, p, operator); err != nil {
		return err
	}
	if err := p.sayReady(env.AdminConfig().Host, env.Assets); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case <-operator.Done():
		// The control plane stays, so that one can look at what happened.
		fmt.Fprintln(os.Stderr, "the operator ended; see", filepath.Join(p.run, "ctrlrun-operator.log"))
		<-ctx.Done()
		return nil
	}
}

// prepare makes the namespace, its policy and its people, and returns when an agent can act.
func prepare(ctx context.Context, env *testenv.Environment, p place, operator *testenv.OperatorProcess) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := operator.WaitReady(ctx); err != nil {
		return err
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if err := env.Admin().Create(ctx, ns); err != nil {
		return err
	}
	if err := env.Apply(ctx, filepath.Join("config", "samples")); err != nil {
		return err
	}
	for _, one := range people {
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
	if err := testenv.WriteKubeconfig(p.kubeconfig(admin), env.AdminConfig(), admin, namespace); err != nil {
		return err
	}
	if err := waitForPolicy(ctx, env); err != nil {
		return err
	}
	return env.WaitForAdmission(ctx)
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
