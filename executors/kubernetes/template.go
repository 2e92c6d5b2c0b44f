package kubeexec

import (
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/canonical"
)

// argumentOf is the argument that s is as a whole: "x" for "{x}".
func argumentOf(s string) (string, bool) {
	t, err := action.ParseTemplate(s)
	if err != nil {
		return "", false
	}
	names := t.Placeholders()
	if len(names) != 1 || s != "{"+names[0]+"}" {
		return "", false
	}
	return names[0], true
}

// checkValue looks for what cannot be a template in the strings of v. at is where v is.
func checkValue(v any, at string) error {
	switch v := v.(type) {
	case string:
		if !strings.ContainsAny(v, "{}") {
			return nil
		}
		if _, err := action.ParseTemplate(v); err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
	case []any:
		for i, e := range v {
			if err := checkValue(e, canonical.Pointer(at, strconv.Itoa(i))); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			if strings.ContainsAny(k, "{}") {
				return fmt.Errorf("%s: a key is literal, and has no braces", canonical.Pointer(at, k))
			}
			if err := checkValue(v[k], canonical.Pointer(at, k)); err != nil {
				return err
			}
		}
	}
	return nil
}

// fill returns v with the arguments in it. A string that is one placeholder becomes the argument, of whatever type; in other text
// only strings and integers can stand.
func fill(v any, arguments map[string]any) (any, error) {
	switch v := v.(type) {
	case string:
		if !strings.ContainsAny(v, "{}") {
			return v, nil
		}
		if name, whole := argumentOf(v); whole {
			argument, ok := arguments[name]
			if !ok {
				return nil, fmt.Errorf("the action has no argument %s", name)
			}
			return argument, nil
		}
		return text(v, arguments)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			var err error
			if out[i], err = fill(v[i], arguments); err != nil {
				return nil, err
			}
		}
		return out, nil
	case map[string]any:
		out := make(map[string]any, len(v))
		for k := range v {
			var err error
			if out[k], err = fill(v[k], arguments); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	return v, nil
}

// text fills in a template that results in text.
func text(s string, arguments map[string]any) (string, error) {
	t, err := action.ParseTemplate(s)
	if err != nil {
		return "", err
	}
	return t.ResolveResource(arguments)
}

// replicas reads a number, which may be a literal's text or an argument.
func replicas(v any) (int64, error) {
	n, ok := v.(*big.Int)
	if s, text := v.(string); text {
		n, ok = new(big.Int).SetString(s, 10)
	}
	if !ok || !n.IsInt64() || n.Int64() < 0 || n.Int64() > 1<<31-1 {
		return 0, fmt.Errorf("replicas is not an integer from 0 to %d", 1<<31-1)
	}
	return n.Int64(), nil
}
