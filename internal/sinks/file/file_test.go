package file_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/file"
	"github.com/kubebridge/bridge/internal/sinks/sinktest"
	"github.com/kubebridge/bridge/internal/testkit"
)

func newSink(t *testing.T, c file.Config) *file.Sink {
	t.Helper()
	s, err := file.New(new(testkit.WithDefaults(c)))
	testkit.OK(t, err)
	t.Cleanup(func() { testkit.OK(t, s.Close()) })
	return s
}

func openSink(t *testing.T, c file.Config) *file.Sink {
	t.Helper()
	s := newSink(t, c)
	testkit.OK(t, s.Open(t.Context()))
	return s
}

// publish sends events in one call, and returns those that were not acknowledged, with an error.
func publish(t *testing.T, s *file.Sink, events ...*event.Event) (unsent []*event.Event, err error) {
	t.Helper()
	batch := make([]*sinks.Message, len(events))
	for i, e := range events {
		batch[i] = &sinks.Message{Event: e}
	}
	s.Publish(t.Context(), batch)
	for _, m := range batch {
		if m.Err != nil {
			unsent, err = append(unsent, m.Event), m.Err
		}
	}
	return unsent, err
}

func versions(from, to int) (events []*event.Event) {
	for i := from; i <= to; i++ {
		events = append(events, sinktest.NewEvent("web", i, 300))
	}
	return events
}

// stored are the versions in a file, which must have whole lines only.
func stored(t *testing.T, path string) (list []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	testkit.OK(t, err)
	if len(text) > 0 && !bytes.HasSuffix(text, []byte("\n")) {
		t.Errorf("%s does not end with a line: %q", path, text)
	}
	for line := range bytes.Lines(text) {
		r, err := sinktest.ParseStructured(line)
		testkit.OK(t, err)
		list = append(list, r.Attributes["resourceversion"])
	}
	return list
}

func wantStored(t *testing.T, path string, from, to int) {
	t.Helper()
	var want []string
	for i := from; i <= to; i++ {
		want = append(want, fmt.Sprint(i))
	}
	if got := stored(t, path); !slices.Equal(got, want) {
		t.Errorf("%s has versions %v, want %v", filepath.Base(path), got, want)
	}
}

func TestFlatLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events")
	_, err := publish(t, openSink(t, file.Config{Path: path, Format: "flat"}), versions(1, 2)...)
	testkit.OK(t, err)
	text, err := os.ReadFile(path)
	testkit.OK(t, err)
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	if len(lines) != 2 {
		t.Fatalf("%d lines", len(lines))
	}
	for i, line := range lines {
		if e, err := new(event.Message).ReadDocument(line).Decode(); err != nil || e.ResourceVersion != fmt.Sprint(i+1) {
			t.Errorf("%s is version %s, %v", line, e.ResourceVersion, err)
		}
	}
}

// The file sink keeps the contract of a sink.
func TestContract(t *testing.T) {
	const noIDs = "a file of lines has no ids: readers remove duplicates"
	sinktest.Run(t, sinktest.Harness{
		TooLarge: 1 << 20,
		Exempt: map[string]string{
			"stores a resent message once":                                      noIDs,
			"what a cancelled call has left open is stored once in other calls": noIDs,
			"stores a message resent after a restart once":                      noIDs,
			"refuses what is too large and stores the rest of the call":         "no line is too long",
			"a dead letter that is too large arrives without its data":          "no line is too long",
			"opens once the broker is back":                                     "a full disk keeps no file from being opened",
			"names never meet":                                                  "all events go to one place",
		},
		Start: func(t *testing.T) *sinktest.Broker {
			path := filepath.Join(t.TempDir(), "events.jsonl")
			var isFull atomic.Bool
			var open *file.Sink // one process has the file
			return &sinktest.Broker{
				NewSink: func(t *testing.T) sinks.Sink {
					if open != nil {
						testkit.OK(t, open.Close())
					}
					open = newSink(t, file.Config{Path: path})
					file.FullDisk(open, syscall.ENOSPC, func() int {
						if isFull.Load() {
							return 100
						}
						return -1
					})
					return open
				},
				Read: func(t *testing.T, n int) (all []sinktest.Received) {
					text, err := os.ReadFile(path)
					testkit.OK(t, err)
					for line := range bytes.Lines(text) {
						r, err := sinktest.ParseStructured(line)
						testkit.OK(t, err)
						r.Destination = "file"
						all = append(all, r)
					}
					if len(all) < n {
						t.Fatalf("%d lines, want %d", len(all), n)
					}
					return all
				},
				Break:   func() { isFull.Store(true) },
				Restore: func() { isFull.Store(false) },
			}
		},
	})
}

func TestRotation(t *testing.T) {
	lineOf := func(t *testing.T, e *event.Event) int {
		path := filepath.Join(t.TempDir(), "one")
		_, err := publish(t, openSink(t, file.Config{Path: path}), e)
		testkit.OK(t, err)
		info, err := os.Stat(path)
		testkit.OK(t, err)
		return int(info.Size())
	}
	line := lineOf(t, sinktest.NewEvent("web", 10, 300))
	t.Run("a batch goes on in the next file, and the oldest go", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "logs", "events")
		c := file.Config{Path: path, MaxBytes: settings.Size(3*line + line/2), Keep: 2}
		_, err := publish(t, openSink(t, c), versions(10, 24)...)
		testkit.OK(t, err)
		wantStored(t, path, 22, 24)
		wantStored(t, path+".1", 19, 21)
		wantStored(t, path+".2", 16, 18)
		if _, err := os.Stat(path + ".3"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a third file is kept: %v", err)
		}
	})
	t.Run("a restart appends, and keeps fewer", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "events")
		c := file.Config{Path: path, MaxBytes: settings.Size(2 * line), Keep: 4}
		s := openSink(t, c)
		_, err := publish(t, s, versions(10, 19)...)
		testkit.OK(t, err)
		testkit.OK(t, s.Close())
		c.Keep = 1
		_, err = publish(t, openSink(t, c), versions(20, 21)...)
		testkit.OK(t, err)
		wantStored(t, path, 20, 21)
		wantStored(t, path+".1", 18, 19)
		left, err := filepath.Glob(path + ".[0-9]*")
		if err != nil || len(left) != 1 {
			t.Errorf("kept %v, %v", left, err)
		}
	})
	t.Run("a line that is larger than a file has one of its own", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "events")
		s := openSink(t, file.Config{Path: path, MaxBytes: settings.Size(line)})
		large := sinktest.NewEvent("web", 11, 5*line)
		_, err := publish(t, s, sinktest.NewEvent("web", 10, 300), large, sinktest.NewEvent("web", 12, 300))
		testkit.OK(t, err)
		wantStored(t, path+".2", 10, 10)
		wantStored(t, path+".1", 11, 11)
		wantStored(t, path, 12, 12)
	})
}

// A kill tears the last line.
func TestTornLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events")
	s := openSink(t, file.Config{Path: path})
	_, err := publish(t, s, versions(1, 3)...)
	testkit.OK(t, err)
	testkit.OK(t, s.Close())
	whole, err := os.ReadFile(path)
	testkit.OK(t, err)
	lines := bytes.SplitAfter(whole, []byte("\n"))
	third := len(lines[0]) + len(lines[1])
	for _, left := range []int{third, third + 1, len(whole) - 1, 10, 0} {
		testkit.OK(t, os.WriteFile(path, whole[:left], 0o600))
		s := openSink(t, file.Config{Path: path})
		first := 3 // which was not acknowledged
		if left < third {
			first = 1
		}
		_, err := publish(t, s, versions(first, 4)...)
		testkit.OK(t, err)
		testkit.OK(t, s.Close())
		wantStored(t, path, 1, 4)
	}
}

// A line without an end may be longer than what is read at once.
func TestLongTornLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events")
	testkit.OK(t, os.WriteFile(path, []byte(strings.Repeat("x", 200<<10)), 0o600))
	_, err := publish(t, openSink(t, file.Config{Path: path}), versions(1, 1)...)
	testkit.OK(t, err)
	wantStored(t, path, 1, 1)
}

// A full disk tears no line, and pending events are stored once.
func TestFullDisk(t *testing.T) {
	for room := 0; room < 3000; room += 250 {
		path := filepath.Join(t.TempDir(), "events")
		s, taken := newSink(t, file.Config{Path: path}), room
		file.FullDisk(s, syscall.ENOSPC, func() int { return taken })
		testkit.OK(t, s.Open(t.Context()))
		unsent, err := publish(t, s, versions(1, 5)...)
		if sinks.Classify(err) != sinks.Retry || !errors.Is(err, syscall.ENOSPC) ||
			!strings.Contains(err.Error(), "make room") {
			t.Errorf("got %v", err)
		}
		stored(t, path)
		taken = -1
		_, err = publish(t, s, unsent...)
		testkit.OK(t, err)
		wantStored(t, path, 1, 5)
	}
}

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events")
	first, second := openSink(t, file.Config{Path: path}), newSink(t, file.Config{Path: path})
	err := second.Open(t.Context())
	if sinks.Classify(err) != sinks.Reconnect || !strings.Contains(fmt.Sprint(err), path+" is open in another") {
		t.Errorf("got %v", err)
	}
	testkit.OK(t, first.Close())
	testkit.OK(t, second.Open(t.Context()))
	if _, err := publish(t, first, versions(1, 1)...); sinks.Classify(err) != sinks.Reconnect {
		t.Errorf("a sink that is closed answers %v", err)
	}
}
