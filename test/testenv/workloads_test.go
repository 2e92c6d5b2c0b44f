package testenv_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ctrlrun.dev/operator/test/testenv"
	"ctrlrun.dev/operator/test/testenv/assets"
)

// Where pods cannot be run, nothing is started, and the error says what to do.
func TestWorkloadsNeedTheirPrograms(t *testing.T) {
	binaries, err := testenv.Binaries()
	if err != nil {
		t.Fatal(err)
	}
	start := func(want string) {
		t.Helper()
		dir := filepath.Join(t.TempDir(), "env")
		env, err := testenv.Start(t.Context(), testenv.Options{Dir: dir, Workloads: &testenv.Workloads{}})
		if err == nil {
			err = env.Stop()
			t.Fatalf("it started; stopping it: %v", err)
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %q, want %q in it", err, want)
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("something was started: %v", err)
		}
	}
	t.Setenv(assets.Env, binaries)
	t.Setenv("PATH", t.TempDir())
	start("apt-get install bubblewrap")

	// As setup-envtest leaves a directory.
	few := t.TempDir()
	for _, name := range []string{"etcd", "kube-apiserver", "kubectl"} {
		if err := os.Symlink(filepath.Join(binaries, name), filepath.Join(few, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv(assets.Env, few)
	start("unset " + assets.Env)
}
