package protocol

import (
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/controllers"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/test/testenv"
)

const (
	// lease is how long an admitted process has unless its Action says otherwise.
	lease = 5 * time.Minute
	// lapsed is a time after which its lease is declared over.
	lapsed = lease + flow.LapseGrace + time.Second
)

// admitted takes a small refund to where its process may execute.
func (s *scene) admitted(payment string) *v1alpha1.Action {
	GinkgoHelper()
	return s.reaches(s.propose(refund(payment, 100)), v1alpha1.ActionAdmitted)
}

// lock reads the Outcome that ended an Action's attempt.
func (s *scene) lock(a *v1alpha1.Action) *v1alpha1.Outcome {
	GinkgoHelper()
	o := &v1alpha1.Outcome{}
	name := flow.LockName(string(a.UID), s.get(a).Status.Execution.ClaimID, a.Spec.Principal.Agent)
	Expect(env.Admin().Get(ctx, client.ObjectKey{Namespace: s.ns, Name: name}, o)).To(Succeed())
	return o
}

// late makes the report of a process that finds its Outcome's name taken.
func late(o *v1alpha1.Outcome) *v1alpha1.Outcome {
	o = &v1alpha1.Outcome{ObjectMeta: *o.ObjectMeta.DeepCopy(), Spec: *o.Spec.DeepCopy()}
	o.Name, o.ResourceVersion, o.UID = "late."+o.Name, "", ""
	return o
}

var _ = Describe("a lease", func() {
	It("that is over without a report makes the effect ambiguous, by an Outcome of the operator's", func() {
		s := newScene()
		payment := unique("txn")
		a := s.admitted(payment)
		clock.Advance(GinkgoT(), lapsed)
		a = s.reaches(a, v1alpha1.ActionAmbiguous, string(decision.LeaseLapsed))

		o := s.lock(a)
		Expect(o.Spec.Reason).To(Equal(v1alpha1.OutcomeReasonLeaseLapsed))
		Expect(o.Spec.Result).To(Equal(v1alpha1.OutcomeUnknown))
		Expect(o.Spec.Reporter).To(Equal(testenv.OperatorUser().Name))
		e := s.effect("refund:" + payment)
		Expect(e.Status.State).To(Equal(v1alpha1.EffectAmbiguous))
		Expect(e.Status.Cause).To(Equal(v1alpha1.CauseLeaseLapsed))
		Expect(e.Status.OutcomeRef.UID).To(Equal(o.UID))
		d := s.receiptOf(a)
		Expect(d.Result).To(Equal(decision.Ambiguous))
		Expect(d.Reason).To(Equal(decision.LeaseLapsed))

		By("and is never retried by itself")
		s.reaches(s.proposeAs(s.rival, refund(payment, 2000)), v1alpha1.ActionBlocked, string(decision.AmbiguousEffect))
		s.chainHolds()
	})

	It("is not over before its time", func() {
		s := newScene()
		a := s.admitted(unique("txn"))
		clock.Advance(GinkgoT(), lease-time.Minute)
		// The clock's jump makes the operator look at this one as well; one that is proposed now shows that it has.
		s.reaches(s.propose(refund(unique("txn"), 100)), v1alpha1.ActionClaimable)
		Expect(s.get(a).Status.State).To(Equal(v1alpha1.ActionAdmitted))
	})

	It("loses against a report that comes after it is over, but before that was declared", func() {
		s := newScene()
		payment := unique("txn")
		a := s.admitted(payment)
		clock.Advance(GinkgoT(), lease+flow.LapseGrace/2)
		s.report(s.agent, a, v1alpha1.OutcomeCommitted)
		s.reaches(a, v1alpha1.ActionCommitted)
		Expect(s.effect("refund:" + payment).Status.State).To(Equal(v1alpha1.EffectCommitted))
	})

	It("ends an Action without effect key as well", func() {
		s := newScene()
		a := s.reaches(s.propose(act("note.write", `{"text":"hello"}`)), v1alpha1.ActionAdmitted)
		clock.Advance(GinkgoT(), lapsed)
		s.reaches(a, v1alpha1.ActionAmbiguous, string(decision.LeaseLapsed))
		Expect(s.receiptOf(a).Result).To(Equal(decision.Ambiguous))
	})
})

var _ = Describe("a report", func() {
	It("that comes after the lapse settles nothing, and is shown to whoever resolves", func() {
		s := newScene()
		payment := unique("txn")
		a := s.admitted(payment)
		own := s.outcome(a, v1alpha1.OutcomeCommitted)
		clock.Advance(GinkgoT(), lapsed)
		a = s.reaches(a, v1alpha1.ActionAmbiguous, string(decision.LeaseLapsed))

		err := env.Client(s.agent).Create(ctx, own.DeepCopy())
		Expect(apierrors.IsAlreadyExists(err)).To(BeTrue(), "%v", err)
		o := late(own)
		Expect(env.Client(s.agent).Create(ctx, o)).To(Succeed())
		expectRefused(o, v1alpha1.ReasonLateReport)

		Eventually(func() *v1alpha1.LateOutcome { return s.effect("refund:" + payment).Status.LateOutcomeRef }).Should(Equal(&v1alpha1.LateOutcome{Name: o.Name, Result: v1alpha1.OutcomeCommitted}))
		Expect(s.effect("refund:" + payment).Status.State).To(Equal(v1alpha1.EffectAmbiguous))
		Expect(s.get(a).Status.State).To(Equal(v1alpha1.ActionAmbiguous))
		s.reaches(s.propose(refund(payment, 2000)), v1alpha1.ActionBlocked, string(decision.AmbiguousEffect))
	})

	It("that arrived while no operator was there settles, however late that comes back", func() {
		s := newScene()
		payment, failed := unique("txn"), unique("txn")
		a, b := s.admitted(payment), s.admitted(failed)
		withoutOperator()
		s.report(s.agent, a, v1alpha1.OutcomeCommitted)
		s.report(s.agent, b, v1alpha1.OutcomeNotExecuted)
		clock.Advance(GinkgoT(), 24*time.Hour)
		operator = startOperator(controllers.Options{})
		s.reaches(a, v1alpha1.ActionCommitted)
		s.reaches(b, v1alpha1.ActionFailed)
		Expect(s.effect("refund:" + payment).Status.State).To(Equal(v1alpha1.EffectCommitted))
		s.chainHolds()
	})

	It("that wins the race against the lapse settles", func() {
		s := newScene()
		a := s.admitted(unique("txn"))
		withoutOperator()
		// The operator has made up its mind that the lease is over, and is about to say so.
		p := testenv.PauseAt(GinkgoT(), "before lapse")
		clock.Advance(GinkgoT(), lapsed)
		operator = startOperator(controllers.Options{Crash: p.At})
		Eventually(p.Reached).Should(BeClosed())
		s.report(s.agent, a, v1alpha1.OutcomeCommitted)
		p.Resume()

		a = s.reaches(a, v1alpha1.ActionCommitted)
		Expect(s.lock(a).Spec.Reporter).To(Equal(s.agent.Name))
		Expect(s.receiptOf(a).Result).To(Equal(decision.Committed))
		s.chainHolds()
	})

	It("that loses it does not, even if the operator dies before it knows that it has won", func() {
		s := newScene()
		payment := unique("txn")
		a := s.admitted(payment)
		withoutOperator()
		p := testenv.PauseAt(GinkgoT(), "after lapse")
		clock.Advance(GinkgoT(), lapsed)
		operator = startOperator(controllers.Options{Crash: p.At})
		Eventually(p.Reached).Should(BeClosed())
		// It may have been the lease of another spec's action that ended first.
		o := s.outcome(s.get(a), v1alpha1.OutcomeCommitted)
		Eventually(func() error { return env.Admin().Get(ctx, client.ObjectKeyFromObject(o), &v1alpha1.Outcome{}) }).Should(Succeed())
		err := env.Client(s.agent).Create(ctx, o)
		Expect(apierrors.IsAlreadyExists(err)).To(BeTrue(), "%v", err)
		next := startOperator(controllers.Options{})
		DeferCleanup(func() { _ = next.Stop() })

		s.reaches(a, v1alpha1.ActionAmbiguous, string(decision.LeaseLapsed))
		p.Resume()
		Expect(s.effect("refund:" + payment).Status.Cause).To(Equal(v1alpha1.CauseLeaseLapsed))
		s.chainHolds()
	})

	It("and a lapse at the same moment agree on what the one Outcome says", func() {
		s := newScene()
		const rounds = 8
		var actions []*v1alpha1.Action
		for range rounds {
			actions = append(actions, s.admitted(unique("txn")))
		}
		reports := make([]error, rounds)
		var done sync.WaitGroup
		for i, a := range actions {
			o := s.outcome(a, v1alpha1.OutcomeCommitted)
			done.Go(func() { reports[i] = env.Client(s.agent).Create(ctx, o) })
		}
		clock.Advance(GinkgoT(), lapsed)
		done.Wait()
		for i, a := range actions {
			if reports[i] == nil {
				a = s.reaches(a, v1alpha1.ActionCommitted)
				Expect(s.lock(a).Spec.Result).To(Equal(v1alpha1.OutcomeCommitted))
				continue
			}
			Expect(apierrors.IsAlreadyExists(reports[i])).To(BeTrue(), "%v", reports[i])
			a = s.reaches(a, v1alpha1.ActionAmbiguous, string(decision.LeaseLapsed))
			Expect(s.lock(a).Spec.Reason).To(Equal(v1alpha1.OutcomeReasonLeaseLapsed))
		}
		s.chainHolds()
	})

	It("with another claimID is of a process that was not admitted", func() {
		s := newScene()
		a := s.admitted(unique("txn"))
		o := s.outcome(a, v1alpha1.OutcomeCommitted)
		o.Spec.ClaimID = uuid.NewString()
		o.Name = flow.LockName(string(a.UID), o.Spec.ClaimID, s.agent.Name)
		Expect(env.Client(s.agent).Create(ctx, o)).To(Succeed())
		expectRefused(o, v1alpha1.ReasonNotAdmitted)

		By("and cannot take the lock under the admitted claimID's name")
		forged := s.outcome(a, v1alpha1.OutcomeCommitted)
		forged.Spec.ClaimID = o.Spec.ClaimID
		refusedByApiserver(env.Client(s.agent).Create(ctx, forged), "the name must be")

		Expect(s.get(a).Status.State).To(Equal(v1alpha1.ActionAdmitted))
		s.report(s.agent, a, v1alpha1.OutcomeNotExecuted)
		s.reaches(a, v1alpha1.ActionFailed)
	})

	It("by another agent settles nothing", func() {
		s := newScene()
		payment := unique("txn")
		a := s.admitted(payment)
		o := s.outcome(a, v1alpha1.OutcomeCommitted)
		refusedByApiserver(env.Client(s.rival).Create(ctx, o.DeepCopy()), "the name must be")

		By("under its own name")
		o.Name = flow.LockName(string(a.UID), o.Spec.ClaimID, s.rival.Name)
		Expect(env.Client(s.rival).Create(ctx, o)).To(Succeed())
		expectRefused(o, v1alpha1.ReasonNotAdmitted)

		By("or as if it were the agent")
		forged := s.outcome(a, v1alpha1.OutcomeCommitted)
		forged.Spec.Reporter = s.agent.Name
		refusedByApiserver(env.Client(s.rival).Create(ctx, forged), "spec.reporter must be")

		By("or as if it were the operator that declares a lapse")
		lie := s.outcome(a, v1alpha1.OutcomeUnknown)
		lie.Spec.Reason = v1alpha1.OutcomeReasonLeaseLapsed
		refusedByApiserver(env.Client(s.agent).Create(ctx, lie), "LeaseLapsed")

		Expect(s.get(a).Status.State).To(Equal(v1alpha1.ActionAdmitted))
		Expect(s.effect("refund:" + payment).Status.State).To(Equal(v1alpha1.EffectExecuting))
	})

	It("of an Action that was never admitted says nothing", func() {
		s := newScene()
		a := s.reaches(s.propose(refund(unique("txn"), 9000)), v1alpha1.ActionDenied)
		expectRefused(s.report(s.agent, a, v1alpha1.OutcomeCommitted), v1alpha1.ReasonNotAdmitted)
	})
})

var _ = Describe("a squatter on the lock's name", func() {
	// squatterOf is somebody else whose name makes the same speaker.
	squatterOf := func(s *scene) testenv.User {
		GinkgoHelper()
		u := testenv.User{Name: strings.ReplaceAll(s.agent.Name, ":", ".")}
		Expect(action.Speaker(u.Name)).To(Equal(action.Speaker(s.agent.Name)))
		Expect(env.Grant(ctx, s.ns, "ctrlrun-agent", u)).To(Succeed())
		return u
	}

	DescribeTable("makes the attempt ambiguous, never more", func(result v1alpha1.OutcomeResult) {
		s := newScene()
		payment := unique("txn")
		a := s.admitted(payment)
		squatter := squatterOf(s)
		own := s.outcome(a, v1alpha1.OutcomeCommitted)
		squat := s.report(squatter, a, result)
		a = s.reaches(a, v1alpha1.ActionAmbiguous, string(decision.OutcomeNotAccepted))
		expectRefused(squat, v1alpha1.ReasonNotTheAgent)
		Expect(a.Status.Message).To(ContainSubstring(squatter.Name))
		e := s.effect("refund:" + payment)
		Expect(e.Status.State).To(Equal(v1alpha1.EffectAmbiguous))
		Expect(e.Status.Cause).To(Equal(v1alpha1.CauseOutcomeNotAccepted))
		d := s.receiptOf(a)
		Expect(d.Result).To(Equal(decision.Ambiguous))
		Expect(d.Reason).To(Equal(decision.OutcomeNotAccepted))
		Expect(d.Reporter).To(Equal(squatter.Name))

		By("while the executor's own report is kept for whoever resolves")
		err := env.Client(s.agent).Create(ctx, own.DeepCopy())
		Expect(apierrors.IsAlreadyExists(err)).To(BeTrue(), "%v", err)
		Expect(env.Client(s.agent).Create(ctx, late(own))).To(Succeed())
		Eventually(func() *v1alpha1.LateOutcome { return s.effect("refund:" + payment).Status.LateOutcomeRef }).ShouldNot(BeNil())
		s.chainHolds()
	},
		Entry("by saying committed", v1alpha1.OutcomeCommitted),
		Entry("by saying not executed, which would free the key", v1alpha1.OutcomeNotExecuted),
		Entry("by saying unknown", v1alpha1.OutcomeUnknown),
	)

	It("before the admission can only block the Action", func() {
		s := newScene()
		payment := unique("txn")
		a := s.asked(payment)
		squatter := squatterOf(s)
		s.report(squatter, a, v1alpha1.OutcomeCommitted)
		s.reaches(a, v1alpha1.ActionBlocked, string(decision.Withdrawn))
		s.noEffect("refund:" + payment)
	})

	It("cannot claim in the agent's name either", func() {
		s := newScene()
		a := s.claimable(unique("txn"))
		expectRefused(s.claim(squatterOf(s), a), v1alpha1.ReasonNotTheAgent)
		Expect(s.get(a).Status.State).To(Equal(v1alpha1.ActionClaimable))
	})
})
