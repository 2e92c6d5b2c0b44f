package export

import (
	"fmt"
	"strconv"
	"time"

	"ctrlrun.dev/operator/controllers/observe"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/kernel/timeline"
)

// Event is one thing that happened, for a reader outside.
type Event struct {
	// ID is the same whenever and by whomever the event is exported: the Action's uid and the event's seq in its timeline,
	// or, without an Action, the namespace and the seq of the receipt.
	ID        string
	Time      time.Time
	Type      timeline.Type
	ClusterID string
	Namespace string
	// ActionID is the Action's uid. Empty, like what follows, where there is none.
	ActionID, ActionName string
	EffectKey            string
	ApprovalID           string
	Data                 map[string]string
}

// eventsOf are the events that a write added to an Action's timeline.
func eventsOf(clusterID string, w observe.ActionWrite) []Event {
	var out []Event
	for _, e := range w.Events {
		event := Event{
			ID:        string(w.Object.UID) + "." + strconv.FormatInt(e.Seq, 10),
			Time:      e.Time,
			Type:      e.Type,
			ClusterID: clusterID, Namespace: w.Object.Namespace,
			ActionID: string(w.Object.UID), ActionName: w.Object.Name,
			ApprovalID: e.Data["approval"],
			Data:       e.Data,
		}
		if w.After.Effect != nil {
			event.EffectKey = w.After.Effect.Key
		}
		out = append(out, event)
	}
	return out
}

// eventOf is what a receipt of kind event tells.
func eventOf(d receipt.Document) Event {
	return Event{
		ID:   d.Namespace + "." + strconv.FormatInt(d.Seq, 10),
		Time: d.FinishedTime, Type: timeline.Type(d.Event),
		ClusterID: d.ClusterID, Namespace: d.Namespace,
		Data: d.Data,
	}
}

// Line is the event as one line of JSON without a line end: canonical, with all keys always, null where there is nothing.
func (e Event) Line() ([]byte, error) {
	data := make(map[string]any, len(e.Data))
	for k, v := range e.Data {
		data[k] = v
	}
	line, err := canonical.Encode(map[string]any{
		"event_id":    e.ID,
		"ts":          e.Time.UTC().Format(receipt.TimeLayout),
		"type":        string(e.Type),
		"cluster_id":  orNull(e.ClusterID),
		"namespace":   e.Namespace,
		"action_id":   orNull(e.ActionID),
		"action_name": orNull(e.ActionName),
		"effect_key":  orNull(e.EffectKey),
		"approval_id": orNull(e.ApprovalID),
		"data":        data,
	})
	if err != nil {
		return nil, fmt.Errorf("event %s cannot be written: %w", e.ID, err)
	}
	return line, nil
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}
