package client

import (
	"context"
	"fmt"

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
// recognises the statement in an object that is there already: what a lost response left.
func (c *Client) CreateStatement(ctx context.Context, statement kube.Object, name string, own func(kube.Object) bool) error {
	kind := c.groupResource(statement).Resource
	for i := 1; i <= maxStatements; i++ {
		statement.SetName(name)
		if i > 1 {
			statement.SetName(fmt.Sprintf("%s.%d", name, i))
		}
		existing, err := c.createOrRead(ctx, statement)
		if err != nil {
			return refusal("create "+kind+" "+statement.GetName(), err)
		}
		if existing == nil || own(existing) {
			return nil
		}
	}
	return fmt.Errorf("there are %d %ss named %s and more: something is repeating them", maxStatements, kind, name)
}

// createOrRead creates object, repeating until there is an answer, and fills it in. If the name is taken it returns what has
// it instead.
func (c *Client) createOrRead(ctx context.Context, object kube.Object) (kube.Object, error) {
	var existing kube.Object
	err := repeat(ctx, createWindow, func(ctx context.Context) error {
		existing = nil
		attempt := object.DeepCopyObject().(kube.Object)
		err := c.kube.Create(ctx, attempt)
		if err == nil {
			object.SetUID(attempt.GetUID())
			object.SetResourceVersion(attempt.GetResourceVersion())
			object.SetCreationTimestamp(attempt.GetCreationTimestamp())
			return nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
		// The object may be deleted between the two requests; then the create is simply repeated.
		if readErr := c.kube.Get(ctx, kube.ObjectKeyFromObject(object), attempt); readErr != nil {
			if apierrors.IsNotFound(readErr) {
				return apierrors.NewServerTimeout(c.groupResource(object), "create", 1)
			}
			return readErr
		}
		existing = attempt
		object.SetUID(attempt.GetUID())
		object.SetResourceVersion(attempt.GetResourceVersion())
		return nil
	})
	return existing, err
}
