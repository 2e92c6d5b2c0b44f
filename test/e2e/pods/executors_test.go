package pods

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	jobexec "ctrlrun.dev/operator/executors/job"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/test/testenv"
)

// runner is the ServiceAccount that the operator executes as.
const runner = "runner"

// desk is a namespace in which the operator executes, and an agent that proposes and can do nothing else.
type desk struct {
	namespace
	agent testenv.User
}

func newDesk(ctx context.Context, rules ...rbacv1.PolicyRule) *desk {
	GinkgoHelper()
	ns := env.Namespace(GinkgoT(), nil)
	d := &desk{namespace: namespace(ns), agent: testenv.ServiceAccountUser(ns, "agent")}
	Expect(env.Admin().Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: runner}})).To(Succeed())
	Expect(env.Grant(ctx, ns, "ctrlrun-agent", d.agent)).To(Succeed())
	Expect(env.Grant(ctx, ns, "ctrlrun-operator-executors", testenv.OperatorUser())).To(Succeed())
	Expect(env.Allow(ctx, ns, testenv.ServiceAccountUser(ns, runner), rules...)).To(Succeed())
	Expect(env.Policy(ctx, ns, `{"actions": {
		"job.run": {"effect": "run:{id}", "decision": "allow"},
		"deployment.scale": {"effect": "change:{id}", "decision": "allow"},
		"deployment.label": {"effect": "change:{id}", "decision": "allow"}}}`)).To(Succeed())
	return d
}

// executes makes an Executor and returns when it is in force.
func (d *desk) executes(ctx context.Context, actionType string, spec v1alpha1.ExecutorSpec) {
	GinkgoHelper()
	spec.ActionTypes, spec.ServiceAccountName = []string{actionType}, runner
	o := &v1alpha1.Executor{ObjectMeta: metav1.ObjectMeta{Namespace: string(d.namespace), Name: strings.ReplaceAll(actionType, ".", "-")}, Spec: spec}
	Expect(env.Admin().Create(ctx, o)).To(Succeed())
	Eventually(ctx, func(g Gomega) {
		g.Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
		g.Expect(meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.ReadyCondition)).To(BeTrue(), "%+v", o.Status.Conditions)
	}).Should(Succeed())
}

// propose proposes something that nobody waits for after an hour.
func (d *desk) propose(ctx context.Context, actionType string, arguments map[string]any, change ...func(*v1alpha1.Action)) *v1alpha1.Action {
	GinkgoHelper()
	raw, err := json.Marshal(arguments)
	Expect(err).NotTo(HaveOccurred())
	until := metav1.NewTime(clock.Now().Add(time.Hour).Truncate(time.Second))
	a := &v1alpha1.Action{
		ObjectMeta: metav1.ObjectMeta{Namespace: string(d.namespace), GenerateName: "action-"},
		Spec: v1alpha1.ActionSpec{
			ActionType: actionType, Arguments: apiextensionsv1.JSON{Raw: raw}, LeaseDurationSeconds: 60, NotAfter: &until,
		},
	}
	for _, c := range change {
		c(a)
	}
	Expect(env.Client(d.agent).Create(ctx, a)).To(Succeed())
	return a
}

// blocked waits until an action is, and expects why.
func (d *desk) blocked(ctx context.Context, a *v1alpha1.Action, reason string) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		g.Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(a), a)).To(Succeed())
		g.Expect(a.Status.State).To(Equal(v1alpha1.ActionBlocked), a.Status.Message)
	}).Should(Succeed())
	Expect(a.Status.Reason).To(Equal(reason), a.Status.Message)
}

// reaches waits until an action has ended, and expects how.
func (d *desk) reaches(ctx context.Context, a *v1alpha1.Action, state v1alpha1.ActionState, reason string) receipt.Document {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		g.Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(a), a)).To(Succeed())
		g.Expect(a.Status.ReceiptRef).NotTo(BeNil(), "%s: %s", a.Status.State, a.Status.Message)
	}).Should(Succeed())
	document := d.receipt(ctx, a)
	Expect(a.Status.State).To(Equal(state), "%s: %s: %s", a.Status.Reason, a.Status.Message, document.Error)
	Expect(a.Status.Reason).To(Equal(reason), a.Status.Message)
	Expect(document.ExecutorMode).To(Equal(receipt.ModeOperator))
	return document
}

// only is the one pod that an action has, or had.
func (d *desk) only(ctx context.Context, a *v1alpha1.Action) *corev1.Pod {
	GinkgoHelper()
	all := d.pods(ctx, jobexec.ActionLabel, string(a.UID))
	Expect(all).To(HaveLen(1))
	return &all[0]
}

// job is the Job of an action.
func (d *desk) job(ctx context.Context, a *v1alpha1.Action) *batchv1.Job {
	GinkgoHelper()
	j := &batchv1.Job{}
	Expect(env.Admin().Get(ctx, client.ObjectKey{Namespace: string(d.namespace), Name: "ctrlrun-" + string(a.UID)}, j)).To(Succeed())
	return j
}

// finished waits until the Job of an action is, so that nothing starts another pod, and returns it.
func (d *desk) finished(ctx context.Context, a *v1alpha1.Action, how batchv1.JobConditionType) *batchv1.Job {
	GinkgoHelper()
	var j *batchv1.Job
	Eventually(ctx, func(g Gomega) {
		j = d.job(ctx, a)
		g.Expect(j.Status.Conditions).To(ContainElement(And(HaveField("Type", how), HaveField("Status", corev1.ConditionTrue))))
	}).Should(Succeed())
	return j
}

func rule(group, resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
}

// jobRules are the rights that docs/executor-job.md names.
var jobRules = []rbacv1.PolicyRule{
	rule("batch", "jobs", "create", "get"), rule("", "pods", "list", "watch"), rule("", "secrets", "create", "patch", "delete"),
}

// runs is an Executor whose pods run a script of shell.
func runs(timeout int32, script string) v1alpha1.ExecutorSpec {
	job := &v1alpha1.JobExecutor{TimeoutSeconds: timeout, NotExecuted: []int32{75}}
	job.Template.Spec = corev1.PodSpec{
		TerminationGracePeriodSeconds: new(int64(1)),
		Containers:                    []corev1.Container{{Name: "main", Image: shell, Command: []string{"sh", "-c", script}}},
	}
	return v1alpha1.ExecutorSpec{Job: job}
}

// exitsAsTold says what it was given, and exits with the argument exit.
const exitsAsTold = `
arguments=$(cat "$CTRLRUN_ARGUMENTS_FILE") || exit 99
token=no; [ ! -e /var/run/secrets/kubernetes.io ] || token=yes
(echo x >"$CTRLRUN_ARGUMENTS_FILE") 2>/dev/null && exit 98
printf '{"arguments":%s,"token":"%s","effect":"%s","type":"%s","attempt":%s,"credentials":"%s"}' "$arguments" \
	"$CTRLRUN_TOKEN" "$CTRLRUN_EFFECT_KEY" "$CTRLRUN_ACTION_TYPE" "$CTRLRUN_ATTEMPT" "$token" >/dev/termination-log
code=${arguments#*\"exit\":}
exit "${code%%[!0-9]*}"`

var _ = Describe("a Job that the operator executes", func() {
	It("really runs, as the ServiceAccount, with the arguments and the token, and its output is on record", func(ctx SpecContext) {
		d := newDesk(ctx, jobRules...)
		d.executes(ctx, "job.run", runs(60, exitsAsTold))
		a := d.propose(ctx, "job.run", map[string]any{"id": "run_1", "exit": 0, "note": `a "b" $c`})
		r := d.reaches(ctx, a, v1alpha1.ActionCommitted, "")

		Expect(r.Output).To(MatchJSON(fmt.Sprintf(`{"arguments": {"id": "run_1", "exit": 0, "note": "a \"b\" $c"}, "token": %q,
			"effect": "run:run_1", "type": "job.run", "attempt": 1, "credentials": "no"}`, a.Status.Execution.Token)))
		Expect(r.Token).To(And(Not(BeEmpty()), Equal(a.Status.Execution.Token)))
		Expect(r.Executor).To(HaveValue(HaveField("Name", "job-run")))
		j := d.finished(ctx, a, batchv1.JobComplete)
		Expect(d.only(ctx, a).Spec.ServiceAccountName).To(Equal(runner))

		By("leaving no Secret, and a Job that says nothing of the arguments")
		err := env.Admin().Get(ctx, client.ObjectKeyFromObject(j), &corev1.Secret{})
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
		said, err := json.Marshal(j)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(said)).To(And(ContainSubstring("CTRLRUN_TOKEN"), Not(ContainSubstring("run_1")), Not(ContainSubstring(a.Status.Execution.Token))))

		By("not running again for the same effect")
		again := d.propose(ctx, "job.run", map[string]any{"id": "run_1", "exit": 0})
		Eventually(ctx, func(g Gomega) {
			g.Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(again), again)).To(Succeed())
			g.Expect(again.Status.State).To(Equal(v1alpha1.ActionBlocked))
		}).Should(Succeed())
		Expect(d.pods(ctx, jobexec.ActionLabel, string(again.UID))).To(BeEmpty())
	}, SpecTimeout(2*time.Minute))

	It("is believed by the exit codes that are listed, and by no other", func(ctx SpecContext) {
		d := newDesk(ctx, jobRules...)
		d.executes(ctx, "job.run", runs(60, exitsAsTold))
		run := func(id string, exit int) *v1alpha1.Action {
			GinkgoHelper()
			return d.propose(ctx, "job.run", map[string]any{"id": id, "exit": exit})
		}
		listed, other, signalled := run("listed", 75), run("other", 3), run("signalled", 137)
		r := d.reaches(ctx, listed, v1alpha1.ActionFailed, "")
		Expect(r.Error).To(ContainSubstring("exited with 75"))
		for _, a := range []*v1alpha1.Action{other, signalled} {
			d.reaches(ctx, a, v1alpha1.ActionAmbiguous, "reported_unknown")
			Expect(d.effect(ctx, a.Status.Effect.Key).Status.Cause).To(Equal(v1alpha1.CauseReportedUnknown))
		}
		for _, a := range []*v1alpha1.Action{listed, other, signalled} {
			d.finished(ctx, a, batchv1.JobFailed)
			d.only(ctx, a)
		}

		By("trying again what was not executed, and that alone")
		again := run("listed", 0)
		Expect(d.reaches(ctx, again, v1alpha1.ActionCommitted, "").Output).To(ContainSubstring(`"attempt":2`))
		blocked := run("other", 0)
		Eventually(ctx, func(g Gomega) {
			g.Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(blocked), blocked)).To(Succeed())
			g.Expect(blocked.Status.Reason).To(Equal("ambiguous"))
		}).Should(Succeed())
		Expect(d.pods(ctx, jobexec.ActionLabel, string(blocked.UID))).To(BeEmpty())
	}, SpecTimeout(2*time.Minute))

	It("is stopped at its deadline, and nobody knows what it did", func(ctx SpecContext) {
		d := newDesk(ctx, jobRules...)
		d.executes(ctx, "job.run", runs(4, `exec sleep 1000`))
		a := d.propose(ctx, "job.run", map[string]any{"id": "run_1"})
		d.reaches(ctx, a, v1alpha1.ActionAmbiguous, "reported_unknown")
		j := d.finished(ctx, a, batchv1.JobFailed)
		Expect(j.Status.Conditions).To(ContainElement(HaveField("Reason", batchv1.JobReasonDeadlineExceeded)))
		Expect(j.Status.Failed).To(BeEquivalentTo(1), "it had one pod")
	}, SpecTimeout(2*time.Minute))

	It("is not made by a ServiceAccount that may not, whatever the operator may", func(ctx SpecContext) {
		for _, c := range []struct {
			has, refused string
		}{{"create", "nothing was run: reading the Job: Forbidden"}, {"get", "refused the Job: Forbidden"}} {
			By("with no right to jobs but " + c.has)
			d := newDesk(ctx, append([]rbacv1.PolicyRule{rule("batch", "jobs", c.has)}, jobRules[1:]...)...)
			d.executes(ctx, "job.run", runs(60, exitsAsTold))
			a := d.propose(ctx, "job.run", map[string]any{"id": "run_1", "exit": 0})
			Expect(d.reaches(ctx, a, v1alpha1.ActionFailed, "").Error).To(ContainSubstring(c.refused))
			Expect(d.pods(ctx, jobexec.ActionLabel, string(a.UID))).To(BeEmpty())
		}
	}, SpecTimeout(2*time.Minute))

	It("is not made again when the operator is killed while it runs", Serial, func(ctx SpecContext) {
		Expect(operator.Stop()).To(Succeed())
		DeferCleanup(func() {
			_ = operator.Stop()
			operator = startOperator()
		})
		killed, err := env.StartOperatorProcess()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(killed.Kill)
		Expect(killed.WaitReady(ctx)).To(Succeed())
		d := newDesk(ctx, jobRules...)
		d.executes(ctx, "job.run", runs(50, `exec sleep 1000`))
		a := d.propose(ctx, "job.run", map[string]any{"id": "run_1", "exit": 0})
		pod := d.running(ctx, jobexec.ActionLabel, string(a.UID))
		Expect(killed.Kill()).To(Succeed())

		operator = startOperator()
		Consistently(ctx, func(g Gomega) {
			g.Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(a), a)).To(Succeed())
			g.Expect(a.Status.State).To(Equal(v1alpha1.ActionAdmitted))
		}).WithTimeout(2 * time.Second).Should(Succeed())
		clock.Advance(GinkgoT(), time.Minute+flow.LapseGrace+5*time.Second)
		d.reaches(ctx, a, v1alpha1.ActionAmbiguous, "executor_lost")
		Expect(d.effect(ctx, a.Status.Effect.Key).Status.Cause).To(Equal(v1alpha1.CauseExecutorLost))
		Expect(d.only(ctx, a).UID).To(Equal(pod.UID))
		Expect(d.job(ctx, a).Status.Failed).To(BeZero())

		again := d.propose(ctx, "job.run", map[string]any{"id": "run_1", "exit": 0})
		Eventually(ctx, func(g Gomega) {
			g.Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(again), again)).To(Succeed())
			g.Expect(again.Status.Reason).To(Equal("ambiguous"))
		}).Should(Succeed())
		Expect(d.pods(ctx, jobexec.ActionLabel, string(again.UID))).To(BeEmpty())
	}, SpecTimeout(3*time.Minute))
})

// answers looks what it was given, and says by the effect key.
const answers = `
question=$(cat "$CTRLRUN_QUESTION_FILE") || exit 99
[ "$question" = "{\"attempt\":$CTRLRUN_ATTEMPT,\"effect_key\":\"$CTRLRUN_EFFECT_KEY\",\"token\":\"$CTRLRUN_TOKEN\"}" ] || exit 98
[ -n "$CTRLRUN_TOKEN" ] && [ "$(ls /var/run/ctrlrun)" = question.json ] && [ "$(env | grep -c ^CTRLRUN_)" = 4 ] || exit 97
[ ! -e /var/run/secrets/kubernetes.io ] || exit 96
case "$CTRLRUN_EFFECT_KEY" in
run:happened) echo '{"answer": "committed"}' ;;
run:did-not) echo '{"answer": "not_executed"}' ;;
run:fails) echo '{"answer": "not_executed"}' >/dev/termination-log; exit 1 ;;
*) echo 'I would say that it is committed' ;;
esac >/dev/termination-log`

var _ = Describe("a Job that looks what became of an effect", func() {
	It("settles it by what it says, and by nothing else", func(ctx SpecContext) {
		d := newDesk(ctx, jobRules...)
		spec := runs(60, exitsAsTold)
		spec.Observe = &v1alpha1.ExecutorObserve{Job: &v1alpha1.JobObserver{TimeoutSeconds: 60, Template: runs(60, answers).Job.Template}}
		d.executes(ctx, "job.run", spec)
		run := func(id string, exit int) *v1alpha1.Action {
			GinkgoHelper()
			return d.propose(ctx, "job.run", map[string]any{"id": id, "exit": exit})
		}
		firsts := map[string]*v1alpha1.Action{}
		for _, id := range []string{"happened", "did-not", "fails", "babbles"} {
			firsts[id] = run(id, 3)
		}
		for _, first := range firsts {
			d.reaches(ctx, first, v1alpha1.ActionAmbiguous, "reported_unknown")
			Expect(d.pods(ctx, jobexec.LookLabel, string(first.UID))).To(BeEmpty(), "it is not eager")
		}
		seconds := map[string]*v1alpha1.Action{}
		for id := range firsts {
			seconds[id] = run(id, 0)
		}

		By("committed: the proposal is a duplicate, and nothing is executed for it")
		d.blocked(ctx, seconds["happened"], "duplicate")
		record := d.effect(ctx, "run:happened")
		Expect(record.Status.State).To(Equal(v1alpha1.EffectCommitted))
		Expect(record.Status.Attempt).To(BeEquivalentTo(1))
		Expect(record.Status.Resolution.Observer).To(Equal("job-run"))
		Expect(d.pods(ctx, jobexec.ActionLabel, string(seconds["happened"].UID))).To(BeEmpty())

		By("not_executed: the proposal that asked makes the next attempt")
		Expect(d.reaches(ctx, seconds["did-not"], v1alpha1.ActionCommitted, "").Output).To(ContainSubstring(`"attempt":2`))
		d.only(ctx, seconds["did-not"])

		By("anything else: nobody knows")
		for id, why := range map[string]string{"fails": "exited with 1", "babbles": "something else than"} {
			d.blocked(ctx, seconds[id], "ambiguous")
			Expect(seconds[id].Status.Observation).To(HaveField("Message", ContainSubstring(why)), id)
			Expect(d.effect(ctx, "run:"+id).Status.State).To(Equal(v1alpha1.EffectAmbiguous))
			Expect(d.pods(ctx, jobexec.ActionLabel, string(seconds[id].UID))).To(BeEmpty())
		}

		By("having run one pod for each look, and left no Secret")
		for id, second := range seconds {
			looked := d.pods(ctx, jobexec.LookLabel, string(second.UID))
			Expect(looked).To(HaveLen(1), id)
			Expect(looked[0].Spec.ServiceAccountName).To(Equal(runner))
			err := env.Admin().Get(ctx, client.ObjectKey{Namespace: string(d.namespace), Name: "ctrlrun-look-" + string(second.UID)}, &corev1.Secret{})
			Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%s: %v", id, err)
		}
	}, SpecTimeout(3*time.Minute))

	It("looks for what agents execute, and eagerly", func(ctx SpecContext) {
		d := newDesk(ctx, jobRules...)
		d.executes(ctx, "job.run", v1alpha1.ExecutorSpec{Observe: &v1alpha1.ExecutorObserve{
			Eager: new(true), Job: &v1alpha1.JobObserver{TimeoutSeconds: 60, Template: runs(60, answers).Job.Template},
		}})
		claim := uuid.NewString()
		a := d.propose(ctx, "job.run", map[string]any{"id": "happened"}, func(a *v1alpha1.Action) { a.Spec.ClaimID, a.Spec.NotAfter = claim, nil })
		Eventually(ctx, func(g Gomega) {
			g.Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(a), a)).To(Succeed())
			g.Expect(a.Status.State).To(Equal(v1alpha1.ActionAdmitted), a.Status.Message)
		}).Should(Succeed())
		Expect(env.Client(d.agent).Create(ctx, &v1alpha1.Outcome{
			ObjectMeta: metav1.ObjectMeta{Namespace: string(d.namespace), Name: flow.LockName(string(a.UID), claim, d.agent.Name)},
			Spec:       v1alpha1.OutcomeSpec{ActionRef: v1alpha1.ObjectReference{Name: a.Name, UID: a.UID}, ClaimID: claim, Result: v1alpha1.OutcomeUnknown},
		})).To(Succeed())
		Eventually(ctx, func() v1alpha1.EffectState { return d.effect(ctx, "run:happened").Status.State }).Should(Equal(v1alpha1.EffectCommitted))
		Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(a), a)).To(Succeed())
		Expect(a.Status.State).To(Equal(v1alpha1.ActionAmbiguous), "what was said then stands")
		Expect(a.Status.Observation).To(HaveField("Moment", "Eager"))
		Expect(d.pods(ctx, jobexec.LookLabel, string(a.UID))).To(HaveLen(1))
	}, SpecTimeout(2*time.Minute))
})

var _ = Describe("a Deployment that the operator writes to", func() {
	var d *desk
	var web *appsv1.Deployment
	BeforeEach(func(ctx SpecContext) {
		d = newDesk(ctx, rule("apps", "deployments/scale", "get", "update"), rule("apps", "deployments", "patch"))
		d.executes(ctx, "deployment.scale", v1alpha1.ExecutorSpec{Kubernetes: &v1alpha1.KubernetesExecutor{
			Operation: v1alpha1.KubernetesScale, APIVersion: "apps/v1", Kind: "Deployment", Name: "{deployment}",
			UID: new("{uid}"), ResourceVersion: new("{version}"), Replicas: new("{replicas}"), TimeoutSeconds: 20,
		}})
		d.executes(ctx, "deployment.label", v1alpha1.ExecutorSpec{Kubernetes: &v1alpha1.KubernetesExecutor{
			Operation: v1alpha1.KubernetesPatch, APIVersion: "apps/v1", Kind: "Deployment", Name: "{deployment}",
			UID: new("{uid}"), ResourceVersion: new("{version}"), TimeoutSeconds: 20,
			Template: &apiextensionsv1.JSON{Raw: []byte(`{"metadata": {"labels": {"shop": "{label}"}}}`)},
		}})
		labels := map[string]string{"app": "web"}
		web = &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: string(d.namespace), Name: "web"},
			Spec: appsv1.DeploymentSpec{
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
					ServiceAccountName: runner, TerminationGracePeriodSeconds: new(int64(1)),
					Containers: []corev1.Container{{Name: "main", Image: shell, Command: []string{"sleep", "1000"}}},
				}},
			},
		}
		Expect(env.Admin().Create(ctx, web)).To(Succeed())
		d.has(ctx, web, 1)
		DeferCleanup(func(ctx context.Context) {
			Expect(env.Admin().Delete(ctx, web, client.PropagationPolicy(metav1.DeletePropagationForeground))).To(Succeed())
		})
	})

	arguments := func(id string, with map[string]any) map[string]any {
		all := map[string]any{"id": id, "deployment": web.Name, "uid": string(web.UID), "version": web.ResourceVersion}
		for name, value := range with {
			all[name] = value
		}
		return all
	}

	It("is scaled as the ServiceAccount, and gets its pods", func(ctx SpecContext) {
		a := d.propose(ctx, "deployment.scale", arguments("scale_1", map[string]any{"replicas": 3}))
		r := d.reaches(ctx, a, v1alpha1.ActionCommitted, "")
		Expect(r.Output).To(And(ContainSubstring(`"kind":"Deployment"`), ContainSubstring(string(web.UID))))
		d.has(ctx, web, 3)
		Expect(web.ManagedFields).To(ContainElement(And(
			HaveField("Manager", "ctrlrun:"+string(d.namespace)+"/deployment.scale"), HaveField("Subresource", "scale"))))
	}, SpecTimeout(2*time.Minute))

	It("is left alone if it is not any more what was proposed, and can be proposed again", func(ctx SpecContext) {
		stale := web.DeepCopy()
		web.Annotations = map[string]string{"example.com/changed": "meanwhile"}
		Expect(env.Admin().Update(ctx, web)).To(Succeed())
		before := d.has(ctx, web, 1)
		web.ResourceVersion = stale.ResourceVersion
		for id, refused := range map[string]struct {
			actionType string
			with       map[string]any
			why        string
		}{
			"scale": {"deployment.scale", map[string]any{"replicas": 3}, "its resourceVersion is not the action's"},
			"other": {"deployment.scale", map[string]any{"replicas": 3, "uid": "11111111-2222-3333-4444-555555555555"}, "its uid is not the action's"},
			"label": {"deployment.label", map[string]any{"label": "open"}, "refused the Patch: Conflict"},
		} {
			a := d.propose(ctx, refused.actionType, arguments(id, refused.with))
			Expect(d.reaches(ctx, a, v1alpha1.ActionFailed, "").Error).To(ContainSubstring(refused.why), id)
		}
		Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(web), web)).To(Succeed())
		Expect(web.ResourceVersion).To(Equal(before), "nothing was written")

		a := d.propose(ctx, "deployment.scale", arguments("scale", map[string]any{"replicas": 2}))
		d.reaches(ctx, a, v1alpha1.ActionCommitted, "")
		Expect(a.Status.Effect.Attempt).To(BeEquivalentTo(2))
		d.has(ctx, web, 2)
	}, SpecTimeout(2*time.Minute))
})

// has waits until a Deployment has so many pods that run, and returns its version then: nothing changes it by itself any more.
func (d *desk) has(ctx context.Context, o *appsv1.Deployment, pods int32) string {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		g.Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
		g.Expect(o.Status).To(And(HaveField("ObservedGeneration", o.Generation), HaveField("AvailableReplicas", pods),
			HaveField("Replicas", pods), HaveField("UpdatedReplicas", pods)), "%+v", o.Status)
		g.Expect(o.Status.Conditions).To(ContainElement(And(HaveField("Type", appsv1.DeploymentProgressing), HaveField("Reason", "NewReplicaSetAvailable"))))
		var running int32
		for _, p := range d.pods(ctx, "app", "web") {
			if p.Status.Phase == corev1.PodRunning {
				running++
			}
		}
		g.Expect(running).To(Equal(pods))
	}).Should(Succeed())
	return o.ResourceVersion
}
