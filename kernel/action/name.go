package action

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"
)

// EffectNameVersion names the derivation that EffectName does. Names live as long as the effects they name.
const EffectNameVersion = "ctrlrun.effectname/v1"

const (
	maxSlug        = 30
	nameHashLength = 20
	maxSpeaker     = 100
	speakerHead    = 60
	speakerTail    = 39
)

// EffectName is the object name of an effect key: a slug that a person recognises, and 100 bits of the key's SHA-256. Create
// of that name is the reservation, so the same key must always get the same name. Different keys could share one; whoever
// finds a record under it compares the full key.
func EffectName(key string) string {
	slug := words(key)
	if len(slug) > maxSlug {
		slug = strings.Trim(slug[:maxSlug], "-")
	}
	if slug == "" {
		slug = "k"
	}
	sum := sha256.Sum256([]byte(key))
	hash := base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:])
	return slug + "-" + strings.ToLower(hash[:nameHashLength])
}

// Speaker is the part of a statement's name that says who made it: the username's words joined by dashes, "x" if it has none,
// and shortened in the middle to 100 characters. It is not injective: it keeps people from taking each other's names by accident,
// and nothing rests on it.
func Speaker(username string) string {
	s := words(username)
	switch {
	case s == "":
		return "x"
	case len(s) > maxSpeaker:
		return s[:speakerHead] + "-" + s[len(s)-speakerTail:]
	}
	return s
}

// words are the runs of ASCII letters and digits of s, in lower case, joined by single dashes. Only ASCII is lower-cased, as
// lowerAscii does in the admission policy: a Kelvin sign is not a k.
func words(s string) string {
	var b strings.Builder
	gap := false
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			gap = true
			continue
		}
		if gap && b.Len() > 0 {
			b.WriteByte('-')
		}
		gap = false
		b.WriteByte(c)
	}
	return b.String()
}
