package controllers

import (
	"context"
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/cache"
)

// An API that did not answer is left alone for a while. Then one asks, and the others wait for what that one hears.
func TestAnAPIThatDoesNotAnswer(t *testing.T) {
	now := time.Unix(0, 0)
	p := &parts{now: func() time.Time { return now }, away: cache.NewLRUExpireCache(apisRemembered)}
	api, other := schema.GroupVersion{Group: "gadgets.example", Version: "v1"}, schema.GroupVersion{Version: "v1"}
	may := func(want bool, when string) {
		t.Helper()
		if got := p.ask(api); got != want {
			t.Errorf("%s: may ask: %t, want %t", when, got, want)
		}
		if !p.ask(other) {
			t.Errorf("%s: another API may not be asked", when)
		}
	}
	may(true, "at first")
	may(true, "at first, by a second one")
	p.heard(api, silent)
	may(false, "when it did not answer")
	now = now.Add(awayFor - time.Nanosecond)
	may(false, "within a while")
	now = now.Add(time.Nanosecond)
	may(true, "after a while")
	may(false, "while one asks whether it is back")
	p.heard(api, notAsked)
	may(true, "when that one did not come to ask")
	p.heard(api, silent)
	may(false, "when it did not answer again")
	now = now.Add(awayFor)
	may(true, "after another while")
	p.heard(api, answered)
	may(true, "when it is back")
	may(true, "when it is back, by a second one")
}

// Only an answer shows that an API is there, and only its own silence that it is not.
func TestWhatARequestProves(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	unknown := errors.New("connection refused")
	for name, test := range map[string]struct {
		ctx  context.Context
		err  error
		want contact
	}{
		"it answers":               {t.Context(), nil, answered},
		"it says no":               {t.Context(), apierrors.NewNotFound(schema.GroupResource{}, "x"), answered},
		"it is too busy":           {t.Context(), apierrors.NewTooManyRequests("", 1), silent},
		"it says nothing":          {t.Context(), unknown, silent},
		"the look is over":         {over, unknown, notAsked},
		"the answer comes in time": {over, nil, answered},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := request(test.ctx, func(context.Context) error { return test.err })
			if got != test.want || !errors.Is(err, test.err) {
				t.Errorf("got %d, %v, want %d", got, err, test.want)
			}
		})
	}
}

// As many look at a time as there are turns. Who waits too long, or has no time left, has none.
func TestTurns(t *testing.T) {
	p := &parts{turns: make(chan struct{}, 1)}
	done, ok := p.turn(t.Context())
	if !ok {
		t.Fatal("the first has no turn")
	}
	if _, ok := p.turn(t.Context()); ok {
		t.Error("a second has a turn meanwhile")
	}
	done()
	if _, ok := p.turn(t.Context()); !ok {
		t.Error("nobody has a turn afterwards")
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, ok := p.turn(over); ok {
		t.Error("a turn for one whose time is over")
	}
}
