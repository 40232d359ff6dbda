package cli

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// mapping is a range of addresses of this process, and what it maps.
type mapping struct {
	start, end uintptr
	file       string
	writable   bool
	changed    bool // pages of it are not those of the file
}

// freeProgram gives back the pages of the program itself, of which most were needed by the start
// only: 37 MB are resident then, and an idle bridge uses 5 of them. A page that is used again is in
// the kernel's cache of the file. Where this can't be done nothing happens.
func freeProgram() {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	text, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return
	}
	for _, m := range mappings(text) {
		if m.file != program || m.writable || m.changed {
			continue
		}
		// The kernel drops its entries for these pages. They hold what the file holds.
		_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, m.start, m.end-m.start, syscall.MADV_DONTNEED)
	}
}

// mappings reads /proc/<pid>/smaps (proc_pid_smaps(5)).
func mappings(smaps []byte) (found []mapping) {
	lines := bufio.NewScanner(bytes.NewReader(smaps))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 {
			continue
		}
		name, isValue := strings.CutSuffix(fields[0], ":")
		if !isValue {
			var m mapping
			if _, err := fmt.Sscanf(fields[0], "%x-%x", &m.start, &m.end); err != nil || len(fields) < 2 {
				return nil // not what the manual describes: nothing is safe to give back
			}
			m.writable = strings.Contains(fields[1], "w")
			if len(fields) > 5 {
				m.file = strings.Join(fields[5:], " ")
			}
			found = append(found, m)
			continue
		}
		isPrivate := name == "Anonymous" || name == "Swap"
		if isPrivate && len(found) > 0 && len(fields) > 1 && fields[1] != "0" {
			found[len(found)-1].changed = true
		}
	}
	return found
}
