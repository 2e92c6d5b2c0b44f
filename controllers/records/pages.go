package records

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// EachPage lists whatever there is, size objects at a time, each page into a list of its own. Decoded into the list of
// the page before, an object would keep the fields that it lacks and that one had, and whatever still points into that page
// would point at this one's. What names them in errors.
func EachPage[L client.ObjectList](ctx context.Context, reader client.Reader, what string, size int64, empty func() L, do func(page L) error, options ...client.ListOption) error {
	for token := ""; ; {
		page := empty()
		if err := reader.List(ctx, page, append([]client.ListOption{client.Limit(size), client.Continue(token)}, options...)...); err != nil {
			return fmt.Errorf("list %s: %w", what, err)
		}
		if err := do(page); err != nil {
			return err
		}
		if token = page.GetContinue(); token == "" {
			return nil
		}
	}
}
