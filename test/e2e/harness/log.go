package harness

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
)

// Log is what a program wrote, line by line. It is an io.Writer; its methods may be called
// concurrently.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
	tee  io.Writer    // gets a copy; nil for none
}

// Write takes what the program wrote.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	l.text.Write(p)
	l.mu.Unlock()
	if l.tee != nil {
		return l.tee.Write(p)
	}
	return len(p), nil
}

// Len is how much was written. It marks a place for Since.
func (l *Log) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Len()
}

// String is everything that was written.
func (l *Log) String() string { return l.Since(0) }

// Since is what was written after a place.
func (l *Log) Since(place int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text.Bytes()[place:])
}

// Tail is the last n lines.
func (l *Log) Tail(n int) string {
	lines := strings.Split(strings.TrimRight(l.String(), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// Entry is one line that slog wrote as JSON.
type Entry map[string]any

// Level of the line.
func (e Entry) Level() string { return e.text("level") }

// Message of the line.
func (e Entry) Message() string { return e.text("msg") }

func (e Entry) text(name string) string { s, _ := e[name].(string); return s }

// String is the line as JSON.
func (e Entry) String() string {
	b, err := json.Marshal(map[string]any(e))
	if err != nil { // it was read from JSON
		return fmt.Sprint(map[string]any(e))
	}
	return string(b)
}

// Entries are the lines that slog wrote, and others are those that something else did, such as a
// panic or the race detector.
func (l *Log) Entries() (entries []Entry, others []string) {
	for line := range strings.Lines(l.String()) {
		entry := Entry{}
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			others = append(others, strings.TrimRight(line, "\n"))
			continue
		}
		entries = append(entries, entry)
	}
	return entries, others
}
