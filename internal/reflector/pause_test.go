package reflector_test

import (
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/reflector"
	"github.com/kubebridge/bridge/internal/testkit"
)

// A pause stops reading, and a resume continues from the same position.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.follow(pods, c.from(c.Version()))
		c.Create("shop/a", nil)
		c.expect("add shop/a@98")
		c.refl.Pause()
		c.later(time.Second)
		if phase, n := c.refl.Status().Phase, c.Streams.Count(); phase != reflector.Paused || n != 0 {
			t.Errorf("paused: phase %s, %d watches", phase, n)
		}
		requests := len(c.Requests(testkit.Any))
		c.Update("shop/a", nil)
		c.Delete("shop/a")
		c.later(10 * time.Minute)
		c.expect()
		if n := len(c.Requests(testkit.Any)) - requests; n > 0 {
			t.Errorf("%d requests while it is paused", n)
		}
		c.refl.Resume()
		c.refl.Resume()
		c.expect("update shop/a@99", "delete shop/a@100")
		if n := len(c.Requests(testkit.Lists)); n > 0 {
			t.Errorf("%d lists", n)
		}
	})
}

// A version that expires during a pause is a gap.
func TestPauseAndExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.follow(pods, c.from(c.Version()))
		c.refl.Pause()
		synctest.Wait()
		c.Create("shop/a", nil)
		c.Update("shop/a", nil)
		c.Expire()
		c.later(time.Minute)
		c.refl.Resume()
		c.later(time.Second)
		c.expect("begin expired 97..99", "replace shop/a@99", "end 99")
	})
}

// A pause ends a backoff, a list and a call of the store.
func TestPauseInterrupts(t *testing.T) {
	for name, fail := range map[string]func(*cluster){
		"a backoff": func(c *cluster) {
			c.Faults.Refuse(testkit.Any, -1, http.StatusForbidden,
				metav1.StatusReasonForbidden)
		},
		"a list":              func(c *cluster) { c.Faults.Hang(testkit.Any, -1) },
		"a call of the store": func(c *cluster) { c.store.set(func(s *recorder) { s.block = make(chan struct{}) }) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, pods)
				c.Create("shop/a", nil)
				fail(c)
				c.follow(pods, nil)
				c.later(3 * time.Second)
				c.store.take()
				c.refl.Pause()
				synctest.Wait()
				if phase := c.refl.Status().Phase; phase != reflector.Paused {
					t.Errorf("phase %s", phase)
				}
				c.Faults.Heal()
				c.store.set(func(s *recorder) { s.block = nil })
				c.refl.Resume()
				c.later(time.Second)
				c.expect("begin initial", "replace shop/a@98", "end 98")
			})
		})
	}
}

// A paused reflector can be stopped.
func TestPauseAndStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.follow(pods, nil)
		c.refl.Pause()
		c.refl.Pause()
		c.later(time.Minute)
		if !c.refl.Paused() {
			t.Error("it is not paused")
		}
	})
}

func TestDiverged(t *testing.T) {
	for name, test := range map[string]struct {
		early, late int // divergences before Run, and while it watches
		want        []string
	}{
		"found by an earlier run": {1, 0, []string{
			"begin rewound 98..98 rewound", "replace shop/a@98", "end 98",
		}},
		"found while it watches": {0, 1, []string{
			"begin rewound 98..98 rewound", "replace shop/a@98", "end 98",
		}},
		"found twice": {1, 1, []string{
			"begin rewound 98..98 rewound", "replace shop/a@98", "end 98",
			"begin rewound 98..98 rewound", "replace shop/a@98", "end 98",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, pods)
				c.Create("shop/a", nil)
				diverged := &ratelimit.Signal{}
				for range test.early {
					diverged.Set()
				}
				c.follow(pods, func(cfg *reflector.Config) {
					cfg.From, cfg.Diverged = c.Version(), diverged
				})
				c.later(time.Second)
				for range test.late {
					diverged.Set()
				}
				c.later(time.Second)
				c.expect(test.want...)
			})
		})
	}
}

// pausing pauses the reflector when a step has ended, the first time.
type pausing struct {
	*recorder
	pause func()
}

func (s *pausing) Flush() { s.pause() }

// A divergence is not forgotten when the probe that takes its signal is cut.
func TestDivergedAndPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.Create("shop/a", nil)
		diverged := &ratelimit.Signal{}
		diverged.Set()
		c.follow(pods, func(cfg *reflector.Config) {
			cfg.From, cfg.Diverged = c.Version(), diverged
			cfg.Store = &pausing{c.store, sync.OnceFunc(func() { c.refl.Pause() })}
		})
		c.later(time.Second)
		if phase := c.refl.Status().Phase; phase != reflector.Paused {
			t.Errorf("phase %s", phase)
		}
		c.expect()
		c.refl.Resume()
		c.later(time.Second)
		c.expect("begin rewound 98..98 rewound", "replace shop/a@98", "end 98")
	})
}
