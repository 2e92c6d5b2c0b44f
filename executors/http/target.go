package httpexec

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"ctrlrun.dev/operator/kernel/action"
)

// maxURL bounds a URL with its arguments, in bytes.
const maxURL = 16 << 10

// target is a URL with placeholders in its path and in the values of its query. Scheme, host and port are literal, and so is how
// many segments its path has and which parameters its query.
type target struct {
	scheme, host string
	segments     []action.Template
	query        []parameter
	hasQuery     bool
}

// parameter of a query. Without hasValue it is a name alone.
type parameter struct {
	name     string
	value    action.Template
	hasValue bool
}

var (
	placeholder   = regexp.MustCompile(`\{[^{}]*\}`)
	pathLiteral   = regexp.MustCompile(`^(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})*$`)
	queryLiteral  = regexp.MustCompile(`^(?:[A-Za-z0-9._~!$'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*$`)
	hostAndPort   = regexp.MustCompile(`^(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?$`)
	errFragment   = errors.New("it has a fragment, which is never sent; a literal # is written %23")
	errDotSegment = errors.New("a segment of its path is . or .., which means another path")
)

// parseTarget reads the URL of a spec.
func parseTarget(s string) (target, error) {
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok || scheme != "http" && scheme != "https" {
		return target{}, errors.New("it begins with http:// or https://")
	}
	if strings.Contains(rest, "#") {
		return target{}, errFragment
	}
	rest, query, hasQuery := strings.Cut(rest, "?")
	host, path, _ := strings.Cut(rest, "/")
	port := hostAndPort.FindStringSubmatch(host)
	switch {
	case strings.ContainsAny(host, "{}"):
		return target{}, errors.New("its host and port are literal: no placeholder stands there")
	case strings.Contains(host, "@"):
		return target{}, errors.New("it holds a user; give credentials by a header from a Secret")
	case port == nil:
		return target{}, errors.New("its host is a name or an address in ASCII, with a port if need be")
	}
	if n, err := strconv.Atoi(port[1]); port[1] != "" && (err != nil || n < 1 || n > 65535) {
		return target{}, errors.New("its port is no number from 1 to 65535")
	}
	t := target{scheme: scheme, host: host, hasQuery: hasQuery}
	for segment := range strings.SplitSeq(path, "/") {
		parsed, err := parsePart(segment, pathLiteral)
		if err != nil {
			return target{}, fmt.Errorf("in its path: %w", err)
		}
		if len(parsed.Placeholders()) == 0 && dots(segment) {
			return target{}, errDotSegment
		}
		t.segments = append(t.segments, parsed)
	}
	if !hasQuery {
		return t, nil
	}
	for pair := range strings.SplitSeq(query, "&") {
		name, value, hasValue := strings.Cut(pair, "=")
		if strings.ContainsAny(name, "{}") {
			return target{}, errors.New("in its query: the name of a parameter is literal: a placeholder stands after a =")
		}
		if !queryLiteral.MatchString(name) {
			return target{}, errors.New("in its query: a character has to be percent-encoded")
		}
		parsed, err := parsePart(value, queryLiteral)
		if err != nil {
			return target{}, fmt.Errorf("in its query: %w", err)
		}
		t.query = append(t.query, parameter{name: name, value: parsed, hasValue: hasValue})
	}
	return t, nil
}

// parsePart reads a piece of a URL, which may be empty. A percent sign belongs to the two digits after it, so a placeholder does
// not end one.
func parsePart(s string, literal *regexp.Regexp) (action.Template, error) {
	if s == "" {
		return action.Template{}, nil
	}
	parsed, err := action.ParseTemplate(s)
	if err != nil {
		return action.Template{}, err
	}
	if !literal.MatchString(placeholder.ReplaceAllString(s, "x")) {
		return action.Template{}, errors.New("a character has to be percent-encoded")
	}
	return parsed, nil
}

// dots reports whether a segment, as it is written in a URL, is one that servers take for a step within the path. Some leave out what
// follows a semicolon before they look.
func dots(segment string) bool {
	decoded, err := url.PathUnescape(segment)
	decoded, _, _ = strings.Cut(decoded, ";")
	return err != nil || decoded == "." || decoded == ".."
}

// fill puts the arguments in, each escaped for where it stands. Its errors hold no argument.
func (t target) fill(arguments map[string]any) (*url.URL, error) {
	var path, query strings.Builder
	for _, segment := range t.segments {
		filled, err := fill(segment, arguments, forPath)
		if err != nil {
			return nil, err
		}
		if len(segment.Placeholders()) > 0 && dots(filled) {
			return nil, fmt.Errorf("the arguments make the segment %s of the path . or .., which means another path", segment)
		}
		path.WriteString("/" + filled)
	}
	for i, p := range t.query {
		filled, err := fill(p.value, arguments, forQuery)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			query.WriteByte('&')
		}
		query.WriteString(p.name)
		if p.hasValue {
			query.WriteString("=" + filled)
		}
	}
	if path.Len()+query.Len() > maxURL {
		return nil, fmt.Errorf("the URL with its arguments is longer than %d bytes", maxURL)
	}
	decoded, err := url.PathUnescape(path.String())
	if err != nil {
		return nil, errors.New("the path of the URL is not what it was meant to be")
	}
	u := &url.URL{Scheme: t.scheme, Host: t.host, Path: decoded, RawPath: path.String(), RawQuery: query.String(), ForceQuery: t.hasQuery}
	// net/http would escape a path by its own rules if it did not take this one.
	if u.EscapedPath() != path.String() {
		return nil, errors.New("the path of the URL is not what it was meant to be")
	}
	return u, nil
}

// fill resolves a template with the arguments it names, each made fit for its place by escape, which says what is wrong with one
// that cannot be.
func fill(t action.Template, arguments map[string]any, escape func(string) (string, error)) (string, error) {
	if t.IsZero() {
		return "", nil
	}
	escaped := map[string]any{}
	for _, name := range t.Placeholders() {
		alone, err := action.ParseTemplate("{" + name + "}")
		if err != nil {
			return "", err
		}
		value, err := alone.ResolveResource(arguments)
		if err != nil {
			return "", err
		}
		if escaped[name], err = escape(value); err != nil {
			return "", fmt.Errorf("the argument %s %w", name, err)
		}
	}
	return t.ResolveResource(escaped)
}

// forPath: many servers decode a path before they split it or hand it on, so a slash or a line break is refused and not escaped.
func forPath(value string) (string, error) {
	switch {
	case strings.ContainsAny(value, `/\`):
		return "", errors.New("has a slash, so it cannot stand in a path, whose segments are literal")
	case strings.ContainsFunc(value, unicode.IsControl):
		return "", errors.New("has a line break or another control character, so it cannot stand in a path")
	}
	return url.PathEscape(value), nil
}

// forQuery writes a space as %20, which means one everywhere; a plus sign would only in forms.
func forQuery(value string) (string, error) {
	return strings.ReplaceAll(url.QueryEscape(value), "+", "%20"), nil
}
