package informer_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/testkit"
)

// table is a table of the current state: of each name the event with the greatest sequence. A tie
// between an object and a delete is an error.
func table(t *testing.T, events []event.Event) map[string]string {
	t.Helper()
	newest := map[string]*event.Event{}
	for i := range events {
		e := &events[i]
		if e.Name == "" {
			continue
		}
		was := newest[e.Name]
		if was != nil && was.Sequence == e.Sequence && (was.Op == event.Deleted) != (e.Op == event.Deleted) {
			t.Errorf("%s and %s have the sequence %s", was.ID, e.ID, e.Sequence)
		}
		if was == nil || e.Sequence >= was.Sequence {
			newest[e.Name] = e
		}
	}
	state := map[string]string{}
	for name, e := range newest {
		if e.Op != event.Deleted {
			state[name] = e.UID + "@" + e.ResourceVersion
		}
	}
	return state
}

// TestInferredDelete has a bridge die after an event was stored and before it was settled. What it
// published was forgotten by the API server, and its object is gone.
func TestInferredDelete(t *testing.T) {
	later := resource.Relist{Reason: resource.ReasonExpired, From: "48", To: "100"}
	start := func(t *testing.T, db *store.DB, hold bool) (*rig, *outbox) {
		out := newOutbox()
		out.hold = hold
		return newRig(t, db, []*outbox{out}, func(c *informer.StagesConfig) { c.Unclean = hold }), out
	}
	for name, test := range map[string]struct {
		lost func(r *rig) // sent, and not settled
		list []string     // items
		want []string     // deletes, by id and sequence
	}{
		"of a version that was stored": {
			func(r *rig) { r.update("a", "50") }, nil,
			[]string{"ua/deleted 00000000.00000000000000000100.deleted"},
		},
		"of an object and the next of its name, which was stored": {
			func(r *rig) { r.update("a", "50"); r.delete("a", "55"); r.add("a#2", "60") }, nil,
			[]string{
				"ua/deleted 00000000.00000000000000000059.deleted",
				"ua2/deleted 00000000.00000000000000000100.deleted",
			},
		},
		"of an object whose name another has, which was stored": {
			func(r *rig) { r.update("a", "50"); r.delete("a", "55"); r.add("a#2", "60"); r.update("a#2", "62") },
			[]string{"a#2@62"},
			[]string{"ua/deleted 00000000.00000000000000000059.deleted"},
		},
		"of an object whose name another has": {
			func(r *rig) { r.update("a", "50") },
			[]string{"a#2@70"},
			[]string{"ua/deleted 00000000.00000000000000000069.deleted"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := memory(t)
				r, out := start(t, db, false)
				r.list(initial, "48", "a@48")
				out.wait(t, 2)
				r.stop()
				events := out.raw

				r, out = start(t, db, true)
				test.lost(r)
				synctest.Wait()
				r.crash()
				events = append(events, out.raw...)

				var deletes [][]string
				for version := 100; version <= 300; version += 100 { // two crashes during the list
					r, out = start(t, db, version < 300)
					testkit.OK(t, r.fifo.BeginReplace(t.Context(), later))
					synctest.Wait()
					settle(out.held)
					for _, item := range test.list {
						name, v, _ := strings.Cut(item, "@")
						r.replace(name, v)
					}
					testkit.OK(t, r.fifo.EndReplace(t.Context(), resource.Version(strconv.Itoa(version))))
					synctest.Wait()
					var lines []string
					for i := range out.raw {
						if e := &out.raw[i]; e.Op == event.Deleted {
							lines = append(lines, e.ID+" "+e.Sequence)
						}
					}
					deletes, events = append(deletes, lines), append(events, out.raw...)
					if version < 300 {
						r.crash()
					} else {
						r.stop()
					}
				}
				for i, lines := range deletes {
					if !slices.Equal(lines, test.want) {
						t.Errorf("list %d: deletes %q, want %q", i, lines, test.want)
					}
				}
				want := map[string]string{}
				for _, item := range test.list {
					name, v, _ := strings.Cut(item, "@")
					name, again, _ := strings.Cut(name, "#")
					want[name] = "u" + name + again + "@" + v
				}
				if got := table(t, events); !maps.Equal(got, want) {
					t.Errorf("the table has %v, want %v", got, want)
				}
			})
		})
	}
}

// cluster is an API server: its objects, and the history that it can still report.
type cluster struct {
	version   int
	lives     int // of names; uids are not reused
	objects   map[string]string
	history   []happened
	compacted int
}

type happened struct {
	op, object string // "name#life"
	version    int
}

func (c *cluster) change(rng *rand.Rand) {
	name := string(rune('a' + rng.IntN(3)))
	c.version += 1 + rng.IntN(2)
	life, exists := c.objects[name]
	op := "update"
	switch {
	case !exists:
		op, c.lives = "add", c.lives+1
		life = strconv.Itoa(c.lives)
	case rng.IntN(3) == 0:
		op = "delete"
	}
	life, _, _ = strings.Cut(life, "@")
	c.objects[name] = life + "@" + strconv.Itoa(c.version)
	if op == "delete" {
		delete(c.objects, name)
	}
	c.history = append(c.history, happened{op, name + "#" + life, c.version})
}

func (c *cluster) items() (items []string) {
	for _, name := range slices.Sorted(maps.Keys(c.objects)) {
		items = append(items, name+"#"+c.objects[name])
	}
	return items
}

// back is a copy as a backup has it.
func (c *cluster) back() *cluster {
	return &cluster{version: c.version, lives: c.lives, objects: maps.Clone(c.objects), compacted: c.version}
}

// reader is a bridge that follows a cluster, and dies now and then.
type reader struct {
	*rig
	out     *outbox
	events  []event.Event
	read    int  // of the cluster's history
	rewound bool // and not listed since
	crashed bool
}

func (b *reader) start(t *testing.T, db *store.DB, c *cluster) {
	b.out = newOutbox()
	b.out.hold = true
	unclean := b.crashed
	b.rig = newRig(t, db, []*outbox{b.out}, func(c *informer.StagesConfig) { c.Unclean = unclean })
	position, err := b.indexer.Meta().Position()
	testkit.OK(t, err)
	diverged, err := b.indexer.Meta().Diverged()
	testkit.OK(t, err)
	at, _ := strconv.Atoi(string(position.Version))
	switch {
	case diverged || b.rewound:
		b.relist(c, resource.Relist{Kind: resource.RelistRewound, Reason: resource.ReasonRewound})
	case at == 0:
		b.relist(c, initial)
	case at < c.compacted:
		b.relist(c, resource.Relist{Reason: resource.ReasonExpired, From: position.Version})
	default:
		b.read = slices.IndexFunc(c.history, func(h happened) bool { return h.version > at })
		if b.read < 0 {
			b.read = len(c.history)
		}
	}
}

// settled reports whether a list is settled in this epoch. Before that nobody can distinguish a
// server whose history goes back from one that is met again.
func (b *reader) settled(t *testing.T) bool {
	position, err := b.indexer.Meta().Position()
	testkit.OK(t, err)
	diverged, err := b.indexer.Meta().Diverged()
	testkit.OK(t, err)
	return position.Version != "" && !diverged && !b.rewound
}

func (b *reader) relist(c *cluster, why resource.Relist) {
	version := resource.Version(strconv.Itoa(c.version))
	why.To = version
	b.list(why, version, c.items()...)
	b.read, b.rewound = len(c.history), false
	b.answer(b.held()) // a gap waits for its answer
}

// watch hands on what has happened since.
func (b *reader) watch(c *cluster) {
	for ; b.read < len(c.history); b.read++ {
		h := c.history[b.read]
		map[string]func(string, string){"add": b.add, "update": b.update, "delete": b.delete}[h.op](h.object, strconv.Itoa(h.version))
	}
}

// held is how many events the sink has not answered.
func (b *reader) held() int {
	synctest.Wait()
	return len(b.out.held)
}

// answer settles the first n of what the sink has, and those about the informer that come behind.
func (b *reader) answer(n int) {
	for {
		synctest.Wait()
		b.out.mu.Lock()
		n = min(n, len(b.out.held))
		if n == 0 && len(b.out.held) == 1 && b.out.held[0].Message.Event.AboutInformer() {
			n = 1
		}
		items := b.out.held[:n]
		b.out.held = b.out.held[n:]
		b.out.mu.Unlock()
		if n == 0 {
			return
		}
		settle(items)
		n = 0
	}
}

func (b *reader) die() {
	synctest.Wait()
	b.crash()
	b.crashed = true
	b.events = append(b.events, b.out.raw...)
}

// TestTable compares a table that is sorted by sequence with the API server, after crashes,
// compactions and restored backups in any order.
func TestTable(t *testing.T) {
	for seed := range uint64(100) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { checkTable(t, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func checkTable(t *testing.T, rng *rand.Rand) {
	db := memory(t)
	c := &cluster{version: 100, objects: map[string]string{}}
	backup := c.back()
	b := &reader{}
	b.start(t, db, c)
	for range 40 {
		switch rng.IntN(12) {
		case 0:
			b.die()
			for range rng.IntN(4) {
				c.change(rng)
			}
			if rng.IntN(2) == 0 {
				c.compacted = c.version
			}
			b.start(t, db, c)
		case 1:
			c.change(rng)
			c.change(rng)
			b.relist(c, resource.Relist{Reason: resource.ReasonExpired, From: "1"})
		case 2:
			testkit.OK(t, b.committer.Commit())
		case 3, 4:
			b.answer(rng.IntN(1 + b.held()))
		case 5:
			if rng.IntN(3) > 0 || !b.settled(t) {
				break
			}
			lives := c.lives
			if rng.IntN(2) == 0 {
				b.die()
				c = backup
				b.rewound = true
				b.start(t, db, c)
			} else {
				c = backup
				b.relist(c, resource.Relist{Kind: resource.RelistRewound, Reason: resource.ReasonRewound})
			}
			c.lives = lives
			backup = c.back()
		case 6:
			backup = c.back()
		default:
			c.change(rng)
			b.watch(c)
		}
	}
	b.watch(c)
	for range 3 {
		b.answer(b.held())
	}
	synctest.Wait()
	b.out.release()
	b.stop()
	b.events = append(b.events, b.out.raw...)

	want := map[string]string{}
	for name, object := range c.objects {
		life, version, _ := strings.Cut(object, "@")
		want[name] = "u" + name + life + "@" + version
	}
	if got := table(t, b.events); !maps.Equal(got, want) {
		t.Errorf("the table has %v, want %v", got, want)
		for i := range b.events {
			t.Log(describe(&b.events[i]), b.events[i].Sequence, b.events[i].ResourceVersion)
		}
	}
	defer func() {
		for i := range b.events {
			if t.Failed() {
				t.Log(describe(&b.events[i]), b.events[i].Sequence, b.events[i].ResourceVersion)
			}
		}
	}()
	inferred := map[string]string{}
	for i := range b.events {
		e := &b.events[i]
		if e.Op != event.Deleted || !e.Inferred {
			continue
		}
		content := e.Sequence + " " + e.ResourceVersion
		if was, again := inferred[e.ID]; again && was != content {
			t.Errorf("%s has the content %q, and then %q", e.ID, was, content)
		}
		inferred[e.ID] = content
	}
}
