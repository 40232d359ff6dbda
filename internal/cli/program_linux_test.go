package cli

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestFreeProgram(t *testing.T) {
	before := residentFile(t)
	freeProgram()
	after := residentFile(t)
	if after >= before/2 {
		t.Errorf("%d kB of files are resident, %d before", after, before)
	}
	t.Logf("%d kB of files are resident, %d before", after, before)
}

// residentFile is how much of files is resident in this process, in kB.
func residentFile(t *testing.T) (kib int) {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "RssFile:"); ok {
			if _, err := fmt.Sscan(value, &kib); err != nil {
				t.Fatal(err)
			}
			return kib
		}
	}
	t.Fatal("no RssFile in /proc/self/status")
	return 0
}

func TestMappings(t *testing.T) {
	const unchanged = `
Rss:                 120 kB
Private_Dirty:         4 kB
Anonymous:             0 kB
Swap:                  0 kB
VmFlags: rd ex mr mw me
`
	changed := strings.Replace(unchanged, "Anonymous:             0", "Anonymous:             4", 1)
	swapped := strings.Replace(unchanged, "Swap:                  0", "Swap:                  8", 1)
	text := "00400000-01baf000 r-xp 00001000 fe:00 19 /usr/bin/a bridge" + unchanged +
		"01baf000-03474000 r--p 017af000 fe:00 19 /usr/bin/a bridge" + changed +
		"03474000-03563000 rw-p 03074000 fe:00 19 /usr/bin/a bridge" + swapped +
		"c000000000-c000400000 rw-p 00000000 00:00 0 " + unchanged
	want := []mapping{
		{start: 0x400000, end: 0x1baf000, file: "/usr/bin/a bridge"},
		{start: 0x1baf000, end: 0x3474000, file: "/usr/bin/a bridge", changed: true},
		{start: 0x3474000, end: 0x3563000, file: "/usr/bin/a bridge", writable: true, changed: true},
		{start: 0xc000000000, end: 0xc000400000, writable: true},
	}
	if got := mappings([]byte(text)); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if got := mappings([]byte("a map of another form\n")); got != nil {
		t.Errorf("got %+v of another form", got)
	}
}
