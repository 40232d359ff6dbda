package record

import (
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/resource/diff"
)

// Form is what is known of an object in a version.
type Form string

// The forms.
const (
	// FormObject: the object as the stream had it, redacted values included.
	FormObject Form = "object"
	// FormMetadata: the metadata of the object.
	FormMetadata Form = "metadata"
	// FormPatch: a merge patch to a version that is not known.
	FormPatch Form = "patch"
	// FormNone: the names of the object and the version.
	FormNone Form = "none"
)

// FormOf is the form of data of a shape.
func FormOf(s diff.Shape, data []byte, dataType string) Form {
	switch {
	case len(data) == 0:
		return FormNone
	case dataType == event.MergePatchContentType:
		return FormPatch
	case s.Member(data, "metadata") == nil:
		return FormNone // a reference, as Knative has it
	case string(s.Member(data, "kind")) == `"PartialObjectMetadata"`:
		return FormMetadata
	}
	return FormObject
}
