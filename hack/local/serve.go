package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
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

//go:embed payments.yaml
var payments []byte

// people are the users that get a kubeconfig, with the ClusterRole and the right to speak about stripe.* that each has.
var people = []struct {
	role, clusterRole, verb string
	user                    testenv.User
}{
	{role: "agent", clusterRole: "ctrlrun-agent", user: testenv.ServiceAccountUser(namespace, "refund-agent")},
	{role: "approver", clusterRole: "ctrlrun-approver", verb: "approve", user: testenv.User{Name: "alice", Groups: []string{"finance"}}},
	{role: "resolver", clusterRole: "ctrlrun-resolver", verb: "resolve", user: testenv.User{Name: "rosa", Groups: []string{"on-call"}}},
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
	operator, err := env.StartOperatorProcess()
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
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := operator.WaitReady(ctx); err != nil {
		return err
	}
	for d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(payments), 4096); ; {
		o := &unstructured.Unstructured{}
		if err := d.Decode(&o.Object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		if err := env.Admin().Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("ctrlrun-local")); err != nil {
			return fmt.Errorf("applying %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	for _, one := range people {
		if err := env.Grant(ctx, namespace, one.clusterRole, one.user); err != nil {
			return err
		}
		if one.verb != "" {
			rule := rbacv1.PolicyRule{
				APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"actiontypes"},
				ResourceNames: []string{"stripe.*"}, Verbs: []string{one.verb},
			}
			if err := env.Allow(ctx, namespace, one.user, rule); err != nil {
				return err
			}
		}
		if err := testenv.WriteKubeconfig(p.kubeconfig(one.role), env.Config(one.user), one.user.Name, namespace); err != nil {
			return err
		}
	}
	if err := testenv.WriteKubeconfig(p.kubeconfig(admin), env.AdminConfig(), admin, namespace); err != nil {
		return err
	}
	return waitForPolicy(ctx, env)
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
