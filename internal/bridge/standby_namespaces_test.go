package bridge_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/testkit"
)

// scopedPair is a pair that selects the namespaces with env=prod.
type scopedPair struct {
	*pair
	namespaces *testkit.Server
}

func newScopedPair(t *testing.T) *scopedPair {
	s := &scopedPair{pair: newPair(t), namespaces: testkit.NewServer(t, namespaceType)}
	for _, r := range []*rig{s.rig, s.second} {
		r.selectNamespaces(s.namespaces)
	}
	return s
}

func (s *scopedPair) label(name, env string) { labelNamespace(s.namespaces, name, env) }

func (s *scopedPair) begin() {
	s.t.Helper()
	s.start()
	s.second.start()
	s.step()
}

// step waits until the second replica is in sync.
func (s *scopedPair) step() {
	s.t.Helper()
	s.awaits("the second replica is in sync", func() bool {
		s.Streams.Bookmark()
		s.namespaces.Streams.Bookmark()
		return s.second.Status().Standby.InSync
	})
}

// Namespaces come into the selection and leave it while one replica leads and the other stands by;
// whatever the leader had sent of that when it dies, the other sends the rest: objects that are
// older than everything that was delivered, and deletes.
func TestStandbyNamespaces(t *testing.T) {
	for name, sent := range map[string]bool{"which the leader has sent": true, "which the leader has not sent": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScopedPair(t)
				s.label("shop", "prod")
				s.label("old", "prod")
				s.label("lab", "test")
				s.Create("shop/a", nil)
				s.Create("old/o", nil)
				s.Create("lab/l", nil)
				s.begin()
				s.Update("shop/a", nil)
				s.Streams.Bookmark()
				s.settle()
				expect(t, s.broker, "added a", "added o", "synced", "updated a")
				want := []string{"added l", "deleted o", "updated l"}
				if !sent {
					s.broker.Set(testkit.Hung)
				}
				s.label("lab", "prod")
				s.label("old", "test")
				s.settle()
				s.Update("lab/l", nil)
				s.Update("old/o", nil) // nobody wants it
				time.Sleep(20 * time.Second)
				if sent {
					s.step()
					s.settle()
					expect(t, s.broker, want...)
					want = nil
				}
				lists := s.lists()
				s.die()
				s.broker.Set(testkit.Healthy)
				s.takesOver()
				s.Update("lab/l", nil)
				s.settle()
				expect(t, s.broker, append(want, "updated l")...)
				if n := s.lists() - lists; n > 0 {
					t.Errorf("%d lists", n)
				}
				s.endSecond()
			})
		})
	}
}

// The leader may learn later than its standby that a namespace is selected, or list it later: what
// it delivers until then says nothing of its objects.
func TestStandbyNamespaceFirst(t *testing.T) {
	for name, c := range map[string]struct {
		hidden string   // from the leader
		before []string // what the leader sends
	}{
		"which does not know of its label": {"/" + namespaceType.CollectionPath(""), []string{"updated a"}},
		"which can't list it":              {"/" + pods.CollectionPath("lab"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScopedPair(t)
				s.label("shop", "prod")
				s.label("lab", "test")
				s.Create("shop/a", nil)
				s.Create("lab/l", nil)
				s.begin()
				expect(t, s.broker, "added a", "synced")
				s.cfg.Client.HTTP.Transport = refusing{c.hidden, besides{s.namespaces, s.Server}}
				s.namespaces.Streams.Cut()
				s.settle()
				s.label("lab", "prod")
				time.Sleep(time.Minute)
				s.Update("lab/l", nil)
				s.Update("shop/a", nil)
				s.Streams.Bookmark()
				time.Sleep(10 * time.Second)
				s.settle()
				expect(t, s.broker, c.before...)
				s.die()
				s.takesOver()
				// the last again: the leader could not know that it was all that it had to send
				expect(t, s.broker, "added l", "updated l", "updated a")
				s.endSecond()
			})
		})
	}
}

// refusing has no way to one path.
type refusing struct {
	path   string
	others http.RoundTripper
}

func (r refusing) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Path == r.path {
		return nil, testkit.ErrCut
	}
	return r.others.RoundTrip(req)
}
