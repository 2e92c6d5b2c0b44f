package export

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/go-logr/logr"
	"gopkg.in/natefinch/lumberjack.v2"

	"ctrlrun.dev/operator/kernel/receipt"
)

// Rotation of exported files.
type Rotation struct {
	// Megabytes one file has at most. It is rotated before it would have more.
	Megabytes int
	// Files is how many rotated files are kept of each stream, besides the one that is written; 0: all.
	Files int
}

// MinMegabytes is the least that a file may have: the longest receipt must fit into it.
const MinMegabytes = 4

// A line quotes a document: at most each of its bytes becomes two, since it has no control characters of its own.
const _ = uint(MinMegabytes<<20 - (2*receipt.MaxDocumentBytes + 4096))

// NewDirectory writes receipts.jsonl and events.jsonl in a directory, each readable by its owner only, rotated to
// receipts-TIME.jsonl and events-TIME.jsonl. It refuses a directory it cannot write to, and one that another process writes
// to: two that rotate the same files lose lines.
func NewDirectory(dir string, rotation Rotation, clusterID string, log logr.Logger) (*Lines, error) {
	d, err := openDirectory(dir, rotation)
	if err != nil {
		return nil, err
	}
	return newLines("files", clusterID, d, log), nil
}

// directory is two rotating files.
type directory struct {
	lock  *os.File
	files map[stream]*file
}

func openDirectory(dir string, rotation Rotation) (*directory, error) {
	if dir == "" {
		return nil, errors.New("export to a directory: it has no name; write dir:PATH")
	}
	if rotation.Megabytes < MinMegabytes {
		return nil, fmt.Errorf("export to %s: files of %d MB are too small for the longest receipt; give at least %d", dir, rotation.Megabytes, MinMegabytes)
	}
	if rotation.Files < 0 {
		return nil, fmt.Errorf("export to %s: %d is no number of files to keep; 0 keeps all", dir, rotation.Files)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("export to %s: the directory is not there and cannot be made; mount a volume that this process may write to: %w", dir, err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("export to %s: the directory cannot be written to; mount a volume that this process may write to: %w", dir, err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("export to %s: another process exports there; give each replica a directory of its own: %w", dir, err), lock.Close())
	}
	d := &directory{lock: lock, files: map[stream]*file{}}
	for _, s := range []stream{receipts, events} {
		f := &file{Logger: &lumberjack.Logger{Filename: filepath.Join(dir, string(s)+".jsonl"), MaxSize: rotation.Megabytes, MaxBackups: rotation.Files}}
		if err := f.prepare(); err != nil {
			return nil, errors.Join(fmt.Errorf("export to %s: %w", dir, err), lock.Close())
		}
		d.files[s] = f
	}
	return d, nil
}

func (d *directory) write(s stream, line []byte) error { return d.files[s].write(line) }

func (d *directory) flush() error {
	return errors.Join(d.files[receipts].sync(), d.files[events].sync())
}

func (d *directory) close() error {
	return errors.Join(d.files[receipts].Close(), d.files[events].Close(), d.lock.Close())
}

// file is one stream. Its lines are whole: what a write that failed left of a line is cut off before the next.
type file struct {
	*lumberjack.Logger
	// unsynced: something was written that a crash of the machine may still take back.
	unsynced bool
	// torn: a write failed, so that the file may end within a line.
	torn bool
}

// prepare makes the file, if there is none, and mends what a process that was killed left.
func (f *file) prepare() error {
	created, err := os.OpenFile(f.Filename, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("%s cannot be written to: %w", f.Filename, err)
	}
	if err := created.Close(); err != nil {
		return err
	}
	return f.mend()
}

func (f *file) write(line []byte) error {
	if f.torn {
		// Closed, it is opened again at its new end.
		if err := errors.Join(f.Close(), f.mend()); err != nil {
			return err
		}
		f.torn = false
	}
	_, err := f.Write(line)
	f.torn, f.unsynced = err != nil, true
	return err
}

// sync makes what was written survive a crash of the machine. Any descriptor of a file syncs the file.
func (f *file) sync() error {
	if !f.unsynced {
		return nil
	}
	opened, err := os.Open(f.Filename)
	if err != nil {
		return err
	}
	if err := errors.Join(opened.Sync(), opened.Close()); err != nil {
		return err
	}
	f.unsynced = false
	return nil
}

// mend cuts off a line that has no end.
func (f *file) mend() error {
	opened, err := os.OpenFile(f.Filename, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	size, err := opened.Seek(0, io.SeekEnd)
	if err == nil {
		var whole int64
		if whole, err = endOfLastLine(opened, size); err == nil && whole < size {
			err = opened.Truncate(whole)
		}
	}
	return errors.Join(err, opened.Close())
}

// endOfLastLine is where the last whole line ends; 0: there is none.
func endOfLastLine(r io.ReaderAt, size int64) (int64, error) {
	const block = 64 << 10
	for end := size; end > 0; {
		begin := max(end-block, 0)
		buf := make([]byte, end-begin)
		if _, err := r.ReadAt(buf, begin); err != nil {
			return 0, err
		}
		if at := bytes.LastIndexByte(buf, '\n'); at >= 0 {
			return begin + int64(at) + 1, nil
		}
		end = begin
	}
	return 0, nil
}
