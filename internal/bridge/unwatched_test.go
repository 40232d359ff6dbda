package bridge_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// unwatchedReport is the data of a progress event after an unwatched time.
type unwatchedReport struct {
	From, Version resource.Version
	Since, Until  time.Time
}

// unwatched returns the reports that a broker has.
func unwatched(t *testing.T, b *testkit.Broker) (list []unwatchedReport) {
	t.Helper()
	for _, rec := range b.Records() {
		if rec.Op == event.Progress {
			var r unwatchedReport
			testkit.OK(t, json.Unmarshal(rec.Data, &r))
			list = append(list, r)
		}
	}
	return list
}

// What changes while the bridge does not run has bounds, and the stream says since when nobody
// watched.
func TestUnwatched(t *testing.T) {
	for how, stop := range map[string]func(*rig){
		"a clean stop": func(r *rig) { _, _ = r.end() },
		"a crash": func(r *rig) {
			after := r.fs.CrashClone(crashed)
			_, _ = r.end()
			r.fs = after
		},
	} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := calmBroker(t, "sink")
				r := newRig(t, b)
				for _, name := range []resource.Key{"shop/stays", "shop/changes", "shop/goes"} {
					r.Create(name, nil)
				}
				r.start()
				time.Sleep(time.Minute)
				r.Update("shop/changes", nil) // observed at once: it has no bounds
				r.Streams.Bookmark()
				r.settle()
				stopped := time.Now()
				stop(r)
				time.Sleep(5 * time.Minute)
				r.Update("shop/changes", nil)
				r.Delete("shop/goes")
				r.Create("shop/comes", nil) // at the time of its managedFields
				made := time.Now()
				time.Sleep(time.Minute)
				r.start()
				started := time.Now()
				r.Streams.Bookmark()
				r.settle()
				late := 0
				for _, rec := range b.Records() {
					isLate := rec.TimeSource == event.TimeObserved && rec.Time.After(stopped) // else its time is its own
					if isLate == rec.NotBefore.IsZero() {
						t.Errorf("%s of %s at %s is not before %s", rec.Op, rec.Name, rec.Time, rec.NotBefore)
					}
					if rec.NotBefore.IsZero() {
						continue
					}
					late++
					if rec.NotBefore.Before(stopped.Add(-event.MaxUnwatched)) || rec.NotBefore.After(made) || rec.Time.Before(made) || rec.Time.After(started) {
						t.Errorf("%s of %s between %s and %s; it was at %s", rec.Op, rec.Name, rec.NotBefore, rec.Time, made)
					}
				}
				reports := unwatched(t, b)
				if late != 2 || len(reports) != 1 {
					t.Fatalf("%d late changes, reports %+v", late, reports)
				}
				if u := reports[0]; u.Since.After(stopped) || u.Since.Before(stopped.Add(-event.MaxUnwatched)) || u.Version != r.Version() {
					t.Errorf("%+v, of a stop at %s", u, stopped)
				}
				_, err := r.end()
				testkit.OK(t, err)
				r.start() // at once: somebody has always watched
				r.Streams.Bookmark()
				r.settle()
				if n := len(unwatched(t, b)); n != 1 {
					t.Errorf("%d reports after a restart that took no time", n)
				}
				_, err = r.end()
				testkit.OK(t, err)
			})
		})
	}
}

// The API server comes back after the bridge, and confirms what was read still later: nobody
// watched until it was back, and no longer.
func TestUnwatchedUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := calmBroker(t, "sink")
		r := newRig(t, b)
		r.Create("shop/stays", nil)
		r.start()
		time.Sleep(time.Minute)
		r.Streams.Bookmark()
		r.settle()
		_, err := r.end()
		testkit.OK(t, err)
		stopped := time.Now()
		time.Sleep(time.Minute)
		r.Faults.Refuse(testkit.Any, 8, http.StatusServiceUnavailable, "ServiceUnavailable")
		r.start()
		for !r.Status().Informers[0].Synced {
			time.Sleep(time.Second)
		}
		back := time.Now()
		time.Sleep(3 * time.Minute)
		r.Streams.Bookmark()
		r.settle()
		reports := unwatched(t, b)
		if len(reports) != 1 {
			t.Fatalf("%+v", reports)
		}
		if u := reports[0]; u.Until.Sub(back).Abs() > 3*time.Second || back.Sub(stopped) < 80*time.Second {
			t.Errorf("%+v, of a stop at %s; it was back at %s", u, stopped, back)
		}
		_, err = r.end()
		testkit.OK(t, err)
	})
}

// An etcd is restored, and the list that shows it comes later: the versions of the restored history
// say nothing of the time at which the objects went back.
func TestUnwatchedRewound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := calmBroker(t, "sink")
		r := newRig(t, b)
		for _, key := range []resource.Key{"shop/a", "shop/b"} {
			r.Create(key, nil)
		}
		backup := r.Version()
		r.start()
		time.Sleep(time.Minute)
		r.Update("shop/a", nil)
		r.Delete("shop/b")
		r.settle()
		for _, request := range []testkit.Match{testkit.Watches, testkit.Lists} { // the clock is answered
			r.Faults.Refuse(request, -1, http.StatusServiceUnavailable, "ServiceUnavailable")
		}
		r.Rewind(backup)
		restored := time.Now()
		time.Sleep(3 * time.Minute)
		r.Faults.Heal()
		time.Sleep(time.Minute)
		r.settle()
		kinds := map[event.Op]int{}
		for _, rec := range b.Records() {
			if !rec.Inferred {
				continue
			}
			kinds[rec.Op]++
			since := rec.NotBefore
			if rec.Op == event.Gap {
				var data struct{ Since time.Time }
				testkit.OK(t, json.Unmarshal(rec.Data, &data))
				since = data.Since
				if since.IsZero() {
					t.Error("the gap does not say when the watch ended")
				}
			}
			if since.After(restored) {
				t.Errorf("%s of %q not before %s; the restore was at %s", rec.Op, rec.Name, since, restored)
			}
		}
		if kinds[event.Gap] != 1 || kinds[event.Updated] != 1 || kinds[event.Added] != 1 {
			t.Errorf("%v: the test shows nothing", kinds)
		}
		_, err := r.end()
		testkit.OK(t, err)
	})
}

// What is deleted while the API server is unreachable for some seconds has bounds, as after a
// restart. What is deleted behind that has none, and nor has what is deleted while a watch is
// followed by another one.
func TestInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := calmBroker(t, "sink")
		r := newRig(t, b)
		for _, name := range []resource.Key{"shop/before", "shop/during", "shop/behind", "shop/between"} {
			r.Create(name, nil)
		}
		r.start()
		time.Sleep(time.Minute)
		r.Delete("shop/before")
		r.settle()
		r.Faults.Refuse(testkit.Any, 2, http.StatusForbidden, metav1.StatusReasonForbidden)
		cut := time.Now()
		r.Streams.Cut()
		time.Sleep(2 * time.Second)
		r.Delete("shop/during")
		made := time.Now()
		for r.Streams.Count() == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		reopened := time.Now()
		r.settle()
		time.Sleep(time.Second)
		r.Delete("shop/behind")
		r.settle()
		r.Streams.Close()
		r.Delete("shop/between")
		r.settle()
		if took := reopened.Sub(cut); !reopened.After(made) || took > event.MaxUnwatched/2 {
			t.Errorf("the watch was interrupted for %s", took) // two delays: 2.4 to 4.8 s
		}
		deletes := 0
		for _, rec := range b.Records() {
			if rec.Op != event.Deleted {
				continue
			}
			deletes++
			isDuring := rec.Name == "during"
			if isDuring == rec.NotBefore.IsZero() {
				t.Errorf("%s was deleted at %s, not before %s", rec.Name, rec.Time, rec.NotBefore)
			}
			if isDuring && (rec.NotBefore.After(made) || rec.Time.Before(made)) {
				t.Errorf("%s was deleted between %s and %s; it was at %s", rec.Name, rec.NotBefore, rec.Time, made)
			}
		}
		if deletes != 4 {
			t.Errorf("%d deletes", deletes)
		}
		r.Streams.Bookmark()
		r.settle()
		if reports := unwatched(t, b); len(reports) != 1 || reports[0].Since.After(cut) || reports[0].Until.Before(made) {
			t.Errorf("%+v, of an interruption from %s to %s", reports, cut, reopened)
		}
		_, err := r.end()
		testkit.OK(t, err)
	})
}
