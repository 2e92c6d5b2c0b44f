package jobexec

import (
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/executors"
)

// Keys of the Secret.
const (
	argumentsKey = "arguments.json"
	tokenKey     = "token"
	effectKey    = "effect-key"
)

// kept is how long a finished Job stays, for whoever wants to see its log.
const kept = 24 * time.Hour

// nameOf is the name of the Secret and of the Job.
func nameOf(call executors.Call) string { return "ctrlrun-" + call.ActionUID }

func metadata(call executors.Call) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace:   call.Namespace,
		Name:        nameOf(call),
		Labels:      map[string]string{ActionLabel: call.ActionUID},
		Annotations: map[string]string{ActionAnnotation: call.ActionName},
	}
}

// secretFor holds what the action says; nothing of it is in the Job, which more people can read. Until there is a Job it belongs to the
// action, which says the same: if this process dies in between, the one goes with the other.
func secretFor(call executors.Call) *corev1.Secret {
	immutable := true
	s := &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metadata(call),
		Type:       corev1.SecretTypeOpaque,
		Immutable:  &immutable,
		Data:       map[string][]byte{argumentsKey: call.Arguments, tokenKey: []byte(call.Token), effectKey: []byte(call.EffectKey)},
	}
	s.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "Action", Name: call.ActionName, UID: types.UID(call.ActionUID),
	}}
	return s
}

// jobFor is the Job. Of what it says about pods each line is there so that there is never a second one: one completion at a time, no
// failure that is made good, and no pod in the place of one that is not yet known to have ended.
func (e *Executor) jobFor(call executors.Call, execution string, deadline time.Duration) *batchv1.Job {
	none, one := int32(0), int32(1)
	active, ttl := int64(deadline/time.Second), int32(kept/time.Second)
	completion, replacement := batchv1.NonIndexedCompletion, batchv1.Failed
	j := &batchv1.Job{
		TypeMeta:   metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"},
		ObjectMeta: metadata(call),
		Spec: batchv1.JobSpec{
			Parallelism: &one, Completions: &one, CompletionMode: &completion,
			BackoffLimit: &none, PodReplacementPolicy: &replacement,
			ActiveDeadlineSeconds: &active, TTLSecondsAfterFinished: &ttl,
			Template: *e.template.DeepCopy(),
		},
	}
	j.Annotations[executionAnnotation] = execution

	t := &j.Spec.Template
	set(&t.Labels, ActionLabel, call.ActionUID)
	set(&t.Annotations, ActionAnnotation, call.ActionName)
	t.Spec.RestartPolicy = corev1.RestartPolicyNever
	t.Spec.ServiceAccountName = e.serviceAccount
	// The ServiceAccount can make Jobs and read what the Executor needs; the program gets its token only if the template says so.
	if t.Spec.AutomountServiceAccountToken == nil {
		no := false
		t.Spec.AutomountServiceAccountToken = &no
	}
	mode := int32(0o444)
	t.Spec.Volumes = append(t.Spec.Volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
		SecretName: nameOf(call), DefaultMode: &mode, Items: []corev1.KeyToPath{{Key: argumentsKey, Path: argumentsKey}},
	}}})
	c := &t.Spec.Containers[0]
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: Directory, ReadOnly: true})
	c.Env = append(c.Env,
		corev1.EnvVar{Name: prefix + "ARGUMENTS_FILE", Value: ArgumentsFile},
		corev1.EnvVar{Name: prefix + "ACTION_TYPE", Value: call.ActionType},
		corev1.EnvVar{Name: prefix + "ATTEMPT", Value: strconv.FormatInt(call.Attempt, 10)},
		fromSecret(prefix+"TOKEN", nameOf(call), tokenKey),
		fromSecret(prefix+"EFFECT_KEY", nameOf(call), effectKey),
	)
	return j
}

func set(m *map[string]string, key, value string) {
	if *m == nil {
		*m = map[string]string{}
	}
	(*m)[key] = value
}

func fromSecret(name, secret, key string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: secret}, Key: key,
	}}}
}
