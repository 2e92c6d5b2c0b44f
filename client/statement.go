package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/kernel/action"
)

// maxStatements is how many statements one speaker may try about one subject before something is wrong.
const maxStatements = 99

// StatementName is the name of somebody's statement about a subject: admission checks that both are in it, so that nobody
// takes another's name by accident.
func StatementName(subject, username string) string { return subject + "." + action.Speaker(username) }

// CreateStatement creates a statement under name, or name.2, name.3 if earlier tries of the same speaker have it. own
// recognises the statement in an object that is there already: what a lost response left. Somebody who may not read what is
// there takes the next name: to say the same twice is harmless, for a statement counts once.
func (c *Client) CreateStatement(ctx context.Context, statement kube.Object, name string, own func(kube.Object) bool) error {
	kind := c.groupResource(statement).Resource
	for i := 1; i <= maxStatements; i++ {
		statement.SetName(name)
		if i > 1 {
			statement.SetName(fmt.Sprintf("%s.%d", name, i))
		}
		existing, err := c.createOrRead(ctx, createWindow, transient, statement)
		var unreadable *unreadableError
		if errors.As(err, &unreadable) {
			continue
		}
		if err != nil {
			return refusal("create "+kind+" "+statement.GetName(), err)
		}
		switch {
		case existing == nil:
			return nil
		case own(existing):
			adopt(statement, existing)
			return nil
		}
	}
	return fmt.Errorf("there are %d %ss named %s and more: something is repeating them", maxStatements, kind, name)
}

// unreadableError says that a name is taken by something the client may not read.
type unreadableError struct{ err error }

func (e *unreadableError) Error() string {
	return "the name is taken, and what has it cannot be read: " + e.err.Error()
}

func (e *unreadableError) Unwrap() error { return e.err }

// createOrRead creates object, repeating for at most window what may be done again, and fills it in. If the name is taken it returns what has
// it instead, and leaves object as it was: it may yet be created under another name.
func (c *Client) createOrRead(ctx context.Context, window time.Duration, again func(error) bool, object kube.Object) (kube.Object, error) {
	var existing kube.Object
	err := repeat(ctx, window, again, func(ctx context.Context) error {
		existing = nil
		attempt := object.DeepCopyObject().(kube.Object)
		err := c.kube.Create(ctx, attempt)
		if err == nil {
			adopt(object, attempt)
			return nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
		err = c.kube.Get(ctx, kube.ObjectKeyFromObject(object), attempt)
		switch {
		case apierrors.IsNotFound(err):
			// Deleted between the two requests: the create is simply repeated.
			return apierrors.NewServerTimeout(c.groupResource(object), "create", 1)
		case apierrors.IsForbidden(err):
			return &unreadableError{err: err}
		case err != nil:
			return err
		}
		existing = attempt
		return nil
	})
	return existing, err
}

// adopt gives object the identity of what is stored, so that it can be followed.
func adopt(object, stored kube.Object) {
	object.SetUID(stored.GetUID())
	object.SetResourceVersion(stored.GetResourceVersion())
	object.SetCreationTimestamp(stored.GetCreationTimestamp())
}
