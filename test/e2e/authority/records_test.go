package authority

import (
	"fmt"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/controllers"
	"ctrlrun.dev/operator/kernel/authority"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/kernel/timeline"
	"ctrlrun.dev/operator/test/testenv"
)

// settled waits until nothing more is appended by itself: the rules that are in force are on record.
func (s *scene) settled(grants int) {
	GinkgoHelper()
	Eventually(func() []receipt.Document { return s.events(timeline.GrantInForce) }).Should(HaveLen(grants))
}

// writes picks an operator's write of the status of one statement: the first, which notes from where its receipt may be, or the
// verdict.
func (s *scene) writes(resource, name string, verdict bool) func(method, path, body string) bool {
	return func(method, path, body string) bool {
		return method == http.MethodPut && strings.HasSuffix(path, "/namespaces/"+s.ns+"/"+resource+"/"+name+"/status") &&
			strings.Contains(body, `"receiptRef"`) == verdict
	}
}

// appends picks the append of a receipt about a delegation.
func (s *scene) appends(kind timeline.Type) func(method, path, body string) bool {
	return func(method, path, body string) bool {
		return method == http.MethodPost && strings.HasSuffix(path, "/namespaces/"+s.ns+"/receipts") && strings.Contains(body, string(kind))
	}
}

var _ = Describe("What becomes of a Delegation is on record once", Serial, func() {
	// cuts are the writes of a verdict, in their order.
	cuts := func(s *scene, resource, name string, kind timeline.Type) map[string]func(method, path, body string) bool {
		return map[string]func(method, path, body string) bool{
			"the first status": s.writes(resource, name, false), "the receipt": s.appends(kind), "the verdict": s.writes(resource, name, true),
		}
	}
	for _, point := range []string{"the first status", "the receipt", "the verdict"} {
		for _, answered := range []bool{false, true} {
			when := map[bool]string{false: "before", true: "after"}[answered]
			It(fmt.Sprintf("wherever an operator dies: %s it writes %s", when, point), func() {
				s := newScene()
				s.grant("refunds", s.refunds(nil))
				s.settled(1)
				withoutOperator()

				By("accepting one")
				died := startCut(answered, cuts(s, "delegations", "to-night", timeline.DelegationCreated)[point])
				d := s.delegate(s.agent, "to-night", s.part(grantRef("refunds"), s.night, nil))
				Eventually(died).Should(BeClosed())
				operator = startOperator(controllers.Options{})
				expectAccepted(d)
				s.quotes(d.Status.ReceiptRef, s.onRecord(d, timeline.DelegationCreated)[0])
				s.passes(s.night, byDelegation("to-night", "refunds"), map[string]string{"delegation": "to-night", "grant": "refunds", "depth": "1"})
				Expect(operator.Stop()).To(Succeed())

				By("refusing one")
				died = startCut(answered, cuts(s, "delegations", "wide", timeline.DelegationRejected)[point])
				wide := s.delegate(s.agent, "wide", s.part(grantRef("refunds"), s.dawn, fields{"resources": nil}))
				Eventually(died).Should(BeClosed())
				operator = startOperator(controllers.Options{})
				s.rejected(wide, authority.Containment, "resources")
				Expect(operator.Stop()).To(Succeed())

				By("revoking one")
				died = startCut(answered, cuts(s, "revocations", "to-night.rosa", timeline.DelegationRevoked)[point])
				r := s.revocation(s.revoker, d)
				Expect(env.Client(s.revoker).Create(ctx, r)).To(Succeed())
				Eventually(died).Should(BeClosed())
				operator = startOperator(controllers.Options{})
				expectAccepted(r)
				s.quotes(r.Status.ReceiptRef, s.onRecord(d, timeline.DelegationCreated, timeline.DelegationRevoked)[1])
				revoked(d)
				s.chainHolds()
			})
		}
	}

	It("although the operator dies before it says of the Delegation that it is revoked", func() {
		s := newScene()
		s.grant("refunds", s.refunds(nil))
		d := s.chainOf(1)[0]
		withoutOperator()
		died := startCut(false, func(method, path, body string) bool {
			return method == http.MethodPut && strings.HasSuffix(path, "/delegations/to-night/status") && strings.Contains(body, `"Revoked"`)
		})
		Expect(env.Client(s.revoker).Create(ctx, s.revocation(s.revoker, d))).To(Succeed())
		Eventually(died).Should(BeClosed())
		operator = startOperator(controllers.Options{})
		revoked(d)
		Eventually(func() int { return len(s.eventsOf(d.UID)) }).Should(Equal(2))
		s.onRecord(d, timeline.DelegationCreated, timeline.DelegationRevoked)
		s.refused(s.refund(s.night, asked), refusal{"authority_revoked", nil, below("to-night", 1, nil)})
	})

	DescribeTable("at each point of appending it", func(point string) {
		withoutOperator()
		s := setScene()
		Expect(s.settingsAs(s.owner, fields{"authority": "Required"})).To(Succeed())
		stuck := pauseAt(point)
		slow := startOperator(controllers.Options{Crash: stuck.At})
		DeferCleanup(func() { _ = slow.Stop() })
		s.grant("refunds", s.refunds(nil))
		s.settled(1)
		stuck.armed.Store(true)
		d := s.delegate(s.agent, "to-night", s.part(grantRef("refunds"), s.night, nil))
		Eventually(stuck.Reached).Should(BeClosed())

		By("another operator going on, and the first one waking up")
		operator = startOperator(controllers.Options{})
		expectAccepted(d)
		r := s.revoke(d)
		stuck.Resume()
		revoked(d)
		all := s.onRecord(d, timeline.DelegationCreated, timeline.DelegationRevoked)
		Expect(slow.Stop()).To(Succeed())
		Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(d), d)).To(Succeed())
		s.quotes(d.Status.ReceiptRef, all[0])
		s.quotes(r.Status.ReceiptRef, all[1])
		s.onRecord(d, timeline.DelegationCreated, timeline.DelegationRevoked)
		s.chainHolds()
	},
		Entry("before", "before event"),
		Entry("after", "after event"),
	)

	It("by the operator that said so first, although another came to another verdict", func() {
		withoutOperator()
		s := setScene()
		Expect(s.settingsAs(s.owner, fields{"authority": "Required"})).To(Succeed())
		stuck := pauseAt("before event")
		slow := startOperator(controllers.Options{Crash: stuck.At})
		DeferCleanup(func() { _ = slow.Stop() })
		s.grant("refunds", s.refunds(nil))
		s.settled(1)
		stuck.armed.Store(true)
		d := s.delegate(s.agent, "to-night", s.part(grantRef("refunds"), s.night, nil))
		Eventually(stuck.Reached).Should(BeClosed(), "it has found that the Delegation holds, and is about to say so")
		s.deleteGrant("refunds")
		operator = startOperator(controllers.Options{})
		s.rejected(d, authority.UnknownParent, "")
		stuck.Resume()
		// What the slow one knows is over by now. It is asked for the next verdict alone, which comes after that one.
		Expect(operator.Stop()).To(Succeed())
		next := s.delegate(s.agent, "next", s.part(grantRef("refunds"), s.night, nil))
		s.rejected(next, authority.UnknownParent, "")
		s.rejected(d, authority.UnknownParent, "")
		s.chainHolds()
	})

	It("by two operators at once, whoever makes, refuses and revokes them", func() {
		second := startOperator(controllers.Options{})
		DeferCleanup(second.Stop)
		s := newScene()
		s.grant("refunds", s.refunds(nil))
		Expect(env.Grant(ctx, s.ns, "ctrlrun-revoker", s.approver, s.oncall)).To(Succeed())
		var held, wide []*v1alpha1.Delegation
		for range 8 {
			held = append(held, s.delegate(s.agent, unique("held"), s.part(grantRef("refunds"), s.night, nil)))
			wide = append(wide, s.delegate(s.agent, unique("wide"), s.part(grantRef("refunds"), s.night, fields{"constraints": nil})))
		}
		for _, d := range wide {
			s.rejected(d, authority.Containment, "constraints")
		}
		first := map[string]*v1alpha1.Revocation{}
		for _, d := range held {
			expectAccepted(d)
			for _, u := range []testenv.User{s.revoker, s.approver, s.oncall} {
				r := s.revocation(u, d)
				Expect(env.Client(u).Create(ctx, r)).To(Succeed())
				first[r.Name] = r
			}
		}
		for _, d := range held {
			revoked(d)
			for _, u := range []testenv.User{s.revoker, s.approver, s.oncall} {
				expectAccepted(first[s.revocation(u, d).Name])
			}
			all := s.onRecord(d, timeline.DelegationCreated, timeline.DelegationRevoked)
			s.quotes(d.Status.ReceiptRef, all[0])
			for _, u := range []testenv.User{s.revoker, s.approver, s.oncall} {
				r := first[s.revocation(u, d).Name]
				s.quotes(r.Status.ReceiptRef, all[1])
				said := condition(r, v1alpha1.AcceptedCondition).Message
				if r.Name == all[1].Data["revocation"] {
					Expect(said).To(ContainSubstring("grant nothing"))
					Expect(all[1].Data["revoker"]).To(Equal(u.Name))
				} else {
					Expect(said).To(ContainSubstring("was revoked already, by Revocation " + all[1].Data["revocation"]))
				}
			}
		}
		for _, d := range wide {
			s.onRecord(d, timeline.DelegationRejected)
		}
		s.chainHolds()
	})

	It("and a Ledger remembers the Grants that are in force", func() {
		s := newScene()
		g := s.grant("refunds", s.refunds(nil))
		s.settled(1)
		Eventually(func(then Gomega) {
			l := &v1alpha1.Ledger{}
			then.Expect(env.Admin().Get(ctx, client.ObjectKey{Name: s.ns}, l)).To(Succeed())
			then.Expect(l.Status).NotTo(BeNil())
			then.Expect(l.Status.Seq).To(Equal(int64(len(s.chain()))))
			then.Expect(l.Status.Rules).To(ContainElement(And(HaveField("Kind", "grant"), HaveField("Name", "refunds"), HaveField("UID", g.UID))))
		}).Should(Succeed())
	})
})
