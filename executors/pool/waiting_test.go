package pool

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func emptyPool() *Pool { return &Pool{lanes: map[types.UID]*lane{}} }

// Those who wait ask every few seconds. When the minute is over, as many are told as may begin then, not every one for each time it asked.
func TestTheEndOfAMinuteTellsThoseWhoMayBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, o, told := emptyPool(), anExecutor(256, 2), 0
		for i := range 2 {
			if _, release := p.Slot(o, types.UID(fmt.Sprint("first-", i)), nil); release == nil {
				t.Fatal("there is no slot")
			} else {
				release()
			}
		}
		for range 11 {
			for i := range 100 {
				if run, _ := p.Slot(o, types.UID(fmt.Sprint(i)), func() { told++ }); run != nil {
					t.Fatal("a third one began within a minute")
				}
			}
			time.Sleep(5 * time.Second)
		}
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if told != 2 {
			t.Errorf("%d times somebody was told that there are 2 slots", told)
		}
		if run, release := p.Slot(o, "0", nil); run == nil {
			t.Error("the minute is over, and there is no slot")
		} else {
			release()
		}
	})
}

// One that waited and was given up keeps nobody from hearing of a slot, and nothing of it is kept.
func TestWhoIsGoneDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, o := emptyPool(), anExecutor(1, 60)
		_, release := p.Slot(o, "running", nil)
		told := map[string]int{}
		p.Slot(o, "gone", func() { told["gone"]++ })
		for range 30 {
			p.Slot(o, "there", func() { told["there"]++ })
			time.Sleep(5 * time.Second)
		}
		release()
		synctest.Wait()
		if told["there"] != 1 || told["gone"] != 0 {
			t.Errorf("told were %v", told)
		}
		time.Sleep(2 * time.Minute)
		another := anExecutor(1, 0)
		another.UID = "another"
		_, release = p.Slot(another, "a", nil)
		release()
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.lanes) > 0 {
			t.Errorf("%d lanes are kept of Executors that do nothing", len(p.lanes))
		}
	})
}

// One that found a slot by itself waits for none any more.
func TestWhoHasASlotDoesNotWait(t *testing.T) {
	p, o, told := emptyPool(), anExecutor(1, 0), ""
	_, release := p.Slot(o, "a", nil)
	p.Slot(o, "b", func() { told += "b" })
	p.Slot(o, "c", func() { told += "c" })
	release() // tells b
	_, release = p.Slot(o, "c", nil)
	p.Slot(o, "b", func() { told += "b" })
	release()
	if told != "bb" {
		t.Errorf("told were %s", told)
	}
}
