package bridge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/resource"
)

// A replica may have to lead that knows nothing of what the one before has not sent: it tells a gap. Another one that does know, and comes back,
// or was not heard of for long, holds the ends of objects that the stream still has. It asks for the lease, and sends them.

// errHandsOver ends a leader that another replica has asked for the lease.
var errHandsOver = errors.New("hands over")

// claimInterval is how often a leader looks whether another replica has asked for the lease.
const claimInterval = 10 * time.Second

// owed is how many events this replica alone can send.
func (r *replica) owed() (n int) {
	for _, u := range r.roster.all() {
		for _, relay := range u.relays {
			n += relay.Owed()
		}
	}
	return n
}

// owes is the reason not to be ready while there are any.
func (r *replica) owes() []Reason {
	n := r.owed()
	if n == 0 {
		return nil
	}
	return []Reason{{Component: "standby", Message: fmt.Sprintf(
		"%d deletes wait here of which the leader %s did not know when it began: it is asked to hand over; if it does not within a minute, stop it", n, r.cfg.Lease.Leader())}}
}

// claim asks for the lease when this replica alone can send something, nobody has asked, and it could take the lease at once: the leader ends for it.
func (r *replica) claim(ctx context.Context) {
	r.mu.Lock()
	claimed := r.progress.Claim != ""
	r.mu.Unlock()
	n := r.owed()
	if claimed || n == 0 || r.unfit() != "" {
		return
	}
	r.log.Warn("the leader began without knowing of deletes that were not sent, and this replica has them: it asks for the lease", "leader", r.cfg.Lease.Leader(), "deletes", n)
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := r.cfg.Board.Claim(ctx); err != nil {
		r.log.Warn("can't ask for the lease, trying again", "err", err)
	}
}

// claimed is the error with which a leader ends when another replica has asked for the lease. It does so as one that has lost the lease: what it has
// not sent the other one has too, or it is sent after its next start.
func (t *teller) claimed(ctx context.Context) error {
	if time.Since(t.looked) < claimInterval {
		return nil
	}
	t.looked = time.Now()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	p, _, err := t.cfg.Board.Get(ctx)
	if err != nil || p.Claim == "" || p.Claim == t.cfg.Lease.Identity() {
		return nil //nolint:nilerr // it is asked again
	}
	return fmt.Errorf("%w: replica %s has asked for the lease, since it alone can send what was not sent before this one began", errHandsOver, p.Claim)
}

// existsAgain says whether there is another object under the name of the one that an item is about.
func (u *unit) existsAgain(it *publisher.Item) bool {
	e := it.Message.Event
	record, found, err := u.indexer.Get(resource.MakeKey(e.Namespace, e.Name))
	return err == nil && found && !record.Deleted && record.UID != e.UID
}
