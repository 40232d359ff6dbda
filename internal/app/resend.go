package app

import (
	"context"
	"crypto/hmac"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/app/admin"
	"github.com/kubebridge/bridge/internal/app/streams"
	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/publisher/refused"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/sinks/source"
)

const (
	// resendBytes bounds what one command holds in memory: once it has read so much, it sends that.
	resendBytes = 8 << 20
	// resendPatience is how long one command reads, and waits for the sink.
	resendPatience = time.Minute
)

// SendUndelivered implements admin.Controller.
func (c *adminCommands) SendUndelivered(
	ctx context.Context, _ admin.Caller, sink string, ids []string,
) (admin.Resent, error) {
	return c.resend(ctx, resendCommand{
		sink: sink,
		read: func(_ context.Context, _ string, answer *admin.Resent) (resendable, error) {
			if c.undelivered == "" {
				return resendable{}, conflict("this bridge keeps no undelivered events: see " +
					"state.mode and state.maxUndeliveredBytes")
			}
			return readUndelivered(c.undelivered, sink, ids, answer), nil
		},
		settled: func(id string) error {
			err := refused.Remove(c.undelivered, refused.Entry{
				ID: id, Refusal: refused.Refusal{Sink: sink},
			})
			if err != nil {
				return fmt.Errorf("%s was sent, and its file can't be removed: %w", id, err)
			}
			return nil
		},
	})
}

// SendDeadLetters implements admin.Controller. Who asked removes what is settled.
func (c *adminCommands) SendDeadLetters(
	ctx context.Context, _ admin.Caller, sink string, positions []string,
) (admin.Resent, error) {
	return c.resend(ctx, resendCommand{
		sink: sink,
		read: func(
			ctx context.Context, cluster string, answer *admin.Resent,
		) (resendable, error) {
			return c.readDeadLetters(ctx, cluster, sink, positions, answer)
		},
		settled:  func(string) error { return nil },
		returned: true, // a second letter would be one too many
	})
}

// resendCommand is one command that sends refused events again.
type resendCommand struct {
	sink string
	// read reads them. What can't be sent is in the answer.
	read func(ctx context.Context, cluster string, answer *admin.Resent) (resendable, error)
	// settled is called with each that the sink, or its dead letters, have acknowledged.
	settled func(id string) error
	// returned keeps what is refused out of the dead letters.
	returned bool
}

// resendable are events to send again, with the names that the command has for them.
type resendable struct {
	ids    []string
	events []*event.Event
	bytes  int
}

func (r *resendable) add(id string, e *event.Event, bytes int) {
	r.ids, r.events, r.bytes = append(r.ids, id), append(r.events, e), r.bytes+bytes
}

func (c *adminCommands) resend(ctx context.Context, r resendCommand) (answer admin.Resent, err error) {
	p, err := c.running()
	if err != nil {
		return answer, err
	}
	if !c.resending.TryLock() {
		return answer, conflict("another command sends refused events now")
	}
	defer c.resending.Unlock()
	answer.Done, answer.Kept = []string{}, []admin.KeptEvent{}
	ctx, cancel := context.WithTimeout(ctx, resendPatience)
	defer cancel()
	read, err := r.read(ctx, p.cluster, &answer)
	if err != nil {
		return answer, err
	}
	resent, err := p.bridge.Resend(ctx, r.sink, read.events, r.returned)
	if err != nil && resent == nil {
		_, err = done(err, "")
		return answer, err
	}
	why := "the sink has given no answer within " + resendPatience.String() + "; see bridge status"
	if err != nil {
		why = err.Error()
	}
	for i := range resent {
		if resent[i].Outcome == "" {
			answer.Waiting = why
			continue
		}
		if err := r.conclude(read.ids[i], &resent[i], &answer); err != nil {
			return answer, err
		}
	}
	answer.Message = fmt.Sprintf("%s sent, %s refused", plural(len(answer.Done), "event"),
		plural(len(answer.Kept), "event"))
	return answer, nil
}

// followUp is sinks.Env.FollowUp.
func (s *statusSource) followUp(
	ctx context.Context, sink string, events []*event.Event,
) ([]func(), error) {
	p, why := s.get()
	if p == nil {
		return nil, fmt.Errorf("the bridge has not started yet: %s", why)
	}
	return p.bridge.FollowUp(ctx, sink, events)
}

func conflict(why string) error {
	return &admin.Error{Code: http.StatusConflict, Err: errors.New(why)}
}

// readUndelivered reads events, as many as may be held in memory. Those that can't be sent are in
// the answer.
func readUndelivered(dir, sink string, ids []string, answer *admin.Resent) (read resendable) {
	for _, id := range ids {
		if read.bytes >= resendBytes {
			break
		}
		entry, err := refused.Read(dir, sink, id)
		var e *event.Event
		if err == nil {
			e, err = entry.Parse()
		}
		if err != nil {
			answer.Keep(id, err)
			continue
		}
		read.add(id, e, int(entry.Bytes))
	}
	return read
}

// readDeadLetters reads dead letters, as many as may be held in memory. Those that can't be sent
// are in the answer.
func (c *adminCommands) readDeadLetters(
	ctx context.Context, cluster, sink string, positions []string, answer *admin.Resent,
) (read resendable, err error) {
	conf, err := c.current(ctx)
	if err != nil {
		return read, err
	}
	const patience = 20 * time.Second // less than the command has
	d, err := streams.NewDeadLetters(streams.SourceOptions{
		Config: conf, Client: "bridge deadletters", Sink: sink, Patience: patience,
	})
	if err != nil {
		return read, conflict(err.Error())
	}
	from, wanted := source.Position{}, map[string]bool{}
	for _, text := range positions {
		at, err := streams.ParsePosition(text)
		if err != nil {
			return read, conflict(err.Error())
		}
		if first, known := from[at.Lane]; !known || at.Offset < first.Next {
			from[at.Lane] = source.Lane{Next: at.Offset}
		}
		wanted[text] = true
	}
	for l, err := range d.Each(ctx, from, slices.Collect(maps.Keys(from))) {
		if err != nil {
			return read, conflict(err.Error())
		}
		if !wanted[l.Position] {
			continue
		}
		delete(wanted, l.Position)
		if l.Invalid != nil {
			answer.Keep(l.Position, l.Invalid)
		} else if e, err := l.Restore(cluster); err != nil {
			answer.Keep(l.Position, err)
		} else if !c.letters.isSigned(l, sink, e) {
			answer.Keep(l.Position, errNotSigned)
		} else {
			read.add(l.Position, e, len(e.Data))
		}
		if len(wanted) == 0 || read.bytes >= resendBytes {
			return read, nil
		}
	}
	for position := range wanted {
		answer.Keep(position, errors.New("there is no dead letter of this sink any more"))
	}
	return read, nil
}

var errNotSigned = errors.New("the dead letter is not signed with this bridge's redaction key: " +
	"somebody else wrote it, or the key was another; send the present state of its object with " +
	"'bridge snapshot'")

// letterSigner signs dead letters with the redaction key: who may write where they lie must not
// make the bridge send something of their own. A reload may change the key. A nil one signs
// nothing.
type letterSigner struct {
	redactor atomic.Pointer[resource.Redactor]
}

func (s *letterSigner) setKey(r *resource.Redactor) {
	if s != nil {
		s.redactor.Store(r)
	}
}

// of returns what signs the letters of a sink.
func (s *letterSigner) of(sink string) func(*event.Event) string {
	if s == nil {
		return nil
	}
	return func(e *event.Event) string {
		return s.redactor.Load().Sign(streams.SignedBytes(sink, e))
	}
}

// pseudonym replaces a user of the audit log by a keyed hash.
func (s *letterSigner) pseudonym(user string) string { return s.redactor.Load().Pseudonym(user) }

// isSigned reports whether a letter's signature is that of the event which it was restored to.
func (s *letterSigner) isSigned(l *streams.DeadLetter, sink string, e *event.Event) bool {
	return hmac.Equal([]byte(l.Signature), []byte(s.of(sink)(e)))
}

// conclude answers for an event. One that was acknowledged is settled, and no other.
func (r *resendCommand) conclude(id string, resent *bridge.Resent, answer *admin.Resent) error {
	switch resent.Outcome {
	case publisher.Acknowledged, publisher.ReadBack, publisher.DeadLettered:
		if err := r.settled(id); err != nil {
			return err
		}
		answer.Done = append(answer.Done, id)
	default:
		answer.Keep(id, resent.Refused)
	}
	return nil
}

// current returns the configuration that the bridge runs with.
func (c *adminCommands) current(ctx context.Context) (*config.Config, error) {
	if c.reloader == nil {
		return c.config, nil
	}
	return c.reloader.current(ctx)
}

// UndeliveredDir returns the folder of events that no broker accepted.
func UndeliveredDir(c *config.State) string { return filepath.Join(c.Dir, "undelivered") }

// newUndelivered returns the folder for what no broker takes; nil without a disk, or with no room
// for it.
func newUndelivered(c *config.State, registry prometheus.Registerer) *refused.Folder {
	if c.Mode == "memory" || c.MaxUndeliveredBytes == 0 {
		return nil
	}
	return refused.New(refused.Config{
		Dir: UndeliveredDir(c), MaxBytes: int64(c.MaxUndeliveredBytes), Registerer: registry,
	})
}
