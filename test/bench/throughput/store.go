package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

// store is etcd itself, by the HTTP form of its API. Fifty thousand lives of actions would take the best part of an hour
// through the apiserver; what is written here is what the apiserver stored for one of them, with other names.
type store struct{ url string }

// entry is one object as the apiserver stores it.
type entry struct{ key, value string }

func (s *scene) store() (*store, error) {
	found, err := children("etcd")
	if err != nil {
		return nil, err
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", found["etcd"]))
	if err != nil {
		return nil, err
	}
	for argument := range strings.SplitSeq(string(line), "\x00") {
		if url, found := strings.CutPrefix(argument, "--listen-client-urls="); found {
			return &store{url: url}, nil
		}
	}
	return nil, fmt.Errorf("etcd was not told where to listen: %q", line)
}

// records are the entries of one resource of this product in a namespace.
func (s *store) records(ctx context.Context, resource string) ([]entry, error) {
	return s.read(ctx, "/registry/ctrlrun.dev/"+resource+"/"+namespace+"/")
}

func (s *store) read(ctx context.Context, prefix string) ([]entry, error) {
	end := []byte(prefix)
	end[len(end)-1]++
	var answer struct {
		KVs []struct{ Key, Value []byte } `json:"kvs"`
	}
	if err := s.post(ctx, "/v3/kv/range", map[string]any{"key": []byte(prefix), "range_end": end}, &answer); err != nil {
		return nil, err
	}
	var all []entry
	for _, kv := range answer.KVs {
		if !json.Valid(kv.Value) {
			return nil, fmt.Errorf("etcd holds %s in another form than JSON, which this cannot copy", kv.Key)
		}
		all = append(all, entry{key: string(kv.Key), value: string(kv.Value)})
	}
	return all, nil
}

// batch is how many entries are written at once; etcd takes 128.
const batch = 100

func (s *store) write(ctx context.Context, entries []entry) error {
	for len(entries) > 0 {
		now := entries[:min(batch, len(entries))]
		entries = entries[len(now):]
		var puts []any
		for _, e := range now {
			puts = append(puts, map[string]any{"request_put": map[string]any{"key": []byte(e.key), "value": []byte(e.value)}})
		}
		if err := s.post(ctx, "/v3/kv/txn", map[string]any{"success": puts}, &struct{}{}); err != nil {
			return err
		}
	}
	return nil
}

func (s *store) post(ctx context.Context, path string, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd answers %s to %s: %s", response.Status, path, text[:min(len(text), 500)])
	}
	return json.Unmarshal(text, answer)
}
