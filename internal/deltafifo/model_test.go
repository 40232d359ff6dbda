package deltafifo_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kubebridge/bridge/internal/deltafifo"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

var (
	modelRounds = flag.Int("deltafifo.model.rounds", 50, "rounds of the randomised test")
	modelSeed   = flag.Uint64("deltafifo.model.seed", 1, "seed of its first round")
)

// model plays the reflector and the controller of one FIFO.
type model struct {
	t    *testing.T
	dice *rand.Rand
	fifo *deltafifo.FIFO
	max  int

	version int
	added   []string // the backlog, in order, as it must be handed out
	sizes   []int    // of each of them
	listing bool     // a list is being added

	known   map[resource.Key]bool // what the controller knows
	listed  map[resource.Key]bool // of the list that it processes
	inList  bool
	implied []string // deletes that the ReplaceEnd must come with
	synced  bool
}

// Missing gives what is known and not listed. Everything before the end has been processed then.
func (m *model) Missing(version resource.Version, _ resource.Relist) iter.Seq2[resource.Key, error] {
	m.implied = nil
	for _, key := range slices.Sorted(maps.Keys(m.known)) {
		if !m.listed[key] {
			m.implied = append(m.implied, fmt.Sprintf("Deleted %s %s unknown", key, version))
		}
	}
	keys := slices.Sorted(maps.Keys(m.known))
	return func(yield func(resource.Key, error) bool) {
		for _, key := range keys {
			if !m.listed[key] && !yield(key, nil) {
				return
			}
		}
	}
}

// Process checks deltas against what was added.
func (m *model) Process(_ context.Context, deltas deltafifo.Deltas) error {
	if n := len(deltas); n == 0 || n > 256 {
		return fmt.Errorf("a turn of %d deltas", n)
	}
	for i := range deltas {
		d := &deltas[i]
		if d.FinalStateUnknown {
			if len(m.implied) == 0 || line(d) != m.implied[0] {
				return fmt.Errorf("%s, want the deletes %v", line(d), m.implied)
			}
			m.implied = m.implied[1:]
			delete(m.known, d.Key)
			continue
		}
		if len(m.added) == 0 || line(d) != m.added[0] {
			return fmt.Errorf("%s, want %v", line(d), m.added[:min(1, len(m.added))])
		}
		m.added, m.sizes = m.added[1:], m.sizes[1:]
		if err := m.apply(d, i == 0, i == len(deltas)-1, len(deltas)); err != nil {
			return err
		}
	}
	return nil
}

// TryProcess leaves all to Process.
func (m *model) TryProcess(deltafifo.Deltas) (int, error) { return 0, nil }

func (m *model) apply(d *deltafifo.Delta, isFirst, isLast bool, batch int) error {
	switch d.Type {
	case deltafifo.ReplaceBegin:
		if batch != 1 {
			return errors.New("a begin is not alone")
		}
		m.inList, m.listed = true, map[resource.Key]bool{}
		return nil
	case deltafifo.ReplaceEnd:
		if !isLast || len(m.implied) > 0 {
			return fmt.Errorf("an end is not the last, or before %v", m.implied)
		}
		m.inList, m.synced = false, true
		return nil
	case deltafifo.Added, deltafifo.Updated:
		m.known[d.Key] = true
	case deltafifo.Replaced:
		m.known[d.Key], m.listed[d.Key] = true, true
	case deltafifo.Deleted:
		if d.Listed != m.inList {
			return fmt.Errorf("%s: listed is %v", line(d), d.Listed)
		}
		delete(m.known, d.Key)
	default: // of no list
	}
	m.synced = m.synced || !m.inList
	return nil
}

// step adds something that the stream may bring now.
func (m *model) step() {
	m.version++
	version := fmt.Sprint(m.version)
	obj := object(fmt.Sprint("o", m.dice.IntN(12)), version)
	obj.Raw = append(obj.Raw, make([]byte, m.dice.IntN(200))...)
	ctx := context.Background()
	put := func(line string, size int, add func(ctx context.Context) error) {
		waits := 0
		for _, s := range m.sizes {
			waits += s
		}
		if waits > 0 && waits+size > m.max {
			ended, cancel := context.WithCancel(ctx)
			cancel()
			if err := add(ended); !errors.Is(err, context.Canceled) {
				m.t.Fatalf("%s with %d bytes of %d: %v, want that it waits", line, waits, m.max, err)
			}
			for len(m.added) > 0 {
				m.pop()
			}
		}
		testkit.OK(m.t, add(ctx))
		m.added, m.sizes = append(m.added, line), append(m.sizes, size)
	}
	change := func(typ string, add func(context.Context, *resource.Object) error) {
		line := fmt.Sprint(typ, " ", obj.Key(), " ", version)
		put(line, obj.Size(), func(ctx context.Context) error { return add(ctx, obj) })
	}
	mark := func(typ string, add func(context.Context, resource.Version) error) {
		put(typ+" "+version, 0, func(ctx context.Context) error { return add(ctx, resource.Version(version)) })
	}
	switch n := m.dice.IntN(100); {
	case n < 4:
		put("ReplaceBegin", 0, func(ctx context.Context) error {
			return m.fifo.BeginReplace(ctx, resource.Relist{})
		})
		m.listing = true
	case n < 10 && m.listing:
		mark("ReplaceEnd", m.fifo.EndReplace)
		m.listing = false
	case n < 15:
		mark("Bookmark", m.fifo.Bookmark)
	case n < 18:
		put("Sync "+string(obj.Key()), 16<<10, func(ctx context.Context) error {
			return m.fifo.Resync(ctx, obj.Key(), 1, 1, 1)
		})
	case n < 30:
		change("Deleted", m.fifo.Delete)
	case m.listing:
		change("Replaced", m.fifo.Replace)
	case n < 50:
		change("Added", m.fifo.Add)
	default:
		change("Updated", m.fifo.Update)
	}
}

func (m *model) pop() {
	testkit.OK(m.t, m.fifo.Pop(context.Background(), m))
	bytes := 0
	for _, s := range m.sizes {
		bytes += s
	}
	if s := m.fifo.Stats(); s.Deltas != len(m.added) || s.Bytes != bytes {
		m.t.Fatalf("it counts %d deltas of %d bytes, want %d of %d", s.Deltas, s.Bytes, len(m.added), bytes)
	}
	if m.fifo.HasSynced() != m.synced {
		m.t.Fatalf("HasSynced is %v", !m.synced)
	}
}

func TestModel(t *testing.T) {
	for round := range testkit.Rounds(*modelRounds, 10) {
		seed := *modelSeed + uint64(round)
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			dice := rand.New(rand.NewPCG(seed, 0))
			m := &model{
				t: t, dice: dice, max: 4<<10 + dice.IntN(200<<10),
				known: map[resource.Key]bool{}, listed: map[resource.Key]bool{},
			}
			m.fifo = newFIFO(t, deltafifo.Config{Known: m, MaxBytes: m.max})
			for range 3000 {
				if len(m.added) > 0 && dice.IntN(1+dice.IntN(500)) == 0 {
					m.pop()
				} else {
					m.step()
				}
			}
			m.fifo.Close()
			for len(m.added) > 0 {
				m.pop()
			}
			if err := m.fifo.Pop(t.Context(), m); !errors.Is(err, deltafifo.ErrClosed) {
				t.Errorf("at the end: %v", err)
			}
		})
	}
}
