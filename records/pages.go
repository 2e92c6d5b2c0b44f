package records

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// PageSize is how many objects one request asks for, unless the options of a list say otherwise.
const PageSize = 500

// EachPage lists in pages, so that a namespace with a hundred thousand receipts does not become one response. It fills list with
// one page after the other and calls page for each. What is kept of a page stays as it is.
func EachPage(ctx context.Context, reader client.Reader, list client.ObjectList, page func() error, opts ...client.ListOption) error {
	for next := ""; ; {
		if err := reader.List(ctx, list, append([]client.ListOption{client.Limit(PageSize), client.Continue(next)}, opts...)...); err != nil {
			return err
		}
		if err := page(); err != nil {
			return err
		}
		if next = list.GetContinue(); next == "" {
			return nil
		}
	}
}
