package resource_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/resource"
)

// owned is a version of an object, of which managers own fields: "manager at fieldsV1". at is a
// second, a time, or - for none.
func owned(t testing.TB, body string, entries ...string) *resource.Object {
	t.Helper()
	var fields []string
	for _, e := range entries {
		text := strings.SplitN(e, " ", 3)
		at := `"time":"` + text[1] + `",`
		switch len(text[1]) {
		case len("-"):
			at = ""
		case len("09"):
			at = `"time":"` + second + text[1] + `Z",`
		}
		fields = append(fields, `{"manager":"`+text[0]+`","operation":"Update",`+at+`"fieldsV1":`+text[2]+`}`)
	}
	obj, err := resource.Parse([]byte(`{"metadata":{"name":"a","resourceVersion":"`+fmt.Sprint(len(entries))+`","managedFields":[`+
		strings.Join(fields, ",")+`]`+body+`}`), resource.ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return obj
}

func TestSetter(t *testing.T) {
	const kubelet = `kubelet 09 {"f:status":{"f:conditions":{".":{},"k:{\"type\":\"Ready\"}":{".":{},"f:status":{},"f:type":{}}},"f:containerStatuses":{}}}`
	const labels = `kubectl 09 {"f:metadata":{"f:labels":{".":{},"f:app":{}}},"f:spec":{"f:replicas":{}}}`
	for _, tt := range []struct {
		name, was, is string
		entries       []string
		by            string
		isUnset       bool
	}{
		{name: "a value", was: `},"spec":{"replicas":1}`, is: `},"spec":{"replicas":2}`, entries: []string{labels, kubelet}, by: "kubectl"},
		{name: "a value of one without a time", was: `},"spec":{"replicas":1}`, is: `},"spec":{"replicas":2}`, entries: []string{`scaler - {"f:spec":{"f:replicas":{}}}`, kubelet}, by: "scaler"},
		{name: "a new object with a value in it", was: `}`, is: `,"labels":{"app":"x"}}`, entries: []string{labels, kubelet}, by: "kubectl"},
		{name: "a value that two own", was: `},"spec":{"replicas":1}`, is: `},"spec":{"replicas":2}`, entries: []string{labels, `other 09 {"f:spec":{"f:replicas":{}}}`}},
		{name: "two values, one of which two own", was: `,"labels":{"app":"x"}},"spec":{"replicas":1}`, is: `,"labels":{"app":"y"}},"spec":{"replicas":2}`, entries: []string{labels, `other 09 {"f:spec":{"f:replicas":{}}}`}, by: "kubectl"},
		{name: "values of two", was: `},"spec":{"replicas":1},"status":{"containerStatuses":[1]}`, is: `},"spec":{"replicas":2},"status":{"containerStatuses":[2]}`, entries: []string{labels, kubelet}},
		{name: "a value without an owner", was: `},"spec":{}`, is: `},"spec":{"nodeName":"n1"}`, entries: []string{labels, kubelet}},
		{name: "a value of an older entry", was: `},"spec":{"replicas":1}`, is: `},"spec":{"replicas":2}`, entries: []string{strings.Replace(labels, " 09 ", " 08 ", 1), kubelet}},
		{name: "a value, beside an entry of the future", was: `},"spec":{"replicas":1}`, is: `},"spec":{"replicas":2}`, entries: []string{labels, strings.Replace(kubelet, " 09 ", " 2100-01-01T00:00:00Z ", 1)}, by: "kubectl"},
		{name: "an item by its key", was: `},"status":{"conditions":[{"type":"Old","status":"True"},{"type":"Ready","status":"True"}]}`, is: `},"status":{"conditions":[{"type":"Ready","status":"False"}]}`, entries: []string{labels, kubelet}, by: "kubelet"},
		{name: "an item without an owner", was: `},"status":{"conditions":[{"type":"Ready","status":"True"}]}`, is: `},"status":{"conditions":[{"type":"Ready","status":"True"},{"type":"DisruptionTarget","status":"True"}]}`, entries: []string{labels, kubelet}},
		{name: "a list that is one value", was: `},"status":{"containerStatuses":[{"name":"a"},{"name":"b"}]}`, is: `},"status":{"containerStatuses":[{"name":"a"}]}`, entries: []string{labels, kubelet}, by: "kubelet"},
		{name: "an item of a set", was: `,"finalizers":["x"]}`, is: `,"finalizers":["y\/z","x"]}`, entries: []string{`operator 09 {"f:metadata":{"f:finalizers":{".":{},"v:\"y/z\"":{}}}}`, kubelet}, by: "operator"},
		{name: "an item of a set of an older entry", was: `,"finalizers":["x"]}`, is: `,"finalizers":["x","y"]}`, entries: []string{`operator 08 {"f:metadata":{"f:finalizers":{".":{},"v:\"y\"":{}}}}`, kubelet}},
		{name: "an item by its number", was: `},"spec":{"args":["x","y"]}`, is: `},"spec":{"args":["x","z"]}`, entries: []string{`operator 09 {"f:spec":{"f:args":{"i:1":{}}}}`, kubelet}, by: "operator"},
		{name: "removed", was: `,"labels":{"app":"x"}},"spec":{"replicas":1}`, is: `},"spec":{"replicas":1}`, entries: []string{labels, kubelet}, isUnset: true},
		{name: "removed from a set", was: `,"finalizers":["x","y"]}`, is: `,"finalizers":["y"]}`, entries: []string{labels, `operator 09 {"f:metadata":{"f:finalizers":{".":{},"v:\"y\"":{}}}}`}, isUnset: true},
		{name: "a request for a delete", was: `,"generation":1}`, is: `,"generation":2,"deletionTimestamp":"2020-01-01T00:00:09Z","deletionGracePeriodSeconds":30}`, entries: []string{labels, kubelet}, isUnset: true},
		{name: "a request for a delete that waits for what it owns", was: `}`, is: `,"finalizers":["foregroundDeletion"],"deletionTimestamp":"2020-01-01T00:00:09Z"}`, entries: []string{labels, kubelet}},
		{name: "a member of that name that is not of the API server", was: `},"spec":{"metadata":{"generation":1}}`, is: `},"spec":{"metadata":{"generation":2}}`, entries: []string{labels, kubelet}},
		{name: "members in another order", was: `},"spec":{"a":1,"replicas":1,"b":2}`, is: `},"spec":{"b":2,"replicas":2,"a":1}`, entries: []string{labels, kubelet}, by: "kubectl"},
		{name: "another form of value", was: `},"spec":{"x":1}`, is: `},"spec":{"x":{"y":1}}`, entries: []string{`operator 09 {"f:spec":{"f:x":{"f:y":{}}}}`}},
		{name: "keys that are none", was: `},"spec":{"x":[1]}`, is: `},"spec":{"x":[2]}`, entries: []string{`operator 09 {"f:spec":{"f:x":{"k:":{},"k:{}":{},"k:{\"":{},"i:x":{},"v:":{},"":{}}}}`}},
		{name: "fields that are none", was: `},"spec":{"x":[1]}`, is: `},"spec":{"x":[2]}`, entries: []string{`operator 09 "f"`}},
		{name: "no entries, nothing set", was: `},"spec":{"x":[1]}`, is: `},"spec":{}`, isUnset: true},
		{name: "no entries", was: `},"spec":{"x":[1]}`, is: `},"spec":{"x":[2]}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			by, isFound, isSet := owned(t, tt.is, tt.entries...).Setter(owned(t, tt.was))
			if by.Manager != tt.by || isFound != (tt.by != "") || isSet == tt.isUnset {
				t.Errorf("%q, %t, set %t; want %q", by.Manager, isFound, isSet, tt.by)
			}
		})
	}
}

// Work on lists of any size is bounded.
func TestSetterOfManyItems(t *testing.T) {
	items := func(value int) string {
		var list, keys []string
		for i := range 5000 {
			list = append(list, fmt.Sprintf(`{"name":"n%d","value":%d}`, i, value))
			keys = append(keys, fmt.Sprintf(`"k:{\"name\":\"n%d\"}":{"f:value":{}}`, i))
		}
		return `},"spec":{"x":[` + strings.Join(list, ",") + `]}` + "\x00" + `m 09 {"f:spec":{"f:x":{` + strings.Join(keys, ",") + `}}}`
	}
	was, _, _ := strings.Cut(items(1), "\x00")
	is, fields, _ := strings.Cut(items(2), "\x00")
	if by, isFound, _ := owned(t, is, fields).Setter(owned(t, was)); isFound {
		t.Errorf("%+v, after more steps than there are", by)
	}
}

func BenchmarkSetter(b *testing.B) {
	raw := string(readTestdata(b, "pod.json"))
	was, err := resource.Parse([]byte(raw), resource.ParseOptions{})
	if err != nil {
		b.Fatal(err)
	}
	is, err := resource.Parse([]byte(strings.Replace(strings.Replace(raw, `"48151623"`, `"48151624"`, 1), `"restartCount":0`, `"restartCount":1`, 1)), resource.ParseOptions{})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if by, isFound, _ := is.Setter(was); !isFound || by.Manager != "kubelet" {
			b.Fatalf("%+v, %t", by, isFound)
		}
	}
}

func BenchmarkParsePod(b *testing.B) {
	raw := readTestdata(b, "pod.json")
	for b.Loop() {
		if _, err := resource.Parse(raw, resource.ParseOptions{Type: pods}); err != nil {
			b.Fatal(err)
		}
	}
}
