package processor

import (
	"context"
	"slices"
	"time"

	"github.com/kubebridge/bridge/internal/informer/changelog"
	"github.com/kubebridge/bridge/internal/kube/standby"
	"github.com/kubebridge/bridge/internal/resource"
)

// On a standby, a listener acks what the leader has delivered, and makes no events. It claims a
// prefix of the log only, so that a drop of the oldest finds everything else unread. Once this
// replica leads, the listener sends from its cursor on. What the leader before has delivered it
// acks without sending it: then too only the prefix was acked before.

// leaderView is what a listener knows of the leader.
type leaderView struct {
	// Guarded by Listener.mu.
	standing standby.LeaderState
	since    time.Time // when the first entry was observed that the leader has not delivered
	unacked  int       // of Listener.unacked and leftover

	// Owned by run.
	found     []changelog.Header // read and not claimed, in order
	next      changelog.Position // behind them
	selection resource.Version   // that was known when they were read
}

// Follow sets what the leader has delivered, and whether it has ended the unit. Where there are no
// other replicas, Lead is called before Start, and Follow never.
func (l *Listener) Follow(progress standby.Unit, ended bool) {
	l.mu.Lock()
	l.leader.standing.Progress, l.leader.standing.Ended = progress, ended
	l.mu.Unlock()
	l.wake()
}

// Lead makes the listener send everything that the leader before, by the last Follow, has not
// delivered.
func (l *Listener) Lead() {
	l.mu.Lock()
	l.leader.standing.Leads = true
	l.mu.Unlock()
	l.wake()
}

// follow acks what the leader delivers. It returns true when this replica leads, and false when the
// log has ended and everything is acked.
func (l *Listener) follow(ctx context.Context) (leads bool, err error) {
	for {
		seen := l.wakeUps.Load()
		d := l.delivered()
		if d.standing.Leads {
			l.leader.found = nil
			l.setSince(time.Time{})
			return true, nil
		}
		l.ackLeft(&d)
		where, err := l.ackDelivered(&d)
		if err != nil {
			return false, err
		}
		if where == atClose && len(l.unacked)+len(l.unackedHeaders) == 0 {
			return false, nil
		}
		if err := l.awaitMore(ctx, where, seen); err != nil {
			return false, err
		}
	}
}

// ackLeft acks the entries of an earlier run that the leader has delivered.
func (l *Listener) ackLeft(d *leaderDelivery) {
	l.unacked = l.undelivered(l.unacked, d)
	var acks []changelog.Ack
	l.unackedHeaders = slices.DeleteFunc(l.unackedHeaders, func(h changelog.Header) bool {
		has := d.has(&h)
		if has {
			acks = append(acks, changelog.Ack{At: h.Position})
		}
		return has
	})
	if len(acks) > 0 { // else there is nothing to commit
		l.cursor.Ack(acks)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leader.unacked = len(l.unacked) + len(l.unackedHeaders)
}

// ackDelivered reads and acks entries up to the first one that the leader has not delivered.
func (l *Listener) ackDelivered(d *leaderDelivery) (where readAheadState, err error) {
	f := &l.leader
	_, end, closed := l.cursor.Next()
	for {
		if len(f.found) == 0 {
			next, _, _ := l.cursor.Next()
			if next >= end {
				l.setSince(time.Time{})
				if closed {
					return atClose, nil
				}
				return atEnd, nil
			}
			if f.found, f.next, err = l.cursor.Headers(); err != nil {
				return 0, err
			}
			if f.next == next { // the oldest is being dropped
				return atBound, nil
			}
			f.selection = l.selection() // it may be later than theirs: then they only wait longer
		}
		if !l.claimDelivered(d) {
			l.setSince(f.found[0].Observed)
			return atBound, nil
		}
	}
}

// claimDelivered claims and acks the found entries up to the first one that the leader has not
// delivered, and reports whether none is left.
func (l *Listener) claimDelivered(d *leaderDelivery) bool {
	f := &l.leader
	d.selection = f.selection
	var acks []changelog.Ack
	next := f.next
	for i := range f.found {
		if !d.has(&f.found[i]) {
			next = f.found[i].Position
			break
		}
		acks = append(acks, changelog.Ack{At: f.found[i].Position})
	}
	l.cursor.Claim(f.found[:len(acks)], next)
	if len(acks) > 0 {
		l.cursor.Ack(acks)
	}
	f.found = f.found[len(acks):]
	return len(f.found) == 0
}

func (l *Listener) setSince(observed time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leader.since = observed
}

// held returns how many entries at most the leader has not delivered.
func (l *Listener) held() int {
	next, end, _ := l.cursor.Next()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leader.standing.Leads {
		return 0
	}
	return l.leader.unacked + int(end-next)
}
