package changelog_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kubebridge/bridge/internal/informer/changelog"
	"github.com/kubebridge/bridge/internal/resource"
)

// plain is the rule L2 without anything clever: it keeps the whole stream and reads it from its
// beginning each time.
type plain struct {
	stream []step
	from   resource.Version
}

// step is an entry, or a mark.
type step struct {
	entry   bool
	settled bool
	kind    changelog.MarkKind
	version resource.Version
}

func (p *plain) watermark() (complete resource.Version) {
	complete = p.from
	var front resource.Version
	for i, s := range p.stream {
		if s.entry && !s.settled {
			for _, later := range p.stream[i:] {
				if !later.entry {
					if front != "" && later.version != front {
						return front
					}
					return complete
				}
			}
			return complete
		}
		if s.entry {
			continue
		}
		if front != "" && s.version != front {
			complete, front = front, ""
		}
		switch {
		case s.kind == changelog.ListEnd:
			complete, front = s.version, ""
		case s.version.NotNewer(complete):
		case s.kind == changelog.Bookmark:
			complete, front = s.version, ""
		default:
			front = s.version
		}
	}
	return complete
}

// asIfSettled is the same stream without entries.
func (p *plain) asIfSettled() *plain {
	marks := slices.DeleteFunc(slices.Clone(p.stream), func(s step) bool { return s.entry })
	return &plain{from: p.from, stream: marks}
}

// play does the same to both: script says what comes next, of up to n.
func play(t *testing.T, steps int, next func(n int) int) {
	t.Helper()
	w, p := changelog.NewWatermark("4"), &plain{from: "4"}
	var at []int // of each entry in p.stream
	var open []int
	version, trace := 5, ""
	for range steps {
		switch action := next(7); {
		case action < 2:
			w.Append()
			at = append(at, len(p.stream))
			open = append(open, len(at))
			p.stream = append(p.stream, step{entry: true})
			trace += fmt.Sprintf(" entry %d", len(at))
		case action < 4:
			if len(open) == 0 {
				continue
			}
			i := next(len(open))
			p.stream[at[open[i]-1]].settled = true
			w.Settle(changelog.Rank(open[i]))
			trace += fmt.Sprintf(" settle %d", open[i])
			open = append(open[:i], open[i+1:]...)
		default:
			kind := changelog.Event + changelog.MarkKind(action-4)
			if version += next(4) - 1; kind == changelog.ListEnd && next(2) == 0 {
				version -= 3
			}
			v := resource.Version(fmt.Sprint(version))
			w.Mark(kind, v)
			p.stream = append(p.stream, step{kind: kind, version: v})
			trace += fmt.Sprintf(" mark %d %s", kind, v)
		}
		if got, want := w.Marked(), p.asIfSettled().watermark(); got != want {
			t.Fatalf("marked is %s, want %s:%s", got, want, trace)
		}
		if got, want := w.Version(), p.watermark(); got != want || w.Open() != len(open) {
			t.Fatalf("the watermark is %s, want %s; %d entries are open, want %d:%s", got, want, w.Open(), len(open), trace)
		}
	}
}

func TestWatermark(t *testing.T) {
	t.Run("it is that of the stream read from its beginning, after any steps", func(t *testing.T) {
		for seed := range uint64(3000) {
			rng := rand.New(rand.NewPCG(seed, 0))
			play(t, 60, rng.IntN)
		}
	})
	want := func(t *testing.T, w *changelog.Watermark, version resource.Version) {
		t.Helper()
		if got := w.Version(); got != version {
			t.Errorf("the watermark is %q, want %q", got, version)
		}
	}
	t.Run("a version is passed only when a later one follows", func(t *testing.T) {
		w := changelog.NewWatermark("")
		first, second := w.Append(), w.Append()
		w.Settle(first)
		w.Mark(changelog.Event, "10")
		w.Settle(second)
		want(t, w, "") // another event of version 10 may follow
		w.Mark(changelog.Event, "10")
		want(t, w, "")
		w.Append()
		w.Mark(changelog.Event, "11")
		want(t, w, "10") // and 11 is not settled
	})
	t.Run("items of a list do not move it and its end does", func(t *testing.T) {
		w := changelog.NewWatermark("")
		w.Settle(w.Append())
		w.Settle(w.Append())
		want(t, w, "")
		w.Mark(changelog.ListEnd, "20")
		want(t, w, "20")
		w.Mark(changelog.Event, "18") // a delete from before the list's end
		w.Mark(changelog.Bookmark, "19")
		want(t, w, "20")
		w.Mark(changelog.ListEnd, "7")
		want(t, w, "7")
	})
	t.Run("a bookmark moves it while nothing changes", func(t *testing.T) {
		w := changelog.NewWatermark("10")
		w.Mark(changelog.Bookmark, "500")
		want(t, w, "500")
		entry := w.Append()
		w.Mark(changelog.Event, "501")
		w.Mark(changelog.Bookmark, "502")
		want(t, w, "500")
		w.Settle(entry)
		want(t, w, "502")
	})
	t.Run("the end of a list is reported once it is passed", func(t *testing.T) {
		w := changelog.NewWatermark("100")
		entry := w.Append()
		w.Mark(changelog.ListEnd, "20")
		w.Mark(changelog.Bookmark, "21")
		if w.ListEnded() || w.Version() != "100" {
			t.Errorf("it is passed, to %s", w.Version())
		}
		w.Settle(entry)
		if !w.ListEnded() || w.ListEnded() || w.Version() != "21" {
			t.Errorf("the watermark is %s", w.Version())
		}
	})
	t.Run("settling an entry twice is a mistake", func(t *testing.T) {
		w := changelog.NewWatermark("")
		w.Append()
		entry := w.Append()
		w.Settle(entry)
		defer func() {
			if recover() == nil {
				t.Error("it went unnoticed")
			}
		}()
		w.Settle(entry)
	})
}
