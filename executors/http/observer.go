package httpexec

import (
	"bytes"
	"context"
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
	"ctrlrun.dev/operator/kernel/flow"
)

// maxAnswer is how much an observer may answer, in bytes.
const maxAnswer = 64 << 10

// Observer asks by one request what became of an attempt. It may be used for many looks at a time.
type Observer struct {
	sender  Executor // method, target, headers and certificates are as those of an execution
	timeout time.Duration
}

// NewObserver reads a spec. It refuses whatever can be seen to be wrong without a question and without what the references hold.
func NewObserver(spec *v1alpha1.HTTPObserver) (*Observer, error) {
	if spec.Method != http.MethodGet && spec.Method != http.MethodPost {
		return nil, fmt.Errorf("method is %q; it is GET or POST", spec.Method)
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
	switch {
	case err != nil:
		return nil, err
	case ca != nil && target.scheme != "https":
		return nil, errors.New("caFrom is of no use without https")
	case spec.TimeoutSeconds < 1 || spec.TimeoutSeconds > 60:
		return nil, fmt.Errorf("timeoutSeconds is %d; it is 1 to 60", spec.TimeoutSeconds)
	}
	o := &Observer{
		sender:  Executor{method: spec.Method, target: target, headers: headers, ca: ca},
		timeout: time.Duration(spec.TimeoutSeconds) * time.Second,
	}
	// Whatever else a placeholder names is not there: it is found before anybody is asked.
	var names []string
	for _, segment := range target.segments {
		names = append(names, segment.Placeholders()...)
	}
	for _, p := range target.query {
		names = append(names, p.value.Placeholders()...)
	}
	for _, h := range headers {
		names = append(names, h.value.Placeholders()...)
	}
	for _, name := range names {
		if !slices.Contains([]string{"effect_key", "attempt", "token"}, name) {
			return nil, fmt.Errorf("{%s} stands for nothing: an observer is told effect_key, attempt and token", name)
		}
	}
	return o, nil
}

// References are the keys that Ask needs the values of, each once.
func (o *Observer) References() []Reference { return o.sender.References() }

// Ask sends the question, once. Whatever is not a whole answer of status 200 that says committed or not_executed is unknown; the text,
// which holds nothing of the question and nothing of the answer, says why.
func (o *Observer) Ask(ctx context.Context, look executors.Look, values Values) (flow.Answer, string) {
	unknown := func(why string) (flow.Answer, string) { return flow.AnswerUnknown, o.sender.sentence(why) }
	body, err := look.Question()
	if err != nil {
		return unknown("it was not sent: the question has no canonical form")
	}
	parsed, err := canonical.Parse(body)
	if err != nil {
		return unknown("it was not sent: the question has no canonical form")
	}
	arguments := parsed.(map[string]any)
	u, err := o.sender.target.fill(arguments)
	if err != nil {
		return unknown(fmt.Sprintf("it was not sent: %v", err))
	}
	request := &http.Request{Method: o.sender.method, URL: u, Host: u.Host, Header: http.Header{"User-Agent": {"ctrlrun-operator"}, "Accept": {"application/json"}}}
	for _, h := range o.sender.headers {
		value, err := h.fill(arguments, values)
		if err != nil {
			return unknown(fmt.Sprintf("it was not sent: %v", err))
		}
		request.Header.Set(h.name, value)
	}
	if o.sender.method == http.MethodPost {
		request.Header.Set("Content-Type", "application/json")
		request.Body, request.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	config, err := o.sender.config(values)
	if err != nil {
		return unknown(fmt.Sprintf("it was not sent: %v", err))
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	response, err := (&transport.Transport{TLS: config, MaxResponseHeaderBytes: maxHead}).RoundTrip(request.WithContext(ctx))
	switch {
	case err != nil && (ctx.Err() != nil || timedOut(err)):
		return unknown("there was no answer in time")
	case err != nil:
		return unknown("there was no answer")
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return unknown(fmt.Sprintf("it was answered with status %d", response.StatusCode))
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return unknown("the answer has no end, or came too late")
	case len(text) > maxAnswer:
		return unknown("the answer is too long")
	}
	answer, why := executors.Said(text)
	if answer == flow.AnswerUnknown {
		return unknown(why)
	}
	return answer, ""
}
