package record

import (
	"testing"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history/keys"
)

func FuzzRecord(f *testing.F) {
	u := &Unit{Number: 1, Source: "/clusters/prod", Informer: "i", Resource: "pods"}
	f.Add([]byte{Whole, 1, 2, 0, 0, 7, 1, 'u', 0, '{', '}'})
	f.Add([]byte{Delta, 1, 2, 0, 1, 0, 0, 0, 0, 5, 0, 5, 0})
	f.Fuzz(func(t *testing.T, value []byte) {
		h, err := ReadHeader(value)
		if err != nil {
			return
		}
		text := h.Payload
		if h.Kind == Delta {
			h.length = min(h.length, 1<<16)
			if text, err = h.Apply(nil, []byte("a base of some length")); err != nil {
				return
			}
		}
		var e event.Event
		_ = ReadText(&e, u, keys.Sequence{Version: 4}, text, "3") // it must not panic
	})
}

// A version keeps what an update has changed.
func TestChangedKept(t *testing.T) {
	u := &Unit{Number: 1, Source: "/clusters/prod", Informer: "i", Resource: "pods"}
	e := event.Event{
		Source: u.Source, Op: event.Updated,
		ObjectAttributes: event.ObjectAttributes{Resource: "pods", Namespace: "shop", Name: "web", UID: "u", ResourceVersion: "4", Changed: "spec,labels"},
	}
	seq := keys.Sequence{Version: 4}
	d := Derive(u, &e, seq)
	var got event.Event
	got.Op, got.Namespace, got.Name = e.Op, e.Namespace, e.Name
	if err := ReadText(&got, u, seq, AppendText(nil, &d, &e, seq, nil, "3"), "3"); err != nil || got.Changed != e.Changed {
		t.Errorf("changed %q, %v; want %q", got.Changed, err, e.Changed)
	}
}
