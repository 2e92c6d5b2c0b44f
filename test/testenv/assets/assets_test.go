package assets_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ctrlrun.dev/operator/test/testenv/assets"
)

const module = "module x\n\nrequire (\n\tgo.etcd.io/etcd/server/v3 v3.7.3\n\tk8s.io/kubernetes v1.37.2\n)\n"

// checkout makes a root with the sources that name a build.
func checkout(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	all := map[string]string{"go.mod": module, "go.sum": "", "main.go": "package main"}
	for name, content := range files {
		all[name] = content
	}
	for name, content := range all {
		write(t, filepath.Join(root, "hack", "controlplane", name), content, 0o644)
	}
	return root
}

func write(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
}

// missing is the directory that Find says is not there.
func missing(t *testing.T, root string) string {
	t.Helper()
	_, err := assets.Find(root)
	if !errors.Is(err, assets.ErrMissing) {
		t.Fatalf("got %v, want ErrMissing", err)
	}
	if !strings.Contains(err.Error(), assets.Command) {
		t.Errorf("%q does not say how to build", err)
	}
	_, rest, _ := strings.Cut(err.Error(), "(")
	dir, _, _ := strings.Cut(rest, " is not there")
	return dir
}

func TestDirectoryFollowsTheSources(t *testing.T) {
	t.Setenv(assets.Env, "")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	base := missing(t, checkout(t, nil))
	if want := filepath.Join(os.Getenv("XDG_CACHE_HOME"), "ctrlrun", "controlplane", "v1.37.2-etcd-v3.7.3-"); !strings.HasPrefix(base, want) {
		t.Errorf("%s does not begin with %s", base, want)
	}
	if again := missing(t, checkout(t, nil)); again != base {
		t.Errorf("the same sources in another checkout: %s, not %s", again, base)
	}
	if dir := missing(t, checkout(t, map[string]string{"node/node_test.go": "package node", "README": "x"})); dir != base {
		t.Errorf("tests and texts are no part of the binary, which is built again for them: %s, not %s", dir, base)
	}
	for name, files := range map[string]map[string]string{
		"another Kubernetes": {"go.mod": strings.Replace(module, "v1.37.2", "v1.37.3", 1)},
		"another etcd":       {"go.mod": strings.Replace(module, "v3.7.3", "v3.7.4", 1)},
		"another go.sum":     {"go.sum": "x"},
		"another main.go":    {"main.go": "package main // x"},
		"another package":    {"node/node.go": "package node"},
		// Content that moves from one file into the next is other content.
		"moved bytes": {"go.sum": "package ", "main.go": "main"},
	} {
		t.Run(name, func(t *testing.T) {
			if dir := missing(t, checkout(t, files)); dir == base {
				t.Errorf("still %s", dir)
			}
		})
	}
}

func TestFindTakesACompleteBuildOnly(t *testing.T) {
	t.Setenv(assets.Env, "")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	root := checkout(t, nil)
	dir := missing(t, root)
	for _, name := range append([]string{"etcd", "kube-apiserver", "kubectl"}, assets.Workloads()...) {
		missing(t, root)
		write(t, filepath.Join(dir, name), "", 0o755)
	}
	if got, err := assets.Find(root); err != nil || got != dir {
		t.Errorf("Find = %s, %v; want %s", got, err, dir)
	}
	var out bytes.Buffer
	if got, err := assets.Ensure(context.Background(), root, &out); err != nil || got != dir || out.Len() > 0 {
		t.Errorf("Ensure = %s, %v and printed %q; want %s and silence", got, err, out.String(), dir)
	}
}

func TestReadyMadeBinariesAreUsedInstead(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(assets.Env, dir)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	root := checkout(t, nil)
	write(t, filepath.Join(dir, "etcd"), "", 0o755)
	write(t, filepath.Join(dir, "kubectl"), "", 0o755)
	// Asked for by name and unusable: an error, not a build.
	if _, err := assets.Ensure(context.Background(), root, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "kube-apiserver") {
		t.Errorf("without kube-apiserver: got %v, want an error that names it", err)
	}
	write(t, filepath.Join(dir, "kube-apiserver"), "", 0o644)
	if _, err := assets.Find(root); err == nil || !strings.Contains(err.Error(), "not executable") {
		t.Errorf("not executable: got %v", err)
	}
	if err := os.Chmod(filepath.Join(dir, "kube-apiserver"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := assets.Find(root); err != nil || got != dir {
		t.Errorf("Find = %s, %v; want %s", got, err, dir)
	}
}

func TestAFailedBuildLeavesNothingBehind(t *testing.T) {
	t.Setenv(assets.Env, "")
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	root := checkout(t, nil) // requires modules that its go.sum does not know
	var out bytes.Buffer
	if _, err := assets.Ensure(context.Background(), root, &out); err == nil || !strings.Contains(err.Error(), "control plane") {
		t.Errorf("got %v, want an error", err)
	}
	missing(t, root)
	entries, err := os.ReadDir(filepath.Join(cache, "ctrlrun", "controlplane"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".lock") {
			t.Errorf("%s was left behind", e.Name())
		}
	}
}
