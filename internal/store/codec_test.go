package store

import (
	"encoding/binary"
	"testing"

	"github.com/kubebridge/bridge/internal/testkit"
)

// TestForgedLength is a block on disk that says that it has gigabytes.
func TestForgedLength(t *testing.T) {
	for _, length := range []uint64{maxBody + 1, 1 << 31, 1<<32 - 1, 1 << 62} {
		stored := append(binary.AppendUvarint([]byte{bodyS2}, length), 0, 'x')
		var err error
		took := testkit.Allocated(func() { _, err = codec{}.decode(stored) })
		if err == nil {
			t.Errorf("a block of %d bytes is read", length)
		}
		if took > 1<<20 {
			t.Errorf("a block that says %d bytes takes %d bytes of memory", length, took)
		}
	}
	body := make([]byte, 1<<20)
	if got, err := (codec{}).decode((codec{}).encode(nil, body)); err != nil || len(got) != len(body) {
		t.Errorf("a body comes back with %d bytes: %v", len(got), err)
	}
}
