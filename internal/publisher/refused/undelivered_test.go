package refused_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/publisher/refused"
	"github.com/kubebridge/bridge/internal/testkit"
)

func newEvent(id, data string) *event.Event {
	return &event.Event{ID: id, Source: "/clusters/c", Type: "dev.kubebridge.resource.added", Time: time.Unix(1e9, 0), Data: []byte(data)}
}

// files are the paths and contents in a directory.
func files(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		all[path] = string(raw)
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return all
}

// The events of two informers about one change have a file each.
func TestFilePerInformer(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "undelivered")
	f := refused.New(refused.Config{Dir: dir, MaxBytes: 1 << 20})
	for _, informer := range []string{"all", "some"} {
		e := newEvent("u/1", "{}")
		e.Informer = informer
		if err := f.Keep(e, refused.Refusal{Sink: "lake"}); err != nil {
			t.Fatal(err)
		}
	}
	if all := files(t, dir); len(all) != 2 {
		t.Errorf("files %v", all)
	}
}

// An event is kept in one file, once, with what refused it.
func TestFileOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "undelivered")
	for range 2 { // as after a crash
		f := refused.New(refused.Config{Dir: dir, MaxBytes: 1 << 20})
		if err := f.Keep(newEvent("u/1", `{"a":1}`), refused.Refusal{Sink: "lake", Reason: "too large", DeadLetter: "no rights", Attempts: 3}); err != nil {
			t.Fatal(err)
		}
	}
	all := files(t, dir)
	if len(all) != 1 {
		t.Fatalf("files %v", all)
	}
	for path, content := range all {
		if !strings.HasPrefix(path, filepath.Join(dir, "lake")+"/") {
			t.Errorf("it is at %s", path)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("others may read it: %v %v", info.Mode(), err)
		}
		var got struct {
			refused.Refusal
			Event cloudevents.Event
		}
		if err := json.Unmarshal([]byte(content), &got); err != nil {
			t.Fatal(err)
		}
		if got.Sink != "lake" || got.Reason != "too large" || got.DeadLetter != "no rights" || got.Attempts != 3 || got.Event.ID() != "u/1" || string(got.Event.Data()) != `{"a":1}` {
			t.Errorf("%s", content)
		}
	}
}

// The files have a bound, and make room when they are removed.
func TestFileBound(t *testing.T) {
	dir, reg := filepath.Join(t.TempDir(), "undelivered"), prometheus.NewRegistry()
	f := refused.New(refused.Config{Dir: dir, MaxBytes: 1500, Registerer: reg})
	keep := func(id string) error {
		return f.Keep(newEvent(id, `"`+strings.Repeat("x", 500)+`"`), refused.Refusal{Sink: "lake"})
	}
	if err := keep("u/1"); err != nil {
		t.Fatal(err)
	}
	if err := keep("u/2"); !errors.Is(err, refused.ErrFull) {
		t.Fatalf("more than the bound is kept: %v", err)
	}
	held := files(t, dir)
	events := testkit.Metric(t, reg, "bridge_undelivered_events")
	bytes := testkit.Metric(t, reg, "bridge_undelivered_bytes")
	if int(events) != len(held) || bytes < 500 || bytes > 1500 {
		t.Errorf("metrics: %v events of %v bytes, in %d files", events, bytes, len(held))
	}
	for path := range held {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if err := keep("u/4"); err != nil {
		t.Errorf("after room was made: %v", err)
	}
}

// An event that can't be written is not reported as kept.
func TestWriteFailure(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a file")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f := refused.New(refused.Config{Dir: dir, MaxBytes: 1 << 20})
	if err := f.Keep(newEvent("u/1", `{}`), refused.Refusal{Sink: "lake"}); err == nil {
		t.Error("it says that it is kept")
	}
}
