package reflector_test

import (
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/bridge/internal/reflector"
	"github.com/kubebridge/bridge/internal/testkit"
)

// Before a first list is complete there is no version to resume from. What it has reported is known
// all the same, and would cover what a restored server reports.
func TestRewindInFirstList(t *testing.T) {
	for name, watchList := range map[string]bool{"by WatchList": true, "by pages": false} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T) {
				c := newCluster(t, pods)
				c.create("shop/a")
				backup := c.Version()
				c.Update("shop/a", nil)
				c.create("shop/b")
				if watchList {
					c.Faults.CutAfter(testkit.WatchLists, 1, 400)
				} else {
					c.Faults.Refuse(testkit.Continues, 1, http.StatusServiceUnavailable,
						metav1.StatusReasonServiceUnavailable)
				}
				c.follow(pods, func(cfg *reflector.Config) {
					cfg.DisableWatchList,
						cfg.PageSize = !watchList, 1
				})
				c.expect("begin initial", "replace shop/a@99")
				c.Rewind(backup)
				c.later(10 * time.Second)
				c.expect("begin initial rewound", "replace shop/a@98", "end 98")
			})
		})
	}
}

// A rewind of the server is noticed while a first list is paused.
func TestRewindInPausedList(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.SetFeatures(testkit.Features{NoInitialEnd: true})
		c.create("shop/a")
		backup := c.Version()
		c.create("shop/b")
		c.follow(pods, nil)
		c.expect("begin initial", "replace shop/a@98", "replace shop/b@99")
		c.refl.Pause()
		c.SetFeatures(testkit.Features{})
		c.Rewind(backup)
		c.refl.Resume()
		c.later(time.Second)
		c.expect("begin initial rewound", "replace shop/a@98", "end 98")
	})
}

// A rewind of the server is noticed while a list of any version fails.
// Once a version had expired, a list asks for any.
func TestRewindInAnyVersionList(t *testing.T) {
	for name, code := range map[string]int{
		"by a 410":              http.StatusGone,
		"by a 503 behind a 410": http.StatusServiceUnavailable,
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T) {
				c := newCluster(t, pods)
				c.create("shop/a")
				saved := c.Version()
				c.Skip(5)
				c.Expire()
				if code != http.StatusGone {
					c.Faults.Refuse(testkit.Lists, 1, http.StatusGone, metav1.StatusReasonExpired)
				}
				c.Faults.Answer(testkit.Lists, 1, func(w http.ResponseWriter, _ *http.Request) {
					c.Rewind("97")
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(code)
				})
				c.follow(pods, func(cfg *reflector.Config) {
					cfg.From = saved
					cfg.DisableWatchList = true
				})
				c.later(time.Minute)
				c.expect("begin rewound 98..97 rewound", "replace shop/a@98", "end 97")
			})
		})
	}
}

// A list with a known version asks first where the server is.
func TestRewindBeforeList(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.create("shop/a")
		c.follow(pods, func(cfg *reflector.Config) { cfg.Reached = "500" })
		c.expect("begin initial rewound", "replace shop/a@98", "end 98")
	})
}
