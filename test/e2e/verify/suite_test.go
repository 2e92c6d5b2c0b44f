// Package verify tests `kubectl ctrlrun verify` as a process on a real kube-apiserver and etcd: beside the built operator, where
// every guarantee holds, and beside operators and policies that were broken on purpose, where each is seen to fail.
package verify

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/test/testenv"
)

var (
	env *testenv.Environment
	// plugin is the program under test.
	plugin string
)

func TestVerify(t *testing.T) {
	RegisterFailHandler(Fail)
	log.SetLogger(logr.Discard()) // the library's own lines would be taken for the product's
	RunSpecs(t, "verify")
}

var _ = BeforeSuite(func() {
	var err error
	env, err = testenv.Start(context.Background(), testenv.Options{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(env.Stop()).To(Succeed()) })
	plugin = filepath.Join(env.Root, "bin", "kubectl-ctrlrun")
	Expect(plugin).To(BeAnExistingFile(), "`make build` puts it there")
	ctx, stop := context.WithCancel(context.Background())
	DeferCleanup(stop)
	go finishNamespaces(ctx)
})

// startOperator runs the built operator for the specs of a container, and returns when statements count.
func startOperator(ctx context.Context) {
	GinkgoHelper()
	operator, err := env.StartOperatorProcess()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(operator.Stop)
	Expect(operator.WaitReady(ctx)).To(Succeed())
	Expect(env.WaitForAdmission(ctx)).To(Succeed())
}

// finishNamespaces does what the namespace controller of a cluster does, by the same requests, which admission has to let
// through: it empties a namespace that is being deleted, and then lets it end.
func finishNamespaces(ctx context.Context) {
	for ctx.Err() == nil {
		namespaces := &corev1.NamespaceList{}
		if err := env.Admin().List(ctx, namespaces); err == nil {
			for i := range namespaces.Items {
				if ns := &namespaces.Items[i]; ns.DeletionTimestamp != nil {
					finish(ctx, ns)
				}
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// finish tries again the next time where something is refused: the apiserver may not know yet that the namespace is being deleted.
func finish(ctx context.Context, ns *corev1.Namespace) {
	for _, kind := range []client.Object{
		&v1alpha1.ActionPolicy{}, &v1alpha1.Settings{}, &v1alpha1.Approval{}, &v1alpha1.Claim{}, &v1alpha1.Outcome{}, &v1alpha1.Resolution{},
		&v1alpha1.Action{}, &v1alpha1.Effect{}, &v1alpha1.Receipt{}, &v1alpha1.Grant{}, &v1alpha1.Delegation{}, &v1alpha1.Revocation{}, &rbacv1.RoleBinding{}, &rbacv1.Role{}, &corev1.ServiceAccount{},
	} {
		if err := env.Admin().DeleteAllOf(ctx, kind, client.InNamespace(ns.Name)); err != nil {
			return
		}
	}
	ns.Spec.Finalizers = nil
	_ = env.Admin().SubResource("finalize").Update(ctx, ns)
}

// gone says that a namespace is not there.
func gone(ctx context.Context, name string) bool {
	return apierrors.IsNotFound(env.Admin().Get(ctx, client.ObjectKey{Name: name}, &corev1.Namespace{}))
}
