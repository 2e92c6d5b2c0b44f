package transport_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"ctrlrun.dev/operator/client/transport"
)

// The function of an agent that executes. Its provider is not there, which it can prove.
func ExampleTransport_Client() {
	refund := func(url string, arguments []byte, token string) error {
		request, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(arguments))
		if err != nil {
			return err
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Idempotency-Key", token)
		response, err := (&transport.Transport{}).Client(30 * time.Second).Do(request)
		if err != nil {
			return err // as it is: what it proves is in its chain
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("status %d", response.StatusCode) // proves nothing
		}
		return nil
	}

	// A port that nobody listens on.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	listener.Close()

	err = refund("http://"+listener.Addr().String()+"/refunds", []byte(`{"amount":500}`), "5f1c2a30-6f5e-8d7c-9f53-0c2a4b7d1e90")
	var proof interface{ NotExecuted() bool }
	fmt.Println(errors.As(err, &proof) && proof.NotExecuted())
	// Output: true
}
