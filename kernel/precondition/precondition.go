// Package precondition puts what an action rests on into one hash. People who approve an action were shown the world as it was
// then; the hash says whether what the action names is still that, without saying what it is.
package precondition

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"ctrlrun.dev/operator/kernel/canonical"
)

// Schema stands in what is hashed, so that a fingerprint is never the hash of anything else.
const Schema = "ctrlrun.precondition/v1"

// Ref names one part of one object.
type Ref struct {
	APIVersion, Kind, Name string
	// Pointer to the part, by RFC 6901.
	Pointer string
}

// String is the ref as people write it: apps/v1/Deployment/web#/spec/replicas.
func (r Ref) String() string {
	return r.APIVersion + "/" + r.Kind + "/" + r.Name + "#" + r.Pointer
}

// ParseRef reads what String writes.
func ParseRef(text string) (Ref, error) {
	object, pointer, found := strings.Cut(text, "#")
	words := strings.Split(object, "/")
	if !found || !strings.HasPrefix(pointer, "/") || len(words) < 3 || len(words) > 4 || slices.Contains(words, "") {
		return Ref{}, fmt.Errorf("%q is not APIVERSION/KIND/NAME#POINTER, such as apps/v1/Deployment/web#/spec/replicas or v1/ConfigMap/limits#/data/max", text)
	}
	n := len(words)
	return Ref{APIVersion: strings.Join(words[:n-2], "/"), Kind: words[n-2], Name: words[n-1], Pointer: pointer}, nil
}

// Part is one part as it was found.
type Part struct {
	Ref
	// UID of the object: one that was deleted and made again is another.
	UID string
	// Value of the part, canonical.
	Value any
}

// Fingerprint is "sha256:" and the hash of the canonical form of all parts, in the order in which the action names them. It fails
// where a value has no canonical form, such as a number that is no integer.
func Fingerprint(parts []Part) (string, error) {
	if len(parts) == 0 {
		return "", errors.New("no part is named")
	}
	objects := make([]any, len(parts))
	for i, p := range parts {
		objects[i] = map[string]any{
			"api_version": p.APIVersion, "kind": p.Kind, "name": p.Name, "pointer": p.Pointer, "uid": p.UID, "value": p.Value,
		}
	}
	return canonical.Hash(map[string]any{"schema": Schema, "state": map[string]any{"objects": objects}})
}
