// Package assets finds the binaries of a Kubernetes control plane (etcd, kube-apiserver, kubectl, and what lets pods run), and
// builds them from Go modules where nobody has done so yet.
//
// The build takes about ten minutes on two cores and depends only on the sources in hack/controlplane, so its result
// is kept outside the checkout, under a name that holds the versions and a hash of those sources: every checkout, every
// branch and `git clean` share it, and a changed version is built beside the old one. Where KUBEBUILDER_ASSETS is set,
// the binaries in that directory are used and nothing is built.
package assets

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// Env is the variable that names a directory with ready-made binaries, as controller-runtime's envtest and
// setup-envtest know it.
const Env = "KUBEBUILDER_ASSETS"

// Command is what to run where the binaries are missing; messages name it.
const Command = "make control-plane"

// binary is the multi-call binary's own name; the names below are links to it.
const binary = "controlplane"

// heartbeat is how often a running build says that it is still running.
const heartbeat = 10 * time.Second

// names are what every directory of binaries must hold, as setup-envtest makes them.
var names = []string{"etcd", "kube-apiserver", "kubectl"}

// workloads are what is built beside them.
var workloads = []string{"kube-controller-manager", "kube-scheduler", "ctrlrun-node"}

// Workloads are the binaries that only those need who let pods run. A directory named by Env may be without them.
func Workloads() []string { return slices.Clone(workloads) }

// ErrMissing says that no control plane has been built for the present sources.
var ErrMissing = errors.New("the control plane has not been built")

// Find returns the directory of the binaries without building anything. The error is ErrMissing where a build would
// help, and names the command.
func Find(root string) (string, error) {
	if dir := os.Getenv(Env); dir != "" {
		return dir, check(dir, Env+"="+dir)
	}
	b, err := newBuild(root)
	if err != nil {
		return "", err
	}
	if !b.done() {
		return "", fmt.Errorf("%w for these sources (%s is not there): run `%s`, about ten minutes the first time, or set %s",
			ErrMissing, b.dir, Command, Env)
	}
	return b.dir, nil
}

// Ensure returns the directory of the binaries and builds them first if that has not been done. Progress goes to out,
// a line every few seconds. Two callers at once are fine: one builds, the other waits for it.
func Ensure(ctx context.Context, root string, out io.Writer) (string, error) {
	dir, err := Find(root)
	if !errors.Is(err, ErrMissing) {
		return dir, err
	}
	b, err := newBuild(root)
	if err != nil {
		return "", err
	}
	p := &progress{out: out, start: time.Now()}
	unlock, err := lock(ctx, b.dir+".lock", p)
	if err != nil {
		return "", err
	}
	defer unlock()
	if b.done() {
		return b.dir, nil
	}
	return b.dir, b.run(ctx, p)
}

// Root returns the directory of this repository's go.mod, looking upwards from the working directory: tests run in
// their package's directory, commands in the root.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(mod), "module ctrlrun.dev/operator\n") {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("not inside a checkout of ctrlrun.dev/operator: no go.mod of that module here or above")
		}
		dir = parent
	}
}

type build struct {
	source  string // hack/controlplane
	dir     string // where the result belongs
	version string // of Kubernetes, with its v
}

func newBuild(root string) (build, error) {
	b := build{source: filepath.Join(root, "hack", "controlplane")}
	// The Go release is left out of the hash on purpose: a control plane built by the previous one is as good, and
	// ten minutes for every patch release are not.
	sum := sha256.New()
	var mod []byte
	sources, err := b.sources()
	if err != nil {
		return build{}, fmt.Errorf("reading the sources of the control plane: %w", err)
	}
	for _, name := range sources {
		data, err := os.ReadFile(filepath.Join(b.source, name))
		if err != nil {
			return build{}, fmt.Errorf("reading the sources of the control plane: %w", err)
		}
		if name == "go.mod" {
			mod = data
		}
		fmt.Fprintf(sum, "%s %d\n", name, len(data))
		sum.Write(data)
	}
	kubernetes, etcd := required(mod, "k8s.io/kubernetes"), required(mod, "go.etcd.io/etcd/server/v3")
	if kubernetes == "" || etcd == "" {
		return build{}, fmt.Errorf("%s/go.mod requires no k8s.io/kubernetes or no go.etcd.io/etcd/server/v3", b.source)
	}
	b.version = kubernetes
	for _, arg := range b.args("") {
		fmt.Fprintln(sum, arg)
	}
	cache, err := cacheDir()
	if err != nil {
		return build{}, err
	}
	b.dir = filepath.Join(cache, "ctrlrun", "controlplane", fmt.Sprintf("%s-etcd-%s-%s-%s-%s",
		kubernetes, etcd, runtime.GOOS, runtime.GOARCH, hex.EncodeToString(sum.Sum(nil))[:12]))
	return b, nil
}

// sources are the files that the binary is made of, without tests, in a fixed order.
func (b build) sources() ([]string, error) {
	names := []string{"go.mod", "go.sum"}
	err := filepath.WalkDir(b.source, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		name, err := filepath.Rel(b.source, path)
		names = append(names, name)
		return err
	})
	return names, err
}

// cacheDir is the XDG one on every system, so that the documented path is the path.
func cacheDir() (string, error) {
	if dir := os.Getenv("XDG_CACHE_HOME"); filepath.IsAbs(dir) {
		return dir, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("finding a place to keep the control plane: %w; set XDG_CACHE_HOME", err)
	}
	return filepath.Join(home, ".cache"), nil
}

func required(mod []byte, module string) string {
	m := regexp.MustCompile(`(?m)^\s+` + regexp.QuoteMeta(module) + ` (v\S+)`).FindSubmatch(mod)
	if m == nil {
		return ""
	}
	return string(m[1])
}

func (b build) done() bool { return check(b.dir, b.dir, workloads...) == nil }

func check(dir, named string, more ...string) error {
	names := slices.Concat(names, more)
	for _, name := range names {
		info, err := os.Stat(filepath.Join(dir, name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("%s has no %s; it must hold %s", named, name, strings.Join(names, ", "))
		case err != nil:
			return err
		case info.IsDir() || info.Mode()&0o111 == 0:
			return fmt.Errorf("%s: %s is not executable", named, name)
		}
	}
	return nil
}

// args is the command line of the build. Its version is what the apiserver reports at /version: without it clients see
// v0.0.0-master+$Format and feature gates have no emulation version to compare with.
func (b build) args(output string) []string {
	major, minor, _ := strings.Cut(strings.TrimPrefix(b.version, "v"), ".")
	minor, _, _ = strings.Cut(minor, ".")
	const pkg = "k8s.io/component-base/version."
	ldflags := fmt.Sprintf("-s -w -X %sgitVersion=%s -X %sgitMajor=%s -X %sgitMinor=%s", pkg, b.version, pkg, major, pkg, minor)
	return []string{"build", "-trimpath", "-ldflags", ldflags, "-o", output, "."}
}

func (b build) run(ctx context.Context, p *progress) error {
	parent := filepath.Dir(b.dir)
	// Leftovers of a build that was killed: the lock is held, so nobody is writing to them.
	stale, err := filepath.Glob(filepath.Join(parent, ".tmp-"+filepath.Base(b.dir)+"-*"))
	if err != nil {
		return err
	}
	for _, dir := range stale {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	tmp, err := os.MkdirTemp(parent, ".tmp-"+filepath.Base(b.dir)+"-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp) // after the rename there is nothing to remove
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}

	p.say("building etcd and kube-apiserver %s from Go modules, once: about ten minutes on two cores", b.version)
	if err := b.compile(ctx, filepath.Join(tmp, binary), p); err != nil {
		return err
	}
	for _, name := range slices.Concat(names, workloads) {
		if err := os.Symlink(binary, filepath.Join(tmp, name)); err != nil {
			return err
		}
	}
	// A binary that does not start must not get the name under which everybody would find it.
	for _, args := range [][]string{
		{"etcd", "--version"}, {"kube-apiserver", "--version"}, {"kubectl", "version", "--client"},
		{"kube-controller-manager", "--version"}, {"kube-scheduler", "--version"}, {"ctrlrun-node", "--version"},
	} {
		if text, err := exec.CommandContext(ctx, filepath.Join(tmp, args[0]), args[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("the new %s does not run: %w: %s", args[0], err, text)
		}
	}
	// What is at the destination is no complete control plane, or there would have been no build.
	if err := os.RemoveAll(b.dir); err != nil {
		return err
	}
	if err := os.Rename(tmp, b.dir); err != nil {
		return err
	}
	p.say("done: %s", b.dir)
	return nil
}

// compile runs the go command and reports what it is at. `go build -v` names each package as its compilation starts;
// packages that are in Go's build cache are not named, so the total is an upper bound.
func (b build) compile(ctx context.Context, output string, p *progress) error {
	stop := p.every(heartbeat)
	defer stop()

	p.at("downloading modules")
	total := 0
	list := b.command(ctx, "list", "-deps", "-f", "{{.ImportPath}}", ".")
	var listErr strings.Builder
	list.Stderr = &listErr
	packages, err := list.Output()
	if err != nil {
		return fmt.Errorf("resolving the modules of the control plane: %w\n%s", err, tail(listErr.String()))
	}
	total = strings.Count(string(packages), "\n")

	args := b.args(output)
	cmd := b.command(ctx, append([]string{args[0], "-v"}, args[1:]...)...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	var rest strings.Builder
	compiled := 0
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		line := lines.Text()
		if !packagePath.MatchString(line) {
			fmt.Fprintln(&rest, line)
			continue
		}
		compiled++
		what := line
		if strings.HasPrefix(line, "ctrlrun.dev/") {
			what = "linking, a minute without news"
		}
		p.at(fmt.Sprintf("%d of at most %d packages: %s", compiled, total, what))
	}
	if err := cmd.Wait(); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted; what is compiled stays in Go's build cache: %w", ctx.Err())
		}
		return fmt.Errorf("building the control plane in %s: %w\n%s", b.source, err, tail(rest.String()))
	}
	return nil
}

// packagePath tells an import path from the compiler's messages, which have spaces, and from their "# package" headers.
var packagePath = regexp.MustCompile(`^[A-Za-z0-9][^\s:]*$`)

func (b build) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = b.source
	// CGO off: the result runs on any machine of this system, and needs no C compiler. No workspace and no flags of
	// the caller: they would change what is built without changing its name.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-buildvcs=false")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

func tail(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if len(lines) > 40 {
		lines = lines[len(lines)-40:]
	}
	return strings.Join(lines, "\n")
}

// progress prints lines that begin with the time since the start.
type progress struct {
	out   io.Writer
	start time.Time

	mu      sync.Mutex
	current string
}

func (p *progress) say(format string, args ...any) {
	elapsed := time.Since(p.start).Round(time.Second)
	fmt.Fprintf(p.out, "control plane %02d:%02d  %s\n", int(elapsed.Minutes()), int(elapsed.Seconds())%60, fmt.Sprintf(format, args...))
}

func (p *progress) at(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.current = what
}

func (p *progress) every(d time.Duration) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(d)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				p.mu.Lock()
				what := p.current
				p.mu.Unlock()
				p.say("%s", what)
			}
		}
	})
	return func() { close(done); wg.Wait() }
}
