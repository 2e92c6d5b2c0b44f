package protocol

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/test/testenv"
)

// asked takes a large refund to where people are asked.
func (s *scene) asked(payment string) *v1alpha1.Action {
	GinkgoHelper()
	return s.reaches(s.propose(refund(payment, 2000)), v1alpha1.ActionAwaitingApproval)
}

// approved takes a large refund to where it waits for a process.
func (s *scene) approved(payment string) (*v1alpha1.Action, *v1alpha1.Approval) {
	GinkgoHelper()
	a := s.asked(payment)
	yes := s.approve(s.approver, a)
	return s.reaches(a, v1alpha1.ActionClaimable), yes
}

// again names a statement as its speaker's next try.
func again[T interface {
	GetName() string
	SetName(string)
}](o T, try string) T {
	o.SetName(o.GetName() + "." + try)
	return o
}

var _ = Describe("an approval", func() {
	Describe("binds to exactly what was read", func() {
		other := "sha256:" + strings.Repeat("0", 64)
		DescribeTable("and does not count with", func(forge func(*scene, *v1alpha1.Approval)) {
			s := newScene()
			a := s.asked(unique("txn"))
			wrong := s.approval(s.approver, a, v1alpha1.Approved)
			forge(s, wrong)
			Expect(env.Client(s.approver).Create(ctx, wrong)).To(Succeed())
			expectRefused(wrong, v1alpha1.ReasonMismatch)
			Expect(s.get(a).Status.State).To(Equal(v1alpha1.ActionAwaitingApproval))
			Expect(s.get(a).Status.Approval.Counted).To(BeZero())

			By("leaving the right one usable, by the same person")
			right := again(s.approval(s.approver, s.get(a), v1alpha1.Approved), "2")
			Expect(env.Client(s.approver).Create(ctx, right)).To(Succeed())
			expectAccepted(right)
			s.reaches(a, v1alpha1.ActionClaimable)
		},
			Entry("another hash", func(_ *scene, o *v1alpha1.Approval) { o.Spec.ActionHash = other }),
			Entry("another effect key", func(_ *scene, o *v1alpha1.Approval) { key := "refund:somebody"; o.Spec.EffectKey = &key }),
			Entry("no effect key", func(_ *scene, o *v1alpha1.Approval) { o.Spec.EffectKey = nil }),
			Entry("another type", func(_ *scene, o *v1alpha1.Approval) { o.Spec.ActionType = "note.publish" }),
			Entry("another Action's uid", func(s *scene, o *v1alpha1.Approval) { o.Spec.ActionRef.UID = s.asked(unique("txn")).UID }),
		)

		It("nor where the Action has no effect key and the approval names one", func() {
			s := newScene()
			a := s.reaches(s.propose(act("note.publish", `{"text":"hello"}`)), v1alpha1.ActionAwaitingApproval)
			wrong := s.approval(s.approver, a, v1alpha1.Approved)
			key := "refund:somebody"
			wrong.Spec.EffectKey = &key
			Expect(env.Client(s.approver).Create(ctx, wrong)).To(Succeed())
			expectRefused(wrong, v1alpha1.ReasonMismatch)

			Expect(env.Client(s.approver).Create(ctx, again(s.approval(s.approver, a, v1alpha1.Approved), "2"))).To(Succeed())
			s.reaches(a, v1alpha1.ActionClaimable)
		})

		It("nor for an Action that is not there", func() {
			s := newScene()
			a := s.asked(unique("txn"))
			stray := s.approval(s.approver, a, v1alpha1.Approved)
			stray.Name, stray.Spec.ActionRef = "nobody."+strings.TrimPrefix(stray.Name, a.Name+"."), v1alpha1.ObjectReference{Name: "nobody", UID: types.UID("1")}
			Expect(env.Client(s.approver).Create(ctx, stray)).To(Succeed())
			expectRefused(stray, v1alpha1.ReasonActionNotFound)
		})
	})

	It("is spent by one admission: the same content asks again, and the old approval does not fit", func() {
		s := newScene()
		payment := unique("txn")
		a, yes := s.approved(payment)
		s.claim(s.agent, a)
		a = s.reaches(a, v1alpha1.ActionAdmitted)
		Expect(a.Status.Execution.Approvals).To(HaveLen(1))
		Expect(a.Status.Execution.Approvals[0].UID).To(Equal(yes.UID))
		s.report(s.agent, a, v1alpha1.OutcomeNotExecuted)
		s.reaches(a, v1alpha1.ActionFailed)

		retry := s.asked(payment)
		Expect(retry.Status.ActionHash).To(Equal(a.Status.ActionHash))
		Expect(retry.Status.Approval.Counted).To(BeZero())

		By("refusing the old approval sent again for the new Action")
		replay := s.approval(s.approver, retry, v1alpha1.Approved)
		replay.Spec = *yes.Spec.DeepCopy()
		replay.Spec.ActionRef.Name = retry.Name
		Expect(env.Client(s.approver).Create(ctx, replay)).To(Succeed())
		expectRefused(replay, v1alpha1.ReasonMismatch)

		By("refusing it to the agent, who would rather say it as the approver")
		forged := s.approval(s.approver, retry, v1alpha1.Approved)
		forged.Spec.Approver = s.approver.Name
		refusedByApiserver(env.Client(s.agent).Create(ctx, forged), "cannot create resource")

		Expect(s.get(retry).Status.State).To(Equal(v1alpha1.ActionAwaitingApproval))
		Expect(s.receiptOf(a).Approvals).To(HaveLen(1))
		s.chainHolds()
	})

	It("is not spent where the reservation is refused", func() {
		s := newScene()
		payment := unique("txn")
		a, yes := s.approved(payment)
		expectAccepted(yes)
		s.committed(payment)

		s.claim(s.agent, a)
		a = s.reaches(a, v1alpha1.ActionBlocked, string(decision.Duplicate))
		Expect(a.Status.Execution).To(BeNil())
		d := s.receiptOf(a)
		Expect(d.Result).To(Equal(decision.Blocked))
		Expect(d.Approvals).To(BeEmpty())
		Expect(d.ApprovalsRequired).To(Equal(int64(1)))
		for _, line := range s.effect("refund:" + payment).Status.History {
			Expect(line.Approvals).To(BeEmpty())
		}
		s.chainHolds()
	})

	It("does not count when it comes after the question expired", func() {
		s := newScene()
		// The operator's clock is behind: by the apiserver's, the question has expired when it is put.
		clock.Advance(GinkgoT(), -20*time.Minute)
		a := s.asked(unique("txn"))
		late := s.approve(s.approver, a)
		expectRefused(late, v1alpha1.ReasonExpired)
		Expect(s.get(a).Status.State).To(Equal(v1alpha1.ActionAwaitingApproval))

		clock.Advance(GinkgoT(), 20*time.Minute)
		a = s.reaches(a, v1alpha1.ActionExpired, string(decision.ApprovalExpired))
		d := s.receiptOf(a)
		Expect(d.Result).To(Equal(decision.Denied))
		Expect(d.Reason).To(Equal(decision.ApprovalExpired))
		s.chainHolds()
	})

	It("does not count alone when the others did not come in time", func() {
		s := newScene()
		a := s.reaches(s.propose(act("grant.admin", `{"to":"`+unique("user")+`"}`)), v1alpha1.ActionAwaitingApproval)
		expectAccepted(s.approve(s.approver, a))
		clock.Advance(GinkgoT(), 15*time.Minute+time.Second)
		a = s.reaches(a, v1alpha1.ActionExpired, string(decision.ApprovalExpired))
		Expect(a.Status.Message).To(ContainSubstring("1 of 2"))
		Expect(s.receiptOf(a).Result).To(Equal(decision.Denied))

		expectRefused(s.approve(s.second, a), v1alpha1.ReasonActionFinished)
		Expect(s.get(a).Status.State).To(Equal(v1alpha1.ActionExpired))
	})

	It("takes no longer to be used than the policy gives it", func() {
		s := newScene()
		s.policy("payments", strings.Replace(payments, `"stripe.refund": {`, `"stripe.refund": {"approvalTTLSeconds": 60, `, 1))
		payment := unique("txn")
		a, _ := s.approved(payment)
		Expect(a.Status.Approval.ExpirationTime.Sub(a.Status.Approval.RequestTime.Time)).To(Equal(time.Minute))
		Expect(a.Status.ClaimExpirationTime.Sub(a.Status.ClaimableTime.Time)).To(Equal(time.Minute))

		clock.Advance(GinkgoT(), 2*time.Minute)
		a = s.reaches(a, v1alpha1.ActionExpired, string(decision.NotClaimed))
		d := s.receiptOf(a)
		Expect(d.Result).To(Equal(decision.Denied))
		Expect(d.Approvals).To(BeEmpty())
		s.chainHolds()
	})

	Describe("is refused by the apiserver", func() {
		It("without the verb", func() {
			s := newScene()
			a := s.asked(unique("txn"))
			clerk := testenv.User{Name: "clerk"}
			s.allowTypes(clerk, "approvals", "approve")
			refusedByApiserver(env.Client(clerk).Create(ctx, s.approval(clerk, a, v1alpha1.Approved)), `you need the verb "approve" on actiontypes.ctrlrun.dev`)
			refusedByApiserver(env.Client(clerk).Create(ctx, s.approval(clerk, a, v1alpha1.Denied)), `you need the verb "approve" on actiontypes.ctrlrun.dev`)
			Expect(s.get(a).Status.State).To(Equal(v1alpha1.ActionAwaitingApproval))
		})

		It("for a type the right does not reach", func() {
			s := newScene()
			lead := testenv.User{Name: "refund-lead"}
			s.allowTypes(lead, "approvals", "approve", "stripe.*")
			note := s.reaches(s.propose(act("note.publish", `{"text":"hello"}`)), v1alpha1.ActionAwaitingApproval)
			refusedByApiserver(env.Client(lead).Create(ctx, s.approval(lead, note, v1alpha1.Approved)), `"note.publish"`)

			By("and saying another type than the Action's helps nobody")
			lie := s.approval(lead, note, v1alpha1.Approved)
			lie.Spec.ActionType = "stripe.refund"
			Expect(env.Client(lead).Create(ctx, lie)).To(Succeed())
			expectRefused(lie, v1alpha1.ReasonMismatch)

			refund := s.asked(unique("txn"))
			expectAccepted(s.approve(lead, refund))
			s.reaches(refund, v1alpha1.ActionClaimable)
			Expect(s.get(note).Status.State).To(Equal(v1alpha1.ActionAwaitingApproval))
		})
	})

	Describe("does not count by whoever asked", func() {
		It("the agent itself", func() {
			s := newScene()
			Expect(env.Grant(ctx, s.ns, "ctrlrun-approver", s.agent)).To(Succeed())
			a := s.asked(unique("txn"))
			expectRefused(s.approve(s.agent, a), v1alpha1.ReasonSelfApproval)
			Expect(s.get(a).Status.State).To(Equal(v1alpha1.ActionAwaitingApproval))
		})

		It("the user on whose behalf the agent acts", func() {
			s := newScene()
			Expect(env.Allow(ctx, s.ns, s.agent, rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"users"}, ResourceNames: []string{s.approver.Name}, Verbs: []string{"represent"}})).To(Succeed())
			a := s.reaches(s.propose(refund(unique("txn"), 2000).with(func(o *v1alpha1.Action) { o.Spec.Principal.User = &s.approver.Name })), v1alpha1.ActionAwaitingApproval)
			expectRefused(s.approve(s.approver, a), v1alpha1.ReasonSelfApproval)
			Expect(s.get(a).Status.State).To(Equal(v1alpha1.ActionAwaitingApproval))

			expectAccepted(s.approve(s.second, a))
			s.reaches(a, v1alpha1.ActionClaimable)
		})
	})

	Describe("is overruled by a denial", func() {
		It("that came before it", func() {
			s := newScene()
			a := s.asked(unique("txn"))
			no := s.approval(s.approver, a, v1alpha1.Denied)
			no.Spec.Reason = "the customer was refunded by phone"
			Expect(env.Client(s.approver).Create(ctx, no)).To(Succeed())
			a = s.reaches(a, v1alpha1.ActionDenied, string(decision.ApprovalDenied))
			Expect(a.Status.Message).To(ContainSubstring("refunded by phone"))
			expectAccepted(no)
			Expect(s.receiptOf(a).Reason).To(Equal(decision.ApprovalDenied))

			expectRefused(s.approve(s.second, a), v1alpha1.ReasonActionFinished)
			Expect(s.get(a).Status.State).To(Equal(v1alpha1.ActionDenied))
			s.chainHolds()
		})

		It("that came after it, but before a process claimed", func() {
			s := newScene()
			payment := unique("txn")
			a, yes := s.approved(payment)
			expectAccepted(yes)
			no := s.deny(s.second, a)
			a = s.reaches(a, v1alpha1.ActionDenied, string(decision.ApprovalDenied))
			expectAccepted(no)
			Expect(s.receiptOf(a).Approvals).To(BeEmpty())

			expectRefused(s.claim(s.agent, a), v1alpha1.ReasonActionFinished)
			Expect(s.get(a).Status.Execution).To(BeNil())
		})

		It("but not by one that came after the admission", func() {
			s := newScene()
			a, _ := s.approved(unique("txn"))
			s.claim(s.agent, a)
			a = s.reaches(a, v1alpha1.ActionAdmitted)
			expectRefused(s.deny(s.second, a), v1alpha1.ReasonActionFinished)
			s.report(s.agent, a, v1alpha1.OutcomeCommitted)
			s.reaches(a, v1alpha1.ActionCommitted)
		})
	})

	It("counts once per person where two are required", func() {
		s := newScene()
		a := s.reaches(s.propose(act("grant.admin", `{"to":"`+unique("user")+`"}`)), v1alpha1.ActionAwaitingApproval)
		Expect(a.Status.Approval.Votes).To(Equal("0/2"))
		first := s.approve(s.approver, a)
		expectAccepted(first)
		Eventually(func() string { return s.get(a).Status.Approval.Votes }).Should(Equal("1/2"))

		By("counting the older one: creation times have whole seconds")
		Eventually(time.Now).Should(BeTemporally(">=", first.CreationTimestamp.Add(time.Second)))
		twice := again(s.approval(s.approver, a, v1alpha1.Approved), "2")
		Expect(env.Client(s.approver).Create(ctx, twice)).To(Succeed())
		expectRefused(twice, v1alpha1.ReasonDuplicateApprover)
		Expect(s.get(a).Status.State).To(Equal(v1alpha1.ActionAwaitingApproval))

		second := s.approve(s.second, a)
		a = s.reaches(a, v1alpha1.ActionClaimable)
		Expect(a.Status.Approval.Votes).To(Equal("2/2"))
		expectAccepted(second)

		By("and a third person is not needed")
		third := testenv.User{Name: "carol"}
		Expect(env.Grant(ctx, s.ns, "ctrlrun-approver", third)).To(Succeed())
		Eventually(time.Now).Should(BeTemporally(">=", second.CreationTimestamp.Add(time.Second)))
		expectRefused(s.approve(third, a), v1alpha1.ReasonNotRequired)

		s.claim(s.agent, a)
		a = s.reaches(a, v1alpha1.ActionAdmitted)
		spent := map[types.UID]string{}
		for _, x := range a.Status.Execution.Approvals {
			spent[x.UID] = x.Approver
		}
		Expect(spent).To(Equal(map[types.UID]string{first.UID: s.approver.Name, second.UID: s.second.Name}))
		s.report(s.agent, a, v1alpha1.OutcomeCommitted)
		s.reaches(a, v1alpha1.ActionCommitted)
		d := s.receiptOf(a)
		Expect(d.ApprovalsRequired).To(Equal(int64(2)))
		Expect(d.Approvals).To(HaveLen(2))
		for _, x := range d.Approvals {
			Expect(x.Groups).To(ContainElement("payments-leads"))
		}
		e := s.effect(a.Status.Effect.Key)
		Expect(e.Status.History[0].Approvals).To(ConsistOf(first.Name, second.Name))
		s.chainHolds()
	})

	It("is not required where the policy allows", func() {
		s := newScene()
		a := s.reaches(s.propose(refund(unique("txn"), 100).unclaimed()), v1alpha1.ActionClaimable)
		expectRefused(s.approve(s.approver, a), v1alpha1.ReasonNotRequired)
	})

	It("is too late once the Action is finished", func() {
		s := newScene()
		expectRefused(s.approve(s.approver, s.committed(unique("txn"))), v1alpha1.ReasonActionFinished)
	})

	Describe("is judged by the policy as it is at the admission", func() {
		const head = `{"stripe.refund": {"effect": "refund:{payment_id}", "resource": "payment:{payment_id}", `
		It("which now denies", func() {
			s := newScene()
			a, _ := s.approved(unique("txn"))
			s.policy("payments", head+`"decision": "deny"}}`)
			a = s.reaches(a, v1alpha1.ActionDenied, string(decision.PlainDecision))
			d := s.receiptOf(a)
			Expect(d.Approvals).To(BeEmpty())
			Expect(d.Policy.Generation).To(Equal(int64(2)))
			expectRefused(s.claim(s.agent, a), v1alpha1.ReasonActionFinished)
		})

		It("which now allows: nobody is needed, and what was said is on record", func() {
			s := newScene()
			a, yes := s.approved(unique("txn"))
			s.policy("payments", head+`"decision": "allow"}}`)
			s.claim(s.agent, a)
			a = s.reaches(a, v1alpha1.ActionAdmitted)
			Expect(a.Status.Execution.Approvals).To(HaveLen(1))
			Expect(a.Status.Decision).To(Equal(v1alpha1.DecisionAllow))
			s.report(s.agent, a, v1alpha1.OutcomeCommitted)
			d := s.receiptOf(s.reaches(a, v1alpha1.ActionCommitted))
			Expect(d.Decision).To(Equal(decision.Allow))
			Expect(d.Approvals).To(HaveLen(1))
			Expect(d.Approvals[0].UID).To(Equal(string(yes.UID)))
			Expect(d.Approvals[0].RulesHash).To(And(HavePrefix("sha256:"), Not(Equal(d.RulesHash))))
		})

		It("which still asks, but is another one: the receipt names both", func() {
			s := newScene()
			a, yes := s.approved(unique("txn"))
			asked := a.Status.RulesHash
			s.policy("payments", head+`"decision": "approve"}, "stripe.payout": {"decision": "deny"}}`)
			s.claim(s.agent, a)
			a = s.reaches(a, v1alpha1.ActionAdmitted)
			Expect(a.Status.RulesHash).To(And(HavePrefix("sha256:"), Not(Equal(asked))))
			Expect(a.Status.Execution.Approvals[0].RulesHash).To(Equal(asked))
			s.report(s.agent, a, v1alpha1.OutcomeCommitted)
			d := s.receiptOf(s.reaches(a, v1alpha1.ActionCommitted))
			Expect(d.RulesHash).To(Equal(a.Status.RulesHash))
			Expect(d.Approvals[0].RulesHash).To(Equal(asked))
			expectAccepted(yes)
			Expect(yes.Status.RulesHash).To(Equal(asked), "the approval says itself what it was accepted under")
		})

		It("which now allows what people were asked about: it waits for a process alone", func() {
			s := newScene()
			a := s.asked(unique("txn"))
			s.policy("payments", head+`"decision": "allow"}}`)
			a = s.reaches(a, v1alpha1.ActionClaimable)
			s.claim(s.agent, a)
			s.reaches(a, v1alpha1.ActionAdmitted)
		})

		It("which now asks more people", func() {
			s := newScene()
			a, first := s.approved(unique("txn"))
			before := *a.Status.ClaimableTime
			s.policy("payments", head+`"decision": "approve", "approvalsRequired": 2}}`)
			a = s.reaches(a, v1alpha1.ActionAwaitingApproval)
			Expect(a.Status.ClaimableTime).To(BeNil())
			Expect(a.Status.Message).To(ContainSubstring("1 of 2"))

			second := s.approve(s.second, a)
			a = s.reaches(a, v1alpha1.ActionClaimable)
			expectAccepted(second)

			By("refusing a claim that quotes the earlier decision")
			stale := s.claimFor(s.agent, a)
			stale.Spec.ClaimableTime = before
			Expect(env.Client(s.agent).Create(ctx, stale)).To(Succeed())
			expectRefused(stale, v1alpha1.ReasonNotClaimable)

			Expect(env.Client(s.agent).Create(ctx, again(s.claimFor(s.agent, a), "2"))).To(Succeed())
			a = s.reaches(a, v1alpha1.ActionAdmitted)
			var spent []types.UID
			for _, x := range a.Status.Execution.Approvals {
				spent = append(spent, x.UID)
			}
			Expect(spent).To(ConsistOf(first.UID, second.UID))
		})

		It("which now asks fewer people than were asked: all of them are still needed", func() {
			s := newScene()
			a := s.reaches(s.propose(act("grant.admin", `{"to":"`+unique("user")+`"}`)), v1alpha1.ActionAwaitingApproval)
			s.policy("payments", `{"grant.admin": {"effect": "grant:{to}", "decision": "approve"}}`)
			expectAccepted(s.approve(s.approver, a))
			Eventually(func() string { return s.get(a).Status.Approval.Votes }).Should(Equal("1/2"))
			Expect(s.get(a).Status.State).To(Equal(v1alpha1.ActionAwaitingApproval))
			s.approve(s.second, a)
			s.reaches(a, v1alpha1.ActionClaimable)
		})

		DescribeTable("whose templates now make it another action", func(actions string) {
			s := newScene()
			payment := unique("txn")
			a, _ := s.approved(payment)
			s.policy("payments", actions)
			a = s.reaches(a, v1alpha1.ActionBlocked, string(decision.ProposalChanged))
			d := s.receiptOf(a)
			Expect(d.Result).To(Equal(decision.Blocked))
			Expect(d.EffectKey).To(Equal("refund:"+payment), "what was shown is what is on record")
			Expect(d.Approvals).To(BeEmpty())
			s.chainHolds()
		},
			Entry("by another effect key", `{"stripe.refund": {"effect": "repay:{payment_id}", "resource": "payment:{payment_id}", "decision": "approve"}}`),
			Entry("by no effect key", `{"stripe.refund": {"resource": "payment:{payment_id}", "decision": "approve"}}`),
			Entry("by another resource, which is hashed", `{"stripe.refund": {"effect": "refund:{payment_id}", "resource": "transaction:{payment_id}", "decision": "approve"}}`),
			Entry("although it is allowed now", `{"stripe.refund": {"effect": "repay:{payment_id}", "resource": "payment:{payment_id}", "decision": "allow"}}`),
		)
	})
})

var _ = Describe("a statement made while admission was missing", Serial, func() {
	It("does not count, and what waited for it is proposed again", func() {
		s := newScene()
		payment := unique("txn")
		waiting := s.asked(payment)
		executing := s.reaches(s.propose(refund(unique("txn"), 100)), v1alpha1.ActionAdmitted)
		since := admissionSince()

		closeGap := admissionGap("ctrlrun-approvals")
		mallory := testenv.User{Name: "mallory"}
		s.allowTypes(mallory, "approvals", "approve")
		forged := s.approval(s.approver, waiting, v1alpha1.Approved)
		forged.Spec.Approver = s.approver.Name
		Eventually(func() error {
			o := forged.DeepCopy()
			err := env.Client(mallory).Create(ctx, o)
			if err == nil {
				forged = o
			}
			return err
		}).Should(Succeed(), "the apiserver does not refuse it any more")

		By("holding meanwhile, and saying so")
		during := s.propose(refund(unique("txn"), 100))
		clock.Advance(GinkgoT(), 10*time.Second)
		Eventually(func() string { return s.get(during).Status.Reason }).Should(Equal(string(decision.AdmissionMissing)))
		Expect(s.get(during).Status.State).To(Equal(v1alpha1.ActionPending))
		Expect(s.get(during).Status.Message).To(ContainSubstring("ctrlrun-approvals"))
		Expect(s.get(waiting).Status.State).To(Equal(v1alpha1.ActionAwaitingApproval))
		Expect(s.get(waiting).Status.Approval.Counted).To(BeZero())
		Expect(s.get(executing).Status.State).To(Equal(v1alpha1.ActionAdmitted))

		closeGap()
		Expect(admissionSince()).To(BeTemporally(">", since))
		Expect(admissionSince()).To(BeTemporally(">", forged.CreationTimestamp.Time))
		for _, a := range []*v1alpha1.Action{waiting, during} {
			a = s.reaches(a, v1alpha1.ActionBlocked, string(decision.MadeWithoutAdmission))
			Expect(a.Status.Execution).To(BeNil())
			Expect(s.receiptOf(a).Result).To(Equal(decision.Blocked))
		}
		c := verdict(forged)
		Expect(c.Status).To(BeEquivalentTo("False"), c.Message)
		Expect(c.Reason).To(BeElementOf(v1alpha1.ReasonMadeWithoutAdmission, v1alpha1.ReasonActionFinished), c.Message)

		By("letting what was admitted before go on, and the rest begin again")
		s.report(s.agent, executing, v1alpha1.OutcomeCommitted)
		s.reaches(executing, v1alpha1.ActionCommitted)
		retry := s.asked(payment)
		Expect(retry.Status.Approval.Counted).To(BeZero())
		expectAccepted(s.approve(s.approver, retry))
		s.reaches(retry, v1alpha1.ActionClaimable)
		s.chainHolds()
	})

	It("and that names nobody ends on record all the same", func() {
		s := newScene()
		closeGap := admissionGap("ctrlrun-actions")
		stamp := &admissionregistrationv1.MutatingAdmissionPolicyBinding{}
		Expect(env.Admin().Get(ctx, client.ObjectKey{Name: "ctrlrun-stamp-actions"}, stamp)).To(Succeed())
		Expect(env.Admin().Delete(ctx, stamp)).To(Succeed())
		p := act("note.write", `{"text":"hello"}`)
		stamped := func() string {
			o := p.object(s.ns)
			if err := env.Client(s.agent).Create(ctx, o, client.DryRunAll); err != nil {
				return err.Error()
			}
			return o.Spec.Principal.Agent
		}
		putBack := func() {
			o := &admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: stamp.Name, Labels: stamp.Labels, Annotations: stamp.Annotations}, Spec: stamp.Spec}
			Expect(client.IgnoreAlreadyExists(env.Admin().Create(ctx, o))).To(Succeed())
			Eventually(stamped).Should(Equal(s.agent.Name))
		}
		DeferCleanup(putBack)
		Eventually(stamped).Should(BeEmpty(), "the apiserver does not say any more who proposes")
		a := s.propose(p)
		Expect(a.Spec.Principal.Agent).To(BeEmpty())

		putBack()
		closeGap()
		s.reaches(a, v1alpha1.ActionBlocked, string(decision.MadeWithoutAdmission))
		Expect(s.receiptOf(a).Principal.Agent).To(BeEmpty())
		s.chainHolds()
	})
})
