package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/test/testenv"
)

// namespace is where config/samples puts its policy and its Roles.
const namespace = "payments"

// patience bounds the wait for one thing to become so.
const patience = 30 * time.Second

// stage is what the stories are played on.
type stage struct {
	env      *testenv.Environment
	operator *testenv.OperatorProcess
	provider *provider
	// bin has kubectl, its plugin and the agent's program; work is where people type.
	bin, work, cache string
	jobs             []*job

	agent, rival               *person
	alice, rosa, audrey, admin *person
	// Those of the chain: who grants, and whom it is handed on to.
	olga, head, finance, support *person
}

func (d *demo) introduce() {
	d.say("%s", d.bold("ctrlrun: the last check before an agent does something the world will remember"))
	d.tell(`Five stories on a real Kubernetes API. What stands behind a $ is typed by somebody with a certificate and the Roles of
		config/samples, and what stands below it is what came back. The payment provider is a web server that pays for every call
		it gets: nothing but ctrlrun keeps it from paying twice.`)
	d.say("")
	d.say("  refund-agent    the agent. It may propose, claim and report, and nothing else")
	d.say("  rival-agent     another agent, who wants to do the same")
	d.say("  alice           may approve whatever begins with stripe.")
	d.say("  rosa            is on call, and may resolve what nobody knows")
	d.say("  audrey          audits: she may read everything")
	d.say("  olga            owns the policies and grants of the namespace")
	d.tell(`The policy, in minor units: a stripe.refund up to 50000 is allowed, up to 500000 a person is asked, more is denied. Two
		refunds of one payment are one effect, refund:{payment_id}.`)
	d.say("")
}

// setUp starts everything and returns when an agent can act. What it returns has to be stopped, after an error too.
func (d *demo) setUp(ctx context.Context) (*stage, error) {
	s := &stage{bin: filepath.Join(d.dir, "bin"), work: filepath.Join(d.dir, "work"), cache: filepath.Join(d.dir, "cache")}
	var err error
	if s.provider, err = startProvider(); err != nil {
		return s, err
	}
	if s.env, err = testenv.Start(ctx, testenv.Options{Dir: d.dir}); err != nil {
		return s, err
	}
	d.progress("etcd and kube-apiserver run, and admission is enforced")
	if s.operator, err = s.env.StartOperatorProcess("--v=1"); err != nil {
		return s, err
	}
	// What follows needs no operator, so the operator takes its time meanwhile.
	if err := s.install(ctx, d); err != nil {
		return s, err
	}
	d.progress("the policy and the Roles of config/samples are there")
	if err := s.operator.WaitReady(ctx); err != nil {
		return s, err
	}
	d.progress("the operator runs, process %d; it is testing whether admission refuses what it must", s.operator.PID())
	if err := s.policyInForce(ctx); err != nil {
		return s, err
	}
	if err := s.env.WaitForAdmission(ctx); err != nil {
		return s, err
	}
	d.progress("admission has proved itself for ten seconds: what is stated from now on counts")
	return s, nil
}

func (d *demo) progress(format string, args ...any) {
	d.say("  %4.1f s  %s", time.Since(d.started).Seconds(), fmt.Sprintf(format, args...))
}

// install makes the namespace, the programs and the people.
func (s *stage) install(ctx context.Context, d *demo) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if err := s.env.Admin().Create(ctx, ns); err != nil {
		return err
	}
	if err := s.env.Apply(ctx, filepath.Join("config", "samples")); err != nil {
		return err
	}
	if err := s.programs(); err != nil {
		return err
	}
	someone := func(name string, u testenv.User) *person {
		return &person{d: d, name: name, user: u, kubeconfig: s.env.KubeconfigIn(u, namespace)}
	}
	s.agent = someone("refund-agent", testenv.ServiceAccountUser(namespace, "refund-agent"))
	s.rival = someone("rival-agent", testenv.ServiceAccountUser(namespace, "rival-agent"))
	s.alice = someone("alice", testenv.User{Name: "alice@example.com", Groups: []string{"refund-approvers"}})
	s.rosa = someone("rosa", testenv.User{Name: "rosa@example.com", Groups: []string{"on-call"}})
	s.audrey = someone("audrey", testenv.User{Name: "audrey@example.com"})
	s.olga = someone("olga", testenv.User{Name: "olga@example.com"})
	s.head = someone("head-of-finance", testenv.User{Name: "head-of-finance@example.com"})
	s.finance = someone("finance-agent", testenv.ServiceAccountUser(namespace, "finance-agent"))
	s.support = someone("support-agent", testenv.ServiceAccountUser(namespace, "support-agent"))
	s.admin = &person{d: d, name: "cluster-admin", kubeconfig: filepath.Join(d.dir, "admin.kubeconfig")}
	if err := testenv.WriteKubeconfig(s.admin.kubeconfig, s.env.AdminConfig(), s.admin.name, namespace); err != nil {
		return err
	}
	// config/samples has one agent, no auditor, and nobody who writes grants.
	if err := s.env.Grant(ctx, namespace, "ctrlrun-agent", s.rival.user, s.head.user, s.finance.user, s.support.user); err != nil {
		return err
	}
	if err := s.env.Grant(ctx, namespace, "ctrlrun-policy-admin", s.olga.user); err != nil {
		return err
	}
	if err := s.env.Grant(ctx, "", "ctrlrun-viewer", s.audrey.user); err != nil {
		return err
	}
	// One right of each shows that the apiserver has taken up the Roles of the others.
	for _, right := range []struct {
		who                  *person
		verb, resource, name string
	}{
		{s.agent, "create", "actions", ""},
		{s.alice, "approve", "actiontypes", "stripe.*"},
		{s.alice, "watch", "approvals", ""},
		{s.rosa, "resolve", "actiontypes", "stripe.refund"},
	} {
		err := s.env.WaitForAccess(ctx, right.who.user, authorizationv1.ResourceAttributes{
			Namespace: namespace, Group: v1alpha1.GroupVersion.Group, Verb: right.verb, Resource: right.resource, Name: right.name,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// programs puts what is typed into one directory: `kubectl ctrlrun` then finds its plugin as it would anywhere.
func (s *stage) programs() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for _, dir := range []string{s.bin, s.work, s.cache} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	const plugin = "kubectl-ctrlrun"
	for name, target := range map[string]string{
		"kubectl": s.env.Kubectl(), plugin: filepath.Join(s.env.Root, "bin", plugin), refundCommand: self,
	} {
		if _, err := os.Stat(target); err != nil {
			return fmt.Errorf("%w; `make build` makes it", err)
		}
		if err := os.Symlink(target, filepath.Join(s.bin, name)); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) policyInForce(ctx context.Context) error {
	policy := &v1alpha1.ActionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "payments"}}
	return s.until(ctx, policy, "in force", func() bool {
		return meta.IsStatusConditionTrue(policy.Status.Conditions, v1alpha1.ReadyCondition)
	})
}

// operatorEnded says whether the operator, which nobody here asked to, has ended.
func (s *stage) operatorEnded() bool {
	if s == nil || s.operator == nil {
		return false
	}
	select {
	case <-s.operator.Done():
		return true
	default:
		return false
	}
}

// stop ends everything that runs. A nil stage has nothing to stop.
func (s *stage) stop() error {
	if s == nil {
		return nil
	}
	for _, j := range s.jobs {
		j.stop()
	}
	var errs []error
	if s.env != nil {
		errs = append(errs, s.env.Stop())
	}
	if s.provider != nil {
		errs = append(errs, s.provider.server.Close())
	}
	return errors.Join(errs...)
}

// until reads an object, which may not be there yet, until it is as the caller wants it.
func (s *stage) until(ctx context.Context, o client.Object, what string, done func() bool) error {
	key := client.ObjectKeyFromObject(o)
	var last error
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		if err := s.env.Admin().Get(ctx, key, o); ctx.Err() == nil {
			last = err
		}
		return last == nil && done(), nil
	})
	if err != nil {
		kind := strings.TrimPrefix(fmt.Sprintf("%T", o), "*v1alpha1.")
		return errors.Join(fmt.Errorf("%s %s is not %s after %s", kind, key.Name, what, patience), last)
	}
	return nil
}

// reaches waits until an Action is in a state that is not its last.
func (s *stage) reaches(ctx context.Context, name string, state v1alpha1.ActionState) (*v1alpha1.Action, error) {
	return s.action(ctx, name, string(state), func(a *v1alpha1.Action) bool { return a.Status.State == state })
}

// ended waits until an Action has ended, however, and has its receipt.
func (s *stage) ended(ctx context.Context, name string) (*v1alpha1.Action, error) {
	return s.action(ctx, name, "finished", func(a *v1alpha1.Action) bool { return a.Status.ReceiptRef != nil })
}

func (s *stage) action(ctx context.Context, name, what string, done func(*v1alpha1.Action) bool) (*v1alpha1.Action, error) {
	a := &v1alpha1.Action{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	err := s.until(ctx, a, what, func() bool { return done(a) })
	if err != nil {
		err = fmt.Errorf("%w; it is %q, reason %q: %s", err, a.Status.State, a.Status.Reason, a.Status.Message)
	}
	return a, err
}

// verdict waits until the operator has judged an Approval.
func (s *stage) verdict(ctx context.Context, name string) (metav1.Condition, error) {
	a := &v1alpha1.Approval{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	var c *metav1.Condition
	err := s.until(ctx, a, "judged", func() bool {
		c = meta.FindStatusCondition(a.Status.Conditions, v1alpha1.AcceptedCondition)
		return c != nil
	})
	if err != nil {
		return metav1.Condition{}, err
	}
	return *c, nil
}

// record is the Effect of a key.
func (s *stage) record(ctx context.Context, key string) (*v1alpha1.EffectStatus, error) {
	e := &v1alpha1.Effect{}
	if err := s.env.Admin().Get(ctx, client.ObjectKey{Namespace: namespace, Name: action.EffectName(key)}, e); err != nil {
		return nil, err
	}
	if e.Status == nil {
		return nil, fmt.Errorf("the Effect of %s has no status", key)
	}
	return e.Status, nil
}

// receipts are those of the namespace, in the order of the chain.
func (s *stage) receipts(ctx context.Context) ([]v1alpha1.Receipt, error) {
	list := &v1alpha1.ReceiptList{}
	err := s.env.Admin().List(ctx, list, client.InNamespace(namespace))
	return list.Items, err
}
