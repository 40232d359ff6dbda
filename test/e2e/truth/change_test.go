package truth_test

import (
	"encoding/json"
	"testing"

	"github.com/kubebridge/bridge/test/e2e/truth"
)

// Managed fields are cut with one comma.
func TestManagedFieldsCut(t *testing.T) {
	for raw, want := range map[string]string{
		`{"metadata":{"name":"a","managedFields":[{"x":"]}"}]},"spec":{}}`:            `{"metadata":{"name":"a"},"spec":{}}`,
		`{"metadata":{"managedFields":[],"name":"a"}}`:                                `{"metadata":{"name":"a"}}`,
		`{"metadata":{"a":1,"managedFields":[{}],"name":"a"},"b":2}`:                  `{"metadata":{"a":1,"name":"a"},"b":2}`,
		`{"metadata":{"managedFields":[1]}}`:                                          `{"metadata":{}}`,
		`{ "metadata" : { "name" : "a" , "managedFields" : [ 1 ] } , "z" : 1 }`:       `{ "metadata" : { "name" : "a"  } , "z" : 1 }`,
		`{"spec":{"managedFields":[1],"metadata":{"managedFields":2}},"metadata":{}}`: `{"spec":{"managedFields":[1],"metadata":{"managedFields":2}},"metadata":{}}`,
		`{"a":"\"metadata\":{\"managedFields\":1}"}`:                                  `{"a":"\"metadata\":{\"managedFields\":1}"}`,
	} {
		ch := truth.Change{Raw: json.RawMessage(raw)}
		got, err := ch.WithoutManagedFields()
		if err != nil || string(got) != want {
			t.Errorf("%s\ngot  %s, %v\nwant %s", raw, got, err, want)
		}
		if string(ch.Raw) != raw {
			t.Errorf("%s was changed", raw)
		}
	}
}
