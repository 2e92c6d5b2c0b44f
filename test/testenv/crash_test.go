package testenv

import (
	"context"
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
