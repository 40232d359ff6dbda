package reflector_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/reflector"
)

// What answers at the API server's address after a failure may be another cluster. Nothing of it
// may be read: its objects would be taken for changes, and the missing ones for deletes.
func TestAnotherCluster(t *testing.T) {
	for name, relist := range map[string]bool{
		"where the watch would continue":   false,
		"where everything would be listed": true,
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T) {
				c := newCluster(t, pods)
				c.create("shop/a")
				var asked atomic.Int32
				ended := make(chan error, 1)
				r, err := reflector.New(reflector.Config{
					Client: &reflector.Client{
						HTTP: c.HTTP(),
						Base: c.URL(),
					}, Store: c.store, Type: pods, From: c.Version(),
					Identify: func(context.Context) error {
						if asked.Add(1) == 1 {
							return errors.New("it does not answer")
						}
						return fmt.Errorf("%w: the uid differs", reflector.ErrOtherCluster)
					},
				})
				if err != nil {
					t.Fatal(err)
				}
				go func() { ended <- r.Run(t.Context()) }()
				synctest.Wait()
				if n := asked.Load(); n != 0 {
					t.Errorf("it was asked %d times at the start", n)
				}
				c.Streams.Cut()
				synctest.Wait() // what is written now still goes out otherwise
				c.create("shop/b")
				if relist {
					c.Skip(1)
					c.Expire()
				}
				c.later(time.Minute)
				c.expect()
				select {
				case err := <-ended:
					if !errors.Is(err, reflector.ErrOtherCluster) {
						t.Errorf("Run: %v", err)
					}
				default:
					t.Error("Run continues")
				}
			})
		})
	}
}
