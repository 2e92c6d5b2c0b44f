package tamper

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/receipt"
)

// truncate deletes the last receipts and gives the head that is left.
func (s *scene) truncate(n int) receipt.Link {
	GinkgoHelper()
	all := s.receipts()
	for i := range n {
		s.erase(&all[len(all)-1-i])
	}
	return s.head()
}

// forgetLedger deletes the Ledger.
func (s *scene) forgetLedger() {
	GinkgoHelper()
	s.erase(&v1alpha1.Ledger{ObjectMeta: metav1.ObjectMeta{Name: s.ns}})
}

// rewriteLedger makes it say that an earlier head is the last. It has to be made again: a head in it only grows.
func (s *scene) rewriteLedger(head receipt.Link) {
	GinkgoHelper()
	status := s.ledger().Status
	s.forgetLedger()
	l := &v1alpha1.Ledger{ObjectMeta: metav1.ObjectMeta{Name: s.ns}}
	Expect(env.Admin().Create(ctx, l)).To(Succeed())
	status.Seq, status.Hash = head.Seq, head.Hash
	l.Status = status
	Expect(env.Admin().Status().Update(ctx, l)).To(Succeed())
}

// forgetActions deletes the finished Actions whose receipts are gone, and their Effects.
func (s *scene) forgetActions(after receipt.Link) {
	GinkgoHelper()
	actions := &v1alpha1.ActionList{}
	Expect(env.Admin().List(ctx, actions, kube.InNamespace(s.ns))).To(Succeed())
	for i := range actions.Items {
		a := &actions.Items[i]
		if a.Status.ReceiptRef == nil || a.Status.ReceiptRef.Seq <= after.Seq {
			continue
		}
		if e := a.Status.Effect; e != nil && a.Status.Execution != nil {
			s.erase(&v1alpha1.Effect{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: e.Name}})
		}
		s.erase(a)
	}
}

// ending is a way to make a chain end earlier than it did.
type ending struct {
	what string
	// do gives the head that is left.
	do func(s *scene) receipt.Link
	// because is what the operator says, with the seq of the last receipt there was, or "": it does not notice.
	because string
	// code and breaks of a verification in the cluster that is given no head; the seqs count from the last receipt there was.
	code   int
	breaks []string
}

const (
	lastGone    = "receipt %d:sha256:" // ... is not there any more
	disappeared = "the Ledger of this namespace has disappeared"
	missing     = "The Ledger of this namespace is missing, but it has receipts or Actions that refer to some"
)

// endings are what can be done, and what an operator says of it that was there and one that was not.
func endings() (running, fresh []ending) {
	short := func(s *scene) receipt.Link { h := s.truncate(1); s.rewriteLedger(h); return h }
	shortest := func(s *scene) receipt.Link { h := short(s); s.forgetActions(h); return h }
	nothing := func(s *scene) receipt.Link {
		s.truncate(len(s.receipts()))
		s.forgetLedger()
		s.forgetActions(receipt.Start())
		return s.head()
	}
	around := []string{"reference_broken 0", effectWithoutReceipt}
	head := append([]string{"head_mismatch 0"}, around...)
	both := func(what string, do func(s *scene) receipt.Link, was, wasNot string, code int, breaks ...string) {
		running = append(running, ending{what, do, was, code, breaks})
		fresh = append(fresh, ending{what, do, wasNot, code, breaks})
	}
	both("the last receipt is deleted", func(s *scene) receipt.Link { return s.truncate(1) }, lastGone, "Receipt %d is missing", 1, head...)
	both("the last two receipts are deleted", func(s *scene) receipt.Link { return s.truncate(2) }, lastGone, "Receipt %d is missing", 1, append([]string{"reference_broken -1"}, head...)...)
	both("the Ledger is deleted", func(s *scene) receipt.Link { s.forgetLedger(); return s.head() }, disappeared, missing, 0)
	both("the last receipt is deleted, and the Ledger made to say so", short, lastGone, "An Action refers to receipt %d, which is missing", 1, around...)
	both("the last receipt, its Action and its Effect are deleted, and the Ledger made to say so", shortest, lastGone, "", 0)
	// Made again by an operator that remembers it, the Ledger has the head that is missed.
	last := func(s *scene) receipt.Link { s.forgetLedger(); return s.truncate(1) }
	running = append(running,
		ending{"the last receipt and the Ledger are deleted", last, lastGone, 1, head},
		ending{"everything is deleted", nothing, lastGone, 3, []string{"head_mismatch 0"}})
	fresh = append(fresh,
		ending{"the last receipt and the Ledger are deleted", last, missing, 1, around},
		ending{"everything is deleted", nothing, "", 0, nil})
	return running, fresh
}

// fitting is how the verification of an export ends in which every receipt fits: a file without any proves nothing.
func fitting(s *scene) int {
	GinkgoHelper()
	if len(s.receipts()) == 0 {
		return 2
	}
	return 0
}

var _ = Describe("a chain that is made to end earlier while admission is away", Ordered, ContinueOnFailure, func() {
	running, fresh := endings()
	var there, notThere []*scene
	waiting := map[*scene]*v1alpha1.Action{}
	was, left := map[*scene]receipt.Link{}, map[*scene]receipt.Link{}

	// paid makes chains whose last two receipts are those of refunds.
	paid := func(all []*scene) {
		GinkgoHelper()
		each(len(all), func(i int) {
			all[i].denied()
			all[i].committed(payment())
		})
		for _, s := range all {
			was[s] = s.noted()
		}
	}

	BeforeAll(func() {
		made := scenes(len(running)+len(fresh), func(s *scene) { s.committed(payment()) })
		there, notThere = made[:len(running)], made[len(running):]
		paid(there)
		closeGap := admissionGap("ctrlrun-records-kept", "ctrlrun-statements-kept")
		for i, e := range running {
			left[there[i]] = e.do(there[i])
		}
		closeGap()
		for i, s := range there {
			By("before anything is proposed: " + running[i].what)
			s.heldByLedger("kubectl ctrlrun ledger accept")
			waiting[s] = s.proposed(payment(), 100)
		}
	})

	noticed := func(s *scene, e ending) {
		GinkgoHelper()
		because := e.because
		if strings.Contains(because, "%d") {
			because = fmt.Sprintf(because, was[s].Seq)
		}
		s.holds(waiting[s], because)
		Expect(s.head()).To(Equal(left[s]), "something is appended to a chain in doubt")

		inCluster, offline := s.verifies()
		Expect(offline.code).To(Equal(fitting(s)), "%s", offline)
		Expect(inCluster.code).To(Equal(e.code), "%s", inCluster)
		if e.code != 0 {
			Expect(inCluster.breaks()).To(ConsistOf(at(was[s].Seq, e.breaks)))
		}
		By("and by whoever kept the head")
		inCluster, offline = s.verifies("--head", was[s].String())
		if left[s] == was[s] {
			Expect(offline.code).To(Equal(0), "%s", offline)
			return
		}
		mismatch := fmt.Sprint("head_mismatch ", was[s].Seq)
		Expect(offline.code).To(Equal(3), "%s", offline)
		Expect(offline.breaks()).To(Equal([]string{mismatch}))
		Expect(inCluster.code).To(BeElementOf(1, 3), "%s", inCluster)
		Expect(inCluster.breaks()).To(ContainElement(mismatch))
	}

	for i, e := range running {
		It("is noticed by the operator that was there: "+e.what, func() { noticed(there[i], e) })
	}

	It("is held by the next operator too, whatever it finds", func() {
		paid(notThere)
		closeGap := admissionGap("ctrlrun-records-kept", "ctrlrun-statements-kept")
		replaced(func() {
			for i, e := range fresh {
				left[notThere[i]] = e.do(notThere[i])
			}
		})
		closeGap()
		for _, s := range notThere {
			waiting[s] = s.proposed(payment(), 100)
		}
		again := map[*scene]*v1alpha1.Action{}
		for _, s := range there {
			again[s] = s.proposed(payment(), 100)
		}
		for _, s := range there {
			s.holds(again[s], "kubectl ctrlrun ledger accept")
		}
	})

	for i, e := range fresh {
		if e.because != "" {
			It("is noticed by an operator that was not there: "+e.what, func() { noticed(notThere[i], e) })
			continue
		}
		It("is not noticed by an operator that was not there: "+e.what, func() {
			s := notThere[i]
			s.reaches(waiting[s], v1alpha1.ActionClaimable)
			inCluster, offline := s.verifies()
			Expect(inCluster.code).To(Equal(0), "%s", inCluster)
			Expect(offline.code).To(Equal(fitting(s)), "%s", offline)
			By("but by whoever kept the head, for ever")
			mismatch := fmt.Sprint("head_mismatch ", was[s].Seq)
			inCluster, offline = s.verifies("--head", was[s].String())
			for _, r := range []result{inCluster, offline} {
				Expect(r.code).To(BeElementOf(1, 3), "%s", r)
				Expect(r.breaks()).To(Equal([]string{mismatch}))
			}
			for s.head().Seq <= was[s].Seq {
				s.denied()
			}
			_, offline = s.verifies("--head", was[s].String())
			Expect(offline.code).To(Equal(1), "%s", offline)
			Expect(offline.breaks()).To(Equal([]string{mismatch}))
		})
	}

	It("goes on from the head that a person accepts", func() {
		goesOn := func(s *scene, e ending) {
			GinkgoHelper()
			if e.because == "" {
				return
			}
			r := s.accepts(governor, left[s])
			Expect(r.code).To(Equal(0), "%s: %s", e.what, r)
			s.continues(left[s], 1)
			id := payment()
			s.committed(id)
			Expect(s.payments(id)).To(Equal(1))
			s.intact()
		}
		each(len(there), func(i int) { goesOn(there[i], running[i]) })
		each(len(notThere), func(i int) { goesOn(notThere[i], fresh[i]) })
	})
})
