package testenv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"k8s.io/client-go/discovery"
)

// Snapshot is everything that etcd stored at one moment. It is kept in the environment's directory.
type Snapshot struct{ dir string }

// Snapshot copies what etcd stores, while etcd is suspended for a moment: the copy is what a disk holds after a crash.
// Like Restore it finds the processes of the control plane by /proc.
func (e *Environment) Snapshot() (_ *Snapshot, err error) {
	dir, err := os.MkdirTemp(e.Dir, "snapshot-")
	if err != nil {
		return nil, err
	}
	resume, err := e.etcdProgram().suspend()
	if err != nil {
		return nil, err
	}
	if err := errors.Join(copyTree(filepath.Join(dir, "etcd"), e.etcdDir()), resume()); err != nil {
		return nil, fmt.Errorf("copying what etcd stores: %w", err)
	}
	return &Snapshot{dir: filepath.Join(dir, "etcd")}, nil
}

// Restore takes the cluster back to a snapshot: kube-apiserver and etcd are killed, what etcd stores is replaced, and both
// are started again at the addresses they had. Nobody else is told: users, clients and operators go on with what they know,
// while resource versions count again from where they were. It returns when the admission policies of the snapshot are
// enforced.
func (e *Environment) Restore(ctx context.Context, s *Snapshot) error {
	etcd, apiserver := e.envtest.ControlPlane.Etcd, e.envtest.ControlPlane.APIServer
	// Asked to stop, an apiserver would wait for the watches of those who are to go on.
	for _, p := range []program{e.apiserverProgram(), e.etcdProgram()} {
		if err := p.kill(ctx); err != nil {
			return fmt.Errorf("killing %s: %w", p.name, err)
		}
	}
	if err := errors.Join(os.RemoveAll(e.etcdDir()), copyTree(e.etcdDir(), s.dir)); err != nil {
		return fmt.Errorf("replacing what etcd stores: %w", err)
	}
	// What their last start made of their configuration would be added to it.
	//lint:ignore SA1019 deprecated for setting arguments
	etcd.Args, apiserver.Args = nil, nil
	if err := etcd.Start(); err != nil {
		return fmt.Errorf("starting etcd: %w", err)
	}
	if err := apiserver.Start(); err != nil {
		return fmt.Errorf("starting kube-apiserver: %w", err)
	}
	if err := e.waitForReady(ctx); err != nil {
		return err
	}
	if err := e.waitForPolicies(ctx); err != nil {
		return fmt.Errorf("waiting for the admission policies to be enforced: %w", err)
	}
	return nil
}

// SuspendAPIServer stops kube-apiserver as it stands: connections stay open, and nothing is answered until it is resumed.
// Like Restore it finds the process by /proc.
func (e *Environment) SuspendAPIServer() (resume func() error, err error) {
	return e.apiserverProgram().suspend()
}

// program is one of the control plane: its name, and an argument that no other environment gives it.
type program struct{ name, argument string }

func (e *Environment) etcdProgram() program { return program{"etcd", "--data-dir=" + e.etcdDir()} }

func (e *Environment) apiserverProgram() program {
	return program{"kube-apiserver", "--cert-dir=" + e.envtest.ControlPlane.APIServer.CertDir}
}

func (e *Environment) etcdDir() string { return e.envtest.ControlPlane.Etcd.DataDir }

// waitForReady returns when the apiserver says that it is ready, which it does not without etcd.
func (e *Environment) waitForReady(ctx context.Context) error {
	c, err := discovery.NewDiscoveryClientForConfig(e.AdminConfig())
	if err != nil {
		return err
	}
	last := errors.New("no answer yet")
	err = poll(ctx, 30*time.Second, func(ctx context.Context) (bool, error) {
		code := 0
		last = c.RESTClient().Get().AbsPath("/readyz").Do(ctx).StatusCode(&code).Error()
		return code == http.StatusOK, nil
	})
	if err != nil {
		return fmt.Errorf("the apiserver is not ready: %w: %w", err, last)
	}
	return nil
}

// running is the id of its process.
func (p program) running() (int, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return 0, err
	}
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended meanwhile
		}
		arguments := bytes.Split(line, []byte{0})
		if filepath.Base(string(arguments[0])) != p.name {
			continue
		}
		for _, a := range arguments[1:] {
			if string(a) == p.argument {
				return strconv.Atoi(filepath.Base(filepath.Dir(file)))
			}
		}
	}
	return 0, fmt.Errorf("there is no process %s with %s in /proc", p.name, p.argument)
}

// suspend stops its process as it stands, and returns when it has stopped: the signal alone only asks for it.
func (p program) suspend() (resume func() error, err error) {
	pid, err := p.running()
	if err != nil {
		return nil, err
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return nil, fmt.Errorf("suspending %s: %w", p.name, err)
	}
	resume = func() error { return syscall.Kill(pid, syscall.SIGCONT) }
	err = poll(context.Background(), 5*time.Second, func(context.Context) (bool, error) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return false, err
		}
		// pid (name) state ...: the name may hold anything.
		_, rest, _ := bytes.Cut(stat[bytes.LastIndexByte(stat, ')'):], []byte(" "))
		return bytes.HasPrefix(rest, []byte("T")), nil
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s did not stop: %w", p.name, err), resume())
	}
	return resume, nil
}

// kill ends its process at once and returns when it is gone.
func (p program) kill(ctx context.Context) error {
	pid, err := p.running()
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return err
	}
	return poll(ctx, 10*time.Second, func(context.Context) (bool, error) {
		_, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
		return errors.Is(err, fs.ErrNotExist), nil
	})
}

// copyTree copies directories and plain files.
func copyTree(to, from string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, relative)
		if d.IsDir() {
			return os.MkdirAll(target, 0o700)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, content, 0o600)
	})
}
