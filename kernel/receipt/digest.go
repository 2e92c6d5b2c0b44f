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
func DigestOf(e Entry) Digest {
	d := Digest{Seq: e.Seq, Stored: clip(e.Hash), Computed: canonical.Sum([]byte(e.Document))}
	if d.Stored == d.Computed {
		d.Stored = d.Computed // one string instead of two, where many are kept
	}
	o, ok := scanDocument(e.Document)
	if !ok {
		doc, err := open(e.Document)
		if err != nil {
			d.Fault = clip(err.Error())
			return d
		}
		o = outlineOf(doc)
	}
	d.Linked, d.Prev = o.linked, clip(o.prev)
	d.Origin = Origin{ClusterID: clip(o.clusterID), Namespace: clip(o.namespace)}
	switch {
	case !o.numbered || o.seq != e.Seq:
		d.Fault = "the document does not say seq " + strconv.FormatInt(e.Seq, 10)
	case !o.linked:
		d.Fault = "the document does not say what its previous hash is"
	}
	return d
}

// clip copies a text, so that it does not hold the document it is part of in memory, and cuts one that is longer than it can
// honestly be. What is cut equals nothing it is compared with.
func clip(s string) string {
	if len(s) <= maxKept {
		return strings.Clone(s)
	}
	return s[:maxKept] + "..."
}
