package testenv

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// restartTimeout is how long one of them may take to start again.
const restartTimeout = 2 * time.Minute

// KillAPIServer kills kube-apiserver (SIGKILL) and returns when it is gone. The function starts it again at the address it
// had and returns when it is ready.
func (e *Environment) KillAPIServer(ctx context.Context) (start func(context.Context) error, err error) {
	if err := e.apiserverProgram().kill(ctx); err != nil {
		return nil, fmt.Errorf("killing kube-apiserver: %w", err)
	}
	return func(ctx context.Context) error {
		apiserver := e.envtest.ControlPlane.APIServer
		// What the last start made of its configuration would be added to it.
		//lint:ignore SA1019 deprecated for setting arguments
		apiserver.Args = nil
		// Whoever kills it has other processes that are busy with having lost it.
		apiserver.StartTimeout = restartTimeout
		if err := apiserver.Start(); err != nil {
			return fmt.Errorf("starting kube-apiserver: %w", err)
		}
		return e.waitForReady(ctx)
	}, nil
}

// KillEtcd kills etcd (SIGKILL) and returns when it is gone. The function starts it again with what it has stored, and
// returns when the apiserver is ready. What etcd had acknowledged is there: it was written to its files, and those outlive a
// process without an fsync, though they would not outlive the machine.
func (e *Environment) KillEtcd(ctx context.Context) (start func(context.Context) error, err error) {
	if err := e.etcdProgram().kill(ctx); err != nil {
		return nil, fmt.Errorf("killing etcd: %w", err)
	}
	return func(ctx context.Context) error {
		etcd := e.envtest.ControlPlane.Etcd
		//lint:ignore SA1019 deprecated for setting arguments
		etcd.Args, etcd.StartTimeout = nil, restartTimeout
		if err := etcd.Start(); err != nil {
			return fmt.Errorf("starting etcd: %w", err)
		}
		return e.waitForReady(ctx)
	}, nil
}

// RaiseNoSpace raises etcd's alarm NOSPACE, as etcd does when its quota is used up: everything can be read, and no write is
// taken. It returns when a write was refused for it. The function disarms the alarm, and returns when writes are taken again.
func (e *Environment) RaiseNoSpace(ctx context.Context) (disarm func(context.Context) error, err error) {
	if err := e.alarm(ctx, "ACTIVATE"); err != nil {
		return nil, err
	}
	disarm = func(ctx context.Context) error {
		if err := e.alarm(ctx, "DEACTIVATE"); err != nil {
			return err
		}
		return e.waitForWrites(ctx, writesTaken)
	}
	if err := e.waitForWrites(ctx, writesRefused); err != nil {
		return nil, errors.Join(err, disarm(ctx))
	}
	return disarm, nil
}

// alarm speaks to etcd by its gateway for JSON, so that no client of etcd is needed.
func (e *Environment) alarm(ctx context.Context, action string) error {
	etcd := e.envtest.ControlPlane.Etcd
	body, err := json.Marshal(map[string]any{"action": action, "memberID": 0, "alarm": "NOSPACE"})
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, etcd.URL.String()+"/v3/maintenance/alarm", bytes.NewReader(body))
	if err != nil {
		return err
	}
	c := &http.Client{Timeout: 10 * time.Second}
	response, err := c.Do(request)
	if err != nil {
		return fmt.Errorf("etcd's alarm NOSPACE: %s: %w", action, err)
	}
	defer response.Body.Close() // it was only read
	if response.StatusCode != http.StatusOK {
		answer, _ := io.ReadAll(io.LimitReader(response.Body, 1024))
		return fmt.Errorf("etcd's alarm NOSPACE: %s: %s: %s", action, response.Status, answer)
	}
	return nil
}

// writable says whether a write that failed was refused by etcd for lack of space.
type writable string

const (
	writesTaken   writable = "taken"
	writesRefused writable = "refused for lack of space"
)

// waitForWrites returns when a write to etcd is answered as wanted.
func (e *Environment) waitForWrites(ctx context.Context, want writable) error {
	last := error(nil)
	err := poll(ctx, 30*time.Second, func(ctx context.Context) (bool, error) {
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, GenerateName: "ctrlrun-testenv-"}}
		last = e.admin.Create(ctx, o)
		if last != nil {
			return want == writesRefused && strings.Contains(last.Error(), "space exceeded"), nil
		}
		return want == writesTaken, client.IgnoreNotFound(e.admin.Delete(ctx, o))
	})
	if err != nil {
		return fmt.Errorf("waiting for writes to be %s: %w: the last answer was: %v", want, err, last)
	}
	return nil
}
