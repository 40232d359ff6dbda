package check

import "testing"

// The computation that the bridge is compared with is right itself.
func TestChangedParts(t *testing.T) {
	for _, c := range []struct{ before, after, want string }{
		{`{"spec":{"a":1,"b":2}}`, `{"spec":{"b":2,"a":1}}`, "none"},
		{`{"metadata":{"resourceVersion":"1","generation":1}}`, `{"metadata":{"resourceVersion":"2","generation":2}}`, "none"},
		{`{"spec":1,"status":1}`, `{"spec":2,"status":2}`, "spec,status"},
		{`{"metadata":{"labels":{}}}`, `{"metadata":{"ownerReferences":[1],"finalizers":["f"]}}`, "labels,finalizers,owners"},
		{`{"metadata":{"labels":null}}`, `{"metadata":{}}`, "none"},
		{`{"metadata":{"name":"a"},"data":1}`, `{"metadata":{"deletionTimestamp":"t","selfLink":"x"},"binaryData":1}`, "deletion,metadata,binaryData,data"},
	} {
		if got, err := changedParts([]byte(c.before), []byte(c.after)); got != c.want || err != nil {
			t.Errorf("%s to %s: %q, %v; want %q", c.before, c.after, got, err, c.want)
		}
	}
}
