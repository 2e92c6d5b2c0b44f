package jobexec

import (
	"path"
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
	questionKey  = "question.json"
	tokenKey     = "token"
	effectKey    = "effect-key"
)

// kept is how long a finished Job stays, for whoever wants to see its log.
const kept = 24 * time.Hour

// errand is what a Job is made for: to execute an action, or to look for one what became of an attempt. An action may do both, so what is
// made for the one has neither name nor label of what is made for the other.
type errand struct {
	kind                  string // as sentences name it
	namespace             string
	actionName, actionUID string
	name                  string // of the Secret and the Job
	label                 string // with the action's uid, on the Secret, the Job and the pod
	// file is the key of the Secret, and the name of the file, with content; its path is in the environment variable pathIn.
	file    string
	pathIn  string
	content []byte
	env     []corev1.EnvVar // besides those of every errand
	// Of the attempt.
	effectKey string
	attempt   int64
	token     string
	// owned: the Job goes with the action.
	owned bool
}

func executionOf(call executors.Call) errand {
	return errand{
		kind: "action", namespace: call.Namespace, actionName: call.ActionName, actionUID: call.ActionUID,
		name: "ctrlrun-" + call.ActionUID, label: ActionLabel,
		file: argumentsKey, pathIn: prefix + "ARGUMENTS_FILE", content: call.Arguments,
		env:       []corev1.EnvVar{{Name: prefix + "ACTION_TYPE", Value: call.ActionType}},
		effectKey: call.EffectKey, attempt: call.Attempt, token: call.Token,
	}
}

func lookOf(look executors.Look) (errand, error) {
	question, err := look.Question()
	if err != nil {
		return errand{}, err
	}
	return errand{
		kind: "look", namespace: look.Namespace, actionName: look.ActionName, actionUID: look.ActionUID,
		name: "ctrlrun-look-" + look.ActionUID, label: LookLabel,
		file: questionKey, pathIn: prefix + "QUESTION_FILE", content: question,
		effectKey: look.EffectKey, attempt: look.Attempt, token: look.Token, owned: true,
	}, nil
}

func (r errand) metadata() metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace:   r.namespace,
		Name:        r.name,
		Labels:      map[string]string{r.label: r.actionUID},
		Annotations: map[string]string{ActionAnnotation: r.actionName},
	}
}

func (r errand) owner() []metav1.OwnerReference {
	return []metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "Action", Name: r.actionName, UID: types.UID(r.actionUID),
	}}
}

// secretFor holds what the errand says; nothing of it is in the Job, which more people can read. Until there is a Job it belongs to the
// action: if this process dies in between, the one goes with the other.
func secretFor(r errand) *corev1.Secret {
	immutable := true
	s := &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: r.metadata(),
		Type:       corev1.SecretTypeOpaque,
		Immutable:  &immutable,
		Data:       map[string][]byte{r.file: r.content, tokenKey: []byte(r.token), effectKey: []byte(r.effectKey)},
	}
	s.OwnerReferences = r.owner()
	return s
}

// jobFor is the Job. Of what it says about pods each line is there so that there is never a second one: one completion at a time, no
// failure that is made good, and no pod in the place of one that is not yet known to have ended.
func (e *Executor) jobFor(r errand, execution string, deadline time.Duration) *batchv1.Job {
	none, one := int32(0), int32(1)
	active, ttl := int64(deadline/time.Second), int32(kept/time.Second)
	completion, replacement := batchv1.NonIndexedCompletion, batchv1.Failed
	j := &batchv1.Job{
		TypeMeta:   metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"},
		ObjectMeta: r.metadata(),
		Spec: batchv1.JobSpec{
			Parallelism: &one, Completions: &one, CompletionMode: &completion,
			BackoffLimit: &none, PodReplacementPolicy: &replacement,
			ActiveDeadlineSeconds: &active, TTLSecondsAfterFinished: &ttl,
			Template: *e.template.DeepCopy(),
		},
	}
	j.Annotations[executionAnnotation] = execution
	if r.owned {
		j.OwnerReferences = r.owner()
	}

	t := &j.Spec.Template
	set(&t.Labels, r.label, r.actionUID)
	set(&t.Annotations, ActionAnnotation, r.actionName)
	t.Spec.RestartPolicy = corev1.RestartPolicyNever
	t.Spec.ServiceAccountName = e.serviceAccount
	// The ServiceAccount can make Jobs and read what the Executor needs; the program gets its token only if the template says so.
	if t.Spec.AutomountServiceAccountToken == nil {
		no := false
		t.Spec.AutomountServiceAccountToken = &no
	}
	mode := int32(0o444)
	t.Spec.Volumes = append(t.Spec.Volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
		SecretName: r.name, DefaultMode: &mode, Items: []corev1.KeyToPath{{Key: r.file, Path: r.file}},
	}}})
	c := &t.Spec.Containers[0]
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: Directory, ReadOnly: true})
	c.Env = append(c.Env, corev1.EnvVar{Name: r.pathIn, Value: path.Join(Directory, r.file)})
	c.Env = append(c.Env, r.env...)
	c.Env = append(c.Env,
		corev1.EnvVar{Name: prefix + "ATTEMPT", Value: strconv.FormatInt(r.attempt, 10)},
		fromSecret(prefix+"TOKEN", r.name, tokenKey),
		fromSecret(prefix+"EFFECT_KEY", r.name, effectKey),
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
