package sdk

import (
	"context"
	"errors"
	"fmt"

	"ctrlrun.dev/operator/client"
)

type refundArguments struct {
	PaymentID string `json:"payment_id"`
	Amount    int64  `json:"amount"`
}

// What package client shows for Protect, with a kubeconfig, an operator and a provider around it. A test holds the two together.
func Example() {
	c, err := client.NewFromEnvironment()
	if err != nil {
		fmt.Println(err)
		return
	}
	receipt, err := c.Protect(context.Background(), client.Proposal{
		ActionType: "stripe.refund",
		Arguments:  map[string]any{"payment_id": "txn_1", "amount": 500},
	}, func(ctx context.Context, x client.Execution) (any, error) {
		var args refundArguments
		if err := x.Decode(&args); err != nil {
			return nil, client.NotExecuted(err) // nothing was sent yet
		}
		id, err := refund(ctx, args.PaymentID, args.Amount, x.Token)
		if err != nil {
			return nil, err // whether it happened is not known, so it is not called NotExecuted
		}
		return map[string]string{"refund": id}, nil
	})
	var denied *client.DeniedError
	switch {
	case err == nil:
		fmt.Println("committed:", receipt.Action.Name)
	case errors.Is(err, client.ErrAmbiguous):
		fmt.Println("do not try again:", err)
	case errors.As(err, &denied):
		fmt.Println("no:", denied.Reason)
	default:
		fmt.Println("nothing was executed:", err)
	}
	// Output:
	// committed: refund-txn-1-x65u2jfxzep2glb2dhvo
}
