// Package action is the model of what an agent proposes to do, and the one hash that names it exactly.
//
// A Proposal is content only: who, what, with which arguments, on which resource, in which environment. It carries no
// identity and no time, so two proposals of the same content have the same hash, and any difference in content gives another
// hash. An approval binds to that hash.
//
// The package also holds what is derived from a proposal by name: effect and resource templates, the object name of an
// effect key, and the speaker part of a statement's name.
package action

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"ctrlrun.dev/operator/kernel/canonical"
)

// Schema is the schema tag inside the hashed document.
const Schema = "ctrlrun.action/v1"

// DefaultEnvironment is the environment of a document that names none.
const DefaultEnvironment = "production"

const (
	// MaxArgumentsBytes bounds the canonical text of the arguments.
	MaxArgumentsBytes = 64 << 10
	// MaxArgumentsDepth bounds the nesting of the arguments; the arguments object itself is the first level.
	MaxArgumentsDepth = 32
)

// Principal is who acts: the authenticated agent, and the human on whose behalf, if there is one.
type Principal struct {
	Agent string
	User  *string
}

// Proposal is what an agent wants to do. Its Arguments hold canonical values; treat them as read-only once hashed.
type Proposal struct {
	Name        string
	Arguments   map[string]any
	Principal   Principal
	Resource    *string
	Environment string
}

// ParseDocument reads an action document: a JSON object with the members name, arguments, principal {agent, user}, resource
// and environment. An omitted user or resource is null, an omitted environment is DefaultEnvironment, every other member is
// required, and unknown members are refused. The size limits are not looked at; see CheckSize.
func ParseDocument(data []byte) (Proposal, error) {
	v, err := canonical.Parse(data)
	if err != nil {
		return Proposal{}, fmt.Errorf("not an action document: %w", err)
	}
	doc, ok := v.(map[string]any)
	if !ok {
		return Proposal{}, fmt.Errorf("not an action document: it is %s; write an object with name, arguments and principal", describe(v))
	}
	if _, ok := doc["schema"]; ok {
		return Proposal{}, errors.New("schema is not a member of an action document: it is added when the action is hashed; remove it")
	}
	if err := closed(doc, "", "name", "arguments", "principal", "resource", "environment"); err != nil {
		return Proposal{}, err
	}
	p := Proposal{Environment: DefaultEnvironment}
	if p.Name, err = requiredString(doc, "", "name"); err != nil {
		return Proposal{}, err
	}
	switch args := doc["arguments"].(type) {
	case map[string]any:
		p.Arguments = args
	default:
		if _, present := doc["arguments"]; !present {
			return Proposal{}, errors.New("arguments is missing; write {} for an action without arguments")
		}
		return Proposal{}, fmt.Errorf("arguments must be an object, not %s", describe(args))
	}
	principal, ok := doc["principal"].(map[string]any)
	if !ok {
		if _, present := doc["principal"]; !present {
			return Proposal{}, errors.New(`principal is missing; an action cannot exist without one: write {"agent": "..."}`)
		}
		return Proposal{}, fmt.Errorf(`principal must be an object {"agent": "...", "user": null}, not %s`, describe(doc["principal"]))
	}
	if err := closed(principal, "principal.", "agent", "user"); err != nil {
		return Proposal{}, err
	}
	if p.Principal.Agent, err = requiredString(principal, "principal.", "agent"); err != nil {
		return Proposal{}, err
	}
	if p.Principal.User, err = nullableString(principal, "principal.", "user"); err != nil {
		return Proposal{}, err
	}
	if p.Resource, err = nullableString(doc, "", "resource"); err != nil {
		return Proposal{}, err
	}
	if _, present := doc["environment"]; present {
		if p.Environment, err = requiredString(doc, "", "environment"); err != nil {
			return Proposal{}, err
		}
	}
	return p, p.Validate()
}

// closed refuses members of doc that are not among known.
func closed(doc map[string]any, prefix string, known ...string) error {
	var unknown []string
	for k := range doc {
		if !slices.Contains(known, k) {
			unknown = append(unknown, prefix+k)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	slices.Sort(unknown)
	return fmt.Errorf("unknown member %s: the members are %s%s; remove it or correct its spelling",
		strconv.Quote(unknown[0]), prefix, strings.Join(known, ", "+prefix))
}

func requiredString(doc map[string]any, prefix, key string) (string, error) {
	v, present := doc[key]
	if !present {
		return "", fmt.Errorf("%s%s is missing; it must be a non-empty string", prefix, key)
	}
	s, ok := v.(string)
	if !ok {
		return "", fmt.Errorf("%s%s must be a non-empty string, not %s", prefix, key, describe(v))
	}
	if s == "" {
		return "", fmt.Errorf("%s%s is empty; it must be a non-empty string", prefix, key)
	}
	return s, nil
}

func nullableString(doc map[string]any, prefix, key string) (*string, error) {
	v := doc[key]
	if v == nil {
		return nil, nil
	}
	s, ok := v.(string)
	if !ok {
		return nil, fmt.Errorf("%s%s must be null or a non-empty string, not %s", prefix, key, describe(v))
	}
	if s == "" {
		return nil, fmt.Errorf("%s%s is empty; leave it out, or write null or a non-empty string", prefix, key)
	}
	return &s, nil
}

// describe names the type of a canonical value for a message.
func describe(v any) string {
	switch x := v.(type) {
	case nil:
		return "null"
	case bool:
		return "a bool"
	case string:
		if x == "" {
			return "an empty string"
		}
		return "a string"
	case *big.Int, int, int64, uint64:
		return "an integer"
	case []any, []string:
		return "a list"
	case map[string]any, map[string]string:
		return "an object"
	}
	return fmt.Sprintf("a %T", v)
}

// Validate says whether p is a well-formed action: everything named that must be, and a canonical form for every argument.
// Strings are not trimmed, so " " is not empty.
func (p Proposal) Validate() error {
	for _, f := range []struct {
		field    string
		value    *string
		nullable bool
	}{
		{"name", &p.Name, false},
		{"principal.agent", &p.Principal.Agent, false},
		{"principal.user", p.Principal.User, true},
		{"resource", p.Resource, true},
		{"environment", &p.Environment, false},
	} {
		switch {
		case f.value == nil:
		case *f.value == "" && f.nullable:
			return fmt.Errorf("%s is empty; it must be null or a non-empty string", f.field)
		case *f.value == "":
			return fmt.Errorf("%s is empty; it must be a non-empty string", f.field)
		case !utf8.ValidString(*f.value):
			return fmt.Errorf("%s is not valid UTF-8; encode it as UTF-8", f.field)
		}
	}
	if p.Arguments == nil {
		return errors.New("arguments is missing; use an empty object for an action without arguments")
	}
	if _, err := p.CanonicalArguments(); err != nil {
		return fmt.Errorf("arguments: %w", err)
	}
	return nil
}

// CheckSize says whether the arguments are within MaxArgumentsBytes and MaxArgumentsDepth. It is apart from Validate because
// an action beyond the limits still has a hash, under which it can be denied.
func CheckSize(arguments map[string]any) error {
	if d := depth(arguments); d > MaxArgumentsDepth {
		return fmt.Errorf("the arguments are nested %d deep, and %d levels are the limit: pass a reference to the data instead of the data", d, MaxArgumentsDepth)
	}
	if longest(arguments) <= MaxArgumentsBytes {
		return nil
	}
	b, err := canonical.Encode(arguments)
	if err != nil {
		return fmt.Errorf("arguments: %w", err)
	}
	if len(b) > MaxArgumentsBytes {
		return fmt.Errorf("the arguments are %d bytes long in canonical form, and %d are the limit: pass a reference to the data instead of the data",
			len(b), MaxArgumentsBytes)
	}
	return nil
}

// longest is a length that the canonical form of v does not exceed. It spares encoding what is far from the limit, as almost
// everything is; of what may have no canonical form it says nothing, by a length beyond every limit.
func longest(v any) int {
	const escaped = len(`\u0000`)
	switch x := v.(type) {
	case nil, bool:
		return len("false")
	case string:
		if utf8.ValidString(x) {
			return escaped*len(x) + len(`""`)
		}
	case *big.Int:
		if x != nil {
			return x.BitLen()/3 + len("-0")
		}
	case map[string]any:
		n := len("{}")
		for k, e := range x {
			n = min(n+longest(k)+len(":,")+longest(e), MaxArgumentsBytes+1)
		}
		return n
	case []any:
		n := len("[]")
		for _, e := range x {
			n = min(n+longest(e)+len(","), MaxArgumentsBytes+1)
		}
		return n
	}
	return MaxArgumentsBytes + 1
}

func depth(v any) int {
	deepest := 0
	switch x := v.(type) {
	case map[string]any:
		for _, e := range x {
			deepest = max(deepest, depth(e))
		}
	case []any:
		for _, e := range x {
			deepest = max(deepest, depth(e))
		}
	case map[string]string, []string:
	default:
		return 0
	}
	return deepest + 1
}

// Document is the ctrlrun.action/v1 document: exactly the six members that are hashed. It shares Arguments with p.
func (p Proposal) Document() map[string]any {
	arguments := p.Arguments
	if arguments == nil {
		arguments = map[string]any{}
	}
	return map[string]any{
		"schema":      Schema,
		"name":        p.Name,
		"arguments":   arguments,
		"principal":   map[string]any{"agent": p.Principal.Agent, "user": nullable(p.Principal.User)},
		"resource":    nullable(p.Resource),
		"environment": p.Environment,
	}
}

// nullable is the canonical value of an optional string. A nil *string in an interface is not nil, so it cannot stand itself.
func nullable(s *string) any {
	if s == nil {
		return nil
	}
	return *s
}

// Hash is the action hash: "sha256:" and the hexadecimal SHA-256 of the canonical Document.
func (p Proposal) Hash() (string, error) {
	h, err := canonical.Hash(p.Document())
	if err != nil {
		return "", fmt.Errorf("the action has no hash: %w", err)
	}
	return h, nil
}

// CanonicalArguments are the bytes of the arguments that an executor gets: what was hashed, not what the caller holds.
func (p Proposal) CanonicalArguments() ([]byte, error) {
	if p.Arguments == nil {
		return []byte("{}"), nil
	}
	return canonical.Encode(p.Arguments)
}

// CheckStored says whether arguments can have passed the Kubernetes API unchanged: every number in them is a signed 64-bit
// integer. The apiserver turns larger integers, and every fraction, into floating point. If not, pointer is the JSON pointer,
// within the arguments, of the first offender in canonical order. Arguments may be canonical values, or what a JSON decoder
// left in an unstructured object.
func CheckStored(arguments any) (pointer string, ok bool) {
	return checkStored(arguments, "")
}

func checkStored(v any, at string) (string, bool) {
	switch x := v.(type) {
	case nil, bool, string, int, int64, []string, map[string]string:
		return "", true
	case *big.Int:
		if x == nil || !x.IsInt64() {
			return at, false
		}
		return "", true
	case uint64:
		if x > math.MaxInt64 {
			return at, false
		}
		return "", true
	case []any:
		for i, e := range x {
			if p, ok := checkStored(e, canonical.Pointer(at, strconv.Itoa(i))); !ok {
				return p, false
			}
		}
		return "", true
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(x)) {
			if p, ok := checkStored(x[k], canonical.Pointer(at, k)); !ok {
				return p, false
			}
		}
		return "", true
	}
	return at, false
}
