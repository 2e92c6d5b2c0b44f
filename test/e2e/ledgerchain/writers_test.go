package ledgerchain

import (
	"context"
	"errors"
	"fmt"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/controllers/ledger"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/receipt"
)

// errLost is what a writer gets whose request was done, and whose response was lost.
var errLost = errors.New("the response was lost")

// turns is a connection that sends a request only when it is its turn.
type turns struct {
	client.Client
	// ask takes what the writer is about to do; go lets it.
	ask  chan struct{}
	turn chan struct{}
	// losing: the response to its first create is lost.
	losing bool
	// pending is the request it asks a turn for.
	pending request
}

// request is what a writer sends: of which receipt, "" of all of them, and whether it only reads.
type request struct {
	name  string
	reads bool
}

// commutes: it makes no difference which of the two comes first.
func (r request) commutes(other request) bool {
	return r.reads && other.reads || r.name != "" && other.name != "" && r.name != other.name
}

func (t *turns) wait(r request) {
	t.pending = r
	t.ask <- struct{}{}
	<-t.turn
}

func (t *turns) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	t.wait(request{name: key.Name, reads: true})
	return t.Client.Get(ctx, key, o, opts...)
}

func (t *turns) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	t.wait(request{reads: true})
	return t.Client.List(ctx, list, opts...)
}

func (t *turns) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	t.wait(request{name: o.GetName()})
	err := t.Client.Create(ctx, o, opts...)
	if err == nil && t.losing {
		t.losing = false
		return errLost
	}
	return err
}

// ended is what became of one writer.
type ended struct {
	link     receipt.Link
	document receipt.Document
	appended bool
	err      error
}

// write does what a pass does about its receipt: it looks for it, and appends it if it is not there, until it is.
func write(ctx context.Context, chain *ledger.Chain, document receipt.Document, floor int64) ended {
	for {
		head, found, at, err := chain.Find(ctx, document.Identity(), floor)
		if err != nil {
			return ended{err: err}
		}
		if found != nil {
			return ended{link: at, document: *found}
		}
		link, written, err := chain.Append(ctx, head, document)
		switch {
		case err == nil:
			return ended{link: link, document: written, appended: true}
		case !errors.Is(err, ledger.ErrTaken) && !errors.Is(err, errLost):
			return ended{err: err}
		}
	}
}

// writer is one of those that contend.
type writer struct {
	connection *turns
	done       chan ended
	result     *ended
}

// schedule runs writers until they have ended, one request at a time, of the writer that choose picks.
func schedule(writers []*writer, choose func(able []int) int) {
	for {
		var able []int
		for i, w := range writers {
			if w.result != nil {
				continue
			}
			select {
			case <-w.connection.ask:
				able = append(able, i)
			case e := <-w.done:
				w.result = &e
			}
		}
		if len(able) == 0 {
			return
		}
		picked := choose(able)
		for _, i := range able {
			if i != picked {
				// It asks again: nothing of it was sent.
				go func() { writers[i].connection.ask <- struct{}{} }()
			}
		}
		writers[picked].connection.turn <- struct{}{}
	}
}

// distinct leaves out orders that differ from another one only by which of two requests came first that commute.
func distinct(writers []*writer, choose func(able []int) int) func(able []int) int {
	last, did := -1, request{}
	return func(able []int) int {
		var worth []int
		for _, i := range able {
			// The other way round it is an order as well, and is tried.
			if i > last || !did.commutes(writers[i].connection.pending) {
				worth = append(worth, i)
			}
		}
		if len(worth) == 0 {
			worth = able // the other one has ended
		}
		last = choose(worth)
		did = writers[last].connection.pending
		return last
	}
}

// interleavings calls run once for each way to order the requests, and gives how many there were. run calls next for each
// decision.
func interleavings(run func(next func(able []int) int)) int {
	type branch struct {
		able  []int
		taken int
	}
	var path []branch
	for n := 1; ; n++ {
		depth := 0
		run(func(able []int) int {
			if depth == len(path) {
				path = append(path, branch{able: slices.Clone(able)})
			}
			Expect(path[depth].able).To(Equal(able), "a run is not determined by its order")
			picked := able[path[depth].taken]
			depth++
			return picked
		})
		path = path[:depth]
		for len(path) > 0 && path[len(path)-1].taken == len(path[len(path)-1].able)-1 {
			path = path[:len(path)-1]
		}
		if len(path) == 0 {
			return n
		}
		path[len(path)-1].taken++
	}
}

var _ = Describe("two writers of one chain", func() {
	const before = 2 // receipts there are when they begin
	DescribeTable("in every order of their requests, make one chain in which everything has one receipt",
		func(ctx SpecContext, second string, losing []bool, known []int64) {
			n := interleavings(func(next func([]int) int) {
				ns := namespace()
				links := grown(ctx, ns, before)
				var writers []*writer
				for i, action := range []string{"first", second} {
					w := &writer{connection: &turns{Client: operator(), ask: make(chan struct{}), turn: make(chan struct{}), losing: losing[i]}, done: make(chan ended, 1)}
					document := denied(ns, action)
					// Two passes that describe the same action do not do it alike.
					document.Message = fmt.Sprintf("as writer %d says it", i)
					chain := ledger.NewChain(ns, links[known[i]], receipt.Link{}, w.connection, w.connection)
					go func() { w.done <- write(ctx, chain, document, known[i]) }()
					writers = append(writers, w)
				}
				schedule(writers, next)

				one, two := writers[0].result, writers[1].result
				Expect(one.err).NotTo(HaveOccurred())
				Expect(two.err).NotTo(HaveOccurred())
				seen := holds(ctx, ns)
				Expect(seen).To(HaveKeyWithValue(identity("first"), one.link))
				Expect(seen).To(HaveKeyWithValue(identity(second), two.link))
				if second != "first" {
					Expect(seen).To(HaveLen(before + 2))
					Expect(one.document.Message).To(Equal("as writer 0 says it"))
					Expect(two.document.Message).To(Equal("as writer 1 says it"))
					return
				}
				Expect(seen).To(HaveLen(before + 1))
				Expect(one.document).To(Equal(two.document), "they tell their actions different ends")
				Expect(one.appended && two.appended).To(BeFalse())
				Expect(one.document.Result).To(Equal(decision.Denied))
			})
			// Each sends at least two requests, and neither waits for the other.
			Expect(n).To(BeNumerically(">=", 6))
			GinkgoWriter.Println(n, "orders")
		},
		Entry("of different actions", "second", []bool{false, false}, []int64{2, 2}),
		Entry("of the same action", "first", []bool{false, false}, []int64{2, 2}),
		Entry("of different actions, one of which has folded less", "second", []bool{false, false}, []int64{0, 2}),
		Entry("of the same action, one of which has folded less", "first", []bool{false, false}, []int64{2, 1}),
		Entry("of different actions, and a response is lost", "second", []bool{true, false}, []int64{2, 2}),
		Entry("of the same action, and a response is lost", "first", []bool{true, false}, []int64{2, 2}),
		Entry("of the same action, and both responses are lost", "first", []bool{true, true}, []int64{2, 2}),
	)

	It("do not read where one of them has just appended, and learn of the other's receipt by the conflict", func(ctx SpecContext) {
		ns := namespace()
		one, two := fresh(ns), fresh(ns)
		head := receipt.Start()
		for _, action := range []string{"first", "second"} {
			_, found, _, err := one.Find(ctx, identity(action), 0)
			Expect(err).NotTo(HaveOccurred())
			Expect(found).To(BeNil())
			head, _, err = one.Append(ctx, head, denied(ns, action))
			Expect(err).NotTo(HaveOccurred())
		}
		_, err := two.Extend(ctx)
		Expect(err).NotTo(HaveOccurred())
		theirs, _, err := two.Append(ctx, head, denied(ns, "third"))
		Expect(err).NotTo(HaveOccurred())

		seen, found, _, err := one.Find(ctx, identity("third"), 0)
		Expect(err).NotTo(HaveOccurred())
		Expect(found).To(BeNil())
		Expect(seen).To(Equal(head), "it has read again what it appended just now")
		_, _, err = one.Append(ctx, seen, denied(ns, "third"))
		Expect(err).To(MatchError(ledger.ErrTaken))
		seen, found, at, err := one.Find(ctx, identity("third"), 0)
		Expect(err).NotTo(HaveOccurred())
		Expect(found).NotTo(BeNil())
		Expect([]receipt.Link{seen, at}).To(Equal([]receipt.Link{theirs, theirs}))
	})

	It("learn that they were not the first", func(ctx SpecContext) {
		ns := namespace()
		one, two := fresh(ns), fresh(ns)
		for _, c := range []*ledger.Chain{one, two} {
			head, found, _, err := c.Find(ctx, identity("first"), 0)
			Expect(err).NotTo(HaveOccurred())
			Expect(head).To(Equal(receipt.Start()))
			Expect(found).To(BeNil())
		}
		link, document, err := one.Append(ctx, receipt.Start(), denied(ns, "first"))
		Expect(err).NotTo(HaveOccurred())
		Expect(link.Seq).To(Equal(int64(1)))
		Expect(document.Seq).To(Equal(int64(1)))
		Expect(one.Head()).To(Equal(link))

		for _, action := range []string{"second", "first"} {
			_, _, err = two.Append(ctx, receipt.Start(), denied(ns, action))
			Expect(err).To(MatchError(ledger.ErrTaken))
			Expect(two.Head()).To(Equal(receipt.Start()), "it has folded what it did not read")
		}
		head, found, at, err := two.Find(ctx, identity("first"), 0)
		Expect(err).NotTo(HaveOccurred())
		Expect(head).To(Equal(link))
		Expect(at).To(Equal(link))
		Expect(*found).To(Equal(document))
		Expect(holds(ctx, ns)).To(HaveLen(1))
	})

	It("of the same process append one after the other", func(ctx SpecContext) {
		ns := namespace()
		chain := fresh(ns)
		const writers = 8
		results := make(chan ended, writers)
		for i := range writers {
			// Each action has two passes.
			go func() { results <- write(ctx, chain, denied(ns, fmt.Sprint(i/2)), 0) }()
		}
		for range writers {
			Expect((<-results).err).NotTo(HaveOccurred())
		}
		Expect(holds(ctx, ns)).To(HaveLen(writers / 2))
		Expect(chain.Head().Seq).To(Equal(int64(writers / 2)))
	})
})

var _ = Describe("a document that no receipt takes", func() {
	It("is appended without what makes it so", func(ctx SpecContext) {
		ns := namespace()
		chain := fresh(ns)
		document := denied(ns, "first")
		document.Arguments, document.Error = map[string]any{"amount": 1.5}, "much"
		link, written, err := chain.Append(ctx, receipt.Start(), document)
		Expect(err).NotTo(HaveOccurred())
		Expect(written.Arguments).To(BeNil())
		Expect(written.Message).To(ContainSubstring("no policy names it"))
		_, found, at, err := fresh(ns).Find(ctx, identity("first"), 0)
		Expect(err).NotTo(HaveOccurred())
		Expect(at).To(Equal(link))
		Expect(*found).To(Equal(written), "what its writer goes on with is not what is stored")
		Expect(holds(ctx, ns)).To(HaveLen(1))
	})

	It("is refused if nothing can be left out", func(ctx SpecContext) {
		ns := namespace()
		document := denied(ns, "first")
		document.Environment = ""
		_, _, err := fresh(ns).Append(ctx, receipt.Start(), document)
		Expect(err).To(HaveOccurred())
		Expect(stored(ctx, ns)).To(BeEmpty())
	})
})
