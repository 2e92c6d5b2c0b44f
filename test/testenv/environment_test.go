package testenv_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/test/testenv"
)

// One control plane serves every test here: starting one takes longer than all of them.
func TestEnvironment(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	env, err := testenv.Start(ctx, testenv.Options{})
	if err != nil {
		t.Fatal(err)
	}
	dir := env.Dir
	defer func() {
		if err := env.Stop(); err != nil {
			t.Errorf("Stop: %v", err)
		}
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("Stop left its temporary directory %s behind", dir)
		}
	}()

	t.Run("policies are enforced from the first request on", func(t *testing.T) {
		crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "effects.ctrlrun.dev"}}
		err := env.Admin().Delete(ctx, crd, client.DryRunAll)
		if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
			t.Errorf("deleting the CRD of effects: got %v, want a refusal by a ValidatingAdmissionPolicy", err)
		}
	})

	t.Run("a user is authenticated by name and groups", func(t *testing.T) {
		u := testenv.User{Name: "alice@example.com", Groups: []string{"finance"}}
		got := whoami(t, env.Client(u))
		if got.Username != u.Name || !slices.Contains(got.Groups, "finance") || slices.Contains(got.Groups, "system:masters") {
			t.Errorf("the apiserver sees %+v", got)
		}
		cfg, err := clientcmd.BuildConfigFromFlags("", env.KubeconfigIn(u, "payments"))
		if err != nil {
			t.Fatal(err)
		}
		c, err := client.New(cfg, client.Options{Scheme: env.Scheme})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(got, whoami(t, c)); diff != "" {
			t.Errorf("by kubeconfig the user is somebody else (-client +kubeconfig):\n%s", diff)
		}
	})

	t.Run("a user may do nothing until granted, and then at once", func(t *testing.T) {
		ns := env.Namespace(t, map[string]string{"ctrlrun.dev/environment": "staging"})
		u := testenv.User{Name: "bob"}
		create := func(name string) error {
			return env.Client(u).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}})
		}
		if err := create("before"); !apierrors.IsForbidden(err) {
			t.Errorf("before: got %v, want Forbidden", err)
		}
		rule := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps", "configmaps/status"}, Verbs: []string{"create"}}
		if err := env.Allow(ctx, ns, u, rule); err != nil {
			t.Fatal(err)
		}
		if err := create("after"); err != nil {
			t.Errorf("after: %v", err)
		}
		other := env.Namespace(t, nil)
		if err := env.Grant(ctx, other, "admin", u); err == nil {
			t.Error("granting an aggregated role that no controller has filled should fail: it has no rules to wait for")
		}
	})

	t.Run("a ServiceAccount's token carries its pod", func(t *testing.T) {
		ns := env.Namespace(t, nil)
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "agent"}}
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "agent-0"},
			Spec:       corev1.PodSpec{ServiceAccountName: "agent", Containers: []corev1.Container{{Name: "agent", Image: "agent"}}},
		}
		for _, o := range []client.Object{account, pod} {
			if err := env.Admin().Create(ctx, o); err != nil {
				t.Fatal(err)
			}
		}
		cfg, err := env.TokenConfig(ctx, ns, "agent", &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID,
		})
		if err != nil {
			t.Fatal(err)
		}
		c, err := client.New(cfg, client.Options{Scheme: env.Scheme})
		if err != nil {
			t.Fatal(err)
		}
		got := whoami(t, c)
		want := testenv.ServiceAccountUser(ns, "agent")
		if got.Username != want.Name || !slices.Contains(got.Groups, want.Groups[1]) {
			t.Errorf("the apiserver sees %+v", got)
		}
		if diff := cmp.Diff(authenticationv1.ExtraValue{"agent-0"}, got.Extra["authentication.kubernetes.io/pod-name"]); diff != "" {
			t.Errorf("pod name (-want +got):\n%s", diff)
		}
	})

	t.Run("an operator runs as its ServiceAccount until stopped", func(t *testing.T) {
		started := make(chan string, 1)
		o, err := env.StartOperator(func(cfg *rest.Config) (testenv.Runnable, error) {
			return runnable(func(ctx context.Context) error {
				c, err := client.New(cfg, client.Options{Scheme: env.Scheme})
				if err != nil {
					return err
				}
				started <- whoami(t, c).Username
				<-ctx.Done()
				return nil
			}), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := <-started; got != testenv.OperatorUser().Name {
			t.Errorf("the operator is %s", got)
		}
		select {
		case <-o.Done():
			t.Error("the operator ended by itself")
		default:
		}
		if err := o.Stop(); err != nil {
			t.Error(err)
		}
	})

	t.Run("a process is paused, resumed, stopped", func(t *testing.T) {
		out := filepath.Join(t.TempDir(), "out")
		p, err := env.StartProcess(testenv.Command{
			Path: "/bin/sh",
			Args: []string{"-c", `trap 'echo stopped >>"$OUT"; exit 7' TERM; echo started >"$OUT"; while :; do sleep 0.05; done`},
			Env:  []string{"OUT=" + out},
		})
		if err != nil {
			t.Fatal(err)
		}
		waitForContent(t, out, "started\n")
		if err := p.Pause(); err != nil {
			t.Fatal(err)
		}
		// Stop resumes it, or it could not answer SIGTERM and would be killed, an error.
		if err := p.Stop(); err != nil {
			t.Fatal(err)
		}
		if code, err := p.Wait(ctx); err != nil || code != 7 {
			t.Errorf("exit code %d (%v), want 7", code, err)
		}
		waitForContent(t, out, "started\nstopped\n")
	})

	t.Run("the cluster goes back to a snapshot, and those who use it go on", func(t *testing.T) {
		ns := env.Namespace(t, nil)
		mark := func(name string) *corev1.ConfigMap {
			return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
		}
		if err := env.Admin().Create(ctx, mark("before")); err != nil {
			t.Fatal(err)
		}
		snapshot, err := env.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		if err := env.Admin().Create(ctx, mark("after")); err != nil {
			t.Fatalf("etcd does not go on: %v", err)
		}
		if err := env.Restore(ctx, snapshot); err != nil {
			t.Fatal(err)
		}
		if err := env.Admin().Get(ctx, client.ObjectKeyFromObject(mark("before")), mark("before")); err != nil {
			t.Errorf("what was there: %v", err)
		}
		if err := env.Admin().Get(ctx, client.ObjectKeyFromObject(mark("after")), mark("after")); !apierrors.IsNotFound(err) {
			t.Errorf("what came after: got %v, want NotFound", err)
		}
		if got := whoami(t, env.Client(testenv.User{Name: "bob"})); got.Username != "bob" {
			t.Errorf("the apiserver sees %+v", got)
		}
	})
}

type runnable func(context.Context) error

func (r runnable) Start(ctx context.Context) error { return r(ctx) }

func whoami(t *testing.T, c client.Client) authenticationv1.UserInfo {
	t.Helper()
	review := &authenticationv1.SelfSubjectReview{}
	if err := c.Create(context.Background(), review); err != nil {
		t.Errorf("asking the apiserver who it sees: %v", err)
	}
	return review.Status.UserInfo
}

func waitForContent(t *testing.T, path, want string) {
	t.Helper()
	var got []byte
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		if got, _ = os.ReadFile(path); string(got) == want {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%s holds %q, want %q", path, got, want)
}
