package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// node runs the pods that virtual-kubelet's controllers give it.
type node struct {
	client     kubernetes.Interface
	lister     corev1listers.PodLister
	configMaps corev1listers.ConfigMapLister
	secrets    corev1listers.SecretLister
	images     Images
	hostDirs   []string
	dir        string
	memory     string // a directory that is kept in memory
	apiserver  string // host and port
	backOff    time.Duration
	notify     func(*corev1.Pod)

	mu   sync.Mutex
	pods map[string]*pod // by namespace/name
}

var _ nodeutil.Provider = (*node)(nil)

func key(namespace, name string) string { return namespace + "/" + name }

func (n *node) find(namespace, name string) (*pod, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p, ok := n.pods[key(namespace, name)]
	if !ok {
		return nil, errdefs.NotFoundf("pod %s/%s is not on this node", namespace, name)
	}
	return p, nil
}

// NotifyPods takes what tells statuses.
func (n *node) NotifyPods(_ context.Context, notify func(*corev1.Pod)) { n.notify = notify }

// CreatePod starts a pod. What is wrong with it, the pod's status says.
func (n *node) CreatePod(_ context.Context, spec *corev1.Pod) error {
	p := newPod(n, spec)
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := n.pods[key(spec.Namespace, spec.Name)]; ok {
		return fmt.Errorf("pod %s/%s is on this node already", spec.Namespace, spec.Name)
	}
	n.pods[key(spec.Namespace, spec.Name)] = p
	go p.run()
	return nil
}

// UpdatePod takes a changed pod. One of the same name that is another pod takes the place of the first.
func (n *node) UpdatePod(ctx context.Context, spec *corev1.Pod) error {
	p, err := n.find(spec.Namespace, spec.Name)
	if err != nil {
		return err
	}
	if p.uid == spec.UID {
		p.update(spec)
		return nil
	}
	p.stop(0, "", "")
	<-p.ended
	if err := n.forget(p); err != nil {
		return err
	}
	return n.CreatePod(ctx, spec)
}

// DeletePod ends a pod and returns when it has ended: until then the API keeps it. A pod that the API has no more is killed.
func (n *node) DeletePod(ctx context.Context, spec *corev1.Pod) error {
	p, err := n.find(spec.Namespace, spec.Name)
	if err != nil {
		return err
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	least := time.Duration(-1)
	for {
		current, err := n.lister.Pods(spec.Namespace).Get(spec.Name)
		switch {
		case apierrors.IsNotFound(err) || err == nil && current.UID != p.uid:
			p.stop(0, "", "")
			<-p.ended
			return n.forget(p)
		case err != nil:
			return err
		}
		// It can be deleted again, with less time to end.
		if s := current.DeletionGracePeriodSeconds; s != nil {
			if grace := time.Duration(*s) * time.Second; least < 0 || grace < least {
				least = grace
				p.stop(grace, "", "")
			}
		}
		select {
		case <-p.ended:
			return n.remove(ctx, p)
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// remove takes a pod that is being deleted and has ended out of the API, once the API has how it ended.
func (n *node) remove(ctx context.Context, p *pod) error {
	spec := p.latest()
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
		current, err := n.lister.Pods(spec.Namespace).Get(spec.Name)
		if err != nil || current.UID != p.uid {
			return true, nil
		}
		return current.Status.Phase == corev1.PodSucceeded || current.Status.Phase == corev1.PodFailed, nil
	})
	if err != nil {
		klog.ErrorS(err, "The API does not know how a pod ended, which is deleted all the same", "pod", klog.KObj(spec))
	}
	now := metav1.NewDeleteOptions(0)
	now.Preconditions = metav1.NewUIDPreconditions(string(p.uid))
	err = n.client.CoreV1().Pods(spec.Namespace).Delete(ctx, spec.Name, *now)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// forget removes what is left of a pod that has ended.
func (n *node) forget(p *pod) error {
	spec := p.latest()
	n.mu.Lock()
	delete(n.pods, key(spec.Namespace, spec.Name))
	n.mu.Unlock()
	return os.RemoveAll(p.dir)
}

// GetPod returns a pod as it is on this node.
func (n *node) GetPod(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	p, err := n.find(namespace, name)
	if err != nil {
		return nil, err
	}
	one := p.latest().DeepCopy()
	p.status(one)
	return one, nil
}

// GetPodStatus returns how a pod is.
func (n *node) GetPodStatus(ctx context.Context, namespace, name string) (*corev1.PodStatus, error) {
	one, err := n.GetPod(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return &one.Status, nil
}

// GetPods returns all pods on this node.
func (n *node) GetPods(context.Context) ([]*corev1.Pod, error) {
	var all []*corev1.Pod
	for _, p := range n.all() {
		one := p.latest().DeepCopy()
		p.status(one)
		all = append(all, one)
	}
	return all, nil
}

func (n *node) all() []*pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []*pod
	for _, p := range n.pods {
		all = append(all, p)
	}
	return all
}

// stop kills all pods and returns when they are gone.
func (n *node) stop() error {
	var errs []error
	all := n.all()
	for _, p := range all {
		p.stop(0, "", "")
	}
	for _, p := range all {
		<-p.ended
		errs = append(errs, n.forget(p))
	}
	return errors.Join(errs...)
}

// GetContainerLogs returns what a container has printed.
func (n *node) GetContainerLogs(ctx context.Context, namespace, name, container string, o api.ContainerLogOpts) (io.ReadCloser, error) {
	p, err := n.find(namespace, name)
	if err != nil {
		return nil, err
	}
	which := presentRun
	if o.Previous {
		which = previousRun
	}
	log, err := p.logOf(container, which)
	if err != nil {
		return nil, errdefs.AsNotFound(err)
	}
	return log.read(ctx, o)
}

// errNotHere is what this node answers to what it does not do.
var errNotHere = errdefs.InvalidInput("the test node does not support this")

// RunInContainer is not supported.
func (n *node) RunInContainer(context.Context, string, string, string, []string, api.AttachIO) error {
	return errNotHere
}

// AttachToContainer is not supported.
func (n *node) AttachToContainer(context.Context, string, string, string, api.AttachIO) error {
	return errNotHere
}

// PortForward is not supported.
func (n *node) PortForward(context.Context, string, string, int32, io.ReadWriteCloser) error {
	return errNotHere
}

// GetStatsSummary is not supported.
func (n *node) GetStatsSummary(context.Context) (*statsv1alpha1.Summary, error) {
	return nil, errNotHere
}

// GetMetricsResource is not supported.
func (n *node) GetMetricsResource(context.Context) ([]*dto.MetricFamily, error) {
	return nil, errNotHere
}
