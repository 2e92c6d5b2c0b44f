// Package jobexec executes an action by a Job of Kubernetes that runs one pod, as a ServiceAccount; and looks by one what became of an
// attempt.
//
// # In which order
//
// First a Secret with the arguments, then the Job. The Job's creation is the point of no return. Its name and the Secret's are made of
// the action's uid, so of two creations one is a conflict: there are never two Jobs of one action at a time. Whoever finds one that it
// did not create says "unknown".
//
// If the operator dies, what is left is at worst a Secret without Job, which the garbage collector removes with its action, or a Job
// that runs to its deadline, whose Secret is removed with it.
//
// # What is certain
//
//   - Exit code 0 of the container is committed.
//   - A listed exit code is not executed, once the Job has failed, so that nothing starts another pod.
//   - Not executed is also: whatever fails before the Job's creation is sent; a creation that the apiserver refuses; a Job that failed
//     without having made a pod; and one whose pod was deleted before it was given to a node.
//   - Everything else is unknown. A pod that was given to a node counts as started, whatever its status says: a kubelet reports late,
//     and what it cannot find any more it reports as lost and not as never started.
//   - So is every Job that is deleted while it runs, and every one with more than one pod.
//
// Kubernetes says of a Job with one completion that its program "may sometimes be started twice". No setting of a Job excludes that,
// so what runs in it has to hold the idempotency token against it.
//
// # Looks
//
// A Job that looks is made, followed and judged in the same way. Its answer is what the container of the only pod left to say when it
// exited with 0. Everything else is unknown: that for certain nothing was run says nothing of the attempt that is looked for.
package jobexec

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ctrlrun.dev/operator/api/v1alpha1"
)

const (
	// Directory is where the container finds the arguments, or the question: arguments.json, whose path is in the environment variable
	// CTRLRUN_ARGUMENTS_FILE, or question.json, whose path is in CTRLRUN_QUESTION_FILE. Both are canonical JSON.
	Directory = "/var/run/ctrlrun"

	// ActionLabel is on the Secret, the Job and the pod of an execution: the uid of the action.
	ActionLabel = "ctrlrun.dev/action-uid"
	// LookLabel is on the Secret, the Job and the pod of a look: the uid of the action that asks.
	LookLabel = "ctrlrun.dev/look-uid"
	// ActionAnnotation is on the Secret, the Job and the pod: the name of the action.
	ActionAnnotation = "ctrlrun.dev/action"
	// executionAnnotation tells a Job that this execution made from one of its name that it did not.
	executionAnnotation = "ctrlrun.dev/execution"

	// volume is the name of the volume with the Secret.
	volume = "ctrlrun"
	// prefix of the environment variables that the executor sets.
	prefix = "CTRLRUN_"
)

// Executor runs the Job that a spec describes. It keeps nothing between two executions, and can be used concurrently.
type Executor struct {
	template       corev1.PodTemplateSpec
	serviceAccount string
	timeout        time.Duration
	notExecuted    []int32
}

// New reads a spec of an Executor that acts as a ServiceAccount. An error says what in it breaks what a Job promises here, or would be
// overwritten. What a pod may do otherwise is judged by RBAC, quotas and the pod security of the namespace.
func New(spec *v1alpha1.JobExecutor, serviceAccountName string) (*Executor, error) {
	e := &Executor{
		template: *spec.Template.DeepCopy(), serviceAccount: serviceAccountName,
		timeout: time.Duration(spec.TimeoutSeconds) * time.Second, notExecuted: slices.Clone(spec.NotExecuted),
	}
	if serviceAccountName == "" {
		return nil, fmt.Errorf("serviceAccountName: the Executor has none")
	}
	if spec.TimeoutSeconds < 1 || spec.TimeoutSeconds > 86400 {
		return nil, fmt.Errorf("timeoutSeconds: it is from 1 to 86400")
	}
	for i, code := range e.notExecuted {
		if code < 1 || code > 125 || slices.Contains(e.notExecuted[:i], code) {
			return nil, fmt.Errorf("notExecuted: %d; each is an exit code from 1 to 125, once: 0 is committed, and those above are not the program's", code)
		}
	}
	if err := checkMetadata(e.template.ObjectMeta); err != nil {
		return nil, fmt.Errorf("template.metadata: %w", err)
	}
	if err := checkPod(e.template.Spec); err != nil {
		return nil, fmt.Errorf("template.spec: %w", err)
	}
	return e, nil
}

func checkMetadata(m metav1.ObjectMeta) error {
	for _, keys := range []map[string]string{m.Labels, m.Annotations} {
		for key := range keys {
			domain, _, _ := strings.Cut(key, "/")
			own := v1alpha1.GroupVersion.Group
			if domain == own || strings.HasSuffix(domain, "."+own) {
				return fmt.Errorf("%s is set by the executor", key)
			}
		}
	}
	m.Labels, m.Annotations = nil, nil
	if !equality.Semantic.DeepEqual(m, metav1.ObjectMeta{}) {
		return fmt.Errorf("only labels and annotations can be set")
	}
	return nil
}

func checkPod(p corev1.PodSpec) error {
	switch {
	case len(p.Containers) != 1:
		return fmt.Errorf("it has %d containers, and its outcome is the exit code of one", len(p.Containers))
	case len(p.InitContainers) > 0 || len(p.EphemeralContainers) > 0:
		return fmt.Errorf("it has containers besides the one whose exit code is the outcome")
	case p.RestartPolicy != "" && p.RestartPolicy != corev1.RestartPolicyNever:
		return fmt.Errorf("restartPolicy: %s would start the container again; leave it out", p.RestartPolicy)
	case p.ServiceAccountName != "" || p.DeprecatedServiceAccount != "":
		return fmt.Errorf("serviceAccountName: it is the Executor's; leave it out")
	case p.ActiveDeadlineSeconds != nil:
		return fmt.Errorf("activeDeadlineSeconds: the Job has timeoutSeconds; leave it out")
	}
	for _, v := range p.Volumes {
		if v.Name == volume {
			return fmt.Errorf("volumes: the name %s is the executor's", volume)
		}
	}
	return checkContainer(p.Containers[0])
}

func checkContainer(c corev1.Container) error {
	switch {
	case c.Name == "" || c.Image == "":
		return fmt.Errorf("containers[0]: it has a name and an image")
	case c.RestartPolicy != nil || len(c.RestartPolicyRules) > 0:
		return fmt.Errorf("containers[0]: its restartPolicy would start it again; leave it out")
	}
	for _, v := range c.Env {
		if strings.HasPrefix(v.Name, prefix) {
			return fmt.Errorf("containers[0].env: %s; names that begin with %s are the executor's", v.Name, prefix)
		}
	}
	for _, m := range c.VolumeMounts {
		if inside(m.MountPath, Directory) || inside(Directory, m.MountPath) {
			return fmt.Errorf("containers[0].volumeMounts: %s would hide %s", m.MountPath, Directory)
		}
	}
	return nil
}

// inside reports whether a path is a directory or in it.
func inside(p, directory string) bool {
	p, directory = path.Clean("/"+p), path.Clean("/"+directory)
	return p == directory || directory == "/" || strings.HasPrefix(p, directory+"/")
}
