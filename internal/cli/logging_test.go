package cli

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/kubebridge/bridge/config"
)

// Durations are readable in every format of the log.
func TestLogDurations(t *testing.T) {
	for _, format := range []string{"json", "text"} {
		var out bytes.Buffer
		NewLogger(config.Log{Level: "info", Format: format}, &out).Info("trying again", "delay", 1500*time.Millisecond)
		if !strings.Contains(out.String(), "1.5s") {
			t.Errorf("%s: %s", format, out.String())
		}
	}
}

func TestLongValues(t *testing.T) {
	long := strings.Repeat("é", 350_000)
	var out bytes.Buffer
	NewLogger(config.Log{Level: "info", Format: "json"}, &out).Info("failed", "key", long, "err", errors.New(long), "names", []string{long})
	if out.Len() > 4<<10 || strings.Count(out.String(), "(700000 bytes)") != 2 || !utf8.Valid(out.Bytes()) {
		t.Errorf("%d bytes: %.300s", out.Len(), out.String())
	}
	out.Reset()
	NewLogger(config.Log{Level: "info", Format: "text"}, &out).Info("failed", "stack", long[:8<<10])
	if out.Len() < 8<<10 {
		t.Errorf("a stack is shortened: %s", out.String())
	}
}
