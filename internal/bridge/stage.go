package bridge

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/kubebridge/bridge/internal/publisher"
)

// errDone is the cause with which a stage is stopped when nothing needs it any more.
var errDone = errors.New("done")

// stage is goroutines that are stopped together, after the stages before them.
type stage struct {
	stop   context.CancelCauseFunc
	failed context.CancelCauseFunc
	wg     sync.WaitGroup

	mu   sync.Mutex
	late []error // what went wrong after the stage was stopped, such as the last commit
}

// newStage makes a stage that ends with parent, and the context that ends with the stage. A failure
// in it is passed to failed, which ends everything.
func newStage(parent context.Context, failed context.CancelCauseFunc) (*stage, context.Context) {
	ctx, stop := context.WithCancelCause(parent)
	return &stage{stop: stop, failed: failed}, ctx
}

// start runs one goroutine of the stage, whose context ctx is. A name is put before its error.
func (s *stage) start(ctx context.Context, name string, run func(context.Context) error) {
	s.wg.Go(func() {
		err := run(ctx)
		if err != nil && name != "" {
			err = fmt.Errorf("%s: %w", name, err)
		}
		switch {
		case err == nil, errors.Is(err, context.Canceled),
			ctx.Err() != nil && errors.Is(err, context.Cause(ctx)):
		case ctx.Err() == nil:
			s.failed(err)
		case errors.Is(err, publisher.ErrStopped): // follows from what was reported already
		default:
			s.mu.Lock()
			defer s.mu.Unlock()
			s.late = append(s.late, err)
		}
	})
}

// wait waits until the stage's goroutines have ended by themselves.
func (s *stage) wait() error {
	s.wg.Wait()
	s.stop(errDone)
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.late...)
}

// end stops the stage and waits for it.
func (s *stage) end() error {
	s.stop(errDone)
	return s.wait()
}
