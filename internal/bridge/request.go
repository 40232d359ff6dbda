package bridge

import (
	"context"
	"errors"
)

// ErrStopping is returned for what is asked of a bridge that is being stopped, or has ended.
var ErrStopping = errors.New("the bridge is stopping")

// request is something that the reconciler is to do.
type request struct {
	do     func(ctx context.Context, f *reconciler) error
	result chan error // holds one
}

// fatalError ends the bridge: what was begun can be neither finished nor taken back.
type fatalError struct{ err error }

func (e *fatalError) Error() string { return e.err.Error() }
func (e *fatalError) Unwrap() error { return e.err }

// answer does it. The error is one that ends the bridge.
func (r *request) answer(ctx context.Context, f *reconciler) error {
	err := r.do(ctx, f)
	r.result <- err
	if fatal, ok := errors.AsType[*fatalError](err); ok {
		return fatal.err
	}
	return nil
}

// do has the reconciler do something, after what it does now. It waits for a bridge that is
// starting. When ctx ends meanwhile, it is done all the same, and waited for: the caller has to
// know what the bridge is now.
func (b *Bridge) do(ctx context.Context, do func(context.Context, *reconciler) error) error {
	r := &request{do: do, result: make(chan error, 1)}
	select {
	case b.requests <- r:
	case <-b.ended:
		return ErrStopping
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return <-r.result
}
