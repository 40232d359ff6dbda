package cli

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"golang.org/x/term"
	"k8s.io/klog/v2"

	"github.com/kubebridge/bridge/config"
)

// newLogger makes the logger that is handed to everything, and lets client-go's klog, which knows
// only a global one, write to it.
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

func isTerminal(w io.Writer) bool {
	if s, ok := w.(*screen); ok {
		w = s.file
	}
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}
