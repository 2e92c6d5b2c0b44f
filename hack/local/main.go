// Command local keeps a Kubernetes API with ctrlrun on it running on loopback, for trying the product with one's own
// kubectl: `local up` starts it in the background and prints what to try, `local down` stops exactly what was started. Flags
// behind `up` are the operator's, but for --node=FILE: with a table of images, pods run too.
//
// In the background runs this same program as `local serve`. It is the parent of etcd, kube-apiserver and the operator,
// and stops them when it is asked to. What it started is also written down, with start times, so that `down` finds the
// children of a parent that was killed and never mistakes a stranger with a reused process id for one of them.
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
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
	switch {
	case len(args) > 0 && args[0] == "up":
		return up(ctx, p, args[1:])
	case len(args) == 1 && args[0] == "down":
		return down(p)
	case len(args) == 1 && args[0] == "serve":
		return serve(ctx, p)
	}
	return errors.New("usage: local up [--node=FILE] [OPERATOR-FLAG...], or local down")
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

// ready is the file that exists once all is up. It holds the URL of the apiserver, the directory of the binaries, and the URL
// of the metrics.
func (p place) ready() string { return filepath.Join(p.run, "ready") }

// flags is the file with the flags of the operator, one a line.
func (p place) flags() string { return filepath.Join(p.run, "flags") }

// node is the file with the path of the table of images, if there is a node for pods.
func (p place) node() string { return filepath.Join(p.run, "node") }

// restarted is the file that says how starting the operator again ended: why it failed, or nothing.
func (p place) restarted() string { return filepath.Join(p.run, "restarted") }

// say writes a file under another name first: a reader that finds it finds all of it.
func say(file string, lines ...string) error {
	text := strings.Join(lines, "\n")
	if err := os.WriteFile(file+".tmp", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(file+".tmp", file)
}

// said reads what say wrote. A file that is not there has no lines.
func said(file string) ([]string, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(data) == 0 {
		return nil, nil
	}
	return strings.Split(string(data), "\n"), err
}

func (p place) log() string { return filepath.Join(p.run, "local.log") }

func (p place) operatorLog() string { return filepath.Join(p.run, operatorName+".log") }

// end of a log, as far as somebody wants to read it.
func end(log string, lines int) string {
	data, _ := os.ReadFile(log) // of one that is not there, nothing
	all := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
