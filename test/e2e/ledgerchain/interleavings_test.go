package ledgerchain

import (
	"context"
	"errors"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/controllers/ledger"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/receipt"
)

// errDead is what a process gets for its requests once it has died.
var errDead = errors.New("the process is dead")

// mortal is a connection of a process that dies at one of its requests, counted from 1: before it is sent, or after it was
// done and before its response is seen. At request 0 it never dies.
type mortal struct {
	*turns
	at    int
	after bool

	requests int
	dead     bool
}

func (m *mortal) request(do func() error) error {
	m.requests++
	if m.requests == m.at && !m.after {
		m.dead = true
	}
	if m.dead {
		return errDead
	}
	err := do()
	if m.requests == m.at {
		m.dead = true
		return errDead
	}
	return err
}

func (m *mortal) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	return m.request(func() error { return m.turns.Get(ctx, key, o, opts...) })
}

func (m *mortal) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return m.request(func() error { return m.turns.List(ctx, list, opts...) })
}

func (m *mortal) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	return m.request(func() error { return m.turns.Create(ctx, o, opts...) })
}

// death is where a process dies.
type death struct {
	at    int
	after bool
}

// writing is one that contends for the end of a chain with some receipts to write, one after the other.
type writing struct {
	actions []string
	// losing: the response to its first create is lost.
	losing bool
	// dies: then another process takes over that knows no more than the first did when it began.
	dies death

	results []ended
}

// begin starts it at a head it trusts. What it does waits for its turn.
func (w *writing) begin(ctx context.Context, ns, name string, head receipt.Link) *writer {
	c := &turns{Client: operator(), ask: make(chan struct{}), turn: make(chan struct{}), losing: w.losing}
	contender := &writer{connection: c, done: make(chan ended, 1)}
	go func() {
		process := &mortal{turns: c, at: w.dies.at, after: w.dies.after}
		chain := ledger.NewChain(ns, head, receipt.Link{}, process, process)
		for i := 0; i < len(w.actions); {
			document := denied(ns, w.actions[i])
			document.Message = "as " + name + " says it"
			result := write(ctx, chain, document, head.Seq)
			if errors.Is(result.err, errDead) {
				// It begins with the first again: nobody remembers what the dead one did.
				i, w.results, process = 0, nil, &mortal{turns: c}
				chain = ledger.NewChain(ns, head, receipt.Link{}, process, process)
				continue
			}
			w.results = append(w.results, result)
			if result.err != nil {
				break
			}
			i++
		}
		contender.done <- ended{}
	}()
	return contender
}

// interference is what somebody does who is no writer, in one moment.
func interference(do func()) *writer {
	c := &turns{ask: make(chan struct{}), turn: make(chan struct{})}
	w := &writer{connection: c, done: make(chan ended, 1)}
	go func() {
		defer GinkgoRecover()
		c.wait(request{})
		do()
		w.done <- ended{}
	}()
	return w
}

// after reads what was appended since a head.
func after(ctx context.Context, ns string, head receipt.Link) []receipt.Entry {
	GinkgoHelper()
	var all []receipt.Entry
	for seq := head.Seq + 1; ; seq++ {
		e, ok, err := ledger.Get(ctx, env.Admin(), ns, seq)
		Expect(err).NotTo(HaveOccurred())
		if !ok {
			return all
		}
		all = append(all, e)
	}
}

// continued expects that what was appended since a head continues it without a gap or a fork, and gives what each is about.
func continued(ctx context.Context, ns string, head receipt.Link) map[receipt.Identity]receipt.Link {
	GinkgoHelper()
	seen := map[receipt.Identity]receipt.Link{}
	entries := after(ctx, ns, head)
	Expect(receipt.Verify(entries, receipt.Options{From: head}).Breaks).To(BeEmpty())
	for _, e := range entries {
		id, err := receipt.IdentityOf(e)
		Expect(err).NotTo(HaveOccurred())
		Expect(seen).NotTo(HaveKey(id), "a second receipt at %d", e.Seq)
		seen[id] = e.Link()
	}
	return seen
}

var _ = Describe("two writers of two receipts each", func() {
	DescribeTable("in every order of their requests, make one chain in which everything has one receipt",
		func(ctx SpecContext, one, two writing) {
			ns := namespace()
			head := grown(ctx, ns, 1)[1]
			run := 0
			n := interleavings(func(next func([]int) int) {
				run++
				named := func(w writing) *writing {
					var actions []string
					for _, a := range w.actions {
						actions = append(actions, fmt.Sprintf("%s-%d", a, run))
					}
					w.actions = actions
					return &w
				}
				first, second := named(one), named(two)
				writers := []*writer{first.begin(ctx, ns, "first", head), second.begin(ctx, ns, "second", head)}
				schedule(writers, distinct(writers, next))

				seen := continued(ctx, ns, head)
				about := map[receipt.Identity]bool{}
				said := map[string]string{}
				for _, w := range []*writing{first, second} {
					Expect(w.results).To(HaveLen(len(w.actions)))
					for i, r := range w.results {
						Expect(r.err).NotTo(HaveOccurred())
						Expect(seen).To(HaveKeyWithValue(identity(w.actions[i]), r.link))
						about[identity(w.actions[i])] = true
						if before, ok := said[w.actions[i]]; ok {
							Expect(r.document.Message).To(Equal(before), "they tell their actions different ends")
						}
						said[w.actions[i]] = r.document.Message
					}
				}
				Expect(seen).To(HaveLen(len(about)))
				for _, link := range seen {
					if link.Seq > head.Seq {
						head = link
					}
				}
			})
			holds(ctx, ns)
			AddReportEntry("orders", n)
			Expect(n).To(BeNumerically(">", 10), "they do not contend")
		},
		Entry("of four actions", writing{actions: []string{"a", "b"}}, writing{actions: []string{"c", "d"}}),
		Entry("of the same two actions", writing{actions: []string{"a", "b"}}, writing{actions: []string{"a", "b"}}),
		Entry("of the same two actions the other way round", writing{actions: []string{"a", "b"}}, writing{actions: []string{"b", "a"}}),
		Entry("of two actions, one of them shared, and a response is lost", writing{actions: []string{"a", "b"}, losing: true}, writing{actions: []string{"b", "c"}}),
	)

	// A writer that nobody disturbs makes four requests: it looks for the next receipt, and creates it, twice.
	for at := 1; at <= 4; at++ {
		for _, after := range []bool{false, true} {
			when := map[bool]string{false: "before it is sent", true: "before its response is seen"}[after]
			It(fmt.Sprintf("do so although one dies at its request %d, %s, and another takes over", at, when), func(ctx SpecContext) {
				for _, other := range []string{"a", "b", "c"} {
					ns := namespace()
					head := grown(ctx, ns, 1)[1]
					run := 0
					interleavings(func(next func([]int) int) {
						run++
						name := func(a string) string { return fmt.Sprintf("%s-%d", a, run) }
						one := &writing{actions: []string{name("a"), name("b")}, dies: death{at: at, after: after}}
						two := &writing{actions: []string{name(other)}}
						writers := []*writer{one.begin(ctx, ns, "first", head), two.begin(ctx, ns, "second", head)}
						schedule(writers, distinct(writers, next))
						seen := continued(ctx, ns, head)
						for _, w := range []*writing{one, two} {
							Expect(w.results).To(HaveLen(len(w.actions)))
							for i, r := range w.results {
								Expect(r.err).NotTo(HaveOccurred())
								Expect(seen).To(HaveKeyWithValue(identity(w.actions[i]), r.link))
							}
						}
						want := 2
						if other == "c" {
							want = 3
						}
						Expect(seen).To(HaveLen(want))
						head = receipt.Link{Seq: head.Seq + int64(want), Hash: hashAt(ctx, ns, head.Seq+int64(want))}
					})
					holds(ctx, ns)
				}
			})
		}
	}
})

// hashAt is the hash of a receipt.
func hashAt(ctx context.Context, ns string, seq int64) string {
	GinkgoHelper()
	e, ok, err := ledger.Get(ctx, env.Admin(), ns, seq)
	Expect(err).NotTo(HaveOccurred())
	Expect(ok).To(BeTrue())
	return e.Hash
}

var _ = Describe("a writer whom somebody else interferes with", func() {
	last := func(ctx context.Context, ns string, start receipt.Link) receipt.Link {
		all := after(ctx, ns, start)
		if len(all) == 0 {
			return start
		}
		return all[len(all)-1].Link()
	}

	// What a foreign writer makes the receipt after a head. With admission in force only an operator writes receipts.
	DescribeTable("finds, whenever it happens, at the end of its chain",
		func(ctx SpecContext, make func(ns string, head receipt.Link, action string) (receipt.Entry, receipt.Document), joins bool) {
			n := interleavings(func(next func([]int) int) {
				ns := namespace()
				start := grown(ctx, ns, 1)[1]
				w := &writing{actions: []string{"a", "b"}}
				var foreign receipt.Entry
				schedule([]*writer{w.begin(ctx, ns, "the writer", start), interference(func() {
					head := last(ctx, ns, start)
					var d receipt.Document
					foreign, d = make(ns, head, "b")
					plant(ctx, ns, foreign, d)
				})}, next)

				entries := after(ctx, ns, start)
				Expect(entries).To(ContainElement(foreign))
				if joins {
					seen := continued(ctx, ns, start)
					Expect(w.results).To(HaveLen(2))
					for i, r := range w.results {
						Expect(r.err).NotTo(HaveOccurred())
						Expect(seen).To(HaveKeyWithValue(identity(w.actions[i]), r.link))
					}
					return
				}
				By("and appends nothing after it")
				Expect(entries[len(entries)-1]).To(Equal(foreign))
				continuedUpTo := entries[:len(entries)-1]
				Expect(receipt.Verify(continuedUpTo, receipt.Options{From: start}).Breaks).To(BeEmpty())
				if len(continuedUpTo) < 2 {
					Expect(w.results[len(w.results)-1].err).To(MatchError(ledger.ErrBroken))
				}
				_, err := ledger.NewChain(ns, start, receipt.Link{}, operator(), operator()).Extend(ctx)
				Expect(err).To(MatchError(ledger.ErrBroken), "the next process does not see it")
			})
			AddReportEntry("orders", n)
			Expect(n).To(BeNumerically(">=", 5))
		},
		Entry("a receipt like any other, and goes on after it", func(ns string, head receipt.Link, _ string) (receipt.Entry, receipt.Document) {
			d := denied(ns, "foreign")
			e, err := d.Entry(head)
			Expect(err).NotTo(HaveOccurred())
			return e, d
		}, true),
		Entry("a forked one", func(ns string, head receipt.Link, _ string) (receipt.Entry, receipt.Document) {
			d := denied(ns, "foreign")
			e, err := d.Entry(receipt.Link{Seq: head.Seq, Hash: canonical.Sum([]byte("another past"))})
			Expect(err).NotTo(HaveOccurred())
			return e, d
		}, false),
		Entry("a second one of what has one already", func(ns string, head receipt.Link, _ string) (receipt.Entry, receipt.Document) {
			d := denied(ns, "1") // before the head the writer trusts
			e, err := d.Entry(head)
			Expect(err).NotTo(HaveOccurred())
			return e, d
		}, true),
		Entry("one that says nothing of what it is about", func(ns string, head receipt.Link, _ string) (receipt.Entry, receipt.Document) {
			text := fmt.Sprintf(`{"prev_hash":%q,"seq":%d}`, head.Hash, head.Seq+1)
			return receipt.Entry{Seq: head.Seq + 1, Hash: canonical.Sum([]byte(text)), Document: text}, denied(ns, "foreign")
		}, false),
		Entry("one that cannot be read", func(ns string, head receipt.Link, _ string) (receipt.Entry, receipt.Document) {
			return receipt.Entry{Seq: head.Seq + 1, Hash: canonical.Sum([]byte("garbage")), Document: "garbage"}, denied(ns, "foreign")
		}, false),
	)

	It("takes over a receipt that somebody else has written of its action, whenever it happens", func(ctx SpecContext) {
		interleavings(func(next func([]int) int) {
			ns := namespace()
			start := grown(ctx, ns, 1)[1]
			w := &writing{actions: []string{"a", "b"}}
			planted := false
			schedule([]*writer{w.begin(ctx, ns, "the writer", start), interference(func() {
				for _, e := range after(ctx, ns, start) {
					if id, err := receipt.IdentityOf(e); err == nil && id == identity("b") {
						return // too late: it would be a second one
					}
				}
				d := denied(ns, "b")
				d.Message = "as a stranger says it"
				e, err := d.Entry(last(ctx, ns, start))
				Expect(err).NotTo(HaveOccurred())
				plant(ctx, ns, e, d)
				planted = true
			})}, next)
			seen := continued(ctx, ns, start)
			Expect(seen).To(HaveLen(2))
			Expect(w.results).To(HaveLen(2))
			for i, r := range w.results {
				Expect(r.err).NotTo(HaveOccurred())
				Expect(seen).To(HaveKeyWithValue(identity(w.actions[i]), r.link))
			}
			if planted {
				Expect(w.results[1].document.Message).To(Equal("as a stranger says it"))
			}
		})
	})

	It("appends nothing twice, whenever a receipt in the middle is deleted", func(ctx SpecContext) {
		interleavings(func(next func([]int) int) {
			ns := namespace()
			links := grown(ctx, ns, 3)
			// What it looks for may be anywhere, so it has to read all of it.
			c := &turns{Client: operator(), ask: make(chan struct{}), turn: make(chan struct{})}
			w := &writer{connection: c, done: make(chan ended, 1)}
			document := denied(ns, "2") // has a receipt: the one that is deleted
			go func() {
				w.done <- write(ctx, ledger.NewChain(ns, links[3], receipt.Link{}, c, c), document, 0)
			}()
			schedule([]*writer{w, interference(func() {
				Expect(env.Admin().Delete(ctx, &v1alpha1.Receipt{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: receipt.Name(ns, 2)}})).To(Succeed())
			})}, next)
			Expect(stored(ctx, ns)).To(HaveLen(2), "it is written again behind a gap")
			if w.result.err == nil {
				Expect(w.result.appended).To(BeFalse())
				Expect(w.result.link).To(Equal(links[2]), "it was read before it was deleted")
				return
			}
			Expect(w.result.err).To(MatchError(ledger.ErrBroken))
		})
	})

	It("leaves a gap that everybody else sees, if the head is deleted in the moment in which it is trusted", func(ctx SpecContext) {
		ns := namespace()
		links := grown(ctx, ns, 2)
		chain := from(ns, links[2], receipt.Link{})
		head, found, _, err := chain.Find(ctx, identity("3"), 2)
		Expect(err).NotTo(HaveOccurred())
		Expect(found).To(BeNil())
		lose(ctx, ns, 2)
		_, _, err = chain.Append(ctx, head, denied(ns, "3"))
		Expect(err).NotTo(HaveOccurred())
		report := receipt.Verify(stored(ctx, ns), receipt.Options{})
		Expect(report.Breaks).NotTo(BeEmpty())
		Expect(report.Breaks[0].Name).To(Equal(receipt.Missing))
		Expect(report.Breaks[0].Seq).To(Equal(int64(2)))
		_, err = from(ns, links[2], receipt.Link{}).Extend(ctx)
		Expect(err).To(MatchError(ledger.ErrBroken))
	})
})
