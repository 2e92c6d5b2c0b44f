package jobexec

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/executors"
	"ctrlrun.dev/operator/kernel/flow"
)

// observer is one that is in order, with a pod of these fields.
func observer(t *testing.T, pod string, timeout int32) (*Observer, error) {
	t.Helper()
	return NewObserver(&v1alpha1.JobObserver{Template: spec(t, pod, "").Template, TimeoutSeconds: timeout}, "runner")
}

func TestObservers(t *testing.T) {
	for name, c := range map[string]struct {
		pod     string
		timeout int32
		want    string // in the error, or "" if there is none
	}{
		"the shortest":           {"", 10, ""},
		"the longest":            {"", 600, ""},
		"too short":              {"", 9, "timeoutSeconds"},
		"too long":               {"", 601, "timeoutSeconds"},
		"without bound":          {"", 0, "timeoutSeconds"},
		"two containers":         {`{"containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}]}`, 10, "2 containers"},
		"restarts":               {`{"restartPolicy": "OnFailure"}`, 10, "restartPolicy"},
		"another ServiceAccount": {`{"serviceAccountName": "admin"}`, 10, "serviceAccountName"},
		"a question of its own":  {container(`, "env": [{"name": "CTRLRUN_QUESTION_FILE", "value": "x"}]`), 10, "CTRLRUN_QUESTION_FILE"},
		"a mount over it":        {container(`, "volumeMounts": [{"name": "x", "mountPath": "/var/run/ctrlrun/question.json"}]`), 10, "volumeMounts"},
	} {
		_, err := observer(t, c.pod, c.timeout)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
	}
}

var look = executors.Look{
	Namespace: "payments", ActionName: "refund-2", ActionUID: "dece4ae6-8290-450e-8f1b-f35de86bd5ed", EffectKey: "refund:confidential", Attempt: 1, Token: "the-token",
}

// A look is told the question and nothing else, and is not mistaken for an execution by the same action.
func TestWhatALookIsGiven(t *testing.T) {
	o, err := observer(t, "", 60)
	if err != nil {
		t.Fatal(err)
	}
	r, err := lookOf(look)
	if err != nil {
		t.Fatal(err)
	}
	secret, j := secretFor(r), o.executor.jobFor(r, "id", time.Minute)
	data, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	for _, private := range []string{"confidential", "the-token"} {
		if strings.Contains(string(data), private) {
			t.Errorf("the Job says %s", private)
		}
	}
	given := map[string]string{}
	for key, value := range secret.Data {
		given[key] = string(value)
	}
	want := `{"attempt":1,"effect_key":"refund:confidential","token":"the-token"}`
	if len(given) != 3 || given["question.json"] != want || given["token"] != "the-token" || given["effect-key"] != "refund:confidential" {
		t.Errorf("the Secret has %v", given)
	}
	var env []string
	for _, v := range j.Spec.Template.Spec.Containers[0].Env {
		env = append(env, v.Name+"="+v.Value)
	}
	if got := strings.Join(env, " "); got != "CTRLRUN_QUESTION_FILE=/var/run/ctrlrun/question.json CTRLRUN_ATTEMPT=1 CTRLRUN_TOKEN= CTRLRUN_EFFECT_KEY=" {
		t.Errorf("the environment is %s", got)
	}
	owner := j.OwnerReferences
	for what, ok := range map[string]bool{
		"its name":              j.Name == "ctrlrun-look-"+look.ActionUID && secret.Name == j.Name,
		"the file":              slices.Equal([]string{j.Spec.Template.Spec.Volumes[0].Secret.Items[0].Key, j.Spec.Template.Spec.Volumes[0].Secret.Items[0].Path}, []string{"question.json", "question.json"}),
		"it goes with it":       len(owner) == 1 && owner[0].Kind == "Action" && owner[0].UID == types.UID(look.ActionUID) && owner[0].Name == look.ActionName,
		"it acts as runner":     j.Spec.Template.Spec.ServiceAccountName == "runner",
		"no other pod":          *j.Spec.BackoffLimit == 0 && *j.Spec.PodReplacementPolicy == batchv1.Failed,
		"found by its label":    j.Labels[LookLabel] == look.ActionUID && j.Spec.Template.Labels[LookLabel] == look.ActionUID,
		"not by an execution's": j.Labels[ActionLabel] == "" && j.Spec.Template.Labels[ActionLabel] == "" && secret.Labels[ActionLabel] == "",
	} {
		if !ok {
			t.Errorf("not so: %s", what)
		}
	}
	if len(executionOf(call).metadata().Labels) != 1 || executionOf(call).metadata().Labels[ActionLabel] == "" {
		t.Error("an execution is not found by its own label")
	}
}

// Only what the container of the only pod says as it exits with 0 is an answer. That nothing was run, which is certain of some, says
// nothing of what is asked for.
func TestAnswers(t *testing.T) {
	const yes, no = `{"answer":"committed"}`, `{"answer":"not_executed"}`
	failed, complete := condition(batchv1.JobFailed), condition(batchv1.JobComplete)
	for name, c := range map[string]struct {
		job     *batchv1.Job
		pods    []*sighting
		deleted bool
		want    flow.Answer
	}{
		"committed":                        {job: job(), pods: []*sighting{pod("a", exited(0, "Completed", yes))}, want: flow.AnswerCommitted},
		"not executed":                     {job: job(), pods: []*sighting{pod("a", exited(0, "Completed", no))}, want: flow.AnswerNotExecuted},
		"it does not know":                 {job: job(), pods: []*sighting{pod("a", exited(0, "Completed", `{"answer":"unknown"}`))}, want: flow.AnswerUnknown},
		"garbage":                          {job: job(), pods: []*sighting{pod("a", exited(0, "Completed", "committed"))}, want: flow.AnswerUnknown},
		"nothing":                          {job: job(), pods: []*sighting{pod("a", exited(0, "Completed", ""))}, want: flow.AnswerUnknown},
		"the longest":                      {job: job(), pods: []*sighting{pod("a", exited(0, "Completed", strings.Repeat(" ", 4095-len(yes))+yes))}, want: flow.AnswerCommitted},
		"what may be the end of a message": {job: job(), pods: []*sighting{pod("a", exited(0, "Completed", strings.Repeat(" ", 4096-len(yes))+yes))}, want: flow.AnswerUnknown},
		"an answer that failed":            {job: job(failed, counts(0, 1)), pods: []*sighting{pod("a", exited(1, "Error", yes))}, want: flow.AnswerUnknown},
		"an answer that exits as listed":   {job: job(failed, counts(0, 1)), pods: []*sighting{pod("a", exited(75, "Error", no))}, want: flow.AnswerUnknown},
		"an answer of two":                 {job: job(), pods: []*sighting{pod("a"), pod("b", exited(0, "Completed", yes))}, want: flow.AnswerUnknown},
		"an answer of somebody":            {job: job(), pods: []*sighting{pod("a", exited(0, "Completed", no), foreign)}, want: flow.AnswerUnknown},
		"an answer after another start":    {job: job(), pods: []*sighting{pod("a", exited(0, "Completed", no), restarted)}, want: flow.AnswerUnknown},
		"a pod that is gone":               {job: job(complete, counts(1, 0)), pods: []*sighting{pod("a", final)}, want: flow.AnswerUnknown},
		"no pod":                           {job: job(failed), want: flow.AnswerUnknown},
		"a pod that never had a node":      {job: job(failed, counts(0, 1)), pods: []*sighting{pod("a", unbound, final)}, want: flow.AnswerUnknown},
		"a Job that was deleted":           {job: job(), deleted: true, want: flow.AnswerUnknown},
	} {
		o, err := observer(t, "", 60)
		if err != nil {
			t.Fatal(err)
		}
		s := state{job: c.job, deleted: c.deleted, pods: map[types.UID]*sighting{}}
		for _, p := range c.pods {
			s.pods[p.pod.UID] = p
		}
		end, over := o.executor.judge(s)
		if !over {
			t.Errorf("%s: it is not over", name)
			continue
		}
		if got, why := said(end); got != c.want || (why == "") != (got != flow.AnswerUnknown) {
			t.Errorf("%s: %s (%q), want %s", name, got, why, c.want)
		}
	}
}

// What can never run is no answer either: there is no connection to try it by.
func TestLooksThatCannotRun(t *testing.T) {
	o, err := observer(t, "", 60)
	if err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*executors.Look){
		"NUL":            func(l *executors.Look) { l.EffectKey = "refund:\x00" },
		"canonical form": func(l *executors.Look) { l.EffectKey = "refund:\xff" },
		"uid":            func(l *executors.Look) { l.ActionUID = "../x" },
	} {
		l := look
		change(&l)
		if got, why := o.Ask(t.Context(), l, nil); got != flow.AnswerUnknown || !strings.Contains(why, want) {
			t.Errorf("%s: %s; want Unknown with %q", got, why, want)
		}
	}
}
