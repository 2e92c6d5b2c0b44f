package client_test

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
)

// refund calls the provider. The token makes a repeated request the same request.
func refund(_ context.Context, arguments []byte, token string) error {
	fmt.Printf("POST /refunds %s Idempotency-Key: %s\n", arguments, token)
	return nil
}

func ExampleClient_Do() {
	ctx := context.Background()
	config, err := rest.InClusterConfig()
	if err != nil {
		fmt.Println(err)
		return
	}
	c, err := client.New(config, "payments")
	if err != nil {
		fmt.Println(err)
		return
	}
	action, err := c.Do(ctx, client.Request{
		ActionType: "stripe.refund",
		Arguments:  map[string]any{"payment_id": "txn_1", "amount": 500},
	}, func(ctx context.Context, x client.Execution) client.Report {
		if err := refund(ctx, x.Arguments, x.Token); err != nil {
			// Whether it happened is not known, so it is not called NotExecuted.
			return client.Unknown(err.Error())
		}
		return client.Committed()
	}, func(stage client.Stage, action *v1alpha1.Action) {
		fmt.Println(stage, action.Name, action.Status.State)
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(action.Name, action.Status.State)
}
