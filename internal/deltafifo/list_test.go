package deltafifo_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/deltafifo"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

func TestReplace(t *testing.T) {
	t.Run("the deletes that a list implies come before its end", func(t *testing.T) {
		k := &known{missing: []resource.Key{"gone", "lost"}}
		f := newFIFO(t, deltafifo.Config{Known: k})
		ctx := t.Context()
		testkit.OK(t, f.Update(ctx, object("a", "5")))
		list(t, f, "9", "a@7", "b@8")
		testkit.OK(t, f.Update(ctx, object("b", "10")))
		testkit.Want(t, pop(t, f), "Updated a 5") // not with the list's a: a gap event is in between
		testkit.Want(t, pop(t, f), "ReplaceBegin")
		testkit.Want(t, pop(t, f), "Replaced a 7", "Replaced b 8")
		if k.asked != 0 {
			t.Error("the known objects were asked before the items were processed")
		}
		testkit.Want(t, pop(t, f), "Deleted gone 9 unknown", "Deleted lost 9 unknown", "ReplaceEnd 9")
		testkit.Want(t, pop(t, f), "Updated b 10")
	})
	t.Run("many of them come in several calls", func(t *testing.T) {
		k := &known{}
		for i := range 600 {
			k.missing = append(k.missing, resource.Key(fmt.Sprint(i)))
		}
		f := newFIFO(t, deltafifo.Config{Known: k})
		list(t, f, "9")
		testkit.Want(t, pop(t, f), "ReplaceBegin")
		var calls []int
		testkit.OK(t, f.Pop(t.Context(), process(func(d deltafifo.Deltas) error {
			calls = append(calls, len(d))
			for i := range d {
				if isEnd := d[i].Type == deltafifo.ReplaceEnd; isEnd != (len(calls) == 3 && i == len(d)-1) {
					t.Errorf("the end is number %d of call %d", i, len(calls))
				}
			}
			return nil
		})))
		if !slices.Equal(calls, []int{256, 256, 89}) {
			t.Errorf("calls with %d deltas", calls)
		}
	})
	t.Run("a failure to find them is no empty answer", func(t *testing.T) {
		broken := errors.New("disk on fire")
		f := newFIFO(t, deltafifo.Config{Known: &known{missing: []resource.Key{"a"}, err: broken}})
		testkit.OK(t, f.EndReplace(t.Context(), "9"))
		nothing := process(func(deltafifo.Deltas) error { return errors.New("the end was processed") })
		if err := f.Pop(t.Context(), nothing); !errors.Is(err, broken) {
			t.Errorf("Pop: %v, want %v", err, broken)
		}
		if f.HasSynced() {
			t.Error("it has synced")
		}
	})
	t.Run("lists and bookmarks keep their places", func(t *testing.T) {
		f := newFIFO(t, deltafifo.Config{})
		ctx := t.Context()
		testkit.OK(t, f.Delete(ctx, object("foo", "3")))
		testkit.OK(t, f.Bookmark(ctx, "4"))
		list(t, f, "10", "foo@3")
		list(t, f, "20", "foo@3", "foo@4", "bar@15")
		testkit.OK(t, f.Bookmark(ctx, "30"))
		list(t, f, "56")
		testkit.Want(t, popAll(t, f), "Deleted foo 3", "Bookmark 4",
			"ReplaceBegin", "Replaced foo 3", "ReplaceEnd 10",
			"ReplaceBegin", "Replaced foo 3", "Replaced foo 4", "Replaced bar 15", "ReplaceEnd 20",
			"Bookmark 30", "ReplaceBegin", "ReplaceEnd 56")
	})
	t.Run("what a list reports besides its items is marked", func(t *testing.T) {
		f := newFIFO(t, deltafifo.Config{})
		ctx := t.Context()
		report := func() {
			testkit.OK(t, f.Delete(ctx, object("a", "1")))
			testkit.OK(t, f.Unselected(ctx, object("b", "2"), false))
		}
		report()
		testkit.OK(t, f.BeginReplace(ctx, resource.Relist{}))
		report()
		testkit.OK(t, f.EndReplace(ctx, "9"))
		report()
		testkit.OK(t, f.BeginReplace(ctx, resource.Relist{}))
		// gives up the list before, and begins none
		testkit.OK(t, f.BeginReplace(ctx, resource.Relist{Kind: resource.RelistSelection}))
		report()
		var listed []bool
		for f.Stats().Deltas > 0 {
			testkit.OK(t, f.Pop(ctx, process(func(d deltafifo.Deltas) error {
				for i := range d {
					if d[i].Object != nil {
						listed = append(listed, d[i].Listed)
					}
				}
				return nil
			})))
		}
		if !slices.Equal(listed, []bool{false, false, true, true, false, false, false, false}) {
			t.Errorf("listed: %v", listed)
		}
	})
	t.Run("a list with an item that nobody can identify says so at its end", func(t *testing.T) {
		f := newFIFO(t, deltafifo.Config{})
		incomplete := func(of ...resource.Identity) (isIncomplete bool) {
			t.Helper()
			testkit.OK(t, f.BeginReplace(t.Context(), resource.Relist{Reason: resource.ReasonExpired}))
			for _, item := range of {
				testkit.OK(t, f.Skip(t.Context(), item))
			}
			testkit.OK(t, f.EndReplace(t.Context(), "9"))
			for f.Stats().Deltas > 0 {
				testkit.OK(t, f.Pop(t.Context(), process(func(deltas deltafifo.Deltas) error {
					for _, d := range deltas {
						if d.Type == deltafifo.ReplaceBegin && d.Relist.Incomplete {
							t.Error("its begin says so before it is known")
						}
						isIncomplete = d.Type == deltafifo.ReplaceEnd && d.Relist.Incomplete
					}
					return nil
				})))
			}
			return isIncomplete
		}
		if incomplete(resource.Identity{Key: "shop/a"}) {
			t.Error("of a known key: everything else can be gone")
		}
		if !incomplete(resource.Identity{}, resource.Identity{Key: "shop/a"}) {
			t.Error("of an unknown key: it does not say so")
		}
		if incomplete() {
			t.Error("the next list still says so")
		}
	})
}

func TestTurns(t *testing.T) {
	// many are names of objects.
	many := func(prefix string, n int) (names []string) {
		for i := range n {
			names = append(names, fmt.Sprint(prefix, i))
		}
		return names
	}
	tests := []struct {
		name    string
		before  []string // changes
		list    []string
		changes []string
		want    string
	}{
		{"changes before a list are apart", []string{"a", "b"}, []string{"a"}, nil, "2 begin 1 end"},
		{"a list alone", nil, []string{"a", "b", "c"}, nil, "begin 3 end"},
		{"changes after a list are apart", nil, []string{"a", "b"}, []string{"c", "d"}, "begin 2 end 2"},
		{"changes of one object may be together", nil, []string{"a"}, []string{"a", "a"}, "begin 1 end 2"},
		{
			"a changed object does not join its listed self", nil,
			[]string{"a", "b"},
			[]string{"b", "c"},
			"begin 2 end 2",
		},
		{"a list larger than a turn", nil, many("a", 300), nil, "begin 256 44 end"},
		{"more changes than a turn", nil, nil, many("a", 600), "begin end 256 256 88"},
		{"both", nil, many("a", 256), many("b", 257), "begin 256 end 256 1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFIFO(t, deltafifo.Config{})
			for _, name := range tt.before {
				testkit.OK(t, f.Update(t.Context(), object(name, "5")))
			}
			list(t, f, "10", tt.list...)
			for _, name := range tt.changes {
				testkit.OK(t, f.Update(t.Context(), object(name, "20")))
			}
			var turns []string
			for f.Stats().Deltas > 0 {
				switch got := pop(t, f); got[0] {
				case "ReplaceBegin":
					turns = append(turns, "begin")
				case "ReplaceEnd 10":
					turns = append(turns, "end")
				default:
					turns = append(turns, strconv.Itoa(len(got)))
				}
			}
			if got := strings.Join(turns, " "); got != tt.want {
				t.Errorf("turns %q, want %q", got, tt.want)
			}
		})
	}
}

func TestHasSynced(t *testing.T) {
	tests := []struct {
		name string
		cfg  deltafifo.Config
		fill func(f *deltafifo.FIFO)
		pops int // until it has synced; -1 when it has not after all
	}{
		{"nothing has come", deltafifo.Config{}, func(*deltafifo.FIFO) {}, -1},
		{"it is resumed", deltafifo.Config{Resumed: true}, func(*deltafifo.FIFO) {}, 0},
		{"it began with a change", deltafifo.Config{}, func(f *deltafifo.FIFO) {
			testkit.OK(t, f.Add(t.Context(), object("a", "1")))
		}, 1},
		{"it began with a bookmark", deltafifo.Config{}, func(f *deltafifo.FIFO) {
			testkit.OK(t, f.Bookmark(t.Context(), "7"))
		}, 1},
		{"an empty list", deltafifo.Config{}, func(f *deltafifo.FIFO) { list(t, f, "5") }, 2},
		{"a list", deltafifo.Config{}, func(f *deltafifo.FIFO) { list(t, f, "5", "a@1", "a@2") }, 3},
		{
			"a list that implies deletes",
			deltafifo.Config{Known: &known{missing: []resource.Key{"bar"}}},
			func(f *deltafifo.FIFO) { list(t, f, "5", "a@1") }, 3,
		},
		{"another list after the first", deltafifo.Config{}, func(f *deltafifo.FIFO) {
			list(t, f, "5", "a@1")
			list(t, f, "6", "b@2")
		}, 3},
		{"a list that broke off", deltafifo.Config{}, func(f *deltafifo.FIFO) {
			testkit.OK(t, f.BeginReplace(t.Context(), resource.Relist{}))
			testkit.OK(t, f.Replace(t.Context(), object("a", "1")))
			testkit.OK(t, f.Delete(t.Context(), object("b", "2")))
		}, -1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFIFO(t, tt.cfg)
			tt.fill(f)
			for pops := 0; ; pops++ {
				if want := tt.pops >= 0 && pops >= tt.pops; f.HasSynced() != want {
					t.Errorf("HasSynced is %v after %d turns", !want, pops)
				}
				if f.Stats().Deltas == 0 {
					return
				}
				testkit.OK(t, f.Pop(t.Context(), process(func(deltafifo.Deltas) error {
					if f.HasSynced() && pops < tt.pops {
						t.Errorf("it has synced while turn %d is being processed", pops+1)
					}
					return nil
				})))
			}
		})
	}
}
