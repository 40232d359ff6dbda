package changelog_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer/changelog"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/store/statedb"
	"github.com/kubebridge/bridge/internal/testkit"
)

var pods = testkit.Pods

// rig is a log of two listeners, which is its own committer.
type rig struct {
	*changelog.Log
	t       *testing.T
	db      *store.DB
	name    string
	indexer *store.Indexer
	fails   int // which of the next commits does; 0 for none
}

func openDB(t *testing.T) *store.DB {
	t.Helper()
	db, err := store.Open(statedb.Options{})
	testkit.OK(t, err)
	t.Cleanup(func() { testkit.OK(t, db.Close()) })
	return db
}

// open opens the log of a name, as it is on disk.
func open(t *testing.T, db *store.DB, name string, options ...func(*changelog.Config)) *rig {
	t.Helper()
	r := &rig{t: t, db: db, name: name}
	var err error
	r.indexer, err = db.Indexer(store.IndexerConfig{Name: name, Type: pods})
	testkit.OK(t, err)
	cfg := changelog.Config{
		Indexer: r.indexer, Type: pods, Committer: r, Listeners: []string{"one", "two"},
		MemoryBytes: 1, Log: slog.New(slog.DiscardHandler),
	}
	for _, option := range options {
		option(&cfg)
	}
	r.Log, err = changelog.Open(cfg)
	testkit.OK(t, err)
	return r
}

func (r *rig) Changed() {}
func (r *rig) Wake()    {}

func (r *rig) Commit() (err error) {
	checkpoint := r.Checkpoint()
	if r.fails--; r.fails == 0 {
		err = errors.New("it fails")
	} else {
		batch := r.db.NewBatch()
		checkpoint.Write(batch)
		err = batch.Commit()
	}
	r.Committed(checkpoint, err)
	return err
}

// entry is a change of an object.
func (r *rig) entry(name string, version int, listeners changelog.Listeners) *changelog.Entry {
	v, key := resource.Version(fmt.Sprint(version)), resource.Key(name)
	raw := fmt.Sprintf(`{"kind":"Pod","metadata":{"name":%q,"uid":"u","resourceVersion":%q}}`, name, v)
	obj, err := resource.Parse([]byte(raw), resource.ParseOptions{Type: pods})
	testkit.OK(r.t, err)
	return &changelog.Entry{
		Change: event.Change{
			Op: event.Updated, Key: key, Object: obj, UID: "u", Version: v, Observed: time.Now(),
		},
		For: listeners,
	}
}

// read reads what there is.
func (r *rig) read(cursor, n int) []*changelog.Entry {
	entries, err := r.Cursor(cursor).Read(n)
	testkit.OK(r.t, err)
	return entries
}

// scene is a log, and what has become of each of its changes.
type scene struct {
	*rig
	changes []*played
	held    []*played             // placed, and not appended
	losses  [2][]*changelog.Entry // that were read, and not acked
	drops   int                   // losses that were read
	found   [2][]string           // after the last crash
	options []func(*changelog.Config)
	trace   []string
}

type played struct {
	entry    *changelog.Entry
	name     string
	version  int
	needs    changelog.Listeners // those that have not acked it
	read     [2]bool
	reported [2]bool // as lost, and never read
}

const playedChanges = 3

var start = time.Now()

func (p *scene) step(rng *rand.Rand) {
	cursor := rng.IntN(2)
	bit := changelog.Listeners(1) << cursor
	switch action := rng.IntN(10); action {
	case 0, 1:
		if len(p.changes) == playedChanges {
			return
		}
		c := &played{name: string(rune('a' + rng.IntN(2))), version: 10 + len(p.changes)}
		c.needs = changelog.Listeners(rng.IntN(4))
		c.entry = p.entry(c.name, c.version, c.needs)
		c.entry.Observed = start.Add(time.Duration(len(p.changes)))
		p.Rank([]*changelog.Entry{c.entry}, changelog.Mark{Kind: changelog.Event, Version: c.entry.Version})
		if p.changes = append(p.changes, c); c.needs != 0 {
			p.held = append(p.held, c)
		}
		p.say("place %s/%d for %b", c.name, c.version, c.needs)
	case 2, 3:
		if len(p.held) == 0 {
			return
		}
		c := p.held[rng.IntN(len(p.held))]
		first := slices.IndexFunc(p.held, func(h *played) bool { return h.name == c.name })
		c = p.held[first] // changes of one object are in order
		p.held = slices.Delete(p.held, first, first+1)
		p.Append([]*changelog.Entry{c.entry})
		p.say("append %s/%d", c.name, c.version)
	case 4:
		for _, e := range p.read(cursor, 1+rng.IntN(2)) {
			if p.inOrder(cursor, e); e.Kind == changelog.OfDropped {
				p.lost(cursor, e)
				continue
			}
			c := p.changes[slices.IndexFunc(p.changes, func(c *played) bool {
				return fmt.Sprint(c.version) == string(e.Version)
			})]
			if c.read[cursor] || c.needs&bit == 0 {
				p.t.Fatalf("%d reads %s/%d, which it has read, or which is not for it: %s", cursor, c.name, c.version, p.trace)
			}
			c.read[cursor] = true
			p.say("%d reads %d", cursor, c.version)
		}
	case 5:
		if rng.IntN(4) == 0 {
			p.ackLosses(cursor)
		}
		p.ack(cursor, rng.IntN(playedChanges))
	case 6:
		by := rng.IntN(playedChanges)
		testkit.OK(p.t, p.Stage(start.Add(time.Duration(by))))
		p.say("stage by %d", by)
	case 7:
		p.fails = rng.IntN(3)
		p.say("commit, fails: %d", p.fails)
		_ = p.Commit()
	case 8:
		if p.options == nil {
			return
		}
		p.fails = rng.IntN(4)
		p.say("drop, fails: %d", p.fails)
		_ = p.DropOldest()
	default:
		p.fails = rng.IntN(3)
		by := rng.IntN(playedChanges)
		p.say("spool by %d, fails: %d", by, p.fails)
		_ = p.Spool(context.Background(), start.Add(time.Duration(by)))
	}
}

// inOrder sees that whatever is before an entry was read, or lost and reported.
func (p *scene) inOrder(cursor int, e *changelog.Entry) {
	p.t.Helper()
	p.say("%d reads %d: %s%+v", cursor, e.Position, e.Version, e.Loss)
	for _, c := range p.changes {
		isBefore := !slices.Contains(p.held, c) && c.entry.Position < e.Position
		if !isBefore || c.read[cursor] || c.needs&(1<<cursor) == 0 || p.isReported(cursor, c) ||
			covers(e, c) {
			continue
		}
		p.t.Fatalf("%d is to read %d before %s/%d: %s", cursor, e.Position, c.name, c.version, p.trace)
	}
}

// lost notes a loss that was read.
func (p *scene) lost(cursor int, e *changelog.Entry) {
	p.drops++
	p.losses[cursor] = append(p.losses[cursor], e)
	for _, c := range p.changes {
		c.reported[cursor] = c.reported[cursor] || !slices.Contains(p.held, c) && covers(e, c) && !c.read[cursor]
	}
}

// isReported reports whether a change lies in a loss that was read.
func (p *scene) isReported(cursor int, c *played) bool {
	return slices.ContainsFunc(p.losses[cursor], func(e *changelog.Entry) bool { return covers(e, c) })
}

// covers reports whether an entry is about a loss that has a change.
func covers(e *changelog.Entry, c *played) bool {
	return e.Kind == changelog.OfDropped && e.Position >= c.entry.Position &&
		!e.Loss.From.Newer(c.entryVersion()) && !c.entryVersion().Newer(e.Loss.To)
}

// ackLosses acks what was read about losses.
func (p *scene) ackLosses(cursor int) {
	for _, e := range p.losses[cursor] {
		p.Cursor(cursor).Ack([]changelog.Ack{{At: e.Position}})
		p.say("%d acks the loss at %d", cursor, e.Position)
		for _, c := range p.changes {
			if !slices.Contains(p.held, c) && covers(e, c) && !c.read[cursor] {
				c.needs &^= 1 << cursor
			}
		}
	}
	p.losses[cursor] = nil
}

func (p *scene) say(format string, args ...any) {
	p.trace = append(p.trace, fmt.Sprintf(format, args...)+";")
}

func (p *scene) ack(cursor, n int) {
	bit := changelog.Listeners(1) << cursor
	if n >= len(p.changes) || !p.changes[n].read[cursor] || p.changes[n].needs&bit == 0 {
		return
	}
	c := p.changes[n]
	p.Cursor(cursor).Ack([]changelog.Ack{{At: c.entry.Position}})
	c.needs &^= bit
	p.say("%d acks %d", cursor, c.version)
}

// crash compares what a restart would find with what has to come: each change that a listener has
// not acked is read again, or decided again, since neither the watermark nor the state of its
// object covers it.
func (p *scene) crash() {
	p.t.Helper()
	after := open(p.t, p.db, p.name, p.options...)
	var found [2][]string
	var losses [2][]*changelog.Entry
	note := func(cursor int, e *changelog.Entry) {
		if e.Kind == changelog.OfDropped {
			losses[cursor] = append(losses[cursor], e)
		}
		found[cursor] = append(found[cursor], string(e.Version))
	}
	for cursor := range 2 {
		left, err := after.Cursor(cursor).Unacked()
		testkit.OK(p.t, err)
		for more := left; len(more) > 0; more = after.read(cursor, 10) {
			for _, e := range more {
				note(cursor, e)
			}
		}
		for more := after.read(cursor, 10); len(more) > 0; more = after.read(cursor, 10) {
			for _, e := range more {
				note(cursor, e)
			}
		}
	}
	p.found = found
	watermark := after.Status().Watermark
	for _, c := range p.changes {
		record, known, err := after.indexer.Get(resource.Key(c.name))
		testkit.OK(p.t, err)
		if c.entryVersion().NotNewer(watermark) && (!known || c.entryVersion().Newer(record.Version)) {
			p.t.Fatalf("the watermark is %s, and the state %+v: %s", watermark, record, p.trace)
		}
		covered := known && c.entryVersion().NotNewer(record.Version) || c.entryVersion().NotNewer(watermark)
		for cursor := range 2 {
			if c.reported[cursor] && slices.Contains(found[cursor], fmt.Sprint(c.version)) {
				p.t.Fatalf("%s/%d comes, and was reported as lost: %s", c.name, c.version, p.trace)
			}
			lost := covered && !slices.Contains(found[cursor], fmt.Sprint(c.version)) &&
				!slices.ContainsFunc(losses[cursor], func(e *changelog.Entry) bool { return covers(e, c) })
			if c.needs&(1<<cursor) != 0 && lost {
				p.t.Fatalf("%s/%d is lost for %d, watermark %s: %s", c.name, c.version, cursor, watermark, p.trace)
			}
		}
	}
}

func (c *played) entryVersion() resource.Version { return resource.Version(fmt.Sprint(c.version)) }

// end acks everything.
func (p *scene) end() {
	p.fails = 0
	testkit.OK(p.t, p.Commit()) // a listener does not read while a drop is not durable
	for len(p.held) > 0 {
		p.Append([]*changelog.Entry{p.held[0].entry})
		p.held = p.held[1:]
	}
	for cursor := range 2 {
		for more := p.read(cursor, 10); len(more) > 0; more = p.read(cursor, 10) {
			for _, e := range more {
				if p.inOrder(cursor, e); e.Kind == changelog.OfDropped {
					p.lost(cursor, e)
				}
				for _, c := range p.changes {
					c.read[cursor] = c.read[cursor] || c.entryVersion() == e.Version
				}
			}
		}
		p.ackLosses(cursor)
		for n := range p.changes {
			p.ack(cursor, n)
		}
	}
	for _, c := range p.changes {
		if c.needs != 0 {
			p.t.Fatalf("%s/%d never comes for %b: %s", c.name, c.version, c.needs, p.trace)
		}
	}
	p.Rank(nil, changelog.Mark{Kind: changelog.Bookmark, Version: "99"})
	testkit.OK(p.t, p.Commit())
	p.crash()
	for cursor := range 2 {
		if len(p.found[cursor]) > 0 {
			p.t.Fatalf("%d reads %q again, and had acked all: %s", cursor, p.found[cursor], p.trace)
		}
	}
	first, next, err := p.indexer.Log().Bounds()
	testkit.OK(p.t, err)
	s := p.Status()
	if first != next || s.DiskBytes != 0 || s.Unsettled != 0 || s.Entries != 0 || s.Watermark != "99" {
		p.t.Fatalf("%+v, on disk from %d to %d: %s", s, first, next, p.trace)
	}
}

func TestLog(t *testing.T) {
	t.Run("nothing is lost, whenever it crashes", func(t *testing.T) {
		db := openDB(t)
		for seed := range uint64(testkit.Rounds(2000, 200)) {
			rng := rand.New(rand.NewPCG(seed, 0))
			p := &scene{rig: open(t, db, fmt.Sprint("play-", seed))}
			for range 30 {
				p.step(rng)
				if rng.IntN(4) == 0 {
					p.crash()
				}
			}
			p.crash()
			p.end()
		}
	})
	t.Run("a drop loses only what it reports, whenever it crashes", func(t *testing.T) {
		db, drops := openDB(t), 0
		dropping := func(c *changelog.Config) { c.DropOldest, c.SpoolBytes = true, 300 }
		rounds := testkit.Rounds(1000, 100)
		for seed := range uint64(rounds) {
			rng := rand.New(rand.NewPCG(seed, 0))
			name, options := fmt.Sprint("drop-", seed), []func(*changelog.Config){dropping}
			p := &scene{rig: open(t, db, name, dropping), options: options}
			for range 40 {
				p.step(rng)
				if rng.IntN(4) == 0 {
					p.crash()
				}
			}
			p.crash()
			p.end()
			drops += p.drops
		}
		if drops < rounds/5 {
			t.Errorf("%d losses were read: the test tests nothing", drops)
		}
	})
	t.Run("on disk is a prefix, though a younger entry is before an older one", func(t *testing.T) {
		r := open(t, openDB(t), "prefix")
		old, young := r.entry("a", 10, 1), r.entry("b", 11, 1)
		young.Observed = old.Observed.Add(time.Second)
		r.Rank([]*changelog.Entry{old, young}, changelog.Mark{})
		r.Append([]*changelog.Entry{young, old})
		testkit.OK(t, r.Spool(t.Context(), old.Observed))
		if first, next, err := r.indexer.Log().Bounds(); err != nil || first != 0 || next != 2 {
			t.Errorf("on disk is %d to %d, %v; want both", first, next, err)
		}
	})
	t.Run("what is acked twice is a mistake", func(t *testing.T) {
		r := open(t, openDB(t), "twice")
		e := r.entry("a", 10, 1)
		r.Rank([]*changelog.Entry{e}, changelog.Mark{})
		r.Append([]*changelog.Entry{e})
		r.read(0, 1)
		acks := []changelog.Ack{{At: e.Position}}
		r.Cursor(0).Ack(acks)
		defer func() {
			if recover() == nil {
				t.Error("it went unnoticed")
			}
		}()
		r.Cursor(0).Ack(acks)
	})
}
