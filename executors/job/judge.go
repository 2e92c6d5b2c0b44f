package jobexec

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ctrlrun.dev/operator/executors"
)

// sighting is what was seen of a pod.
type sighting struct {
	// pod as it was last seen.
	pod *corev1.Pod
	// gone says that it is not there any more.
	gone bool
}

// state is what is known of a Job.
type state struct {
	// job as it was last read.
	job *batchv1.Job
	// deleted says that it is not there any more.
	deleted bool
	// pods that were ever seen.
	pods map[types.UID]*sighting
	// gap says that a pod could have come and gone unseen.
	gap bool
}

// judge says what is known of an execution, and whether that is the end of it.
func (e *Executor) judge(s state) (ending, bool) {
	unknown := func(why string) (ending, bool) { return ending{Result: executors.Unknown(why)}, true }
	notExecuted := func(why string) (ending, bool) { return ending{Result: executors.NotExecuted(why)}, true }
	counted := s.job.Status.Succeeded + s.job.Status.Failed
	if len(s.pods) > 1 || counted > 1 {
		return unknown("the Job had more than one pod, so it may have run twice")
	}
	var one *sighting
	for _, one = range s.pods {
		if !metav1.IsControlledBy(one.pod, s.job) {
			return unknown("there is a pod with its label that is not the Job's")
		}
	}
	failed, complete := finished(s.job, batchv1.JobFailed), finished(s.job, batchv1.JobComplete)

	if t, again := e.ended(one); again {
		return unknown("the container was started again")
	} else if t != nil {
		switch {
		case t.ExitCode == 0:
			return ending{executors.Committed(executors.Output([]byte(t.Message))), &t.Message}, true
		// A container that was killed for its memory may exit with any code. It is not its statement.
		case !slices.Contains(e.notExecuted, t.ExitCode) || t.Reason != reasonError:
			return unknown(fmt.Sprintf("the container exited with %d", t.ExitCode))
		case s.deleted:
			return unknown(fmt.Sprintf("the container exited with %d, and the Job was deleted", t.ExitCode))
		case complete:
			return unknown(fmt.Sprintf("the container exited with %d, and the Job is complete", t.ExitCode))
		case failed:
			return notExecuted(fmt.Sprintf("the container exited with %d", t.ExitCode))
		}
		// Until the Job has failed, its controller may make another pod.
		return ending{}, false
	}

	switch {
	case s.deleted:
		return unknown("the Job was deleted while it ran")
	case complete && counted == 1 && s.job.Status.Succeeded == 1:
		return ending{Result: executors.Committed(nil)}, true
	case complete:
		return unknown("the Job is complete, and no pod of it is known to have succeeded")
	case !failed:
		return ending{}, false
	case one == nil && s.gap:
		return unknown("the Job failed, and how its pod ended is not known")
	case one == nil && counted > 0:
		// There was a pod, and its events are on their way.
		return ending{}, false
	case one == nil:
		return notExecuted("the Job failed without having made a pod")
	case neverBound(one.pod) && !s.gap:
		return notExecuted("the Job failed, and its pod was deleted before it was given to a node")
	case !one.gone && one.pod.Status.Phase != corev1.PodFailed && one.pod.Status.Phase != corev1.PodSucceeded:
		return ending{}, false
	}
	return unknown("the Job failed, and how its pod ended is not known")
}

// neverBound reports whether a pod has no node and gets none: the apiserver binds no pod that is being deleted.
func neverBound(p *corev1.Pod) bool { return p.Spec.NodeName == "" && p.DeletionTimestamp != nil }

// reasonError is what a kubelet says of a container that ended by itself with a code other than 0.
const reasonError = "Error"

// ended returns how the container of a pod ended, or nil, and whether it was started again since.
func (e *Executor) ended(one *sighting) (*corev1.ContainerStateTerminated, bool) {
	if one == nil {
		return nil, false
	}
	for _, c := range one.pod.Status.ContainerStatuses {
		if c.Name == e.template.Spec.Containers[0].Name {
			return c.State.Terminated, c.RestartCount > 0 || c.LastTerminationState.Terminated != nil
		}
	}
	return nil, false
}

func finished(j *batchv1.Job, how batchv1.JobConditionType) bool {
	return slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == how && c.Status == corev1.ConditionTrue
	})
}
