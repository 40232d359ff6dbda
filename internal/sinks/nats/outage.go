package nats

import (
	"fmt"
	"sync"
	"time"

	"github.com/kubebridge/bridge/internal/sinks"
)

// outage is the time between the loss of a connection and the next one. The client's errors in that
// time are about its own buffer.
type outage struct {
	mu    sync.Mutex // guards all below
	since time.Time  // zero while there is a connection
	why   error      // why the connection was lost, or the last attempt failed
}

func (o *outage) begin(why error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since.IsZero() {
		o.since = time.Now()
	}
	o.why = why
}

// attemptFailed records why another attempt has failed.
func (o *outage) attemptFailed(why error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.since.IsZero() {
		o.why = why
	}
}

func (o *outage) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.since, o.why = time.Time{}, nil
}

// explain wraps an error in an outage in what an operator can use; errors.Is still finds the error.
func (o *outage) explain(err error, url string) error {
	o.mu.Lock()
	since, why := o.since, o.why
	o.mu.Unlock()
	if since.IsZero() {
		return err
	}
	return &unreachableError{url: url, since: since, why: why, err: err}
}

// unreachableError is an error of a server that can't be reached.
type unreachableError struct {
	url      string // without secrets
	since    time.Time
	why, err error
}

func (e *unreachableError) Error() string {
	return fmt.Sprintf("the NATS server at %s can't be reached since %s (%v); the events are "+
		"pending, and are sent when it is back",
		e.url, e.since.Format(time.RFC3339), e.why)
}

func (e *unreachableError) Unwrap() error { return e.err }

// Blocked implements sinks.Blocker: a lost connection is reported also while there is nothing to
// send.
func (s *Sink) Blocked() error {
	if away := s.outage.explain(nil, s.cfg.Connection.redactedURL()); away != nil {
		return &sinks.Error{Class: sinks.Reconnect, Err: away}
	}
	return nil
}

// explain does so for all messages that failed because the server can't be reached.
func (s *Sink) explain(batch []*sinks.Message) {
	for _, m := range batch {
		if m.Err != nil && sinks.Classify(m.Err) == sinks.Reconnect {
			m.Err = s.outage.explain(m.Err, s.cfg.Connection.redactedURL())
		}
	}
}
