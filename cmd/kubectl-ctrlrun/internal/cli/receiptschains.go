package cli

import (
	"maps"
	"math"
	"slices"
	"strings"

	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
	"ctrlrun.dev/operator/kernel/receipt"
)

// maxChains bounds how many chains one verification takes: anybody can write any name into a document.
const maxChains = 10_000

// noChain is the number of receipts whose documents do not say which chain they belong to.
const noChain = -1

// unplaced is how the receipts are called that belong to none of several chains.
const unplaced = "-"

// chains tells receipts of several chains apart, by what their documents say. A document that was altered is not believed:
// if there is one chain, it belongs to that.
type chains struct {
	index map[receipt.Origin]int
	all   []*oneChain
}

// oneChain is what is known of one chain while receipts are read.
type oneChain struct {
	origin receipt.Origin
	intact int
	first  receipt.Digest // of the lowest seq
	last   receipt.Digest // of the highest
	goesOn int            // the number of the chain that this one continues, or noChain
	label  string
}

func newChains() *chains { return &chains{index: map[receipt.Origin]int{}} }

// of is the number of the chain that a digest names.
func (c *chains) of(d receipt.Digest) (int, error) {
	if d.Origin.Namespace == "" {
		return noChain, nil
	}
	number, known := c.index[d.Origin]
	if !known {
		if len(c.all) == maxChains {
			return 0, exit.Errorf(exit.Usage, "there are receipts of more than %d chains: verify fewer files at once", maxChains)
		}
		number = len(c.all)
		c.index[d.Origin] = number
		c.all = append(c.all, &oneChain{origin: d.Origin, goesOn: noChain})
	}
	if d.Seq < 1 || d.Fault != "" || d.Stored != d.Computed {
		return number, nil
	}
	chain := c.all[number]
	if chain.intact == 0 || d.Seq < chain.first.Seq {
		chain.first = d
	}
	if chain.intact == 0 || d.Seq > chain.last.Seq {
		chain.last = d
	}
	chain.intact++
	return number, nil
}

// settle decides which chains there are, once all receipts were read, and gives their numbers. A namespace that was restored
// in another cluster goes on with its chain, under another cluster id.
func (c *chains) settle() []int {
	var real []int
	for number, chain := range c.all {
		if chain.intact > 0 {
			real = append(real, number)
		}
	}
	for _, later := range real {
		for _, earlier := range real {
			a, b := c.all[earlier], c.all[later]
			if earlier != later && a.origin.Namespace == b.origin.Namespace && b.first.Seq == a.last.Seq+1 && b.first.Linked && b.first.Prev == a.last.Stored {
				b.goesOn = earlier
				break
			}
		}
	}
	real = slices.DeleteFunc(real, func(number int) bool { return c.all[number].goesOn != noChain })
	slices.SortFunc(real, func(a, b int) int {
		x, y := c.all[a].origin, c.all[b].origin
		return strings.Compare(x.Namespace+"\x00"+x.ClusterID, y.Namespace+"\x00"+y.ClusterID)
	})
	for i, number := range real {
		chain := c.all[number]
		chain.label = chain.origin.Namespace
		same := func(j int) bool {
			return j >= 0 && j < len(real) && c.all[real[j]].origin.Namespace == chain.origin.Namespace
		}
		if same(i-1) || same(i+1) {
			chain.label = chain.origin.ClusterID + "/" + chain.origin.Namespace
		}
	}
	return real
}

// place is the chain among real that a receipt belongs to, or noChain.
func (c *chains) place(number int, real []int) int {
	for number != noChain && c.all[number].goesOn != noChain {
		number = c.all[number].goesOn
	}
	switch {
	case number != noChain && c.all[number].intact > 0:
		return number
	case len(real) == 1:
		return real[0]
	}
	return noChain
}

// links are heads or starts as the command line gives them: of the one chain there is, or by name.
type links struct {
	flag string
	only *receipt.Link
	of   map[string]receipt.Link
}

// parseLinks reads SEQ:HASH, or NAMESPACE=SEQ:HASH any number of times.
func parseLinks(flag string, values []string) (links, error) {
	l := links{flag: flag, of: map[string]receipt.Link{}}
	for _, value := range values {
		name, text, named := strings.Cut(value, "=")
		if !named {
			text = value
		}
		link, err := receipt.ParseLink(text)
		_, again := l.of[name]
		switch {
		case err != nil:
			return l, exit.Errorf(exit.Usage, "--%s: %w", flag, err)
		case named && (again || l.only != nil), !named && (l.only != nil || len(l.of) > 0):
			return l, exit.Errorf(exit.Usage, "--%s is given once, or once for each chain as NAMESPACE=SEQ:HASH", flag)
		case named:
			l.of[name] = link
		default:
			l.only = &link
		}
	}
	return l, nil
}

// names of the chains it names.
func (l links) names() []string { return slices.Sorted(maps.Keys(l.of)) }

// forOne is the link of the only chain there is, whatever it is called.
func (l links) forOne(label string) (*receipt.Link, bool) {
	if l.only != nil {
		return l.only, true
	}
	link, ok := l.of[label]
	return &link, ok
}

// needNames refuses a link without a name where there are several chains.
func (l links) needNames(labels []string) error {
	if l.only == nil {
		return nil
	}
	return exit.Errorf(exit.Usage, "there are %s: %s; say which one it is: --%s NAMESPACE=%s",
		count(len(labels), "chain"), strings.Join(labels, ", "), l.flag, l.only)
}

// allBut is what a verification starts after to judge receipts by their content alone.
func allBut() receipt.Link { return receipt.Link{Seq: math.MaxInt64, Hash: receipt.Genesis} }
