// Command ctrlrun-operator decides about Actions, keeps the record of their effects, and writes the receipts.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"ctrlrun.dev/operator/controllers"
)

// version is set by the linker.
var version = "dev"

func main() {
	if err := command().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var o controllers.Options
	var kubeconfig string
	var qps float32
	cmd := &cobra.Command{
		Use:           "ctrlrun-operator",
		Short:         "Decides about Actions, keeps the record of their effects, and writes the receipts.",
		Version:       version,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Logger = klog.NewKlogr()
			ctrl.SetLogger(o.Logger)
			if o.Namespace == "" {
				o.Namespace = ownNamespace()
			}
			if o.Namespace == "" {
				return fmt.Errorf("which namespace is the operator's own? Give --namespace, or run it in a pod with a ServiceAccount")
			}
			cfg, err := clientConfig(kubeconfig)
			if err != nil {
				return err
			}
			cfg.QPS, cfg.Burst, cfg.UserAgent = qps, int(2*qps), "ctrlrun-operator"
			mgr, err := controllers.New(cfg, o)
			if err != nil {
				return err
			}
			return mgr.Start(ctrl.SetupSignalHandler())
		},
	}
	f := cmd.Flags()
	f.StringVar(&kubeconfig, "kubeconfig", "", "Path of a kubeconfig. Default: $KUBECONFIG, or the pod's ServiceAccount.")
	f.StringVar(&o.Namespace, "namespace", "", "The operator's own namespace. Default: the pod's.")
	f.BoolVar(&o.LeaderElection, "leader-elect", true, "Let replicas take turns. It saves work; safety does not rest on it.")
	f.StringVar(&o.MetricsAddress, "metrics-bind-address", "127.0.0.1:8080", "Where to serve metrics; 0 for nowhere.")
	f.StringVar(&o.ProbeAddress, "health-probe-bind-address", "127.0.0.1:8081", "Where to serve /healthz and /readyz; 0 for nowhere.")
	f.IntVar(&o.Concurrency, "concurrency", 8, "How many Actions, and how many Effects, are worked on at once.")
	f.Float32Var(&qps, "kube-api-qps", 200, "Requests a second to the apiserver, at most; twice that in a burst.")
	logging := flag.NewFlagSet("logging", flag.ContinueOnError)
	klog.InitFlags(logging)
	f.AddGoFlag(logging.Lookup("v"))
	return cmd
}

// clientConfig prefers an explicit kubeconfig, then the pod's ServiceAccount, then the user's kubeconfig.
func clientConfig(path string) (*rest.Config, error) {
	if path == "" && os.Getenv(clientcmd.RecommendedConfigPathEnvVar) == "" {
		if cfg, err := rest.InClusterConfig(); err == nil {
			return cfg, nil
		}
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = path
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
}

func ownNamespace() string {
	data, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}
