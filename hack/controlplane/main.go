// Command controlplane is etcd, kube-apiserver and kubectl in one binary, built from their Go modules.
//
// The name it is called by decides which one it is, as with busybox: a link named "etcd" is etcd. Called by another
// name, the first argument decides. It exists so that the tests and the demo of this repository run against a real
// Kubernetes API on a machine that can reach nothing but a Go module proxy.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() {
	name, args := filepath.Base(os.Args[0]), os.Args
	if !known(name) && len(os.Args) > 1 {
		name, args = os.Args[1], os.Args[1:]
	}
	os.Args = args
	switch name {
	case "etcd":
		etcdmain.Main(args)
	case "kube-apiserver":
		os.Exit(cli.Run(app.NewAPIServerCommand()))
	case "kubectl":
		if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
			util.CheckErr(err)
		}
	default:
		fmt.Fprintln(os.Stderr, "usage: controlplane etcd|kube-apiserver|kubectl [arguments], or a link with one of these names")
		os.Exit(2)
	}
}

func known(name string) bool {
	return name == "etcd" || name == "kube-apiserver" || name == "kubectl"
}
