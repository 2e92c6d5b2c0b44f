package client

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// pollInterval is how often an object is read by somebody who may read but not watch.
const pollInterval = time.Second

// Update is one state of a followed object, or why it cannot be followed any more.
type Update struct {
	Object kube.Object
	Err    error
}

// Follow sends an object each time it changes, beginning with what it is now, until ctx is done or it cannot be read. An
// object that is deleted, or that another one replaced, ends with a NotFound error. The caller cancels ctx to stop.
func (c *Client) Follow(ctx context.Context, object kube.Object) <-chan Update {
	return c.followFrom(ctx, object, "")
}

// followFrom is Follow that begins with what comes after a resource version of the object, which the caller has seen. It saves a read.
func (c *Client) followFrom(ctx context.Context, object kube.Object, version string) <-chan Update {
	updates := make(chan Update)
	go func() {
		defer close(updates)
		f := follower{client: c, like: object, version: version, updates: updates}
		if err := f.run(ctx); err != nil && ctx.Err() == nil {
			f.send(ctx, Update{Err: err})
		}
	}()
	return updates
}

type follower struct {
	client  *Client
	like    kube.Object
	version string // that was sent last, or empty if it has to be read
	updates chan<- Update
	polling bool
}

func (f *follower) send(ctx context.Context, update Update) {
	select {
	case f.updates <- update:
	case <-ctx.Done():
	}
}

func (f *follower) run(ctx context.Context) error {
	for ctx.Err() == nil {
		if f.version == "" {
			var object kube.Object
			err := repeat(ctx, time.Minute, transient, func(ctx context.Context) error {
				var err error
				object, err = f.read(ctx)
				return err
			})
			if err != nil {
				return err
			}
			f.send(ctx, Update{Object: object})
			f.version = object.GetResourceVersion()
		}
		if f.polling {
			f.version = ""
			pause(ctx, pollInterval)
			continue
		}
		if err := f.watch(ctx); err != nil {
			return err
		}
		f.version = ""
	}
	return ctx.Err()
}

func (f *follower) read(ctx context.Context) (kube.Object, error) {
	object := f.like.DeepCopyObject().(kube.Object)
	if err := f.client.kube.Get(ctx, kube.ObjectKeyFromObject(f.like), object); err != nil {
		return nil, err
	}
	return object, f.same(object)
}

// same refuses an object that took the name of the followed one.
func (f *follower) same(object kube.Object) error {
	if f.like.GetUID() == "" || object.GetUID() == f.like.GetUID() {
		return nil
	}
	return apierrors.NewNotFound(f.client.groupResource(f.like), f.like.GetName())
}

// watch sends what happens after its version, until the watch ends. A watch ends all the time; the caller reads and goes on.
func (f *follower) watch(ctx context.Context) error {
	list, err := f.list()
	if err != nil {
		return err
	}
	events, err := f.client.kube.Watch(ctx, list, kube.InNamespace(f.like.GetNamespace()),
		kube.MatchingFields{"metadata.name": f.like.GetName()},
		&kube.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: f.version}})
	if apierrors.IsForbidden(err) {
		f.polling = true
		return nil
	}
	if err != nil {
		pause(ctx, pollInterval)
		return nil
	}
	defer events.Stop()
	for event := range events.ResultChan() {
		object, ok := event.Object.(kube.Object)
		if !ok || event.Type == watch.Bookmark || event.Type == watch.Error {
			return nil
		}
		if event.Type == watch.Deleted {
			return apierrors.NewNotFound(f.client.groupResource(f.like), f.like.GetName())
		}
		if err := f.same(object); err != nil {
			return err
		}
		f.send(ctx, Update{Object: object})
	}
	return nil
}

func (f *follower) list() (kube.ObjectList, error) {
	scheme := f.client.kube.Scheme()
	gvk, err := apiutil.GVKForObject(f.like, scheme)
	if err != nil {
		return nil, err
	}
	gvk.Kind += "List"
	list, err := scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	typed, ok := list.(kube.ObjectList)
	if !ok {
		return nil, fmt.Errorf("%s is not a list", gvk)
	}
	return typed, nil
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
