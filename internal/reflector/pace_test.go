package reflector_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/bridge/internal/reflector"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// An expired version is listed at once, however often requests failed before.
func TestExpiryAfterFailures(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.create("shop/a")
		c.follow(pods, c.from(c.Version()))
		c.create("shop/b")
		c.expect("add shop/b@99")
		c.Faults.Break(testkit.Any, 8)
		c.Streams.Cut()
		c.Skip(1)
		c.Expire() // 98, from which the watch continues first, and 99
		c.later(5 * time.Minute)
		c.expect("begin expired 99..100", "replace shop/a@98", "replace shop/b@99", "end 100")
		all := c.Requests(testkit.Any)
		gone := slices.IndexFunc(all, func(r testkit.Request) bool {
			return testkit.Watches(r) && r.Query.Get("resourceVersion") == "98" &&
				!r.Time.Equal(all[0].Time)
		})
		list := slices.IndexFunc(all, testkit.WatchLists)
		if gone < 0 || list < gone {
			t.Fatalf("requests: %v", all)
		}
		if waited := all[list].Time.Sub(all[gone].Time); waited > 0 {
			t.Errorf("%v lie between the 410 and the list", waited)
		}
	})
}

// Versions that expire in a row are listed at growing intervals.
func TestExpiryInARow(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		watches := func(r testkit.Request) bool {
			return testkit.Watches(r) &&
				!testkit.WatchLists(r)
		}
		c.Faults.Refuse(watches, -1, http.StatusGone, metav1.StatusReasonExpired)
		c.follow(pods, func(cfg *reflector.Config) {
			cfg.From, cfg.DisableWatchList = c.Version(), true
			cfg.Backoff = reflector.Backoff{Initial: time.Second, Max: 4 * time.Second, Jitter: -1}
		})
		c.later(20 * time.Second)
		lists := c.Requests(testkit.Lists)
		want := []time.Duration{1, 2, 4, 4}
		if len(lists) <= len(want) {
			t.Fatalf("%d lists, want more than %d", len(lists), len(want))
		}
		for i := range want {
			if got := lists[i+1].Time.Sub(lists[i].Time); got != want[i]*time.Second {
				t.Errorf("wait %d: %s, want %ds", i, got, want[i])
			}
		}
	})
}

// A connection that is cut now and then, with something coming through between, does not make the
// backoff grow.
func TestCutsWithProgress(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.follow(pods, c.from(c.Version()))
		for range 10 {
			c.create("shop/a")
			synctest.Wait()
			c.Delete("shop/a")
			synctest.Wait()
			c.Streams.Cut()
			c.later(1600 * time.Millisecond) // the first wait, with jitter
			if c.Streams.Count() != 1 {
				t.Fatal("it is not watching again")
			}
		}
		c.expectRequests(testkit.Lists, 0, "lists")
	})
}

// A connection that is lost between frames is not reported as cut within one.
func TestCutBetweenFrames(t *testing.T) {
	const whole = `{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"98"}}}`
	for text, amid := range map[string]bool{
		"": false, whole: false, whole + "\n": false,
		whole + `{`: true, whole + whole[:20]: true, whole + whole[:40]: true,
	} {
		for _, cause := range []error{
			io.ErrUnexpectedEOF, syscall.ECONNRESET,
			fmt.Errorf("proxy: %w", io.EOF),
		} {
			read := 0
			lost := io.MultiReader(strings.NewReader(text), iotest.ErrReader(cause))
			err := reflector.EachFrame(lost, testLimit, resource.ParseOptions{},
				func(reflector.Frame) { read++ })
			if reflector.IsCut(err) != amid || reflector.IsDropped(err) == amid ||
				reflector.IsUnreadable(err) {
				t.Errorf("%q, %v: %v", text, cause, err)
			}
			if want := strings.Count(text, "}}}"); read != want {
				t.Errorf("%q: %d frames, want %d", text, read, want)
			}
		}
	}
}
