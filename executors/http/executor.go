// Package httpexec executes an action by one HTTP request.
//
// The body is the canonical arguments, byte by byte what was hashed and approved. The request is sent once, on a connection of its
// own, with the attempt's token as Idempotency-Key; no redirect is followed and no proxy of the environment is used.
//
// Failed, that nothing was executed, has two sources: no connection was ever made for the request, or the whole answer was received
// and its status is one by which, as whoever wrote the Executor knows of this provider, it promises so. Committed has one, a listed
// status with its whole answer. Everything else is Ambiguous: another status, an answer that is cut off or has no end, a reset, a
// timeout.
package httpexec

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client/transport"
	"ctrlrun.dev/operator/executors"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/effect"
)

const (
	// maxHead bounds the head of an answer, with all interim answers before it, in bytes.
	maxHead = 64 << 10
	// maxBody is how much of an answer is read, in bytes. One that goes on is not received.
	maxBody = 16 << 20
)

// Executor executes actions as one HTTPExecutor says. It may be used for many executions at a time.
type Executor struct {
	method      string
	target      target
	headers     []header
	ca          *Reference
	timeout     time.Duration
	committed   []int32
	notExecuted []int32
}

// Reference names a key of a Secret or a ConfigMap in the namespace of the Executor.
type Reference struct {
	Kind Kind
	Name string
	Key  string
}

// Kind is what a Reference is to.
type Kind string

const (
	Secret    Kind = "Secret"
	ConfigMap Kind = "ConfigMap"
)

func (r Reference) String() string { return fmt.Sprintf("key %s of %s %s", r.Key, r.Kind, r.Name) }

// Values are what references hold.
type Values map[Reference][]byte

// New reads a spec. It refuses whatever can be seen to be wrong without an action and without what the references hold.
func New(spec *v1alpha1.HTTPExecutor) (*Executor, error) {
	if spec == nil {
		return nil, errors.New("http is missing")
	}
	if !slices.Contains([]string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}, spec.Method) {
		return nil, fmt.Errorf("method is %q; it is POST, PUT, PATCH or DELETE", spec.Method)
	}
	target, err := parseTarget(spec.URL)
	if err != nil {
		return nil, fmt.Errorf("url: %w", err)
	}
	headers, err := parseHeaders(spec.Headers)
	if err != nil {
		return nil, err
	}
	ca, err := caReference(spec.CAFrom)
	if err != nil {
		return nil, err
	}
	switch {
	case ca != nil && target.scheme != "https":
		return nil, errors.New("caFrom is of no use without https")
	case spec.TimeoutSeconds < 1 || spec.TimeoutSeconds > 3600:
		return nil, fmt.Errorf("timeoutSeconds is %d; it is 1 to 3600", spec.TimeoutSeconds)
	case len(spec.Committed) == 0:
		return nil, errors.New("committed is empty; without a status by which the provider says that it happened, nothing would ever be committed")
	}
	if err := statuses("committed", spec.Committed, 200, 299); err != nil {
		return nil, err
	}
	if err := statuses("notExecuted", spec.NotExecuted, 400, 499); err != nil {
		return nil, err
	}
	return &Executor{
		method: spec.Method, target: target, headers: headers, ca: ca,
		timeout:   time.Duration(spec.TimeoutSeconds) * time.Second,
		committed: slices.Clone(spec.Committed), notExecuted: slices.Clone(spec.NotExecuted),
	}, nil
}

// statuses within two ranges that have none in common: no status can say both.
func statuses(field string, listed []int32, from, to int32) error {
	for i, status := range listed {
		switch {
		case status < from || status > to:
			return fmt.Errorf("%s lists %d; it lists statuses from %d to %d", field, status, from, to)
		case slices.Contains(listed[:i], status):
			return fmt.Errorf("%s lists %d twice", field, status)
		}
	}
	return nil
}

func caReference(source *v1alpha1.CASource) (*Reference, error) {
	switch {
	case source == nil:
		return nil, nil
	case (source.SecretKeyRef == nil) == (source.ConfigMapKeyRef == nil):
		return nil, errors.New("caFrom has either secretKeyRef or configMapKeyRef")
	case source.SecretKeyRef != nil:
		return reference("caFrom", Secret, *source.SecretKeyRef)
	}
	return reference("caFrom", ConfigMap, *source.ConfigMapKeyRef)
}

func reference(field string, kind Kind, ref v1alpha1.KeyReference) (*Reference, error) {
	if ref.Name == "" || ref.Key == "" {
		return nil, fmt.Errorf("%s names a %s without name or without key", field, kind)
	}
	return &Reference{Kind: kind, Name: ref.Name, Key: ref.Key}, nil
}

// References are the keys that Execute needs the values of, each once.
func (e *Executor) References() []Reference {
	var all []Reference
	if e.ca != nil {
		all = append(all, *e.ca)
	}
	for _, h := range e.headers {
		if h.from != nil && !slices.Contains(all, *h.from) {
			all = append(all, *h.from)
		}
	}
	return all
}

// Execute sends the request, once, and says what is known of it. It is over with ctx, and after timeoutSeconds.
func (e *Executor) Execute(ctx context.Context, call executors.Call, values Values) executors.Result {
	request, config, err := e.request(call, values)
	if err != nil {
		return e.seen(effect.NeverConnected, fmt.Sprintf("it was not sent: %v", err))
	}
	sending, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	wire := &transport.Transport{TLS: config, MaxResponseHeaderBytes: maxHead}
	response, err := wire.RoundTrip(request.WithContext(sending))
	if err != nil {
		return e.unanswered(ctx, err)
	}
	defer response.Body.Close()
	result := e.answered(ctx, response)
	if e.repeats(result.Output, values) {
		result.Output = nil
	}
	if c := result.Continuation; c != "" {
		if quoted, err := canonical.Encode(c); err != nil || e.repeats(quoted, values) {
			result = executors.Unknown(e.sentence("the provider asked back with a secret that it was sent"))
		}
	}
	return result
}

// repeats reports whether an output holds one of the secrets that were sent: more people may read what is recorded than Secrets.
func (e *Executor) repeats(output []byte, values Values) bool {
	return output != nil && slices.ContainsFunc(e.headers, func(h header) bool {
		if h.from == nil {
			return false
		}
		quoted, err := canonical.Encode(string(values[*h.from]))
		return err != nil || bytes.Contains(output, quoted[1:len(quoted)-1])
	})
}

// request is what is sent. Whatever is wrong with it is found here, before there is a connection.
func (e *Executor) request(call executors.Call, values Values) (*http.Request, *tls.Config, error) {
	parsed, err := canonical.Parse(call.Arguments)
	if err != nil {
		return nil, nil, errors.New("the arguments are no canonical JSON")
	}
	arguments, ok := parsed.(map[string]any)
	if !ok {
		return nil, nil, errors.New("the arguments are no object")
	}
	if call.Token == "" {
		return nil, nil, errors.New("the attempt has no token")
	}
	body := call.Arguments
	if call.Going != nil {
		if body, err = continued(call); err != nil {
			return nil, nil, err
		}
	}
	u, err := e.target.fill(arguments)
	if err != nil {
		return nil, nil, err
	}
	request := &http.Request{
		Method: e.method, URL: u, Host: u.Host, Header: http.Header{},
		// Without GetBody it can be read once, so that nothing could send it again.
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}
	request.Header.Set("User-Agent", "ctrlrun-operator")
	for _, h := range e.headers {
		value, err := h.fill(arguments, values)
		if err != nil {
			return nil, nil, err
		}
		request.Header.Set(h.name, value)
	}
	request.Header.Set("Content-Type", "application/json")
	if err := headerValue(call.Token); err != nil {
		return nil, nil, fmt.Errorf("the attempt's token %w", err)
	}
	request.Header.Set("Idempotency-Key", call.Token)
	if call.Going != nil {
		request.Header.Set(continuationHeader, call.Going.Continuation)
	}
	config, err := e.config(values)
	return request, config, err
}

// continued is the body of a request that goes on: the same arguments, byte by byte, and the answer, null if there is none.
func continued(call executors.Call) ([]byte, error) {
	if !effect.FitContinuation(call.Going.Continuation) {
		return nil, errors.New("the continuation is none that can be sent")
	}
	input := call.Going.Input
	if input == nil {
		input = []byte("null")
	}
	return slices.Concat([]byte(`{"arguments":`), call.Arguments, []byte(`,"input":`), input, []byte("}")), nil
}

func (e *Executor) config(values Values) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if e.ca == nil {
		return config, nil
	}
	value, ok := values[*e.ca]
	if !ok {
		return nil, fmt.Errorf("%s is missing", e.ca)
	}
	config.RootCAs = x509.NewCertPool()
	for found := 0; ; found++ {
		block, rest := pem.Decode(value)
		if block == nil {
			if found == 0 {
				return nil, fmt.Errorf("%s holds no certificate in PEM", e.ca)
			}
			return config, nil
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil || block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("%s holds something else than certificates in PEM", e.ca)
		}
		config.RootCAs.AddCert(certificate)
		value = rest
	}
}
