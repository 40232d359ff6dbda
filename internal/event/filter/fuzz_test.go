package filter_test

import (
	"testing"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/event/filter"
	"github.com/kubebridge/bridge/internal/resource"
)

// FuzzFilter evaluates filters over objects as a tenant may write them. Whatever these are, a
// filter ends, and the same objects give the same answer. An object equals itself.
func FuzzFilter(f *testing.F) {
	path, err := resource.ParsePath("status.conditions.*.lastProbeTime")
	if err != nil {
		f.Fatal(err)
	}
	var filters []*filter.Filter
	for _, text := range []string{
		`object.spec == old.spec && object.metadata != old.metadata`,
		`object.status.phase in ["Failed", "Unknown"] || size(object.data) > 2`,
		`object.items.exists(x, x.a == old.b) || meta.labels["a"].startsWith("x")`,
	} {
		filters = append(filters, filter.New(filter.Rules{Expression: compile(f, text)}, pods))
	}
	filters = append(filters, filter.New(filter.Rules{Ignore: []resource.Path{path}, On: []string{"spec"}}, pods))
	same := filter.New(filter.Rules{Expression: compile(f, `object == old`)}, pods)
	f.Add([]byte(before), []byte(after))
	f.Add([]byte(`{"metadata":{"name":"a","resourceVersion":"1"},"spec":{"a":[1,2.0,null,"\ud83d"]}}`), []byte(`{"metadata":{"name":"a","resourceVersion":"1","name":"b"},"spec":1e999}`))
	f.Fuzz(func(t *testing.T, old, now []byte) {
		if len(old)+len(now) > 4096 {
			return
		}
		a, errOld := resource.Parse(old, resource.ParseOptions{})
		b, errNow := resource.Parse(now, resource.ParseOptions{})
		if errOld != nil || errNow != nil {
			return
		}
		c := &event.Change{Op: event.Updated, Key: "shop/web", Object: b, Old: a, UID: "u", Version: "8"}
		for _, f := range filters {
			reason, err := f.Rejects(c)
			if again, errAgain := f.Rejects(c); again != reason || (err == nil) != (errAgain == nil) {
				t.Errorf("first %q, %v, then %q, %v", reason, err, again, errAgain)
			}
		}
		c.Old = b
		if reason, err := same.Rejects(c); err == nil && reason != "" {
			t.Errorf("%s does not equal itself", b.Raw)
		}
	})
}
