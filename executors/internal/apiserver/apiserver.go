// Package apiserver sends one write to a kube-apiserver, once, and says what its answer proves.
//
// A client of client-go sends again after a Retry-After and on some broken connections, which is right for a controller and wrong
// for an effect. Here every write has a connection of its own that is closed after it, in HTTP/1.1, and follows no redirect, so that
// nothing beneath sends it a second time.
package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// MaxAnswer is the most of an answer that is read, in bytes. No object of Kubernetes is as large.
const MaxAnswer = 16 << 20

// UserAgent names the writes in the audit log.
const UserAgent = "ctrlrun-executor"

// Request is one write.
type Request struct {
	Method string
	// Path below the root of the apiserver, in segments that are not escaped yet.
	Path  []string
	Query url.Values
	// ContentType of the body.
	ContentType string
	Body        []byte
}

// Answer is what came back.
type Answer struct {
	// Code of HTTP.
	Code int
	// Body is the whole of it.
	Body []byte
}

// Writer sends writes as whom a connection says.
type Writer struct {
	base *url.URL
	http *http.Client
}

// NewWriter returns a Writer with the address, the certificates and the credentials of config. Nothing is sent yet.
func NewWriter(config *rest.Config) (*Writer, error) {
	config = rest.CopyConfig(config)
	config.UserAgent = UserAgent
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	proxy := config.Proxy
	if proxy == nil {
		proxy = http.ProxyFromEnvironment
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	transport := &http.Transport{
		Proxy:               proxy,
		DialContext:         config.Dial,
		TLSClientConfig:     tlsConfig,
		TLSHandshakeTimeout: 10 * time.Second,
		Protocols:           &protocols,
		DisableKeepAlives:   true,
		DisableCompression:  true,
	}
	authenticated, err := rest.HTTPWrappersForConfig(config, transport)
	if err != nil {
		return nil, err
	}
	return &Writer{base: base, http: &http.Client{
		Transport:     authenticated,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Send sends r once. An error says nothing about whether the apiserver acted on it. No error has anything of the body in it.
func (w *Writer) Send(ctx context.Context, r Request) (Answer, error) {
	u := w.base.JoinPath(r.Path...)
	u.RawQuery = r.Query.Encode()
	req, err := http.NewRequestWithContext(ctx, r.Method, u.String(), bytes.NewReader(r.Body))
	if err != nil {
		return Answer{}, fmt.Errorf("the request cannot be made")
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Content-Type", r.ContentType)
	resp, err := w.http.Do(req)
	if err != nil {
		return Answer{}, reduce(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, MaxAnswer+1))
	if err != nil {
		return Answer{}, fmt.Errorf("the answer broke off")
	}
	if len(body) > MaxAnswer {
		return Answer{}, fmt.Errorf("the answer has more than %d bytes", MaxAnswer)
	}
	return Answer{Code: resp.StatusCode, Body: body}, nil
}

// reduce leaves out of an error what the action chose: an error of net/http has the URL in it, and so the object's name.
func reduce(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("no answer in time")
	}
	if u, ok := err.(*url.Error); ok {
		err = u.Err
	}
	return err
}

// OK reports whether the apiserver says that it did it.
func (a Answer) OK() bool { return a.Code >= 200 && a.Code < 300 }

// refusals are the answers a kube-apiserver gives only before it stores anything: authentication and authorization precede
// everything, then come the decoding of the request, admission, validation, and the comparison of versions that is one transaction
// with the write. Not among them are 429, every 5xx, timeouts under whatever code, and AlreadyExists, which an apiserver may also
// answer after it repeated a write of its own.
var refusals = map[metav1.StatusReason]int{
	metav1.StatusReasonUnauthorized:          http.StatusUnauthorized,
	metav1.StatusReasonForbidden:             http.StatusForbidden,
	metav1.StatusReasonNotFound:              http.StatusNotFound,
	metav1.StatusReasonConflict:              http.StatusConflict,
	metav1.StatusReasonInvalid:               http.StatusUnprocessableEntity,
	metav1.StatusReasonBadRequest:            http.StatusBadRequest,
	metav1.StatusReasonMethodNotAllowed:      http.StatusMethodNotAllowed,
	metav1.StatusReasonNotAcceptable:         http.StatusNotAcceptable,
	metav1.StatusReasonRequestEntityTooLarge: http.StatusRequestEntityTooLarge,
	metav1.StatusReasonUnsupportedMediaType:  http.StatusUnsupportedMediaType,
}

// Refusal returns the reason of an answer by which a kube-apiserver says that it stored nothing. It believes only a whole Status of
// that reason under its own code: a proxy or a load balancer answers 403 or 404 as well, and in its own words. That the resource is
// served by the kube-apiserver itself is for the caller to know.
func (a Answer) Refusal() (metav1.StatusReason, bool) {
	s, ok := a.Status()
	if !ok || s.Status != metav1.StatusFailure || int(s.Code) != a.Code {
		return "", false
	}
	code, known := refusals[s.Reason]
	return s.Reason, known && code == a.Code
}

// Status returns the Status that the answer is, if it is one.
func (a Answer) Status() (metav1.Status, bool) {
	var s metav1.Status
	if json.Unmarshal(a.Body, &s) != nil || s.APIVersion != "v1" || s.Kind != "Status" {
		return metav1.Status{}, false
	}
	return s, true
}
