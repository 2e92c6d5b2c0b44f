package provider

import (
	"slices"
	"strconv"
)

// Fault is how a request to an endpoint goes wrong.
type Fault string

const (
	// None: it executes and answers 200 with JSON.
	None Fault = "none"

	// Before there is a connection.

	// NobodyListens: the connection is refused.
	NobodyListens Fault = "nobody listens"
	// NobodyAccepts: there is no answer to the connection.
	NobodyAccepts Fault = "nobody accepts"
	// SilentHandshake: TLS is never answered.
	SilentHandshake Fault = "silent handshake"
	// ResetInHandshake: TLS is answered by a reset.
	ResetInHandshake Fault = "reset in the handshake"
	// PlainText: TLS is answered by HTTP.
	PlainText Fault = "plain text"
	// WrongCertificate: its certificate is for another name.
	WrongCertificate Fault = "wrong certificate"
	// ExpiredCertificate: its certificate is over.
	ExpiredCertificate Fault = "expired certificate"
	// UnknownAuthority: its certificate is signed by somebody else.
	UnknownAuthority Fault = "unknown authority"
	// NoCommonProtocol: in TLS, it wants to speak something else than HTTP/1.1.
	NoCommonProtocol Fault = "no common protocol"

	// On a connection, before it acted.

	// ResetAtOnce: the connection is reset as soon as it is accepted.
	ResetAtOnce Fault = "reset at once"
	// ResetBeforeRead: the connection is reset when the request has come, before a byte of it is read.
	ResetBeforeRead Fault = "reset before read"
	// ResetAfterHead: the connection is reset when the head of the request was read.
	ResetAfterHead Fault = "reset after the head"
	// ClientCertificate: it wants one, and says so in TLS 1.3 when the client may already have sent the request.
	ClientCertificate Fault = "client certificate"
	// Refused: it does not execute, and answers 409, as it promises.
	Refused Fault = "refused"
	// RefusedCutOff: it does not execute, and its answer, 409, is cut off.
	RefusedCutOff Fault = "refused, cut off"

	// After it acted.

	ResetAfterActing  Fault = "reset after acting"
	ClosedAfterActing Fault = "closed after acting"
	HangAfterActing   Fault = "hang after acting"
	HalfHead          Fault = "half a head"
	HalfBody          Fault = "half a body"
	HangInBody        Fault = "hang in the body"
	ResetInBody       Fault = "reset in the body"
	// Slow: the answer comes byte by byte.
	Slow Fault = "slow"
	// Dripping: the answer comes byte by byte and for longer than anybody waits.
	Dripping Fault = "dripping"
	// Interim: a few interim answers come first.
	Interim Fault = "interim answers"
	// InterimFlood: interim answers come, and nothing else.
	InterimFlood Fault = "interim answers without end"
	EndlessHead  Fault = "a head without end"
	Garbage      Fault = "garbage"
	NotHTTP      Fault = "another protocol"
	BadStatus    Fault = "a bad status line"
	TwoLengths   Fault = "two lengths"
	// LengthTooLong: the answer is shorter than it says.
	LengthTooLong Fault = "length too long"
	// LengthTooShort: the answer is longer than it says.
	LengthTooShort Fault = "length too short"
	BrokenChunk    Fault = "broken chunk"
	MissingChunk   Fault = "missing chunk"
	// Huge: the answer has HugeSize bytes.
	Huge Fault = "huge"
	// It answers with that status.
	Redirect303 Fault = "303"
	Redirect307 Fault = "307"
	Status400   Fault = "400"
	Status401   Fault = "401"
	Status403   Fault = "403"
	Status429   Fault = "429"
	Status500   Fault = "500"
	Status502   Fault = "502"
	Status503   Fault = "503"
)

var (
	neverConnected = []Fault{NobodyListens, NobodyAccepts, SilentHandshake, ResetInHandshake, PlainText, WrongCertificate, ExpiredCertificate, UnknownAuthority, NoCommonProtocol}
	tlsOnly        = []Fault{SilentHandshake, ResetInHandshake, PlainText, WrongCertificate, ExpiredCertificate, UnknownAuthority, NoCommonProtocol, ClientCertificate}
	refusing       = []Fault{Refused, RefusedCutOff}
	statuses       = []Fault{Redirect303, Redirect307, Status400, Status401, Status403, Status429, Status500, Status502, Status503}
)

// NeedsTLS reports whether only TLS can go wrong in that way.
func (f Fault) NeedsTLS() bool { return slices.Contains(tlsOnly, f) }

// NeverConnects reports whether no connection comes about. ResetAtOnce is none of them by itself: with TLS none does, and without
// the connection was there.
func (f Fault) NeverConnects(secure bool) bool {
	return slices.Contains(neverConnected, f) || f == ResetAtOnce && secure
}

// Refuses reports whether the provider reads the request, and does not execute it.
func (f Fault) Refuses() bool { return slices.Contains(refusing, f) }

// Status is the one that it answers with, if that is all that is wrong; else 0.
func (f Fault) Status() int {
	if !slices.Contains(statuses, f) {
		return 0
	}
	n, _ := strconv.Atoi(string(f))
	return n
}

// Faults are all of them, with None.
func Faults() []Fault {
	return slices.Concat([]Fault{None}, neverConnected, []Fault{
		ResetAtOnce, ResetBeforeRead, ResetAfterHead, ClientCertificate, Refused, RefusedCutOff, ResetAfterActing, ClosedAfterActing,
		HangAfterActing, HalfHead, HalfBody, HangInBody, ResetInBody, Slow, Dripping, Interim, InterimFlood, EndlessHead, Garbage, NotHTTP,
		BadStatus, TwoLengths, LengthTooLong, LengthTooShort, BrokenChunk, MissingChunk, Huge,
	}, statuses)
}
