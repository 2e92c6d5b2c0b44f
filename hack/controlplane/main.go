// Command controlplane is etcd, kube-apiserver and kubectl in one binary, built from their Go modules; and, for tests that
// need workloads to run, kube-controller-manager, kube-scheduler and a node for tests.
//
// The name it is called by decides which one it is, as with busybox: a link named "etcd" is etcd. Called by another
// name, the first argument decides. It exists so that the tests and the demo of this repository run against a real
// Kubernetes API on a machine that can reach nothing but a Go module proxy.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"

	"ctrlrun.dev/operator/hack/controlplane/node"
)

var names = []string{"etcd", "kube-apiserver", "kubectl", "kube-controller-manager", "kube-scheduler", "ctrlrun-node"}

func main() {
	name, args := filepath.Base(os.Args[0]), os.Args
	if !slices.Contains(names, name) && len(os.Args) > 1 {
		name, args = os.Args[1], os.Args[1:]
	}
	os.Args = args
	switch name {
	case "etcd":
		etcdmain.Main(args)
	case "kube-apiserver":
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	case "kube-controller-manager":
		os.Exit(cli.Run(controllermanager.NewControllerManagerCommand()))
	case "kube-scheduler":
		os.Exit(cli.Run(scheduler.NewSchedulerCommand()))
	case "ctrlrun-node":
		os.Exit(node.Main(args[1:]))
	case "kubectl":
		if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
			util.CheckErr(err)
		}
	default:
		fmt.Fprintln(os.Stderr, "usage: controlplane "+strings.Join(names, "|")+" [arguments], or a link with one of these names")
		os.Exit(2)
	}
}
