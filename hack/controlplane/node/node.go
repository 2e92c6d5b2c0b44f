// Package node is a Kubernetes node for tests and demonstrations, on one machine and without containers.
//
// A container's processes are local ones, confined by bubblewrap: a root that cannot be written, which has the machine's
// programs and libraries, the files of its image and its volumes, and nothing else; no capability; its own processes, so that
// no others can be seen; no network, unless the pod says hostNetwork: true or its image's entry does. An image is a name in a
// table, which says what runs. Without bubblewrap nothing runs.
//
// This is a test node and no container isolation. All containers are run by one user of the machine, whatever they are told
// they are. A limit of memory is one of each process, nothing limits their time, the filter of system calls is a short one, and the
// programs are the machine's. Pods that are not trusted do not belong here.
//
// What a pod may have is in a table of fields; a pod that has anything else does not run, and its status says why. Init
// containers, probes, hooks, limits and volumes that come from elsewhere are among what is refused.
//
// What makes this a node, the controllers of pods and of the node and its API, is virtual-kubelet's; see provider.go for where
// they meet, pod.go and container.go for how a pod lives, sandbox.go for what confines it.
package node

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/log/klogv2"
	vknode "github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/version"
)

// loopback is the address of everything here.
const loopback = "127.0.0.1"

// maxPods is a kubelet's default. As many may be ending at once.
const maxPods = 110

type options struct {
	kubeconfig, name, dir, images, listen string
	certificate, key, client              string
	hostDirs                              string
	backOff                               time.Duration
}

// Main runs a node until it is asked to end, and returns what the process is to exit with.
func Main(args []string) int {
	o := options{}
	flags := flag.NewFlagSet("ctrlrun-node", flag.ContinueOnError)
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "file that says how to reach the apiserver")
	flags.StringVar(&o.name, "name", "test", "name of the node")
	flags.StringVar(&o.dir, "dir", "", "directory for volumes and logs of pods; what is in it is removed")
	flags.StringVar(&o.images, "images", "", "table of images, in YAML")
	flags.StringVar(&o.listen, "listen", loopback+":10250", "loopback address of the node's API, which serves logs")
	flags.StringVar(&o.certificate, "tls-cert-file", "", "certificate of the node's API")
	flags.StringVar(&o.key, "tls-private-key-file", "", "key of it")
	flags.StringVar(&o.client, "client-cert-file", "", "certificate of the one client that the node's API serves")
	flags.StringVar(&o.hostDirs, "host-dirs", "", "directories that pods may have by hostPath, and what is below them; separated by commas")
	flags.DurationVar(&o.backOff, "restart-back-off", 10*time.Second, "time before the first restart of a container; each later one takes twice as long")
	say := flags.Bool("version", false, "print the version of Kubernetes that the node was built with")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if *say {
		fmt.Println("Kubernetes", version.Get().GitVersion)
		return 0
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "node:", err)
		return 1
	}
	return 0
}

func run(ctx context.Context, o options) error {
	check, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := Check(check); err != nil {
		return err
	}
	log.L = klogv2.New(nil)
	images, err := readImages(o.images)
	if err != nil {
		return err
	}
	hostDirs, err := directories(o.hostDirs)
	if err != nil {
		return err
	}
	dir, err := emptied(o.dir)
	if err != nil {
		return err
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return err
	}
	cfg.QPS = -1 // the apiserver has its own fairness
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	server, err := url.Parse(cfg.Host)
	if err != nil {
		return err
	}
	pinned, err := o.pinned()
	if err != nil {
		return err
	}
	host, _, err := net.SplitHostPort(o.listen)
	if err != nil {
		return err
	}
	if host != loopback {
		return fmt.Errorf("the node's API belongs on %s, not on %s", loopback, host)
	}
	object, err := object(o)
	if err != nil {
		return err
	}
	memory, err := os.MkdirTemp("/dev/shm", "ctrlrun-node-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(memory) // the pods have removed theirs
	n := &node{
		client: client, images: images, hostDirs: hostDirs, dir: dir, memory: memory, apiserver: server.Host, backOff: o.backOff,
		pods: map[string]*pod{},
	}
	mux := http.NewServeMux()
	controllers, err := nodeutil.NewNode(o.name, func(c nodeutil.ProviderConfig) (nodeutil.Provider, vknode.NodeProvider, error) {
		n.lister, n.configMaps, n.secrets = c.Pods, c.ConfigMaps, c.Secrets
		return n, nil, nil
	}, nodeutil.WithClient(client), func(c *nodeutil.NodeConfig) error {
		c.NodeSpec = object
		c.HTTPListenAddr, c.Handler, c.TLSConfig = o.listen, mux, pinned
		c.NumWorkers = maxPods
		// This node has reasons in a pod's status where virtual-kubelet has none.
		c.SkipDownwardAPIResolution = true
		return nil
	}, nodeutil.AttachProviderRoutes(mux))
	if err != nil {
		return err
	}
	err = controllers.Run(ctx)
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = nil
	}
	return errors.Join(err, n.stop())
}

// object is the node as the API has it.
func object(o options) (corev1.Node, error) {
	_, text, err := net.SplitHostPort(o.listen)
	if err != nil {
		return corev1.Node{}, err
	}
	port, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return corev1.Node{}, err
	}
	memory, err := memory()
	if err != nil {
		return corev1.Node{}, err
	}
	// What the scheduler counts requests against. Nothing here is reserved.
	has := corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI),
		corev1.ResourceMemory:           memory,
		corev1.ResourcePods:             *resource.NewQuantity(maxPods, resource.DecimalSI),
		corev1.ResourceEphemeralStorage: resource.MustParse("10Gi"),
	}
	never := func(kind corev1.NodeConditionType) corev1.NodeCondition {
		return corev1.NodeCondition{Type: kind, Status: corev1.ConditionFalse, Reason: "NotMeasured", LastTransitionTime: metav1.Now()}
	}
	return corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: o.name, Labels: map[string]string{
			corev1.LabelHostname: o.name, corev1.LabelOSStable: runtime.GOOS, corev1.LabelArchStable: runtime.GOARCH,
		}},
		Status: corev1.NodeStatus{
			Capacity: has, Allocatable: has,
			Conditions: []corev1.NodeCondition{
				{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "Starting", LastTransitionTime: metav1.Now()},
				never(corev1.NodeMemoryPressure), never(corev1.NodeDiskPressure), never(corev1.NodePIDPressure),
			},
			Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: loopback}, {Type: corev1.NodeHostName, Address: o.name}},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(port)}},
			NodeInfo: corev1.NodeSystemInfo{
				KubeletVersion: version.Get().GitVersion, OperatingSystem: runtime.GOOS, Architecture: runtime.GOARCH,
				ContainerRuntimeVersion: bubblewrap + "://", OSImage: "a test node: processes in sandboxes, no containers",
			},
		},
	}, nil
}

// memory of the machine.
func memory() (resource.Quantity, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return resource.Quantity{}, err
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "MemTotal:" {
			return resource.ParseQuantity(fields[1] + "Ki")
		}
	}
	return resource.Quantity{}, errors.New("/proc/meminfo does not say how much memory there is")
}

// directories that pods may have. Links are followed now, so that they cannot be changed later.
func directories(list string) ([]string, error) {
	var all []string
	for one := range strings.SplitSeq(list, ",") {
		if one == "" {
			continue
		}
		real, err := filepath.EvalSymlinks(one)
		if err != nil {
			return nil, err
		}
		if !filepath.IsAbs(real) || real == "/" {
			return nil, fmt.Errorf("%q is not the absolute path of a directory that pods may have", one)
		}
		all = append(all, real)
	}
	return all, nil
}

// emptied is the node's own directory, without what an earlier node has left in it.
func emptied(dir string) (string, error) {
	if !filepath.IsAbs(dir) {
		return "", fmt.Errorf("--dir must be an absolute path, not %q", dir)
	}
	pods := filepath.Join(dir, "pods")
	if err := os.RemoveAll(pods); err != nil {
		return "", err
	}
	if err := os.MkdirAll(pods, 0o700); err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(pods)
}

// pinned serves one client only, that whose certificate this is: logs are not for everybody on the machine.
func (o options) pinned() (*tls.Config, error) {
	certificate, err := tls.LoadX509KeyPair(o.certificate, o.key)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(o.client)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s has no certificate", o.client)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequireAnyClientCert,
		VerifyPeerCertificate: func(raw [][]byte, _ [][]*x509.Certificate) error {
			if len(raw) == 0 || !bytes.Equal(raw[0], block.Bytes) {
				return errors.New("this is not the client that the node's API serves")
			}
			return nil
		},
	}, nil
}
