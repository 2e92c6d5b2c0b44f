// Package grammar is the two small languages that policies and grants are written in: conditions on arguments (amount_lte: 500)
// and patterns over names (stripe.*).
//
// Both are closed: whatever is not in the grammar is refused when it is read, never ignored when it is used. Both fail
// closed: a condition on an argument that is absent or of another type is false, and containment that cannot be shown is not
// containment.
package grammar

import (
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"ctrlrun.dev/operator/kernel/canonical"
)

// Operator is the last part of a condition's key.
type Operator string

// The operators. Equality is type-strict and recursive; the comparisons take integers only, and a bool is not one.
const (
	Eq  Operator = "eq"
	Neq Operator = "neq"
	Lt  Operator = "lt"
	Lte Operator = "lte"
	Gt  Operator = "gt"
	Gte Operator = "gte"
	In  Operator = "in"
)

// operatorList is how the operators are named in messages, in the order of the documentation.
const operatorList = "_eq, _neq, _lt, _lte, _gt, _gte, _in"

func operators() []Operator { return []Operator{Eq, Neq, Lt, Lte, Gt, Gte, In} }

// Numeric reports whether o compares integers.
func (o Operator) Numeric() bool { return o == Lt || o == Lte || o == Gt || o == Gte }

// reserved are the names a condition cannot address: a policy judges what is done, while who does it, where and when
// is the business of grants and settings.
func reserved() []string {
	return []string{"agent", "user", "claims", "issuer", "expires_at", "principal", "environment", "resource", "name", "action_id", "data_scope"}
}

// ConditionError says why one condition was refused.
type ConditionError struct {
	// Key is the condition as written, such as amount_lte; "" if the mapping as a whole is at fault.
	Key string
	// Problem is what is wrong and what to do, without naming the key.
	Problem string
}

func (e *ConditionError) Error() string {
	if e.Key == "" {
		return e.Problem
	}
	return strconv.Quote(e.Key) + ": " + e.Problem
}

// Condition is one comparison of a top-level argument with a fixed operand.
type Condition struct {
	argument string
	operator Operator
	operand  any
}

// ParseCondition reads one condition. The key is the argument's name and an operator; the longest operator counts, and
// everything before it is the name, so a.b_eq is about the top-level argument a.b. The operand is a canonical value.
// Every refusal is a *ConditionError.
func ParseCondition(key string, operand any) (Condition, error) {
	refuse := func(format string, args ...any) (Condition, error) {
		return Condition{}, &ConditionError{Key: key, Problem: fmt.Sprintf(format, args...)}
	}
	var argument string
	var operator Operator
	for _, o := range operators() {
		if name, ok := strings.CutSuffix(key, "_"+string(o)); ok && len(o) > len(operator) {
			argument, operator = name, o
		}
	}
	switch {
	case operator == "":
		return refuse("a condition is the name of an argument followed by one of %s, and this ends in none of them", operatorList)
	case argument == "":
		return refuse("the condition names no argument; write the argument's name before _%s", operator)
	case slices.Contains(reserved(), argument):
		return refuse("%s is reserved: a condition can address only arguments of the action; compare an argument of another name, and bind a Role to say who may act", argument)
	}
	if _, err := canonical.Encode(operand); err != nil {
		return refuse("the operand is not allowed: %v", err)
	}
	operand = canonical.Clone(operand)
	switch _, isInteger := operand.(*big.Int); {
	case operator.Numeric() && !isInteger:
		return refuse("_%s compares integers, and the operand is %s; write an integer in minor units", operator, typeName(operand))
	case operator == In:
		if _, ok := operand.([]any); !ok {
			return refuse("_in takes a list, and the operand is %s; write [a, b], or use _eq", typeName(operand))
		}
	}
	return Condition{argument: argument, operator: operator, operand: operand}, nil
}

// typeName says what a canonical value is, for messages.
func typeName(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "a bool"
	case string:
		return "a string"
	case *big.Int:
		return "an integer"
	case []any:
		return "a list"
	case map[string]any:
		return "an object"
	}
	return fmt.Sprintf("a %T", v)
}

// Key is the condition's key as it was written.
func (c Condition) Key() string { return c.argument + "_" + string(c.operator) }

// Argument is the name of the argument the condition is about.
func (c Condition) Argument() string { return c.argument }

// Operator is the condition's operator.
func (c Condition) Operator() Operator { return c.operator }

// Operand is the fixed value; it is not to be changed.
func (c Condition) Operand() any { return c.operand }

// Match reports whether the condition holds. An absent argument makes every condition false, _neq included; so does an
// argument that is not an integer under a comparison.
func (c Condition) Match(arguments map[string]any) bool {
	value, present := arguments[c.argument]
	if !present {
		return false
	}
	switch c.operator {
	case Eq:
		return canonical.Equal(value, c.operand)
	case Neq:
		return !canonical.Equal(value, c.operand)
	case In:
		return slices.ContainsFunc(c.operand.([]any), func(o any) bool { return canonical.Equal(value, o) })
	}
	n, ok := canonical.Integer(value)
	if !ok || n == nil {
		return false
	}
	sign := n.Cmp(c.operand.(*big.Int))
	switch c.operator {
	case Lt:
		return sign < 0
	case Lte:
		return sign <= 0
	case Gt:
		return sign > 0
	case Gte:
		return sign >= 0
	}
	return false
}

// Contains reports whether child is about the same argument with the same operator, and at least as strict, so that c
// holds wherever child does. Nothing is concluded from one operator to another: amount_lt is not within amount_lte. _neq is
// within an equal _neq only.
func (c Condition) Contains(child Condition) bool {
	if c.operator == "" || c.argument != child.argument || c.operator != child.operator {
		return false
	}
	switch c.operator {
	case Eq, Neq:
		return canonical.Equal(c.operand, child.operand)
	case In:
		allowed := c.operand.([]any)
		return !slices.ContainsFunc(child.operand.([]any), func(one any) bool {
			return !slices.ContainsFunc(allowed, func(o any) bool { return canonical.Equal(one, o) })
		})
	}
	sign := child.operand.(*big.Int).Cmp(c.operand.(*big.Int))
	switch c.operator {
	case Lt, Lte:
		return sign <= 0
	case Gt, Gte:
		return sign >= 0
	}
	return false
}

// Explain says why the condition does not hold, without giving away the argument's value; "" if it does hold.
func (c Condition) Explain(arguments map[string]any) string {
	value, present := arguments[c.argument]
	_, isInteger := canonical.Integer(value)
	switch {
	case c.Match(arguments):
		return ""
	case !present:
		return fmt.Sprintf("%s is false because the action has no argument %s", c.Key(), strconv.Quote(c.argument))
	case c.operator.Numeric() && !isInteger:
		return fmt.Sprintf("%s is false because the argument is %s, not an integer", c.Key(), typeName(value))
	}
	return c.Key() + " is false"
}

// Conditions are the conditions of one rule, all of which must hold. The zero value has none and always matches; a parsed
// one is never empty.
type Conditions struct {
	list []Condition
}

// ParseConditions reads the mapping of a rule. It is not empty, because an empty one would read as a restriction and be none.
// The first refusal in the order of the keys is returned, as a *ConditionError.
func ParseConditions(when map[string]any) (Conditions, error) {
	if len(when) == 0 {
		return Conditions{}, &ConditionError{Problem: "there are no conditions; write at least one, or leave the mapping out to match always"}
	}
	var out Conditions
	for _, key := range slices.Sorted(maps.Keys(when)) {
		c, err := ParseCondition(key, when[key])
		if err != nil {
			return Conditions{}, err
		}
		out.list = append(out.list, c)
	}
	return out, nil
}

// List are the conditions in the order of their keys.
func (c Conditions) List() []Condition { return slices.Clone(c.list) }

// Match reports whether all conditions hold.
func (c Conditions) Match(arguments map[string]any) bool {
	return !slices.ContainsFunc(c.list, func(one Condition) bool { return !one.Match(arguments) })
}

// Explain says why the first condition, in the order of the keys, that does not hold does not; "" if all hold.
func (c Conditions) Explain(arguments map[string]any) string {
	for _, one := range c.list {
		if why := one.Explain(arguments); why != "" {
			return why
		}
	}
	return ""
}

// IsZero reports whether there are no conditions.
func (c Conditions) IsZero() bool { return len(c.list) == 0 }

// Canonical is the mapping that the conditions were read from, as a canonical value; it is not to be changed.
func (c Conditions) Canonical() map[string]any {
	out := make(map[string]any, len(c.list))
	for _, one := range c.list {
		out[one.Key()] = one.operand
	}
	return out
}

// Uncontained is the first condition of c, in the order of the keys, that no condition of child is within. Whatever child
// has beyond that only narrows. A condition that child leaves out is not inherited.
func (c Conditions) Uncontained(child Conditions) (Condition, bool) {
	for _, one := range c.list {
		if !slices.ContainsFunc(child.list, one.Contains) {
			return one, true
		}
	}
	return Condition{}, false
}

// Contains reports whether c holds wherever child does, shown condition by condition.
func (c Conditions) Contains(child Conditions) bool {
	_, found := c.Uncontained(child)
	return !found
}

// Equal reports whether c and d are the same conditions.
func (c Conditions) Equal(d Conditions) bool {
	return slices.EqualFunc(c.list, d.list, func(a, b Condition) bool {
		return a.argument == b.argument && a.operator == b.operator && canonical.Equal(a.operand, b.operand)
	})
}

// Range is what the conditions say about one argument as an integer: inclusive bounds, nil where there is none.
type Range struct {
	Low, High *big.Int
}

// Empty reports whether no integer is in the range.
func (r Range) Empty() bool { return r.Low != nil && r.High != nil && r.Low.Cmp(r.High) > 0 }

// Ranges are the ranges that comparisons set, by argument.
func (c Conditions) Ranges() map[string]Range {
	out := map[string]Range{}
	one := big.NewInt(1)
	for _, cond := range c.list {
		n, ok := cond.operand.(*big.Int)
		if !ok || !cond.operator.Numeric() {
			continue
		}
		r := out[cond.argument]
		switch cond.operator {
		case Gt:
			n = new(big.Int).Add(n, one)
			fallthrough
		case Gte:
			if r.Low == nil || n.Cmp(r.Low) > 0 {
				r.Low = n
			}
		case Lt:
			n = new(big.Int).Sub(n, one)
			fallthrough
		case Lte:
			if r.High == nil || n.Cmp(r.High) < 0 {
				r.High = n
			}
		}
		out[cond.argument] = r
	}
	return out
}
