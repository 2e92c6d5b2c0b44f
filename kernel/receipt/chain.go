package receipt

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"strconv"
	"strings"

	"ctrlrun.dev/operator/kernel/canonical"
)

const (
	// Schema is the schema of the documents this version writes and interprets.
	Schema = "ctrlrun.dev/receipt/v1alpha1"

	// Genesis is the previous hash of the first receipt of a chain.
	Genesis = "sha256:0000000000000000000000000000000000000000000000000000000000000000"

	// MaxDocumentBytes bounds a document; Build refuses a longer one.
	MaxDocumentBytes = 1 << 20
)

// Link names one receipt by its place and its content. The Link of the last receipt of a chain is its head, and Start is
// the head of a chain without receipts.
type Link struct {
	Seq  int64
	Hash string
}

// Start is the Link before the first receipt.
func Start() Link { return Link{Seq: 0, Hash: Genesis} }

// ParseLink reads `SEQ:HASH`, for example `42:sha256:9f86d0...`, as String writes it.
func ParseLink(s string) (Link, error) {
	number, hash, found := strings.Cut(s, ":")
	if !found {
		return Link{}, fmt.Errorf("%q is not SEQ:HASH, such as 42:sha256: and 64 hexadecimal digits", s)
	}
	seq, err := strconv.ParseInt(number, 10, 64)
	if err != nil || number != strconv.FormatInt(seq, 10) {
		return Link{}, fmt.Errorf("%q is not SEQ:HASH: %q is not a decimal seq", s, number)
	}
	l := Link{Seq: seq, Hash: hash}
	if err := l.validate(); err != nil {
		return Link{}, fmt.Errorf("%q is not SEQ:HASH: %w", s, err)
	}
	return l, nil
}

// String is `SEQ:HASH`.
func (l Link) String() string { return strconv.FormatInt(l.Seq, 10) + ":" + l.Hash }

func (l Link) validate() error {
	switch {
	case l.Seq < 0:
		return fmt.Errorf("seq %d is negative", l.Seq)
	case !validHash(l.Hash):
		return fmt.Errorf("hash %q is not sha256: and 64 lower-case hexadecimal digits", l.Hash)
	case (l.Seq == 0) != (l.Hash == Genesis):
		return errors.New("seq 0 and the genesis hash go together, and only together")
	}
	return nil
}

func validHash(s string) bool {
	digits, found := strings.CutPrefix(s, "sha256:")
	if !found || len(digits) != 64 {
		return false
	}
	for i := range len(digits) {
		if c := digits[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// Name is the name a receipt is stored under: the chain's name and the seq in at least 12 digits. Creating it is what
// keeps two writers from appending at the same place.
func Name(chain string, seq int64) string { return fmt.Sprintf("%s-%012d", chain, seq) }

// Entry is one receipt as it is stored and exported: the exact document and, beside it, its hash. Seq 0 stands for a
// receipt that has no seq, and an empty Hash for one that has no hash; both are breaks that a Verifier reports.
type Entry struct {
	Seq      int64
	Hash     string
	Document string
}

// Link is the entry's place and stored hash.
func (e Entry) Link() Link { return Link{Seq: e.Seq, Hash: e.Hash} }

// Identity is what a receipt is about. It is unique in a chain: one action, for example, is never receipted twice.
type Identity struct {
	Kind       string
	SubjectUID string
	Ordinal    int64
}

func (id Identity) String() string {
	return id.Kind + "/" + id.SubjectUID + "/" + strconv.FormatInt(id.Ordinal, 10)
}

// Build makes the receipt that follows head. It sets schema, seq and prev_hash, and takes everything else as it is in
// doc, which it does not change and which must have an Identity. Values are those of package canonical.
//
// Build knows no fields; [Document.Entry] is the way to write a receipt that Parse accepts.
func Build(head Link, doc map[string]any) (Entry, error) {
	if err := head.validate(); err != nil {
		return Entry{}, fmt.Errorf("receipt after %s: the head is refused: %w", head, err)
	}
	if head.Seq == math.MaxInt64 {
		return Entry{}, fmt.Errorf("receipt after %s: there is no further seq", head)
	}
	seq := head.Seq + 1
	full := maps.Clone(doc)
	if full == nil {
		full = map[string]any{}
	}
	full["schema"] = Schema
	full["seq"] = big.NewInt(seq)
	full["prev_hash"] = head.Hash

	encoded, err := canonical.Encode(full)
	if err != nil {
		return Entry{}, fmt.Errorf("receipt %d: the document has no canonical form: %w", seq, err)
	}
	if len(encoded) > MaxDocumentBytes {
		return Entry{}, fmt.Errorf("receipt %d: the document has %d bytes, more than %d", seq, len(encoded), MaxDocumentBytes)
	}
	e := Entry{Seq: seq, Hash: canonical.Sum(encoded), Document: string(encoded)}
	// Asked of the finished entry, so that what is written is what a later fold will find.
	if _, err := IdentityOf(e); err != nil {
		return Entry{}, err
	}
	return e, nil
}

// IdentityOf reads the identity out of the document. It does so for every schema and kind, since a receipt written by a
// newer version takes part in the uniqueness too.
func IdentityOf(e Entry) (Identity, error) {
	doc, err := open(e.Document)
	if err != nil {
		return Identity{}, fmt.Errorf("receipt %d: %w", e.Seq, err)
	}
	id, err := identity(doc)
	if err != nil {
		return Identity{}, fmt.Errorf("receipt %d: %w", e.Seq, err)
	}
	return id, nil
}

func identity(doc map[string]any) (Identity, error) {
	kind, _ := doc["kind"].(string)
	subject, _ := doc["subject_uid"].(string)
	ordinal, isInteger := integer(doc["ordinal"])
	switch {
	case kind == "":
		return Identity{}, errors.New("no identity: kind is not a non-empty string")
	case subject == "":
		return Identity{}, errors.New("no identity: subject_uid is not a non-empty string")
	case !isInteger || ordinal < 0:
		return Identity{}, errors.New("no identity: ordinal is not an integer of at least 0")
	}
	return Identity{Kind: kind, SubjectUID: subject, Ordinal: ordinal}, nil
}

// open parses a document as far as the chain needs it: an object, strictly.
func open(document string) (map[string]any, error) {
	v, err := canonical.Parse([]byte(document))
	if err != nil {
		return nil, fmt.Errorf("the document is not readable: %w", err)
	}
	doc, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("the document is not a JSON object")
	}
	return doc, nil
}

func integer(v any) (int64, bool) {
	n, ok := v.(*big.Int)
	if !ok || !n.IsInt64() {
		return 0, false
	}
	return n.Int64(), true
}
