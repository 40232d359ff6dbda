package bridge_test

import (
	"bytes"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/testkit"
)

// redacting is a unit that takes a value out of objects from now on.
func redacting(t *testing.T, u informer.Config, path string) informer.Config {
	return redactingWith(t, u, path, "0123456789abcdef")
}

func redactingWith(t *testing.T, u informer.Config, path, key string) informer.Config {
	t.Helper()
	redactor, err := resource.NewRedactor([]byte(key))
	testkit.OK(t, err)
	at, err := resource.ParsePath(path)
	testkit.OK(t, err)
	rules, err := resource.NewRules(resource.RulesConfig{Redactor: redactor, Redact: []resource.Path{at}})
	testkit.OK(t, err)
	u.Parse.Redactor, u.Parse.Rules, u.Redaction = redactor, rules, path
	return u
}

// What was read before, and waits for a sink, must not be sent as it was: the operator reads
// that the change is made. Only what is in a call of the sink at that moment is out of reach.
func TestReloadRedaction(t *testing.T) {
	type given struct {
		order     sinks.Order
		condition testkit.Condition
		latest    bool
		raw       int // that are sent after the change
	}
	for name, c := range map[string]given{
		"that is unavailable":                  {sinks.ByObject, testkit.Unreachable, false, 0},
		"that is unavailable, by lane":         {sinks.ByLane, testkit.Unreachable, false, 0},
		"that is unavailable, the newest only": {sinks.ByObject, testkit.Unreachable, true, 0},
		"that is in a call":                    {sinks.ByObject, testkit.Hung, false, 1},
		"that is in a call, by lane":           {sinks.ByLane, testkit.Hung, false, 1},
		"that is in a call, of the newest":     {sinks.ByObject, testkit.Hung, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReload(t)
				r.b.Unit = c.order
				r.one.Sinks = slices.Clone(r.one.Sinks)
				r.one.Sinks[1].Latest = c.latest
				r.cfg.Units[0] = r.one
				r.start()
				expect(t, r.b, "synced", "synced")
				r.b.Set(c.condition)
				const versions = 20
				for i := range versions {
					r.Create("shop/p", func(obj map[string]any) { obj["spec"] = map[string]any{"x": "hunter2", "n": i} })
					if i == 0 {
						r.settle()
					}
				}
				r.settle()
				done := r.change(bridge.Change{
					Informers: []string{"one", "two"}, Changed: []string{"one"}, Units: []informer.Config{redacting(t, r.one, "spec.x"), r.two}, Sinks: keep("a", "b"),
				})
				if done.UnitsRestarted != 1 {
					t.Errorf("%+v", done)
				}
				before := len(r.b.Records())
				r.b.Set(testkit.Healthy)
				time.Sleep(time.Minute)
				r.settle()
				raw, newest := 0, []byte(nil)
				for _, rec := range r.b.Records()[before:] {
					if bytes.Contains(rec.Data, []byte("hunter2")) {
						raw++
					}
					newest = rec.Data
				}
				if raw > c.raw {
					t.Errorf("%d events were sent with the value", raw)
				}
				if !bytes.Contains(newest, []byte(`"x":"redacted:`)) || !bytes.Contains(newest, []byte(`"n":`+strconv.Itoa(versions-1))) {
					t.Errorf("the newest is %s", newest)
				}
				got := slices.Compact(versionsOf(r.b))
				if !slices.IsSorted(got) || !c.latest && len(got) != versions {
					t.Errorf("%d versions were sent: %v", len(got), got)
				}
				if lists := r.Requests(testkit.Lists); len(lists) > 0 {
					t.Errorf("%d lists", len(lists))
				}
				r.finish()
			})
		})
	}
}
