package diff_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/resource/diff"
	"github.com/kubebridge/bridge/internal/testkit"
)

func TestParts(t *testing.T) {
	meta := func(more string) string {
		return `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"1"` + more + `}`
	}
	for name, tt := range map[string]struct{ was, is, want string }{
		"only the version":          {meta(``) + `}`, `{"metadata":{"name":"a","resourceVersion":"2","generation":2,"managedFields":[]}}`, ""},
		"all, in their fixed order": {meta(``) + `}`, `{"z":1,"data":{},"status":{"x":1},"metadata":{"name":"b","deletionTimestamp":"x","ownerReferences":[1],"finalizers":["f"],"annotations":{"a":"b"},"labels":{"a":"b"}},"spec":1}`, "spec,status,labels,annotations,finalizers,owners,deletion,metadata,data,z"},
		"what was removed":          {meta(`,"labels":{"a":"b"},"annotations":{}`) + `,"spec":1,"data":{}}`, meta(`,"annotations":{}`) + `}`, "spec,labels,data"},
		"in another order":          {`{"spec":{"a":1,"b":2},"status":1,"metadata":{}}`, `{"metadata":{},"status":2,"spec":{"b":2,"a":1}}`, "status"},
		"null is missing":           {meta(`,"labels":null`) + `,"spec":null}`, meta(``) + `}`, ""},
		"names of metadata's parts": {`{"labels":1,"metadata":{}}`, `{"labels":2,"metadata":{}}`, "other"},
		"a name with a comma":       {`{"a,spec":1}`, `{"a,spec":2}`, "other"},
		"without a version before":  {``, meta(`,"labels":{}`) + `,"status":{}}`, "status,labels,metadata"},
		"another kind and group":    {`{"kind":"A","apiVersion":"v1"}`, `{"kind":"B","apiVersion":"v2"}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := strings.Join(diff.Parts([]byte(tt.was), []byte(tt.is)), ","); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// An object of 30,000 members, all renamed, gives a short list.
func TestPartsOfWideObject(t *testing.T) {
	var was, is strings.Builder
	for n := range 30_000 {
		fmt.Fprintf(&was, `,"a%d":1`, n)
		fmt.Fprintf(&is, `,"b%d":1`, n)
	}
	got := diff.Parts([]byte("{"+was.String()[1:]+"}"), []byte("{"+is.String()[1:]+"}"))
	if len(got) != 9 || got[8] != "other" {
		t.Errorf("%d parts, from %q on", len(got), got[:min(len(got), 9)])
	}
}

func BenchmarkParts(b *testing.B) {
	pad := strings.Repeat("x", 2000)
	pod := func(version int, phase string) []byte {
		return fmt.Appendf(nil, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","namespace":"shop","uid":"u","resourceVersion":"%d"},"spec":{"x":%q},"status":{"phase":%q}}`, version, pad, phase)
	}
	for name, pair := range map[string][2][]byte{
		"pod":  {pod(1, "Pending"), pod(2, "Running")},
		"wide": {testkit.Wide(30_000, 1, false), testkit.Wide(30_000, 2, false)},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				diff.Parts(pair[0], pair[1])
			}
		})
	}
}
