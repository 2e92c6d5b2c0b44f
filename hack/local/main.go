// Command local keeps a Kubernetes API with ctrlrun on it running on loopback, for trying the product with one's own
// kubectl: `local up` starts it in the background and prints what to try, `local down` stops exactly what was started.
//
// In the background runs this same program as `local serve`. It is the parent of etcd, kube-apiserver and the operator,
// and stops them when it is asked to. What it started is also written down, with start times, so that `down` finds the
// children of a parent that was killed and never mistakes a stranger with a reused process id for one of them.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"ctrlrun.dev/operator/test/testenv/assets"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "local:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	root, err := assets.Root()
	if err != nil {
		return err
	}
	p := newPlace(root)
	if len(args) == 1 {
		switch args[0] {
		case "up":
			return up(ctx, p)
		case "down":
			return down(p)
		case "serve":
			return serve(ctx, p)
		}
	}
	return errors.New("usage: local up|down")
}

// place is where everything that `up` makes is kept.
type place struct {
	root string
	dir  string // .ctrlrun
	run  string // what only matters while it runs
}

func newPlace(root string) place {
	dir := filepath.Join(root, ".ctrlrun")
	return place{root: root, dir: dir, run: filepath.Join(dir, "local")}
}

// kubeconfig is the path of the kubeconfig of a role; the cluster-admin's has no name before it.
func (p place) kubeconfig(role string) string {
	if role == admin {
		return filepath.Join(p.dir, "kubeconfig")
	}
	return filepath.Join(p.dir, role+".kubeconfig")
}

// ready is the file that exists once all is up. It holds the URL of the apiserver and the directory of the binaries.
func (p place) ready() string { return filepath.Join(p.run, "ready") }

// sayReady writes the file under another name first: a reader that finds it finds all of it.
func (p place) sayReady(server, binaries string) error {
	tmp := p.ready() + ".tmp"
	if err := os.WriteFile(tmp, []byte(server+"\n"+binaries+"\n"), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, p.ready())
}

func (p place) log() string { return filepath.Join(p.run, "local.log") }
