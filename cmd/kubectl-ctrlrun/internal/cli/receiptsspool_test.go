package cli

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"ctrlrun.dev/operator/kernel/receipt"
)

func hash(n int) string { return fmt.Sprintf("sha256:%064x", n) }

// Whatever stands in a digest comes back from the file as it was: what is compared and printed must not change on the way.
func TestSpooledDigestsComeBackAsTheyWere(t *testing.T) {
	for name, d := range map[string]receipt.Digest{
		"intact":               {Seq: 7, Stored: hash(7), Computed: hash(7), Linked: true, Prev: hash(6)},
		"altered":              {Seq: 7, Stored: hash(8), Computed: hash(7), Linked: true, Prev: hash(6)},
		"without a hash":       {Seq: 7, Computed: hash(7), Linked: true, Prev: hash(6)},
		"unchained":            {Computed: hash(7), Linked: true},
		"no link":              {Seq: 1 << 62, Stored: hash(7), Computed: hash(7), Fault: "the document is not readable"},
		"texts that are none":  {Seq: 7, Stored: "sha256:" + strings.Repeat("A", 64), Computed: hash(7), Linked: true, Prev: "x\x00y"},
		"half a hash":          {Seq: 7, Stored: "sha256:" + strings.Repeat("a", 63), Computed: hash(7), Linked: true, Prev: "sha256:"},
		"64 that are not hash": {Seq: 7, Stored: "sha256:" + strings.Repeat("g", 64), Computed: hash(7), Linked: true, Prev: ""},
	} {
		for _, chain := range []int{noChain, 0, 300} {
			given := spooled{chain: chain, digest: d}
			if got := readSpooled(given.append(nil)); got != given {
				t.Errorf("%s: wrote %+v, read %+v", name, given, got)
			}
		}
	}
}

func TestSpoolGivesReceiptsInTheirOrder(t *testing.T) {
	for name, limit := range map[string]int{"in memory": 1 << 20, "in a file": 64} {
		t.Run(name, func(t *testing.T) {
			s := newSpool()
			s.limit = limit
			defer s.close()
			const n = 1000
			for _, i := range rand.New(rand.NewPCG(3, 4)).Perm(n) {
				d := receipt.Digest{Seq: int64(i/2 + 1), Stored: hash(i), Computed: hash(i), Linked: true, Prev: hash(i - 1), Origin: receipt.Origin{Namespace: "x"}}
				if err := s.add(i%3, d); err != nil {
					t.Fatal(err)
				}
				if len(s.held) > limit {
					t.Fatalf("%d digests are held in memory", len(s.held))
				}
			}
			var before spooled
			count := 0
			err := s.each(func(r spooled) error {
				if count > 0 && before.compare(r) >= 0 {
					t.Fatalf("%+v comes after %+v", r, before)
				}
				if r.digest.Stored != r.digest.Computed || r.digest.Origin != (receipt.Origin{}) {
					t.Fatalf("not what was added: %+v", r)
				}
				before = r
				count++
				return nil
			})
			if err != nil || count != n {
				t.Errorf("%d of %d, %v", count, n, err)
			}
		})
	}
}

func TestSpoolLeavesNoFileBehind(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	s := newSpool()
	s.limit = 4
	for i := range 20 {
		if err := s.add(0, receipt.Digest{Seq: int64(i + 1), Stored: hash(i), Computed: hash(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.runs) == 0 {
		t.Fatal("nothing went into a file: this proves nothing")
	}
	s.close()
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
