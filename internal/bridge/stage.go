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
	ctx    context.Context
	stop   context.CancelCauseFunc
	failed context.CancelCauseFunc
	wg     sync.WaitGroup

	mu   sync.Mutex
	late []error // what went wrong after the stage was stopped, such as the last commit
}

// newStage makes a stage that ends with parent. A failure in it is passed to failed, which ends
// everything.
func newStage(parent context.Context, failed context.CancelCauseFunc) *stage {
	ctx, stop := context.WithCancelCause(parent)
	return &stage{ctx: ctx, stop: stop, failed: failed}
}

// start runs one goroutine of the stage. A name is put before its error.
func (s *stage) start(name string, run func(context.Context) error) {
	s.wg.Go(func() {
		err := run(s.ctx)
		if err != nil && name != "" {
			err = fmt.Errorf("%s: %w", name, err)
		}
		switch {
		case err == nil, errors.Is(err, context.Canceled), s.ctx.Err() != nil && errors.Is(err, context.Cause(s.ctx)):
		case s.ctx.Err() == nil:
			s.failed(err)
		case errors.Is(err, publisher.ErrStopped): // follows from what was told already
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
