package httpexec

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/action"
)

// header of a request: a template, or a prefix and what a Secret holds.
type header struct {
	name   string
	value  action.Template
	prefix string
	from   *Reference
}

var headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_|~-]+$")

// reserved headers say how the request is sent, to whom, and which attempt it is: no spec and no argument does.
var reserved = []string{
	"Host", "Content-Length", "Content-Type", "Content-Encoding", "Transfer-Encoding", "Connection", "Keep-Alive", "Idempotency-Key",
	"X-Idempotency-Key", continuationHeader, "Expect", "Upgrade", "Te", "Trailer",
}

func parseHeaders(spec []v1alpha1.HTTPHeader) ([]header, error) {
	var headers []header
	for _, h := range spec {
		if !headerName.MatchString(h.Name) {
			return nil, fmt.Errorf("%q is not the name of a header", h.Name)
		}
		// Servers that hand headers on as variables take an underscore for a hyphen.
		name := http.CanonicalHeaderKey(strings.ReplaceAll(h.Name, "_", "-"))
		if slices.Contains(reserved, name) || strings.HasPrefix(name, "Proxy-") {
			return nil, fmt.Errorf("the header %s is not for a spec to set", h.Name)
		}
		parsed, err := parseHeader(h)
		if err != nil {
			return nil, fmt.Errorf("the header %s: %w", h.Name, err)
		}
		if slices.ContainsFunc(headers, func(o header) bool { return strings.EqualFold(o.name, h.Name) }) {
			return nil, fmt.Errorf("the header %s is given twice", h.Name)
		}
		headers = append(headers, parsed)
	}
	return headers, nil
}

func parseHeader(h v1alpha1.HTTPHeader) (header, error) {
	parsed := header{name: h.Name}
	switch {
	case (h.Value == nil) == (h.ValueFrom == nil):
		return header{}, errors.New("it has either value or valueFrom")
	case h.Value != nil:
		template, err := action.ParseTemplate(*h.Value)
		if err != nil {
			return header{}, err
		}
		if err := headerValue(placeholder.ReplaceAllString(*h.Value, "x")); err != nil {
			return header{}, fmt.Errorf("its value %w", err)
		}
		parsed.value = template
		return parsed, nil
	}
	if h.ValueFrom.Prefix != nil {
		parsed.prefix = *h.ValueFrom.Prefix
		if err := headerValue(parsed.prefix + "x"); err != nil {
			return header{}, fmt.Errorf("its prefix %w", err)
		}
	}
	from, err := reference("valueFrom", Secret, h.ValueFrom.SecretKeyRef)
	parsed.from = from
	return parsed, err
}

// fill is the value to send. Its errors hold neither an argument nor a secret.
func (h header) fill(arguments map[string]any, values Values) (string, error) {
	if h.from == nil {
		filled, err := fill(h.value, arguments, func(value string) (string, error) { return value, headerValue(value) })
		if err != nil {
			return "", fmt.Errorf("the header %s: %w", h.name, err)
		}
		return filled, nil
	}
	value, ok := values[*h.from]
	if !ok {
		return "", fmt.Errorf("the header %s: %s is missing", h.name, h.from)
	}
	if err := headerValue(string(value)); err != nil {
		return "", fmt.Errorf("the header %s: %s %w", h.name, h.from, err)
	}
	return h.prefix + string(value), nil
}

// headerValue says what keeps a text from being the value of a header, or part of one. Nothing in headers is escaped, so what would
// have to be is refused: what is not ASCII too, for servers read it as one character set or another.
func headerValue(s string) error {
	switch {
	case s == "":
		return errors.New("is empty")
	case s[0] == ' ' || s[len(s)-1] == ' ':
		return errors.New("begins or ends with a space, which cannot be sent in a header")
	case strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }):
		return errors.New("has a line break or another character that cannot be sent in a header")
	}
	return nil
}
