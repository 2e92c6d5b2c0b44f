package receipt

import (
	"strconv"
	"strings"

	"ctrlrun.dev/operator/kernel/canonical"
)

// Digest is what a verification needs of one receipt: everything but the document. It is small and of bounded size, however
// large the document is, so that receipts which come in any order can be sorted before they are judged.
type Digest struct {
	Seq      int64
	Stored   string // the hash that is stored beside the document, or ""
	Computed string // the hash the document has
	Linked   bool   // the document says what its previous hash is
	Prev     string // what it says
	Fault    string // why the document cannot be that of this seq, or ""
	Origin   Origin
}

// Origin is the chain a document says it belongs to. It is only as good as the document.
type Origin struct {
	ClusterID string
	Namespace string
}

// maxKept bounds what a Digest keeps of a document's own words. Nothing that this product writes there is longer.
const maxKept = 512

// DigestOf reads a receipt for a verification. It judges the bytes alone, so it takes documents of every schema and kind.
func DigestOf(e Entry) Digest { return digestOf(e.Seq, []byte(e.Hash), []byte(e.Document)) }

// DigestLine is ParseLine and DigestOf in one, without making the Entry. scratch is memory it may use, and what it returns is
// to be given to the next call: then reading a line needs memory for its digest only.
func DigestLine(b, scratch []byte) (Digest, []byte, error) {
	l, ok := scanLine(b, scratch)
	if !ok {
		e, err := ParseLine(b)
		if err != nil {
			return Digest{}, l.document, err
		}
		return DigestOf(e), l.document, nil
	}
	return digestOf(l.seq, l.hash, l.document), l.document, nil
}

func digestOf(seq int64, hash, document []byte) Digest {
	d := Digest{Seq: seq, Computed: canonical.Sum(document)}
	if string(hash) == d.Computed {
		d.Stored = d.Computed // one string instead of two, where many are kept
	} else {
		d.Stored = clip(hash)
	}
	o, ok := scanDocument(document)
	if !ok {
		doc, err := open(string(document))
		if err != nil {
			d.Fault = clip(err.Error())
			return d
		}
		o = outlineOf(doc)
	}
	d.Linked, d.Prev = o.linked, o.prev
	d.Origin = Origin{ClusterID: o.clusterID, Namespace: o.namespace}
	switch {
	case !o.numbered || o.seq != seq:
		d.Fault = "the document does not say seq " + strconv.FormatInt(seq, 10)
	case !o.linked:
		d.Fault = "the document does not say what its previous hash is"
	}
	return d
}

// clip copies a text, so that it does not hold the document it is part of in memory, and cuts one that is longer than it can
// honestly be. What is cut equals nothing it is compared with.
func clip[T string | []byte](s T) string {
	if len(s) <= maxKept {
		return strings.Clone(string(s))
	}
	return string(s[:maxKept]) + "..."
}
