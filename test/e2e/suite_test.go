// Package e2e tests the product on a real kube-apiserver and etcd, as real users with real RBAC.
package e2e

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"ctrlrun.dev/operator/test/testenv"
)

var env *testenv.Environment

func TestE2E(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "e2e")
}

var _ = BeforeSuite(func() {
	log.SetLogger(GinkgoLogr)
	var err error
	env, err = testenv.Start(context.Background(), testenv.Options{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(env.Stop()).To(Succeed()) })

	// MutatingAdmissionPolicies answer 503 for a kind until the apiserver has read its schema, which it does every 5 s.
	action := object("Action", "default", "ready", fields{"actionType": "x"})
	Eventually(func() error { return env.Admin().Create(context.Background(), action.DeepCopy(), client.DryRunAll) }).
		WithTimeout(20 * time.Second).Should(Succeed())
})
