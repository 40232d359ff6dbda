// Package file is the sink that appends events to a file, as lines of JSON, and rotates it.
//
// It takes events from a publisher, in the order given (sinks.ByLane: all events are one lane). An
// acknowledged event is a whole line on the disk: the file is synced once for each batch. Events
// that were written and not acknowledged come again, with the same ids.
//
// The file always holds whole lines: what an error has left of a batch is cut off, and what a kill
// has left of a line is cut off when the file is opened next.
//
// One process writes to a file. The lines are those of package stdout.
package file

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/event/asyncapi"
	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/stdout"
)

// Config is the section `file` of a sink.
//
// File appends a line per event to a file, as JSON. An event counts as sent when its line is on the
// disk. One bridge writes to a file, and nothing else moves or shortens it.
// Nothing can be read back: events whose lines were written just before a crash come again, with
// the same ids. A full disk delays this sink and no other.
type Config struct {
	// Path of the file. It is made when missing, with its directory. `<path>.lock` keeps a second
	// process out. Required.
	Path string `yaml:"path"`
	// MaxBytes bounds the file. Before a line would exceed it, the file is renamed to `<path>.1`,
	// that one to `<path>.2`, and so on. A longer line has a file of its own. 0: no bound.
	MaxBytes settings.Size `yaml:"maxBytes" default:"64MiB"`
	// Keep is how many renamed files are kept; older ones are removed, whether anybody has read
	// them or not. 0: none.
	Keep int `yaml:"keep" default:"5"`
	// Format of a line is `json`: a structured CloudEvent; or `flat`: a flat record, as with
	// `encoding: flat` of other sinks.
	Format string `yaml:"format" default:"json" oneof:"json flat"`
}

var _ interface {
	sinks.Section
	sinks.OwnEncoder
} = (*Config)(nil)

// Validate requires a path.
func (c *Config) Validate(ps *settings.Report, path string) {
	if c.Path == "" && !ps.Has(path+".path") {
		ps.Add(path+".path", "required")
	}
}

// OwnEncoding is that of a line.
func (*Config) OwnEncoding() string { return "file, which has its format" }

// New makes the sink.
func (c *Config) New(sinks.Common, *sinks.Env) (sinks.Sink, sinks.Service, error) {
	sink, err := New(c)
	return sink, nil, err
}

// Places is the file.
func (c *Config) Places() []string { return []string{"file " + c.Path} }

// Form is that of a line.
func (c *Config) Form(common sinks.Common) (sinks.Form, error) {
	return sinks.Form{
		Encoding:    stdout.EncodingOf(c.Format),
		Destination: func(*event.Event) string { return "sink " + common.Name + ": file " + c.Path },
	}, nil
}

// Describe says what a line is.
func (c *Config) Describe() *asyncapi.Sink {
	return (&stdout.Config{Format: c.Format}).Describe()
}

// Sink appends events. It implements sinks.Sink.
type Sink struct {
	path  string
	lines *stdout.Sink // writes into file
	file  *rotatedFile
}

var _ sinks.Sink = (*Sink)(nil)

// New makes a sink. It opens nothing.
func New(c *Config) (*Sink, error) {
	s := &Sink{path: c.Path, file: newRotatedFile(c)}
	lines, err := stdout.NewLines(s.file, cmp.Or(c.Format, stdout.JSON), s.explain)
	s.lines = lines
	return s, err
}

// Open locks and opens the file, and cuts off a line without an end.
func (s *Sink) Open(context.Context) error {
	if err := s.file.Open(); err != nil {
		return &sinks.Error{Class: sinks.Reconnect, Err: err}
	}
	return nil
}

// Close closes the file, once no write is under way.
func (s *Sink) Close() error { return s.file.Close() }

// Order is ByLane: lines come in the order given.
func (s *Sink) Order() sinks.Order { return s.lines.Order() }

// Limits are large batches, one at a time: each costs one fsync.
func (s *Sink) Limits() sinks.Limits {
	return sinks.Limits{Messages: 1000, Bytes: 8 << 20, Concurrency: 1}
}

// Lane is the same for all events.
func (s *Sink) Lane(context.Context, *event.Event) (string, error) { return "file", nil }

// Publish appends a line for each message, and waits until they are on the disk, or for ctx.
func (s *Sink) Publish(ctx context.Context, batch []*sinks.Message) { s.lines.Publish(ctx, batch) }

// DeadLetter appends the event with the reason and the attempts as attributes.
func (s *Sink) DeadLetter(ctx context.Context, e *event.Event, reason error, attempts int) error {
	return s.lines.DeadLetter(ctx, e, reason, attempts)
}

// explain sorts the errors of the file. None of them is about the message, so none is Refused.
func (s *Sink) explain(err error) error {
	switch {
	case errors.Is(err, os.ErrClosed):
		return &sinks.Error{Class: sinks.Reconnect, Err: fmt.Errorf("file %s: %w", s.path, err)}
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return &sinks.Error{Class: sinks.Retry, Err: fmt.Errorf("the disk of file %s is full; make "+
			"room, nothing is lost meanwhile: %w", s.path, err)}
	}
	return &sinks.Error{Class: sinks.Retry, Err: fmt.Errorf("file %s: %w", s.path, err)}
}

// osFile is what a file on the disk can do.
type osFile interface {
	io.WriteCloser
	io.ReaderAt
	Truncate(size int64) error
	Sync() error
}

// rotatedFile is a file of whole lines. It is an io.Writer: what Write has taken is on the disk.
type rotatedFile struct {
	path     string
	maxBytes int64 // 0 for no bound
	keep     int
	openFile func(path string) (file osFile, size int64, err error) // replaced by tests

	mu   sync.Mutex
	lock *os.File // guarded by mu; nil while it is not open
	// file is nil after an error that leaves unknown what it holds; guarded by mu.
	file osFile
	size int64 // of what is on the disk, in whole lines; guarded by mu
}

func newRotatedFile(c *Config) *rotatedFile {
	return &rotatedFile{path: c.Path, maxBytes: int64(c.MaxBytes), keep: c.Keep, openFile: openFile}
}

// openFile opens a file to append to. Its group may read it.
func openFile(path string) (file osFile, size int64, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o640) //nolint:gosec // for a collector
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

// Open locks and opens the file.
func (r *rotatedFile) Open() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lock != nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(r.path), 0o750); err != nil {
		return err
	}
	lock, err := lockFile(r.path + ".lock")
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return fmt.Errorf("file %s is open in another sink or process: give each a path of its own",
			r.path)
	}
	if err != nil {
		return fmt.Errorf("lock file %s: %w", r.path, err)
	}
	if err := r.reopen(); err != nil {
		return errors.Join(err, lock.Close())
	}
	r.lock = lock
	return syncDir(filepath.Dir(r.path))
}

// lockFile locks a file of its own: the one with the events is renamed. The lock ends with the
// process.
func lockFile(path string) (*os.File, error) {
	lock, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// reopen opens the file and cuts off a line without an end: it was not acknowledged.
func (r *rotatedFile) reopen() error {
	file, size, err := r.openFile(r.path)
	if err != nil {
		return err
	}
	whole, err := endOfLines(file, size)
	if err == nil && whole < size {
		err = file.Truncate(whole)
	}
	if err != nil {
		return errors.Join(err, file.Close())
	}
	r.file, r.size = file, whole
	return nil
}

// endOfLines returns where the last line with an end ends.
func endOfLines(file io.ReaderAt, size int64) (int64, error) {
	block := make([]byte, 64<<10)
	for size > 0 {
		begin := max(size-int64(len(block)), 0)
		part := block[:size-begin]
		if _, err := file.ReadAt(part, begin); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(part, '\n'); i >= 0 {
			return begin + int64(i) + 1, nil
		}
		size = begin
	}
	return 0, nil
}

// Write appends whole lines, syncs them, and returns how many bytes of them are on the disk. What
// it has written beyond that it takes back.
func (r *rotatedFile) Write(lines []byte) (stored int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lock == nil {
		return 0, os.ErrClosed
	}
	if r.file == nil {
		if err := r.reopen(); err != nil {
			return 0, err
		}
	}
	for len(lines) > 0 {
		fitting := r.fitting(lines)
		if fitting == 0 {
			if err := r.rotate(); err != nil {
				return stored, err
			}
			continue
		}
		if err := r.append(lines[:fitting]); err != nil {
			return stored, err
		}
		stored, lines = stored+fitting, lines[fitting:]
	}
	return stored, nil
}

// fitting is the length of the lines that the file has room for: a line at least where it is empty.
func (r *rotatedFile) fitting(lines []byte) int {
	room := r.maxBytes - r.size
	if r.maxBytes == 0 || int64(len(lines)) <= room {
		return len(lines)
	}
	if end := bytes.LastIndexByte(lines[:max(room, 0)], '\n') + 1; end > 0 || r.size > 0 {
		return end
	}
	return bytes.IndexByte(lines, '\n') + 1
}

// append writes lines and syncs them: all or none. After a sync that failed nothing is known of
// what was written since the last one.
func (r *rotatedFile) append(lines []byte) error {
	_, err := r.file.Write(lines)
	if err == nil {
		err = r.file.Sync()
	}
	if err == nil {
		r.size += int64(len(lines))
		return nil
	}
	if cut := r.file.Truncate(r.size); cut != nil {
		err = errors.Join(err, cut, r.file.Close())
		r.file = nil // the next write opens it, and cuts it
	}
	return err
}

// rotate renames the file and those before it by one, removes what there is too much of, and begins
// an empty file. A crash or an error in between leaves a number without a file, which does no harm.
func (r *rotatedFile) rotate() error {
	err := r.file.Close()
	r.file = nil
	if err != nil {
		return err
	}
	for i := r.keep + 1; ; i++ {
		if err := os.Remove(r.numbered(i)); errors.Is(err, os.ErrNotExist) {
			break
		} else if err != nil {
			return err
		}
	}
	for i := r.keep - 1; i >= 0; i-- {
		err := os.Rename(r.numbered(i), r.numbered(i+1))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if r.keep == 0 {
		if err := os.Remove(r.path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if err := r.reopen(); err != nil {
		return err
	}
	return syncDir(filepath.Dir(r.path))
}

// numbered is the path of a renamed file; 0 is the file itself.
func (r *rotatedFile) numbered(i int) string {
	if i == 0 {
		return r.path
	}
	return fmt.Sprintf("%s.%d", r.path, i)
}

// syncDir makes new names survive a power failure.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Close closes the file and unlocks it.
func (r *rotatedFile) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lock == nil {
		return nil
	}
	var err error
	if r.file != nil {
		err = r.file.Close()
	}
	err = errors.Join(err, r.lock.Close())
	r.file, r.lock = nil, nil
	return err
}
