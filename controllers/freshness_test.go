package controllers

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2/textlogger"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"ctrlrun.dev/operator/kernel/decision"
)

// held is one object as somebody holds it: an apiserver, or a cache.
type held struct{ uid, version string }

// shelf answers lists from memory. It stands for either side of the comparison, which is all that is tested here.
type shelf func(kind string) (version string, objects []held, err error)

func (s shelf) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("nobody gets a single object to compare caches")
}

func (s shelf) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	version, objects, err := s(strings.TrimSuffix(list.GetObjectKind().GroupVersionKind().Kind, "List"))
	if err != nil {
		return err
	}
	l := list.(*metav1.PartialObjectMetadataList)
	l.ResourceVersion, l.Items = version, nil
	for _, o := range objects {
		l.Items = append(l.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Namespace: "payments", Name: "name-of-" + o.uid, UID: types.UID(o.uid), ResourceVersion: o.version,
		}})
	}
	return nil
}

// holding always answers the same.
func holding(version string, objects ...held) shelf {
	return func(string) (string, []held, error) { return version, objects, nil }
}

// inTurn answers with one shelf after the other, and then with the last.
func inTurn(shelves ...shelf) shelf {
	return func(kind string) (string, []held, error) {
		now := shelves[0]
		if len(shelves) > 1 {
			shelves = shelves[1:]
		}
		return now(kind)
	}
}

// remote is a shelf behind a connection: nobody waits for it longer than they want to.
type remote struct{ shelf }

func (r remote) List(ctx context.Context, list client.ObjectList, o ...client.ListOption) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return r.shelf.List(ctx, list, o...)
}

func comparing(apiserver, cache shelf) *freshness {
	return &freshness{
		start: time.Now(), reader: remote{apiserver}, cache: cache, changed: func() {},
		lists: func(kind schema.GroupVersionKind) client.ObjectList {
			l := &metav1.PartialObjectMetadataList{}
			l.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
			return l
		},
	}
}

var anyKind = decisionKinds[0]

// TestDifference proves which caches are taken for equal to a list, at the version 20, of the objects a at 10 and b at 15.
func TestDifference(t *testing.T) {
	want := map[string]uint64{"a": 10, "b": 15}
	tests := map[string]struct {
		cache []held
		// differs is what the difference names; "" if there is none.
		differs string
	}{
		"the same objects":                           {[]held{{"a", "10"}, {"b", "15"}}, ""},
		"an object that is newer in the cache":       {[]held{{"a", "10"}, {"b", "21"}}, ""},
		"an object that was created after the list":  {[]held{{"a", "10"}, {"b", "15"}, {"c", "21"}}, ""},
		"an object that lags":                        {[]held{{"a", "9"}, {"b", "15"}}, "uid a"},
		"an object that is missing":                  {[]held{{"a", "10"}}, "uid b"},
		"a cache that is empty":                      {nil, "uid"},
		"an object that is deleted and still cached": {[]held{{"a", "10"}, {"b", "15"}, {"c", "12"}}, "payments/name-of-c is gone"},
		"one that was deleted just before the list":  {[]held{{"a", "10"}, {"b", "15"}, {"c", "20"}}, "payments/name-of-c is gone"},
		"one that was replaced under its name":       {[]held{{"earlier-a", "5"}, {"b", "15"}}, "uid a"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := comparing(nil, holding("", test.cache...)).difference(t.Context(), anyKind, want, 20)
			if err != nil {
				t.Fatal(err)
			}
			if (got == "") != (test.differs == "") || !strings.Contains(got, test.differs) {
				t.Errorf("the difference is %q; it should name %q", got, test.differs)
			}
		})
	}
}

// TestNothingIsProvedByAnError proves that what cannot be read or compared is never taken for equal.
func TestNothingIsProvedByAnError(t *testing.T) {
	away := errors.New("away")
	failing := shelf(func(string) (string, []held, error) { return "", nil, away })
	good := holding("20", held{"a", "10"})
	tests := map[string]struct {
		apiserver, cache shelf
		says             string
	}{
		"the apiserver does not answer":        {failing, good, "away"},
		"the cache does not answer":            {good, failing, "away"},
		"the list has no version":              {holding("", held{"a", "10"}), good, `""`},
		"the list's version is no number":      {holding("v20", held{"a", "10"}), good, `"v20"`},
		"a listed object's version is none":    {holding("20", held{"a", "ten"}), good, `"ten"`},
		"a listed object's version is signed":  {holding("20", held{"a", "-10"}), good, `"-10"`},
		"a listed object's version is too big": {holding("20", held{"a", "18446744073709551616"}), good, "18446744073709551616"},
		"a cached object's version is none":    {good, holding("", held{"a", "ten"}), `"ten"`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := comparing(test.apiserver, test.cache).compare(t.Context(), anyKind)
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("the error is %v; it should name %s", err, test.says)
			}
		})
	}
}

// TestCompare proves how long one list is waited for, and which list a cache turns out to be equal to.
func TestCompare(t *testing.T) {
	a, b := held{"a", "10"}, held{"b", "15"}
	var never shelf // to list again would panic
	tests := map[string]struct {
		apiserver, cache shelf
		// list is how long after the beginning the list was made that the cache is equal to.
		list time.Duration
		// differs is what still differs at the end of the round; "" if nothing does.
		differs string
	}{
		"a cache that is equal": {
			apiserver: holding("20", a, b), cache: holding("", a, b),
		},
		"a cache that catches up": {
			apiserver: inTurn(holding("20", a, b), never), cache: inTurn(holding("", a), holding("", a), holding("", a, b)),
		},
		"an object that is deleted after the list": {
			apiserver: inTurn(holding("20", a, b), holding("21", a)), cache: holding("", a), list: freshnessRelist,
		},
		"an object that is replaced after the list": {
			apiserver: inTurn(holding("20", a), holding("22", held{"later-a", "22"})), cache: holding("", held{"later-a", "22"}), list: freshnessRelist,
		},
		"a cache that never learns of an object": {
			apiserver: holding("20", a, b), cache: holding("", a), differs: "uid b",
		},
		"a cache that never learns of a change": {
			apiserver: holding("20", a, b), cache: holding("", held{"a", "9"}, b), differs: "uid a",
		},
		"a cache that never learns of a deletion": {
			apiserver: holding("20", a), cache: holding("", a, b), differs: "name-of-b is gone",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), freshnessTrust)
				defer cancel()
				start := time.Now()
				began, err := comparing(test.apiserver, test.cache).compare(ctx, anyKind)
				switch {
				case test.differs == "" && err != nil:
					t.Fatal(err)
				case test.differs != "":
					if err == nil || !strings.Contains(err.Error(), test.differs) {
						t.Errorf("the error is %v; it should name %q", err, test.differs)
					}
				case began.Sub(start).Round(100*time.Millisecond) != test.list:
					t.Errorf("it is equal to the list made %s after the beginning; it should be %s", began.Sub(start), test.list)
				}
			})
		})
	}
}

// TestNothingIsDecidedUnlessProved proves when the guard holds, and that whoever waits for the end of a hold is told once.
func TestNothingIsDecidedUnlessProved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lags := ""
		cache := shelf(func(kind string) (string, []held, error) {
			if kind == lags {
				return "", nil, nil
			}
			return "", []held{{"a", "10"}}, nil
		})
		f := comparing(holding("20", held{"a", "10"}), cache)
		told := 0
		f.changed = func() { told++ }
		var log strings.Builder
		f.log = textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log)))
		start := time.Now()
		expect := func(when string, since time.Time, wantTold int) {
			t.Helper()
			h := f.Hold()
			switch {
			case since.IsZero() && h != nil:
				t.Errorf("%s: it holds: %+v", when, h)
			case !since.IsZero() && h == nil:
				t.Errorf("%s: it does not hold", when)
			case h != nil && (h.Reason != decision.CachesStale || !h.Since.Equal(since)):
				t.Errorf("%s: it holds for %s since %s; it should for %s since %s", when, h.Reason, h.Since, decision.CachesStale, since)
			}
			if told != wantTold {
				t.Errorf("%s: told %d times; it should be %d", when, told, wantTold)
			}
		}
		expect("before the first round", start, 0)

		lags = "Settings"
		f.round(t.Context())
		expect("after a round in which one kind of all lagged", start, 0)

		lags = ""
		f.round(t.Context())
		first := time.Now()
		expect("after an equal round", time.Time{}, 1)
		f.round(t.Context())
		expect("after another", time.Time{}, 1)

		time.Sleep(freshnessTrust - time.Nanosecond)
		expect("at the end of the trust", time.Time{}, 1)
		time.Sleep(time.Nanosecond)
		expect("when the trust is over", first.Add(freshnessTrust), 1)

		lags = "ValidatingAdmissionPolicyBinding"
		f.round(t.Context())
		expect("after an unequal round", first.Add(freshnessTrust), 1)
		if !strings.Contains(log.String(), `ValidatingAdmissionPolicyBinding with uid a`) {
			t.Errorf("the log does not say what differs: %s", &log)
		}
		lags = ""
		f.round(t.Context())
		expect("after an equal round again", time.Time{}, 2)
	})
}

// TestTrustCountsFromTheList proves that a round which took long is trusted for less: what it proved is as old as its oldest
// list.
func TestTrustCountsFromTheList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		cache := shelf(func(kind string) (string, []held, error) {
			if kind == "Namespace" && time.Since(start) < freshnessRelist/2 {
				return "", nil, nil
			}
			return "", []held{{"a", "10"}}, nil
		})
		f := comparing(holding("20", held{"a", "10"}), cache)
		f.round(t.Context())
		if took := time.Since(start); took < freshnessRelist/2 {
			t.Fatalf("the round took %s", took)
		}
		time.Sleep(time.Until(start.Add(freshnessTrust - time.Nanosecond)))
		if h := f.Hold(); h != nil {
			t.Errorf("it holds too early: %+v", h)
		}
		time.Sleep(time.Nanosecond)
		if f.Hold() == nil {
			t.Error("it does not hold, although its list is too old")
		}
	})
}

// TestIdle proves that a round counts as made whether or not the caches were equal, and that rounds go on by themselves.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		f := comparing(func(string) (string, []held, error) {
			if away.Load() {
				return "", nil, errors.New("away")
			}
			return "20", []held{{"a", "10"}}, nil
		}, holding(""))
		time.Sleep(time.Minute)
		if idle := f.Idle(); idle != time.Minute {
			t.Errorf("before the first round it is idle for %s; it should be since its start", idle)
		}

		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- f.Start(ctx) }()
		for range 10 { // no round is longer than its trust
			time.Sleep(freshnessTrust + freshnessEvery)
			if idle := f.Idle(); idle > freshnessTrust+freshnessEvery {
				t.Errorf("it is idle for %s while it makes rounds, although unequal ones", idle)
			}
		}
		if f.Hold() == nil {
			t.Error("it does not hold, although no round was equal")
		}
		away.Store(true)
		time.Sleep(freshnessTrust + freshnessEvery)
		if idle := f.Idle(); idle > freshnessEvery {
			t.Errorf("it is idle for %s because the apiserver is away", idle)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("it ended with %v", err)
		}
		time.Sleep(time.Minute)
		if idle := f.Idle(); idle < time.Minute-freshnessEvery {
			t.Errorf("it is idle for %s; it should be since its end", idle)
		}
	})
}

// TestEachDecisionKindIsCompared proves that the cache is asked for the very kind that was listed.
func TestEachDecisionKindIsCompared(t *testing.T) {
	for _, kind := range decisionKinds {
		got, err := apiutil.GVKForObject(listOf(kind), Scheme())
		if err != nil {
			t.Fatal(err)
		}
		if want := kind.GroupVersion().WithKind(kind.Kind + "List"); got != want {
			t.Errorf("for %s the cache is asked for %s", kind, got)
		}
	}
}
