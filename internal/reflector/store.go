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
	// EndReplace before it is abandoned: its items may be incomplete. Of a RelistSelection no
	// EndReplace follows. Of one that is Partial only what is known of its namespace is replaced.
	BeginReplace(ctx context.Context, why resource.Relist) error
	// Replace hands on one item of the list. Within one list an object may come twice; the later
	// one counts.
	Replace(ctx context.Context, obj *resource.Object) error
	// EndReplace: the list was complete, as of v. What is known and was not listed is gone.
	EndReplace(ctx context.Context, v resource.Version) error
	// Unselected hands on what Config.Matches does not match, in lists too; gone: it is deleted. So
	// it does, with nothing but the identity, an object whose last state can't be understood, when
	// the object is deleted, and when the server's history went back.
	Unselected(ctx context.Context, obj *resource.Object, gone bool) error
	// Progress: everything up to v was handed on, while only unwanted objects came. It is called
	// about each second.
	Progress(ctx context.Context, v resource.Version) error
	// Quarantine hands on what could not be understood, before it is reconciled by a list, or
	// skipped by one; the same bytes once, however often they come.
	Quarantine(ctx context.Context, u *resource.Unreadable) error
	// Skip hands on the identity of an item of a list that can't be understood and that the list
	// continues behind. An object of that key is not gone then. Without a key it may be any object,
	// and nothing is taken for gone at this list's end.
	Skip(ctx context.Context, of resource.Identity) error
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
