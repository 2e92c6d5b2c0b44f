package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ctrlrun.dev/operator/test/testenv"
)

// profiler writes CPU profiles of kube-apiserver, where most of the processor time of an action goes.
type profiler struct {
	web *web
	dir string
}

func newProfiler(ctx context.Context, env *testenv.Environment, dir string) (*profiler, error) {
	user := testenv.User{Name: "profiler"}
	const role = "read-profiles"
	if err := env.Admin().Create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: role},
		Rules:      []rbacv1.PolicyRule{{NonResourceURLs: []string{"/debug/pprof/*"}, Verbs: []string{"get"}}},
	}); err != nil {
		return nil, err
	}
	if err := env.Grant(ctx, "", role, user); err != nil {
		return nil, err
	}
	w, err := newWeb(env.Config(user))
	if err != nil {
		return nil, err
	}
	return &profiler{web: w, dir: dir}, os.MkdirAll(dir, 0o755)
}

// during writes a profile of the time that a block is measured.
func (p *profiler) during(ctx context.Context, b block, length phases) <-chan error {
	done := make(chan error, 1)
	go func() {
		done <- func() error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(length.warm):
			}
			seconds := max(1, int(length.window/time.Second))
			profile, err := p.web.do(ctx, http.MethodGet, fmt.Sprintf("/debug/pprof/profile?seconds=%d", seconds), nil)
			if err != nil {
				return err
			}
			name := fmt.Sprintf("%s-%s-%d-%d-%d.pprof", b.Operator, b.Load, b.Clients, b.Existing, b.Repetition)
			return os.WriteFile(filepath.Join(p.dir, name), profile, 0o644)
		}()
	}()
	return done
}
