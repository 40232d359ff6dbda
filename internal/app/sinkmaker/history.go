package sinkmaker

import (
	"cmp"
	"context"
	"log/slog"
	"path/filepath"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/event/asyncapi"
	store "github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/history"
)

// historyDirName is the directory of a history in the state directory.
const historyDirName = "history"

// HistoryDir is where a bridge with this configuration keeps its history: that of its first sink of
// that kind, or where such a sink would keep one.
func HistoryDir(c *config.Config) string {
	for i := range c.Sinks {
		if h := c.Sinks[i].History; h != nil && h.Dir != "" {
			return h.Dir
		}
	}
	return filepath.Join(c.State.Dir, historyDirName)
}

// historyKind keeps every version.
type historyKind struct {
	sink *config.Sink
	*config.History
}

func (historyKind) key() string { return "history" }

// Target is nil: a directory is of one replica.
func (historyKind) target() []string { return nil }

func (k historyKind) make(m *Maker, log *slog.Logger) (sinks.Sink, Service, error) {
	dir := cmp.Or(k.Dir, filepath.Join(m.StateDir, historyDirName))
	if k.Dir == "" {
		log.Info("every version of every object is kept", "dir", dir, "ask",
			"bridge history KIND/NAME; bridge timeline")
	}
	sink, err := history.New(history.Config{
		Dir: dir, Retention: store.Retention{Age: k.Retention, MaxBytes: uint64(k.MaxBytes)}, Log: log,
		Serve: m.Serve, Metrics: m.Registry,
	})
	return sink, nil, err
}

func (historyKind) check(context.Context, *Maker, func(string) []string) error { return nil }

func (k historyKind) sample() (Form, error) {
	return Form{
		Structured:  true,
		Destination: func(*event.Event) string { return "sink " + k.sink.Name + ": history " + k.Dir },
	}, nil
}

// describe is nil: nobody reads events from a history.
func (historyKind) describe() *asyncapi.Sink { return nil }
