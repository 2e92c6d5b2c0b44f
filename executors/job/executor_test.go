package jobexec

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/executors"
	"ctrlrun.dev/operator/kernel/effect"
)

// spec is one that is in order, with a pod of these fields and others of the spec.
func spec(t *testing.T, pod, rest string) *v1alpha1.JobExecutor {
	t.Helper()
	podSpec := map[string]any{"containers": []any{map[string]any{"name": "main", "image": "refund:1"}}}
	s := map[string]any{"template": map[string]any{"spec": podSpec}, "timeoutSeconds": 60, "notExecuted": []int{75}}
	for target, fields := range map[string]map[string]any{pod: podSpec, rest: s} {
		if target == "" {
			continue
		}
		if err := json.Unmarshal([]byte(target), &fields); err != nil {
			t.Fatal(err)
		}
	}
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	out := &v1alpha1.JobExecutor{}
	if err := json.Unmarshal(data, out); err != nil {
		t.Fatal(err)
	}
	return out
}

func container(more string) string {
	return `{"containers": [{"name": "main", "image": "i"` + more + `}]}`
}

func TestNew(t *testing.T) {
	for name, c := range map[string]struct {
		pod, rest string
		// want is in the error, or "" if there is none.
		want string
	}{
		"in order":                            {"", "", ""},
		"with all that does no harm":          {`{"restartPolicy": "Never", "automountServiceAccountToken": true, "hostNetwork": true, "nodeSelector": {"a": "b"}, "volumes": [{"name": "tmp", "emptyDir": {}}]}`, "", ""},
		"no container":                        {`{"containers": []}`, "", "0 containers"},
		"two containers":                      {`{"containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}]}`, "", "2 containers"},
		"an init container":                   {`{"initContainers": [{"name": "a", "image": "i"}]}`, "", "containers besides"},
		"an ephemeral container":              {`{"ephemeralContainers": [{"name": "a", "image": "i"}]}`, "", "containers besides"},
		"a container without name":            {`{"containers": [{"image": "i"}]}`, "", "name"},
		"a container without image":           {`{"containers": [{"name": "a"}]}`, "", "image"},
		"restarts on failure":                 {`{"restartPolicy": "OnFailure"}`, "", "restartPolicy"},
		"restarts always":                     {`{"restartPolicy": "Always"}`, "", "restartPolicy"},
		"a container that restarts":           {container(`, "restartPolicy": "OnFailure"`), "", "restartPolicy"},
		"a container that restarts by rules":  {container(`, "restartPolicyRules": [{"action": "Restart"}]`), "", "restartPolicy"},
		"another ServiceAccount":              {`{"serviceAccountName": "admin"}`, "", "serviceAccountName"},
		"another ServiceAccount, the old way": {`{"serviceAccount": "admin"}`, "", "serviceAccountName"},
		"a deadline of its own":               {`{"activeDeadlineSeconds": 5}`, "", "activeDeadlineSeconds"},
		"the executor's volume":               {`{"volumes": [{"name": "ctrlrun", "emptyDir": {}}]}`, "", "volumes"},
		"the executor's environment":          {container(`, "env": [{"name": "CTRLRUN_TOKEN", "value": "x"}]`), "", "CTRLRUN_TOKEN"},
		"an environment of its own":           {container(`, "env": [{"name": "LEVEL", "value": "x"}]`), "", ""},
		"a mount over the arguments":          {container(`, "volumeMounts": [{"name": "x", "mountPath": "/var/run/ctrlrun"}]`), "", "volumeMounts"},
		"a mount over one of the arguments":   {container(`, "volumeMounts": [{"name": "x", "mountPath": "/var/run/ctrlrun/arguments.json"}]`), "", "volumeMounts"},
		"a mount over what is above":          {container(`, "volumeMounts": [{"name": "x", "mountPath": "/var/run/"}]`), "", "volumeMounts"},
		"a mount over everything":             {container(`, "volumeMounts": [{"name": "x", "mountPath": "/"}]`), "", "volumeMounts"},
		"a mount by a detour":                 {container(`, "volumeMounts": [{"name": "x", "mountPath": "/var/run/x/../ctrlrun"}]`), "", "volumeMounts"},
		"a mount beside":                      {container(`, "volumeMounts": [{"name": "x", "mountPath": "/var/run/ctrlrun2"}]`), "", ""},
		"no timeout":                          {"", `{"timeoutSeconds": 0}`, "timeoutSeconds"},
		"more than a day":                     {"", `{"timeoutSeconds": 86401}`, "timeoutSeconds"},
		"success that says nothing happened":  {"", `{"notExecuted": [0]}`, "notExecuted"},
		"a signal that says nothing happened": {"", `{"notExecuted": [137]}`, "notExecuted"},
		"a code twice":                        {"", `{"notExecuted": [3, 3]}`, "notExecuted"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(spec(t, c.pod, c.rest), "runner")
			switch {
			case c.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("the error is %v, and does not speak of %s", err, c.want)
			}
		})
	}
	if _, err := New(spec(t, "", ""), ""); err == nil {
		t.Error("it takes the default ServiceAccount")
	}
	for name, metadata := range map[string]metav1.ObjectMeta{
		"a name":         {Name: "x"},
		"a namespace":    {Namespace: "x"},
		"finalizers":     {Finalizers: []string{"x/y"}},
		"an owner":       {OwnerReferences: []metav1.OwnerReference{{Name: "x"}}},
		"our label":      {Labels: map[string]string{ActionLabel: "x"}},
		"our annotation": {Annotations: map[string]string{"more.ctrlrun.dev/x": "x"}},
	} {
		s := spec(t, "", "")
		s.Template.ObjectMeta = metadata
		if _, err := New(s, "runner"); err == nil {
			t.Errorf("%s is not refused", name)
		}
	}
}

var call = executors.Call{
	Namespace: "payments", ActionName: "refund-1", ActionUID: "dece4ae6-8290-450e-8f1b-f35de86bd5ed", ActionType: "payment.refund",
	Arguments: []byte(`{"order":"confidential"}`), EffectKey: "refund:confidential", Attempt: 2, Token: "the-token",
}

// What the action says is in the Secret and nowhere in the Job, which more people can read.
func TestManifests(t *testing.T) {
	s := spec(t, "", "")
	e, err := New(s, "runner")
	if err != nil {
		t.Fatal(err)
	}
	j := e.jobFor(executionOf(call), "id", 90*time.Second)
	data, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"confidential", "the-token"} {
		if strings.Contains(string(data), secret) {
			t.Errorf("the Job says %s", secret)
		}
	}
	for what, ok := range map[string]bool{
		"one pod at a time":    *j.Spec.Parallelism == 1 && *j.Spec.Completions == 1,
		"no other pod":         *j.Spec.BackoffLimit == 0 && *j.Spec.PodReplacementPolicy == batchv1.Failed,
		"no other start":       j.Spec.Template.Spec.RestartPolicy == corev1.RestartPolicyNever,
		"its deadline":         *j.Spec.ActiveDeadlineSeconds == 90,
		"it is not kept long":  *j.Spec.TTLSecondsAfterFinished == 86400,
		"its ServiceAccount":   j.Spec.Template.Spec.ServiceAccountName == "runner",
		"without its token":    !*j.Spec.Template.Spec.AutomountServiceAccountToken,
		"named by the action":  j.Name == "ctrlrun-"+call.ActionUID && secretFor(executionOf(call)).Name == j.Name,
		"the arguments":        string(secretFor(executionOf(call)).Data["arguments.json"]) == string(call.Arguments),
		"not to be changed":    *secretFor(executionOf(call)).Immutable,
		"the template is kept": len(s.Template.Spec.Volumes) == 0 && len(e.template.Spec.Volumes) == 0 && len(e.template.Spec.Containers[0].Env) == 0,
	} {
		if !ok {
			t.Errorf("not so: %s", what)
		}
	}
}

// What can never run is not tried: there is no connection to try it by.
func TestWhatCannotRun(t *testing.T) {
	e, err := New(spec(t, "", ""), "runner")
	if err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*executors.Call){
		"NUL": func(c *executors.Call) { c.EffectKey = "refund:\x00" },
		"uid": func(c *executors.Call) { c.ActionUID = "../x" },
	} {
		c := call
		change(&c)
		if got := e.Execute(t.Context(), c, nil); got.State != effect.Failed || !strings.Contains(got.Error, want) {
			t.Errorf("%s: %s; want Failed with %q", got.State, got.Error, want)
		}
	}
}

// job and pod are what the parts of a Kubernetes cluster make of an execution.
func job(change ...func(*batchv1.Job)) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j", UID: "job"}}
	for _, c := range change {
		c(j)
	}
	return j
}

func condition(how batchv1.JobConditionType) func(*batchv1.Job) {
	return func(j *batchv1.Job) {
		j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{Type: how, Status: corev1.ConditionTrue})
	}
}

func counts(succeeded, failed int32) func(*batchv1.Job) {
	return func(j *batchv1.Job) { j.Status.Succeeded, j.Status.Failed = succeeded, failed }
}

func pod(uid string, change ...func(*sighting)) *sighting {
	yes := true
	s := &sighting{pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		UID: types.UID(uid), OwnerReferences: []metav1.OwnerReference{{UID: "job", Controller: &yes}},
	}}}
	s.pod.Spec.NodeName = "node"
	s.pod.Status.Phase = corev1.PodPending
	for _, c := range change {
		c(s)
	}
	return s
}

func phase(p corev1.PodPhase) func(*sighting) { return func(s *sighting) { s.pod.Status.Phase = p } }
func unbound(s *sighting)                     { s.pod.Spec.NodeName = "" }
func foreign(s *sighting)                     { s.pod.OwnerReferences = nil }
func gone(s *sighting)                        { s.gone = true }
func dying(s *sighting)                       { s.pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }
func final(s *sighting)                       { gone(s); dying(s) }

func exited(code int32, reason, message string) func(*sighting) {
	return func(s *sighting) {
		s.pod.Status.ContainerStatuses = []corev1.ContainerStatus{
			{Name: "sidecar", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 75, Reason: "Error"}}},
			{Name: "main", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, Message: message}}},
		}
	}
}

func waiting(s *sighting) {
	s.pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "main", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}},
	}}
}

func restarted(s *sighting) { s.pod.Status.ContainerStatuses[1].RestartCount = 1 }

func TestJudge(t *testing.T) {
	failed, complete := condition(batchv1.JobFailed), condition(batchv1.JobComplete)
	stopping := condition(batchv1.JobFailureTarget)
	for name, c := range map[string]struct {
		job     *batchv1.Job
		pods    []*sighting
		deleted bool
		gap     bool
		want    effect.State // "" while it is not over
		output  string
	}{
		"nothing yet":                                  {job: job()},
		"a pod that waits":                             {job: job(), pods: []*sighting{pod("a", waiting)}},
		"a pod that runs":                              {job: job(), pods: []*sighting{pod("a", phase(corev1.PodRunning))}},
		"exit 0":                                       {job: job(), pods: []*sighting{pod("a", exited(0, "Completed", ""))}, want: effect.Committed},
		"exit 0 with output":                           {job: job(), pods: []*sighting{pod("a", exited(0, "Completed", ` {"b":1, "a":2}`))}, want: effect.Committed, output: `{"a":2,"b":1}`},
		"exit 0 with a fraction":                       {job: job(), pods: []*sighting{pod("a", exited(0, "Completed", `1.5`))}, want: effect.Committed},
		"exit 0 with a large number":                   {job: job(), pods: []*sighting{pod("a", exited(0, "Completed", `12345678901234567890`))}, want: effect.Committed},
		"exit 0 with a sentence":                       {job: job(), pods: []*sighting{pod("a", exited(0, "Completed", `done`))}, want: effect.Committed},
		"exit 0 beside a sidecar that failed":          {job: job(failed, counts(0, 1)), pods: []*sighting{pod("a", exited(0, "Completed", ""))}, want: effect.Committed},
		"exit 0, and the Job is gone":                  {job: job(), deleted: true, pods: []*sighting{pod("a", exited(0, "Completed", ""))}, want: effect.Committed},
		"exit 0 after another pod":                     {job: job(), pods: []*sighting{pod("a", gone), pod("b", exited(0, "Completed", ""))}, want: effect.Ambiguous},
		"exit 0 after another pod that was counted":    {job: job(counts(1, 1)), pods: []*sighting{pod("b", exited(0, "Completed", ""))}, want: effect.Ambiguous},
		"exit 0 after another start":                   {job: job(), pods: []*sighting{pod("b", exited(0, "Completed", ""), restarted)}, want: effect.Ambiguous},
		"exit 0 of somebody's pod":                     {job: job(), pods: []*sighting{pod("b", exited(0, "Completed", ""), foreign)}, want: effect.Ambiguous},
		"complete, and the pod is gone":                {job: job(complete, counts(1, 0)), pods: []*sighting{pod("a", final)}, want: effect.Committed},
		"complete without a pod":                       {job: job(complete), want: effect.Ambiguous},
		"a listed code, and the Job may go on":         {job: job(), pods: []*sighting{pod("a", exited(75, "Error", ""))}},
		"a listed code, and the Job is being ended":    {job: job(stopping), pods: []*sighting{pod("a", exited(75, "Error", ""))}},
		"a listed code, and the Job failed":            {job: job(failed, counts(0, 1)), pods: []*sighting{pod("a", exited(75, "Error", ""))}, want: effect.Failed},
		"a listed code, and the pod is gone":           {job: job(failed, counts(0, 1)), pods: []*sighting{pod("a", exited(75, "Error", ""), final)}, want: effect.Failed},
		"a listed code, and the Job was deleted":       {job: job(), deleted: true, pods: []*sighting{pod("a", exited(75, "Error", ""))}, want: effect.Ambiguous},
		"a listed code, and the Job is complete":       {job: job(complete, counts(1, 0)), pods: []*sighting{pod("a", exited(75, "Error", ""))}, want: effect.Ambiguous},
		"a listed code without memory":                 {job: job(failed, counts(0, 1)), pods: []*sighting{pod("a", exited(75, "OOMKilled", ""))}, want: effect.Ambiguous},
		"a listed code and a second pod":               {job: job(failed, counts(0, 1)), pods: []*sighting{pod("a", exited(75, "Error", "")), pod("b")}, want: effect.Ambiguous},
		"a listed code and a second pod that was seen": {job: job(failed, counts(0, 2)), pods: []*sighting{pod("a", exited(75, "Error", ""))}, want: effect.Ambiguous},
		"another code":                                 {job: job(), pods: []*sighting{pod("a", exited(1, "Error", ""))}, want: effect.Ambiguous},
		"killed":                                       {job: job(), pods: []*sighting{pod("a", exited(137, "Error", ""))}, want: effect.Ambiguous},
		"lost by the kubelet":                          {job: job(failed, counts(0, 1)), pods: []*sighting{pod("a", exited(137, "ContainerStatusUnknown", ""))}, want: effect.Ambiguous},
		"the Job is deleted":                           {job: job(), deleted: true, want: effect.Ambiguous},
		"the Job is deleted while it runs":             {job: job(), deleted: true, pods: []*sighting{pod("a", phase(corev1.PodRunning))}, want: effect.Ambiguous},
		"the Job is deleted before its pod has a node": {job: job(), deleted: true, pods: []*sighting{pod("a", unbound, final)}, want: effect.Ambiguous},
		"failed without a pod":                         {job: job(failed), want: effect.Failed},
		"failed without a pod that was seen":           {job: job(failed), gap: true, want: effect.Ambiguous},
		"failed with a pod that is still to be seen":   {job: job(failed, counts(0, 1))},
		"failed with a pod that was never seen":        {job: job(failed, counts(0, 1)), gap: true, want: effect.Ambiguous},
		"failed with a pod that is still there":        {job: job(failed, counts(0, 1)), pods: []*sighting{pod("a", unbound)}},
		"failed with a pod that never had a node":      {job: job(failed, counts(0, 1)), pods: []*sighting{pod("a", unbound, final)}, want: effect.Failed},
		"the same, as long as it is there":             {job: job(failed, counts(0, 1)), pods: []*sighting{pod("a", unbound, dying)}, want: effect.Failed},
		"failed with a pod that is being deleted":      {job: job(failed, counts(0, 1)), pods: []*sighting{pod("a", waiting, dying)}},
		"the same, but not seen to its end":            {job: job(failed, counts(0, 1)), pods: []*sighting{pod("a", unbound, gone)}, want: effect.Ambiguous},
		"the same, but with a gap":                     {job: job(failed, counts(0, 1)), pods: []*sighting{pod("a", unbound, final)}, gap: true, want: effect.Ambiguous},
		"the same, but the Job may go on":              {job: job(stopping), pods: []*sighting{pod("a", unbound, final)}},
		"failed with a pod that could not be pulled":   {job: job(failed, counts(0, 1)), pods: []*sighting{pod("a", waiting, final)}, want: effect.Ambiguous},
		"failed with a pod that the node refused":      {job: job(failed, counts(0, 1)), pods: []*sighting{pod("a", phase(corev1.PodFailed))}, want: effect.Ambiguous},
		"failed with a pod that failed without a node": {job: job(failed, counts(0, 1)), pods: []*sighting{pod("a", unbound, phase(corev1.PodFailed))}, want: effect.Ambiguous},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := New(spec(t, "", ""), "runner")
			if err != nil {
				t.Fatal(err)
			}
			s := state{job: c.job, deleted: c.deleted, gap: c.gap, pods: map[types.UID]*sighting{}}
			for _, p := range c.pods {
				s.pods[p.pod.UID] = p
			}
			got, over := e.judge(s)
			if over != (c.want != "") || over && got.State != c.want {
				t.Errorf("it says %q (%v, %s), want %q", got.State, over, got.Error, c.want)
			}
			if string(got.Output) != c.output {
				t.Errorf("the output is %q, want %q", got.Output, c.output)
			}
		})
	}
}

func TestDeadline(t *testing.T) {
	e, err := New(spec(t, "", ""), "runner")
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		for left, want := range map[time.Duration]time.Duration{
			time.Hour:                time.Minute,
			65500 * time.Millisecond: 58 * time.Second, // less a tenth
			40 * time.Second:         36 * time.Second,
			time.Second:              0,
		} {
			ctx, cancel := context.WithTimeout(t.Context(), left)
			if got := e.deadline(ctx); got != want {
				t.Errorf("with %s left it is %s, want %s", left, got, want)
			}
			cancel()
		}
		if got := e.deadline(t.Context()); got != time.Minute {
			t.Errorf("without end it is %s", got)
		}
	})
}
