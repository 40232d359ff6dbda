package resource_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubebridge/bridge/internal/resource"
)

// Labels are selected in the bytes of an object.
func TestLabelSelection(t *testing.T) {
	for _, tt := range []struct{ object, selector, matches string }{
		{`{"metadata":{"labels":{"app":"web","tier":""}}}`, "app=web,tier,tier!=x,!none", "yes"},
		{`{"metadata":{"labels":{"app":"web"}}}`, "app in (a,b)", "no"},
		{`{"spec":{"labels":{"app":"web"}},"metadata":{"name":"x"}}`, "app=web", "no"},
		{`{"metadata":{"name":"x"}}`, "!app", "yes"},
		{`{"metadata":{"name":"x"}}`, "app notin (web)", "yes"},
		{`{"metadata":{"labels":null}}`, "app", "no"},
		{`{"metadata":{"labels":{"\u0061pp":"w\u0065b"}}}`, "app=web", "yes"},
		{`{"metadata":{"labels":{"size":"7"}}}`, "size>6,size<8", "yes"},
	} {
		selector, err := labels.Parse(tt.selector)
		if err != nil {
			t.Fatal(err)
		}
		obj := &resource.Object{Raw: []byte(tt.object)}
		if got := selector.Matches(obj.Labels()); got != (tt.matches == "yes") {
			t.Errorf("%s of %s: %t", tt.selector, tt.object, got)
		}
	}
}

// A selection costs three allocations.
func TestLabelAllocations(t *testing.T) {
	selector, err := labels.Parse("app=web,tier in (a,b)")
	if err != nil {
		t.Fatal(err)
	}
	obj := &resource.Object{Raw: []byte(`{"kind":"Pod","metadata":{"name":"x","labels":{"x":"y","tier":"a","app":"web"}},"spec":{}}`)}
	matched := true
	allocs := testing.AllocsPerRun(100, func() { matched = matched && selector.Matches(obj.Labels()) })
	if !matched || allocs > 3 {
		t.Errorf("matched: %t, %.0f allocations", matched, allocs)
	}
}
