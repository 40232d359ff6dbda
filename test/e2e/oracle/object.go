package oracle

import (
	"encoding/json"
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/scheme"
)

// Object returns the object as the API server shows it, without managedFields; nil for a deleted
// one. etcd has built-in kinds in protobuf and custom resources in JSON, and its revision stands
// for the resourceVersion.
func (r *Revision) Object() (*unstructured.Unstructured, error) {
	if r.Value == nil {
		return nil, nil //nolint:nilnil // there is no object, and nothing is wrong
	}
	text := r.Value
	if text[0] != '{' {
		object, kind, err := scheme.Codecs.UniversalDeserializer().Decode(r.Value, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.Key, err)
		}
		object.GetObjectKind().SetGroupVersionKind(*kind)
		if text, err = json.Marshal(object); err != nil {
			return nil, fmt.Errorf("%s: %w", r.Key, err)
		}
	}
	o := &unstructured.Unstructured{}
	if err := json.Unmarshal(text, &o.Object); err != nil {
		return nil, fmt.Errorf("%s: %w", r.Key, err)
	}
	o.SetResourceVersion(strconv.FormatInt(r.Revision, 10))
	o.SetManagedFields(nil)
	return o, nil
}
