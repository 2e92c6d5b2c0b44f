// Package transport lets an agent's own HTTP call prove that nothing was executed.
//
// Most errors of an HTTP call prove nothing: a reset or a timeout looks the same before a provider acted and after. One case is
// certain: no connection was ever made for the request, so not a byte of it was offered to anybody. Transport is an
// http.RoundTripper that can tell this case from all others, because it makes every connection itself, for one request, and counts
// what is offered to it above TLS. Its error is then a *NeverConnectedError, whose method NotExecuted reports true; package client
// finds it in the chain of errors that http.Client returns, and reports NotExecuted. Every other error is the original one, and
// says nothing.
//
// # What is claimed
//
// A *NeverConnectedError comes from one place: from connecting, before a connection exists that a request could be written to. That
// is name resolution, TCP, and the TLS handshake, refused or out of time. It rests on this, and not on the type of an error.
// Nothing is claimed if the context of the request is done, for then the call was given up and nobody looked; if an argument is not
// understood; or if something panics.
//
// No HTTP status is a proof either, 401, 409 and 503 included: whoever knows that a provider promises more for a status says so in
// the code of the agent.
//
// # What it takes for this
//
// Every request has a new connection, closed after it, and speaks HTTP/1.1. Nothing is sent twice: net/http sends again only on a
// connection that was used before. No redirect is followed, for a provider that redirects may have acted: Transport refuses the
// second request, and Transport.Client makes an http.Client that returns the redirect as the answer it is. An http.Client of one's
// own is given a CheckRedirect that returns http.ErrUseLastResponse.
//
// The claim is about one call of RoundTrip. Whoever wraps Transport into something that tries again must not take the error of the
// last try for all of them.
package transport
