package tamper

import (
	"fmt"
	"maps"
	"math/big"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/records"
)

// chain is what is stored of one, to be tampered with: the receipt at seq is a refund that a person approved, somewhere in
// the middle.
type chain struct {
	entries map[int64]receipt.Entry
	seq     int64
}

// change replaces a document by one with other values.
func (c *chain) change(seq int64, values map[string]any) {
	GinkgoHelper()
	e := c.entries[seq]
	parsed, err := canonical.Parse([]byte(e.Document))
	Expect(err).NotTo(HaveOccurred())
	document := parsed.(map[string]any)
	maps.Copy(document, values)
	text, err := canonical.Encode(document)
	Expect(err).NotTo(HaveOccurred())
	Expect(string(text)).NotTo(Equal(e.Document), "nothing is changed")
	e.Document = string(text)
	c.entries[seq] = e
}

// value of a document.
func (c *chain) value(seq int64, key string) any {
	GinkgoHelper()
	parsed, err := canonical.Parse([]byte(c.entries[seq].Document))
	Expect(err).NotTo(HaveOccurred())
	return parsed.(map[string]any)[key]
}

// rehash stores the hash that a document has.
func (c *chain) rehash(seqs ...int64) {
	for _, seq := range seqs {
		e := c.entries[seq]
		e.Hash = canonical.Sum([]byte(e.Document))
		c.entries[seq] = e
	}
}

// swap exchanges the documents of two receipts, with their hashes.
func (c *chain) swap(a, b int64) {
	one, two := c.entries[a], c.entries[b]
	one.Seq, two.Seq = b, a
	c.entries[a], c.entries[b] = two, one
}

func number(n int64) *big.Int { return big.NewInt(n) }

// tampering is one way to change a chain, and what `receipts verify` says of it, `name offset` with the offset from the
// approved refund.
type tampering struct {
	what   string
	do     func(c *chain)
	breaks []string
	// around are the breaks that are seen only in the cluster, where Actions and Effects say what they were told.
	around []string
	// fits: nothing is wrong with what is stored. Only somebody who remembers the head can tell.
	fits bool
}

// at are breaks where the approved refund is at a seq. One that has no place stays at 0.
func at(seq int64, breaks []string) []string {
	var all []string
	for _, b := range breaks {
		if b == effectWithoutReceipt {
			all = append(all, b)
			continue
		}
		var name string
		var offset int64
		_, err := fmt.Sscan(b, &name, &offset)
		Expect(err).NotTo(HaveOccurred())
		all = append(all, fmt.Sprint(name, " ", seq+offset))
	}
	return all
}

const effectWithoutReceipt = "effect_mismatch 0"

var fields = map[string]func(c *chain){
	"arguments.amount": func(c *chain) {
		arguments := maps.Clone(c.value(c.seq, "arguments").(map[string]any))
		arguments["amount"] = number(20)
		c.change(c.seq, map[string]any{"arguments": arguments})
	},
	"decision": func(c *chain) { c.change(c.seq, map[string]any{"decision": "allow"}) },
	"approver": func(c *chain) {
		approvals := slices.Clone(c.value(c.seq, "approvals").([]any))
		Expect(approvals).To(HaveLen(1))
		first := maps.Clone(approvals[0].(map[string]any))
		Expect(first).To(HaveKey("approver"))
		first["approver"] = "somebody-else"
		approvals[0] = first
		c.change(c.seq, map[string]any{"approvals": approvals})
	},
	"finished_time": func(c *chain) { c.change(c.seq, map[string]any{"finished_time": "2020-01-01T00:00:00.000Z"}) },
}

func tamperings() []tampering {
	var all []tampering
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		alter := fields[field]
		all = append(all,
			tampering{what: field + " is altered", do: alter, breaks: []string{"content_altered 0"}},
			tampering{what: field + " is altered, and the hash with it", do: func(c *chain) { alter(c); c.rehash(c.seq) }, breaks: []string{"link_broken 1"}, around: []string{"reference_broken 0"}},
		)
	}
	both := []string{"reference_broken 0", "reference_broken 1"}
	reseq := func(c *chain) {
		c.swap(c.seq, c.seq+1)
		c.change(c.seq, map[string]any{"seq": number(c.seq)})
		c.change(c.seq+1, map[string]any{"seq": number(c.seq + 1)})
	}
	return append(all,
		tampering{what: "a receipt is deleted", do: func(c *chain) { delete(c.entries, c.seq) }, breaks: []string{"missing 0", "link_broken 1"}, around: []string{"reference_broken 0", effectWithoutReceipt}},
		tampering{what: "a receipt is deleted, and the next made to follow the one before", do: func(c *chain) {
			c.change(c.seq+1, map[string]any{"prev_hash": c.entries[c.seq-1].Hash})
			delete(c.entries, c.seq)
			c.rehash(c.seq + 1)
		}, breaks: []string{"missing 0", "link_broken 2"}, around: []string{"reference_broken 0", "reference_broken 1", effectWithoutReceipt}},
		tampering{what: "two receipts change places", do: func(c *chain) { c.swap(c.seq, c.seq+1) },
			breaks: []string{"content_altered 0", "link_broken 0", "content_altered 1", "link_broken 1", "link_broken 2"}, around: both},
		tampering{what: "two receipts change places, and say so", do: reseq,
			breaks: []string{"content_altered 0", "link_broken 0", "content_altered 1", "link_broken 1", "link_broken 2"}, around: both},
		tampering{what: "two receipts change places, and say so, with their hashes", do: func(c *chain) { reseq(c); c.rehash(c.seq, c.seq+1) },
			breaks: []string{"link_broken 0", "link_broken 1", "link_broken 2"}, around: both},
		tampering{what: "two receipts change places, and follow each other", do: func(c *chain) {
			reseq(c)
			c.change(c.seq, map[string]any{"prev_hash": c.entries[c.seq-1].Hash})
			c.rehash(c.seq)
			c.change(c.seq+1, map[string]any{"prev_hash": c.entries[c.seq].Hash})
			c.rehash(c.seq + 1)
		}, breaks: []string{"link_broken 2"}, around: both},
		tampering{what: "a receipt is altered, and all that follow with it", do: func(c *chain) {
			fields["arguments.amount"](c)
			c.rehash(c.seq)
			for seq := c.seq + 1; c.entries[seq].Seq > 0; seq++ {
				c.change(seq, map[string]any{"prev_hash": c.entries[seq-1].Hash})
				c.rehash(seq)
			}
		}, fits: true},
	)
}

// tamper rewrites what is stored of the scene's chain, as a cluster-admin whom nothing hinders. The fields beside a document
// say what it says, where it can be read.
func (s *scene) tamper(t tampering, seq int64) {
	GinkgoHelper()
	stored := s.receipts()
	c := &chain{entries: map[int64]receipt.Entry{}, seq: seq}
	for _, e := range entries(stored) {
		c.entries[e.Seq] = e
	}
	t.do(c)
	for i := range stored {
		old := &stored[i]
		e, kept := c.entries[old.Spec.Seq]
		if kept && e == records.Entry(old) {
			continue
		}
		s.erase(old)
		if !kept {
			continue
		}
		again := &v1alpha1.Receipt{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: old.Name}, Spec: old.Spec}
		again.Spec.Document, again.Spec.Hash = e.Document, e.Hash
		if d, err := receipt.Parse(e); err == nil {
			again = records.Receipt(s.ns, e, d)
		}
		Expect(env.Admin().Create(ctx, again)).To(Succeed())
	}
}

// erase deletes what nobody can delete while admission is in force. The apiserver learns by a watch that nothing forbids it.
func (s *scene) erase(o kube.Object) {
	GinkgoHelper()
	Eventually(func() error {
		err := env.Admin().Get(ctx, kube.ObjectKeyFromObject(o), o)
		if err != nil {
			return kube.IgnoreNotFound(err)
		}
		if len(o.GetFinalizers()) > 0 {
			o.SetFinalizers(nil)
			if err := env.Admin().Update(ctx, o); err != nil {
				return err
			}
		}
		return kube.IgnoreNotFound(env.Admin().Delete(ctx, o))
	}).Should(Succeed())
	Eventually(func() error { return env.Admin().Get(ctx, kube.ObjectKeyFromObject(o), o) }).Should(MatchError(ContainSubstring("not found")))
}

// grown makes a chain of an allowed, an approved and three denied refunds, and gives the seq of the approved one.
func (s *scene) grown() int64 {
	GinkgoHelper()
	s.committed(payment())
	seq := s.seqOf(s.approved(payment()))
	for range 3 {
		s.denied()
	}
	s.checkpointed()
	return seq
}

var _ = Describe("receipts that are rewritten while admission is away", Ordered, ContinueOnFailure, func() {
	all := tamperings()
	// What the running operator sees, and what one sees that was not there.
	running, fresh := map[string]*scene{}, map[string]*scene{}
	places := map[*scene]int64{}
	heads := map[*scene]receipt.Link{}
	// Proposed after the gap: what became of it is asked case by case.
	waiting := map[*scene]*v1alpha1.Action{}

	BeforeAll(func() {
		made := scenes(2*len(all), func(s *scene) { s.grown() })
		for i, t := range all {
			running[t.what], fresh[t.what] = made[i], made[len(all)+i]
		}
		for _, s := range made {
			for _, e := range entries(s.receipts()) {
				d, err := receipt.Parse(e)
				Expect(err).NotTo(HaveOccurred())
				if len(d.Approvals) > 0 {
					places[s] = e.Seq
				}
			}
			heads[s] = s.head()
			Expect(places[s]).To(BeNumerically(">", 1))
			Expect(heads[s].Seq).To(BeNumerically(">=", places[s]+3))
		}
		By("under a running operator")
		closeGap := admissionGap("ctrlrun-records-kept")
		for _, t := range all {
			running[t.what].tamper(t, places[running[t.what]])
		}
		closeGap()
		By("before anything is proposed, and then too")
		for _, t := range all {
			running[t.what].heldByLedger("kubectl ctrlrun ledger accept")
			waiting[running[t.what]] = running[t.what].proposed(payment(), 100)
		}
	})

	// noticed expects that the operator holds the namespace, and that verify names what is wrong.
	noticed := func(s *scene, t tampering) {
		GinkgoHelper()
		seq := places[s]
		because := fmt.Sprintf("receipt %s is not there any more", heads[s])
		if !t.fits {
			first := at(seq, t.breaks)[0]
			var name string
			var place int64
			_, err := fmt.Sscan(first, &name, &place)
			Expect(err).NotTo(HaveOccurred())
			because = fmt.Sprintf("%s at receipt %d", name, place)
		}
		s.holds(waiting[s], because)
		Expect(s.head().Seq).To(Equal(heads[s].Seq), "something is appended to a chain in doubt")

		inCluster, offline := s.verifies()
		withHead, offlineWithHead := s.verifies("--head", heads[s].String())
		if t.fits {
			Expect(offline.code).To(Equal(0), "%s", offline)
			mismatch := fmt.Sprint("head_mismatch ", heads[s].Seq)
			Expect(offlineWithHead.breaks()).To(Equal([]string{mismatch}))
			for _, r := range []result{inCluster, withHead} {
				Expect(r.breaks()).To(ContainElements(mismatch, fmt.Sprint("reference_broken ", seq)))
			}
			for _, r := range []result{inCluster, withHead, offlineWithHead} {
				Expect(r.code).To(Equal(1), "%s", r)
			}
			return
		}
		for _, r := range []result{inCluster, offline, withHead, offlineWithHead} {
			Expect(r.code).To(Equal(1), "%s", r)
		}
		for _, r := range []result{offline, offlineWithHead} {
			Expect(r.breaks()).To(Equal(at(seq, t.breaks)))
		}
		for _, r := range []result{inCluster, withHead} {
			Expect(r.breaks()).To(ConsistOf(at(seq, append(slices.Clone(t.breaks), t.around...))))
		}
	}

	for _, t := range all {
		It("are noticed by the operator that was there: "+t.what, func() { noticed(running[t.what], t) })
	}

	It("are accepted only by name", func() {
		s := running["decision is altered"]
		Expect(s.accepts(clerk, heads[s]).code).To(Equal(9))
		r := s.accepts(governor, heads[s])
		Expect(r.code).To(Equal(0), "%s", r)
		s.continues(heads[s], 1)
		id := payment()
		s.committed(id)
		Expect(s.payments(id)).To(Equal(1))
		By("which does not make them what they were")
		altered := []string{fmt.Sprint("content_altered ", places[s])}
		inCluster, offline := s.verifies()
		_, rest := s.verifies("--from", heads[s].String())
		for _, r := range []result{inCluster, offline, rest} {
			Expect(r.code).To(Equal(1), "%s", r)
			Expect(r.breaks()).To(Equal(altered))
		}
	})

	It("are noticed by an operator that was not there", func() {
		before := running["decision is altered"]
		for _, t := range all {
			heads[fresh[t.what]] = fresh[t.what].checkpointed() // the gap before is on record
		}
		closeGap := admissionGap("ctrlrun-records-kept")
		replaced(func() {
			for _, t := range all {
				fresh[t.what].tamper(t, places[fresh[t.what]])
			}
			By("but for those before an accepted head, which only verify names")
			before.tamper(tampering{do: fields["finished_time"]}, places[before])
			before.tamper(tampering{do: func(c *chain) { delete(c.entries, c.seq-1) }}, places[before])
		})
		closeGap()
		for _, t := range all {
			waiting[fresh[t.what]] = fresh[t.what].proposed(payment(), 100)
		}
		id := payment()
		before.committed(id)
		Expect(before.payments(id)).To(Equal(1))
		seq := places[before]
		inCluster, offline := before.verifies()
		wrong := []string{fmt.Sprint("missing ", seq-1), fmt.Sprint("content_altered ", seq), fmt.Sprint("link_broken ", seq)}
		Expect(offline.code).To(Equal(1), "%s", offline)
		Expect(offline.breaks()).To(Equal(wrong))
		Expect(inCluster.code).To(Equal(1), "%s", inCluster)
		Expect(inCluster.breaks()).To(ContainElements(wrong))
	})

	for _, t := range all {
		It("are noticed by an operator that was not there: "+t.what, func() {
			s := fresh[t.what]
			if t.fits {
				s.holds(waiting[s], fmt.Sprintf("Receipt %d is another one than it was", heads[s].Seq))
				return
			}
			noticed(s, t)
		})
	}

	It("are not noticed before an accepted head by the operator that was there either, but named by verify", func() {
		s := running["decision is altered"]
		closeGap := admissionGap("ctrlrun-records-kept")
		seq := places[s] + 1
		s.tamper(tampering{do: fields["finished_time"]}, seq)
		closeGap()
		id := payment()
		s.committed(id)
		Expect(s.payments(id)).To(Equal(1))
		inCluster, offline := s.verifies()
		for _, r := range []result{inCluster, offline} {
			Expect(r.code).To(Equal(1), "%s", r)
			Expect(r.breaks()).To(ContainElement(fmt.Sprint("content_altered ", seq)))
		}
	})
})
