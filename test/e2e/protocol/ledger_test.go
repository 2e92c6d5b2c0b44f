package protocol

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/controllers"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/records"
	"ctrlrun.dev/operator/test/testenv"
)

// ledger reads the memory of the scene's chain.
func (s *scene) ledger() *v1alpha1.Ledger {
	GinkgoHelper()
	l := &v1alpha1.Ledger{}
	Expect(env.Admin().Get(ctx, client.ObjectKey{Name: s.ns}, l)).To(Succeed())
	return l
}

// checkpointed waits until the Ledger remembers the newest receipt.
func (s *scene) checkpointed() v1alpha1.Receipt {
	GinkgoHelper()
	all := s.chain()
	last := all[len(all)-1]
	Eventually(func(g Gomega) {
		l := s.ledger()
		g.Expect(l.Status).NotTo(BeNil())
		g.Expect(l.Status.Hash).To(Equal(last.Spec.Hash))
	}).Should(Succeed())
	return last
}

// governor is somebody who may accept heads, in the whole cluster.
func governor() testenv.User {
	GinkgoHelper()
	u := testenv.User{Name: unique("governor")}
	Expect(env.Allow(ctx, "", u,
		rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"ledgeracceptances"}, Verbs: []string{"create", "get"}},
		rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"ledgers"}, Verbs: []string{"govern"}},
	)).To(Succeed())
	return u
}

// acceptance makes a person's statement about the head of the scene's chain.
func (s *scene) acceptance(u testenv.User, head receipt.Link) *v1alpha1.LedgerAcceptance {
	GinkgoHelper()
	ns := &corev1.Namespace{}
	Expect(env.Admin().Get(ctx, client.ObjectKey{Name: s.ns}, ns)).To(Succeed())
	return &v1alpha1.LedgerAcceptance{
		ObjectMeta: metav1.ObjectMeta{Name: s.ns + "." + action.Speaker(u.Name)},
		Spec:       v1alpha1.LedgerAcceptanceSpec{Ledger: s.ns, NamespaceUID: ns.UID, Seq: head.Seq, Hash: head.Hash, Reason: "restored from the backup of last night"},
	}
}

// holds waits until the scene's namespace holds because of its chain, and says so on an Action and on the Ledger.
func (s *scene) holds(a *v1alpha1.Action) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		got := s.get(a)
		g.Expect(got.Status.Reason).To(Equal(string(decision.LedgerRolledBack)), "%s %s", got.Status.State, got.Status.Message)
		g.Expect(got.Status.State).To(Equal(v1alpha1.ActionPending))
		g.Expect(got.Status.Message).To(ContainSubstring("kubectl ctrlrun ledger accept " + s.ns))
		l := s.ledger()
		c := meta.FindStatusCondition(l.Status.Conditions, v1alpha1.ReadyCondition)
		g.Expect(c).NotTo(BeNil())
		g.Expect(c.Status).To(Equal(metav1.ConditionFalse))
		g.Expect(c.Reason).To(Equal(decision.LedgerRolledBack.Condition()))
	}).Should(Succeed())
}

// continues expects that an acceptance was taken: a new epoch, a receipt that says so, and Actions that are decided again.
func (s *scene) continues(o *v1alpha1.LedgerAcceptance, epoch int64) {
	GinkgoHelper()
	expectAccepted(o)
	l := s.ledger()
	Expect(l.Status.Epoch).To(Equal(epoch))
	Expect(l.Status.NamespaceUID).To(Equal(o.Spec.NamespaceUID))
	var documents []receipt.Document
	for _, r := range s.receipts() {
		if r.Spec.Kind == receipt.KindLedgerAccepted {
			d, err := receipt.Parse(records.Entry(&r))
			Expect(err).NotTo(HaveOccurred())
			documents = append(documents, d)
		}
	}
	Expect(documents).To(HaveLen(int(epoch)))
	d := documents[epoch-1]
	Expect(d.Seq).To(Equal(o.Spec.Seq + 1))
	Expect(d.Epoch).To(Equal(epoch))
	Expect(d.Acceptor).To(Equal(o.Spec.AcceptedBy))
	Expect(d.Accepted).To(Equal(receipt.Link{Seq: o.Spec.Seq, Hash: o.Spec.Hash}))
	Expect(d.Statement).To(Equal(o.Spec.Reason))
	Eventually(func() metav1.ConditionStatus {
		return meta.FindStatusCondition(s.ledger().Status.Conditions, v1alpha1.ReadyCondition).Status
	}).Should(Equal(metav1.ConditionTrue))
}

// forget deletes the newest receipts of the scene's chain and gives the head that is left. A gap must be open.
func (s *scene) forget(n int) receipt.Link {
	GinkgoHelper()
	all := s.chain()
	for i := range n {
		Eventually(func() error { return client.IgnoreNotFound(env.Admin().Delete(ctx, &all[len(all)-1-i])) }).Should(Succeed())
	}
	if len(all) == n {
		return receipt.Start()
	}
	return receipt.Link{Seq: all[len(all)-1-n].Spec.Seq, Hash: all[len(all)-1-n].Spec.Hash}
}

var _ = Describe("a chain that is shorter than it was", Serial, func() {
	It("holds its namespace until a person accepts it by name", func() {
		people := governor()
		seen, unseen, deep := newScene(), newScene(), newScene()
		for _, s := range []*scene{seen, unseen} {
			s.committed(unique("txn"))
			s.reaches(s.propose(refund(unique("txn"), 9000)), v1alpha1.ActionDenied)
		}
		running := seen.admitted(unique("txn"))
		for range 4 {
			deep.committed(unique("txn"))
		}
		closeGap := admissionGap("ctrlrun-records-kept")
		seen.checkpointed()
		unseen.checkpointed()
		deep.checkpointed()
		head, other, deeper := seen.forget(1), receipt.Link{}, deep.forget(3)
		withoutOperator()
		other = unseen.forget(1)
		operator = startOperator(controllers.Options{})
		closeGap()

		By("which is noticed by the operator that was there, and by the one that was not")
		waiting := map[*scene]*v1alpha1.Action{}
		for _, s := range []*scene{seen, unseen, deep} {
			waiting[s] = s.propose(refund(unique("txn"), 100).unclaimed())
		}
		clock.Advance(GinkgoT(), 10*time.Second)
		for s, a := range waiting {
			s.holds(a)
		}
		seen.report(seen.agent, running, v1alpha1.OutcomeCommitted)
		seen.effectReaches(running.Status.Effect.Key, v1alpha1.EffectCommitted)
		Expect(seen.get(running).Status.State).To(Equal(v1alpha1.ActionAdmitted), "nothing is appended to a chain in doubt")
		Expect(seen.chain()).To(HaveLen(int(head.Seq)))

		By("but by nobody without the right, and not by another head")
		clerk := testenv.User{Name: unique("clerk")}
		Expect(env.Allow(ctx, "", clerk, rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"ledgeracceptances"}, Verbs: []string{"create"}})).To(Succeed())
		refusedByApiserver(env.Client(clerk).Create(ctx, seen.acceptance(clerk, head)), `you need the verb "govern"`)
		for try, wrong := range []func(*v1alpha1.LedgerAcceptance){
			func(o *v1alpha1.LedgerAcceptance) { o.Spec.Hash = "sha256:" + fmt.Sprintf("%064d", 1) },
			func(o *v1alpha1.LedgerAcceptance) { o.Spec.Seq++ },
			func(o *v1alpha1.LedgerAcceptance) { o.Spec.Seq, o.Spec.Hash = 0, receipt.Genesis },
			func(o *v1alpha1.LedgerAcceptance) { o.Spec.NamespaceUID = "1" },
		} {
			o := again(seen.acceptance(people, head), fmt.Sprint(try+2))
			wrong(o)
			Expect(env.Client(people).Create(ctx, o)).To(Succeed())
			expectRefused(o, v1alpha1.ReasonMismatch)
			Expect(seen.ledger().Status.Epoch).To(BeZero())
		}

		By("and goes on from there in a new epoch")
		for s, at := range map[*scene]receipt.Link{seen: head, unseen: other, deep: deeper} {
			o := s.acceptance(people, at)
			Expect(env.Client(people).Create(ctx, o)).To(Succeed())
			s.continues(o, 1)
			s.reaches(waiting[s], v1alpha1.ActionClaimable)
			s.claim(s.agent, waiting[s])
			a := s.reaches(waiting[s], v1alpha1.ActionAdmitted)
			s.report(s.agent, a, v1alpha1.OutcomeCommitted)
			s.reaches(a, v1alpha1.ActionCommitted)
			Expect(s.receiptOf(a).Epoch).To(Equal(int64(1)))
			s.chainHolds()
		}
		seen.reaches(running, v1alpha1.ActionCommitted)
		Expect(seen.receiptOf(running).Epoch).To(Equal(int64(1)))
		seen.chainHolds()

		By("which the next operator takes for what it is")
		withoutOperator()
		operator = startOperator(controllers.Options{})
		for s := range waiting {
			s.reaches(s.propose(refund(unique("txn"), 9000)), v1alpha1.ActionDenied)
			s.chainHolds()
		}
	})
})

var _ = Describe("a namespace that was deleted and created again", func() {
	It("holds until a person accepts that its chain begins anew", func() {
		s := newScene()
		a := s.committed(unique("txn"))
		s.checkpointed()
		before := s.ledger()
		Expect(before.Status.Seq).To(Equal(int64(2)))

		ns := &corev1.Namespace{}
		Expect(env.Admin().Get(ctx, client.ObjectKey{Name: s.ns}, ns)).To(Succeed())
		Expect(env.Admin().Delete(ctx, ns)).To(Succeed())
		// Nothing in this environment empties a namespace and finishes its deletion.
		for _, list := range []client.ObjectList{&v1alpha1.ActionList{}, &v1alpha1.OutcomeList{}, &v1alpha1.EffectList{}, &v1alpha1.ReceiptList{}, &v1alpha1.ActionPolicyList{}} {
			Expect(env.Admin().List(ctx, list, client.InNamespace(s.ns))).To(Succeed())
			Expect(meta.EachListItem(list, func(o runtime.Object) error { return env.Admin().Delete(ctx, o.(client.Object)) })).To(Succeed())
		}
		Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(ns), ns)).To(Succeed())
		ns.Spec.Finalizers = nil
		Expect(env.Admin().SubResource("finalize").Update(ctx, ns)).To(Succeed())
		Eventually(func() bool {
			return apierrors.IsNotFound(env.Admin().Get(ctx, client.ObjectKey{Name: s.ns}, &corev1.Namespace{}))
		}).Should(BeTrue())
		Expect(env.Admin().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.ns}})).To(Succeed())
		s.policy("payments", payments)

		retry := s.propose(refund(unique("txn"), 100).unclaimed())
		clock.Advance(GinkgoT(), 10*time.Second)
		s.holds(retry)
		Expect(s.ledger().Status.NamespaceUID).To(Equal(before.Status.NamespaceUID))
		Expect(s.receipts()).To(BeEmpty())

		people := governor()
		old := s.acceptance(people, receipt.Link{Seq: before.Status.Seq, Hash: before.Status.Hash})
		Expect(env.Client(people).Create(ctx, old)).To(Succeed())
		expectRefused(old, v1alpha1.ReasonMismatch)
		o := again(s.acceptance(people, receipt.Start()), "2")
		Expect(env.Client(people).Create(ctx, o)).To(Succeed())
		s.continues(o, 1)
		Expect(s.ledger().Status.NamespaceUID).NotTo(Equal(before.Status.NamespaceUID))
		s.reaches(retry, v1alpha1.ActionClaimable)
		Expect(s.receiptExists(a)).To(BeFalse())
		s.reaches(s.propose(refund(unique("txn"), 9000)), v1alpha1.ActionDenied)
		s.chainHolds()
	})
})

var _ = Describe("a ledger that does not hold", func() {
	It("cannot be accepted", func() {
		s := newScene()
		s.committed(unique("txn"))
		last := s.checkpointed()
		people := governor()
		o := s.acceptance(people, receipt.Link{Seq: last.Spec.Seq, Hash: last.Spec.Hash})
		Expect(env.Client(people).Create(ctx, o)).To(Succeed())
		expectRefused(o, v1alpha1.ReasonLedgerNotHeld)
		Expect(s.ledger().Status.Epoch).To(BeZero())
		Expect(s.receipts()).To(HaveLen(1))
	})

	It("remembers each head, for the namespace it belongs to", func() {
		s := newScene()
		for n := range int64(3) {
			s.committed(unique("txn"))
			last := s.checkpointed()
			Expect(last.Spec.Seq).To(Equal(n + 2))
			Expect(s.ledger().Status.Seq).To(Equal(n + 2))
		}
		ns := &corev1.Namespace{}
		Expect(env.Admin().Get(ctx, client.ObjectKey{Name: s.ns}, ns)).To(Succeed())
		Expect(s.ledger().Status.NamespaceUID).To(Equal(ns.UID))
		Expect(s.ledger().Status.Epoch).To(BeZero())
	})
})
