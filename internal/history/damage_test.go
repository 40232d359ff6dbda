package history_test

import (
	"errors"
	"flag"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/testkit"
)

var damageRuns = flag.Int("history.damage", 60, "how many damaged copies of a history are opened, and written on a failing disk")

// leaveHistory leaves a history with tables and a log, as a crash does, and an older copy of it.
func leaveHistory(t *testing.T) (left, older string, versions int) {
	t.Helper()
	left, older = filepath.Join(t.TempDir(), "h"), filepath.Join(t.TempDir(), "older")
	dir := t.TempDir()
	db, err := history.Open(history.Options{Dir: dir, MemTableBytes: 64 << 10})
	testkit.OK(t, err)
	events := pointers(testkit.Events(t, 1, 40, 30))
	for i, batch := range slices.Collect(slices.Chunk(events, 40)) {
		if i == 10 {
			testkit.OK(t, os.CopyFS(older, os.DirFS(dir)))
		}
		_, err := db.Writer.Append(t.Context(), batch)
		testkit.OK(t, err)
	}
	testkit.Eventually(t, "the copy of a running history is whole", func() bool {
		testkit.OK(t, os.RemoveAll(left))
		if os.CopyFS(left, os.DirFS(dir)) != nil {
			return false
		}
		versions, err = countVersions(left)
		return err == nil && versions > 0
	})
	testkit.OK(t, db.Close())
	whole, err := countVersions(dir)
	testkit.OK(t, err)
	if versions != whole {
		t.Fatalf("the copy has %d of %d versions", versions, whole)
	}
	return left, older, versions
}

func countVersions(dir string) (n int, err error) {
	db, err := history.Read(history.Options{Dir: dir})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	for _, u := range db.Questions.Resources.Units() {
		for o, err := range db.Questions.Objects.All(u, "") {
			if err != nil {
				return n, err
			}
			for _, err := range db.Questions.Objects.Versions(&o, time.Time{}, time.Time{}) {
				if err != nil {
					return n, err
				}
				n++
			}
		}
	}
	return n, nil
}

// After any damage to a file everything is there, or an error says what to do: no version is lost
// in silence.
func TestDamageIsNotSilent(t *testing.T) {
	left, older, versions := leaveHistory(t)
	files, err := filepath.Glob(filepath.Join(left, "*"))
	testkit.OK(t, err)
	outcomes := map[string]int{}
	for run := range *damageRuns {
		random := rand.New(rand.NewPCG(51, uint64(run)))
		file := files[run%len(files)]
		d := testkit.Damages[random.IntN(len(testkit.Damages))]
		dir := filepath.Join(t.TempDir(), "h")
		testkit.OK(t, os.CopyFS(dir, os.DirFS(left)))
		d.Do(t, random, filepath.Join(dir, filepath.Base(file)), older)
		n, err := reopenAndCount(dir)
		kind := strings.TrimRight(filepath.Base(file), "0123456789.")
		switch {
		case err != nil && (strings.Contains(err.Error(), "restore it from a copy") ||
			strings.Contains(err.Error(), "use the ")):
			outcomes[kind+" "+d.Name+": refused"]++
		case err != nil:
			t.Errorf("run %d: %s of %s: %v; want what to do", run, d.Name, filepath.Base(file), err)
		case n != versions:
			outcomes[kind+" "+d.Name+": SILENT LOSS"]++
			t.Errorf("run %d: %s of %s: %d of %d versions, and no error", run, d.Name, filepath.Base(file), n, versions)
		default:
			outcomes[kind+" "+d.Name+": whole"]++
		}
		testkit.OK(t, os.RemoveAll(dir))
	}
	for _, outcome := range slices.Sorted(maps.Keys(outcomes)) {
		t.Logf("%4d %s", outcomes[outcome], outcome)
	}
}

// reopenAndCount opens a history as its writer does, and then reads it.
func reopenAndCount(dir string) (int, error) {
	db, err := history.Open(history.Options{Dir: dir})
	if err != nil {
		return 0, err
	}
	if err := db.Close(); err != nil {
		return 0, err
	}
	return countVersions(dir)
}

// A history that finds damage while it runs logs that once, and then at most once a minute.
func TestDamageWhileRunning(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		batch := pointers(testkit.Events(t, 1, 10, 10))
		db, err := history.Open(history.Options{Dir: dir})
		testkit.OK(t, err)
		_, err = db.Writer.Append(t.Context(), batch)
		testkit.OK(t, errors.Join(err, db.Close()))
		var out testkit.Buffer
		db, err = history.Open(history.Options{Dir: dir, CacheBytes: 1, Log: slog.New(slog.NewTextHandler(&out, nil))})
		testkit.OK(t, err)
		synctest.Wait() // the log has become a table
		testkit.OK(t, db.Damage())
		tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
		testkit.OK(t, err)
		for _, table := range tables {
			data, err := os.ReadFile(table)
			testkit.OK(t, err)
			clear(data[:len(data)/2])
			testkit.OK(t, os.WriteFile(table, data, 0o600))
		}
		for range 5 { // as a publisher does
			_, err := db.Writer.Append(t.Context(), batch)
			if !errors.Is(err, history.ErrDamaged) {
				t.Errorf("Append: %v", err)
			}
		}
		time.Sleep(time.Minute)
		_, _ = db.Writer.Append(t.Context(), batch)
		lines := out.String()
		if strings.Count(lines, "the history is damaged: restore it from a copy") != 2 || !strings.Contains(lines, "suppressed=4") {
			t.Errorf("six times it met damage, and logged\n%s", lines)
		}
		if err := db.Damage(); !errors.Is(err, history.ErrDamaged) || !strings.Contains(err.Error(), "restore it from a copy") {
			t.Errorf("Damage: %v", err)
		}
		testkit.OK(t, db.Close())
	})
}
