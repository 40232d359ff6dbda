package deltafifo_test

import (
	"bytes"
	"testing"

	"github.com/kubebridge/bridge/internal/deltafifo"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// Who watches the processors learns of a large object before it is worked on.
func TestLargeObjectIsNoted(t *testing.T) {
	received := func() bool {
		select {
		case <-resource.LargeSeen():
			return true
		default:
			return false
		}
	}
	received() // of another test
	f := newFIFO(t, deltafifo.Config{})
	testkit.OK(t, f.Add(t.Context(), object("a", "1")))
	if received() {
		t.Error("a small object was noted")
	}
	o := object("b", "2")
	o.Raw = bytes.Repeat([]byte{' '}, resource.LargeBytes)
	testkit.OK(t, f.Update(t.Context(), o))
	if !received() {
		t.Error("a large object was not noted")
	}
}
