package history_test

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/history/query"
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

// objectAnswers are the answers about one object: how many versions it has, and the newest one; ""
// where the answer is that the history is damaged.
type objectAnswers struct{ versions, newest string }

// askEach asks for each object by itself: for those that are known, nil for those that there are.
func askEach(dir string, known map[string]objectAnswers) (answers map[string]objectAnswers, err error) {
	db, err := history.Read(history.Options{Dir: dir})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	answers = map[string]objectAnswers{}
	for _, u := range db.Questions.Resources.Units() {
		var objects []query.Object
		for name := range known {
			if parts := strings.Split(name, "/"); parts[0] == u.Resource {
				objects = append(objects, query.Object{Unit: u, Namespace: parts[1], Name: parts[2]})
			}
		}
		if known == nil {
			for o, err := range db.Questions.Objects.All(u, "") {
				if err != nil {
					return nil, err
				}
				objects = append(objects, o)
			}
		}
		for _, o := range objects {
			a, n := objectAnswers{}, 0
			newest, err := db.Questions.Objects.At(&o, query.Point{})
			switch {
			case errors.Is(err, history.ErrDamaged):
			case err != nil:
				return nil, err
			case newest == nil:
				a.newest = "none"
			default:
				a.newest = newest.Event.ResourceVersion
			}
			for _, err = range db.Questions.Objects.Versions(&o, time.Time{}, time.Time{}) {
				n++
				if err != nil {
					break
				}
			}
			switch {
			case err == nil:
				a.versions = strconv.Itoa(n)
			case !errors.Is(err, history.ErrDamaged):
				return nil, err
			}
			answers[u.Resource+"/"+o.Namespace+"/"+o.Name] = a
		}
	}
	return answers, nil
}

// After any damage to a file everything is there, or an error says what to do: no version is lost
// in silence. Where a table is damaged the history answers about the objects that it has.
func TestDamageIsNotSilent(t *testing.T) {
	left, older, versions := leaveHistory(t)
	want, err := askEach(left, nil)
	testkit.OK(t, err)
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
		if errors.Is(err, history.ErrDamaged) {
			requireTrueAnswers(t, fmt.Sprintf("run %d: %s of %s", run, d.Name, filepath.Base(file)), dir, want, outcomes)
		}
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

var lostVersions = regexp.MustCompile(`; lost are versions from (the first|(\d+) of (\S+ \S+)) to (the last|(\d+) of (\S+ \S+));`)

// A check names the versions that a damaged table had: in the order of kinds, namespaces and names.
// The objects that are not between them are answered.
func TestDamageNamesVersions(t *testing.T) {
	left := filepath.Join(t.TempDir(), "left")
	db, err := history.Open(history.Options{Dir: left, MemTableBytes: 512 << 10})
	testkit.OK(t, err)
	for batch := range slices.Chunk(pointers(testkit.Events(t, 1, 80, 60)), 400) {
		_, err := db.Writer.Append(t.Context(), batch)
		testkit.OK(t, err)
	}
	testkit.OK(t, db.Close())
	want, err := askEach(left, nil)
	testkit.OK(t, err)
	tables, err := filepath.Glob(filepath.Join(left, "*.sst"))
	testkit.OK(t, err)
	named, answered := 0, 0
	for i := range 4 * len(tables) { // to open a history reads blocks of each table too
		dir := filepath.Join(t.TempDir(), "h")
		testkit.OK(t, os.CopyFS(dir, os.DirFS(left)))
		table := filepath.Join(dir, filepath.Base(tables[i/4]))
		data, err := os.ReadFile(table)
		testkit.OK(t, err)
		data[len(data)*(1+i%4)/5] ^= 4
		testkit.OK(t, os.WriteFile(table, data, 0o600))
		db, err := history.Read(history.Options{Dir: dir})
		if err != nil {
			t.Log(err)
			continue // it is refused as a whole
		}
		_, err = db.Check(t.Context())
		testkit.OK(t, db.Close())
		if !errors.Is(err, history.ErrDamaged) {
			t.Fatalf("%s: %v", table, err)
		}
		lost := lostVersions.FindStringSubmatch(err.Error())
		if lost == nil {
			t.Errorf("%s: %v", table, err)
			continue
		}
		named++
		got, err := askEach(dir, want)
		testkit.OK(t, err)
		for name, g := range got {
			kind, rest, _ := strings.Cut(name, "/")
			isBefore := lost[3] != "" && strings.HasPrefix(lost[3], kind+" ") && kind+" "+rest < lost[3]
			isBehind := lost[6] != "" && strings.HasPrefix(lost[6], kind+" ") && kind+" "+rest > lost[6]
			if (isBefore || isBehind) && g != want[name] {
				t.Errorf("%s: %s has %+v, want %+v: %s", table, name, g, want[name], lost[0])
			}
			if g == want[name] {
				answered++
			}
		}
		if named == 2 {
			break // to ask for each object takes long
		}
	}
	if named == 0 || answered == 0 {
		t.Errorf("%d damaged histories are named, %d objects answered", named, answered)
	}
}

// requireTrueAnswers asks a damaged history, where it can be opened: what it answers is what it
// had.
func requireTrueAnswers(t *testing.T, what, dir string, want map[string]objectAnswers, outcomes map[string]int) {
	t.Helper()
	got, err := askEach(dir, want)
	if err != nil {
		return // it can't be opened
	}
	for name, w := range want {
		switch g := got[name]; {
		case g.versions != "" && g.versions != w.versions || g.newest != "" && g.newest != w.newest:
			t.Errorf("%s: %s has %+v, want %+v", what, name, g, w)
		case g == w:
			outcomes["objects of an opened, damaged history: answered"]++
		default:
			outcomes["objects of an opened, damaged history: refused"]++
		}
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
