package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1 "k8s.io/api/core/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/test/chaos/judge"
	"ctrlrun.dev/operator/test/chaos/remote"
	"ctrlrun.dev/operator/test/testenv"
)

// policy asks people about large refunds and allows small ones. Nothing bounds the attempts: what failed is tried again.
const policy = `{"actions":{"stripe.refund":{"effect":"refund:{payment_id}","resource":"payment:{payment_id}","rules":[
	{"when":{"amount_gte":0,"amount_lt":501},"decision":"allow"},{"decision":"approve"}]}}}`

// agents is how many there are, each with its own client and identity.
const agents = 4

// scene is a namespace with everything that acts in it, its own remote and its own journal.
type scene struct {
	namespace string
	admin     kube.Reader
	agents    []*agent
	approver  *person
	oncall    *person

	remote *remote.Server
	// behaviours of the remote, by the uid of the Action that calls it.
	behaviours sync.Map
	journal    *judge.Journal
	payments   payments
	dealt      dealt
	// finished actions, as agents saw them.
	finished atomic.Int64
}

// newScene makes a namespace that keeps finished Actions for a time. An operator has to run, and to judge its policy.
func newScene(ctx context.Context, env *testenv.Environment, namespace string, keep time.Duration) (*scene, error) {
	s := &scene{namespace: namespace, admin: env.Admin(), journal: judge.NewJournal(nil)}
	if err := env.Admin().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		return nil, err
	}
	finished := int64(keep / time.Second)
	if err := env.Admin().Create(ctx, &v1alpha1.Settings{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.SettingsName},
		Spec:       v1alpha1.SettingsSpec{FinishedTTLSeconds: &finished},
	}); err != nil {
		return nil, err
	}
	if err := env.Policy(ctx, namespace, policy); err != nil {
		return nil, err
	}
	if err := s.people(ctx, env); err != nil {
		return nil, err
	}
	var err error
	s.remote, err = remote.Start(s.behave)
	return s, err
}

// people gives everybody their rights and a client of their own. Nobody is a member of system:masters, whom the apiserver
// serves before all others.
func (s *scene) people(ctx context.Context, env *testenv.Environment) error {
	join := func(role string, user testenv.User) (*client.Client, error) {
		if err := env.Grant(ctx, s.namespace, role, user); err != nil {
			return nil, err
		}
		return client.New(env.Config(user), s.namespace)
	}
	for i := range agents {
		sdk, err := join("ctrlrun-agent", testenv.ServiceAccountUser(s.namespace, fmt.Sprintf("agent-%d", i+1)))
		if err != nil {
			return err
		}
		s.agents = append(s.agents, &agent{scene: s, sdk: sdk, number: i + 1})
	}
	for role, into := range map[string]**person{"ctrlrun-approver": &s.approver, "ctrlrun-resolver": &s.oncall} {
		user := testenv.ServiceAccountUser(s.namespace, role)
		sdk, err := join(role, user)
		if err != nil {
			return err
		}
		*into = &person{sdk: sdk, name: user.Name}
	}
	return nil
}

// behave is what the remote asks before it does anything. A call that nobody announced is a plain one: it is counted, and judged.
func (s *scene) behave(c remote.Call) remote.Behaviour {
	if behaviour, announced := s.behaviours.LoadAndDelete(c.ActionUID); announced {
		return behaviour.(remote.Behaviour)
	}
	return remote.Execute
}

// close ends the remote, and what still hangs on it.
func (s *scene) close() { _ = s.remote.Close() } // the run is over: nobody is left to tell

// open is what is still under way, in words; nothing if all is done.
type open func(context.Context) (string, error)

// unfinished are the Actions without an end or without a receipt.
func (s *scene) unfinished(ctx context.Context) (string, error) {
	list := &v1alpha1.ActionList{}
	err := s.admin.List(ctx, list, kube.InNamespace(s.namespace), kube.MatchingFields{"status.receiptRef.name": ""})
	if err != nil || len(list.Items) == 0 {
		return "", err
	}
	first := list.Items[0]
	return fmt.Sprintf("%d actions are not finished, such as %s: %s", len(list.Items), first.Name, first.Status.State), nil
}

// unresolved are the Effects that wait for a person.
func (s *scene) unresolved(ctx context.Context) (string, error) {
	list := &v1alpha1.EffectList{}
	err := s.admin.List(ctx, list, kube.InNamespace(s.namespace), kube.MatchingFields{"status.state": string(v1alpha1.EffectAmbiguous)})
	if err != nil || len(list.Items) == 0 {
		return "", err
	}
	return fmt.Sprintf("%d effects are not resolved, such as %s", len(list.Items), list.Items[0].Spec.Key), nil
}

// await returns when nothing is open.
func (s *scene) await(ctx context.Context, all ...open) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, of := range all {
		for {
			what, err := of(ctx)
			if err != nil {
				return err
			}
			if what == "" {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("%s in %s, %s after the end of the load", what, s.namespace, patience)
			case <-time.After(200 * time.Millisecond):
			}
		}
	}
	return nil
}

// judge judges the scene. Nothing may be under way.
func (s *scene) judge(ctx context.Context) (judge.State, judge.Verdict, error) {
	state, err := judge.Collect(ctx, s.admin, s.namespace, s.remote.Executions())
	if err != nil {
		return state, judge.Verdict{}, err
	}
	return state, judge.Judge(state, s.journal.Injections()), nil
}
