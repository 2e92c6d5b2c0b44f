package execution

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/controllers"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/test/testenv"
)

// lookout is what an observer asks. It counts who was asked for what.
type lookout struct {
	*httptest.Server
	mu     sync.Mutex
	asked  []map[string]any
	answer http.HandlerFunc
}

func newLookout(answer http.HandlerFunc) *lookout {
	l := &lookout{answer: answer}
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		question := map[string]any{}
		if err != nil || json.Unmarshal(body, &question) != nil {
			question["unreadable"] = string(body)
		}
		l.mu.Lock()
		l.asked = append(l.asked, question)
		l.mu.Unlock()
		l.answer(w, r)
	}))
	DeferCleanup(l.Close)
	return l
}

func (l *lookout) looks() []map[string]any {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]map[string]any(nil), l.asked...)
}

func says(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}
}

var (
	committed   = says(http.StatusOK, `{"answer":"committed"}`)
	notExecuted = says(http.StatusOK, `{"answer": "not_executed"}`)
)

// looking lets an Executor ask a lookout, for at most 2 seconds.
func looking(l *lookout) func(*v1alpha1.ExecutorSpec) {
	return func(x *v1alpha1.ExecutorSpec) {
		x.Observe = &v1alpha1.ExecutorObserve{HTTP: &v1alpha1.HTTPObserver{Method: http.MethodPost, URL: l.URL + "/looks?attempt={attempt}", TimeoutSeconds: 2}}
	}
}

func eagerly(x *v1alpha1.ExecutorSpec) {
	yes := true
	x.Observe.Eager = &yes
}

// byJob lets an Executor look by a Job instead, which is returned.
func byJob(x *v1alpha1.ExecutorSpec) *v1alpha1.JobObserver {
	look := &v1alpha1.JobObserver{TimeoutSeconds: 10}
	look.Template.Spec.Containers = []corev1.Container{{Name: "main", Image: "lookout"}}
	x.Observe.HTTP, x.Observe.Job = nil, look
	return look
}

// alone lets agents execute.
func alone(x *v1alpha1.ExecutorSpec) { x.HTTP = nil }

// unknown makes an Action of a payment whose executor does not know how it ended.
func (s *scene) unknown(payment string) *v1alpha1.Action {
	GinkgoHelper()
	s.provider.answer(payment, hangUp)
	a := s.reaches(s.refund(payment, 100), v1alpha1.ActionAmbiguous, "reported_unknown")
	s.provider.answer(payment, nil)
	return a
}

var _ = Describe("an Executor that observes", Serial, func() {
	DescribeTable("is asked once, when a proposal meets what nobody knows of",
		func(answer http.HandlerFunc, state v1alpha1.ActionState, reason string, effect v1alpha1.EffectState, attempt int64) {
			l := newLookout(answer)
			s := newScene()
			x := s.executes(s.executor("refunds", looking(l)))
			payment := unique("txn")
			first := s.unknown(payment)
			Expect(l.looks()).To(BeEmpty())
			token := s.effect(first).Status.Token
			second := s.reaches(s.refund(payment, 100), state, reason)

			Expect(l.looks()).To(ConsistOf(map[string]any{"effect_key": "refund:" + payment, "attempt": float64(1), "token": token}))
			record := s.effect(first)
			Expect(record.Status.State).To(Equal(effect))
			Expect(record.Status.Attempt).To(Equal(attempt))
			Expect(s.provider.of(payment)).To(HaveLen(int(attempt)))
			seen := second.Status.Observation
			Expect(seen).NotTo(BeNil())
			Expect(seen.Executor).To(Equal(v1alpha1.ExecutorReference{Name: "refunds", Hash: x.Status.Hash}))
			Expect(seen.Moment).To(Equal("Blocking"))
			if reason == "ambiguous" {
				Expect(seen.Answer).To(BeEquivalentTo("Unknown"))
				Expect(second.Status.Message).To(ContainSubstring("was asked and did not know"))
				// Another proposal asks once itself.
				s.reaches(s.refund(payment, 100), v1alpha1.ActionBlocked, "ambiguous")
				Expect(l.looks()).To(HaveLen(2))
				return
			}
			// What the first action's receipt said stands, and who said what stands behind it.
			Expect(s.receipt(first).Result).To(Equal(decision.Ambiguous))
			first = s.get(first)
			Expect(first.Status.State).To(Equal(v1alpha1.ActionAmbiguous))
			list := &v1alpha1.ResolutionList{}
			Expect(env.Admin().List(ctx, list, client.InNamespace(s.ns))).To(Succeed())
			Expect(list.Items).To(HaveLen(1))
			Expect(list.Items[0].Spec.Observer).To(Equal("refunds"))
			Expect(list.Items[0].Spec.Resolver).To(Equal(testenv.OperatorUser().Name))
			Expect(list.Items[0].Spec.Evidence).To(And(ContainSubstring(x.Status.Hash), ContainSubstring(token)))
			Expect(list.Items[0].Spec.ReceiptRef.Hash).To(Equal(first.Status.ReceiptRef.Hash))
			if attempt == 1 {
				Expect(record.Status.Resolution.Observer).To(Equal("refunds"))
			}
			var events []string
			for _, e := range second.Status.Timeline {
				events = append(events, e.Type)
			}
			Expect(events).To(ContainElements("RECONCILIATION_STARTED", "RECONCILIATION_RESOLVED"))
		},
		Entry("and says that it happened", committed, v1alpha1.ActionBlocked, "duplicate", v1alpha1.EffectCommitted, int64(1)),
		Entry("and says that it did not", notExecuted, v1alpha1.ActionCommitted, "", v1alpha1.EffectCommitted, int64(2)),
		Entry("and does not know", says(200, `{"answer":"unknown"}`), v1alpha1.ActionBlocked, "ambiguous", v1alpha1.EffectAmbiguous, int64(1)),
		Entry("and says another word", says(200, `{"answer":"failed"}`), v1alpha1.ActionBlocked, "ambiguous", v1alpha1.EffectAmbiguous, int64(1)),
		Entry("and says more", says(200, `{"answer":"committed","but":"not sure"}`), v1alpha1.ActionBlocked, "ambiguous", v1alpha1.EffectAmbiguous, int64(1)),
		Entry("and says both", says(200, `{"answer":"committed","answer":"not_executed"}`), v1alpha1.ActionBlocked, "ambiguous", v1alpha1.EffectAmbiguous, int64(1)),
		Entry("and says it bare", says(200, `"committed"`), v1alpha1.ActionBlocked, "ambiguous", v1alpha1.EffectAmbiguous, int64(1)),
		Entry("and says nothing", says(200, ``), v1alpha1.ActionBlocked, "ambiguous", v1alpha1.EffectAmbiguous, int64(1)),
		Entry("and says it at length", says(200, strings.Repeat(" ", 64<<10)+`{"answer":"committed"}`), v1alpha1.ActionBlocked, "ambiguous", v1alpha1.EffectAmbiguous, int64(1)),
		Entry("and says it with another status", says(201, `{"answer":"committed"}`), v1alpha1.ActionBlocked, "ambiguous", v1alpha1.EffectAmbiguous, int64(1)),
		Entry("and fails", says(500, `{"answer":"committed"}`), v1alpha1.ActionBlocked, "ambiguous", v1alpha1.EffectAmbiguous, int64(1)),
		Entry("and sends elsewhere", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/yes", http.StatusFound) }), v1alpha1.ActionBlocked, "ambiguous", v1alpha1.EffectAmbiguous, int64(1)),
		Entry("and hangs up", http.HandlerFunc(hangUp), v1alpha1.ActionBlocked, "ambiguous", v1alpha1.EffectAmbiguous, int64(1)),
		Entry("and hangs", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }), v1alpha1.ActionBlocked, "ambiguous", v1alpha1.EffectAmbiguous, int64(1)),
	)

	It("is asked right after an attempt ended unknown, if it is eager, and the receipt still says ambiguous", func() {
		l := newLookout(notExecuted)
		s := newScene()
		s.executes(s.executor("refunds", looking(l), eagerly))
		payment := unique("txn")
		first := s.unknown(payment)
		Expect(l.looks()).To(HaveLen(1))
		Expect(first.Status.Observation.Moment).To(Equal("Eager"))
		Expect(s.receipt(first).Result).To(Equal(decision.Ambiguous))
		Eventually(func() v1alpha1.EffectState { return s.effect(first).Status.State }).Should(Equal(v1alpha1.EffectFailed))
		s.reaches(s.refund(payment, 100), v1alpha1.ActionCommitted, "")
		Expect(s.effect(first).Status.Attempt).To(Equal(int64(2)))
		Expect(l.looks()).To(HaveLen(1))
	})

	It("is asked by one action once, whatever that meets", func() {
		l := newLookout(notExecuted)
		s := newScene()
		s.executes(s.executor("refunds", looking(l), eagerly))
		payment := unique("txn")
		l.answer = says(200, `{"answer":"unknown"}`)
		s.unknown(payment) // asks eagerly
		l.answer = notExecuted
		s.provider.answer(payment, hangUp)
		// The second asks when it is blocked, executes, and ends unknown itself: it does not ask again.
		second := s.reaches(s.refund(payment, 100), v1alpha1.ActionAmbiguous, "reported_unknown")
		Expect(second.Status.Observation.Moment).To(Equal("Blocking"))
		Expect(l.looks()).To(HaveLen(2))
		Expect(s.effect(second).Status.State).To(Equal(v1alpha1.EffectAmbiguous))
	})

	It("is not asked where more than one person has to say it", func() {
		l := newLookout(committed)
		s := newScene()
		p := &v1alpha1.ActionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "payouts"}}
		Expect(json.Unmarshal([]byte(`{"actions":{"stripe.payout": {"effect": "payout:{payment_id}", "decision": "allow", "resolutionsRequired": 2}}}`), &p.Spec)).To(Succeed())
		Expect(env.Client(s.admin).Create(ctx, p)).To(Succeed())
		payouts := func(x *v1alpha1.ExecutorSpec) { x.ActionTypes = []string{"stripe.payout"} }
		s.executes(s.executor("payouts", looking(l), eagerly, payouts))
		payment := unique("txn")
		payout := func(a *v1alpha1.Action) { a.Spec.ActionType = "stripe.payout" }
		s.provider.answer(payment, hangUp)
		s.reaches(s.refund(payment, 100, payout), v1alpha1.ActionAmbiguous, "reported_unknown")
		s.reaches(s.refund(payment, 100, payout), v1alpha1.ActionBlocked, "ambiguous")
		Expect(l.looks()).To(BeEmpty())
	})

	It("alone lets agents execute, and looks at what they do not know; never eagerly at one that was lost", func() {
		l := newLookout(committed)
		s := newScene()
		s.executes(s.executor("refunds", looking(l), eagerly, alone))
		admit := func(payment string) *v1alpha1.Action {
			return s.reaches(s.refund(payment, 100, func(a *v1alpha1.Action) { a.Spec.ClaimID, a.Spec.NotAfter = uuid.NewString(), nil }), v1alpha1.ActionAdmitted, "")
		}
		payment := unique("txn")
		a := admit(payment)
		Expect(a.Status.Executor).To(BeNil())
		Expect(a.Status.Execution.Mode).To(BeEquivalentTo("Agent"))
		Expect(env.Client(s.agent).Create(ctx, &v1alpha1.Outcome{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: flow.LockName(string(a.UID), a.Spec.ClaimID, s.agent.Name)},
			Spec:       v1alpha1.OutcomeSpec{ActionRef: v1alpha1.ObjectReference{Name: a.Name, UID: a.UID}, ClaimID: a.Spec.ClaimID, Result: v1alpha1.OutcomeUnknown},
		})).To(Succeed())
		a = s.reaches(a, v1alpha1.ActionAmbiguous, "reported_unknown")
		Expect(l.looks()).To(ConsistOf(map[string]any{"effect_key": "refund:" + payment, "attempt": float64(1), "token": a.Status.Execution.Token}))
		Eventually(func() v1alpha1.EffectState { return s.effect(a).Status.State }).Should(Equal(v1alpha1.EffectCommitted))
		s.reaches(s.refund(payment, 100, func(a *v1alpha1.Action) { a.Spec.ClaimID = uuid.NewString() }), v1alpha1.ActionBlocked, "duplicate")

		lost := admit(unique("txn"))
		clock.Advance(GinkgoT(), lapse)
		s.reaches(lost, v1alpha1.ActionAmbiguous, "lease_lapsed")
		Expect(l.looks()).To(HaveLen(1))
		Expect(s.effect(lost).Status.State).To(Equal(v1alpha1.EffectAmbiguous))
	})

	It("does not overrule a person who was first", func() {
		resolved := make(chan struct{})
		l := newLookout(func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-resolved:
				committed(w, r)
			case <-r.Context().Done():
			}
		})
		s := newScene()
		s.executes(s.executor("refunds", looking(l), func(x *v1alpha1.ExecutorSpec) { x.Observe.HTTP.TimeoutSeconds = 30 }))
		payment := unique("txn")
		first := s.unknown(payment)
		second := s.refund(payment, 100)
		Eventually(l.looks).Should(HaveLen(1))
		record := s.effect(first)
		o := &v1alpha1.Resolution{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: record.Name + ".1." + s.oncall.Name},
			Spec: v1alpha1.ResolutionSpec{
				EffectRef: v1alpha1.ObjectReference{Name: record.Name, UID: record.UID}, Attempt: 1, ActionType: "stripe.refund", Result: v1alpha1.ResolutionNotExecuted,
				ReceiptRef: *first.Status.ReceiptRef, Reason: "called them", Evidence: "https://provider.example.com/1",
			},
		}
		Expect(env.Client(s.oncall).Create(ctx, o)).To(Succeed())
		Eventually(func() v1alpha1.EffectState { return s.effect(first).Status.State }).ShouldNot(Equal(v1alpha1.EffectAmbiguous))
		close(resolved)
		s.reaches(second, v1alpha1.ActionCommitted, "")
		Expect(s.effect(first).Status.Attempt).To(Equal(int64(2)))
		Expect(s.provider.of(payment)).To(HaveLen(2))
	})

	It("is asked once by two operators", func() {
		second := startOperator(controllers.Options{})
		DeferCleanup(second.Stop)
		l := newLookout(says(200, `{"answer":"unknown"}`))
		s := newScene()
		s.executes(s.executor("refunds", looking(l)))
		payment := unique("txn")
		s.unknown(payment)
		var all []*v1alpha1.Action
		for range 6 {
			all = append(all, s.refund(payment, 100))
		}
		for _, a := range all {
			s.reaches(a, v1alpha1.ActionBlocked, "ambiguous")
		}
		Expect(l.looks()).To(HaveLen(len(all)))
	})

	It("leaves an observation that is written once", func() {
		s := newScene()
		l := newLookout(committed)
		s.executes(s.executor("refunds", looking(l)))
		payment := unique("txn")
		first := s.unknown(payment)
		blocked := s.reaches(s.refund(payment, 100), v1alpha1.ActionBlocked, "duplicate")
		other := metav1.NowMicro()
		for _, change := range []func(*v1alpha1.ActionObservation){
			func(o *v1alpha1.ActionObservation) { o.ID = "another" },
			func(o *v1alpha1.ActionObservation) { o.Answer = "NotExecuted" },
			func(o *v1alpha1.ActionObservation) { o.Answer, o.FinishTime = "", nil },
			func(o *v1alpha1.ActionObservation) { o.Moment = "Eager" },
			func(o *v1alpha1.ActionObservation) { o.Attempt = 2 },
			func(o *v1alpha1.ActionObservation) { o.StartTime = other },
		} {
			a := s.get(blocked)
			change(a.Status.Observation)
			refused(env.Client(testenv.OperatorUser()).Status().Update(ctx, a), "an observation")
		}
		a := s.get(blocked)
		a.Status.Observation = nil
		refused(env.Client(testenv.OperatorUser()).Status().Update(ctx, a), "an observation is written once")
		a = s.get(first)
		a.Status.Observation = blocked.Status.Observation.DeepCopy()
		refused(env.Client(testenv.OperatorUser()).Status().Update(ctx, a), "begins before it is answered")
	})
})

var _ = Describe("an operator that asks what became of an effect, and dies", Serial, func() {
	BeforeEach(withoutOperator)

	DescribeTable("is asked for no second time",
		func(point string, looks int, state v1alpha1.ActionState, reason string) {
			l := newLookout(notExecuted)
			died := startDoomed(point)
			s := newScene()
			s.executes(s.executor("refunds", looking(l)))
			payment := unique("txn")
			first := s.unknown(payment)
			second := s.refund(payment, 100)
			Eventually(died).Should(BeClosed())

			operator = startOperator(controllers.Options{})
			if reason == "ambiguous" {
				Eventually(func() any { return s.get(second).Status.Observation }).ShouldNot(BeNil())
				clock.Advance(GinkgoT(), 20*time.Second)
			}
			second = s.reaches(second, state, reason)
			Expect(l.looks()).To(HaveLen(looks))
			if reason == "ambiguous" {
				Expect(second.Status.Observation.Message).To(ContainSubstring("lost"))
				Expect(s.provider.of(payment)).To(HaveLen(1))
				return
			}
			Expect(s.provider.of(payment)).To(HaveLen(2))
			Expect(s.effect(first).Status.Attempt).To(Equal(int64(2)))
		},
		// Nobody had begun, so the next operator does.
		Entry(nil, "before observe", 1, v1alpha1.ActionCommitted, ""),
		// Somebody had begun, and nobody can know whether they asked.
		Entry(nil, "after observe", 0, v1alpha1.ActionBlocked, "ambiguous"),
		Entry(nil, "before look", 0, v1alpha1.ActionBlocked, "ambiguous"),
		Entry(nil, "after look", 1, v1alpha1.ActionBlocked, "ambiguous"),
		Entry(nil, "before observed", 1, v1alpha1.ActionBlocked, "ambiguous"),
		// What was answered is on record.
		Entry(nil, "after observed", 1, v1alpha1.ActionCommitted, ""),
		Entry(nil, "before statement", 1, v1alpha1.ActionCommitted, ""),
		Entry(nil, "after statement", 1, v1alpha1.ActionCommitted, ""),
		Entry(nil, "before resolve", 1, v1alpha1.ActionCommitted, ""),
		Entry(nil, "after resolve", 1, v1alpha1.ActionCommitted, ""),
		Entry(nil, "after renew", 1, v1alpha1.ActionCommitted, ""),
	)
})

var _ = Describe("an Executor's observe", func() {
	DescribeTable("is refused", func(text string, change func(*v1alpha1.ExecutorSpec)) {
		s := newScene()
		l := newLookout(committed)
		refused(env.Client(s.admin).Create(ctx, s.executor("refunds", looking(l), change)), text)
	},
		Entry("with a method that changes things", "spec.observe.http.method", func(x *v1alpha1.ExecutorSpec) { x.Observe.HTTP.Method = "DELETE" }),
		Entry("that may take long", "spec.observe.http.timeoutSeconds", func(x *v1alpha1.ExecutorSpec) { x.Observe.HTTP.TimeoutSeconds = 61 }),
		Entry("that has no bound", "spec.observe.http.timeoutSeconds", func(x *v1alpha1.ExecutorSpec) { x.Observe.HTTP.TimeoutSeconds = 0 }),
		Entry("with a Job that may take longer", "spec.observe.job.timeoutSeconds", func(x *v1alpha1.ExecutorSpec) { byJob(x).TimeoutSeconds = 601 }),
		Entry("with a Job that has no time to run", "spec.observe.job.timeoutSeconds", func(x *v1alpha1.ExecutorSpec) { byJob(x).TimeoutSeconds = 9 }),
		Entry("by a request and by a Job", "give either http or job", func(x *v1alpha1.ExecutorSpec) {
			http := x.Observe.HTTP
			byJob(x)
			x.Observe.HTTP = http
		}),
		Entry("by neither", "give either http or job", func(x *v1alpha1.ExecutorSpec) { x.Observe.HTTP = nil }),
		Entry("that is left out with everything else", "observe alone", func(x *v1alpha1.ExecutorSpec) { x.HTTP, x.Observe = nil, nil }),
	)
	DescribeTable("is refused as it is written", func(spec, text string) {
		s := newScene()
		u := &unstructured.Unstructured{}
		Expect(u.UnmarshalJSON(fmt.Appendf(nil, `{"apiVersion": "ctrlrun.dev/v1alpha1", "kind": "Executor", "metadata": {"namespace": %q, "name": "refunds"},
			"spec": {"actionTypes": ["stripe.refund"], "serviceAccountName": "refunds", "observe": %s}}`, s.ns, spec))).To(Succeed())
		refused(env.Client(s.admin).Create(ctx, u), text)
	},
		Entry("with an unknown key", `{"eagre": true, "http": {"method": "GET", "url": "http://x/", "timeoutSeconds": 1}}`, "spec.observe.eagre"),
		Entry("with a blank one", `{"eager": null, "http": {"method": "GET", "url": "http://x/", "timeoutSeconds": 1}}`, "spec.observe.eager"),
		Entry("with an unknown key of its request", `{"http": {"method": "GET", "url": "http://x/", "timeoutSeconds": 1, "committed": [200]}}`, "spec.observe.http.committed"),
		Entry("with a blank one of its request", `{"http": {"method": "GET", "url": "http://x/", "timeoutSeconds": 1, "headers": null}}`, "spec.observe.http.headers"),
		Entry("with an unknown key of its Job", `{"job": {"timeoutSeconds": 10, "template": {}, "notExecuted": [75]}}`, "spec.observe.job.notExecuted"),
		Entry("with a blank one of its Job", `{"job": {"timeoutSeconds": 10, "template": {}, "backoffLimit": null}}`, "spec.observe.job.backoffLimit"),
		Entry("with a Job and a blank request", `{"job": {"timeoutSeconds": 10, "template": {}}, "http": null}`, "spec.observe.http"),
		Entry("with an unknown key of a header", `{"http": {"method": "GET", "url": "http://x/", "timeoutSeconds": 1, "headers": [{"name": "A", "value": "b", "c": 1}]}}`, "headers A"),
		Entry("with an unknown key of its certificates", `{"http": {"method": "GET", "url": "https://x/", "timeoutSeconds": 1, "caFrom": {"secretKeyRef": {"name": "a", "key": "b"}, "c": 1}}}`, "spec.observe.http.caFrom.c"),
	)
	It("takes the right to be its ServiceAccount, as everything that acts by one does", func() {
		s := newScene()
		refused(env.Client(testenv.User{Name: "nobody"}).Create(ctx, s.executor("refunds", looking(newLookout(committed)), alone)), "")
	})
	It("that asks for what an observer is not told denies what it names", func() {
		s := newScene()
		o := s.executor("refunds", looking(newLookout(committed)), alone, func(x *v1alpha1.ExecutorSpec) { x.Observe.HTTP.URL += "&amount={amount}" })
		Expect(env.Client(s.admin).Create(ctx, o)).To(Succeed())
		a := s.reaches(s.refund(unique("txn"), 100), v1alpha1.ActionDenied, "executor_invalid")
		Expect(a.Status.Message).To(ContainSubstring("{amount}"))
	})
	DescribeTable("by a Job that could be run twice, or would hide what it is asked, denies what it names", func(why string, change func(*corev1.PodSpec)) {
		s := newScene()
		o := s.executor("refunds", looking(newLookout(committed)), alone, func(x *v1alpha1.ExecutorSpec) { change(&byJob(x).Template.Spec) })
		Expect(env.Client(s.admin).Create(ctx, o)).To(Succeed())
		a := s.reaches(s.refund(unique("txn"), 100), v1alpha1.ActionDenied, "executor_invalid")
		Expect(a.Status.Message).To(ContainSubstring("spec.observe.job: template.spec: " + why))
	},
		Entry(nil, "restartPolicy", func(p *corev1.PodSpec) { p.RestartPolicy = corev1.RestartPolicyOnFailure }),
		Entry(nil, "serviceAccountName", func(p *corev1.PodSpec) { p.ServiceAccountName = "another" }),
		Entry(nil, "it has 2 containers", func(p *corev1.PodSpec) { p.Containers = append(p.Containers, corev1.Container{Name: "b", Image: "i"}) }),
		Entry(nil, "containers[0].volumeMounts", func(p *corev1.PodSpec) {
			p.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "x", MountPath: "/var/run/ctrlrun"}}
		}),
	)
	It("conflicts with another Executor of the type", func() {
		s := newScene()
		s.executes(s.executor("refunds"))
		Expect(env.Client(s.admin).Create(ctx, s.executor("watch", looking(newLookout(committed)), alone))).To(Succeed())
		s.reaches(s.refund(unique("txn"), 100), v1alpha1.ActionDenied, "executor_conflict")
	})
})
