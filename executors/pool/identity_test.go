package pool

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// issuer makes tokens that are good for an hour, and answers requests as an apiserver does that checks them.
type issuer struct {
	taken  int
	broken bool
}

func (i *issuer) take(context.Context) (string, time.Time, error) {
	if i.broken {
		return "", time.Time{}, errors.New("forbidden")
	}
	i.taken++
	until := time.Now().Add(time.Hour)
	return until.Format(time.RFC3339), until, nil
}

func (i *issuer) RoundTrip(r *http.Request) (*http.Response, error) {
	until, err := time.Parse(time.RFC3339, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	if err != nil || !time.Now().Before(until) {
		return nil, fmt.Errorf("401 for %q", r.Header.Get("Authorization"))
	}
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

// A Job may run for a day, and is read all the time.
func TestTokensOutlastTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &issuer{}
		b := &bearer{take: server.take}
		client := &http.Client{Transport: b.wrap(server)}
		read := func() error {
			response, err := client.Get("https://apiserver.example/")
			if err != nil {
				return err
			}
			return response.Body.Close()
		}
		for start := time.Now(); time.Since(start) < 24*time.Hour; time.Sleep(20 * time.Second) {
			if err := read(); err != nil {
				t.Fatalf("after %s: %v", time.Since(start), err)
			}
		}
		if server.taken < 24 || server.taken > 49 {
			t.Errorf("%d tokens in a day", server.taken)
		}
		time.Sleep(40 * time.Minute)
		if err := read(); err != nil {
			t.Errorf("after a rest: %v", err)
		}
		time.Sleep(40 * time.Minute)
		server.broken = true
		if err := read(); err != nil {
			t.Errorf("the token is good for 20 minutes, and no other can be taken: %v", err)
		}
		time.Sleep(time.Hour)
		if err := read(); err == nil || !strings.Contains(err.Error(), "forbidden") {
			t.Errorf("without a token that is good: %v", err)
		}
		server.broken = false
		if err := read(); err != nil {
			t.Errorf("tokens can be taken again: %v", err)
		}
	})
}
