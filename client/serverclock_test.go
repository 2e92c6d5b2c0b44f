package client

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

func TestTheServerClockIsReadFromResponses(t *testing.T) {
	const ahead = 3 * time.Hour
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
	}))
	defer server.Close()
	clock := newServerClock()
	if off := time.Until(clock.now()).Abs(); off > time.Minute {
		t.Errorf("without a response the machine's clock counts, but it is off by %s", off)
	}
	c := &http.Client{Transport: clock.observe(http.DefaultTransport)}
	response, err := c.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	// Never behind the server, or a lease would look longer than it is; ahead by at most the second that Date cuts off.
	offset := time.Until(clock.now())
	if offset < ahead || offset > ahead+2*time.Second {
		t.Errorf("the clock is %s ahead, the server %s", offset, ahead)
	}
}

func TestAResponseWithoutDateKeepsTheClock(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Date"] = nil
	}))
	defer server.Close()
	clock := newServerClock()
	clock.date, clock.at = time.Now().Add(time.Hour), time.Now()
	c := &http.Client{Transport: clock.observe(http.DefaultTransport)}
	response, err := c.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if offset := time.Until(clock.now()); offset < time.Hour {
		t.Errorf("a response without Date moved the clock to %s", offset)
	}
}
