// Command ctrlrun-operator decides about Actions, keeps the record of their effects, and writes the receipts.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/controllers"
	"ctrlrun.dev/operator/controllers/export"
	"ctrlrun.dev/operator/executors/pool"
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
	var out exporting
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
			if err := export.CheckKubernetesEvents(o.KubernetesEvents); err != nil {
				return err
			}
			if o.Namespace == "" {
				return fmt.Errorf("which namespace is the operator's own? Give --namespace, or run it in a pod with a ServiceAccount")
			}
			cfg, err := clientConfig(kubeconfig)
			if err != nil {
				return err
			}
			cfg.QPS, cfg.Burst, cfg.UserAgent = qps, int(2*qps), "ctrlrun-operator"
			o.Version = version
			ctx := ctrl.SetupSignalHandler()
			sinks, err := out.open(ctx, cfg, o.Logger.WithName("export"))
			if err != nil {
				return err
			}
			o.Observers = append(o.Observers, sinks.Observers()...)
			defer drain(sinks, o.Logger)
			if o.Executors, err = pool.New(cfg); err != nil {
				return err
			}
			mgr, err := controllers.New(cfg, o)
			if err != nil {
				return err
			}
			return mgr.Start(ctx)
		},
	}
	f := cmd.Flags()
	f.StringVar(&kubeconfig, "kubeconfig", "", "Path of a kubeconfig. Default: $KUBECONFIG, or the pod's ServiceAccount.")
	f.StringVar(&o.Namespace, "namespace", "", "The operator's own namespace. Default: the pod's.")
	f.BoolVar(&o.LeaderElection, "leader-elect", true, "Let replicas take turns. It saves work; safety does not rest on it.")
	f.StringVar(&o.MetricsAddress, "metrics-bind-address", "127.0.0.1:8080", "Where to serve metrics; 0 for nowhere.")
	f.StringVar(&o.ProbeAddress, "health-probe-bind-address", "127.0.0.1:8081", "Where to serve /healthz and /readyz; 0 for nowhere.")
	f.IntVar(&o.Concurrency, "concurrency", 8, "How many Actions, and how many Effects, are worked on at once.")
	f.Float32Var(&qps, "kube-api-qps", 1000, "Requests a second to the apiserver, at most; twice that in a burst.")
	out.addTo(cmd)
	f.StringVar(&o.KubernetesEvents, "kubernetes-events", export.NotableEvents, "What becomes a Kubernetes Event: notable, all or none.")
	logging := flag.NewFlagSet("logging", flag.ContinueOnError)
	klog.InitFlags(logging)
	f.AddGoFlag(logging.Lookup("v"))
	return cmd
}

// drainLimit is how long after the last write sinks may take what waits for them. It fits with the manager's graceful stop
// into the time a pod has to end.
const drainLimit = 10 * time.Second

// drain follows the manager's end and does not run within it: a write may be made until then. An operator whose sink hangs
// ended well all the same.
func drain(sinks *export.Sinks, log logr.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), drainLimit)
	defer cancel()
	if err := sinks.Close(ctx); err != nil {
		log.Error(err, "Not everything was exported")
	}
}

// exporting is what the flags say about exports.
type exporting struct {
	to            []string
	rotation      export.Rotation
	otlp          bool
	otlpEndpoint  string
	otlpArguments bool
}

func (e *exporting) addTo(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&e.to, "export", nil, "Export receipts and events as JSON lines to stdout, or to files in a directory with dir:PATH. May be given once for each.")
	f.IntVar(&e.rotation.Megabytes, "export-max-size", 100, "Megabytes of one exported file before it is rotated.")
	f.IntVar(&e.rotation.Files, "export-max-files", 10, "How many rotated files to keep, of receipts and of events each; 0 for all.")
	f.BoolVar(&e.otlp, "otlp", false, "Export traces by OTLP over gRPC to where OTEL_EXPORTER_OTLP_ENDPOINT says.")
	f.StringVar(&e.otlpEndpoint, "otlp-endpoint", "", "Export traces to this collector: HOST:PORT (TLS unless it is this machine), http://HOST:PORT or https://HOST:PORT.")
	f.BoolVar(&e.otlpArguments, "otlp-arguments", false, "Put the values of arguments and of identity claims into traces. Whoever reads traces reads them.")
}

func (e *exporting) open(ctx context.Context, cfg *rest.Config, log logr.Logger) (*export.Sinks, error) {
	o := export.Options{To: e.to, Rotation: e.rotation, Stdout: os.Stdout, Log: log}
	if e.otlp || e.otlpEndpoint != "" {
		o.Traces = &export.Traces{Endpoint: e.otlpEndpoint}
		if e.otlpArguments {
			o.Traces.Arguments = export.ShowArguments
		}
	}
	if o.Traces == nil && e.otlpArguments {
		return nil, errors.New("--otlp-arguments says what traces hold, and none are exported; give --otlp-endpoint, too")
	}
	if len(o.To) == 0 && o.Traces == nil {
		return &export.Sinks{}, nil
	}
	c, err := client.New(cfg, client.Options{Scheme: controllers.Scheme()})
	if err != nil {
		return nil, err
	}
	kubeSystem := &corev1.Namespace{}
	if err := c.Get(ctx, client.ObjectKey{Name: "kube-system"}, kubeSystem); err != nil {
		return nil, fmt.Errorf("read the cluster's id (the uid of kube-system) for the export: %w", err)
	}
	o.ClusterID = string(kubeSystem.UID)
	return export.Open(ctx, o)
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
