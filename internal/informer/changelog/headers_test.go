package changelog

import (
	"testing"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/resource"
)

func TestHeaders(t *testing.T) {
	newCursor := func() *Cursor {
		l := &Log{}
		for at := Position(3); at <= 5; at++ {
			l.memory.entries = append(l.memory.entries, &Entry{
				Change: event.Change{Key: "shop/a", Version: "7"}, DeltaVersion: "8", For: 1, Position: at,
				entryState: entryState{size: 1},
			})
		}
		l.memory.base, l.memory.next = 3, 6
		return &Cursor{log: l, bit: 1, next: 3}
	}
	t.Run("of what can be read", func(t *testing.T) {
		c := newCursor()
		found, next, err := c.Headers()
		if err != nil || len(found) != 3 || next != 6 || found[0].DeltaVersion != "8" || c.next != 3 {
			t.Errorf("%+v, %d, %v", found, next, err)
		}
	})
	t.Run("nothing while it is being dropped", func(t *testing.T) {
		c := newCursor()
		c.log.drop.before = 5
		if found, next, err := c.Headers(); err != nil || len(found) > 0 || next != 3 {
			t.Errorf("%+v, %d, %v", found, next, err)
		}
	})
	t.Run("the version by which an entry is known", func(t *testing.T) {
		for name, tt := range map[string]struct {
			entry Entry
			want  resource.Version
		}{
			"its own":      {Entry{Change: event.Change{Version: "7"}}, "7"},
			"of its delta": {Entry{Change: event.Change{Version: "7"}, DeltaVersion: "8"}, "8"},
			"of an item":   {Entry{Kind: OfQuarantined, Unreadable: &resource.Unreadable{Version: "9"}}, "9"},
			"of a loss":    {Entry{Kind: OfDropped, Loss: event.LossReport{From: "5", To: "6"}}, "6"},
		} {
			if got := tt.entry.Header().DeltaVersion; got != tt.want {
				t.Errorf("%s: %q, want %q", name, got, tt.want)
			}
		}
	})
}
