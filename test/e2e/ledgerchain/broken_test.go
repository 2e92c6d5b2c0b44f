package ledgerchain

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/controllers/ledger"
	"ctrlrun.dev/operator/kernel/receipt"
)

// from is a chain that a process has opened at a head it trusts.
func from(ns string, head, base receipt.Link) *ledger.Chain {
	return ledger.NewChain(ns, head, base, operator(), operator())
}

var _ = Describe("a chain whose head is not there any more", func() {
	It("is broken, for whoever opens it there", func(ctx SpecContext) {
		ns := namespace()
		links := grown(ctx, ns, 3)
		_, err := from(ns, links[3], receipt.Link{}).Extend(ctx)
		Expect(err).NotTo(HaveOccurred())
		lose(ctx, ns, 3)
		_, err = from(ns, links[3], receipt.Link{}).Extend(ctx)
		Expect(err).To(MatchError(ledger.ErrBroken))
		_, _, _, err = from(ns, links[3], receipt.Link{}).Find(ctx, identity("1"), 0)
		Expect(err).To(MatchError(ledger.ErrBroken))
	})

	It("is broken, after a moment, for whoever has folded it", func(ctx SpecContext) {
		ns := namespace()
		grown(ctx, ns, 3)
		chain := fresh(ns)
		_, err := chain.Extend(ctx)
		Expect(err).NotTo(HaveOccurred())
		lose(ctx, ns, 3)
		Eventually(func() error { _, err := chain.Extend(ctx); return err }).WithContext(ctx).Should(MatchError(ledger.ErrBroken))
		_, _, _, err = chain.Find(ctx, identity("4"), 3)
		Expect(err).To(MatchError(ledger.ErrBroken), "a receipt would be appended behind a gap")
	})

	It("is broken if another receipt stands in its place", func(ctx SpecContext) {
		ns := namespace()
		links := grown(ctx, ns, 3)
		lose(ctx, ns, 3)
		_, _, err := fresh(ns).Append(ctx, links[2], denied(ns, "another"))
		Expect(err).NotTo(HaveOccurred())
		_, err = from(ns, links[3], receipt.Link{}).Extend(ctx)
		Expect(err).To(MatchError(ledger.ErrBroken))
	})
})

var _ = Describe("what follows the head", func() {
	DescribeTable("breaks the chain", func(ctx SpecContext, forge func(ns string, head receipt.Link) (receipt.Entry, receipt.Document)) {
		ns := namespace()
		links := grown(ctx, ns, 2)
		chain := from(ns, links[1], receipt.Link{})
		entry, document := forge(ns, links[2])
		plant(ctx, ns, entry, document)
		head, err := chain.Extend(ctx)
		Expect(err).To(MatchError(ledger.ErrBroken))
		Expect(head).To(Equal(links[2]), "it has folded what does not belong to it")
		_, found, _, err := chain.Find(ctx, document.Identity(), 0)
		Expect(err).To(MatchError(ledger.ErrBroken))
		Expect(found).To(BeNil())
	},
		Entry("if it does not name the head", func(ns string, head receipt.Link) (receipt.Entry, receipt.Document) {
			d := denied(ns, "foreign")
			e, err := d.Entry(receipt.Link{Seq: head.Seq, Hash: "sha256:" + strings.Repeat("f", 64)})
			Expect(err).NotTo(HaveOccurred())
			return e, d
		}),
		Entry("if its hash is not that of its document", func(ns string, head receipt.Link) (receipt.Entry, receipt.Document) {
			d := denied(ns, "foreign")
			e, err := d.Entry(head)
			Expect(err).NotTo(HaveOccurred())
			e.Document = strings.Replace(e.Document, "no policy", "No policy", 1)
			return e, d
		}),
		Entry("if it is a second receipt", func(ns string, head receipt.Link) (receipt.Entry, receipt.Document) {
			d := denied(ns, "2")
			d.Message = "again"
			e, err := d.Entry(head)
			Expect(err).NotTo(HaveOccurred())
			return e, d
		}),
		Entry("if it says another seq", func(ns string, head receipt.Link) (receipt.Entry, receipt.Document) {
			d := denied(ns, "foreign")
			e, err := d.Entry(receipt.Link{Seq: head.Seq + 1, Hash: head.Hash})
			Expect(err).NotTo(HaveOccurred())
			e.Seq = head.Seq + 1
			return e, d
		}),
	)
})

// counted counts what is read, and how.
type counted struct {
	client.Reader
	gets, lists atomic.Int64
}

func (c *counted) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	c.gets.Add(1)
	return c.Reader.Get(ctx, key, o, opts...)
}

func (c *counted) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	c.lists.Add(1)
	return c.Reader.List(ctx, list, opts...)
}

var _ = Describe("a receipt from before a process opened the chain", Ordered, func() {
	const length = 450 // three pages of a list
	var (
		ns    string
		links []receipt.Link
	)
	BeforeAll(func(ctx SpecContext) {
		ns = namespace()
		links = grown(ctx, ns, length)
	})

	DescribeTable("is found behind the floor, and its chain verified up to what is known",
		func(ctx SpecContext, floor int, listed bool) {
			reader := &counted{Reader: operator()}
			chain := ledger.NewChain(ns, links[length], receipt.Link{}, reader, operator())
			head, found, at, err := chain.Find(ctx, identity(fmt.Sprint(floor+1)), int64(floor))
			Expect(err).NotTo(HaveOccurred())
			Expect(head).To(Equal(links[length]))
			Expect(at).To(Equal(links[floor+1]))
			Expect(found.ActionName).To(Equal(fmt.Sprint(floor + 1)))
			Expect(reader.lists.Load() > 0).To(Equal(listed), "it made %d lists", reader.lists.Load())
			Expect(reader.gets.Load()).To(BeNumerically("<", 110))

			By("once: the next one is in the fold")
			before := reader.gets.Load() + reader.lists.Load()
			_, found, at, err = chain.Find(ctx, identity(fmt.Sprint(length)), int64(floor))
			Expect(err).NotTo(HaveOccurred())
			Expect(found).NotTo(BeNil())
			Expect(at).To(Equal(links[length]))
			Expect(reader.gets.Load() + reader.lists.Load() - before).To(BeNumerically("<=", 2))

			By("and what is at the floor or before is not looked for")
			_, found, _, err = chain.Find(ctx, identity("nothing"), int64(floor))
			Expect(err).NotTo(HaveOccurred())
			Expect(found).To(BeNil())
			if floor > 0 {
				_, found, _, err = ledger.NewChain(ns, links[length], receipt.Link{}, reader, operator()).Find(ctx, identity(fmt.Sprint(floor)), int64(floor))
				Expect(err).NotTo(HaveOccurred())
				Expect(found).To(BeNil())
			}
		},
		Entry("one by one, the last", length-1, false),
		Entry("one by one, as many as it takes", length-100, false),
		Entry("by a list, one more", length-101, true),
		Entry("by a list of several pages", 40, true),
		Entry("by a list of them all", 0, true),
	)

	DescribeTable("is not taken from a chain that does not lead to what is known",
		func(ctx SpecContext, floor, lost int64, replaced bool) {
			// It has just seen the head, so it does not look at it again.
			chain := from(ns, links[length], receipt.Link{})
			_, err := chain.Extend(ctx)
			Expect(err).NotTo(HaveOccurred())
			lose(ctx, ns, lost)
			if replaced {
				other := denied(ns, "another")
				e, err := other.Entry(links[lost-1])
				Expect(err).NotTo(HaveOccurred())
				plant(ctx, ns, e, other)
			}
			_, _, _, err = chain.Find(ctx, identity(fmt.Sprint(length-1)), floor)
			Expect(err).To(MatchError(ledger.ErrBroken))

			By("but taken as soon as it does again")
			lose(ctx, ns, lost)
			plant(ctx, ns, grownEntry(ns, links, lost), denied(ns, fmt.Sprint(lost)))
			_, found, _, err := chain.Find(ctx, identity(fmt.Sprint(length-1)), floor)
			Expect(err).NotTo(HaveOccurred())
			Expect(found).NotTo(BeNil())
		},
		Entry("one is missing", int64(length-50), int64(length-20), false),
		Entry("one is missing, in a list", int64(10), int64(30), false),
		Entry("the one at the floor is missing", int64(length-50), int64(length-50), false),
		Entry("the one at the floor is missing, in a list", int64(10), int64(10), false),
		Entry("the first is missing", int64(0), int64(1), false),
		Entry("the head is missing", int64(length-50), int64(length), false),
		Entry("the head is missing, in a list", int64(10), int64(length), false),
		Entry("one is another", int64(length-50), int64(length-20), true),
		Entry("one is another, in a list", int64(10), int64(30), true),
		Entry("the one at the floor is another", int64(length-50), int64(length-50), true),
		Entry("the head is another", int64(length-50), int64(length), true),
		Entry("the head is another, in a list", int64(10), int64(length), true),
	)
})

// grownEntry is what grown appended at a seq.
func grownEntry(ns string, links []receipt.Link, seq int64) receipt.Entry {
	GinkgoHelper()
	e, err := denied(ns, fmt.Sprint(seq)).Entry(links[seq-1])
	Expect(err).NotTo(HaveOccurred())
	Expect(e.Link()).To(Equal(links[seq]))
	return e
}

var _ = Describe("a chain that a person accepted", func() {
	// Of seven receipts the third is lost. A person accepted the fifth, and it went on from there.
	const accepted, length = 5, 7
	var (
		ns    string
		links []receipt.Link
	)
	BeforeEach(func(ctx SpecContext) {
		ns = namespace()
		links = grown(ctx, ns, length)
		lose(ctx, ns, 3)
	})

	It("is broken for whoever does not know of it", func(ctx SpecContext) {
		_, _, _, err := from(ns, links[length], receipt.Link{}).Find(ctx, identity("6"), 0)
		Expect(err).To(MatchError(ledger.ErrBroken))
	})

	DescribeTable("is verified from there, and looked at before", func(ctx SpecContext, action string, floor, seq int64) {
		for _, opened := range []int64{accepted, 6, length} {
			head, found, at, err := from(ns, links[opened], links[accepted]).Find(ctx, identity(action), floor)
			Expect(err).NotTo(HaveOccurred(), "opened at %d", opened)
			Expect(head).To(Equal(links[length]))
			if seq == 0 {
				Expect(found).To(BeNil(), "opened at %d", opened)
				continue
			}
			Expect(found).NotTo(BeNil(), "opened at %d", opened)
			Expect(at).To(Equal(links[seq]))
			Expect(found.ActionName).To(Equal(action))
		}
	},
		Entry("a receipt since", "6", int64(0), int64(6)),
		Entry("the last", "7", int64(5), int64(7)),
		Entry("the accepted one", "5", int64(0), int64(5)),
		Entry("one before, behind the gap", "4", int64(0), int64(4)),
		Entry("one before, in front of the gap", "2", int64(0), int64(2)),
		Entry("the first", "1", int64(0), int64(1)),
		Entry("one before, just behind the floor", "2", int64(1), int64(2)),
		Entry("one before, at the floor", "2", int64(2), int64(0)),
		Entry("the lost one", "3", int64(0), int64(0)),
		Entry("one that never was", "8", int64(0), int64(0)),
	)

	It("is broken by what is lost since", func(ctx SpecContext) {
		lose(ctx, ns, 6)
		_, _, _, err := from(ns, links[length], links[accepted]).Find(ctx, identity("1"), 0)
		Expect(err).To(MatchError(ledger.ErrBroken))
	})

	It("grows", func(ctx SpecContext) {
		chain := from(ns, links[length], links[accepted])
		result := write(ctx, chain, denied(ns, "3"), 0)
		Expect(result.err).NotTo(HaveOccurred())
		Expect(result.appended).To(BeTrue(), "the lost one is written again")
		Expect(result.link.Seq).To(Equal(int64(length + 1)))
		result = write(ctx, from(ns, links[length], links[accepted]), denied(ns, "2"), 0)
		Expect(result.err).NotTo(HaveOccurred())
		Expect(result.appended).To(BeFalse(), "a second receipt of what has one before the accepted head")
		Expect(result.link).To(Equal(links[2]))
	})
})
