package proxy

import (
	"context"
	"net/http"
	"time"
)

// Injector decides what goes wrong. Inject is called before a request is forwarded, by many requests at once; what it does
// itself, such as killing a process or noting what it is about to do, is done before the request goes on. ctx ends when the
// client is gone.
type Injector interface {
	Inject(ctx context.Context, r Request) Fault
}

// InjectorFunc is a function as an Injector.
type InjectorFunc func(ctx context.Context, r Request) Fault

// Inject implements Injector.
func (f InjectorFunc) Inject(ctx context.Context, r Request) Fault { return f(ctx, r) }

// Kind is a sort of fault, as Stats names it.
type Kind string

const (
	KindRefuse       Kind = "refuse"
	KindReset        Kind = "reset"
	KindLoseResponse Kind = "lose response"
	KindLate         Kind = "late"
	KindStall        Kind = "stall"
	KindCut          Kind = "cut"
	KindTear         Kind = "tear"
	// KindMisfit is a fault that does not fit its request: the request was forwarded as if there were none.
	KindMisfit Kind = "misfit"
	// KindDropped is a late or stalled request that was never forwarded, because the proxy was closed or the client gone.
	KindDropped Kind = "dropped"
	// KindHold and KindPartition count the calls of Hold and Partition.
	KindHold      Kind = "hold"
	KindPartition Kind = "partition"
)

// What Fault.After hears instead of a status.
const (
	// Unanswered: the request was forwarded and the connection to the apiserver failed. It may have been carried out or not.
	Unanswered = 0
	// Dropped: the request was never forwarded and never will be.
	Dropped = -1
)

// Fault is what goes wrong with one request. The zero value is nothing.
type Fault struct {
	kind   Kind
	status int
	delay  time.Duration
	before []func()
	after  []func(status int)
}

// Forward is no fault. It carries Before and After.
func Forward() Fault { return Fault{} }

// Refuse answers instead of the apiserver, with a metav1.Status of that code: 409, 429, 500, 503 or another. The request is
// not forwarded. retryAfter, in whole seconds, goes into the Retry-After header and makes client-go repeat the request by
// itself where the code is 429 or 5xx; 0 leaves it out. 409 is always a conflict, never "exists already", which would be a lie.
func Refuse(code int, retryAfter time.Duration) Fault {
	return Fault{kind: KindRefuse, status: code, delay: retryAfter}
}

// Reset resets the client's connection. The request is not forwarded.
func Reset() Fault { return Fault{kind: KindReset} }

// LoseResponse forwards the request, waits for the whole answer and then resets the client's connection: if it was a write it
// is done, and the client does not know. It does not fit a watch.
func LoseResponse() Fault { return Fault{kind: KindLoseResponse} }

// Late resets the client's connection at once and forwards the request after the delay, whatever has become of the client by
// then. It does not fit a watch.
func Late(delay time.Duration) Fault { return Fault{kind: KindLate, delay: delay} }

// Stall holds the request up before it is forwarded. If the client is gone when the time is over, it is not.
func Stall(d time.Duration) Fault { return Fault{kind: KindStall, delay: d} }

// Cut ends a watch, as an apiserver does when its time is over, so long after it began. It fits watches only.
func Cut(after time.Duration) Fault { return Fault{kind: KindCut, delay: after} }

// Tear is Cut by a reset of the connection.
func Tear(after time.Duration) Fault { return Fault{kind: KindTear, delay: after} }

// Before adds a function that is called right before the request is forwarded, or, where it is not, before the fault is
// carried out. To end a process before a write of its own, use Reset: what was sent before the end lands.
func (f Fault) Before(do func()) Fault {
	f.before = append(f.before[:len(f.before):len(f.before)], do)
	return f
}

// After adds a function that hears the apiserver's status, before the client does and before the fault goes on: the place to
// end or to stop a process whose write is done. It is called once for each request that a fault let live, with Unanswered or
// Dropped if there is no status; for Refuse and Reset never.
func (f Fault) After(do func(status int)) Fault {
	f.after = append(f.after[:len(f.after):len(f.after)], do)
	return f
}

// Kind of the fault, empty for none.
func (f Fault) Kind() Kind { return f.kind }

// fits reports whether a fault makes sense for a verb.
func (f Fault) fits(verb string) bool {
	switch f.kind {
	case KindCut, KindTear:
		return verb == "watch"
	case KindLoseResponse, KindLate:
		return verb != "watch"
	case KindRefuse:
		return f.status >= http.StatusBadRequest
	}
	return true
}
