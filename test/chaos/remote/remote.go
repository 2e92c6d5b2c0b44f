// Package remote is the system that the effects of a chaos run happen in. It counts what it was made to do, by effect key,
// attempt and token, and notes who asked and when.
//
// It does not honour the token: whoever asks twice gets it done twice, so that a duplicate is seen. What it is told to do
// wrong (lose an answer, hang, refuse) it is told for each call, before it does anything.
package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"ctrlrun.dev/operator/client"
)

// Call is what an agent asks for, and who it is.
type Call struct {
	// EffectKey, Attempt and Token as the Action was admitted with.
	EffectKey string `json:"effectKey"`
	Attempt   int64  `json:"attempt"`
	Token     string `json:"token"`
	// Namespace, Action, ActionUID and ClaimID name the admission.
	Namespace string `json:"namespace"`
	Action    string `json:"action"`
	ActionUID string `json:"actionUID"`
	ClaimID   string `json:"claimID"`
	// Process is the id of the agent's process, Work the piece of work it was given.
	Process int    `json:"process"`
	Work    string `json:"work"`
}

// CallOf is the call for an execution that was admitted.
func CallOf(x client.Execution, process int, work string) Call {
	a := x.Action
	call := Call{
		Token: x.Token, Namespace: a.Namespace, Action: a.Name, ActionUID: string(a.UID), ClaimID: a.Status.Execution.ClaimID,
		Process: process, Work: work,
	}
	if a.Status.Effect != nil {
		call.EffectKey, call.Attempt = a.Status.Effect.Key, a.Status.Effect.Attempt
	}
	return call
}

// Execution is a call that was done.
type Execution struct {
	Call
	Time time.Time `json:"time"`
}

// Behaviour is what the remote does with one call.
type Behaviour string

// The behaviours of a remote.
const (
	// Execute does it and says so.
	Execute Behaviour = "Execute"
	// ExecuteAndLose does it and ends the connection without an answer.
	ExecuteAndLose Behaviour = "ExecuteAndLose"
	// ExecuteAndHang does it and never answers.
	ExecuteAndHang Behaviour = "ExecuteAndHang"
	// Lose does nothing, and ends the connection without an answer. The caller cannot tell it from ExecuteAndLose.
	Lose Behaviour = "Lose"
	// Refuse does nothing and says so for certain.
	Refuse Behaviour = "Refuse"
)

// Server is a remote that listens on the loopback interface.
type Server struct {
	decide   func(Call) Behaviour
	listener net.Listener
	server   *http.Server
	closed   chan struct{}

	mu         sync.Mutex
	executions []Execution
}

// Start starts a remote. decide is asked before anything is done for a call; whatever has to be on record before it happens
// is recorded there. A nil decide always executes.
func Start(decide func(Call) Behaviour) (*Server, error) {
	if decide == nil {
		decide = func(Call) Behaviour { return Execute }
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Server{decide: decide, listener: l, closed: make(chan struct{})}
	s.server = &http.Server{Handler: http.HandlerFunc(s.serve), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = s.server.Serve(l) }() // it ends with Close
	return s, nil
}

// URL to send calls to.
func (s *Server) URL() string { return "http://" + s.listener.Addr().String() }

// Close ends it, and every call that hangs.
func (s *Server) Close() error {
	close(s.closed)
	return s.server.Close()
}

// Executions are the calls that were done, in their order.
func (s *Server) Executions() []Execution {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Execution(nil), s.executions...)
}

// Executed reports whether an attempt was done: what a person on call finds out before resolving it.
func (s *Server) Executed(namespace, effectKey string, attempt int64) bool {
	for _, e := range s.Executions() {
		if e.Namespace == namespace && e.EffectKey == effectKey && e.Attempt == attempt {
			return true
		}
	}
	return false
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	var call Call
	if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	// Go notices that the caller is gone only once the body was read to its end.
	_, _ = io.Copy(io.Discard, r.Body)
	switch behaviour := s.decide(call); behaviour {
	case Execute:
		s.execute(call)
	case Refuse:
		http.Error(w, "not executed", http.StatusConflict)
	case ExecuteAndLose:
		s.execute(call)
		panic(http.ErrAbortHandler)
	case Lose:
		panic(http.ErrAbortHandler)
	case ExecuteAndHang:
		s.execute(call)
		select {
		case <-r.Context().Done():
		case <-s.closed:
		}
		panic(http.ErrAbortHandler)
	default:
		http.Error(w, fmt.Sprintf("unknown behaviour %q", behaviour), http.StatusInternalServerError)
	}
}

func (s *Server) execute(call Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.executions = append(s.executions, Execution{Call: call, Time: time.Now()})
}

// caller keeps no connection: one that the remote closed while it was idle would have the request sent a second time by
// net/http itself, and nobody could tell whose duplicate that is.
var caller = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// Send makes the call and says what the agent knows then: done, for certain not done, or neither.
func Send(ctx context.Context, url string, call Call) error {
	body, err := json.Marshal(call)
	if err != nil {
		return client.NotExecuted(err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return client.NotExecuted(err)
	}
	// A request that net/http cannot rewind is never sent twice.
	request.GetBody = nil
	response, err := caller.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() // it was only read
	switch response.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusConflict:
		return client.NotExecuted(errors.New("the remote refused it"))
	}
	return errors.New("the remote answered " + response.Status)
}
