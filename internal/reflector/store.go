package reflector

import (
	"context"

	"github.com/kubebridge/bridge/internal/resource"
)

// Store takes what the reflector reads, in order, from one goroutine. Every method blocks while
// there is no room and returns ctx's error when ctx ends. Any other error ends Run.
type Store interface {
	Add(ctx context.Context, obj *resource.Object) error
	Update(ctx context.Context, obj *resource.Object) error
	// Delete hands on the last state of an object, with the deletion's version. Within a list, the
	// object came earlier in the list or the watch before it; the list is as of a later version.
	Delete(ctx context.Context, obj *resource.Object) error
	// Bookmark: everything up to v was handed on.
	Bookmark(ctx context.Context, v resource.Version) error
	// BeginReplace: everything known will be replaced by Replace calls. A BeginReplace without an
	// EndReplace before it is abandoned: its items may be incomplete. With Only no EndReplace
	// follows, and with Namespace only what is known of that namespace is replaced.
	BeginReplace(ctx context.Context, why resource.Relist) error
	// Replace hands on one item of the list. Within one list an object may come twice; the later
	// one counts.
	Replace(ctx context.Context, obj *resource.Object) error
	// EndReplace: the list was complete, as of v. What is known and was not listed is gone.
	EndReplace(ctx context.Context, v resource.Version) error
	// Flush: the reflector is about to wait. It does not block.
	Flush()
}

// storeError is an error of the Store, which ends Run; everything else is retried.
type storeError struct{ err error }

func (e *storeError) Error() string { return e.err.Error() }
func (e *storeError) Unwrap() error { return e.err }

func fromStore(err error) error {
	if err == nil {
		return nil
	}
	return &storeError{err}
}
