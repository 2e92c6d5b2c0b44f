package controllers

import (
	"context"
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// endless is a mapper that waits for an apiserver which does not answer.
type endless struct {
	meta.RESTMapper
	asked, over chan struct{}
}

func (m endless) RESTMapping(schema.GroupKind, ...string) (*meta.RESTMapping, error) {
	close(m.asked)
	<-m.over
	return &meta.RESTMapping{}, nil
}

// Discovery takes no context. A pass that has to stop does not wait for it.
func TestNoPassWaitsForDiscovery(t *testing.T) {
	m := endless{asked: make(chan struct{}), over: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-m.asked; cancel() }()
	mapping, err := mappingOf(ctx, m, schema.GroupKind{Group: "orders.example.com", Kind: "Order"}, "v1")
	if mapping != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("it answers %v, %v", mapping, err)
	}
	close(m.over)
	if mapping, err := mappingOf(context.Background(), endless{asked: make(chan struct{}), over: m.over}, schema.GroupKind{}, "v1"); mapping == nil || err != nil {
		t.Errorf("an answer is %v, %v", mapping, err)
	}
}
