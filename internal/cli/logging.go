package cli

import (
	"fmt"
	"io"
	"log/slog"
	"strings"

	"k8s.io/klog/v2"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/cli/terminal"
)

// NewLogger makes the logger that is handed to everything, and lets client-go's klog, which knows
// only a global one, write to it.
func NewLogger(c config.Log, w io.Writer) *slog.Logger {
	log, _ := NewLeveledLogger(c, w)
	return log
}

// NewLeveledLogger is NewLogger, with the level, which may be changed at any time.
func NewLeveledLogger(c config.Log, w io.Writer) (*slog.Logger, *slog.LevelVar) {
	level := new(slog.LevelVar)
	_ = level.UnmarshalText([]byte(c.Level)) // the configuration has checked it
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: readable}
	var handler slog.Handler
	if c.Format == "json" || c.Format == "auto" && !terminal.Is(w) {
		handler = slog.NewJSONHandler(w, options)
	} else {
		handler = slog.NewTextHandler(w, options)
	}
	log := slog.New(handler)
	klog.SetSlogLogger(log.With("component", "client-go"))
	return log, level
}

// maxAttr is the longest value in the log, in bytes. The subject of an object with the longest
// names of Kubernetes has 600. The name of a Role has no limit, and who may create one chooses it.
const maxAttr = 1 << 10

// readable shortens values, except for a stack, which has a limit of its own. It writes durations
// as "1.5s" in JSON too, where slog writes nanoseconds.
func readable(_ []string, a slog.Attr) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindDuration:
		a.Value = slog.StringValue(a.Value.Duration().String())
	case slog.KindString, slog.KindAny:
		if err, ok := a.Value.Any().(error); ok {
			a.Value = slog.StringValue(err.Error())
		}
		if text := a.Value.String(); a.Key != "stack" && len(text) > maxAttr {
			a.Value = slog.StringValue(fmt.Sprintf("%s… (%d bytes)",
				strings.ToValidUTF8(text[:maxAttr], ""), len(text)))
		}
	default: // short
	}
	return a
}
