package nats

import (
	"fmt"
	"sync"
	"time"

	"github.com/kubebridge/bridge/internal/sinks"
)

// outage is the time between the loss of a connection and the next one. What the client says then to who publishes is about its own buffer.
type outage struct {
	mu    sync.Mutex // guards all below
	since time.Time  // zero while there is a connection
	why   error      // the connection was lost, or the last attempt to make one failed
}

func (o *outage) begin(why error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since.IsZero() {
		o.since = time.Now()
	}
	o.why = why
}

// lasts notes why another attempt has failed.
func (o *outage) lasts(why error) {
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

// explain says of an error in an outage what an operator can use, and is still that error for who asks with errors.Is.
func (o *outage) explain(err error, url string) error {
	o.mu.Lock()
	since, why := o.since, o.why
	o.mu.Unlock()
	if since.IsZero() {
		return err
	}
	return &awayError{url: url, since: since, why: why, err: err}
}

// awayError is an error of a server that can't be reached.
type awayError struct {
	url      string // without secrets
	since    time.Time
	why, err error
}

func (e *awayError) Error() string {
	return fmt.Sprintf("the NATS server at %s can't be reached since %s (%v); the events wait, and are sent when it is back",
		e.url, e.since.Format(time.RFC3339), e.why)
}

func (e *awayError) Unwrap() error { return e.err }

// Blocked implements sinks.Blocker: also while there is nothing to send, a connection that is lost is known.
func (s *Sink) Blocked() error {
	if away := s.outage.explain(nil, redactURLs(s.cfg.URL)); away != nil {
		return &sinks.Error{Class: sinks.Reconnect, Err: away}
	}
	return nil
}

// explain does so for all messages that failed because the server can't be reached.
func (s *Sink) explain(batch []*sinks.Message) {
	for _, m := range batch {
		if m.Err != nil && sinks.Classify(m.Err) == sinks.Reconnect {
			m.Err = s.outage.explain(m.Err, redactURLs(s.cfg.URL))
		}
	}
}
