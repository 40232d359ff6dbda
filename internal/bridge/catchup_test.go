package bridge_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/testkit"
)

// flooded is a bridge in whose state a flood of updates has left objects behind.
type flooded struct {
	*rig
	lake    *testkit.Broker
	objects int
}

// newFlooded makes objects, in pages of ten, and updates all of them at once; a body a second is
// written, two at once.
func newFlooded(t *testing.T, objects int, options ...func(*bridge.Config)) *flooded {
	f := &flooded{lake: calmBroker(t, "lake"), objects: objects}
	f.rig = newRig(t, f.lake)
	f.bodies = 1
	f.cfg.Units[0].Reflector.PageSize = 10
	for _, option := range options {
		option(&f.cfg)
	}
	for i := range objects {
		f.Create(key(i), func(obj map[string]any) { // only real uids are remembered
			obj["metadata"].(map[string]any)["uid"] = fmt.Sprintf("00000000-0000-4000-8000-%012d", i)
		})
	}
	f.start()
	f.commit() // the first list
	f.flood(objects)
	f.commit()
	if n := f.behind(); n < objects/2 {
		t.Fatalf("the flood left %d of %d objects behind", n, objects)
	}
	f.lake.Next()
	return f
}

// commit waits until what is settled is committed.
func (f *flooded) commit() {
	time.Sleep(f.cfg.CommitInterval)
	f.settle()
}

func (f *flooded) flood(objects int) {
	for i := range objects {
		f.Update(key(i), nil)
	}
}

func (f *flooded) behind() int { return f.Status().Informers[0].BodiesBehind }

// earlier counts the objects that are on disk in an earlier version than they were sent, whatever
// the bridge says of it.
func (f *flooded) earlier() (n int) {
	f.t.Helper()
	for i := range f.objects {
		namespace, name := key(i).Split()
		states, err := f.Object("pods", namespace, name)
		testkit.OK(f.t, err)
		if s := states[0]; s.Earlier != "" {
			n++
		} else if !strings.Contains(string(s.Object), fmt.Sprintf(`"resourceVersion":%q`, s.Version)) {
			f.t.Errorf("as version %s there is %s", s.Version, s.Object)
		}
	}
	return n
}

// asked are the requests for objects since the first n of all.
func (f *flooded) asked(since int) []testkit.Request {
	var asked []testkit.Request
	for _, q := range f.Requests(testkit.Any)[since:] {
		if !testkit.Watches(q) && !testkit.Probes(q) { // those of the version clock
			asked = append(asked, q)
		}
	}
	return asked
}

func (f *flooded) finish() {
	f.t.Helper()
	_, err := f.end()
	testkit.OK(f.t, err)
}

// upToDate waits until nothing is behind, and no longer than a time.
func (f *flooded) upToDate(within time.Duration) {
	f.t.Helper()
	time.Sleep(within)
	synctest.Wait()
	if n, earlier := f.behind(), f.earlier(); n > 0 || earlier > 0 {
		f.t.Errorf("%d objects are said to be behind, %d are", n, earlier)
	}
}

// What a flood left stale is brought up to date when the resource is quiet again.
func TestCatchup(t *testing.T) {
	for _, test := range []struct {
		name string
		then func(f *flooded)
		long bool // not in the everyday form
	}{
		{"in the same run", func(*flooded) {}, true},
		{"after a stop", func(f *flooded) {
			f.finish()
			f.start()
		}, true},
		{"after a crash", func(f *flooded) {
			after := f.fs.CrashClone(crashed)
			f.finish()
			f.fs = after
			f.start()
		}, false},
		{"after a request that failed", func(f *flooded) {
			f.Faults.Refuse(testkit.Lists, 2, http.StatusInternalServerError, metav1.StatusReasonInternalError)
		}, true},
		{"after a token has expired", func(f *flooded) {
			const later = "later-" // the rest is to be had, of a later version
			isLater := func(q testkit.Request) bool { return strings.HasPrefix(q.Query.Get("continue"), later) }
			f.Faults.Answer(func(q testkit.Request) bool { return testkit.Continues(q) && !isLater(q) }, -1, func(w http.ResponseWriter, r *http.Request) {
				status := testkit.NewStatus(http.StatusGone, metav1.StatusReasonExpired)
				status.Continue = later + r.URL.Query().Get("continue")
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusGone)
				_ = json.NewEncoder(w).Encode(status) // the client may be gone
			})
			f.Faults.Wrap(isLater, -1, func(served http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					q := r.URL.Query()
					q.Set("continue", strings.TrimPrefix(q.Get("continue"), later))
					r.URL.RawQuery = q.Encode()
					served.ServeHTTP(w, r)
				})
			})
		}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.long && testing.Short() {
				t.Skip("after a crash and without a token, all of it happens")
			}
			synctest.Test(t, func(t *testing.T) {
				f := newFlooded(t, 45)
				if n, earlier := f.behind(), f.earlier(); n != earlier {
					t.Errorf("%d objects are said to be behind, %d are", n, earlier)
				}
				test.then(f)
				before := len(f.Requests(testkit.Any))
				f.upToDate(5 * time.Minute)
				if n := len(f.asked(before)); n < 4 || n > 12 {
					t.Errorf("%d requests, for 5 pages", n)
				}
				before = len(f.Requests(testkit.Any))
				time.Sleep(3 * time.Hour)
				synctest.Wait()
				if asked := f.asked(before); len(asked) > 0 {
					t.Errorf("nothing is behind, and still there are %d requests", len(asked))
				}
				expect(t, f.lake) // sinks get nothing of it
				f.finish()
			})
		})
	}
}

// A few stale objects are requested by name.
func TestCatchupByName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFlooded(t, 45)
		f.upToDate(5 * time.Minute)
		f.flood(5) // two are written at once
		f.settle()
		if n := f.behind(); n < 2 || n > 4 {
			t.Fatalf("%d are behind", n)
		}
		few, before := f.behind(), len(f.Requests(testkit.Any))
		f.upToDate(5 * time.Minute)
		asked := f.asked(before)
		for _, q := range asked {
			if !strings.HasPrefix(q.Query.Get("fieldSelector"), "metadata.name=pod-") {
				t.Errorf("asked for %v", q.Query)
			}
		}
		if len(asked) != few {
			t.Errorf("%d requests for %d objects", len(asked), few)
		}
		f.finish()
	})
}

// Stale objects are requested by pages where names can't be selected.
func TestCatchupByPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFlooded(t, 45)
		f.upToDate(5 * time.Minute)
		f.flood(4)
		f.settle()
		byName := func(q testkit.Request) bool { return q.Query.Get("fieldSelector") != "" }
		f.Faults.Answer(byName, -1, func(w http.ResponseWriter, _ *http.Request) { // as it does not know the selector
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"other","namespace":"shop","uid":"u","resourceVersion":"1"}}]}`)
		})
		f.upToDate(5 * time.Minute)
		f.finish()
	})
}

// Nothing is requested during a flood.
func TestCatchupDuringFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFlooded(t, 45)
		before := len(f.Requests(testkit.Any))
		for range 60 {
			f.flood(20)
			time.Sleep(4 * time.Second)
		}
		synctest.Wait()
		if asked := f.asked(before); len(asked) > 0 {
			t.Errorf("%d requests", len(asked))
		}
		f.upToDate(10 * time.Minute)
		f.finish()
	})
}

// A flood ends the rest of a catch-up.
// One that comes amid a pass ends it.
func TestCatchupInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFlooded(t, 200)
		before := len(f.Requests(testkit.Any))
		for len(f.asked(before)) < 5 {
			time.Sleep(time.Second)
		}
		for range 30 {
			f.flood(50)
			time.Sleep(4 * time.Second)
		}
		if n := len(f.asked(before)); n > 7 {
			t.Errorf("%d requests", n)
		}
		f.upToDate(10 * time.Minute)
		f.finish()
	})
}

// A snapshot has the objects that a flood left stale.
func TestSnapshotAfterFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFlooded(t, 45)
		_, err := f.SendSnapshot(t.Context(), informer.SnapshotRequest{Informer: "all"})
		testkit.OK(t, err)
		f.settle()
		var lines []string
		for i := range f.objects {
			_, name := key(i).Split()
			lines = append(lines, "synced "+name)
		}
		expect(t, f.lake, lines...)
		if n := f.earlier(); n > 0 {
			t.Errorf("%d objects are behind", n)
		}
		f.finish()
	})
}

// What sinks have had before the snapshot was asked for is in it, also what no commit had by then.
func TestSnapshotBeforeCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFlooded(t, 45, func(c *bridge.Config) { c.CommitInterval = time.Minute })
		f.flood(f.objects)
		f.settle()
		f.lake.Next()
		_, err := f.SendSnapshot(t.Context(), informer.SnapshotRequest{Informer: "all"})
		testkit.OK(t, err)
		f.commit()
		if n := len(f.lake.Next()); n != f.objects {
			t.Errorf("%d of %d objects came", n, f.objects)
		}
		f.finish()
	})
}

// A snapshot amid a flood has everything.
// Each object comes, by the snapshot or by a change that was made after it was asked for.
func TestSnapshotDuringFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFlooded(t, 100)
		_, err := f.SendSnapshot(t.Context(), informer.SnapshotRequest{Informer: "all"})
		testkit.OK(t, err)
		for i := range 30 {
			for j := range 20 {
				f.Update(key((20*i+j)%60), nil) // the others do not change
			}
			time.Sleep(100 * time.Millisecond)
		}
		f.settle()
		came := map[string]bool{}
		for _, rec := range f.lake.Next() {
			came[rec.Name] = true
		}
		for i := range f.objects {
			if _, name := key(i).Split(); !came[name] {
				t.Errorf("%s did not come", name)
			}
		}
		f.finish()
	})
}

// A snapshot reports how many objects it could not read.
func TestSnapshotReadErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFlooded(t, 45)
		behind := f.behind()
		f.Faults.Refuse(testkit.Lists, -1, http.StatusForbidden, metav1.StatusReasonForbidden)
		_, err := f.SendSnapshot(t.Context(), informer.SnapshotRequest{Informer: "all"})
		testkit.OK(t, err)
		time.Sleep(time.Minute)
		f.settle()
		if n := len(f.lake.Next()); n != f.objects-behind {
			t.Errorf("%d were sent of %d, of which %d are behind", n, f.objects, behind)
		}
		if log := f.log.String(); !strings.Contains(log, fmt.Sprintf("left_out=%d", behind)) {
			t.Errorf("the log does not report the %d", behind)
		}
		f.finish()
	})
}

// An inferred delete has the last state when the resource was quiet.
// What a gap has deleted is reported with the last state that was sent.
func TestInferredDeleteAfterFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFlooded(t, 45)
		f.upToDate(5 * time.Minute)
		f.finish()
		f.Delete(key(0), key(44))
		f.Expire()
		f.start()
		found := 0
		for _, rec := range f.lake.Next() {
			if !rec.Inferred || !strings.HasSuffix(rec.Type, ".deleted") {
				continue
			}
			found++
			var obj struct {
				Metadata struct{ ResourceVersion string }
			}
			testkit.OK(t, json.Unmarshal(rec.Data, &obj))
			if obj.Metadata.ResourceVersion != rec.ResourceVersion {
				t.Errorf("version %s has an object of version %s", rec.ResourceVersion, obj.Metadata.ResourceVersion)
			}
		}
		if found != 2 {
			t.Errorf("%d deletes were inferred", found)
		}
		f.finish()
	})
}
