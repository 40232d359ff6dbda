package terminal

import (
	"fmt"
	"testing"
)

// Bytes are printed for people.
func TestBytesText(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1<<20 - 1: "1.0 MiB", 1 << 20: "1.0 MiB", 1536 << 20: "1.5 GiB", 1<<63 - 1: "8.0 EiB",
	} {
		if got := Bytes(n); got != want {
			t.Errorf("%s: got %s, want %s", fmt.Sprint(n), got, want)
		}
	}
}
