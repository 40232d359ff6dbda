package cli

import (
	"io"
	"log/slog"
	"os"

	"golang.org/x/term"
	"k8s.io/klog/v2"

	"github.com/kubebridge/bridge/config"
)

// newLogger makes the logger that is handed to everything, and lets client-go's klog, which knows only a global one, write to it.
func newLogger(c config.Log, w io.Writer) *slog.Logger {
	log, _ := newLeveledLogger(c, w)
	return log
}

// newLeveledLogger is newLogger, with the level, which may be changed at any time.
func newLeveledLogger(c config.Log, w io.Writer) (*slog.Logger, *slog.LevelVar) {
	level := new(slog.LevelVar)
	_ = level.UnmarshalText([]byte(c.Level)) // the configuration has checked it
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: readable}
	var handler slog.Handler
	if c.Format == "json" || c.Format == "auto" && !isTerminal(w) {
		handler = slog.NewJSONHandler(w, options)
	} else {
		handler = slog.NewTextHandler(w, options)
	}
	log := slog.New(handler)
	klog.SetSlogLogger(log.With("component", "client-go"))
	return log, level
}

// readable makes durations "1.5s" in JSON too, where slog has nanoseconds.
func readable(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}
