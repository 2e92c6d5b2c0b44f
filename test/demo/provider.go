package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// fault is what goes wrong with the next call for a payment.
type fault int

const (
	// replyLost: the refund is paid, and the connection breaks before the answer.
	replyLost fault = iota + 1
	// maintenance: the call is turned away and nothing is paid.
	maintenance
	// slow: the refund is paid, and the answer comes when the demo lets it.
	slow
)

// maxSlow bounds how long a slow answer takes if nobody lets it go.
const maxSlow = 20 * time.Second

// provider is the payment provider of the demo: a real HTTP server, outside of the cluster. It carries out every call that
// reaches it and ignores idempotency keys, so a second call would be a second refund.
type provider struct {
	url    string
	server *http.Server

	mu      sync.Mutex
	calls   map[string]int
	refunds map[string][]paid
	tokens  map[string][]string
	faults  map[string]fault
	release chan struct{}
	count   int
}

// paid is a refund that was carried out.
type paid struct {
	ID     string `json:"id"`
	Amount int64  `json:"amount"`
}

// order is what a client asks for.
type order struct {
	PaymentID string `json:"payment_id"`
	Amount    int64  `json:"amount"`
}

func startProvider() (*provider, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &provider{
		url:   "http://" + l.Addr().String(),
		calls: map[string]int{}, refunds: map[string][]paid{}, tokens: map[string][]string{}, faults: map[string]fault{},
		release: make(chan struct{}),
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /refunds", p.refund)
	p.server = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = p.server.Serve(l) }() // it ends with an error of Close
	return p, nil
}

func (p *provider) refund(w http.ResponseWriter, r *http.Request) {
	var o order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	made, next := p.book(o, r.Header.Get("Idempotency-Key"))
	switch next {
	case maintenance:
		http.Error(w, "down for maintenance, nothing was paid", http.StatusServiceUnavailable)
		return
	case replyLost:
		panic(http.ErrAbortHandler) // breaks the connection
	case slow:
		select {
		case <-p.release:
		case <-time.After(maxSlow):
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(made) // a client that is gone has no answer, as in life
}

// book counts a call and carries the refund out, unless the provider is down.
func (p *provider) book(o order, token string) (paid, fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := p.faults[o.PaymentID]
	delete(p.faults, o.PaymentID)
	p.calls[o.PaymentID]++
	p.tokens[o.PaymentID] = append(p.tokens[o.PaymentID], token)
	if next == maintenance {
		return paid{}, next
	}
	p.count++
	made := paid{ID: fmt.Sprintf("re_%d", p.count), Amount: o.Amount}
	p.refunds[o.PaymentID] = append(p.refunds[o.PaymentID], made)
	return made, next
}

// fail makes the next call for a payment go wrong.
func (p *provider) fail(payment string, f fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults[payment] = f
}

// callsFor is how many calls for a payment arrived.
func (p *provider) callsFor(payment string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls[payment]
}

// paidFor is what was paid back for a payment, in words: one refund is "re_1 2000".
func (p *provider) paidFor(payment string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := ""
	for i, r := range p.refunds[payment] {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%s %d", r.ID, r.Amount)
	}
	return text
}

// tokensFor are the idempotency keys that came with the calls for a payment.
func (p *provider) tokensFor(payment string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.tokens[payment]...)
}

// total is how many refunds were carried out.
func (p *provider) total() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count
}
