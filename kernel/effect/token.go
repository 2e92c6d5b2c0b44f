package effect

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"strconv"

	"ctrlrun.dev/operator/kernel/canonical"
)

// TokenSchema is the schema tag inside the hashed text of a token.
const TokenSchema = "ctrlrun.idempotency/v1"

// Token is the idempotency token of one attempt at one effect: a UUID of version 8 made of the first 16 bytes of the SHA-256
// of the canonical {attempt, effect_key, schema}. It is derived, so every process that knows key and attempt computes
// the same one, and it does not contain the key, which may hold personal data.
//
// A token is a handle for asking a remote whether this attempt happened. It does not make repeating the attempt safe.
func Token(key string, attempt *big.Int) (string, error) {
	if key == "" {
		return "", errors.New("the effect key is empty; an action without effect key has no token")
	}
	if attempt == nil || attempt.Sign() <= 0 {
		return "", fmt.Errorf("attempt %v is below 1; attempts are counted from 1", attempt)
	}
	text, err := canonical.Encode(map[string]any{"schema": TokenSchema, "effect_key": key, "attempt": attempt})
	if err != nil {
		return "", fmt.Errorf("no token for this effect key: %w", err)
	}
	sum := sha256.Sum256(text)
	id := sum[:16]
	id[6] = id[6]&0x0f | 0x80 // version 8: custom
	id[8] = id[8]&0x3f | 0x80 // the variant of RFC 9562
	out := make([]byte, 0, 36)
	for i, group := range [][]byte{id[:4], id[4:6], id[6:8], id[8:10], id[10:]} {
		if i > 0 {
			out = append(out, '-')
		}
		out = hex.AppendEncode(out, group)
	}
	return string(out), nil
}

// ParseAttempt reads an attempt number: decimal digits without sign and without leading zero, at least 1, of any size up to
// canonical.MaxDigits.
func ParseAttempt(s string) (*big.Int, error) {
	if s == "" {
		return nil, errors.New("the attempt is empty; write a whole number, 1 or more")
	}
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return nil, fmt.Errorf("the attempt %s is not a whole number; write decimal digits only, without sign", strconv.Quote(s))
		}
	}
	switch {
	case s[0] == '0':
		return nil, fmt.Errorf("the attempt %s begins with a zero; attempts are counted from 1 and written without leading zeros", strconv.Quote(s))
	case len(s) > canonical.MaxDigits:
		return nil, fmt.Errorf("the attempt has %d digits, and %d are the limit", len(s), canonical.MaxDigits)
	}
	n, _ := new(big.Int).SetString(s, 10) // digits only: cannot fail
	return n, nil
}
