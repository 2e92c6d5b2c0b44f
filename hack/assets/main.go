// Command assets prints the directory that holds etcd, kube-apiserver and kubectl, and builds them first if nobody has.
// Only the directory goes to stdout, so that a script can take it; progress goes to stderr.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"ctrlrun.dev/operator/test/testenv/assets"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := run(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "control plane:", err)
		os.Exit(1)
	}
	fmt.Println(dir)
}

func run(ctx context.Context) (string, error) {
	root, err := assets.Root()
	if err != nil {
		return "", err
	}
	return assets.Ensure(ctx, root, os.Stderr)
}
