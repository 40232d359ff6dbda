package recipes_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/bridge/test/e2e/crash"
)

// written are the lines of the file of redpanda-connect.md, sorted and without repeats: the object,
// what happened, and the version unless it was deleted.
func (l *lab) written() (all []string) {
	l.t.Helper()
	text, err := os.ReadFile(filepath.Join(l.dir, "events.txt"))
	must(l.t, err)
	for _, line := range slices.Compact(lines(string(text))) {
		fields := strings.Fields(line)
		if len(fields) != 4 {
			l.t.Fatalf("a line of the file is %q", line)
		}
		all = append(all, happened(fields[0], fields[2], fields[3]))
	}
	return all
}

// endLine ends the last line of the file. Connect writes the end of a line on its own, so a kill
// may come in between; it writes that event again.
func (l *lab) endLine() {
	l.t.Helper()
	file := filepath.Join(l.dir, "events.txt")
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	must(l.t, err)
	if len(text) > 0 && text[len(text)-1] != '\n' {
		must(l.t, os.WriteFile(file, append(text, '\n'), 0o600))
	}
}

func happened(object, operation, version string) string {
	if operation == "deleted" {
		version = ""
	}
	return strings.TrimSpace(object + " " + operation + " " + version)
}

// byObject are lines in the order of their objects, and of one object in their own.
func byObject(all []string) []string {
	slices.SortStableFunc(all, func(a, b string) int {
		return strings.Compare(strings.Fields(a)[0], strings.Fields(b)[0])
	})
	return all
}

// TestConnect kills Redpanda Connect again and again, and the bridge too. The file that Connect
// writes has each change, those of an object in their order, and its current state is the truth.
func TestConnect(t *testing.T) {
	l := newLab(t, "redpanda-connect.md")
	var connect *exec.Cmd
	receive := func() {
		t.Helper()
		connect, _ = l.start(t.Context(), "sh", "-c", "exec redpanda-connect run connect.yaml")
		must(t, connect.Start())
	}
	receive()
	l.startBridge(l.pageSinks())
	churn := crash.StartChurn(t.Context(), l.client, shop, rand.Uint64(), 4)
	for range 3 {
		time.Sleep(2 * time.Second)
		must(t, connect.Process.Kill())
		_ = connect.Wait() // it was killed
		l.endLine()
		time.Sleep(time.Second)
		receive()
		time.Sleep(time.Second)
		l.bridge.Kill()
		must(t, l.bridge.StartAndWait(t.Context()))
	}
	must(t, churn.Stop())
	l.settle()
	must(t, l.ledger.Err())
	var want []string
	changes := l.ledger.Changes()
	for i := range changes {
		ch := &changes[i]
		if ch.Resource == "configmaps" {
			object := fmt.Sprintf("configmaps/%s/%s", shop, ch.Metadata.Name)
			want = append(want, happened(object, operations[ch.Type], ch.Metadata.ResourceVersion))
		}
	}
	late := time.Now().Add(time.Minute)
	for len(l.written()) < len(want) && time.Now().Before(late) {
		time.Sleep(time.Second)
	}
	got := byObject(l.written())
	if !slices.Equal(got, byObject(want)) {
		l.same("the changes", got, want)
		t.Error("those of an object are not in their order")
	}
	l.requireTable("what exists", "sh", "current.sh")
	t.Logf("%d changes", len(want))
}
