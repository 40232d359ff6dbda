package history

import (
	"testing"

	"github.com/kubebridge/bridge/internal/event"
)

func FuzzRecord(f *testing.F) {
	u := &Unit{Number: 1, Source: "/clusters/prod", Informer: "i", Resource: "pods"}
	f.Add([]byte{storedWhole, 1, 2, 0, 0, 7, 1, 'u', 0, '{', '}'})
	f.Add([]byte{storedDelta, 1, 2, 0, 1, 0, 0, 0, 0, 5, 0, 5, 0})
	f.Fuzz(func(t *testing.T, value []byte) {
		h, err := readHeader(value)
		if err != nil {
			return
		}
		text := h.payload
		if h.kind == storedDelta {
			h.length = min(h.length, 1<<16)
			if text, err = h.apply(nil, []byte("a base of some length")); err != nil {
				return
			}
		}
		var e event.Event
		_ = readText(&e, u, sequence{version: 4}, text, "3") // it must not panic
	})
}
