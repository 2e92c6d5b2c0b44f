// Package cli tests kubectl ctrlrun as people and agents use it: the built plugin as a process, with a kubeconfig of each
// user, on a real kube-apiserver and etcd, beside the built operator.
package cli

import (
	"context"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"ctrlrun.dev/operator/test/testenv"
)

var env *testenv.Environment

func TestCLI(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "cli")
}

var _ = BeforeSuite(func() {
	var err error
	env, err = testenv.Start(context.Background(), testenv.Options{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(env.Stop()).To(Succeed()) })
})
