package node

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

const (
	// reasonUnsupported surfaces when a pod has something that this node cannot carry out.
	reasonUnsupported = "Unsupported"
	// reasonDeadline surfaces when a pod was active for longer than it may be.
	reasonDeadline = "DeadlineExceeded"
	// reasonEvicted surfaces when a pod's volume held more than it may.
	reasonEvicted = "Evicted"
	// reasonCreating surfaces while what a pod refers to is not there yet.
	reasonCreating = "ContainerCreating"
	// reasonConfig surfaces while what a container refers to is not there yet.
	reasonConfig = "CreateContainerConfigError"
	// reasonBackOff surfaces while a container that ended waits to be started again.
	reasonBackOff = "CrashLoopBackOff"
)

const (
	// firstRetry and lastRetry bound how long is waited for something that is not there.
	firstRetry, lastRetry = 100 * time.Millisecond, 10 * time.Second
	// lastBackOff and backOffForgotten are a kubelet's: the longest wait before a restart, and the time of running after
	// which the wait is short again.
	lastBackOff, backOffForgotten = 5 * time.Minute, 10 * time.Minute
	// refreshEvery is how often volumes are looked at.
	refreshEvery = time.Second
	// evictionGrace is the time that a pod has whose volumes hold too much.
	evictionGrace = time.Second
	// defaultGrace is what the API gives pods that do not say how long they may take to end.
	defaultGrace = 30 * time.Second
)

// refusal is why something cannot be carried out here, however long one waits.
type refusal string

func (r refusal) Error() string { return string(r) }

// pod is one that this node runs.
type pod struct {
	node    *node
	uid     types.UID
	dir     string
	volumes *volumes
	made    *corev1.Pod // as it was made: what cannot be changed is read here

	// stopping ends when the pod is to end, killing when it has had its time for that, ended when it has.
	stopping, killing context.Context
	stopNow, killNow  context.CancelFunc
	ended             chan struct{}
	updated           chan struct{} // the deadline may be another one

	publishing sync.Mutex // statuses are told in their order

	mu         sync.Mutex
	spec       *corev1.Pod // as the API last had it
	start      metav1.Time
	containers []*container
	reason     string // why the pod as a whole did not run or was ended
	message    string
	over       bool // no container runs or will
	conditions []corev1.PodCondition
}

func newPod(n *node, spec *corev1.Pod) *pod {
	p := &pod{
		node: n, uid: spec.UID, dir: filepath.Join(n.dir, string(spec.UID)),
		ended: make(chan struct{}), updated: make(chan struct{}, 1), made: spec, spec: spec, start: metav1.Now(),
	}
	p.volumes = n.volumesOf(spec, filepath.Join(p.dir, "volumes"))
	p.stopping, p.stopNow = context.WithCancel(context.Background())
	p.killing, p.killNow = context.WithCancel(context.Background())
	for _, c := range spec.Spec.Containers {
		p.containers = append(p.containers, &container{
			spec: c, image: n.images[c.Image], state: waiting(reasonCreating, ""), dir: filepath.Join(p.dir, "containers", c.Name),
		})
	}
	return p
}

// run runs the pod until all of it has ended, and tells how it is all the time.
func (p *pod) run() {
	defer close(p.ended)
	if err := p.live(); err != nil {
		p.refuse(err.Error())
	}
	p.mu.Lock()
	p.over = true
	p.mu.Unlock()
	p.publish()
	// Logs stay until the pod is gone from the API.
	if err := p.volumes.remove(); err != nil {
		klog.ErrorS(err, "Cannot remove the volumes of a pod", "pod", klog.KObj(p.made))
	}
}

// live returns when no container runs or will. An error says why none ever could.
func (p *pod) live() error {
	refused, err := unsupported(&p.made.Spec, p.node.images)
	if err != nil {
		return err
	}
	if len(refused) > 0 {
		return refusal(strings.Join(refused, "; "))
	}
	p.publish()
	var others sync.WaitGroup
	defer others.Wait()
	finished, finish := context.WithCancel(context.Background())
	defer finish()
	others.Go(func() { p.keepDeadline(finished) })

	if ready, err := p.prepare(); err != nil || !ready {
		return err
	}
	others.Go(func() { p.keepVolumes(finished) })
	var containers sync.WaitGroup
	for _, c := range p.containers {
		containers.Go(func() { p.runContainer(c) })
	}
	containers.Wait()
	return nil
}

// refuse keeps a pod from running. One that is never restarted has failed, as one that a kubelet does not admit; others wait,
// or whoever made them would make the next one at once.
func (p *pod) refuse(message string) {
	p.mu.Lock()
	if p.reason == "" {
		p.reason, p.message = reasonUnsupported, message
	}
	for _, c := range p.containers {
		c.state = waiting(p.reason, p.message)
	}
	p.mu.Unlock()
	p.publish()
	if p.made.Spec.RestartPolicy == corev1.RestartPolicyAlways {
		<-p.stopping.Done()
	}
}

// prepare makes the volumes, as soon as all is there that they come from. They are not ready if the pod is stopped before.
func (p *pod) prepare() (ready bool, err error) {
	for delay := firstRetry; ; delay = min(2*delay, lastRetry) {
		err := p.volumes.prepare(p.stopping)
		var refused refusal
		switch {
		case err == nil:
			return true, nil
		case errors.As(err, &refused):
			return false, err
		}
		p.mu.Lock()
		for _, c := range p.containers {
			c.state = waiting(reasonCreating, err.Error())
		}
		p.mu.Unlock()
		p.publish()
		if !pause(p.stopping, delay) {
			return false, nil
		}
	}
}

// keepDeadline ends a pod that is active for too long. The deadline can be set while the pod runs.
func (p *pod) keepDeadline(finished context.Context) {
	for {
		p.mu.Lock()
		seconds, start := p.spec.Spec.ActiveDeadlineSeconds, p.start
		p.mu.Unlock()
		var over <-chan time.Time
		if seconds != nil {
			over = time.After(time.Until(start.Add(time.Duration(*seconds) * time.Second)))
		}
		select {
		case <-over:
			p.stop(p.grace(), reasonDeadline, "Pod was active on the node longer than the specified deadline")
			return
		case <-p.updated:
		case <-finished.Done():
			return
		}
	}
}

// keepVolumes follows what the volumes come from, and ends a pod whose volumes hold more than they may.
func (p *pod) keepVolumes(finished context.Context) {
	for pause(finished, refreshEvery) {
		if err := p.volumes.refresh(finished, p.latest()); err != nil && finished.Err() == nil {
			// What was there stays; it is tried again.
			klog.V(1).InfoS("A volume is not refreshed", "pod", klog.KObj(p.made), "err", err)
		}
		name, limit, err := p.volumes.exceeded()
		if err != nil {
			klog.ErrorS(err, "Cannot tell how much a volume holds", "pod", klog.KObj(p.made))
		}
		if name != "" {
			p.stop(evictionGrace, reasonEvicted, fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q.", name, limit))
			return
		}
	}
}

func (p *pod) grace() time.Duration {
	if s := p.made.Spec.TerminationGracePeriodSeconds; s != nil {
		return time.Duration(*s) * time.Second
	}
	return defaultGrace
}

// stop asks the pod to end, and ends it after the grace period. A later call can shorten that. The first reason counts; a pod
// that is deleted has none.
func (p *pod) stop(grace time.Duration, reason, message string) {
	p.mu.Lock()
	if p.reason == "" && p.stopping.Err() == nil {
		p.reason, p.message = reason, message
	}
	p.mu.Unlock()
	p.stopNow()
	if grace <= 0 {
		p.killNow()
		return
	}
	time.AfterFunc(grace, p.killNow)
}

// update takes what can be changed in a pod that runs. Another image or size is refused, by the end of the pod: the API has
// taken it already.
func (p *pod) update(spec *corev1.Pod) {
	p.mu.Lock()
	before := p.spec
	p.spec = spec
	p.mu.Unlock()
	if what := changed(&before.Spec, &spec.Spec); what != "" {
		p.stop(p.grace(), reasonUnsupported, what+" of a pod that runs cannot be changed on this node")
	}
	select {
	case p.updated <- struct{}{}:
	default:
	}
}

func changed(before, after *corev1.PodSpec) string {
	if len(after.EphemeralContainers) != len(before.EphemeralContainers) {
		return "the ephemeral containers"
	}
	for i, c := range after.Containers {
		if c.Image != before.Containers[i].Image {
			return "the image"
		}
		if fmt.Sprint(c.Resources) != fmt.Sprint(before.Containers[i].Resources) {
			return "the size"
		}
	}
	return ""
}

// latest is the pod as the API last had it.
func (p *pod) latest() *corev1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.spec
}

// pause returns whether the time went by without an end.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// hostname of a pod's containers.
func hostname(pod *corev1.Pod) string {
	name := pod.Spec.Hostname
	if name == "" {
		name = pod.Name
	}
	const longest = 63
	return strings.TrimRight(name[:min(len(name), longest)], "-.")
}
