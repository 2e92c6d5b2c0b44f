package node

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

const (
	// longestMessage is how much of a termination message is told; tailLines and tailSize bound one that is taken from the log.
	longestMessage, tailLines, tailSize = 4096, 80, 2048
)

// container is one of a pod's. What changes is guarded by the pod's lock.
type container struct {
	spec  corev1.Container
	image Image
	dir   string

	state, last   corev1.ContainerState
	restarts      int32
	log, previous *containerLog
}

// runContainer runs a container again and again, as the pod's restartPolicy says, until the pod is stopped.
func (p *pod) runContainer(c *container) {
	for delay := p.node.backOff; ; {
		end := p.runOnce(c)
		if end == nil {
			p.keepLast(c)
			return
		}
		if p.stopping.Err() != nil || !restarts(p.made.Spec.RestartPolicy, end.ExitCode) {
			return
		}
		if end.FinishedAt.Sub(end.StartedAt.Time) > backOffForgotten {
			delay = p.node.backOff
		}
		p.set(c, waiting(reasonBackOff, fmt.Sprintf("back-off %s restarting failed container %s", delay, c.spec.Name)))
		if !pause(p.stopping, delay) {
			p.keepLast(c)
			return
		}
		delay = min(2*delay, lastBackOff)
		p.mu.Lock()
		c.restarts++
		p.mu.Unlock()
	}
}

// keepLast says of a container that is not started again how it ended, or the pod's phase would not know. One that was never
// started waits for good.
func (p *pod) keepLast(c *container) {
	if c.last.Terminated != nil {
		p.set(c, c.last)
	}
}

func restarts(policy corev1.RestartPolicy, exitCode int32) bool {
	return policy == corev1.RestartPolicyAlways || policy == corev1.RestartPolicyOnFailure && exitCode != 0
}

// runOnce runs a container once and says how it ended; nothing if the pod was stopped before it started.
func (p *pod) runOnce(c *container) *corev1.ContainerStateTerminated {
	var (
		running *process
		started metav1.Time
		message string // the file that takes the termination message
	)
	for delay := firstRetry; ; delay = min(2*delay, lastRetry) {
		if p.stopping.Err() != nil {
			return nil
		}
		box, file, err := p.sandbox(c)
		if err == nil {
			message = file
			started = metav1.Now()
			running, err = box.start(c.log)
		}
		if err == nil {
			break
		}
		p.set(c, waiting(reasonConfig, err.Error()))
		if !pause(p.stopping, delay) {
			return nil
		}
	}
	if running.pid != 0 {
		p.set(c, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: started}})
	}
	p.await(running)
	end := &corev1.ContainerStateTerminated{
		ExitCode: running.end.exitCode, StartedAt: started, FinishedAt: metav1.NewTime(running.end.time), ContainerID: p.containerID(c),
	}
	switch {
	case running.end.startError != "":
		end.Reason, end.Message = "StartError", running.end.startError
	case end.ExitCode == 0:
		end.Reason = "Completed"
	default:
		end.Reason = "Error"
	}
	if err := c.log.close(); err != nil {
		klog.ErrorS(err, "The log of a container is not whole", "pod", klog.KObj(p.made), "container", c.spec.Name)
	}
	if end.Message == "" {
		end.Message = terminationMessage(c, message, end.ExitCode)
	}
	p.mu.Lock()
	c.last = corev1.ContainerState{Terminated: end}
	p.mu.Unlock()
	p.set(c, c.last)
	return end
}

// await returns when a container has ended: by itself, asked to, or killed.
func (p *pod) await(running *process) {
	select {
	case <-running.done:
		return
	case <-p.stopping.Done():
	}
	if err := running.terminate(); err != nil {
		klog.ErrorS(err, "Cannot ask a container to end", "pod", klog.KObj(p.made))
	}
	select {
	case <-running.done:
		return
	case <-p.killing.Done():
	}
	if err := running.kill(); err != nil {
		klog.ErrorS(err, "Killing a container", "pod", klog.KObj(p.made))
	}
}

// sandbox is what the next run of a container is confined to, and the file of its termination message. The container's log
// is a new one.
func (p *pod) sandbox(c *container) (sandbox, string, error) {
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return sandbox{}, "", err
	}
	r := reader{client: p.node.client, namespace: p.made.Namespace}
	env, err := r.environment(p.stopping, p.latest(), c.spec, p.node.apiserver)
	if err != nil {
		return sandbox{}, "", err
	}
	all, err := mounts(c.spec, p.volumes.all)
	if err != nil {
		return sandbox{}, "", err
	}
	message := filepath.Join(c.dir, fmt.Sprintf("%d.message", c.restarts))
	if err := os.WriteFile(message, nil, 0o600); err != nil {
		return sandbox{}, "", err
	}
	all = append(all, mount{from: message, to: c.spec.TerminationMessagePath})
	log, err := newLog(filepath.Join(c.dir, fmt.Sprintf("%d.log", c.restarts)))
	if err != nil {
		return sandbox{}, "", err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case c.log == nil:
	case c.log.path == log.path: // of a run that did not start
		if err := c.log.close(); err != nil {
			return sandbox{}, "", err
		}
	default:
		if c.previous != nil {
			if err := os.Remove(c.previous.path); err != nil {
				return sandbox{}, "", err
			}
		}
		c.previous = c.log
	}
	c.log = log
	return sandbox{
		argv: arguments(c.image, c.spec, env), env: env, dir: c.spec.WorkingDir, hostname: hostname(p.made),
		user: runsAs(&p.made.Spec, c.spec), network: sharesNetwork(&p.made.Spec, c.image), files: c.image.files(), mounts: all,
		memory: uint64(c.spec.Resources.Limits.Memory().Value()), filtered: filters(&p.made.Spec, c.spec),
	}, message, nil
}

// terminationMessage is what a container left to say, or the end of its log if it is to be that.
func terminationMessage(c *container, path string, exitCode int32) string {
	file, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer file.Close() // it was only read
	text, err := io.ReadAll(io.LimitReader(file, longestMessage))
	if err != nil {
		return err.Error()
	}
	if len(text) > 0 || exitCode == 0 || c.spec.TerminationMessagePolicy != corev1.TerminationMessageFallbackToLogsOnError {
		return string(text)
	}
	end, err := c.log.tail(tailLines, tailSize)
	if err != nil {
		return err.Error()
	}
	return end
}

// set is a container's new state, which is told.
func (p *pod) set(c *container, state corev1.ContainerState) {
	p.mu.Lock()
	c.state = state
	p.mu.Unlock()
	p.publish()
}

func waiting(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

func (p *pod) containerID(c *container) string {
	return fmt.Sprintf("%s://%s/%s/%d", bubblewrap, p.uid, c.spec.Name, c.restarts)
}

// logOf is the log of a container's present run, or of the one before.
func (p *pod) logOf(name string, run which) (*containerLog, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.containers {
		if c.spec.Name != name {
			continue
		}
		log := c.log
		if run == previousRun {
			log = c.previous
		}
		if log == nil {
			return nil, fmt.Errorf("container %s has no %s run", name, run)
		}
		return log, nil
	}
	return nil, errors.New("no such container: " + name)
}

// which is one of the last two runs of a container.
type which string

const (
	presentRun  which = "present"
	previousRun which = "previous"
)
