package effect

// Observation is what was seen of a request on the wire. The values are wire strings.
type Observation string

const (
	// NeverConnected: no connection was made for the request, so that not a byte of it was offered to one.
	NeverConnected Observation = "never_connected"
	// AfterRequestSent: it went wrong on a connection, when the request may have left.
	AfterRequestSent Observation = "after_request_sent"
	// UnreadableResponse: an answer came that says nothing, or not in time, or no end to it.
	UnreadableResponse Observation = "unreadable_response"
	// StreamEndedEarly: an answer began and was cut off.
	StreamEndedEarly Observation = "stream_ended_early"
	// ClientDisconnected: whoever asked stopped waiting.
	ClientDisconnected Observation = "client_disconnected"
)

// State is what an observation proves of the effect the request was for: it is the one rule of transport evidence. Only a request
// without a connection certainly did nothing. Everything else, an observation without a name included, proves nothing.
func (o Observation) State() State {
	if o == NeverConnected {
		return Failed
	}
	return Ambiguous
}
