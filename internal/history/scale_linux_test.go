package history_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/testkit"
)

var scaleEvents = flag.Int("history.events", 20_000, "events in the history of TestScale")

// TestScale writes a history of pods that come, change their status 49 times, and go, and asks it
// cold: each question is the first to a database that was just opened, with none of its files in
// the page cache. It prints what the tables of docs/benchmarks.md have, after a tenth of the
// events and after all of them.
func TestScale(t *testing.T) {
	if testing.Short() {
		t.Skip("measures")
	}
	g := newScaleScript(min(scaleLive, *scaleEvents/100))
	dir := t.TempDir()
	rows := [][]string{
		{"events"}, {"objects that were ever known"}, {"writing, CPU per version (µs)"}, {"disk per version (bytes)"},
	}
	for _, events := range []int{*scaleEvents / 10, *scaleEvents} {
		spent := g.write(t, dir, events)
		rows[0] = append(rows[0], fmt.Sprint(events))
		rows[1] = append(rows[1], fmt.Sprint(g.objects))
		rows[2] = append(rows[2], fmt.Sprintf("%.1f", spent))
		rows[3] = append(rows[3], fmt.Sprintf("%.0f", g.sizeOf(t, dir)))
		for i, q := range g.questions() {
			if len(rows) == 4+i {
				rows = append(rows, []string{q.name + ", cold p50 / p99 (ms)"})
			}
			rows[4+i] = append(rows[4+i], ask(t, dir, q))
		}
	}
	var table strings.Builder
	for i, row := range rows {
		fmt.Fprintf(&table, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			table.WriteString("| --- | ---: | ---: |\n")
		}
	}
	t.Logf("%d pods live at a time\n%s", len(g.slots), table.String())
}

// scaleScript makes the events: some pods live at a time, each in a slot.
type scaleScript struct {
	random  *rand.Rand
	slots   []scalePod
	version int
	at      time.Time
	objects int
	written int
	began   time.Time
	// known are events whose versions the questions must find.
	known []knownVersion
	every int // how many events there are between two of them
}

// scalePod is the pod of a slot.
type scalePod struct {
	id, versions, previous int
	fixed                  string
}

type knownVersion struct {
	namespace, name string
	version         int
	at              time.Time
	gone            bool
}

// A week has some 10,000,000 events of 10,000 pods at this pace. 500 of a namespace live at a time.
const (
	scalePace      = 60 * time.Millisecond
	scaleLive      = 10_000
	scaleVersions  = 50
	scaleNamespace = 500
)

func newScaleScript(live int) *scaleScript {
	at := time.Date(2026, 11, 15, 0, 0, 0, 0, time.UTC)
	return &scaleScript{random: rand.New(rand.NewPCG(1, 2)), slots: make([]scalePod, live), version: 1000, at: at, began: at}
}

func (g *scaleScript) namespaceOf(slot int) string {
	return fmt.Sprintf("shop-%d", slot/scaleNamespace)
}

// pace is between two events: of fewer pods there are fewer.
func (g *scaleScript) pace() time.Duration {
	return scalePace * scaleLive / time.Duration(len(g.slots))
}

// next is the next event. A pod's end and its successor are two events that follow each other.
func (g *scaleScript) next() []*event.Event {
	slot := g.random.IntN(len(g.slots))
	if g.objects < len(g.slots) {
		slot = g.objects // each of them first
	}
	p := &g.slots[slot]
	switch {
	case p.versions == 0:
		return []*event.Event{g.create(slot)}
	case p.versions == scaleVersions:
		end := g.change(slot, event.Deleted)
		return []*event.Event{end, g.create(slot)}
	}
	return []*event.Event{g.change(slot, event.Updated)}
}

func (g *scaleScript) create(slot int) *event.Event {
	var pad strings.Builder
	for pad.Len() < 5500 {
		fmt.Fprintf(&pad, `{"name":"env-%d","value":"%x"},`, pad.Len(), g.random.Uint64())
	}
	g.slots[slot] = scalePod{id: g.objects, fixed: pad.String()}
	g.objects++
	return g.change(slot, event.Added)
}

func (g *scaleScript) change(slot int, op event.Op) *event.Event {
	p := &g.slots[slot]
	g.version++
	g.at = g.at.Add(g.pace())
	e := podVersionIn(g.namespaceOf(slot), p.id, g.version, p.previous, g.at, p.fixed)
	e.Op, e.Type = op, "dev.kubebridge.resource."+string(op)
	if op == event.Deleted {
		e.Sequence += ".deleted"
	}
	p.previous = g.version
	p.versions++
	g.written++
	if g.written%g.every == 0 {
		g.known = append(g.known, knownVersion{e.Namespace, e.Name, g.version, g.at, op == event.Deleted})
	}
	return e
}

// write makes events up to a number, and returns the CPU of storing one, without making it.
func (g *scaleScript) write(t *testing.T, dir string, events int) (microseconds float64) {
	t.Helper()
	runtime.LockOSThread() // threadTime is of this thread
	defer runtime.UnlockOSThread()
	g.every, g.known = max(events/1000, 1), nil
	db, err := history.Open(history.Options{Dir: dir})
	testkit.OK(t, err)
	begun, from, making := processorTime(t), g.written, time.Duration(0)
	var batch []*event.Event
	for g.written < events {
		before := threadTime(t)
		for len(batch) < 1000 && g.written < events {
			batch = append(batch, g.next()...)
		}
		making += threadTime(t) - before
		_, err := db.Writer.Append(t.Context(), batch)
		testkit.OK(t, err)
		batch = batch[:0]
	}
	testkit.OK(t, db.Close())
	spent := processorTime(t) - begun - making
	t.Logf("%d events: storing %v of CPU, making them %v", g.written, spent, making)
	return float64(spent.Microseconds()) / float64(g.written-from)
}

// threadTime is what this thread has used.
func threadTime(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	testkit.OK(t, syscall.Getrusage(syscall.RUSAGE_THREAD, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// sizeOf is how many bytes a version takes on disk, when what lay in the log is a table.
func (g *scaleScript) sizeOf(t *testing.T, dir string) float64 {
	t.Helper()
	db, err := history.Open(history.Options{Dir: dir})
	testkit.OK(t, err)
	defer func() { testkit.OK(t, db.Close()) }()
	return float64(db.Maintenance.DiskBytes()) / float64(g.written)
}

// scaleQuestion is one that is asked again and again, for something else each time.
type scaleQuestion struct {
	name string
	ask  func(t *testing.T, db *history.DB, round int)
}

func (g *scaleScript) questions() []scaleQuestion {
	at := func(round int) *knownVersion { return &g.known[(round*7919+13)%len(g.known)] }
	object := func(db *history.DB, k *knownVersion) *query.Object {
		return &query.Object{Unit: db.Questions.Resources.Units()[0], Namespace: k.namespace, Name: k.name}
	}
	return []scaleQuestion{
		{"an object at a time", func(t *testing.T, db *history.DB, round int) {
			k := at(round)
			v, err := db.Questions.Objects.At(object(db, k), query.Point{At: k.at})
			testkit.OK(t, err)
			if v == nil || v.Event.ResourceVersion != fmt.Sprint(k.version) || v.Deleted() != k.gone {
				t.Errorf("%s at %v: %v, want version %d", k.name, k.at, v, k.version)
			}
		}},
		{"all versions of an object", func(t *testing.T, db *history.DB, round int) {
			k := at(round)
			n, found := 0, false
			for v, err := range db.Questions.Objects.Versions(object(db, k), time.Time{}, time.Time{}) {
				testkit.OK(t, err)
				n++
				found = found || v.Event.ResourceVersion == fmt.Sprint(k.version)
			}
			if !found || n > scaleVersions+1 {
				t.Errorf("%s has %d versions, among them %d: %t", k.name, n, k.version, found)
			}
		}},
		{"the timeline of a namespace, 5 minutes", func(t *testing.T, db *history.DB, round int) {
			k := at(round)
			found := false
			for e, err := range db.Questions.Timeline.Entries("prod", k.namespace, k.at.Add(-5*time.Minute), k.at, nil) {
				testkit.OK(t, err)
				found = found || e.Event.Name == k.name && e.Event.ResourceVersion == fmt.Sprint(k.version)
				if e.Event.Op == event.Updated && e.HasBefore && len(e.Changes) == 0 {
					t.Errorf("version %s of %s has changed nothing", e.Event.ResourceVersion, e.Event.Name)
				}
			}
			if !found {
				t.Errorf("version %d of %s is not in the timeline", k.version, k.name)
			}
		}},
		{"the state of a namespace of 500 pods", func(t *testing.T, db *history.DB, round int) {
			k := at(round)
			n, found := 0, k.gone
			for v, err := range db.Questions.Objects.State(query.StateQuery{Units: db.Questions.Resources.Units(), Namespace: k.namespace, At: query.Point{At: k.at}}) {
				testkit.OK(t, err)
				n++
				found = found || v.Event.Name == k.name && v.Event.ResourceVersion == fmt.Sprint(k.version)
			}
			full := min(scaleNamespace, len(g.slots))
			if allBegan := g.began.Add(time.Duration(len(g.slots)) * g.pace()); k.at.After(allBegan) && n != full && n != full-1 {
				t.Errorf("%d pods in %s at %v, want %d", n, k.namespace, k.at, full)
			}
			if !found {
				t.Errorf("%s is not among the %d pods of %s at %v", k.name, n, k.namespace, k.at)
			}
		}},
	}
}

// ask asks a cold history, and returns the median and the 99th percentile in milliseconds.
func ask(t *testing.T, dir string, q scaleQuestion) string {
	t.Helper()
	rounds := min(100, max(*scaleEvents/1000, 20))
	var took []time.Duration
	for round := range rounds {
		dropCache(t, dir)
		db, err := history.Read(history.Options{Dir: dir})
		testkit.OK(t, err)
		began := time.Now()
		q.ask(t, db, round)
		took = append(took, time.Since(began))
		testkit.OK(t, db.Close())
	}
	slices.Sort(took)
	t.Logf("%s: %v", q.name, took[rounds/2])
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	return fmt.Sprintf("%.1f / %.1f", ms(took[rounds/2]), ms(took[rounds*99/100]))
}

// dropCache takes the files of a directory out of the page cache. They are on disk: the database is
// closed.
func dropCache(t *testing.T, dir string) {
	t.Helper()
	files, err := os.ReadDir(dir)
	testkit.OK(t, err)
	for _, file := range files {
		if !file.Type().IsRegular() {
			continue
		}
		f, err := os.Open(filepath.Join(dir, file.Name()))
		testkit.OK(t, err)
		const dontNeed = 4 // POSIX_FADV_DONTNEED
		if _, _, errno := syscall.Syscall6(syscall.SYS_FADVISE64, f.Fd(), 0, 0, dontNeed, 0, 0); errno != 0 {
			t.Fatal(errno)
		}
		testkit.OK(t, f.Close())
	}
}
