package terminal

import (
	"fmt"
	"strings"
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

// TestTableIsPlain has what a terminal would obey in each column.
func TestTableIsPlain(t *testing.T) {
	var out strings.Builder
	table := NewTable(&out)
	fmt.Fprintln(table, "NAME\tREASON")
	fmt.Fprintln(table, "a\x1b[2J\tb\u202ec\u009d")
	if err := table.Flush(); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.Contains(got, `a\x1b[2J`) || !strings.Contains(got, `b\u202ec`) || strings.ContainsAny(got, "\x1b\u202e\u009d") {
		t.Errorf("%q", got)
	}
}
