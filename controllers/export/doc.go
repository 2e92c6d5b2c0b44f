// Package export hands what happened to whoever watches from outside: lines in files or on stdout, traces, Kubernetes
// Events.
//
// Every sink is an observe.Observer behind a Queue. The observer only puts what it is told into the queue, which is bounded
// and never waits; the sink works on it in its own time, in a goroutine of its own. So a sink may be slow, refuse, hang or
// panic: what it loses is counted, and no decision is another one or later for it. The record is in the cluster, and an
// export is a copy of it that can be completed.
package export
