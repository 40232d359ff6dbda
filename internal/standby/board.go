package standby

import (
	"context"
	"errors"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/kubebridge/bridge/internal/resource"
)

// progressAnnotation holds the progress on the board. Annotations of an object may have 256 KiB in all.
const (
	progressAnnotation = "bridge.kubebridge.dev/progress"
	claimAnnotation    = "bridge.kubebridge.dev/claimed-by"
	maxProgress        = 200 << 10
)

// ErrTaken is returned by Put when another replica has taken the board: this one leads no more.
var ErrTaken = errors.New("another replica has taken over")

// Board is the object on which the leader writes its progress: a Lease of its own, since Leases are what bridges do not stream. It is owned by one
// goroutine.
type Board struct {
	client          coordination.LeasesGetter
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

// BoardName is the name of the board that goes with a lease.
func BoardName(lease string) string { return lease + "-progress" }

// NewBoard asks nobody.
func NewBoard(cfg LeaseConfig) *Board {
	return &Board{client: cfg.Client, namespace: cfg.Namespace, name: BoardName(cfg.Name), identity: cfg.Identity}
}

// Get reads the leader's progress. ok is false when no replica has ever led.
func (b *Board) Get(ctx context.Context) (p Progress, ok bool, err error) {
	object, err := b.leases().Get(ctx, b.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return Progress{}, false, nil
	}
	if err != nil {
		return Progress{}, false, fmt.Errorf("read the leader's progress: %w", err)
	}
	p, err = b.progressOn(object)
	return p, err == nil, err
}

func (b *Board) progressOn(object *coordinationv1.Lease) (Progress, error) {
	claim, written := object.Annotations[claimAnnotation], object.Annotations[progressAnnotation]
	if written == "" {
		return Progress{Claim: claim}, nil
	}
	p, err := decode(written)
	p.Claim = claim
	if err != nil {
		return p, fmt.Errorf("the leader's progress in Lease %s/%s can't be read: %w", b.namespace, b.name, err)
	}
	return p, nil
}

// Take makes the board this replica's, which has to lead, and gives what the one before has told last. From then on that one can't tell any more.
// An error may heal: it is tried again.
func (b *Board) Take(ctx context.Context) (p Progress, led bool, err error) {
	object, err := b.leases().Get(ctx, b.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		err = b.create(ctx)
	case err == nil:
		if p, err = b.progressOn(object); err != nil {
			return p, false, err
		}
		led = true
		delete(object.Annotations, claimAnnotation)
		object.Spec.HolderIdentity = &b.identity
		b.last, err = b.leases().Update(ctx, object, metav1.UpdateOptions{})
	}
	if err != nil {
		b.last = nil
		return p, false, fmt.Errorf("take over from the leader before: %w", err)
	}
	return p, led, nil
}

// Claim asks the leader for the lease, since this replica alone can send something. It is kept until another one takes the board.
func (b *Board) Claim(ctx context.Context) error {
	object, err := b.leases().Get(ctx, b.name, metav1.GetOptions{})
	if err == nil {
		if object.Annotations == nil {
			object.Annotations = map[string]string{}
		}
		object.Annotations[claimAnnotation] = b.identity
		_, err = b.leases().Update(ctx, object, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("ask the leader for the lease: %w", err)
	}
	return nil
}

// create makes the board, as this replica's.
func (b *Board) create(ctx context.Context) error {
	made, err := b.leases().Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: b.name, Namespace: b.namespace}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &b.identity},
	}, metav1.CreateOptions{})
	if err == nil {
		b.last = made
	}
	return err
}

// Put writes this replica's progress on the board it has taken. ErrTaken: it is another's by now. Other errors may heal.
func (b *Board) Put(ctx context.Context, p *Progress) (Told, error) {
	encoded, told, err := p.encode(maxProgress)
	if err != nil {
		return told, err
	}
	object := b.last.DeepCopy()
	if object.Annotations == nil {
		object.Annotations = map[string]string{}
	}
	object.Annotations[progressAnnotation] = encoded
	written, err := b.leases().Update(ctx, object, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return told, b.whoWrote(ctx)
	}
	if err != nil {
		return told, fmt.Errorf("tell the progress: %w", err)
	}
	b.last = written
	return told, nil
}

// whoWrote looks at a board that is not as this replica left it: by an answer that was lost, by a person, or by another replica. One that was
// deleted is made again: whoever has taken over since, or does, finds it like any other.
func (b *Board) whoWrote(ctx context.Context) error {
	object, err := b.leases().Get(ctx, b.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		if err = b.create(ctx); err == nil {
			return errors.New("tell the progress: somebody has deleted the object; it was made again")
		}
	}
	if err != nil {
		return fmt.Errorf("tell the progress: %w", err)
	}
	if holder := object.Spec.HolderIdentity; holder == nil || *holder != b.identity {
		return ErrTaken
	}
	b.last = object
	return errors.New("tell the progress: somebody has written to the object; trying again")
}

func (b *Board) leases() coordination.LeaseInterface { return b.client.Leases(b.namespace) }
