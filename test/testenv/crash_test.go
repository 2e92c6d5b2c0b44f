package testenv

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
)

// It ends at its point and at no other, and is told to end before anybody hears of it.
func TestDies(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	crash, died := dies("after write", cancel)
	crash("before write")
	if ctx.Err() != nil {
		t.Fatal("it ended at another point")
	}
	for range 2 {
		go func() {
			crash("after write")
			t.Error("something went on")
		}()
	}
	<-died
	if ctx.Err() == nil {
		t.Error("it was not told to end")
	}
	crash("before write")
}

// A Pause stops whatever comes to its point, until it is resumed, and nothing after that.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := PauseAt(t, "before write")
		at := func(point string) (done chan struct{}) {
			done = make(chan struct{})
			go func() {
				p.At(point)
				close(done)
			}()
			synctest.Wait()
			return done
		}
		over := func(c chan struct{}) bool {
			select {
			case <-c:
				return true
			default:
				return false
			}
		}
		if !over(at("after write")) || over(p.Reached) {
			t.Error("it stopped at another point")
		}
		first, second := at("before write"), at("after write")
		if over(first) || !over(second) || !over(p.Reached) {
			t.Errorf("went on: at the point %t, elsewhere %t; reached: %t", over(first), over(second), over(p.Reached))
		}
		p.Resume()
		p.Resume()
		synctest.Wait()
		if !over(first) || !over(at("before write")) {
			t.Error("it did not go on")
		}
	})
}

// Whatever else of a dead process goes on is heard by nobody.
func TestTheDeadSendNothing(t *testing.T) {
	died := make(chan struct{})
	sent := 0
	wire := living{next: roundTripper(func(*http.Request) (*http.Response, error) {
		sent++
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	}), died: died}
	request := httptest.NewRequest(http.MethodGet, "http://127.0.0.1/", nil)
	if response, err := wire.RoundTrip(request); err != nil || response.Body.Close() != nil {
		t.Fatal(err)
	}
	close(died)
	if response, err := wire.RoundTrip(request); err == nil {
		_ = response.Body.Close()
		t.Error("the dead send")
	}
	if sent != 1 {
		t.Errorf("%d requests were sent", sent)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
