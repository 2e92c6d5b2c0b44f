// Package faults_test lets every fault of a provider happen to what sends requests, and compares what is recorded of each with what
// the provider did.
package faults_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client/transport"
	"ctrlrun.dev/operator/executors"
	httpexec "ctrlrun.dev/operator/executors/http"
	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/test/provider"
)

// expected is what has to be recorded of a fault, and how often the provider acts.
type expected struct {
	state effect.State
	acts  int
}

var (
	committed    = expected{effect.Committed, 1}
	notExecuted  = expected{effect.Failed, 0}
	unknown      = expected{effect.Ambiguous, 1} // and it happened
	unknownIdle  = expected{effect.Ambiguous, 0} // and it did not, which nobody can tell
	expectations = map[provider.Fault]expected{
		provider.None: committed,

		provider.NobodyListens:      notExecuted,
		provider.NobodyAccepts:      notExecuted,
		provider.SilentHandshake:    notExecuted,
		provider.ResetInHandshake:   notExecuted,
		provider.PlainText:          notExecuted,
		provider.WrongCertificate:   notExecuted,
		provider.ExpiredCertificate: notExecuted,
		provider.UnknownAuthority:   notExecuted,
		provider.NoCommonProtocol:   notExecuted,

		provider.ResetAtOnce:       unknownIdle,
		provider.ResetBeforeRead:   unknownIdle,
		provider.ResetAfterHead:    unknownIdle,
		provider.ClientCertificate: unknownIdle,
		provider.Refused:           notExecuted,
		provider.RefusedCutOff:     unknownIdle,

		provider.ResetAfterActing:  unknown,
		provider.ClosedAfterActing: unknown,
		provider.HangAfterActing:   unknown,
		provider.HalfHead:          unknown,
		provider.HalfBody:          unknown,
		provider.HangInBody:        unknown,
		provider.ResetInBody:       unknown,
		provider.Slow:              committed,
		provider.Dripping:          unknown,
		provider.Interim:           committed,
		provider.InterimFlood:      unknown,
		provider.EndlessHead:       unknown,
		provider.Garbage:           unknown,
		provider.NotHTTP:           unknown,
		provider.BadStatus:         unknown,
		provider.TwoLengths:        unknown,
		provider.LengthTooLong:     unknown,
		provider.LengthTooShort:    committed,
		provider.BrokenChunk:       unknown,
		provider.MissingChunk:      unknown,
		provider.Huge:              unknown,
		provider.Redirect303:       unknown,
		provider.Redirect307:       unknown,
		provider.Status400:         unknown,
		provider.Status401:         unknown,
		provider.Status403:         unknown,
		provider.Status429:         unknown,
		provider.Status500:         unknown,
		provider.Status502:         unknown,
		provider.Status503:         unknown,
	}
)

// of is what is expected, with TLS or without. A reset at once meets a connection of TCP that is there; TLS is not.
func of(fault provider.Fault, secure bool) expected {
	if fault.NeverConnects(secure) {
		return notExecuted
	}
	return expectations[fault]
}

func TestEveryFaultIsExpected(t *testing.T) {
	if got, want := slices.Sorted(maps.Keys(expectations)), slices.Sorted(slices.Values(provider.Faults())); !slices.Equal(got, want) {
		t.Errorf("expectations for %v, want %v", got, want)
	}
}

// settled is whether a state is one of the expected. To a reset at once, a connection may also never have been: then its error came
// from connecting.
func (e expected) settled(state effect.State, fault provider.Fault) bool {
	return state == e.state || fault == provider.ResetAtOnce && state == effect.Failed
}

const secret = "s3cr3t"

// newExecutor is one for an endpoint of the provider, with what it needs.
func newExecutor(t testing.TB, p *provider.Provider, fault provider.Fault, secure bool) (*httpexec.Executor, httpexec.Values) {
	t.Helper()
	prefix := "Bearer "
	spec := &v1alpha1.HTTPExecutor{
		Method: http.MethodPost, URL: p.URL(fault, secure) + "/payments/{payment_id}/refunds?amount={amount}", TimeoutSeconds: 2,
		Committed: []int32{200}, NotExecuted: []int32{409},
		Headers: []v1alpha1.HTTPHeader{{Name: "Authorization", ValueFrom: &v1alpha1.HTTPHeaderSource{
			Prefix: &prefix, SecretKeyRef: v1alpha1.KeyReference{Name: "provider", Key: "token"},
		}}},
	}
	if strings.HasPrefix(spec.URL, "https:") {
		spec.CAFrom = &v1alpha1.CASource{ConfigMapKeyRef: &v1alpha1.KeyReference{Name: "roots", Key: "ca.crt"}}
	}
	e, err := httpexec.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	return e, httpexec.Values{
		{Kind: httpexec.Secret, Name: "provider", Key: "token"}:  []byte(secret),
		{Kind: httpexec.ConfigMap, Name: "roots", Key: "ca.crt"}: p.Certificates(),
	}
}

// each runs a test for every fault, with TLS and without, many at a time: most of them wait.
func each(t *testing.T, run func(t *testing.T, fault provider.Fault, secure bool)) {
	var tests sync.WaitGroup
	defer tests.Wait()
	slots := make(chan struct{}, 16)
	for _, fault := range provider.Faults() {
		for _, secure := range []bool{false, true} {
			if fault.NeedsTLS() && !secure {
				continue
			}
			slots <- struct{}{}
			tests.Go(func() {
				defer func() { <-slots }()
				t.Run(fmt.Sprintf("%s, TLS %t", fault, secure), func(t *testing.T) { run(t, fault, secure) })
			})
		}
	}
}

func TestExecutor(t *testing.T) {
	each(t, func(t *testing.T, fault provider.Fault, secure bool) {
		p := provider.New(t)
		e, values := newExecutor(t, p, fault, secure)
		result := e.Execute(t.Context(), executors.Call{Arguments: []byte(`{"amount":500,"payment_id":"txn-a1b2c3"}`), Token: "the-token"}, values)
		connections := p.Connections(fault, secure)
		p.Close()

		want := of(fault, secure)
		if !want.settled(result.State, fault) {
			t.Errorf("%s (%s), want %s", result.State, result.Error, want.state)
		}
		if got := p.Executions("the-token"); got != want.acts {
			t.Errorf("the provider acted %d times, want %d", got, want.acts)
		}
		if connections > 1 {
			t.Errorf("%d connections", connections)
		}
		if (result.State == effect.Committed) != (result.Error == "") {
			t.Errorf("%s with the sentence %q", result.State, result.Error)
		}
		for _, private := range []string{secret, "a1b2c3", "the-token", "/payments"} {
			if strings.Contains(result.Error, private) {
				t.Errorf("the sentence holds %s: %s", private, result.Error)
			}
		}
	})
}

func TestTransport(t *testing.T) {
	each(t, func(t *testing.T, fault provider.Fault, secure bool) {
		p := provider.New(t)
		client := (&transport.Transport{TLS: &tls.Config{RootCAs: p.Roots()}, ConnectTimeout: time.Second}).Client(2 * time.Second)
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.URL(fault, secure), strings.NewReader(`{"amount":500}`))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Idempotency-Key", "the-token")
		response, err := client.Do(request)
		if err == nil {
			_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 1<<20))
			response.Body.Close()
		}
		connections := p.Connections(fault, secure)
		p.Close()

		want := of(fault, secure)
		proved := proves(err)
		if want := fault.NeverConnects(secure); proved != want && fault != provider.ResetAtOnce {
			t.Errorf("%v: a proof: %t, want %t", err, proved, want)
		}
		got := p.Executions("the-token")
		if got != want.acts {
			t.Errorf("the provider acted %d times, want %d", got, want.acts)
		}
		if proved && got > 0 {
			t.Errorf("%v, but the provider acted", err)
		}
		if connections > 1 {
			t.Errorf("%d connections", connections)
		}
	})
}

// proves reports whether an error proves that nothing was executed, as package client asks it.
func proves(err error) bool {
	var proof interface{ NotExecuted() bool }
	return errors.As(err, &proof) && proof.NotExecuted()
}

// An answer without end is neither read to it nor kept, and no time runs out for that.
func TestAnswersWithoutEnd(t *testing.T) {
	for fault, want := range map[provider.Fault]string{
		provider.Huge:         "more than",
		provider.InterimFlood: "no answer that can be read",
		provider.EndlessHead:  "no answer that can be read",
	} {
		t.Run(string(fault), func(t *testing.T) {
			p := provider.New(t)
			e, values := newExecutor(t, p, fault, false)
			result := e.Execute(t.Context(), executors.Call{Arguments: []byte(`{"amount":1,"payment_id":"x"}`), Token: "the-token"}, values)
			p.Close()
			if result.State != effect.Ambiguous || !strings.Contains(result.Error, want) {
				t.Errorf("%s: %s", result.State, result.Error)
			}
			// What is in the buffers of the sockets comes on top of what is read.
			if got := p.Written(fault, false); got > 64<<20 {
				t.Errorf("%d bytes were taken", got)
			}
		})
	}
}
