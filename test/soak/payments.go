package main

import (
	"encoding/json"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"ctrlrun.dev/operator/api/v1alpha1"
)

// payments are what is refunded. One that was not refunded for certain comes again, as another attempt of the same effect, with
// another card and perhaps another agent.
type payments struct {
	mu    sync.Mutex
	count int
	open  []string
}

// next is one whose refund may be attempted.
func (p *payments) next() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.open); n > 0 {
		first := p.open[0]
		p.open = p.open[1:]
		return first
	}
	p.count++
	return fmt.Sprintf("txn_%d", p.count)
}

// again gives one back.
func (p *payments) again(payment string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = append(p.open, payment)
}

// paymentOf is what an Action refunds.
func paymentOf(a *v1alpha1.Action) string {
	var arguments struct {
		Payment string `json:"payment_id"`
	}
	// The soak proposed it, so it has one.
	_ = json.Unmarshal(a.Spec.Arguments.Raw, &arguments)
	return arguments.Payment
}

// dealt is which card each Action was proposed for.
type dealt struct {
	mu    sync.Mutex
	cards map[types.UID]card
}

func (d *dealt) note(a *v1alpha1.Action, c card) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cards == nil {
		d.cards = map[types.UID]card{}
	}
	d.cards[a.UID] = c
}

// all are the cards by the uid of their Action. Nothing may be dealt any more.
func (d *dealt) all() map[types.UID]card {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cards
}
