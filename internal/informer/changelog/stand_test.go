package changelog

import (
	"reflect"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/resource"
)

// fullStand has something in each field.
func fullStand() cursorState {
	s := cursorState{
		next: 20, tried: []Position{5, 9}, pending: []Position{3, 5, 9, 17},
		dropped: droppedEntries{
			inFlight: event.LossReport{Events: 2, From: "1", To: "7"}, below: 12,
			at: time.Date(2026, 11, 23, 7, 0, 0, 0, time.UTC),
		},
	}
	s.keepLoss(25, event.LossReport{Events: 4, From: "8", To: "9"}, s.dropped.at)
	s.dropped.keep(&Entry{Kind: OfGap, Relist: &resource.Relist{Reason: resource.ReasonExpired}, Position: 21})
	return s
}

func TestStand(t *testing.T) {
	t.Run("is read as it was written", func(t *testing.T) {
		for name, s := range map[string]cursorState{"full": fullStand(), "new": {}} {
			data, err := s.encode()
			if err != nil {
				t.Fatal(err)
			}
			got, err := decodeCursorState(data)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, s) {
				t.Errorf("%s: read\n%+v\nwritten\n%+v", name, got, s)
			}
		}
	})
	t.Run("what was pending below a drop is lost with the process", func(t *testing.T) {
		s := fullStand()
		if n := s.restart(); n != 2 || len(s.pending) != 1 || len(s.tried) != 0 {
			t.Errorf("%d are lost, pending %v, tried %v", n, s.pending, s.tried)
		}
		if e := s.unread(); e.Position != 25 || e.Loss != (event.LossReport{Events: 6, From: "1", To: "9"}) {
			t.Errorf("it reads %+v at %d", e.Loss, e.Position)
		}
	})
	t.Run("and pending in the place of the last, where nothing else is lost", func(t *testing.T) {
		s := fullStand()
		s.dropped.kept = nil
		want := []Position{9, 17}
		if n := s.restart(); n != 2 || !reflect.DeepEqual(s.pending, want) || s.dropped.find(9) == nil {
			t.Errorf("%d are lost, pending %v, kept %v", n, s.pending, s.dropped.kept)
		}
	})
}

// FuzzStand reads cursors as a damaged disk may have them.
func FuzzStand(f *testing.F) {
	s := fullStand()
	data, err := s.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := decodeCursorState(data)
		if err != nil {
			return
		}
		s.restart()
		again, err := s.encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeCursorState(again); err != nil {
			t.Error(err)
		}
	})
}
