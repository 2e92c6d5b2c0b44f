// Package desk gives work to the agents of a chaos run and hears how they get on.
//
// An agent asks for a piece of work, does it by the SDK, and tells of each stage before it goes on. So at every moment the
// desk knows which process is at which stage of which Action: what has to be on record before that process is killed.
package desk

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"ctrlrun.dev/operator/api/v1alpha1"
)

// Item is a piece of work: one proposal, and what comes of it.
type Item struct {
	// Work is its name, unique in a run. It is the argument "work" of the Action.
	Work       string         `json:"work"`
	ActionType string         `json:"actionType"`
	Arguments  map[string]any `json:"arguments"`
	// Lease the agent asks for, Patience how long it waits to be admitted.
	Lease    time.Duration `json:"lease"`
	Patience time.Duration `json:"patience"`
	// Remote is the URL it is executed at.
	Remote string `json:"remote"`
	// For is how the names of those begin who may take it. Empty: everybody.
	For string `json:"for,omitempty"`
}

// Stage is how far an agent has come with a piece of work.
type Stage string

// The stages, in their order. Not every piece of work comes through all of them.
const (
	// StageGiven: an agent has it, and has proposed nothing yet.
	StageGiven Stage = "given"
	// StageProposed: the Action was made.
	StageProposed Stage = "proposed"
	// StageAdmitted: the agent may execute, and is about to.
	StageAdmitted Stage = "admitted"
	// StageExecuted: the remote has answered, or has not, and the agent is about to report.
	StageExecuted Stage = "executed"
	// StageReported: the agent was told that its report is stored.
	StageReported Stage = "reported"
	// StageEnded: the agent has done with it.
	StageEnded Stage = "ended"
)

// Progress is what an agent says at a stage.
type Progress struct {
	Agent string `json:"agent"`
	Work  string `json:"work"`
	Stage Stage  `json:"stage"`
	// Of the Action, from StageProposed on.
	Action    string `json:"action,omitempty"`
	ActionUID string `json:"actionUID,omitempty"`
	ClaimID   string `json:"claimID,omitempty"`
	// Of the attempt, from StageAdmitted on.
	EffectKey string `json:"effectKey,omitempty"`
	Attempt   int64  `json:"attempt,omitempty"`
	// Result of the execution, from StageExecuted on.
	Result v1alpha1.OutcomeResult `json:"result,omitempty"`
	// State of the Action and Error of the SDK, at StageEnded. Unsaid: it gave up, and could not say so.
	State  v1alpha1.ActionState `json:"state,omitempty"`
	Error  string               `json:"error,omitempty"`
	Unsaid bool                 `json:"unsaid,omitempty"`
}

// Desk is the server.
type Desk struct {
	heard    func(context.Context, Progress)
	listener net.Listener
	server   *http.Server

	mu      sync.Mutex
	waiting []Item
	working map[string]*working // by work
	closed  bool
}

type working struct {
	Progress
	item Item
	over bool // done, or its process is dead: whatever is told of it later is of the past
}

// Open starts a desk on the loopback interface. heard is told of each stage before the agent may go on.
func Open(heard func(context.Context, Progress)) (*Desk, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	d := &Desk{heard: heard, listener: l, working: map[string]*working{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /take", d.take)
	mux.HandleFunc("POST /tell", d.tell)
	d.server = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = d.server.Serve(l) }() // it ends with Shut
	return d, nil
}

// URL of the desk.
func (d *Desk) URL() string { return "http://" + d.listener.Addr().String() }

// Shut ends the server.
func (d *Desk) Shut() error { return d.server.Close() }

// Add puts work on the desk. After Close it is left out.
func (d *Desk) Add(items ...Item) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.waiting = append(d.waiting, items...)
	}
}

// Close takes no more work. What is there is still given out.
func (d *Desk) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
}

// Given is how many pieces of work of those names were given out.
func (d *Desk) Given(named func(work string) bool) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for work := range d.working {
		if named(work) {
			n++
		}
	}
	return n
}

// Waiting is how many pieces of work nobody has taken.
func (d *Desk) Waiting() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.waiting)
}

// InFlight is the work that agents have in hand, of one agent or, for "", of all.
func (d *Desk) InFlight(agent string) []Progress {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []Progress
	for _, w := range d.working {
		if !w.over && (agent == "" || w.Agent == agent) {
			all = append(all, w.Progress)
		}
	}
	slices.SortFunc(all, func(a, b Progress) int { return strings.Compare(a.Work, b.Work) })
	return all
}

// Dead says that an agent's process is gone, and its work with it.
func (d *Desk) Dead(agent string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range d.working {
		if w.Agent == agent {
			w.over = true
		}
	}
}

// Find is the piece of work whose progress matches.
func (d *Desk) Find(match func(Progress) bool) (Progress, Item, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range d.working {
		if match(w.Progress) {
			return w.Progress, w.item, true
		}
	}
	return Progress{}, Item{}, false
}

func (d *Desk) take(w http.ResponseWriter, r *http.Request) {
	agent := r.URL.Query().Get("agent")
	item, found := d.next(agent)
	if !found {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	// If the agent does not live to read it, the item is in flight until the agent is called dead.
	_ = json.NewEncoder(w).Encode(item)
}

// next gives an agent the first piece of work that is for it.
func (d *Desk) next(agent string) (Item, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.IndexFunc(d.waiting, func(i Item) bool { return strings.HasPrefix(agent, i.For) })
	if i < 0 {
		return Item{}, false
	}
	item := d.waiting[i]
	d.waiting = slices.Delete(d.waiting, i, i+1)
	d.working[item.Work] = &working{Progress: Progress{Agent: agent, Work: item.Work, Stage: StageGiven}, item: item}
	return item, true
}

func (d *Desk) tell(w http.ResponseWriter, r *http.Request) {
	var p Progress
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	d.mu.Lock()
	if known := d.working[p.Work]; known != nil && !known.over {
		known.Progress, known.over = p, p.Stage == StageEnded
	}
	d.mu.Unlock()
	d.heard(r.Context(), p)
}

// Client is an agent's side of the desk.
type Client struct {
	URL, Agent string
}

// caller keeps no connection, so that net/http never repeats a request by itself: a piece of work taken twice is lost once.
var caller = &http.Client{Timeout: 2 * time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}

// Take gets a piece of work, if there is one.
func (c Client) Take(ctx context.Context) (item Item, found bool, err error) {
	response, err := c.post(ctx, "/take?agent="+c.Agent, nil)
	if err != nil {
		return Item{}, false, err
	}
	defer response.Body.Close() // it was only read
	switch response.StatusCode {
	case http.StatusOK:
		err := json.NewDecoder(response.Body).Decode(&item)
		return item, err == nil, err
	case http.StatusNoContent:
		return Item{}, false, nil
	}
	return Item{}, false, fmt.Errorf("the desk answers %s", response.Status)
}

// Tell says how far the agent has come, and returns when it may go on.
func (c Client) Tell(ctx context.Context, p Progress) error {
	p.Agent = c.Agent
	body, err := json.Marshal(p)
	if err != nil {
		return err
	}
	response, err := c.post(ctx, "/tell", body)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

func (c Client) post(ctx context.Context, path string, body []byte) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	return caller.Do(request)
}
