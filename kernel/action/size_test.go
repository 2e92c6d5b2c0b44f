package action

import (
	"math/big"
	"math/rand/v2"
	"testing"

	"ctrlrun.dev/operator/kernel/canonical"
)

// What longest says of a value is never less than what the value takes.
func TestLongestIsLongEnough(t *testing.T) {
	const seed = 7
	r := rand.New(rand.NewPCG(seed, seed))
	for range 20_000 {
		v := anyValue(r, 3)
		b, err := canonical.Encode(v)
		if err != nil {
			t.Fatalf("seed %d: %v has no form: %v", seed, v, err)
		}
		if bound := longest(v); len(b) > bound {
			t.Fatalf("seed %d: %s is %d bytes long, longest says %d", seed, b, len(b), bound)
		}
	}
	for digits := range 2000 {
		n := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(digits)), nil)
		for _, v := range []*big.Int{n, new(big.Int).Neg(n), new(big.Int).Sub(n, big.NewInt(1))} {
			if b, _ := canonical.Encode(v); len(b) > longest(v) {
				t.Fatalf("%s is %d bytes long, longest says %d", v, len(b), longest(v))
			}
		}
	}
}

// What may have no form, or a long one, is left to be encoded.
func TestLongestLeavesTheRest(t *testing.T) {
	for name, v := range map[string]any{
		"a fraction":     1.5,
		"invalid text":   "\xff",
		"no number":      (*big.Int)(nil),
		"an invalid key": map[string]any{"\xff": nil},
		"a Go integer":   1,
		"many values":    make([]any, MaxArgumentsBytes),
	} {
		if n := longest(v); n <= MaxArgumentsBytes {
			t.Errorf("%s: longest says %d", name, n)
		}
	}
}

func anyValue(r *rand.Rand, depth int) any {
	kinds := 6
	if depth == 0 {
		kinds = 4
	}
	switch r.IntN(kinds) {
	case 0:
		return nil
	case 1:
		return r.IntN(2) == 0
	case 2:
		n := new(big.Int).Lsh(big.NewInt(r.Int64()), uint(r.IntN(100)))
		if r.IntN(2) == 0 {
			return n.Neg(n)
		}
		return n
	case 3:
		return anyText(r)
	case 4:
		list := make([]any, r.IntN(4))
		for i := range list {
			list[i] = anyValue(r, depth-1)
		}
		return list
	}
	object := map[string]any{}
	for range r.IntN(4) {
		object[anyText(r)] = anyValue(r, depth-1)
	}
	return object
}

func anyText(r *rand.Rand) string {
	text := make([]rune, r.IntN(6))
	for i := range text {
		text[i] = []rune{0, '\n', '"', '\\', 'a', 0x7f, 'é', 0x2028, 0x1f600}[r.IntN(9)]
	}
	return string(text)
}
