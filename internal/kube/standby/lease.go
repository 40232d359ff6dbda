package standby

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/bridge/internal/resource"
)

// Leases are the Leases of an API server. Errors are those of the API server (apierrors).
type Leases interface {
	Get(ctx context.Context, namespace, name string) (*coordinationv1.Lease, error)
	// Create makes an object, and gives it as it was stored.
	Create(context.Context, *coordinationv1.Lease) (*coordinationv1.Lease, error)
	// Update writes an object, and gives it as it was stored. It fails with a conflict when
	// somebody has written since that version was read.
	Update(context.Context, *coordinationv1.Lease) (*coordinationv1.Lease, error)
}

// LeaseConfig of a Lease. Zero durations mean the documented default.
type LeaseConfig struct {
	// Client reaches the API server. It should have a timeout below RenewDeadline. Required.
	Client Leases
	// Namespace and Name of the Lease object, the same for all replicas. It is created when
	// missing. Required.
	Namespace, Name string
	// Identity of this process; no other process ever has the same. Required.
	Identity string
	// Duration is how long after its last renewal other replicas leave the lease to a silent
	// leader; default 15 s, whole seconds.
	Duration time.Duration
	// RenewDeadline is how long after the last renewal the leader continues to publish; default 10
	// s. The time between it and Duration is for requests that are in flight then.
	RenewDeadline time.Duration
	// RetryPeriod is the time between renewals; the attempts of others are at random up to 2.2
	// times that apart. Default 500 ms.
	RetryPeriod time.Duration
	Log         *slog.Logger
}

var (
	// ErrLost is returned by Run when the lease could not be renewed in time, or another replica
	// has it. The process has to end.
	ErrLost = errors.New("the lease is lost: another replica may be publishing now")
	// ErrNotRenewed is returned by Gate while the last renewal is too long ago, or there was none.
	ErrNotRenewed = errors.New("nothing is published: the lease was not renewed in time")
	// ErrFenced is returned by Confirm when another replica has the lease.
	ErrFenced = errors.New("another replica has the lease")
)

// Lease is this replica's part in the election of a leader. Its methods may be called concurrently,
// Run once.
type Lease struct {
	cfg     LeaseConfig
	log     *slog.Logger
	elected chan struct{} // closed when this replica leads
	// set before Run: why others should lead, "" for no reason; nil for never
	unsynced func() string

	mu sync.Mutex
	// guarded by mu: when the last request began that has renewed the lease; zero for never, or
	// when it was released
	renewed   time.Time
	leader    string // guarded by mu: the last leader seen, "" for none
	releasing bool   // guarded by mu
}

// NewLease checks the configuration and makes no request.
func NewLease(cfg LeaseConfig) (*Lease, error) {
	if cfg.Client == nil || cfg.Namespace == "" || cfg.Name == "" || cfg.Identity == "" {
		return nil, errors.New("lease: client, namespace, name and identity are required")
	}
	cfg.Duration = cmp.Or(cfg.Duration, 15*time.Second)
	cfg.RenewDeadline = cmp.Or(cfg.RenewDeadline, 10*time.Second)
	cfg.RetryPeriod = cmp.Or(cfg.RetryPeriod, 500*time.Millisecond)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	l := &Lease{cfg: cfg, log: cfg.Log, elected: make(chan struct{})}
	l.log = l.log.With("lease", l.Name(), "identity", cfg.Identity)
	return l, cfg.validate()
}

// validate refuses durations with which a leader might publish after another one has begun, or give
// up before it has tried twice.
func (c *LeaseConfig) validate() error {
	switch {
	case c.RetryPeriod <= 0 || c.RenewDeadline <= c.RetryPeriod*6/5:
		return fmt.Errorf("lease %s/%s: the retry period (%v) has to be more than 0, and 1.2 times "+
			"of it less than the renew deadline (%v)", c.Namespace, c.Name, c.RetryPeriod,
			c.RenewDeadline)
	case c.Duration.Truncate(time.Second) <= c.RenewDeadline:
		return fmt.Errorf("lease %s/%s: the renew deadline (%v) has to be less than the duration "+
			"in whole seconds (%v)", c.Namespace, c.Name, c.RenewDeadline, c.Duration)
	}
	return nil
}

// Defer has this replica leave a vacant lease to others while unsynced returns a reason, for
// deferDurations longer than the lease itself: then no replica in sync seems to be there. Call it
// before Run; Run calls unsynced, which must not block.
func (l *Lease) Defer(unsynced func() string) { l.unsynced = unsynced }

// Duration returns how long after its last renewal other replicas leave the lease to a silent
// leader.
func (l *Lease) Duration() time.Duration { return l.cfg.Duration }

// Run takes part in the election until ctx ends, and renews the lease while this replica has it. It
// returns ErrLost when it has lost it. At the end the lease is released if Release was called;
// otherwise the others wait until it expires.
func (l *Lease) Run(ctx context.Context) error {
	e := elector{lease: l, delay: campaignDelay{
		unsynced: l.unsynced, limit: deferDurations * l.cfg.Duration, log: l.log,
	}}
	e.run(ctx)
	l.mu.Lock()
	l.renewed = time.Time{}
	l.mu.Unlock()
	if ctx.Err() == nil {
		return ErrLost
	}
	return nil
}

// Elected is closed when this replica has become the leader.
func (l *Lease) Elected() <-chan struct{} { return l.elected }

// Leader returns the identity of the last leader seen, "" for none.
func (l *Lease) Leader() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leader
}

// Name of the Lease object with its namespace, "tools/bridge".
func (l *Lease) Name() string { return l.cfg.Namespace + "/" + l.cfg.Name }

// Identity of this replica.
func (l *Lease) Identity() string { return l.cfg.Identity }

// Gate is nil while this replica may publish: its last renewal began less than RenewDeadline ago.
// Others count Duration from when they see a renewal, so none of them leads then. Both clocks are
// asked: the monotonic one stands still while a machine sleeps, the wall clock may be set back.
func (l *Lease) Gate() error {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.renewed.IsZero() || now.Sub(l.renewed) >= l.cfg.RenewDeadline ||
		now.Round(0).Sub(l.renewed.Round(0)) >= l.cfg.RenewDeadline {
		return ErrNotRenewed
	}
	return nil
}

// Confirm asks the API server whether this replica has the lease. ErrFenced: another one has it.
func (l *Lease) Confirm(ctx context.Context) error {
	lease, err := l.cfg.Client.Get(ctx, l.cfg.Namespace, l.cfg.Name)
	if err != nil {
		return fmt.Errorf("ask who has the lease: %w", err)
	}
	if holder := holderOf(lease); holder != l.cfg.Identity {
		return fmt.Errorf("%w (%s)", ErrFenced, cmp.Or(holder, "it was given up"))
	}
	return l.Gate()
}

// Release has Run give up the lease at its end, so that another replica takes over at once. Call it
// when nothing is published any more.
func (l *Lease) Release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.releasing, l.renewed = true, time.Time{}
}

// progressAnnotation holds the progress. Annotations of an object may have 256 KiB in all.
const (
	progressAnnotation = "bridge.kubebridge.dev/progress"
	maxProgress        = 200 << 10
)

// ErrTaken is returned by Put when another replica has taken the lease of the progress: this one
// does not lead any more.
var ErrTaken = errors.New("another replica has taken over")

// ProgressLease is the Lease on which the leader writes its progress: a Lease of its own, since
// bridges do not stream Leases. It is owned by one goroutine.
type ProgressLease struct {
	client          Leases
	namespace, name string
	identity        string
	// last is the object as this replica wrote it; nil while it does not lead.
	last *coordinationv1.Lease
}

// LeaseName returns the name of the lease of a shard: the replicas of each elect a leader of their
// own.
func LeaseName(lease string, s resource.Shard) string {
	if s.All() {
		return lease
	}
	return fmt.Sprintf("%s-%d-of-%d", lease, s.Index, s.Count)
}

// ProgressLeaseName returns the name of the Lease with the progress of a lease's leader.
func ProgressLeaseName(lease string) string { return lease + "-progress" }

// NewProgressLease makes no request.
func NewProgressLease(cfg LeaseConfig) *ProgressLease {
	return &ProgressLease{
		client: cfg.Client, namespace: cfg.Namespace,
		name: ProgressLeaseName(cfg.Name), identity: cfg.Identity,
	}
}

// Get reads the leader's progress. ok is false when no replica has ever led.
func (b *ProgressLease) Get(ctx context.Context) (p Progress, ok bool, err error) {
	object, err := b.client.Get(ctx, b.namespace, b.name)
	if apierrors.IsNotFound(err) {
		return Progress{}, false, nil
	}
	if err != nil {
		return Progress{}, false, fmt.Errorf("read the leader's progress: %w", err)
	}
	p, err = b.progressIn(object)
	return p, err == nil, err
}

func (b *ProgressLease) progressIn(object *coordinationv1.Lease) (Progress, error) {
	written := object.Annotations[progressAnnotation]
	if written == "" {
		return Progress{}, nil
	}
	p, err := decode(written)
	if err != nil {
		return p, fmt.Errorf("the leader's progress in Lease %s/%s can't be read: %w", b.namespace,
			b.name, err)
	}
	return p, nil
}

// Acquire makes the Lease this replica's, which must be the leader, and returns the last progress
// of the leader before. From then on that one can't write any more. An error may be temporary: call
// it again.
func (b *ProgressLease) Acquire(ctx context.Context) (p Progress, led bool, err error) {
	object, err := b.client.Get(ctx, b.namespace, b.name)
	switch {
	case apierrors.IsNotFound(err):
		err = b.create(ctx)
	case err == nil:
		if p, err = b.progressIn(object); err != nil {
			return p, false, err
		}
		led = true
		object.Spec.HolderIdentity = &b.identity
		b.last, err = b.client.Update(ctx, object)
	}
	if err != nil {
		b.last = nil
		return p, false, fmt.Errorf("take over from the leader before: %w", err)
	}
	return p, led, nil
}

// create creates the Lease, with this replica as its holder.
func (b *ProgressLease) create(ctx context.Context) error {
	made, err := b.client.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name:      b.name,
			Namespace: b.namespace,
		}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &b.identity},
	})
	if err == nil {
		b.last = made
	}
	return err
}

// Put writes this replica's progress after Take. ErrTaken: another replica has taken the Lease.
// Other errors may be temporary.
func (b *ProgressLease) Put(ctx context.Context, p *Progress) (PutResult, error) {
	encoded, result, err := p.encode(maxProgress)
	if err != nil {
		return result, err
	}
	object := b.last.DeepCopy()
	if object.Annotations == nil {
		object.Annotations = map[string]string{}
	}
	object.Annotations[progressAnnotation] = encoded
	written, err := b.client.Update(ctx, object)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return result, b.resolveConflict(ctx)
	}
	if err != nil {
		return result, fmt.Errorf("write the progress: %w", err)
	}
	b.last = written
	return result, nil
}

// resolveConflict handles a Lease that is not as this replica wrote it: because an answer was lost,
// or a person or another replica wrote it. A deleted one is created again: a replica that has taken
// over since, or will, finds it like any other.
func (b *ProgressLease) resolveConflict(ctx context.Context) error {
	object, err := b.client.Get(ctx, b.namespace, b.name)
	if apierrors.IsNotFound(err) {
		if err = b.create(ctx); err == nil {
			return errors.New("write the progress: somebody has deleted the Lease; it was " +
				"created again")
		}
	}
	if err != nil {
		return fmt.Errorf("write the progress: %w", err)
	}
	if holder := object.Spec.HolderIdentity; holder == nil || *holder != b.identity {
		return ErrTaken
	}
	b.last = object
	return errors.New("write the progress: somebody has written to the Lease; trying again")
}
