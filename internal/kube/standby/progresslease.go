package standby

import (
	"context"
	"errors"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/bridge/internal/resource"
)

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

// LeaseName is the name of the lease of a shard: the replicas of each elect a leader of their own.
func LeaseName(lease string, s resource.Shard) string {
	if s.All() {
		return lease
	}
	return fmt.Sprintf("%s-%d-of-%d", lease, s.Index, s.Count)
}

// ProgressLeaseName is the name of the Lease with the progress of a lease's leader.
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
