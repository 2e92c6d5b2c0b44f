package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

const (
	// refundCommand is the agent's program, what it gives to `kubectl ctrlrun run ... -- refund`.
	refundCommand = "refund"
	// providerURL is the variable that tells it where the provider is.
	providerURL = "PROVIDER_URL"
	// nothingPaid is the one exit code by which it states that for certain nothing happened.
	nothingPaid = 75
)

// refund calls the provider once, with the arguments that ctrlrun admitted and the token of this attempt. It says what it
// knows and nothing else: only a definite answer is 0 or nothingPaid.
func refund() int {
	arguments, err := io.ReadAll(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, "refund: reading the arguments:", err)
		return nothingPaid
	}
	request, err := http.NewRequest(http.MethodPost, os.Getenv(providerURL)+"/refunds", bytes.NewReader(arguments))
	if err != nil {
		fmt.Fprintln(os.Stderr, "refund:", err)
		return nothingPaid
	}
	request.Header.Set("Idempotency-Key", os.Getenv("CTRLRUN_IDEMPOTENCY_TOKEN"))
	// One connection for one call: a transport that repeats a request on a new connection would be a second call.
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		fmt.Fprintln(os.Stderr, "refund: the provider was asked and did not answer:", err)
		return 1
	}
	defer response.Body.Close() // it was only read
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<16))
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "refund: the provider's answer broke off:", err)
		return 1
	case response.StatusCode == http.StatusServiceUnavailable:
		fmt.Fprintf(os.Stderr, "refund: the provider says %d: %s\n", response.StatusCode, strings.TrimSpace(string(body)))
		return nothingPaid
	case response.StatusCode != http.StatusOK:
		fmt.Fprintf(os.Stderr, "refund: the provider says %d: %s\n", response.StatusCode, strings.TrimSpace(string(body)))
		return 1
	}
	var made paid
	if err := json.Unmarshal(body, &made); err != nil {
		fmt.Fprintln(os.Stderr, "refund: the provider's answer:", err)
		return 1
	}
	fmt.Printf("the provider paid back %d as %s\n", made.Amount, made.ID)
	return 0
}
