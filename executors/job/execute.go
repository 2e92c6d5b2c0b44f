package jobexec

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"ctrlrun.dev/operator/executors"
	"ctrlrun.dev/operator/executors/internal/apiserver"
	"ctrlrun.dev/operator/kernel/effect"
)

const (
	// interval between two reads of a Job.
	interval = time.Second
	// answerTime bounds one creation, and readBack how long afterwards it is looked for if it was not answered: by then an apiserver
	// has ended every request.
	answerTime = 30 * time.Second
	readBack   = 90 * time.Second
	// slack is the most of the time that is kept for reading how the Job ended: a pod without node that the Job deletes at its deadline
	// is cleared away after 20 seconds. patience is how long the end is waited for if the caller sets none.
	slack    = 30 * time.Second
	patience = time.Minute
	// cleaning bounds the removal of the Secret.
	cleaning = 10 * time.Second
)

// execution is one run of a Job for an errand.
type execution struct {
	*Executor
	errand errand
	id     string
	client kubernetes.Interface
	writer *apiserver.Writer
	pods   watch.Interface
	state  state
}

// Execute runs the Job for call and waits for its end. config is a connection as the ServiceAccount of the Executor; its credentials
// have to be good for as long as the Job can run. The Job's deadline is the spec's timeout, or what ctx leaves if that is less, without
// a tenth of it, at most 30 seconds, in which its end is read.
//
// When ctx ends, the Job goes on to its deadline, and how it ends is unknown.
func (e *Executor) Execute(ctx context.Context, call executors.Call, config *rest.Config) executors.Result {
	return e.run(ctx, executionOf(call), config).Result
}

// ending is how a run ended.
type ending struct {
	executors.Result
	// message is what the container left to say if it exited with 0; nil if that is not known.
	message *string
}

// run makes the Job of an errand and waits for its end.
func (e *Executor) run(ctx context.Context, r errand, config *rest.Config) ending {
	deadline := e.deadline(ctx)
	if deadline < time.Second {
		return ending{Result: nothingMade(errLate)}
	}
	ctx, cancel := context.WithTimeout(ctx, deadline+e.grace()+slack+patience)
	defer cancel()
	x, err := e.begin(ctx, r, config)
	if err != nil {
		return ending{Result: nothingMade(err)}
	}
	defer x.pods.Stop()
	switch {
	case x.state.job != nil:
		return ending{Result: x.anothers("Job")}
	case len(x.state.pods) > 0:
		return ending{Result: x.anothers("pod")}
	}

	secret, result := x.createSecret(ctx)
	if secret == nil {
		return ending{Result: result}
	}
	if result, created := x.createJob(ctx); !created {
		// A Job that comes late finds no Secret, and its pod does not start.
		x.removeSecret(ctx, secret)
		return ending{Result: result}
	}
	x.handOver(ctx, secret)
	end, ended := x.follow(ctx)
	if ended {
		x.removeSecret(ctx, secret)
	}
	return end
}

var errLate = errors.New("less than a second is left")

// anothers says that something is there that was not made by this run.
func (x *execution) anothers(what string) executors.Result {
	return executors.Unknown(fmt.Sprintf("there is a %s of this %s already, which this execution did not make", what, x.errand.kind))
}

func nothingMade(err error) executors.Result {
	return executors.NotExecuted("nothing was run: " + err.Error())
}

// deadline of the Job, in whole seconds.
func (e *Executor) deadline(ctx context.Context) time.Duration {
	d := e.timeout
	if end, ok := ctx.Deadline(); ok {
		left := time.Until(end)
		d = min(d, left-min(left/10, slack))
	}
	return d.Truncate(time.Second)
}

// grace is how long the container may go on after the deadline.
func (e *Executor) grace() time.Duration {
	if s := e.template.Spec.TerminationGracePeriodSeconds; s != nil {
		return time.Duration(*s) * time.Second
	}
	return corev1.DefaultTerminationGracePeriodSeconds * time.Second
}

// begin looks for what is there, and watches pods from before there is a Job, so that none comes and goes unseen. Whoever may not read
// Jobs could not learn how one ended, and learns it here, where nothing has been run.
func (e *Executor) begin(ctx context.Context, r errand, config *rest.Config) (*execution, error) {
	if len(validation.IsDNS1123Label(r.name)) > 0 {
		return nil, errors.New("the action has no uid that a Job can be named by")
	}
	if strings.ContainsRune(r.effectKey, 0) {
		// The container would never start, and its end prove nothing.
		return nil, errors.New("the effect key has a NUL, which no environment variable can hold")
	}
	reads := rest.CopyConfig(config)
	reads.UserAgent = apiserver.UserAgent
	reads.WarningHandler = rest.NoWarnings{}
	client, err := kubernetes.NewForConfig(reads)
	if err != nil {
		return nil, errors.New("the connection of the ServiceAccount cannot be used")
	}
	writer, err := apiserver.NewWriter(config)
	if err != nil {
		return nil, errors.New("the connection of the ServiceAccount cannot be used")
	}
	x := &execution{
		Executor: e, errand: r, id: uuid.NewString(), client: client, writer: writer,
		state: state{pods: map[types.UID]*sighting{}},
	}
	j, err := client.BatchV1().Jobs(r.namespace).Get(ctx, r.name, metav1.GetOptions{})
	switch {
	case err == nil:
		x.state.job = j
	case !apierrors.IsNotFound(err):
		return nil, failure("reading the Job", err)
	}
	list, err := client.CoreV1().Pods(r.namespace).List(ctx, x.selector())
	if err != nil {
		return nil, failure("listing pods", err)
	}
	for i := range list.Items {
		x.state.pods[list.Items[i].UID] = &sighting{pod: &list.Items[i]}
	}
	x.pods, err = watchtools.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = x.selector().LabelSelector
			return client.CoreV1().Pods(r.namespace).Watch(ctx, o)
		},
	})
	if err != nil {
		return nil, failure("watching pods", err)
	}
	return x, nil
}

func (x *execution) selector() metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: x.errand.label + "=" + x.errand.actionUID}
}

// failure says that a request failed. The apiserver's own words can quote values, its reasons cannot.
func failure(what string, err error) error {
	if reason := apierrors.ReasonForError(err); reason != metav1.StatusReasonUnknown {
		return fmt.Errorf("%s: %s", what, reason)
	}
	return fmt.Errorf("%s: no answer", what)
}

// create sends one creation, once.
func (x *execution) create(ctx context.Context, object any, path ...string) (apiserver.Answer, error) {
	body, err := json.Marshal(object)
	if err != nil {
		return apiserver.Answer{}, errors.New("it has no form in JSON")
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	return x.writer.Send(ctx, apiserver.Request{
		Method: http.MethodPost, Path: path, Query: url.Values{"fieldValidation": {metav1.FieldValidationStrict}},
		ContentType: "application/json", Body: body,
	})
}

// createSecret makes the Secret. Without it there is no Job, and so nothing was executed, whatever the answer is; unless it is there
// already: then somebody is executing this action, or has.
func (x *execution) createSecret(ctx context.Context) (*corev1.Secret, executors.Result) {
	answer, err := x.create(ctx, secretFor(x.errand), "api", "v1", "namespaces", x.errand.namespace, "secrets")
	if err != nil {
		return nil, nothingMade(fmt.Errorf("creating the Secret: %w", err))
	}
	if s, ok := answer.Status(); ok && s.Reason == metav1.StatusReasonAlreadyExists {
		return nil, x.anothers("Secret")
	}
	made := &corev1.Secret{}
	if !answer.OK() || json.Unmarshal(answer.Body, made) != nil || made.UID == "" {
		return nil, nothingMade(fmt.Errorf("creating the Secret: HTTP %d", answer.Code))
	}
	return made, executors.Result{}
}

// createJob makes the Job and reports whether it is there; if not, with what is known. If the process dies from here on, the Job runs to
// its deadline, which is of what is left now and not when it all began, and the attempt ends unknown.
func (x *execution) createJob(ctx context.Context) (executors.Result, bool) {
	deadline := x.deadline(ctx)
	if ctx.Err() != nil || deadline < time.Second {
		return nothingMade(errLate), false
	}
	answer, err := x.create(ctx, x.jobFor(x.errand, x.id, deadline), "apis", "batch", "v1", "namespaces", x.errand.namespace, "jobs")
	if err == nil {
		if reason, refused := answer.Refusal(); refused {
			return nothingMade(fmt.Errorf("the apiserver refused the Job: %s", reason)), false
		}
		made := &batchv1.Job{}
		if answer.OK() && json.Unmarshal(answer.Body, made) == nil && x.mine(made) {
			x.state.job = made
			return executors.Result{}, true
		}
	}
	return x.findJob(ctx)
}

// mine reports whether a Job is the one that this execution created.
func (x *execution) mine(j *batchv1.Job) bool {
	return j.Name == x.errand.name && j.UID != "" && j.Annotations[executionAnnotation] == x.id
}

// findJob looks for the Job whose creation was not answered. That it is not there proves nothing: it may still come. It is not created
// again, for the first one may have come and gone.
func (x *execution) findJob(ctx context.Context) (executors.Result, bool) {
	ctx, cancel := context.WithTimeout(ctx, readBack)
	defer cancel()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		j, err := x.client.BatchV1().Jobs(x.errand.namespace).Get(ctx, x.errand.name, metav1.GetOptions{})
		switch {
		case err == nil && x.mine(j):
			x.state.job = j
			return executors.Result{}, true
		case err == nil:
			return x.anothers("Job"), false
		}
		select {
		case <-ctx.Done():
			return executors.Unknown("the Job's creation was sent, and whether it was created is not known"), false
		case <-ticker.C:
		}
	}
}

// handOver makes the Secret go with the Job. If that fails, it goes with the action, as before.
func (x *execution) handOver(ctx context.Context, secret *corev1.Secret) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": secret.UID,
		"ownerReferences": []metav1.OwnerReference{{
			APIVersion: "batch/v1", Kind: "Job", Name: x.state.job.Name, UID: x.state.job.UID,
		}},
	}})
	if err == nil {
		_, _ = x.client.CoreV1().Secrets(secret.Namespace).Patch(ctx, secret.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
}

// removeSecret removes what the action says as soon as nothing needs it. If that fails, the garbage collector does it later.
func (x *execution) removeSecret(ctx context.Context, secret *corev1.Secret) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleaning)
	defer cancel()
	_ = x.client.CoreV1().Secrets(secret.Namespace).Delete(ctx, secret.Name, *metav1.NewPreconditionDeleteOptions(string(secret.UID)))
}

// follow waits until it is known how the Job ended, and reports whether that is so. That nothing was executed it says only if it is so
// for a whole interval: events of pods can be on their way when the Job is read, and one of them may say otherwise.
func (x *execution) follow(ctx context.Context) (ending, bool) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	events, turns := x.pods.ResultChan(), 0
	for {
		ended := false
		if x.read(ctx) {
			var end ending
			end, ended = x.judge(x.state)
			if ended && (end.State != effect.Failed || turns > 1) {
				return end, true
			}
		}
		if !ended {
			turns = 0
		}
		select {
		case <-ctx.Done():
			return ending{Result: executors.Unknown("the time was over, and the Job had not ended")}, false
		case <-ticker.C:
			if ended {
				turns++
			}
		case event, ok := <-events:
			if !ok || !x.see(event) {
				// Pods are looked for at every turn from now on, and none of them is known to have been the only one.
				x.state.gap, events = true, nil
			}
		}
	}
}

// see takes in what happened to a pod. It returns false for an event that is none: the watch is over then.
func (x *execution) see(event watch.Event) bool {
	pod, ok := event.Object.(*corev1.Pod)
	if !ok {
		return false
	}
	x.state.pods[pod.UID] = &sighting{pod: pod, gone: event.Type == watch.Deleted}
	return true
}

// read reads the Job, and its pods where their events do not tell enough. It returns false if there was no answer.
func (x *execution) read(ctx context.Context) bool {
	j, err := x.client.BatchV1().Jobs(x.errand.namespace).Get(ctx, x.errand.name, metav1.GetOptions{})
	switch {
	case err == nil && j.UID == x.state.job.UID:
		x.state.job = j
	case err == nil || apierrors.IsNotFound(err):
		x.state.deleted = true
	default:
		return false
	}
	over := x.state.deleted || finished(x.state.job, batchv1.JobFailed) || finished(x.state.job, batchv1.JobComplete)
	if !over && !x.state.gap {
		return true
	}
	list, err := x.client.CoreV1().Pods(x.errand.namespace).List(ctx, x.selector())
	if err != nil {
		return false
	}
	there := map[types.UID]bool{}
	for i := range list.Items {
		pod := &list.Items[i]
		there[pod.UID] = true
		x.state.pods[pod.UID] = &sighting{pod: pod}
	}
	for uid, s := range x.state.pods {
		// With a watch, the event of its deletion is on its way.
		if !there[uid] && x.state.gap {
			s.gone = true
		}
	}
	return true
}
