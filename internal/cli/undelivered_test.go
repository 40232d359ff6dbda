package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/publisher/refused"
)

func TestUndelivered(t *testing.T) {
	dir := t.TempDir()
	folder := refused.New(refused.Config{Dir: filepath.Join(dir, "undelivered"), MaxBytes: 1 << 20})
	keep := func(sink, name string, age time.Duration) {
		t.Helper()
		e := &event.Event{
			ID: name + "/1", Source: "/clusters/c", Type: "dev.kubebridge.resource.added", Time: time.Unix(1e9, 0),
			Subject: "api/v1/namespaces/shop/pods/" + name, Data: []byte(`{"kind":"Pod"}`),
		}
		why := refused.Refusal{Sink: sink, Reason: "too large:\n\x1b[31m9 MiB", Attempts: 1, Kept: time.Now().Add(-age)}
		if err := folder.Keep(e, why); err != nil {
			t.Fatal(err)
		}
	}
	undo := func(args ...string) (code int, stdout, stderr string) {
		t.Helper()
		var out, errs bytes.Buffer
		code = run(t.Context(), append([]string{"undelivered", "--state-dir", dir}, args...), strings.NewReader(""), &out, &errs)
		return code, out.String(), errs.String()
	}
	ids := func() (ids []string) {
		t.Helper()
		code, out, errs := undo("ls", "--output", "json")
		var entries []struct{ ID, Sink string }
		if err := json.Unmarshal([]byte(out), &entries); code != 0 || err != nil {
			t.Fatal(code, errs, err)
		}
		for _, e := range entries {
			ids = append(ids, e.ID)
		}
		return ids
	}

	t.Run("an empty folder lists nothing", func(t *testing.T) {
		if code, out, _ := undo("ls"); code != 0 || out != "No undelivered events.\n" {
			t.Errorf("%d %q", code, out)
		}
	})
	keep("lake", "young", time.Minute)
	keep("lake", "old", time.Hour)
	keep("audit", "other", time.Second)

	t.Run("ls lists the oldest first, each on one line, without control characters", func(t *testing.T) {
		code, out, _ := undo("ls")
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if code != 0 || len(lines) != 4 || strings.Contains(out, "\x1b") {
			t.Fatalf("%d %q", code, out)
		}
		for i, want := range []string{"REASON", "pods/old", "pods/young", "pods/other"} {
			if !strings.Contains(lines[i], want) {
				t.Errorf("line %d is %q, want %s in it", i, lines[i], want)
			}
		}
	})
	t.Run("get prints the event, found by the start of its ID", func(t *testing.T) {
		code, out, errs := undo("get", ids()[0][:8])
		var e struct{ ID, Subject string }
		if err := json.Unmarshal([]byte(out), &e); code != 0 || err != nil || e.ID != "old/1" {
			t.Errorf("%d %q %q %v", code, out, errs, err)
		}
		if code, out, _ := undo("get", ids()[0], "--output", "json"); code != 0 || !strings.Contains(out, `"reason": "too large`) {
			t.Errorf("%d %q", code, out)
		}
	})
	t.Run("an ID that no event has is an error, and removes nothing", func(t *testing.T) {
		if code, _, errs := undo("rm", ids()[0], "zz"); code != 1 || !strings.Contains(errs, "no such event") {
			t.Errorf("%d %q", code, errs)
		}
		if left := ids(); len(left) != 3 {
			t.Errorf("%d events are left, want 3", len(left))
		}
	})
	t.Run("a file that cannot be read is listed, and can be removed", func(t *testing.T) {
		if err := os.WriteFile(filepath.Join(dir, "undelivered", "lake", "ffff.json"), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		if code, out, _ := undo("ls"); code != 0 || !strings.Contains(out, "unexpected end of JSON input") {
			t.Errorf("%d %q", code, out)
		}
		if code, _, errs := undo("get", "ffff"); code != 1 || !strings.Contains(errs, "unexpected end") {
			t.Errorf("%d %q", code, errs)
		}
		if code, _, errs := undo("rm", "ffff"); code != 0 {
			t.Error(errs)
		}
	})
	t.Run("rm removes one, those of a sink, or all", func(t *testing.T) {
		if code, out, errs := undo("rm", ids()[0]); code != 0 || out != "removed 1 event\n" || len(ids()) != 2 {
			t.Error(code, out, errs)
		}
		if code, out, errs := undo("rm", "--all", "--sink", "lake"); code != 0 || out != "removed 1 event\n" || len(ids()) != 1 {
			t.Error(code, out, errs)
		}
		if code, out, errs := undo("rm", "--all"); code != 0 || out != "removed 1 event\n" || len(ids()) != 0 {
			t.Error(code, out, errs)
		}
	})
	t.Run("what to remove must be said", func(t *testing.T) {
		for _, args := range [][]string{{"rm"}, {"rm", "x", "--all"}, {"rm", "x", "--sink", "lake"}} {
			if code, _, _ := undo(args...); code != 2 {
				t.Errorf("%v: exit code %d, want 2", args, code)
			}
		}
	})
	t.Run("a state directory that does not exist is an error", func(t *testing.T) {
		if code, _, errs := undo("ls", "--state-dir", filepath.Join(dir, "none")); code != 2 || !strings.Contains(errs, "--state-dir") {
			t.Errorf("%d %q", code, errs)
		}
	})
}
