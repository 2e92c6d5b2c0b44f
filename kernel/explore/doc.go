// Package explore checks the protocol by trying everything: it drives flow.Next, as it ships, through every order of events
// that a small world allows, breadth first, and holds each state against the invariants. The first violation it meets is one
// of the shortest, and is told step by step.
//
// # The world
//
// A [Scenario] is a small world and what may happen in it. The apiserver keeps every version of every object. Around it
// are agents with two processes each, people who approve, deny and resolve, and whose right to approve comes and goes, policies,
// authority and modes that change, a clock that jumps, rivals, forgers in a time without admission, deletions, and records that lose their status.
//
// # The operators
//
// An operator is a set of passes over flow.Next; it remembers nothing else. A pass begins with what caches hold, every object
// at any version it ever had, each at its own, or not at all: as many of them otherwise than they are as the scenario says. It
// reads what Next tells it to read. Between two writes a pass is a function of its snapshot, so it is not interleaved there:
// the world moves only before a write, and, where the scenario says so, before a read that follows another read. A pass that stands before its write is, at the same time, a request on its
// way: it lands at any later time or never, is answered and the pass goes on, or its answer is lost and the pass is over. So
// a few of them are any number of operators: paused, crashed between any two writes, overlapping, with writes that arrive
// after somebody looked whether they did.
//
// A write that can never land and a pass that never goes on change nothing that other passes can see, so neither a crash nor a
// lost request is an event of its own: whatever follows from one, follows from a state without that pass.
//
// What is in force has versions, one after the other: a policy with the authority and the mode beside it. A pass begins with the
// present one or the one before, which is what the freshness proof leaves it. An admission is held against the version by which
// the pass that admits decided, and against what that pass itself was told of those who approved.
//
// # Symmetry
//
// Operators have no names: a state holds its passes as a set. Actions are alike before they are proposed, so they are
// proposed in one order (where a scenario has two that are not alike, that order is a bound); so are the claims of two processes that are alike.
//
// # Counting
//
// Values are interned, so a state is a few dozen numbers. It is remembered by 128 bits of hash, which are of the numbers,
// in the order they were met. A collision would hide a state, and what follows from it, from the search: it could miss a
// violation and never invent one. Of a billion states, one in 10^20 searches has one.
package explore
