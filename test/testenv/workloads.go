package testenv

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"ctrlrun.dev/operator/test/testenv/assets"
)

// Workloads let pods run, and what makes pods: kube-controller-manager with a part of its controllers, kube-scheduler, and a
// node for tests, whose pods are local processes in sandboxes of bubblewrap (see docs/testing.md). With them namespaces come to
// an end when they are deleted, owners take what they own along, and quotas count. They need the program bwrap.
//
// They want kube-apiserver's admission plugin ServiceAccount, so that a pod needs a ServiceAccount, which each namespace gets
// soon after it is made.
type Workloads struct {
	// Images says what runs for an image. A pod with another image does not run.
	Images map[string]Image
	// HostDirs are directories that pods may have by hostPath, directly or by a PersistentVolumeClaim.
	HostDirs []string
	// RestartBackOff is the time before a container is started again for the first time; each later restart takes twice as
	// long. Default: 100 milliseconds, where a cluster has ten seconds.
	RestartBackOff time.Duration
}

// Image is what a container of it finds.
type Image struct {
	// Entrypoint is the command of containers that have none. Their args are appended.
	Entrypoint []string `json:"entrypoint,omitempty"`
	// Files are absolute paths of files and directories of this machine that its containers can read, beside the programs
	// and libraries of the system.
	Files []string `json:"files,omitempty"`
	// HostNetwork lets its containers share the machine's network, for pods that need the apiserver and do not say
	// hostNetwork: true. Others have none.
	HostNetwork bool `json:"hostNetwork,omitempty"`
}

// NodeName is the name of the node for tests.
const NodeName = "test"

// nodeProgram is its name among the binaries.
const nodeProgram = "ctrlrun-node"

// controllers are those of kube-controller-manager that something here waits for.
var controllers = []string{
	"clusterrole-aggregation-controller", "cronjob-controller", "deployment-controller", "garbage-collector-controller", "job-controller",
	"namespace-controller", "node-lifecycle-controller", "persistentvolume-binder-controller", "persistentvolume-protection-controller",
	"persistentvolumeclaim-protection-controller", "pod-garbage-collector-controller", "replicaset-controller", "resourcequota-controller",
	"root-ca-certificate-publisher-controller", "serviceaccount-controller", "ttl-after-finished-controller",
}

// check says what is missing on this machine.
func (w *Workloads) check(binaries string) error {
	for _, name := range assets.Workloads() {
		if _, err := os.Stat(filepath.Join(binaries, name)); err != nil {
			return fmt.Errorf("%s is not in %s, and pods need it: unset %s", name, binaries, assets.Env)
		}
	}
	if _, err := exec.LookPath("bwrap"); err != nil {
		return errors.New("pods run in sandboxes of bubblewrap, which is not there: apt-get install bubblewrap")
	}
	return nil
}

// certificates are for the connection from the apiserver to the node, by which logs are read. Each side knows the other's.
type certificates struct{ node, nodeKey, apiserver, apiserverKey string }

// certificateFiles are where they are.
func (e *Environment) certificateFiles() certificates {
	path := func(name string) string { return filepath.Join(e.Dir, "workloads", name) }
	return certificates{path("node.crt"), path("node.key"), path("apiserver.crt"), path("apiserver.key")}
}

func (e *Environment) certificates() (certificates, error) {
	if err := os.MkdirAll(filepath.Join(e.Dir, "workloads"), 0o700); err != nil {
		return certificates{}, err
	}
	c := e.certificateFiles()
	for _, files := range [][]string{{c.node, c.nodeKey}, {c.apiserver, c.apiserverKey}} {
		public, private, err := cert.GenerateSelfSignedCertKey("localhost", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
		if err != nil {
			return certificates{}, err
		}
		if err := errors.Join(os.WriteFile(files[0], public, 0o600), os.WriteFile(files[1], private, 0o600)); err != nil {
			return certificates{}, err
		}
	}
	return c, nil
}

// flags of the apiserver. An environment without workloads has none of these.
func (c certificates) flags(apiserver *envtest.APIServer) {
	apiserver.Configure().
		Set("kubelet-certificate-authority", c.node).
		Set("kubelet-client-certificate", c.apiserver).
		Set("kubelet-client-key", c.apiserverKey).
		Set("kubelet-preferred-address-types", string(corev1.NodeInternalIP)).
		// envtest disables ServiceAccount, since nobody makes any.
		Disable("disable-admission-plugins")
}

// startWorkloads starts everything; see waitForWorkloads.
func (e *Environment) startWorkloads(ctx context.Context, w *Workloads) error {
	dir, c := filepath.Join(e.Dir, "workloads"), e.certificateFiles()
	root := filepath.Join(dir, "root.crt")
	if err := os.WriteFile(root, e.AdminConfig().CAData, 0o600); err != nil {
		return err
	}
	err := e.startPart("kube-controller-manager",
		"--kubeconfig="+e.Kubeconfig(User{Name: "system:kube-controller-manager"}),
		"--controllers="+strings.Join(controllers, ","),
		"--use-service-account-credentials",
		"--root-ca-file="+root,
		"--leader-elect=false", "--secure-port=0",
		// The defaults are for clusters with thousands of nodes.
		"--kube-api-qps=200", "--kube-api-burst=400", "--node-monitor-period=1s", "--pvclaimbinder-sync-period=1s",
	)
	if err != nil {
		return err
	}
	err = e.startPart("kube-scheduler", "--kubeconfig="+e.Kubeconfig(User{Name: "system:kube-scheduler"}), "--leader-elect=false", "--secure-port=0")
	if err != nil {
		return err
	}
	images, err := yaml.Marshal(w.Images)
	if err != nil {
		return err
	}
	table := filepath.Join(dir, "images.yaml")
	if err := os.WriteFile(table, images, 0o600); err != nil {
		return err
	}
	node := User{Name: "system:node:" + NodeName, Groups: []string{"system:nodes"}}
	if err := e.Allow(ctx, "", node, nodeRules...); err != nil {
		return err
	}
	listen, err := freePort()
	if err != nil {
		return err
	}
	backOff := w.RestartBackOff
	if backOff == 0 {
		backOff = 100 * time.Millisecond
	}
	return e.startPart(nodeProgram,
		"--kubeconfig="+e.Kubeconfig(node), "--name="+NodeName, "--dir="+filepath.Join(dir, "node"), "--images="+table,
		"--listen="+listen, "--tls-cert-file="+c.node, "--tls-private-key-file="+c.nodeKey, "--client-cert-file="+c.apiserver,
		"--host-dirs="+strings.Join(w.HostDirs, ","), "--restart-back-off="+backOff.String(),
	)
}

// nodeRules are what the node needs. kube-apiserver's own authorizer of nodes would not do: virtual-kubelet watches ConfigMaps,
// Secrets and Services of all namespaces.
var nodeRules = []rbacv1.PolicyRule{
	{APIGroups: []string{""}, Resources: []string{"pods", "configmaps", "secrets", "services"}, Verbs: []string{"get", "list", "watch"}},
	{APIGroups: []string{""}, Resources: []string{"persistentvolumeclaims", "persistentvolumes"}, Verbs: []string{"get"}},
	{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"delete"}},
	{APIGroups: []string{""}, Resources: []string{"pods/status"}, Verbs: []string{"update", "patch"}},
	{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"create", "get", "update", "patch"}},
	{APIGroups: []string{""}, Resources: []string{"nodes/status"}, Verbs: []string{"update", "patch"}},
	{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
	{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, Verbs: []string{"create"}},
	{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create", "get", "update", "patch"}},
}

func (e *Environment) startPart(name string, args ...string) error {
	p, err := e.StartProcess(Command{Path: filepath.Join(e.Assets, name), Args: args})
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.parts = append(e.parts, p)
	return nil
}

// waitForWorkloads returns when pods can be made and will be scheduled.
func (e *Environment) waitForWorkloads(ctx context.Context) error {
	last := "nothing yet"
	err := poll(ctx, time.Minute, func(ctx context.Context) (bool, error) {
		for _, p := range e.parts {
			select {
			case <-p.Done():
				name := filepath.Base(p.cmd.Path)
				log, _ := os.ReadFile(filepath.Join(e.Dir, name+".log")) // of one that is not there, nothing
				return false, fmt.Errorf("%s ended: %w: %s", name, p.err, log[max(0, len(log)-1000):])
			default:
			}
		}
		account := &corev1.ServiceAccount{}
		if err := e.admin.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "default"}, account); err != nil {
			last = err.Error()
			return false, client.IgnoreNotFound(err)
		}
		node := &corev1.Node{}
		if err := e.admin.Get(ctx, client.ObjectKey{Name: NodeName}, node); err != nil {
			last = err.Error()
			return false, client.IgnoreNotFound(err)
		}
		last = fmt.Sprintf("node: %v, taints: %v", node.Status.Conditions, node.Spec.Taints)
		return len(node.Spec.Taints) == 0 && slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}), nil
	})
	if err != nil {
		return fmt.Errorf("waiting for a node that takes pods: %w: %s", err, last)
	}
	return nil
}

// Binaries is the directory that an environment will take its binaries from: images can be made of them.
func Binaries() (string, error) {
	root, err := assets.Root()
	if err != nil {
		return "", err
	}
	return assets.Find(root)
}

// WorkloadProcesses are the ids of the processes that Workloads need, by the names of their programs.
func (e *Environment) WorkloadProcesses() map[string]int {
	all := map[string]int{}
	for _, p := range e.parts {
		all[filepath.Base(p.cmd.Path)] = p.PID()
	}
	return all
}

// SuspendControllers stops kube-controller-manager as it stands: what is being deleted stays so. Workloads must be there.
func (e *Environment) SuspendControllers() (resume func() error, err error) {
	for _, p := range e.parts {
		if filepath.Base(p.cmd.Path) == "kube-controller-manager" {
			return p.Resume, p.Pause()
		}
	}
	return nil, errors.New("this environment has no controllers")
}
