package http

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kubebridge/bridge/internal/sinks"
)

const (
	// longestPause bounds Retry-After, so that no endpoint stops the sink for days.
	longestPause = 5 * time.Minute
	// patience is how long a call waits for the end of a pause. It is well below the time that the
	// publisher gives a call.
	patience = 10 * time.Second
)

var errPaused = errors.New("the endpoint has asked for a pause (Retry-After)")

// pause is the time for which an endpoint has asked to be left alone.
type pause struct {
	mu    sync.Mutex
	until time.Time // guarded by mu
}

// obey reads Retry-After: seconds, or a date. What is neither is ignored.
func (p *pause) obey(retryAfter string) {
	length := time.Duration(0)
	text := strings.TrimSpace(retryAfter)
	if seconds, err := strconv.ParseInt(text, 10, 64); err == nil {
		length = time.Duration(min(seconds, int64(longestPause/time.Second))) * time.Second
	} else if date, err := http.ParseTime(text); err == nil {
		length = min(time.Until(date), longestPause)
	}
	if length <= 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if until := time.Now().Add(length); until.After(p.until) {
		p.until = until
	}
}

// wait returns nil once the pause is over. Where that takes too long for a call, nothing is sent,
// and the caller comes again.
func (p *pause) wait(ctx context.Context) error {
	p.mu.Lock()
	left := time.Until(p.until)
	p.mu.Unlock()
	if left <= 0 {
		return nil
	}
	timer := time.NewTimer(min(left, patience))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return &sinks.Error{Class: sinks.Stopped, Err: ctx.Err()}
	case <-timer.C:
	}
	if left > patience {
		return &sinks.Error{Class: sinks.Retry, Err: errPaused}
	}
	return nil
}
