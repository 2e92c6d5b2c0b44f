package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// variable names the fault that is switched on in a program that has them all.
const variable = "CTRLRUN_FAULT"

// mutants are programs with all faults in them: the explorer, and the tests of some packages. They are built once, from the
// sources with the faults laid over them; the sources stay as they are.
type mutants struct {
	root, dir string
	overlay   string

	mu    sync.Mutex
	built map[string]*program
}

type program struct {
	once sync.Once
	path string
	err  error
}

// Each guard that is taken away is missed, by the explorer or by the test that is named. A fault that nothing finds fails
// here, and so does one that no longer fits the sources.
func TestEveryFaultIsFound(t *testing.T) {
	m := lay(t, faults())
	if _, err := m.build("explore", "build", "./hack/explore"); err != nil {
		t.Fatal(err)
	}
	t.Run("without a fault", func(t *testing.T) {
		t.Parallel()
		out, err := m.explore(t, "", "-scenario", "allow,another,executor,grants,delegation,entitlement,persons,one observed")
		if err != nil || strings.Contains(out, "VIOLATION") {
			t.Errorf("the control finds something: %v\n%s", err, out)
		}
		for _, pkg := range []string{"kernel/approval", "kernel/effect", "kernel/receipt", "kernel/authority", "kernel/flow"} {
			if out, err := m.test(t, "", pkg, "-test.skip", "^TestSimulation|^TestContainmentProperties$|^TestReference$"); err != nil {
				t.Errorf("the tests of %s fail without a fault: %v\n%s", pkg, err, out)
			}
		}
	})
	for _, f := range faults() {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			if f.test != "" {
				out, err := m.test(t, f.name, f.pkg, "-test.run", "^"+f.test+"$")
				if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || !strings.Contains(out, "--- FAIL: "+f.test) {
					t.Fatalf("%s of %s does not find it: %v\n%s", f.test, f.pkg, err, out)
				}
				t.Logf("found by %s of %s", f.test, f.pkg)
				return
			}
			args := []string{"-scenario", f.scenario, "-states", "300000"}
			if f.unguarded != "" {
				args = append(args, "-unguarded", f.unguarded)
			}
			out, err := m.explore(t, f.name, args...)
			_, violation, found := strings.Cut(out, "VIOLATION of ")
			if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || !found {
				t.Fatalf("the explorer does not find it in %q: %v\n%s", f.scenario, err, out)
			}
			t.Logf("found in %q: %s", f.scenario, strings.SplitN(violation, "\n", 2)[0])
			if !slices.ContainsFunc(f.broken, func(name string) bool {
				return strings.HasPrefix(violation, name+" ") || strings.HasPrefix(violation, name+":") || strings.HasPrefix(violation, name+",")
			}) {
				t.Errorf("found as another one than %q:\n%s", f.broken, out)
			}
		})
	}
}

// lay writes the sources with all faults in them, each behind a switch, and what makes the go command take them.
func lay(t *testing.T, all []fault) *mutants {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	m := &mutants{root: root, dir: t.TempDir(), built: map[string]*program{}}
	sources, replace := map[string]string{}, map[string]string{}
	for _, f := range all {
		for _, e := range f.edits {
			if sources[e.file] == "" {
				source, err := os.ReadFile(filepath.Join(root, e.file))
				if err != nil {
					t.Fatal(err)
				}
				sources[e.file] = string(source)
			}
			if n := strings.Count(sources[e.file], e.old); n != max(1, e.times) {
				t.Errorf("fault %q: %s has %d times %q, want %d", f.name, e.file, n, e.old, max(1, e.times))
			}
			sources[e.file] = strings.ReplaceAll(sources[e.file], e.old, strings.ReplaceAll(e.new, "IF", fmt.Sprintf("faulty(%q)", f.name)))
		}
	}
	write := func(file, source string) {
		at := filepath.Join(m.dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(at, []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(root, file)] = at
	}
	for file, source := range sources {
		write(file, source)
		dir := path.Dir(file)
		write(dir+"/faulty.go", fmt.Sprintf("package %s\n\nimport \"os\"\n\nvar faultSwitchedOn = os.Getenv(%q)\n\nfunc faulty(name string) bool { return name == faultSwitchedOn }\n", path.Base(dir), variable))
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	m.overlay = filepath.Join(m.dir, "overlay.json")
	if err := os.WriteFile(m.overlay, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	return m
}

// build makes a program once.
func (m *mutants) build(name string, args ...string) (string, error) {
	m.mu.Lock()
	p := m.built[name]
	if p == nil {
		p = &program{path: filepath.Join(m.dir, name)}
		m.built[name] = p
	}
	m.mu.Unlock()
	p.once.Do(func() {
		args := append([]string{args[0], "-overlay", m.overlay, "-o", p.path}, args[1:]...)
		cmd := exec.Command("go", args...)
		cmd.Dir, cmd.Env = m.root, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			p.err = fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
		}
	})
	return p.path, p.err
}

func (m *mutants) explore(t *testing.T, fault string, args ...string) (string, error) {
	t.Helper()
	program, err := m.build("explore", "build", "./hack/explore")
	if err != nil {
		t.Fatal(err)
	}
	return execute(t, program, m.root, fault, append(args, "-parallel", "1")...)
}

func (m *mutants) test(t *testing.T, fault, pkg string, args ...string) (string, error) {
	t.Helper()
	program, err := m.build(path.Base(pkg)+".test", "test", "-c", "./"+pkg)
	if err != nil {
		t.Fatal(err)
	}
	return execute(t, program, filepath.Join(m.root, pkg), fault, args...)
}

func execute(t *testing.T, program, dir, fault string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), variable+"="+fault)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
