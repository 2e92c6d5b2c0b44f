package pool

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ctrlrun.dev/operator/api/v1alpha1"
)

func anExecutor(concurrent, perMinute int32) *v1alpha1.Executor {
	o := &v1alpha1.Executor{ObjectMeta: metav1.ObjectMeta{UID: "executor"}}
	if concurrent > 0 {
		o.Spec.MaxConcurrent = &concurrent
	}
	if perMinute > 0 {
		o.Spec.MaxPerMinute = &perMinute
	}
	return o
}

func nobody() {}

// What an Executor looks by is checked beside how it executes, and both may be Jobs.
func TestObserversAreChecked(t *testing.T) {
	pod := func(change ...func(*corev1.PodSpec)) (template corev1.PodTemplateSpec) {
		template.Spec.Containers = []corev1.Container{{Name: "main", Image: "lookout"}}
		for _, c := range change {
			c(&template.Spec)
		}
		return template
	}
	restarts := func(p *corev1.PodSpec) { p.RestartPolicy = corev1.RestartPolicyAlways }
	asks := &v1alpha1.HTTPObserver{Method: "GET", URL: "https://lookout.example.com/", TimeoutSeconds: 10}
	runs := &v1alpha1.JobExecutor{Template: pod(), TimeoutSeconds: 60}
	looks := &v1alpha1.JobObserver{Template: pod(), TimeoutSeconds: 60}
	for name, c := range map[string]struct {
		spec v1alpha1.ExecutorSpec
		want string // in the error, or "" if there is none
	}{
		"a Job alone":              {v1alpha1.ExecutorSpec{Observe: &v1alpha1.ExecutorObserve{Job: looks}}, ""},
		"a Job beside a Job":       {v1alpha1.ExecutorSpec{Job: runs, Observe: &v1alpha1.ExecutorObserve{Job: looks}}, ""},
		"a request beside a Job":   {v1alpha1.ExecutorSpec{Job: runs, Observe: &v1alpha1.ExecutorObserve{HTTP: asks}}, ""},
		"neither":                  {v1alpha1.ExecutorSpec{Job: runs, Observe: &v1alpha1.ExecutorObserve{}}, "either http or job"},
		"both":                     {v1alpha1.ExecutorSpec{Observe: &v1alpha1.ExecutorObserve{HTTP: asks, Job: looks}}, "either http or job"},
		"a pod that restarts":      {v1alpha1.ExecutorSpec{Observe: &v1alpha1.ExecutorObserve{Job: &v1alpha1.JobObserver{Template: pod(restarts), TimeoutSeconds: 60}}}, "spec.observe.job: template.spec: restartPolicy"},
		"a look that takes long":   {v1alpha1.ExecutorSpec{Job: runs, Observe: &v1alpha1.ExecutorObserve{Job: &v1alpha1.JobObserver{Template: pod(), TimeoutSeconds: 601}}}, "spec.observe.job: timeoutSeconds"},
		"beside what is not valid": {v1alpha1.ExecutorSpec{Job: &v1alpha1.JobExecutor{Template: pod()}, Observe: &v1alpha1.ExecutorObserve{Job: looks}}, "spec.job: timeoutSeconds"},
	} {
		o := &v1alpha1.Executor{Spec: c.spec}
		o.Spec.ServiceAccountName = "runner"
		if err := (&Pool{}).Check(o); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
	}
}

// So many run at a time, and whoever has waited the longest is told first, once.
func TestSlotsAreGivenBackInOrder(t *testing.T) {
	p, o := &Pool{lanes: map[types.UID]*lane{}}, anExecutor(2, 0)
	var told []types.UID
	ask := func(action types.UID) func() {
		run, release := p.Slot(o, action, func() { told = append(told, action) })
		if (run == nil) != (release == nil) {
			t.Fatalf("%s has half a slot", action)
		}
		return release
	}
	first, second := ask("a"), ask("b")
	if first == nil || second == nil {
		t.Fatal("two may run, and do not")
	}
	for _, action := range []types.UID{"c", "d", "c", "e"} {
		if ask(action) != nil {
			t.Fatalf("%s runs beside two", action)
		}
	}
	first()
	if len(told) != 1 || told[0] != "c" {
		t.Fatalf("told %v, want c", told)
	}
	// d comes by itself before c does: it is not told when it has its slot.
	third := ask("d")
	if third == nil {
		t.Fatal("a slot was given back, and is not there")
	}
	second()
	third()
	if len(told) != 2 || told[1] != "e" {
		t.Errorf("told %v, want c, e", told)
	}
	if len(p.lanes) != 0 {
		t.Errorf("%d lanes are left", len(p.lanes))
	}
}

func TestAnExecutorThatDoesNotSayRunsFour(t *testing.T) {
	p, o := &Pool{lanes: map[types.UID]*lane{}}, anExecutor(0, 0)
	for i := range defaultConcurrent {
		if run, _ := p.Slot(o, types.UID(rune('a'+i)), nobody); run == nil {
			t.Fatalf("%d run, and no more", i)
		}
	}
	if run, _ := p.Slot(o, "z", nobody); run != nil {
		t.Error("one more runs")
	}
}

// In no minute more begin than may, whenever they ask.
func TestSoManyBeginInAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, o := &Pool{lanes: map[types.UID]*lane{}}, anExecutor(16, 3)
		var began []time.Time
		told := make(chan struct{}, 1024)
		for len(began) < 10 {
			run, release := p.Slot(o, "a", func() { told <- struct{}{} })
			if run != nil {
				began = append(began, time.Now())
				release()
				time.Sleep(7 * time.Second)
			} else {
				<-told // it is told when it may, and not before
			}
		}
		for i := 3; i < len(began); i++ {
			if since := began[i].Sub(began[i-3]); since < window {
				t.Errorf("the %dth began %s after the third before it", i, since)
			}
		}
		if whole := began[9].Sub(began[0]); whole > 4*window {
			t.Errorf("ten took %s", whole)
		}
		synctest.Wait()
	})
}

func TestACallIsWhatWasAdmitted(t *testing.T) {
	a := &v1alpha1.Action{ObjectMeta: metav1.ObjectMeta{Namespace: "payments", Name: "refund", UID: "uid"}}
	a.Spec.ActionType = "stripe.refund"
	a.Spec.Arguments.Raw = []byte(`{"payment_id": "txn_1",  "amount": 100}`)
	if _, err := callOf(a); err == nil {
		t.Error("what is not admitted can be called")
	}
	a.Status.Effect = &v1alpha1.ActionEffect{Name: "e", Key: "refund:txn_1", Attempt: 2}
	a.Status.Execution = &v1alpha1.ActionExecution{Token: "token"}
	call, err := callOf(a)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(call.Arguments), `{"amount":100,"payment_id":"txn_1"}`; got != want {
		t.Errorf("arguments %s, want %s", got, want)
	}
	if call.Token != "token" || call.Attempt != 2 || call.EffectKey != "refund:txn_1" || call.ActionUID != "uid" {
		t.Errorf("call %+v", call)
	}
	a.Spec.Arguments.Raw = []byte(`{"amount": 1.5}`)
	if _, err := callOf(a); err == nil {
		t.Error("arguments without a canonical form can be called")
	}
}

// What is wrong with how it executes is said, whichever way that is.
func TestCheck(t *testing.T) {
	good := v1alpha1.ExecutorSpec{ServiceAccountName: "refunds", HTTP: &v1alpha1.HTTPExecutor{Method: "POST", URL: "https://api.example.com/{id}", TimeoutSeconds: 10, Committed: []int32{200}}}
	for name, tc := range map[string]struct {
		change func(*v1alpha1.ExecutorSpec)
		wrong  bool
	}{
		"good":             {func(*v1alpha1.ExecutorSpec) {}, false},
		"no way":           {func(s *v1alpha1.ExecutorSpec) { s.HTTP = nil }, true},
		"a url without":    {func(s *v1alpha1.ExecutorSpec) { s.HTTP.URL = "api.example.com" }, true},
		"a job of nothing": {func(s *v1alpha1.ExecutorSpec) { s.HTTP, s.Job = nil, &v1alpha1.JobExecutor{TimeoutSeconds: 10} }, true},
		"a write to nothing": {func(s *v1alpha1.ExecutorSpec) {
			s.HTTP, s.Kubernetes = nil, &v1alpha1.KubernetesExecutor{Operation: v1alpha1.KubernetesPatch, APIVersion: "v1", Kind: "ConfigMap", Name: "x", TimeoutSeconds: 10}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			o := &v1alpha1.Executor{Spec: *good.DeepCopy()}
			tc.change(&o.Spec)
			if err := (&Pool{}).Check(o); (err != nil) != tc.wrong {
				t.Errorf("it says %v", err)
			}
		})
	}
}
