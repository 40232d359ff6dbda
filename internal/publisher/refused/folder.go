package refused

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/metric"
)

// ErrFull is returned by Keep when the files would be larger than their bound.
var ErrFull = errors.New("the folder of undelivered events is full: send or remove some " +
	"(bridge undelivered), or raise state.maxUndeliveredBytes")

// Config of a Folder.
type Config struct {
	// Dir is made when the first event is kept. Required.
	Dir string
	// MaxBytes of all files together.
	MaxBytes int64
	// Registerer of the metrics; nil for none.
	Registerer prometheus.Registerer
}

// Folder keeps events in files.
type Folder struct {
	cfg Config

	mu   sync.Mutex // guards used; held for a few assignments
	used usage
}

// usage is what the folder held when it was looked at.
type usage struct {
	files int
	bytes int64
	at    time.Time
}

// New touches nothing.
func New(cfg Config) *Folder {
	f := &Folder{cfg: cfg}
	f.register(cfg.Registerer)
	return f
}

// Refusal says why an event is kept.
type Refusal struct {
	Sink string `json:"sink"`
	// Reason is why the sink refused the event; DeadLetter, why the place of its dead letters did.
	Reason     string `json:"reason"`
	DeadLetter string `json:"deadLetter"`
	// Attempts of the sink.
	Attempts int       `json:"attempts"`
	Kept     time.Time `json:"kept"`
}

// Keep writes an event to a file. An error says that it is not kept.
func (f *Folder) Keep(e *event.Event, why Refusal) error {
	raw, err := encode(e, why)
	if err != nil {
		return err
	}
	root, err := f.open()
	if err != nil {
		return fmt.Errorf("keep an undelivered event: %w", err)
	}
	defer root.Close()
	name := path.Join(why.Sink, fileName(e))
	if _, err := root.Stat(name); err == nil {
		return nil // before a crash
	}
	if err := f.reserve(int64(len(raw))); err != nil {
		return err
	}
	if err := write(root, why.Sink, name, raw); err != nil {
		f.give(int64(len(raw)))
		return fmt.Errorf("keep an undelivered event: %w", err)
	}
	return nil
}

// open opens the directory, and makes it when it is not there.
func (f *Folder) open() (*os.Root, error) {
	root, err := os.OpenRoot(f.cfg.Dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return root, err
	}
	if err := os.MkdirAll(f.cfg.Dir, 0o700); err != nil {
		return nil, err
	}
	parent, err := os.OpenRoot(filepath.Dir(f.cfg.Dir))
	if err != nil {
		return nil, err
	}
	if err := errors.Join(syncDir(parent, "."), parent.Close()); err != nil {
		return nil, err
	}
	return os.OpenRoot(f.cfg.Dir)
}

// fileName returns the same for the same event of the same informer.
func fileName(e *event.Event) string {
	const digits = 32
	sum := sha256.Sum256([]byte(e.MessageID() + e.Run))
	return hex.EncodeToString(sum[:])[:digits] + ".json"
}

// encode appends the event by hand: json.Marshal would write other bytes of its payload.
func encode(e *event.Event, why Refusal) ([]byte, error) {
	raw, err := json.Marshal(struct {
		Refusal
		Routing Routing `json:"routing,omitzero"`
	}{why, routingOf(e)})
	if err != nil {
		return nil, err
	}
	raw = append(raw[:len(raw)-1], `,"event":`...)
	return append(event.AppendStructured(raw, e), "}\n"...), nil
}

// write makes a file that is whole or not there.
func write(root *os.Root, dir, name string, raw []byte) (err error) {
	if err := root.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	half := name + ".tmp"
	file, err := root.OpenFile(half, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(raw)
	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		err = root.Rename(half, name)
	}
	if err != nil {
		return errors.Join(err, root.Remove(half))
	}
	return errors.Join(syncDir(root, dir), syncDir(root, "."))
}

func syncDir(root *os.Root, name string) error {
	dir, err := root.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// fresh is how long a look at the folder counts.
const fresh = 10 * time.Second

// reserve counts bytes that are about to be written.
func (f *Folder) reserve(bytes int64) error {
	if _, err := f.contents(time.Now().Add(-fresh)); err != nil {
		return err
	}
	if f.count(bytes) {
		return nil
	}
	if _, err := f.contents(time.Now()); err != nil { // somebody may have made room
		return err
	}
	if f.count(bytes) {
		return nil
	}
	return ErrFull
}

func (f *Folder) count(bytes int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.used.bytes+bytes > f.cfg.MaxBytes {
		return false
	}
	f.used.bytes += bytes
	f.used.files++
	return true
}

func (f *Folder) give(bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.used.bytes -= bytes
	f.used.files--
}

// contents returns what the folder holds, as it was at some moment since the one given.
func (f *Folder) contents(since time.Time) (usage, error) {
	f.mu.Lock()
	used := f.used
	f.mu.Unlock()
	if !used.at.Before(since) && !used.at.IsZero() {
		return used, nil
	}
	used, err := measure(f.cfg.Dir)
	if err != nil {
		return used, fmt.Errorf("look at the undelivered events: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.used = used
	return used, nil
}

// measure adds up the files.
func measure(dir string) (usage, error) {
	used := usage{at: time.Now()}
	err := fs.WalkDir(os.DirFS(dir), ".", func(_ string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // taken away meanwhile
		}
		if err == nil {
			used.files++
			used.bytes += info.Size()
		}
		return err
	})
	return used, err
}

// register shows what the folder holds.
func (f *Folder) register(reg prometheus.Registerer) {
	m := metric.With(reg)
	gauge := func(name, help string, value func(usage) float64) {
		m.GaugeFunc(name, help, func() float64 {
			used, _ := f.contents(time.Now().Add(-fresh)) // what can't be read is reported by Keep
			return value(used)
		})
	}
	gauge("bridge_undelivered_events",
		"Events in the state directory that neither a sink nor the place of its dead letters "+
			"takes.",
		func(u usage) float64 { return float64(u.files) })
	gauge("bridge_undelivered_bytes",
		"Size of the events in the state directory that neither a sink nor the place of its dead "+
			"letters takes.",
		func(u usage) float64 { return float64(u.bytes) })
	m.Gauge("bridge_undelivered_capacity_bytes",
		"Bound of bridge_undelivered_bytes.").Set(float64(f.cfg.MaxBytes))
}
