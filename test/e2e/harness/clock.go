package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// BuildJumping builds the program of the directory dir whose wall clock differs from the machine's
// by the seconds that the file $WALL_JUMP has, from one call to the next, as a clock that is set
// does. Its monotonic clock runs on. All packages are compiled again the first time: their time.Now
// is another one.
func BuildJumping(ctx context.Context, dir, out string) error {
	goroot, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return err
	}
	file := filepath.Join(strings.TrimSpace(string(goroot)), "src", "time", "time.go")
	source, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	const now = "sec, nsec, mono := runtimeNow()\n"
	if bytes.Count(source, []byte(now)) == 0 {
		return errors.New("time.Now is not as it was: it has no " + now)
	}
	source = bytes.ReplaceAll(source, []byte(now), []byte(now+"\tsec += jump.Load()\n"))
	source = bytes.Replace(source, []byte("import (\n"), []byte("import (\n\t\"sync/atomic\"\n\t\"syscall\"\n"), 1)
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {file: out + ".time.go"}})
	if err != nil {
		return err
	}
	err = errors.Join(os.WriteFile(out+".time.go", append(source, wallJump...), 0o600), os.WriteFile(out+".overlay.json", overlay, 0o600))
	if err != nil {
		return err
	}
	return goBuild(ctx, dir, io.Discard, "build", "-ldflags=-s -w", "-overlay", out+".overlay.json", "-o", out, ".")
}

// wallJump is added to package time.
const wallJump = `
var jump atomic.Int64

// time.Now is called where nothing may be read, so a goroutine reads the file.
func init() {
	name, found := syscall.Getenv("WALL_JUMP")
	if found {
		readJump(name)
		go func() {
			for {
				Sleep(20 * Millisecond)
				readJump(name)
			}
		}()
	}
}

func readJump(name string) {
	fd, err := open(name)
	if err != nil {
		return
	}
	defer closefd(fd)
	var buf [16]byte
	n, err := read(fd, buf[:])
	if err != nil {
		return
	}
	seconds, sign := int64(0), int64(1)
	for _, c := range buf[:n] {
		switch {
		case c == '-':
			sign = -1
		case '0' <= c && c <= '9':
			seconds = 10*seconds + int64(c-'0')
		}
	}
	jump.Store(sign * seconds)
}
`
