package bridge_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/testkit"
)

// both makes the same change in both versions of widgets: there is one storage.
func (f *follow) both(change func(s *testkit.Server)) {
	change(f.v1)
	change(f.v2)
}

// A resource can move to another version of the API while the bridge is down, or because the
// configuration names another. What was read in the old one may then still be on disk: as changes
// that wait for a sink, and as the last known state of an object.
func TestOldAPIVersionInBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFollow(t)
		f.cfg.Drain, f.cfg.Registerer, f.cfg.Planner = 10*time.Second, nil, nil
		change := calmBroker(t, "change")
		f.addSink(change.Name, change.Connect(0))
		f.cfg.Units[0].Sinks[1].Payload = event.PayloadChange
		f.both(func(s *testkit.Server) { s.Create("shop/a", nil); s.Create("shop/b", nil); s.Create("shop/c", nil) })
		f.begin(widgets)
		expect(t, f.sink, "added a", "added b", "added c", "synced")
		expect(t, change, "added a", "added b", "added c", "synced")
		f.sink.Set(testkit.Unreachable)
		change.Set(testkit.Unreachable)
		f.both(func(s *testkit.Server) { s.Update("shop/a", nil); s.Delete("shop/c") })
		time.Sleep(10 * time.Second) // it lies on disk
		if n := f.Status().Informers[0].SpoolBytes; n == 0 {
			t.Fatal("nothing waits on disk")
		}
		if _, err := f.end(); !errors.Is(err, bridge.ErrDrain) {
			t.Fatal(err)
		}

		f.sink.Set(testkit.Healthy)
		change.Set(testkit.Healthy)
		f.both(func(s *testkit.Server) { s.Update("shop/a", nil) })
		for i := range f.cfg.Units[0].Sinks {
			f.cfg.Units[0].Sinks[i].Resync = 5 * time.Second
		}
		f.begin(widgetsV2)
		time.Sleep(5 * time.Second)
		f.finish()
		expect(t, f.sink, "updated a", "deleted c", "updated a", "synced a", "synced b")
		for _, b := range []*testkit.Broker{f.sink, change} {
			seen := map[string]int{}
			for _, rec := range b.Records() {
				if rec.Process == 0 && rec.Name != "" {
					seen[inItsVersion(t, rec)]++
				}
			}
			if seen["example.com/v1"] == 0 || seen["example.com/v2"] == 0 {
				t.Errorf("%s has of each version: %v", b.Name, seen)
			}
		}
		// The patch leads from what the object was, in its version, to what it is.
		last := change.Records()[len(change.Records())-1]
		for _, rec := range change.Records() {
			if rec.Name == "a" && strings.HasSuffix(rec.Type, ".updated") {
				last = rec
			}
		}
		if !strings.Contains(string(last.Data), `{"op":"replace","path":"/apiVersion","value":"example.com/v2"}`) {
			t.Errorf("across the move: %s", last.Data)
		}
	})
}

// inItsVersion checks that an event's attributes are of the version that its object is in, and
// gives it.
func inItsVersion(t *testing.T, rec *testkit.Record) string {
	t.Helper()
	var data struct {
		APIVersion string
		Object     struct{ APIVersion string }
	}
	testkit.OK(t, json.Unmarshal(rec.Data, &data))
	version := data.APIVersion + data.Object.APIVersion
	if rec.APIVersion != version || !strings.HasPrefix(rec.Subject, "apis/"+version+"/") || rec.Version != version[strings.IndexByte(version, '/')+1:] {
		t.Errorf("%s: version %s, subject %s, of %s", describe(rec), rec.Version, rec.Subject, rec.Data)
	}
	return version
}
