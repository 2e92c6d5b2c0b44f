package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// bubblewrap is the program that makes sandboxes. There is no other way to run a container here.
const bubblewrap = "bwrap"

// Install is what to do where it is missing.
const Install = "the test node runs pods in sandboxes of bubblewrap, which is not there: apt-get install bubblewrap"

// sandbox is what one run of a container is confined to: a root that cannot be written, of the system's programs and
// libraries, its image's files and its volumes; its own processes, hostname and IPC; no network, unless shared.
type sandbox struct {
	argv     []string
	env      map[string]string
	dir      string // working directory; may be empty
	hostname string
	user     user
	network  bool // the machine's
	files    []string
	mounts   []mount
	memory   uint64 // bytes of data that each process may have; 0 for any
	filtered bool   // by the default profile of system calls
}

// mount is something of the machine that a sandbox has at another place.
type mount struct {
	from, to string
	readOnly bool
}

// system is what each sandbox has of the machine: enough to run a program, nothing of anybody's home, /tmp or /run.
var system = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}

// settings are files of /etc that programs cannot do without; none holds a secret.
var settings = []string{
	"/etc/alternatives", "/etc/ca-certificates", "/etc/group", "/etc/hosts", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d",
	"/etc/localtime", "/etc/mime.types", "/etc/nsswitch.conf", "/etc/passwd", "/etc/protocols", "/etc/services", "/etc/ssl",
}

// arguments of bubblewrap. They are carried out in their order.
func (s sandbox) arguments() ([]string, error) {
	args := []string{
		"--unshare-all", "--die-with-parent", "--new-session", "--as-pid-1", "--cap-drop", "ALL",
		"--unshare-user", "--uid", strconv.FormatInt(s.user.uid, 10), "--gid", strconv.FormatInt(s.user.gid, 10),
		"--hostname", s.hostname, "--clearenv",
	}
	if s.network {
		args = append(args, "--share-net")
	}
	for _, name := range sorted(s.env) {
		args = append(args, "--setenv", name, s.env[name])
	}
	for _, path := range system {
		info, err := os.Lstat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			args = append(args, "--ro-bind", path, path)
			continue
		}
		target, err := os.Readlink(path)
		if err != nil {
			return nil, err
		}
		args = append(args, "--symlink", target, path)
	}
	for _, path := range settings {
		args = append(args, "--ro-bind-try", path, path)
	}
	args = append(args, "--proc", "/proc", "--dev", "/dev", "--dir", "/tmp")
	for _, path := range s.files {
		args = append(args, "--ro-bind", path, path)
	}
	// A mount below another one comes after it.
	mounts := slices.Clone(s.mounts)
	slices.SortStableFunc(mounts, func(a, b mount) int { return strings.Compare(a.to, b.to) })
	for _, m := range mounts {
		how := "--bind"
		if m.readOnly {
			how = "--ro-bind"
		}
		args = append(args, how, m.from, m.to)
	}
	args = append(args, "--remount-ro", "/")
	if s.dir != "" {
		args = append(args, "--chdir", s.dir)
	}
	return args, nil
}

// process is a container that runs.
type process struct {
	cmd  *exec.Cmd
	pid  int // of the first process in the sandbox, as the machine counts
	done chan struct{}
	end  ending // read after done is closed
}

// ending is how a container ended.
type ending struct {
	exitCode int32
	// startError says why the container's own program was never started; empty if it was.
	startError string
	time       time.Time
}

// start runs a container. What it prints goes to output. A container that did not start is no error but an ending: only a
// machine without bubblewrap is one.
func (s sandbox) start(output io.Writer) (*process, error) {
	bwrap, err := exec.LookPath(bubblewrap)
	if err != nil {
		return nil, errors.New(Install)
	}
	args, err := s.arguments()
	if err != nil {
		return nil, err
	}
	extra := []string{"--args", "3", "--json-status-fd", "4"}
	var files []*os.File
	defer func() {
		for _, f := range files {
			f.Close() // the child has its own descriptor
		}
	}()
	argsOut, argsIn, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer argsIn.Close()
	files = append(files, argsOut)
	statusOut, statusIn, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	files = append(files, statusIn)
	if s.filtered {
		profile, err := seccomp()
		if err != nil {
			return nil, errors.Join(err, statusOut.Close())
		}
		files, extra = append(files, profile), append(extra, "--seccomp", "5")
	}
	// Not on the command line, which everybody on the machine can read: the environment may hold secrets.
	cmd := exec.Command(bwrap, slices.Concat(extra, []string{"--"}, s.argv)...)
	cmd.Env = []string{}
	cmd.Dir = "/"
	cmd.ExtraFiles = files
	var complaint bytes.Buffer
	// One pipe for both, so that what is printed stays in its order. What was printed where no program was started is
	// bubblewrap's complaint.
	both := io.MultiWriter(output, &limited{to: &complaint})
	cmd.Stdout, cmd.Stderr = both, both
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, statusOut.Close())
	}
	// Or its end would not be seen.
	if err := statusIn.Close(); err != nil {
		return nil, errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	// It starts nothing before it has read all of its arguments, which are written below. What it starts has the same limit.
	if s.memory > 0 {
		limit := &unix.Rlimit{Cur: s.memory, Max: s.memory}
		if err := unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_DATA, limit, nil); err != nil {
			return nil, errors.Join(fmt.Errorf("limiting memory: %w", err), cmd.Process.Kill(), cmd.Wait())
		}
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	status := json.NewDecoder(statusOut)
	first := make(chan struct{})
	go func() {
		defer statusOut.Close()
		exited := false
		for told := false; ; {
			var line struct {
				ChildPID *int   `json:"child-pid"`
				ExitCode *int32 `json:"exit-code"`
			}
			err := status.Decode(&line)
			if line.ChildPID != nil {
				p.pid = *line.ChildPID
			}
			if line.ExitCode != nil {
				p.end.exitCode, exited = *line.ExitCode, true
			}
			if !told && (p.pid != 0 || err != nil) {
				told = true
				close(first)
			}
			if err != nil {
				break
			}
		}
		// An exit that is not the program's has no line of its own: see the exit status.
		err := cmd.Wait()
		if !exited {
			p.end.exitCode = 128
			p.end.startError = fmt.Sprintf("%s: %s", ended(err), strings.TrimSpace(complaint.String()))
		}
		p.end.time = time.Now()
		close(p.done)
	}()
	// The arguments of a child that has ended before it read them all go nowhere; how it ended says why.
	if _, err := argsIn.WriteString(strings.Join(args, "\x00") + "\x00"); err != nil && !errors.Is(err, syscall.EPIPE) {
		return nil, errors.Join(err, p.kill())
	}
	argsIn.Close()
	<-first
	return p, nil
}

func ended(err error) string {
	if err == nil {
		return "bubblewrap ended"
	}
	return "bubblewrap ended with " + err.Error()
}

// terminate asks the container to end.
func (p *process) terminate() error { return p.signal(syscall.SIGTERM) }

// kill ends the container and every process of it, and returns when they are gone.
func (p *process) kill() error {
	err := p.signal(syscall.SIGKILL)
	if err != nil {
		// With bubblewrap goes what it started.
		err = p.cmd.Process.Kill()
	}
	<-p.done
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

func (p *process) signal(s syscall.Signal) error {
	select {
	case <-p.done:
		return nil
	default:
	}
	if p.pid == 0 {
		return errors.New("the sandbox has no process yet")
	}
	if err := syscall.Kill(p.pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

// limited keeps the beginning of what is written to it.
type limited struct{ to *bytes.Buffer }

func (l *limited) Write(text []byte) (int, error) {
	const enough = 4096
	if room := enough - l.to.Len(); room > 0 {
		l.to.Write(text[:min(room, len(text))])
	}
	return len(text), nil
}

// Check says whether sandboxes can be made on this machine, by making one.
func Check(ctx context.Context) error {
	s := sandbox{argv: []string{"/usr/bin/true"}, hostname: "check", user: user{uid: defaultUser, gid: defaultUser}}
	p, err := s.start(io.Discard)
	if err != nil {
		return err
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		return errors.Join(ctx.Err(), p.kill())
	}
	if p.end.startError != "" || p.end.exitCode != 0 {
		return fmt.Errorf("bubblewrap makes no sandbox on this machine, so that the test node runs no pods: %s", p.end.startError)
	}
	return nil
}
