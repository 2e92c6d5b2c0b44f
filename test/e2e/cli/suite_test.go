// Package cli tests what people and agents use: the built plugin as a process, with a kubeconfig of each user, and the Go
// SDK, on a real kube-apiserver and etcd, beside the built operator.
package cli

import (
	"context"
	"os"
	"path/filepath"
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

// startOperator runs the operator for the specs of a container, and returns when statements count.
func startOperator(ctx context.Context) *testenv.OperatorProcess {
	GinkgoHelper()
	operator, err := env.StartOperatorProcess()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(operator.Stop)
	Expect(operator.WaitReady(ctx)).To(Succeed())
	Expect(env.WaitForAdmission(ctx)).To(Succeed())
	return operator
}

// reportOperatorLog shows the end of the operator's log beside a failure.
func reportOperatorLog() {
	if !CurrentSpecReport().Failed() {
		return
	}
	log, err := os.ReadFile(filepath.Join(env.Dir, filepath.Base(env.OperatorBinary())+".log"))
	Expect(err).NotTo(HaveOccurred())
	AddReportEntry("the operator's log", string(log[max(0, len(log)-20000):]))
}
