package node

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// publish tells the API how the pod is now.
func (p *pod) publish() {
	p.publishing.Lock()
	defer p.publishing.Unlock()
	current, err := p.node.lister.Pods(p.made.Namespace).Get(p.made.Name)
	if err != nil || current.UID != p.uid {
		return // it is gone, and so is the need to tell
	}
	// What others say of it, the scheduler for one, stays.
	current = current.DeepCopy()
	p.status(current)
	p.node.notify(current)
}

// status writes how the pod is into it.
func (p *pod) status(pod *corev1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &pod.Status
	s.ObservedGeneration = pod.Generation
	s.Phase, s.Reason, s.Message = p.phase(), p.reason, p.message
	s.StartTime = &p.start
	s.HostIP, s.HostIPs = loopback, []corev1.HostIP{{IP: loopback}}
	if pod.Spec.HostNetwork {
		s.PodIP, s.PodIPs = loopback, []corev1.PodIP{{IP: loopback}}
	}
	s.ContainerStatuses = nil
	ready := !p.over
	for _, c := range p.containers {
		running := c.state.Running != nil
		ready = ready && running
		s.ContainerStatuses = append(s.ContainerStatuses, corev1.ContainerStatus{
			Name: c.spec.Name, Image: c.spec.Image, ImageID: "table://" + c.spec.Image, ContainerID: p.id(c),
			State: c.state, LastTerminationState: p.before(c), RestartCount: c.restarts, Ready: running, Started: new(running),
		})
	}
	notReady := ""
	switch {
	case ready:
	case s.Phase == corev1.PodSucceeded:
		notReady = "PodCompleted"
	case s.Phase == corev1.PodFailed:
		notReady = "PodFailed"
	default:
		notReady = "ContainersNotReady"
	}
	p.condition(corev1.PodInitialized, true, "")
	p.condition(corev1.PodReadyToStartContainers, !p.over, "")
	p.condition(corev1.ContainersReady, ready, notReady)
	p.condition(corev1.PodReady, ready, notReady)
	for _, ours := range p.conditions {
		ours.ObservedGeneration = pod.Generation
		at := slices.IndexFunc(s.Conditions, func(c corev1.PodCondition) bool { return c.Type == ours.Type })
		if at < 0 {
			s.Conditions = append(s.Conditions, ours)
			continue
		}
		s.Conditions[at] = ours
	}
}

// id of a container that was started at least once.
func (p *pod) id(c *container) string {
	if c.log == nil {
		return ""
	}
	return p.containerID(c)
}

// before is how the run before the present one ended.
func (p *pod) before(c *container) corev1.ContainerState {
	if c.state.Terminated != nil {
		return corev1.ContainerState{}
	}
	return c.last
}

// phase is a kubelet's: all containers have started, one runs or will run again, or how they ended.
func (p *pod) phase() corev1.PodPhase {
	never, failed := 0, 0
	for _, c := range p.containers {
		switch {
		case c.state.Running == nil && c.last.Terminated == nil:
			never++
		case c.state.Terminated != nil && c.state.Terminated.ExitCode != 0:
			failed++
		}
	}
	switch {
	case p.over && (p.reason != "" || never > 0 || failed > 0):
		return corev1.PodFailed
	case p.over:
		return corev1.PodSucceeded
	case never > 0 && p.reason == reasonUnsupported && p.made.Spec.RestartPolicy != corev1.RestartPolicyAlways:
		return corev1.PodFailed
	case never > 0:
		return corev1.PodPending
	}
	return corev1.PodRunning
}

// condition is one of those that this node says. Its time is that of the last change.
func (p *pod) condition(kind corev1.PodConditionType, is bool, reason string) {
	status := corev1.ConditionFalse
	if is {
		status = corev1.ConditionTrue
	}
	at := slices.IndexFunc(p.conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
	if at < 0 {
		at = len(p.conditions)
		p.conditions = append(p.conditions, corev1.PodCondition{Type: kind})
	}
	c := &p.conditions[at]
	if c.Status != status {
		c.LastTransitionTime = metav1.Now()
	}
	c.Status, c.Reason = status, reason
}
