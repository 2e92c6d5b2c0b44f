package httpexec

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"unicode"

	"ctrlrun.dev/operator/client/transport"
	"ctrlrun.dev/operator/executors"
	"ctrlrun.dev/operator/kernel/effect"
)

// continuationHeader is how a provider that answers 202 says that it asks back, and how whoever goes on says with what.
const continuationHeader = "Ctrlrun-Continuation"

// seen is the result that an observation proves. The sentence is why; it names the request without its arguments.
func (e *Executor) seen(observed effect.Observation, why string) executors.Result {
	return executors.Result{State: observed.State(), Error: e.sentence(why)}
}

func (e *Executor) sentence(why string) string {
	return fmt.Sprintf("%s to %s: %s", e.method, e.target.host, why)
}

// unanswered is the result of a request that got no answer. The texts of errors of the connection and of the peer's answer are left
// out, since the peer may have put there what it got; before there is a connection, it got nothing.
func (e *Executor) unanswered(ctx context.Context, err error) executors.Result {
	var never *transport.NeverConnectedError
	switch {
	case errors.As(err, &never):
		return e.seen(effect.NeverConnected, line(never.Error()))
	case ctx.Err() != nil:
		return e.seen(effect.ClientDisconnected, "the execution was given up before there was an answer")
	case timedOut(err):
		return e.seen(effect.AfterRequestSent, fmt.Sprintf("there was no answer within %s", e.timeout))
	case closed(err):
		return e.seen(effect.AfterRequestSent, "the connection was closed before there was an answer")
	}
	return e.seen(effect.UnreadableResponse, "there was no answer that can be read")
}

// answered is the result of a request that got the head of an answer. A status counts only once the whole answer is there.
func (e *Executor) answered(ctx context.Context, response *http.Response) executors.Result {
	status := int32(response.StatusCode)
	if response.ProtoMajor != 1 {
		return e.seen(effect.UnreadableResponse, "the answer is not HTTP/1")
	}
	if continuations := response.Header.Values(continuationHeader); response.StatusCode == http.StatusAccepted && len(continuations) > 0 {
		return e.askedBack(response, continuations)
	}
	committed, notExecuted := slices.Contains(e.committed, status), slices.Contains(e.notExecuted, status)
	if !committed && !notExecuted {
		return executors.Unknown(e.sentence(fmt.Sprintf("it was answered with status %d, which by itself proves nothing", status)))
	}
	beginning, err := read(response.Body)
	switch {
	case err == nil && committed:
		return executors.Committed(executors.Output(beginning))
	case err == nil:
		result := executors.NotExecuted(e.sentence(fmt.Sprintf("it was answered with status %d, by which the provider promises that nothing was executed", status)))
		result.Stated = true
		return result
	case errors.Is(err, errEndless):
		return e.seen(effect.UnreadableResponse, fmt.Sprintf("it was answered with status %d and more than %d bytes", status, maxBody))
	case ctx.Err() != nil:
		return e.seen(effect.ClientDisconnected, fmt.Sprintf("it was answered with status %d, and given up before the end of the answer", status))
	}
	return e.seen(effect.StreamEndedEarly, fmt.Sprintf("it was answered with status %d, and the answer has no end", status))
}

// askedBack is the result of an answer by which the provider asks back: with one continuation that can be sent as it is. Its body is what
// it asks, if it came whole and can be kept.
func (e *Executor) askedBack(response *http.Response, continuations []string) executors.Result {
	if len(continuations) != 1 || !effect.FitContinuation(continuations[0]) {
		return executors.Unknown(e.sentence(fmt.Sprintf("the provider asked back, and its %s is not one value of 1 to %d visible ASCII characters", continuationHeader, effect.MaxContinuation)))
	}
	question, err := read(response.Body)
	if err != nil {
		question = nil // whoever goes on does without
	}
	return executors.AskedBack(continuations[0], executors.Output(question), e.sentence("the provider asked back"))
}

var errEndless = errors.New("the body is too long")

// read returns the beginning of a body: all of it, if it can be kept. It fails if it does not come to the end of the body.
func read(body io.Reader) ([]byte, error) {
	beginning, err := io.ReadAll(io.LimitReader(body, executors.MaxOutput+1))
	if err != nil {
		return nil, err
	}
	rest := maxBody - int64(len(beginning))
	n, err := io.Copy(io.Discard, io.LimitReader(body, rest+1))
	switch {
	case err != nil:
		return nil, err
	case n > rest:
		return nil, errEndless
	}
	return beginning, nil
}

func timedOut(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
}

func closed(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// line is a text of others as a line of its own that is not too long.
func line(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(s, ""))
	if runes := []rune(s); len(runes) > 300 {
		return string(runes[:300])
	}
	return s
}
