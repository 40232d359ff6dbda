package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/kubebridge/bridge/internal/admin"
	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/undelivered"
)

const (
	// resendBytes bounds what one command holds in memory: once it has read so much, it sends that.
	resendBytes = 8 << 20
	// resendPatience is how long one command waits for the sink.
	resendPatience = time.Minute
)

// SendUndelivered implements admin.Controller.
func (c *control) SendUndelivered(
	ctx context.Context, _ admin.Caller, sink string, ids []string,
) (answer admin.Resent, err error) {
	p, err := c.running()
	if err != nil {
		return answer, err
	}
	if c.undelivered == "" {
		return answer, conflict("this bridge keeps no undelivered events: see state.mode and " +
			"state.maxUndeliveredBytes")
	}
	if !c.resending.TryLock() {
		return answer, conflict("another command sends undelivered events now")
	}
	defer c.resending.Unlock()
	answer.Done, answer.Kept = []string{}, []admin.KeptEvent{}
	entries, events := readUndelivered(c.undelivered, sink, ids, &answer)
	ctx, cancel := context.WithTimeout(ctx, resendPatience)
	defer cancel()
	resent, err := p.Resend(ctx, sink, events)
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
		if err := conclude(c.undelivered, &entries[i], &resent[i], &answer); err != nil {
			return answer, err
		}
	}
	answer.Message = fmt.Sprintf("%s sent, %s refused", Plural(len(answer.Done), "event"),
		Plural(len(answer.Kept), "event"))
	return answer, nil
}

func conflict(why string) error {
	return &admin.Error{Code: http.StatusConflict, Err: errors.New(why)}
}

// readUndelivered reads events, as many as may be held in memory. Those that can't be sent are in
// the answer.
func readUndelivered(
	dir, sink string, ids []string, answer *admin.Resent,
) (entries []undelivered.Entry, events []*event.Event) {
	size := 0
	for _, id := range ids {
		if size >= resendBytes {
			break
		}
		entry, err := undelivered.Read(dir, sink, id)
		if err != nil {
			answer.Kept = append(answer.Kept, admin.KeptEvent{ID: id, Reason: err.Error()})
			continue
		}
		size += int(entry.Bytes)
		e, err := entry.Parse()
		if err != nil {
			answer.Kept = append(answer.Kept, admin.KeptEvent{ID: id, Reason: err.Error()})
			continue
		}
		entries, events = append(entries, entry), append(events, e)
	}
	return entries, events
}

// conclude removes the file of an event that was acknowledged, and no other.
func conclude(
	dir string, entry *undelivered.Entry, resent *bridge.Resent, answer *admin.Resent,
) error {
	switch resent.Outcome {
	case publisher.Acknowledged, publisher.Recalled, publisher.DeadLettered:
		if err := undelivered.Remove(dir, *entry); err != nil {
			return fmt.Errorf("%s was sent, and its file can't be removed: %w", entry.ID, err)
		}
		answer.Done = append(answer.Done, entry.ID)
	default:
		answer.Kept = append(answer.Kept,
			admin.KeptEvent{ID: entry.ID, Reason: fmt.Sprint(resent.Refused)})
	}
	return nil
}
