package proposals

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/controllers"
	"ctrlrun.dev/operator/kernel/policy"
	"ctrlrun.dev/operator/test/testenv"
)

// startDoomed starts an operator that ends at one point, once, as a killed process does. The channel is closed then.
func startDoomed(point string) (died <-chan struct{}) {
	GinkgoHelper()
	return env.StartDoomed(GinkgoT(), point, func(cfg *rest.Config, crash func(string)) (testenv.Runnable, error) {
		cfg.QPS = -1
		return controllers.New(cfg, controllers.Options{
			Namespace: testenv.SystemNamespace, MetricsAddress: "0", ProbeAddress: "0", Clock: clock, Crash: crash,
		})
	})
}

// withoutOperator stops the operator of the suite for one spec.
func withoutOperator() {
	GinkgoHelper()
	Expect(operator.Stop()).To(Succeed())
	DeferCleanup(func() {
		_ = operator.Stop()
		operator = startOperator(controllers.Options{})
	})
}

// questions are all Actions of the namespace that ask about changes.
func (s *scene) questions() (all []v1alpha1.Action) {
	GinkgoHelper()
	list := &v1alpha1.ActionList{}
	Expect(env.Admin().List(ctx, list, client.InNamespace(s.ns))).To(Succeed())
	for _, a := range list.Items {
		if a.Spec.ActionType == policy.ChangeAction {
			all = append(all, a)
		}
	}
	return all
}

// approvesAll says yes to whatever is asked now and was not answered.
func (s *scene) approvesAll() {
	GinkgoHelper()
	for _, a := range s.questions() {
		if a.Status.State == v1alpha1.ActionAwaitingApproval && a.Status.Approval.Counted == 0 {
			err := env.Client(s.alice).Get(ctx, client.ObjectKey{Namespace: s.ns, Name: a.Name + ".alice"}, &v1alpha1.Approval{})
			if client.IgnoreNotFound(err) == nil && err != nil {
				s.approves(s.alice, &a)
			}
		}
	}
}

func (s *scene) generation(kind, name string) int64 {
	GinkgoHelper()
	o := object(kind, s.ns, name, nil)
	Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
	return o.GetGeneration()
}

var points = []string{
	"before question", "after question", "before propose", "after propose", "before claim", "after claim",
	"before applying", "after applying", "before apply", "after apply", "before report", "after report",
}

var _ = Describe("an operator that dies at any point", Serial, func() {
	for _, point := range points {
		It("leaves a change that the next one takes to its one end: "+point, func() {
			s := newScene(asksOne)
			Expect(s.write(s.paula, "ActionPolicy", "changed", aPolicy(1))).To(Succeed())
			Expect(s.write(s.paula, "Grant", "deleted", aGrant())).To(Succeed())
			withoutOperator()
			for _, name := range []string{"created", "changed"} {
				s.applies(s.flux, name, of(name, aPolicy(2000)))
			}
			s.applies(s.flux, "deleted", fields{"targetRef": fields{"kind": "Grant", "name": "deleted"}, "delete": true})
			died := startDoomed(point)
			Eventually(func() <-chan struct{} { s.approvesAll(); return died }).Should(BeClosed())

			operator = startOperator(controllers.Options{})
			for _, name := range []string{"created", "changed", "deleted"} {
				Eventually(func(g Gomega) {
					s.approvesAll()
					g.Expect(s.proposal(name).Status.State).To(Equal(v1alpha1.ProposalApplied))
				}).Should(Succeed())
				o := s.reaches(name, v1alpha1.ProposalApplied)
				Expect(o.Status.ReceiptRef).NotTo(BeNil())
			}
			By("having written each once, and asked once")
			Expect(s.spec("ActionPolicy", "created")).To(Equal(aPolicy(2000)))
			Expect(s.generation("ActionPolicy", "created")).To(Equal(int64(1)))
			Expect(s.spec("ActionPolicy", "changed")).To(Equal(aPolicy(2000)))
			Expect(s.generation("ActionPolicy", "changed")).To(Equal(int64(2)))
			Expect(s.spec("Grant", "deleted")).To(BeNil())
			all := s.questions()
			Expect(all).To(HaveLen(3))
			for i := range all {
				s.ends(&all[i], v1alpha1.ActionCommitted)
			}
		})
	}

	It("leaves a change that nobody knows of, if somebody else changed the target before the next one came", func() {
		s := newScene(asksOne)
		Expect(s.write(s.paula, "ActionPolicy", "changed", aPolicy(1))).To(Succeed())
		withoutOperator()
		s.applies(s.flux, "changed", of("changed", aPolicy(2000)))
		died := startDoomed("after apply")
		Eventually(func() <-chan struct{} { s.approvesAll(); return died }).Should(BeClosed())
		Expect(s.write(s.paula, "ActionPolicy", "changed", aPolicy(3))).To(Succeed())
		operator = startOperator(controllers.Options{})
		o := s.reaches("changed", v1alpha1.ProposalRefused)
		reason, message := stalled(o)
		Expect(reason).To(Equal("ReportedUnknown"))
		Expect(message).To(ContainSubstring("Nobody knows whether it was applied"))
		Expect(s.spec("ActionPolicy", "changed")).To(Equal(aPolicy(3)))
		all := s.questions()
		Expect(all).To(HaveLen(1))
		s.ends(&all[0], v1alpha1.ActionAmbiguous)
	})

	It("leaves a change that was certainly not made, if the target changed before it began", func() {
		s := newScene(asksOne)
		Expect(s.write(s.paula, "ActionPolicy", "changed", aPolicy(1))).To(Succeed())
		withoutOperator()
		s.applies(s.flux, "changed", of("changed", aPolicy(2000)))
		died := startDoomed("before applying")
		Eventually(func() <-chan struct{} { s.approvesAll(); return died }).Should(BeClosed())
		Expect(s.write(s.paula, "ActionPolicy", "changed", aPolicy(3))).To(Succeed())
		operator = startOperator(controllers.Options{})
		first := s.questions()[0]
		s.ends(&first, v1alpha1.ActionFailed)
		second := s.asked("changed")
		Expect(second.UID).NotTo(Equal(first.UID))
		s.approves(s.alice, second)
		s.reaches("changed", v1alpha1.ProposalApplied)
		Expect(s.spec("ActionPolicy", "changed")).To(Equal(aPolicy(2000)))
	})
})

var _ = Describe("an operator that comes late", Serial, func() {
	for _, point := range []string{"before applying", "before apply"} {
		It("writes nothing that another has written, also after it was changed back: "+point, func() {
			s := newScene(asksOne)
			Expect(s.write(s.paula, "ActionPolicy", "changed", aPolicy(1))).To(Succeed())
			withoutOperator()
			s.applies(s.flux, "changed", of("changed", aPolicy(2000)))
			p := testenv.PauseAt(GinkgoT(), point)
			late := startOperator(controllers.Options{Crash: p.At})
			DeferCleanup(func() { _ = late.Stop() })
			Eventually(func() <-chan struct{} { s.approvesAll(); return p.Reached }).Should(BeClosed())
			operator = startOperator(controllers.Options{})
			s.reaches("changed", v1alpha1.ProposalApplied)
			Expect(s.write(s.paula, "ActionPolicy", "changed", aPolicy(1))).To(Succeed())
			s.reaches("changed", v1alpha1.ProposalReplaced)
			p.Resume()

			By("letting it do another thing, so that it is known to be through with that")
			s.applies(s.flux, "other", of("other", aPolicy(2)))
			s.approves(s.alice, s.asked("other"))
			s.reaches("other", v1alpha1.ProposalApplied)
			Expect(late.Stop()).To(Succeed())
			Expect(s.spec("ActionPolicy", "changed")).To(Equal(aPolicy(1)))
			Expect(s.generation("ActionPolicy", "changed")).To(Equal(int64(3)))
			Expect(s.proposal("changed").Status.State).To(Equal(v1alpha1.ProposalReplaced))
		})
	}

	It("cannot begin what another has given up", func() {
		s := newScene(asksOne)
		Expect(s.write(s.paula, "ActionPolicy", "changed", aPolicy(1))).To(Succeed())
		withoutOperator()
		s.applies(s.flux, "changed", of("changed", aPolicy(2000)))
		p := testenv.PauseAt(GinkgoT(), "before applying")
		late := startOperator(controllers.Options{Crash: p.At})
		DeferCleanup(func() { _ = late.Stop() })
		Eventually(func() <-chan struct{} { s.approvesAll(); return p.Reached }).Should(BeClosed())
		Expect(s.write(s.paula, "ActionPolicy", "changed", aPolicy(3))).To(Succeed())
		operator = startOperator(controllers.Options{})
		first := s.questions()[0]
		s.ends(&first, v1alpha1.ActionFailed)
		s.asked("changed")
		p.Resume()
		s.applies(s.flux, "other", of("other", aPolicy(2)))
		s.approves(s.alice, s.asked("other"))
		s.reaches("other", v1alpha1.ProposalApplied)
		Expect(late.Stop()).To(Succeed())
		Expect(s.spec("ActionPolicy", "changed")).To(Equal(aPolicy(3)))
	})
})

var _ = Describe("a proposal that may have been written while admission was away", Serial, func() {
	It("asks nobody until it is edited, and one that was there before goes on", func() {
		s := newScene(asksOne)
		s.proposes("before", of("before", aPolicy(1)))
		Eventually(func() string { r, _ := ready(s.proposal("before")); return r }).Should(Equal("AwaitingApproval"))
		waiting := s.asked("before")
		s.proposes("done", of("done", aPolicy(1)))
		s.approves(s.alice, s.asked("done"))
		s.reaches("done", v1alpha1.ProposalApplied)

		back := env.AdmissionGap(GinkgoT(), "ctrlrun-policyproposals")
		forged := of("forged", aPolicy(9))
		forged["proposer"] = "nobody-knows"
		Eventually(func() error { return env.Client(s.flux).Create(ctx, object("PolicyProposal", s.ns, "forged", forged)) }).Should(Succeed())
		back()
		reason, _ := stalled(s.reaches("forged", v1alpha1.ProposalRefused))
		Expect(reason).To(Equal("MadeWithoutAdmission"))
		Expect(s.proposal("forged").Status.Question).To(BeNil())

		By("ending what people were asked before, and keeping what was done")
		s.ends(waiting, v1alpha1.ActionBlocked)
		reason, _ = stalled(s.reaches("before", v1alpha1.ProposalRefused))
		Expect(reason).To(Equal("MadeWithoutAdmission"))
		s.reaches("done", v1alpha1.ProposalApplied)

		s.proposes("forged", of("forged", aPolicy(8)))
		a := s.asked("forged")
		Expect(*a.Spec.Principal.User).To(Equal(s.flux.Name))
		s.approves(s.alice, a)
		s.reaches("forged", v1alpha1.ProposalApplied)

		By("not taking a revision of an older object that came while there was no operator, which cannot know when it came")
		Expect(operator.Stop()).To(Succeed())
		DeferCleanup(func() {
			_ = operator.Stop()
			operator = startOperator(controllers.Options{})
		})
		s.applies(s.flux, "done", of("done", aPolicy(2)))
		s.applies(s.flux, "young", of("young", aPolicy(2)))
		operator = startOperator(controllers.Options{})
		reason, _ = stalled(s.reaches("done", v1alpha1.ProposalRefused))
		Expect(reason).To(Equal("MadeWithoutAdmission"))
		s.asked("young")
		Expect(s.spec("ActionPolicy", "done")).To(Equal(aPolicy(1)))
		s.applies(s.flux, "done", of("done", aPolicy(3)))
		s.approves(s.alice, s.asked("done"))
		s.reaches("done", v1alpha1.ProposalApplied)
	})
})

func ready(o *v1alpha1.PolicyProposal) (reason, message string) {
	for _, c := range o.Status.Conditions {
		if c.Type == v1alpha1.ReadyCondition {
			return c.Reason, c.Message
		}
	}
	return "", ""
}
