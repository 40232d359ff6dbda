package checkpoint_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer/changelog"
	"github.com/kubebridge/bridge/internal/informer/checkpoint"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/store/statedb"
	"github.com/kubebridge/bridge/internal/testkit"
)

var pods = testkit.Pods

// bench is one informer's log over a database in memory, with one listener.
type bench struct {
	t         testing.TB
	db        *store.DB
	indexer   *store.Indexer
	committer *checkpoint.Committer
	*changelog.Log
}

func newBench(t testing.TB) *bench {
	t.Helper()
	db, err := store.Open(statedb.Options{})
	testkit.OK(t, err)
	t.Cleanup(func() { testkit.OK(t, db.Close()) })
	b := &bench{t: t, db: db}
	b.indexer, err = db.Indexer(store.IndexerConfig{Name: "all/pods", Type: pods})
	testkit.OK(t, err)
	b.committer, err = checkpoint.New(checkpoint.Config{DB: db})
	testkit.OK(t, err)
	b.Log, err = changelog.Open(changelog.Config{
		Indexer: b.indexer, Type: pods, Committer: b.committer, Listeners: []string{"sink"},
		Log: slog.New(slog.DiscardHandler),
	})
	testkit.OK(t, err)
	b.committer.Track(b.Log)
	return b
}

// event appends the change of a watch event, and has it read; settle settles it.
func (b *bench) event(name, version string) changelog.Position {
	b.t.Helper()
	at := b.item(name, version, false)
	b.mark(changelog.Event, resource.Version(version))
	return at
}

func (b *bench) mark(kind changelog.MarkKind, version resource.Version) {
	b.Rank(nil, changelog.Mark{Kind: kind, Version: version})
}

// item appends a change that says nothing of versions, and has it read.
func (b *bench) item(name, version string, isDeleted bool) changelog.Position {
	b.t.Helper()
	obj := &resource.Object{Raw: []byte(`{}`), Meta: resource.Meta{Name: name, UID: "u", Version: resource.Version(version)}}
	change := event.Change{
		Op: event.Updated, Key: resource.Key(name), Object: obj, UID: "u", Version: obj.Version,
	}
	if isDeleted {
		change.Op = event.Deleted
	}
	e := &changelog.Entry{Change: change, For: 1}
	b.Rank([]*changelog.Entry{e}, changelog.Mark{})
	b.Append([]*changelog.Entry{e})
	b.Cursor(0).Claim([]changelog.Header{e.Header()}, e.Position+1)
	return e.Position
}

func (b *bench) settle(at changelog.Position) {
	b.Cursor(0).Ack([]changelog.Ack{{At: at}})
}

func (b *bench) wantWatermark(version resource.Version) {
	b.t.Helper()
	testkit.OK(b.t, b.committer.Commit())
	pos, err := b.indexer.Meta().Position()
	testkit.OK(b.t, err)
	if pos.Version != version {
		b.t.Errorf("watermark %q, want %q", pos.Version, version)
	}
}

// The watermark is committed.
func TestWatermarkCommitted(t *testing.T) {
	b := newBench(t)
	var at []changelog.Position
	for n := range 5 {
		at = append(at, b.event(fmt.Sprint("pod-", n), fmt.Sprint(10+n)))
	}
	for _, n := range []int{4, 2, 1} {
		b.settle(at[n])
	}
	b.wantWatermark("")
	b.settle(at[0])
	b.wantWatermark("12")
	b.settle(at[3])
	b.wantWatermark("13") // 14 is settled, and nothing later was seen
	b.mark(changelog.Bookmark, "500")
	b.wantWatermark("500")
	item := b.item("pod-6", "6", false)
	b.mark(changelog.ListEnd, "7")
	b.wantWatermark("500")
	b.settle(item)
	b.wantWatermark("7")
}

// A note is written with the entries that were appended before it.
func TestNotes(t *testing.T) {
	b := newBench(t)
	var written []string
	note := func(what string) func(*store.Batch) {
		return func(*store.Batch) { written = append(written, what) }
	}
	first := b.event("a", "10")
	b.AtCommit(note("behind the first"))
	b.AtNextCommit(note("next"))
	second := b.event("b", "11")
	testkit.OK(t, b.committer.Commit())
	b.settle(second)
	testkit.OK(t, b.committer.Commit())
	b.settle(first)
	testkit.OK(t, b.committer.Commit())
	if want := []string{"next", "behind the first"}; !slices.Equal(written, want) {
		t.Errorf("written: %q, want %q", written, want)
	}
}

// A commit holds the last version of each object.
func TestLastVersions(t *testing.T) {
	b := newBench(t)
	first, second := b.event("a", "10"), b.event("a", "11")
	b.settle(first)
	b.settle(second)
	b.wantWatermark("10")
	rec, found, err := b.indexer.Get("a")
	if err != nil || !found || rec.Version != "11" {
		t.Errorf("Get: %+v, %v, %v; want 11", rec, found, err)
	}
}

// Run commits what is settled, and once more at the end.
func TestRunCommits(t *testing.T) {
	synctest.Test(t, runCommits)
}

func runCommits(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.committer.Run(ctx) }()
	b.settle(b.event("a", "10"))
	second := b.event("a", "11")
	time.Sleep(time.Second)
	pos, err := b.indexer.Meta().Position()
	testkit.OK(t, err)
	if pos.Version != "10" {
		t.Errorf("after a second %q is committed, want 10", pos.Version)
	}
	b.settle(second)
	b.event("a", "12")
	cancel()
	if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	pos, err = b.indexer.Meta().Position()
	if err != nil || pos.Version != "11" {
		t.Errorf("Position: %+v, %v; want 11", pos, err)
	}
}

// commits counts commits: each asks a sink for its position.
type commits struct{ atomic.Int64 }

func (c *commits) Position() []byte {
	c.Add(1)
	return nil
}
func (c *commits) ReadBackIDs() []byte { return nil }

// Run sleeps until something changes.
func TestIdleRun(t *testing.T) {
	none := func(*store.Batch) {}
	for name, change := range map[string]func(b *bench){
		"a place":              func(b *bench) { b.Rank([]*changelog.Entry{{Kind: changelog.OfGap}}, changelog.Mark{}) },
		"an acknowledgement":   func(b *bench) { b.settle(b.event("a", "10")) },
		"a version":            func(b *bench) { b.mark(changelog.Bookmark, "500") },
		"a note":               func(b *bench) { b.AtCommit(none) },
		"a note for the next":  func(b *bench) { b.AtNextCommit(none) },
		"a body to refresh":    func(b *bench) { b.RefreshBodies(nil) },
		"what goes to disk":    func(b *bench) { testkit.OK(b.t, b.Stage(time.Now())) },
		"an event without ack": func(b *bench) { b.Cursor(0).Tried([]changelog.Position{b.event("a", "10")}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const interval = 200 * time.Millisecond
				b := newBench(t)
				var n commits
				b.committer.AddSink("sink", &n)
				done := make(chan error, 1)
				ctx, cancel := context.WithCancel(t.Context())
				go func() { done <- b.committer.Run(ctx) }()
				for range 2 {
					time.Sleep(10 * interval)
					asleep := n.Load()
					if time.Sleep(time.Hour); n.Load() != asleep {
						t.Fatalf("%d commits in an hour in which nothing changed", n.Load()-asleep)
					}
					change(b)
					if time.Sleep(interval + time.Millisecond); n.Load() == asleep {
						t.Fatal("no commit within the interval")
					}
				}
				cancel()
				testkit.OK(t, <-done)
			})
		})
	}
}

// The rule, stated independently: the watermark may be v only if every event up to v is settled and
// one after v, or a mark at or after v, was begun.
func TestWatermarkRule(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 1))
	for round := range 200 {
		b := newBench(t)
		type ev struct {
			version int
			settled bool
		}
		events := map[changelog.Position]*ev{}
		version := 10
		var open []changelog.Position
		for range 60 {
			switch rng.IntN(4) {
			case 0, 1:
				version += rng.IntN(2)
				at := b.event(fmt.Sprint("pod-", len(events)), fmt.Sprint(version))
				events[at] = &ev{version: version}
				open = append(open, at)
			case 2:
				if len(open) > 0 {
					i := rng.IntN(len(open))
					s := open[i]
					open = append(open[:i], open[i+1:]...)
					events[s].settled = true
					b.settle(s)
				}
			case 3:
				if rng.IntN(5) == 0 {
					version++
					b.mark(changelog.Bookmark, resource.Version(fmt.Sprint(version)))
					version++
				}
			}
			testkit.OK(t, b.committer.Commit())
			pos, err := b.indexer.Meta().Position()
			testkit.OK(t, err)
			var watermark int
			_, _ = fmt.Sscan(string(pos.Version), &watermark)
			for s, e := range events {
				if e.version <= watermark && !e.settled {
					t.Fatalf("seed %d round %d: watermark %d passed event %d of version %d, which is not settled", seed, round, watermark, s, e.version)
				}
			}
			if watermark >= version {
				t.Fatalf("seed %d round %d: watermark %d with nothing seen after it", seed, round, watermark)
			}
		}
	}
}

// An informer that hears nothing more has no new watermark, and drops the rest of what the last one
// has passed all the same.
func TestLeftoverTombstones(t *testing.T) {
	b := newBench(t)
	const n = 12_000
	for i := range n {
		at := b.item(fmt.Sprintf("shop/p%06d", i), "1000", true)
		b.mark(changelog.Event, "1000")
		b.settle(at)
	}
	b.mark(changelog.Bookmark, "1001")
	left := func() int {
		testkit.OK(t, b.committer.Commit())
		count := 0
		for i := range n {
			_, found, err := b.indexer.Get(resource.Key(fmt.Sprintf("shop/p%06d", i)))
			testkit.OK(t, err)
			if found {
				count++
			}
		}
		return count
	}
	got := []int{left()}
	b.mark(changelog.Bookmark, "1002")
	for range 2 {
		got = append(got, left())
	}
	if want := []int{n, n - 10_000, 0}; !slices.Equal(got, want) {
		t.Errorf("%d tombstones are left after each commit, want %d", got, want)
	}
}
