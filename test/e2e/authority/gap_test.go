package authority

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/controllers"
	"ctrlrun.dev/operator/kernel/authority"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/timeline"
)

var _ = Describe("Authority made while nobody checked who makes what", Serial, func() {
	It("does not count, nor does what was handed on before; Revocations do, and Grants, which need no speaker", func() {
		s := newScene()
		s.grant("refunds", s.refunds(nil))
		all := s.chainOf(2)
		s.passes(s.dawn, byDelegation("to-dawn", "refunds"), map[string]string{"delegation": "to-dawn", "grant": "refunds", "depth": "2"})
		kept := s.handed(s.agent, "to-dusk", s.part(grantRef("refunds"), s.dusk, nil))

		closeGap := env.AdmissionGap(GinkgoT(), "ctrlrun-delegations", "ctrlrun-status", "ctrlrun-revocations")
		withoutOperator()
		By("a Delegation that says to be made by somebody else")
		forged := &v1alpha1.Delegation{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "forged"}}
		s.part(grantRef("refunds"), s.noon, fields{"delegator": fields{"agent": s.agent.Name}}).into(&forged.Spec)
		forged.Spec.Raw = nil
		Eventually(func() error { return env.Client(s.noon).Create(ctx, forged.DeepCopy()) }).Should(Succeed())
		By("one whose status is forged as well")
		judged := forged.DeepCopy()
		judged.Name = "judged"
		Expect(env.Client(s.noon).Create(ctx, judged)).To(Succeed())
		judged.Status.Conditions = []metav1.Condition{{Type: v1alpha1.AcceptedCondition, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted, Message: "it holds", LastTransitionTime: metav1.Now()}}
		Eventually(func() error { return env.Admin().Status().Update(ctx, judged) }).Should(Succeed())
		By("a Revocation by nobody who may")
		cut := s.revocation(s.noon, kept)
		cut.Spec.Revoker = s.revoker.Name
		Eventually(func() error { return client.IgnoreAlreadyExists(env.Admin().Create(ctx, cut)) }).Should(Succeed())
		operator = startOperator(controllers.Options{})
		closeGap()

		Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(forged), forged)).To(Succeed())
		s.rejected(forged, flow.MadeWithoutAdmission, "", "Make it again.")
		none := refusal{decision.NoAuthority, nil, nil}
		s.refused(s.refund(s.noon, asked), none)
		s.refused(s.refund(s.night, asked), none)
		s.refused(s.refund(s.dawn, asked), none)
		s.refused(s.refund(s.dusk, asked), none)
		s.passes(s.agent, byGrant("refunds"), map[string]string{"grant": "refunds"})
		s.rejected(s.delegate(s.night, "below", s.part(delegationRef("to-night"), s.noon, nil)), authority.UnknownParent, "", "Delegation/to-night was refused itself")
		for _, d := range all {
			s.onRecord(d, timeline.DelegationCreated)
		}
		Eventually(func() int { return len(s.eventsOf(kept.UID)) }).Should(Equal(2), "who revoked it may be a lie; that it is over is not taken back")

		By("and is made again")
		s.handed(s.agent, "to-night-again", s.part(grantRef("refunds"), s.night, nil))
		s.passes(s.night, byDelegation("to-night-again", "refunds"), map[string]string{"delegation": "to-night-again", "grant": "refunds", "depth": "1"})
		s.chainHolds()
	})
})
