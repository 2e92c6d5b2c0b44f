package execution

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/controllers"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/test/testenv"
)

// asksBack answers 202 with a continuation of its own for each of the first rounds, and after them as last says.
func (p *provider) asksBack(payment string, rounds int, last http.HandlerFunc) {
	var asked atomic.Int64
	p.answer(payment, func(w http.ResponseWriter, r *http.Request) {
		if n := asked.Add(1); n <= int64(rounds) {
			w.Header().Set("Ctrlrun-Continuation", fmt.Sprintf("state-%d", n))
			w.WriteHeader(http.StatusAccepted)
			fmt.Fprintf(w, `{"ask": "which account?", "n": %d}`, n)
			return
		}
		last(w, r)
	})
}

func created(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }

// askedBack waits until an Action waits for somebody to go on in that round.
func (s *scene) askedBack(a *v1alpha1.Action, round int64) *v1alpha1.Action {
	GinkgoHelper()
	var o *v1alpha1.Action
	Eventually(func(g Gomega) {
		o = s.get(a)
		g.Expect(o.Status.Suspension).NotTo(BeNil(), "%s: %s", o.Status.State, o.Status.Message)
		g.Expect(o.Status.Suspension.Round).To(Equal(round))
	}).Should(Succeed())
	return o
}

// goesOn makes a Claim of the agent to go on with what an Action waits for.
func (s *scene) goesOn(a *v1alpha1.Action, with ...func(*v1alpha1.ClaimSpec)) *v1alpha1.Claim {
	GinkgoHelper()
	return s.goesOnAs(s.agent, a, with...)
}

func (s *scene) goesOnAs(who testenv.User, a *v1alpha1.Action, with ...func(*v1alpha1.ClaimSpec)) *v1alpha1.Claim {
	GinkgoHelper()
	x := a.Status.Suspension
	o := &v1alpha1.Claim{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns},
		Spec: v1alpha1.ClaimSpec{
			ActionRef: v1alpha1.ObjectReference{Name: a.Name, UID: a.UID}, ClaimID: uuid.NewString(), ClaimableTime: x.Time,
			Continuation: &v1alpha1.ClaimContinuation{Round: x.Round, Continuation: x.Continuation, ActionHash: a.Status.ActionHash},
		},
	}
	for _, f := range with {
		f(&o.Spec)
	}
	name := a.Name + "." + action.Speaker(who.Name)
	for try := 1; ; try++ {
		if o.Name = name; try > 1 {
			o.Name = fmt.Sprintf("%s.%d", name, try)
		}
		if env.Admin().Get(ctx, client.ObjectKeyFromObject(o), &v1alpha1.Claim{}) != nil {
			break
		}
	}
	Expect(env.Client(who).Create(ctx, o)).To(Succeed())
	return o
}

// judged waits for the verdict on a Claim.
func judged(c *v1alpha1.Claim, reason string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(c), c)).To(Succeed())
		condition := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.AcceptedCondition)
		g.Expect(condition).NotTo(BeNil())
		g.Expect(condition.Reason).To(Equal(reason), condition.Message)
	}).Should(Succeed())
}

// said are the words of an Action's timeline.
func said(a *v1alpha1.Action) string {
	var words []string
	for _, e := range a.Status.Timeline {
		words = append(words, e.Type)
	}
	return strings.Join(words, " ")
}

var _ = Describe("an Executor that is asked back", func() {
	It("waits, and goes on with the answer of whoever proposed, once", func() {
		s := newScene()
		s.executes(s.executor("refunds"))
		payment := unique("txn")
		s.provider.asksBack(payment, 1, created)
		began := clock.Now()
		a := s.askedBack(s.refund(payment, 100), 1)
		x := a.Status.Suspension
		Expect(x.Continuation).To(Equal("state-1"))
		Expect(x.Question).To(Equal(`{"ask":"which account?","n":1}`))
		Expect(x.ExpirationTime.Sub(began)).To(BeNumerically("~", effect.RoundTime, 30*time.Second))
		Expect(a.Status.State).To(Equal(v1alpha1.ActionAdmitted))
		Expect(s.effect(a).Status.State).To(Equal(v1alpha1.EffectExecuting))
		Expect(s.effect(a).Status.LeaseExpirationTime.Equal(&x.ExpirationTime)).To(BeTrue())
		s.reaches(s.refund(payment, 100), v1alpha1.ActionBlocked, "in_progress")

		other := testenv.ServiceAccountUser(s.ns, "another-agent")
		Expect(env.Grant(ctx, s.ns, "ctrlrun-agent", other)).To(Succeed())
		judged(s.goesOnAs(other, a), "NotTheAgent")
		judged(s.goesOn(a, func(c *v1alpha1.ClaimSpec) { c.Continuation.Continuation = "state-2" }), "UnknownContinuation")
		judged(s.goesOn(a, func(c *v1alpha1.ClaimSpec) { c.Continuation.ActionHash = "sha256:" + strings.Repeat("0", 64) }), "UnknownContinuation")
		judged(s.goesOn(a, func(c *v1alpha1.ClaimSpec) { c.Continuation.Input = &apiextensionsv1.JSON{Raw: []byte(`0.5`)} }), "InputNotAccepted")
		Expect(s.provider.of(payment)).To(HaveLen(1))
		Expect(s.effect(a).Status.State).To(Equal(v1alpha1.EffectExecuting))

		c := s.goesOn(a, func(c *v1alpha1.ClaimSpec) {
			c.Continuation.Input = &apiextensionsv1.JSON{Raw: []byte(`{"b": 2, "account": "main"}`)}
		})
		a = s.reaches(a, v1alpha1.ActionCommitted, "")
		judged(c, "Accepted")
		sent := s.provider.of(payment)
		Expect(sent).To(HaveLen(2))
		Expect(sent[1].Header.Get("Ctrlrun-Continuation")).To(Equal("state-1"))
		Expect(sent[1].Header.Get("Idempotency-Key")).To(Equal(sent[0].Header.Get("Idempotency-Key")))
		Expect(sent[1].Path).To(Equal(sent[0].Path))
		Expect(sent[1].Body).To(Equal(`{"arguments":` + sent[0].Body + `,"input":{"account":"main","b":2}}`))

		Expect(s.receipt(a).Rounds).To(Equal(int64(1)))
		Expect(s.receipt(a).Attempt).To(Equal(int64(1)))
		Expect(s.receipt(a).RefusedCount).To(Equal(int64(4)))
		Expect(a.Status.Suspension.Continued).To(HaveLen(1))
		Expect(a.Status.Suspension.Continued[0].ClaimRef.UID).To(Equal(c.UID))
		Expect(a.Status.Suspension.Continued[0].InputHash).To(HavePrefix("sha256:"))
		Expect(said(a)).To(ContainSubstring("EXECUTION_SUSPENDED EXECUTION_RESUMED EXECUTION_COMMITTED"))
	})

	It("is not asked twice for one round, however many come with the answer", func() {
		second := startOperator(controllers.Options{})
		DeferCleanup(second.Stop)
		s := newScene()
		s.executes(s.executor("refunds"))
		payment := unique("txn")
		s.provider.asksBack(payment, 2, created)
		a := s.askedBack(s.refund(payment, 100), 1)
		for range 3 {
			s.goesOn(a)
		}
		a = s.askedBack(a, 2)
		Expect(s.provider.of(payment)).To(HaveLen(2))
		s.goesOn(a)
		a = s.reaches(a, v1alpha1.ActionCommitted, "")
		Expect(s.provider.of(payment)).To(HaveLen(3))
		Expect(s.receipt(a).Rounds).To(Equal(int64(2)))
	})

	DescribeTable("takes of the last leg only what the provider itself states",
		func(last http.HandlerFunc, state v1alpha1.ActionState, reason string) {
			s := newScene()
			s.executes(s.executor("refunds"))
			payment := unique("txn")
			s.provider.asksBack(payment, 1, last)
			a := s.askedBack(s.refund(payment, 100), 1)
			s.goesOn(a)
			s.reaches(a, state, reason)
		},
		Entry("not executed, as listed", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(422) }), v1alpha1.ActionFailed, ""),
		Entry("no answer", http.HandlerFunc(hangUp), v1alpha1.ActionAmbiguous, "reported_unknown"),
	)

	It("does not take it for a proof that it could not even connect", func() {
		s := newScene()
		s.executes(s.executor("refunds"))
		payment := unique("txn")
		s.provider.asksBack(payment, 1, created)
		a := s.askedBack(s.refund(payment, 100), 1)
		s.provider.Close()
		s.goesOn(a)
		a = s.reaches(a, v1alpha1.ActionAmbiguous, "reported_unknown")
		Expect(s.effect(a).Status.State).To(Equal(v1alpha1.EffectAmbiguous))
	})

	It("is asked back so often and not more", func() {
		s := newScene()
		s.executes(s.executor("refunds"))
		payment := unique("txn")
		s.provider.asksBack(payment, 20, created)
		a := s.refund(payment, 100)
		for round := int64(1); round <= effect.MaxRounds; round++ {
			a = s.askedBack(a, round)
			s.goesOn(a)
		}
		a = s.reaches(a, v1alpha1.ActionAmbiguous, "reported_unknown")
		Expect(s.provider.of(payment)).To(HaveLen(effect.MaxRounds + 1))
		Expect(s.effect(a).Status.Error).To(ContainSubstring("8 times already"))
	})

	It("is Ambiguous when the continuation is none", func() {
		s := newScene()
		s.executes(s.executor("refunds"))
		payment := unique("txn")
		s.provider.answer(payment, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Ctrlrun-Continuation", strings.Repeat("x", 1025))
			w.WriteHeader(http.StatusAccepted)
		})
		a := s.reaches(s.refund(payment, 100), v1alpha1.ActionAmbiguous, "reported_unknown")
		Expect(a.Status.Suspension).To(BeNil())
	})
})

var _ = Describe("an agent that is asked back", func() {
	report := func(s *scene, a *v1alpha1.Action, claimID string, result v1alpha1.OutcomeResult, continuation string) {
		GinkgoHelper()
		o := &v1alpha1.Outcome{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: flow.LockName(string(a.UID), claimID, s.agent.Name)},
			Spec: v1alpha1.OutcomeSpec{
				ActionRef: v1alpha1.ObjectReference{Name: a.Name, UID: a.UID}, ClaimID: claimID, Result: result, Continuation: continuation,
				Output: &apiextensionsv1.JSON{Raw: []byte(`{"ask":"really?"}`)},
			},
		}
		Expect(env.Client(s.agent).Create(ctx, o)).To(Succeed())
	}
	claimed := func(id *string) func(*v1alpha1.Action) {
		return func(a *v1alpha1.Action) { *id = uuid.NewString(); a.Spec.ClaimID = *id }
	}

	It("holds its effect, and another process of it goes on and reports", func() {
		s := newScene()
		var id string
		payment := unique("txn")
		a := s.reaches(s.refund(payment, 100, claimed(&id)), v1alpha1.ActionAdmitted, "")
		report(s, a, id, v1alpha1.OutcomeAskedBack, "abc")
		a = s.askedBack(a, 1)
		Expect(a.Status.Suspension.Question).To(Equal(`{"ask":"really?"}`))
		var rival string
		s.reaches(s.refund(payment, 100, claimed(&rival)), v1alpha1.ActionBlocked, "in_progress")

		c := s.goesOn(a)
		judged(c, "Accepted")
		a = s.get(a)
		Expect(a.Status.Suspension.Continued[0].ClaimID).To(Equal(c.Spec.ClaimID))
		report(s, a, c.Spec.ClaimID, v1alpha1.OutcomeAskedBack, "def")
		a = s.askedBack(a, 2)
		c = s.goesOn(a)
		judged(c, "Accepted")
		report(s, a, c.Spec.ClaimID, v1alpha1.OutcomeCommitted, "")
		a = s.reaches(a, v1alpha1.ActionCommitted, "")
		d := s.receipt(a)
		Expect(d.Rounds).To(Equal(int64(2)))
		Expect(d.RefusedCount).To(BeZero())
		Expect(d.Output).To(Equal(`{"ask":"really?"}`))
		Expect(said(a)).To(ContainSubstring("EXECUTION_SUSPENDED EXECUTION_RESUMED EXECUTION_SUSPENDED EXECUTION_RESUMED EXECUTION_COMMITTED"))
	})

	It("is Ambiguous where nothing is reserved for it", func() {
		s := newScene()
		id := uuid.NewString()
		a := &v1alpha1.Action{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, GenerateName: "note-"},
			Spec:       v1alpha1.ActionSpec{ActionType: "note.write", LeaseDurationSeconds: 60, ClaimID: id},
		}
		Expect(env.Client(s.agent).Create(ctx, a)).To(Succeed())
		a = s.reaches(a, v1alpha1.ActionAdmitted, "")
		report(s, a, id, v1alpha1.OutcomeAskedBack, "abc")
		s.reaches(a, v1alpha1.ActionAmbiguous, "reported_unknown")
	})

	It("does so while nothing is enforced, and ends Observed", func() {
		s := newScene()
		mode := v1alpha1.ModeObserve
		settings := &v1alpha1.Settings{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: v1alpha1.SettingsName}, Spec: v1alpha1.SettingsSpec{Mode: &mode}}
		Expect(env.Client(s.admin).Create(ctx, settings)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(settings), settings)).To(Succeed())
			g.Expect(meta.IsStatusConditionTrue(settings.Status.Conditions, v1alpha1.ReadyCondition)).To(BeTrue())
		}).Should(Succeed())
		var id string
		a := s.reaches(s.refund(unique("txn"), 100, claimed(&id)), v1alpha1.ActionAdmitted, "")
		Expect(a.Status.WouldHave).NotTo(BeNil())
		report(s, a, id, v1alpha1.OutcomeAskedBack, "abc")
		a = s.askedBack(a, 1)
		judged(s.goesOn(a, func(c *v1alpha1.ClaimSpec) { c.ClaimID = id }), "Withdrawn") // its Outcome is there
		c := s.goesOn(a)
		judged(c, "Accepted")
		report(s, a, c.Spec.ClaimID, v1alpha1.OutcomeCommitted, "")
		a = s.reaches(a, v1alpha1.ActionObserved, "")
		Expect(a.Status.Outcome).To(Equal(v1alpha1.ActionCommitted))
		Expect(s.receipt(a).Rounds).To(Equal(int64(1)))
	})

	It("says with what to go on, exactly when it asks back", func() {
		s := newScene()
		var id string
		a := s.reaches(s.refund(unique("txn"), 100, claimed(&id)), v1alpha1.ActionAdmitted, "")
		for result, continuation := range map[v1alpha1.OutcomeResult]string{v1alpha1.OutcomeAskedBack: "", v1alpha1.OutcomeCommitted: "abc"} {
			o := &v1alpha1.Outcome{
				ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: flow.LockName(string(a.UID), id, s.agent.Name)},
				Spec:       v1alpha1.OutcomeSpec{ActionRef: v1alpha1.ObjectReference{Name: a.Name, UID: a.UID}, ClaimID: id, Result: result, Continuation: continuation},
			}
			refused(env.Client(s.agent).Create(ctx, o), "a continuation goes with the result AskedBack, and only with it")
		}
	})
})

var _ = Describe("what nobody goes on with", Serial, func() {
	It("is Ambiguous when its time is over, and blocks", func() {
		s := newScene()
		s.executes(s.executor("refunds"))
		payment := unique("txn")
		s.provider.asksBack(payment, 1, created)
		a := s.askedBack(s.refund(payment, 100), 1)
		clock.Advance(GinkgoT(), effect.RoundTime+15*time.Second)
		a = s.reaches(a, v1alpha1.ActionAmbiguous, "lease_lapsed")
		Expect(s.effect(a).Status.Cause).To(Equal(v1alpha1.CauseLeaseLapsed))
		Expect(a.Status.Message).To(ContainSubstring("nobody had gone on"))
		judged(s.goesOn(a), "ActionFinished")
		s.reaches(s.refund(payment, 100), v1alpha1.ActionBlocked, "ambiguous")
		Expect(s.provider.of(payment)).To(HaveLen(1))
	})
})

var _ = Describe("an operator that is asked back, and dies", Serial, func() {
	BeforeEach(withoutOperator)

	DescribeTable("leaves it to its one end",
		func(point string, calls int, state v1alpha1.ActionState, reason string) {
			died := startDoomed(point)
			s := newScene()
			s.executes(s.executor("refunds"))
			payment := unique("txn")
			s.provider.asksBack(payment, 1, created)
			a := s.refund(payment, 100)
			if !strings.Contains(point, "suspend") {
				s.goesOn(s.askedBack(a, 1))
			}
			Eventually(died).Should(BeClosed())
			operator = startOperator(controllers.Options{})
			switch {
			case reason == "executor_lost":
				s.reaches(a, v1alpha1.ActionAdmitted, "")
				clock.Advance(GinkgoT(), effect.RoundTime+lapse)
			case strings.Contains(point, "suspend"):
				s.goesOn(s.askedBack(a, 1))
			}
			s.reaches(a, state, reason)
			Expect(s.provider.of(payment)).To(HaveLen(calls))
		},
		Entry(nil, "before suspend", 1, v1alpha1.ActionAmbiguous, "executor_lost"),
		Entry(nil, "after suspend", 2, v1alpha1.ActionCommitted, ""),
		Entry(nil, "after suspended", 2, v1alpha1.ActionCommitted, ""),
		Entry(nil, "before continue", 2, v1alpha1.ActionCommitted, ""),
		Entry(nil, "after continue", 1, v1alpha1.ActionAmbiguous, "executor_lost"),
	)
})
