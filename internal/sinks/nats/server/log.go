package server

import (
	"fmt"
	"log/slog"
)

// serverLog writes the server's log to slog.
type serverLog struct {
	log   *slog.Logger
	fatal chan<- error
}

func (l serverLog) Noticef(format string, args ...any) {
	l.log.Debug("nats server", "said", fmt.Sprintf(format, args...))
}

func (l serverLog) Warnf(format string, args ...any) {
	l.log.Warn("nats server", "said", fmt.Sprintf(format, args...))
}

func (l serverLog) Errorf(format string, args ...any) {
	l.log.Warn("nats server", "said", fmt.Sprintf(format, args...))
}
func (l serverLog) Debugf(string, ...any) {}
func (l serverLog) Tracef(string, ...any) {}

// Fatalf ends Run. The server's own logger would end the process.
func (l serverLog) Fatalf(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	select {
	case l.fatal <- err:
	default: // the first is the reason
		l.log.Error("nats server", "err", err)
	}
}
