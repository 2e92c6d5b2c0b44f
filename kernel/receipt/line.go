package receipt

import (
	"errors"
	"fmt"
	"strconv"

	"ctrlrun.dev/operator/kernel/canonical"
)

// Line is the exported form of one receipt, without a line end: one JSON object with exactly the members seq, hash and
// document, in this order. It refuses only what JSON cannot carry, so that a damaged store can be exported as it is.
func Line(e Entry) ([]byte, error) {
	hash, err := canonical.Encode(e.Hash)
	if err != nil {
		return nil, fmt.Errorf("receipt %d: the hash cannot be written: %w", e.Seq, err)
	}
	document, err := canonical.Encode(e.Document)
	if err != nil {
		return nil, fmt.Errorf("receipt %d: the document cannot be written: %w", e.Seq, err)
	}
	line := make([]byte, 0, len(document)+len(hash)+48)
	line = append(line, `{"seq":`...)
	line = strconv.AppendInt(line, e.Seq, 10)
	line = append(line, `,"hash":`...)
	line = append(line, hash...)
	line = append(line, `,"document":`...)
	line = append(line, document...)
	return append(line, '}'), nil
}

// ParseLine reads one exported line. A seq or hash that is absent or null becomes 0 or empty: such a receipt can be read,
// and a Verifier has a name for what is wrong with it. A line without a document, with another member or with a value of
// another type is refused, because nobody can say what it was meant to prove.
func ParseLine(b []byte) (Entry, error) {
	if l, ok := scanLine(b, nil); ok {
		return Entry{Seq: l.seq, Hash: string(l.hash), Document: string(l.document)}, nil
	}
	v, err := canonical.Parse(b)
	if err != nil {
		return Entry{}, fmt.Errorf("not a receipt line: %w", err)
	}
	members, ok := v.(map[string]any)
	if !ok {
		return Entry{}, errors.New("not a receipt line: it is not a JSON object")
	}
	for name := range members {
		switch name {
		case "seq", "hash", "document":
		default:
			return Entry{}, errors.New("not a receipt line: only seq, hash and document may stand in it")
		}
	}
	var e Entry
	if e.Document, ok = members["document"].(string); !ok {
		return Entry{}, errors.New("not a receipt line: document is not a string")
	}
	if hash := members["hash"]; hash != nil {
		if e.Hash, ok = hash.(string); !ok {
			return Entry{}, errors.New("not a receipt line: hash is not a string")
		}
	}
	if seq := members["seq"]; seq != nil {
		if e.Seq, ok = integer(seq); !ok || e.Seq < 0 {
			return Entry{}, errors.New("not a receipt line: seq is not a 64-bit integer of at least 0")
		}
	}
	return e, nil
}
