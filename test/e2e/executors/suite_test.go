// Package executors tests the ways to execute an action one by one, each through its Execute, on a real kube-apiserver and etcd: with
// tokens of real ServiceAccounts that have what RBAC gives them and no more.
package executors

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ctrlrun.dev/operator/test/testenv"
)

var env *testenv.Environment

func TestExecutors(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "executors")
}

var _ = BeforeSuite(func(ctx context.Context) {
	SetDefaultEventuallyTimeout(time.Minute)
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	var err error
	env, err = testenv.Start(ctx, testenv.Options{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(env.Stop()).To(Succeed()) })
}, NodeTimeout(2*time.Minute))

// account makes a ServiceAccount with these rules in its namespace and returns a connection with a token of it.
func account(ctx context.Context, namespace, name string, rules ...rbacv1.PolicyRule) *rest.Config {
	GinkgoHelper()
	Expect(env.Admin().Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})).To(Succeed())
	if len(rules) > 0 {
		Expect(env.Allow(ctx, namespace, testenv.ServiceAccountUser(namespace, name), rules...)).To(Succeed())
	}
	config, err := env.TokenConfig(ctx, namespace, name, nil)
	Expect(err).NotTo(HaveOccurred())
	return config
}

func rule(group, resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
}

// serviceAccount is who acts at a desk.
func serviceAccount(namespace string) testenv.User {
	return testenv.ServiceAccountUser(namespace, "executor")
}
