package record

import (
	"encoding/json"

	"github.com/kubebridge/bridge/internal/history/keys"
	"github.com/kubebridge/bridge/internal/resource"
)

// IndexValue is a value by which an index finds an object.
type IndexValue struct {
	Index byte
	Value string
}

// IndexValues appends the values of an object with some JSON.
func IndexValues(dst []IndexValue, u *Unit, object []byte) []IndexValue {
	var owners []struct {
		UID string `json:"uid"`
	}
	references := resource.Member(resource.Member(object, "metadata"), "ownerReferences")
	// What can't be decoded has no owner: whoever asks by an owner does not find it.
	_ = json.Unmarshal(references, &owners)
	for _, o := range owners {
		if o.UID != "" {
			dst = append(dst, IndexValue{keys.IndexOwner, o.UID})
		}
	}
	if u.Group != "" || u.Resource != "pods" {
		return dst
	}
	var node string
	_ = json.Unmarshal(resource.Member(resource.Member(object, "spec"), "nodeName"), &node) // the same
	if node != "" {
		dst = append(dst, IndexValue{keys.IndexNode, node})
	}
	return dst
}
