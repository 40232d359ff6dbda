package event

import (
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/resource/diff"
)

// Payload is what an event carries of its object.
type Payload string

// The payload forms. Those that show the difference do so for updates; added, deleted and synced
// events carry the object.
const (
	PayloadObject Payload = "object" // the object's JSON as it is; the default
	// {"object", "old", "patch"}: the last two of updates, the patch as RFC 6902 has it
	PayloadChange Payload = "change"
	// of updates the merge patch (RFC 7386), with a media type of its own
	PayloadPatch     Payload = "patch"
	PayloadMetadata  Payload = "metadata"  // a PartialObjectMetadata
	PayloadReference Payload = "reference" // nothing beyond the attributes
	// {"before", "after", "source", "op", "ts_ms"}, made by Maker.debezium
	PayloadDebezium Payload = "debezium"
)

// Payloads are all forms.
var Payloads = []Payload{
	PayloadObject, PayloadChange, PayloadPatch, PayloadMetadata,
	PayloadReference, PayloadDebezium,
}

// NeedsOld reports whether it is made of the object before an update too.
func (p Payload) NeedsOld() bool {
	return p == PayloadChange || p == PayloadPatch || p == PayloadDebezium
}

// of makes the payload of a change whose object is known, and its media type, "" for ContentType.
func (p Payload) of(c *Change) (data []byte, mediaType string) {
	switch p {
	case PayloadReference:
		return nil, ""
	case PayloadMetadata:
		return partialMetadata(c.Object), ""
	case PayloadChange:
		return change(c), ""
	case PayloadPatch:
		return mergePatch(c)
	default:
		return c.Object.Raw, ""
	}
}

// partialMetadata is the object as a client that asks for metadata only gets it.
func partialMetadata(obj *resource.Object) []byte {
	metadata := resource.Member(obj.Raw, "metadata")
	out := make([]byte, 0, len(partialHead)+len(metadata)+1)
	return append(append(append(out, partialHead...), metadata...), '}')
}

// change is the object, and what it was before an update.
func change(c *Change) []byte {
	if c.Old == nil {
		return wrap(make([]byte, 0, len(c.Object.Raw)+16), c.Object.Raw, nil, nil)
	}
	diff := diff.Diff(c.Old.Raw, c.Object.Raw)
	return wrap(make([]byte, 0, len(c.Object.Raw)+len(c.Old.Raw)+len(diff)+32), c.Object.Raw,
		c.Old.Raw, diff)
}

func wrap(out, object, old, diff []byte) []byte {
	out = append(append(out, `{"object":`...), object...)
	if old != nil {
		out = append(append(out, `,"old":`...), old...)
		out = append(append(out, `,"patch":`...), diff...)
	}
	return append(out, '}')
}

// mergePatch is what makes the object of the one before it. Where there is none, or where a merge
// patch can't show the difference because a member became null, it is the object, to put in the
// place of what the reader has: the media type says which.
func mergePatch(c *Change) (data []byte, mediaType string) {
	if c.Old != nil {
		if merge, ok := diff.Merge(c.Old.Raw, c.Object.Raw); ok {
			return merge, MergePatchContentType
		}
	}
	return c.Object.Raw, ""
}
