package client_test

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

// refund calls the provider. The token makes a repeated request the same request.
func refund(_ context.Context, paymentID string, amount int64, token string) (string, error) {
	fmt.Printf("POST /refunds %s %d Idempotency-Key: %s\n", paymentID, amount, token)
	return "re_1", nil
}

// A whole agent. The same code runs against a real API server in test/e2e/sdk.
func ExampleClient_Protect() {
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
}

func ExampleNotExecuted() {
	down := errors.New("the provider is closed for maintenance")
	err := fmt.Errorf("refund: %w", client.NotExecuted(down))
	fmt.Println(err, client.IsNotExecuted(err))

	// What went wrong beside it may mean that something was sent.
	err = errors.Join(err, errors.New("the second request timed out"))
	fmt.Println(client.IsNotExecuted(err))
	// Output:
	// refund: the provider is closed for maintenance true
	// false
}

func ExampleExecution_Decode() {
	x := client.Execution{CanonicalArguments: []byte(`{"amount":500,"currency":"JPY","payment_id":"txn_1"}`)}
	var args refundArguments
	fmt.Println(x.Decode(&args))
	// Output:
	// the arguments do not fit *client_test.refundArguments: unknown field "currency"
}
