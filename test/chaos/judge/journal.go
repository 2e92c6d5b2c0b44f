package judge

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"time"

	"ctrlrun.dev/operator/api/v1alpha1"
)

// Forever is the hold-up of a process that is killed.
const Forever = time.Duration(math.MaxInt64)

// Injection is something that was done to a run on purpose.
type Injection struct {
	// Time at which it was recorded: before it was caused. Set by Record.
	Time time.Time `json:"time"`
	// Kind of fault, such as "kill" or "late".
	Kind string `json:"kind"`
	// Point it was done at: a write of the protocol, or a stage of an agent.
	Point string `json:"point,omitempty"`
	// Process it was done to.
	Process string `json:"process,omitempty"`

	// What it was done to, as far as that is known at the time. An attempt is recognised by the first of these that is set:
	// the Action's uid, the piece of work (argument "work" of the Action), its name, or effect key and attempt together. A key
	// alone names no attempt.
	Namespace string `json:"namespace,omitempty"`
	ActionUID string `json:"actionUID,omitempty"`
	Work      string `json:"work,omitempty"`
	Action    string `json:"action,omitempty"`
	EffectKey string `json:"effectKey,omitempty"`
	Attempt   int64  `json:"attempt,omitempty"`

	// Causes are those for which an attempt may be Ambiguous because of this. None: it must not make any attempt Ambiguous.
	Causes []v1alpha1.EffectCause `json:"causes,omitempty"`
	// HoldUp is for how long, at most, it keeps the executing process from reporting. A lease lapses only if it was held up
	// for long enough.
	HoldUp time.Duration `json:"holdUp,omitempty"`
	// Over is when it was seen to be over, if that was before HoldUp.
	Over time.Time `json:"over,omitzero"`
}

// end is when it kept nobody from reporting any more.
func (i Injection) end() time.Time {
	end := i.Time.Add(i.HoldUp)
	if !i.Over.IsZero() && i.Over.Before(end) {
		return i.Over
	}
	return end
}

// about reports whether the injection was made into the attempt.
func (i Injection) about(namespace string, a attempt) bool {
	switch {
	case i.Namespace != "" && i.Namespace != namespace:
		return false
	case i.ActionUID != "":
		return i.ActionUID == a.actionUID
	case i.Work != "":
		return i.Work == a.work
	case i.Action != "":
		return i.Action == a.action
	}
	return i.EffectKey != "" && i.Attempt > 0 && i.EffectKey == a.id.key && i.Attempt == a.id.number
}

// Journal is the record of injections. It is safe for concurrent use.
type Journal struct {
	mu         sync.Mutex
	to         io.Writer
	injections []Injection
}

// NewJournal makes a journal that also writes each injection as a line of JSON. A nil writer keeps it in memory alone.
func NewJournal(to io.Writer) *Journal { return &Journal{to: to} }

// Record puts injections on record. Only after it has returned without an error may they be caused.
func (j *Journal) Record(injections ...Injection) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, i := range injections {
		i.Time = time.Now()
		if err := j.write(i); err != nil {
			return fmt.Errorf("%s at %s is not on record and must not be caused: %w", i.Kind, i.Point, err)
		}
		j.injections = append(j.injections, i)
	}
	return nil
}

// Over puts on record that every injection of a kind that was not over is so from a time on.
func (j *Journal) Over(kind string, at time.Time) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	for n := range j.injections {
		if i := &j.injections[n]; i.Kind == kind && i.Over.IsZero() {
			i.Over = at
		}
	}
	return j.write(Injection{Time: time.Now(), Kind: kind + " is over", Over: at})
}

func (j *Journal) write(i Injection) error {
	if j.to == nil {
		return nil
	}
	line, err := json.Marshal(i)
	if err != nil {
		return err
	}
	_, err = j.to.Write(append(line, '\n'))
	return err
}

// Injections are those on record, in their order.
func (j *Journal) Injections() []Injection {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.injections)
}
