package receipt

// Columns are the fields of a document that are stored beside it, for columns and selectors. They are copies: only the
// document is proof, and a copy that differs from it is a tampered one.
type Columns struct {
	Kind       string
	Result     string
	Reason     string // why it ended so; of an event, its word
	ActionType string
	ActionName string
	Agent      string
	EffectName string
	Attempt    int64
}

// Columns computes the copies.
func (d Document) Columns() Columns {
	c := Columns{
		Kind: d.Kind, Result: string(d.Result), Reason: string(d.Reason),
		ActionType: d.ActionType, ActionName: d.ActionName, EffectName: d.EffectName, Attempt: d.Attempt,
	}
	if d.Kind == KindEvent {
		c.Reason = d.Event
	}
	if d.Principal != nil {
		c.Agent = d.Principal.Agent
	}
	return c
}
