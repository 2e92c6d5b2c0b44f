package cli

import (
	"bufio"
	"cmp"
	"container/heap"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"ctrlrun.dev/operator/kernel/receipt"
)

// spoolInMemory is how many digests are sorted in memory. More are kept in a temporary file, as sorted runs.
const spoolInMemory = 1 << 15

// mergeBuffers is how much memory all runs together read ahead while they are merged.
const mergeBuffers = 8 << 20

// spool brings the digests of receipts into the order of their seqs, whatever order they come in. Its memory does not grow
// with their number.
type spool struct {
	limit int
	held  []spooled
	file  *os.File
	runs  []sortedRun
	end   int64
}

// spooled is a digest, and the number of the chain its receipt names.
type spooled struct {
	chain  int
	digest receipt.Digest
}

// sortedRun is a sorted part of the file.
type sortedRun struct{ start, end int64 }

func newSpool() *spool { return &spool{limit: spoolInMemory} }

// add takes a digest. Its origin is not kept: the number of the chain stands for it.
func (s *spool) add(chain int, d receipt.Digest) error {
	d.Origin = receipt.Origin{}
	s.held = append(s.held, spooled{chain: chain, digest: d})
	if len(s.held) < s.limit {
		return nil
	}
	return s.flush()
}

func (s *spool) sortHeld() { slices.SortStableFunc(s.held, spooled.compare) }

func (a spooled) compare(b spooled) int {
	return cmp.Or(cmp.Compare(a.digest.Seq, b.digest.Seq), cmp.Compare(a.chain, b.chain),
		strings.Compare(a.digest.Stored, b.digest.Stored), strings.Compare(a.digest.Computed, b.digest.Computed))
}

// flush writes what is held as one run.
func (s *spool) flush() error {
	if s.file == nil {
		file, err := os.CreateTemp("", "ctrlrun-receipts-*")
		if err != nil {
			return fmt.Errorf("sorting receipts needs a temporary file: %w", err)
		}
		s.file = file
		// Gone at once where the system allows it, so that nothing is left behind whatever happens; else close removes it.
		_ = os.Remove(file.Name())
	}
	s.sortHeld()
	w := bufio.NewWriterSize(s.file, 1<<16)
	start := s.end
	var record []byte
	for _, r := range s.held {
		record = r.append(record[:0])
		length := binary.AppendUvarint(nil, uint64(len(record)))
		s.end += int64(len(length) + len(record))
		for _, part := range [][]byte{length, record} {
			if _, err := w.Write(part); err != nil {
				return fmt.Errorf("sorting receipts: %w", err)
			}
		}
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("sorting receipts: %w", err)
	}
	s.runs = append(s.runs, sortedRun{start, s.end})
	s.held = s.held[:0]
	return nil
}

// each gives all digests by seq, once.
func (s *spool) each(do func(spooled) error) error {
	s.sortHeld()
	if s.file == nil {
		for _, r := range s.held {
			if err := do(r); err != nil {
				return err
			}
		}
		return nil
	}
	if err := s.flush(); err != nil {
		return err
	}
	s.held = nil
	size := max(4096, mergeBuffers/len(s.runs))
	merge := make(merging, 0, len(s.runs))
	for _, r := range s.runs {
		source := &source{in: bufio.NewReaderSize(io.NewSectionReader(s.file, r.start, r.end-r.start), size)}
		more, err := source.next()
		if err != nil {
			return err
		}
		if more {
			merge = append(merge, source)
		}
	}
	heap.Init(&merge)
	for len(merge) > 0 {
		first := merge[0]
		if err := do(first.head); err != nil {
			return err
		}
		more, err := first.next()
		if err != nil {
			return err
		}
		if more {
			heap.Fix(&merge, 0)
			continue
		}
		heap.Pop(&merge)
	}
	return nil
}

func (s *spool) close() {
	if s.file != nil {
		_ = s.file.Close()
		_ = os.Remove(s.file.Name())
	}
}

// source reads one run.
type source struct {
	in     *bufio.Reader
	record []byte
	head   spooled
}

func (s *source) next() (more bool, err error) {
	length, err := binary.ReadUvarint(s.in)
	if errors.Is(err, io.EOF) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("sorting receipts: %w", err)
	}
	s.record = slices.Grow(s.record[:0], int(length))[:length]
	if _, err := io.ReadFull(s.in, s.record); err != nil {
		return false, fmt.Errorf("sorting receipts: %w", err)
	}
	s.head = readSpooled(s.record)
	return true, nil
}

// merging is the heap of the runs, the one with the lowest digest first.
type merging []*source

func (m merging) Len() int           { return len(m) }
func (m merging) Less(i, j int) bool { return m[i].head.compare(m[j].head) < 0 }
func (m merging) Swap(i, j int)      { m[i], m[j] = m[j], m[i] }
func (m *merging) Push(x any)        { *m = append(*m, x.(*source)) }
func (m *merging) Pop() any {
	last := (*m)[len(*m)-1]
	*m = (*m)[:len(*m)-1]
	return last
}

// append writes a record. The hashes of an intact receipt take 32 bytes each.
func (a spooled) append(b []byte) []byte {
	d := a.digest
	b = binary.AppendVarint(b, int64(a.chain))
	b = binary.AppendVarint(b, d.Seq)
	b = appendHash(b, d.Computed)
	if d.Stored == d.Computed {
		b = append(b, 1)
	} else {
		b = appendHash(append(b, 0), d.Stored)
	}
	if d.Linked {
		b = appendHash(append(b, 1), d.Prev)
	} else {
		b = append(b, 0)
	}
	return append(b, d.Fault...)
}

// readSpooled reads what append wrote into a file that nobody else has.
func readSpooled(b []byte) spooled {
	chain, n := binary.Varint(b)
	b = b[n:]
	r := spooled{chain: int(chain)}
	d := &r.digest
	d.Seq, n = binary.Varint(b)
	d.Computed, b = readHash(b[n:])
	same := b[0] == 1
	if b = b[1:]; same {
		d.Stored = d.Computed
	} else {
		d.Stored, b = readHash(b)
	}
	d.Linked = b[0] == 1
	if b = b[1:]; d.Linked {
		d.Prev, b = readHash(b)
	}
	d.Fault = string(b)
	return r
}

const hashPrefix = "sha256:"

// appendHash writes 0 and the 32 bytes of a hash, or the length of any other text plus one, and the text.
func appendHash(b []byte, s string) []byte {
	if digits, found := strings.CutPrefix(s, hashPrefix); found && len(digits) == 64 && strings.ToLower(digits) == digits {
		if raw, err := hex.DecodeString(digits); err == nil {
			return append(append(b, 0), raw...)
		}
	}
	return append(binary.AppendUvarint(b, uint64(len(s))+1), s...)
}

func readHash(b []byte) (string, []byte) {
	length, n := binary.Uvarint(b)
	if b = b[n:]; length > 0 {
		return string(b[:length-1]), b[length-1:]
	}
	out := make([]byte, 0, len(hashPrefix)+64)
	return string(hex.AppendEncode(append(out, hashPrefix...), b[:32])), b[32:]
}
