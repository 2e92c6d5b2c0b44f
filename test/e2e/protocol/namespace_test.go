package protocol

import (
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/controllers"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/decision"
)

// hashIn is the hash of an Action in an environment, computed here from what was sent.
func hashIn(environment string, a *v1alpha1.Action, resource string) string {
	GinkgoHelper()
	arguments, err := canonical.Parse(a.Spec.Arguments.Raw)
	Expect(err).NotTo(HaveOccurred())
	hash, err := action.Proposal{
		Name: a.Spec.ActionType, Arguments: arguments.(map[string]any),
		Principal: action.Principal{Agent: a.Spec.Principal.Agent}, Resource: &resource, Environment: environment,
	}.Hash()
	Expect(err).NotTo(HaveOccurred())
	return hash
}

func (s *scene) label(environment string) {
	GinkgoHelper()
	ns := &corev1.Namespace{}
	Expect(env.Admin().Get(ctx, client.ObjectKey{Name: s.ns}, ns)).To(Succeed())
	patch := client.MergeFrom(ns.DeepCopy())
	if ns.Labels == nil {
		ns.Labels = map[string]string{}
	}
	ns.Labels[v1alpha1.EnvironmentLabel] = environment
	Expect(env.Admin().Patch(ctx, ns, patch)).To(Succeed())
}

// gone reports whether an object is not there any more.
func gone(o client.Object) func() bool {
	return func() bool {
		return apierrors.IsNotFound(env.Admin().Get(ctx, client.ObjectKeyFromObject(o), o.DeepCopyObject().(client.Object)))
	}
}

var _ = Describe("the environment of a namespace", func() {
	It("is part of the hash, so that an approval for one does not fit another", func() {
		staging, production := newSceneWith(payments, map[string]string{v1alpha1.EnvironmentLabel: "staging"}), newScene()
		payment := unique("txn")
		a, b := staging.asked(payment), production.asked(payment)
		Expect(a.Status.Environment).To(Equal("staging"))
		Expect(a.Status.ActionHash).To(Equal(hashIn("staging", a, "payment:"+payment)))
		Expect(b.Status.Environment).To(Equal("production"))
		Expect(b.Status.ActionHash).To(Equal(hashIn("production", b, "payment:"+payment)))
		Expect(hashIn("staging", a, "payment:"+payment)).NotTo(Equal(hashIn("production", a, "payment:"+payment)))
	})

	It("that changes after people answered makes it another action", func() {
		s := newScene()
		a, _ := s.approved(unique("txn"))
		s.label("staging")
		a = s.reaches(a, v1alpha1.ActionBlocked, string(decision.ProposalChanged))
		Expect(s.receiptOf(a).Environment).To(Equal("production"), "what was shown is what is on record")
		s.chainHolds()
	})
})

var _ = Describe("a namespace that is being deleted", func() {
	It("admits nothing new", func() {
		s := newScene()
		withoutOperator()
		payment := unique("txn")
		a := s.propose(refund(payment, 100))
		Expect(env.Admin().Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.ns}})).To(Succeed())
		operator = startOperator(controllers.Options{})
		clock.Advance(GinkgoT(), 10*time.Second)
		Eventually(func() string { return s.get(a).Status.Reason }).Should(Equal(string(decision.NamespaceTerminating)))
		a = s.get(a)
		Expect(a.Status.State).To(Equal(v1alpha1.ActionPending))
		Expect(a.Status.Execution).To(BeNil())
		s.noEffect("refund:" + payment)

		By("and takes no statement any more")
		refusedByApiserver(env.Client(s.agent).Create(ctx, refund(unique("txn"), 100).object(s.ns)), "being terminated")
	})

	It("admits nothing that was decided before either", func() {
		s := newScene()
		payment := unique("txn")
		a := s.claimable(payment)
		withoutOperator()
		s.claim(s.agent, a)
		Expect(env.Admin().Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.ns}})).To(Succeed())
		operator = startOperator(controllers.Options{})
		clock.Advance(GinkgoT(), 10*time.Second)
		Eventually(func() string { return s.get(a).Status.Reason }).Should(Equal(string(decision.NamespaceTerminating)))
		Expect(s.get(a).Status.State).To(Equal(v1alpha1.ActionClaimable))
		s.noEffect("refund:" + payment)
	})
})

var _ = Describe("a finished Action", func() {
	It("is deleted with what was said about it after a while, but not its effect and its receipt", func() {
		s := newScene()
		s.settings(`{"finishedTTLSeconds": 60}`)
		payment := unique("txn")
		a, yes := s.approved(payment)
		c := s.claim(s.agent, a)
		a = s.reaches(a, v1alpha1.ActionAdmitted)
		o := s.report(s.agent, a, v1alpha1.OutcomeCommitted)
		s.reaches(a, v1alpha1.ActionCommitted)
		denied := s.reaches(s.propose(refund(unique("txn"), 9000)), v1alpha1.ActionDenied)
		open := s.asked(unique("txn"))

		clock.Advance(GinkgoT(), 50*time.Second)
		s.reaches(s.propose(refund(unique("txn"), 9000)), v1alpha1.ActionDenied)
		Expect(gone(a)()).To(BeFalse(), "it is not time yet")

		clock.Advance(GinkgoT(), 15*time.Second)
		for _, statement := range []client.Object{a, yes, c, o, denied} {
			Eventually(gone(statement)).Should(BeTrue(), "%T %s", statement, statement.GetName())
		}
		Expect(gone(open)()).To(BeFalse())
		Expect(s.effect("refund:" + payment).Status.State).To(Equal(v1alpha1.EffectCommitted))
		Expect(s.receiptOf(a).Result).To(Equal(decision.Committed))
		Expect(s.receiptOf(denied).Result).To(Equal(decision.Denied))
		s.reaches(s.propose(refund(payment, 100).unclaimed().with(func(o *v1alpha1.Action) {
			o.Spec.Arguments.Raw = []byte(fmt.Sprintf(`{"payment_id":%q,"amount":2000}`, payment))
		})), v1alpha1.ActionBlocked, string(decision.Duplicate))
		s.chainHolds()
	})

	It("whose effect is ambiguous is kept until somebody resolved it", func() {
		s := newScene()
		s.settings(`{"finishedTTLSeconds": 60}`)
		payment, other := unique("txn"), unique("txn")
		a := s.ambiguous(payment)
		done := s.committed(other)
		clock.Advance(GinkgoT(), 2*time.Minute)
		Eventually(gone(done)).Should(BeTrue())
		Expect(gone(a)()).To(BeFalse())
		var outcomes v1alpha1.OutcomeList
		Expect(env.Admin().List(ctx, &outcomes, client.InNamespace(s.ns))).To(Succeed())
		Expect(outcomes.Items).To(HaveLen(1), "the report that says unknown")

		r := s.resolve(s.oncall, "refund:"+payment, v1alpha1.ResolutionCommitted)
		s.effectReaches("refund:"+payment, v1alpha1.EffectCommitted)
		Eventually(gone(a)).Should(BeTrue())
		Eventually(gone(r)).Should(BeTrue())
		Eventually(gone(&outcomes.Items[0])).Should(BeTrue())
		s.chainHolds()
	})

	It("that an operator finished before it stopped is deleted by the next", func() {
		s := newScene()
		s.settings(`{"finishedTTLSeconds": 60}`)
		a := s.committed(unique("txn"))
		withoutOperator()
		clock.Advance(GinkgoT(), 2*time.Minute)
		operator = startOperator(controllers.Options{})
		s.propose(refund(unique("txn"), 9000))
		Eventually(gone(a)).Should(BeTrue())
	})
})

var _ = Describe("a refusal", func() {
	// Each refusal has a machine reason, a message that says what to do, and a receipt.
	refused := func(s *scene, p proposal, state v1alpha1.ActionState, reason decision.Reason, advice string) {
		GinkgoHelper()
		a := s.reaches(s.propose(p), state, string(reason))
		Expect(a.Status.Message).To(ContainSubstring(advice))
		Expect(a.Status.Execution).To(BeNil())
		d := s.receiptOf(a)
		Expect(d.Result).To(Equal(decision.Denied))
		Expect(d.Reason).To(Equal(reason))
		Expect(d.Message).To(Equal(a.Status.Message))
		Expect(a.Status.ReceiptRef.Hash).NotTo(BeEmpty())
		s.chainHolds()
	}

	DescribeTable("of the policy says why, and what to do now", func(p proposal, reason decision.Reason, advice string) {
		s := newSceneWith(`{
		  "stripe.refund": {"effect": "refund:{payment_id}", "rules": [{"when": {"amount_lte": 500}, "decision": "allow"}, {"when": {"amount_gte": 9000}, "decision": "deny"}]},
		  "iam.grant": {"decision": "deny"},
		  "doc.delete": {"resource": "doc:{id}", "decision": "allow"}
		}`, nil)
		refused(s, p, v1alpha1.ActionDenied, reason, advice)
	},
		Entry("unknown action", act("stripe.refnd", `{}`), decision.UnknownAction, "stripe.refund"),
		Entry("a plain decision", act("iam.grant", `{}`), decision.PlainDecision, "iam.grant"),
		Entry("a rule", act("stripe.refund", `{"payment_id":"p","amount":9000}`), decision.Reason("rule[1]"), "rule"),
		Entry("no rule", act("stripe.refund", `{"payment_id":"p","amount":600}`), decision.NoMatchingRule, "rule"),
		Entry("an effect key that cannot be computed", act("stripe.refund", `{"amount":1}`), decision.EffectKeyError, "payment_id"),
		Entry("a resource that cannot be computed", act("doc.delete", `{"name":"x"}`), decision.ResourceError, "resource template"),
	)

	DescribeTable("of what cannot be hashed names the place", func(arguments, pointer string) {
		s := newScene()
		refused(s, act("note.write", arguments), v1alpha1.ActionDenied, decision.UnrepresentableArgument, pointer)
	},
		Entry("a fraction", `{"a":{"price":1.5}}`, `"/spec/arguments/a/price"`),
		Entry("an integer of 30 digits", `{"id":123456789012345678901234567890}`, `"/spec/arguments/id"`),
		Entry("an integer that does not fit into 64 bits", `{"ids":[1,9223372036854775808]}`, `"/spec/arguments/ids/1"`),
	)

	It("of arguments that are too large names the limit", func() {
		s := newScene()
		refused(s, act("note.write", `{"text":"`+strings.Repeat("x", action.MaxArgumentsBytes)+`"}`), v1alpha1.ActionDenied, decision.ArgumentsTooLarge, "65536")
	})

	It("is not made for the largest that are allowed", func() {
		s := newScene()
		text := strings.Repeat("x", action.MaxArgumentsBytes-len(`{"text":""}`))
		s.reaches(s.propose(act("note.write", `{"text":"`+text+`"}`)), v1alpha1.ActionAdmitted)
	})

	It("of a lease names the longest", func() {
		s := newScene()
		s.settings(`{"maxLeaseSeconds": 60}`)
		refused(s, refund(unique("txn"), 100), v1alpha1.ActionDenied, decision.LeaseTooLong, "shorter spec.leaseDurationSeconds")
		s.reaches(s.propose(refund(unique("txn"), 100).with(func(o *v1alpha1.Action) { o.Spec.LeaseDurationSeconds = 60 })), v1alpha1.ActionAdmitted)
	})

	It("of what comes too late names the time", func() {
		s := newScene()
		until := metav1.NewTime(time.Now().Add(time.Minute).Truncate(time.Second))
		by := func(o *v1alpha1.Action) { o.Spec.NotAfter = &until }
		inTime := s.reaches(s.propose(refund(unique("txn"), 100).with(by)), v1alpha1.ActionAdmitted)
		waiting := s.reaches(s.propose(refund(unique("txn"), 2000).with(by)), v1alpha1.ActionAwaitingApproval)
		clock.Advance(GinkgoT(), 2*time.Minute)
		s.reaches(waiting, v1alpha1.ActionExpired, string(decision.NotAfter))
		refused(s, refund(unique("txn"), 100).with(by), v1alpha1.ActionExpired, decision.NotAfter, until.UTC().Format(time.RFC3339))
		Expect(s.get(inTime).Status.State).To(Equal(v1alpha1.ActionAdmitted))
		s.report(s.agent, inTime, v1alpha1.OutcomeCommitted)
		s.reaches(inTime, v1alpha1.ActionCommitted)
	})

	It("of what two policies define differently names both", func() {
		s := newScene()
		s.policy("more", `{"note.write": {"decision": "deny"}, "note.read": {"decision": "allow"}}`)
		refused(s, act("note.write", `{"text":"hello"}`), v1alpha1.ActionDenied, decision.PolicyConflict, `"more"`)
		s.reaches(s.propose(act("note.read", `{}`)), v1alpha1.ActionAdmitted)

		By("but not of what they define alike")
		s.policy("more", `{"note.write": {"decision": "allow"}}`)
		s.reaches(s.propose(act("note.write", `{"text":"hello"}`)), v1alpha1.ActionAdmitted)
	})

	It("of what an invalid policy names says where it is wrong", func() {
		s := newScene()
		s.policy("broken", `{"door.open": {"decision": "allow"}, "door.close": {"rules": [{"when": {"at_eq": {"hour": 1.5}}, "decision": "allow"}]}}`)
		refused(s, act("door.close", `{}`), v1alpha1.ActionDenied, decision.PolicyInvalid, "spec")
		refused(s, act("door.open", `{}`), v1alpha1.ActionDenied, decision.PolicyInvalid, "spec")
		s.reaches(s.propose(act("note.write", `{"text":"hello"}`)), v1alpha1.ActionAdmitted)

		By("and ends with the correction")
		s.policy("broken", `{"door.open": {"decision": "allow"}}`)
		s.reaches(s.propose(act("door.open", `{}`)), v1alpha1.ActionAdmitted)
		refused(s, act("door.close", `{}`), v1alpha1.ActionDenied, decision.UnknownAction, s.ns)
	})
})
