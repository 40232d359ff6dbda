package event

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/resource/diff"
	"github.com/kubebridge/bridge/internal/resource/jsontree"
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

// encode makes the payload of a change whose object is known, and its media type, "" for
// ContentType.
func (p Payload) encode(c *Change) (data []byte, mediaType string) {
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

// partialMetadata returns the object as a client that asks for metadata only gets it.
func partialMetadata(obj *resource.Object) []byte {
	metadata := resource.Member(obj.Raw, "metadata")
	out := make([]byte, 0, len(partialHead)+len(metadata)+1)
	return append(append(append(out, partialHead...), metadata...), '}')
}

// change returns the object, and what it was before an update.
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

// mergePatch returns what makes the object of the one before it. Where there is none, or where a
// merge patch can't show the difference because a member became null, it is the object, to put in
// the place of what the reader has: the media type says which.
func mergePatch(c *Change) (data []byte, mediaType string) {
	if c.Old != nil {
		if merge, ok := diff.Merge(c.Old.Raw, c.Object.Raw); ok {
			return merge, MergePatchContentType
		}
	}
	return c.Object.Raw, ""
}

// trim cuts managedFields and the last-applied annotation out of the metadata of a payload's
// object, or of both objects of a change or of Debezium's form. It copies the bytes only if it cuts
// any.
func trim(data []byte) []byte {
	t := trimmer{data: data}
	payload := jsontree.Parse(data)
	if metadata := member(payload, "metadata"); metadata.Exists() {
		t.metadata(metadata)
	} else {
		for w := payload.Walk(); w.Next(); {
			switch w.Name() {
			case "object", "old":
				t.metadata(member(w.Value(), "metadata"))
			case "before", "after":
				t.metadata(member(member(w.Value(), "object"), "metadata"))
			}
		}
	}
	if t.from == 0 {
		return data
	}
	return append(t.out, data[t.from:]...)
}

// metadataOf returns the metadata of a payload's object, nil when there is none.
func metadataOf(data []byte) []byte {
	payload := jsontree.Parse(data)
	if metadata := member(payload, "metadata"); metadata.Exists() {
		return metadata.Raw()
	}
	return member(member(payload, "object"), "metadata").Raw()
}

// member returns the value of a member; it does not exist where the object or the member does not.
func member(object jsontree.Value, name string) jsontree.Value {
	for w := object.Walk(); w.Next(); {
		if w.Name() == name {
			return w.Value()
		}
	}
	return jsontree.Value{}
}

// trimmer copies data without some members, which come in their order.
type trimmer struct {
	data, out []byte
	from      int // end of what was cut last
}

func (t *trimmer) metadata(metadata jsontree.Value) {
	for w := metadata.Walk(); w.Next(); {
		switch w.Name() {
		case "managedFields":
			t.cut(&w)
		case "annotations":
			t.annotations(w.Value())
		}
	}
}

func (t *trimmer) annotations(annotations jsontree.Value) {
	for w := annotations.Walk(); w.Next(); {
		if w.Name() == "kubectl.kubernetes.io/last-applied-configuration" {
			t.cut(&w)
		}
	}
}

// cut leaves out the current member: with the comma before it, or, the first one, with the comma
// behind it.
func (t *trimmer) cut(w *jsontree.Walker) {
	t.out = append(t.out, t.data[t.from:w.Gap()]...)
	t.from = w.Value().End()
	if t.data[w.Gap()-1] == '{' {
		t.from = w.Following()
	}
}

// Attributes of an event whose payload was too large for the broker. OriginalSize and
// OriginalSHA256 are of the payload that the event would have had.
const (
	AttrOversize       = "oversize" // one of the values below
	AttrOriginalSize   = "originalsize"
	AttrOriginalSHA256 = "originalsha256"
	AttrDataRef        = "dataref" // of CloudEvents: where the payload is kept
)

// Values of AttrOversize.
const (
	OversizeTrimmed   = "trimmed"   // the payload lacks the last-applied annotation and managedFields
	OversizeClaimed   = "claimed"   // the payload is kept elsewhere: dataref
	OversizeReference = "reference" // the payload is the object's metadata, or nothing
)

// Trimmed returns the event without what an object can lose and still be the object: its
// kubectl.kubernetes.io/last-applied-configuration annotation and its managedFields. It is nil when
// there is nothing to cut.
func Trimmed(e *Event) *Event {
	if e.DataType == MergePatchContentType {
		return nil // what is not in a patch stays as it was
	}
	data := trim(e.Data)
	if len(data) == len(e.Data) {
		return nil
	}
	return e.resized(OversizeTrimmed, data)
}

// Claimed returns the event with its payload kept elsewhere.
func Claimed(e *Event, dataref string) *Event {
	small := e.resized(OversizeClaimed, nil)
	small.DataType = e.DataType // of what is kept
	small.Extensions = append(small.Extensions, Attribute{AttrDataRef, dataref})
	return small
}

// Reference returns the event with the object's metadata, trimmed, in place of the object: a
// PartialObjectMetadata.
func Reference(e *Event) *Event {
	if isDebezium(e.Data) {
		return e.resized(OversizeReference, trim(debeziumMetadata(e.Data)))
	}
	metadata := metadataOf(e.Data)
	if metadata == nil || e.DataType == MergePatchContentType {
		return BareReference(e)
	}
	data := make([]byte, 0, len(partialHead)+len(metadata)+1)
	data = append(append(data, partialHead...), metadata...)
	return e.resized(OversizeReference, trim(append(data, '}')))
}

const partialHead = `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":`

// BareReference returns the event without a payload: its attributes name the object.
func BareReference(e *Event) *Event { return e.resized(OversizeReference, nil) }

// resized returns a copy of the event with another payload, and with what it says of the first one.
func (e *Event) resized(how string, data []byte) *Event {
	sum := sha256.Sum256(e.Data)
	small := *e
	small.Data, small.DataType = data, "" // of an object, or none
	small.Extensions = append(slices.Clip(e.Extensions),
		Attribute{AttrOversize, how},
		Attribute{AttrOriginalSize, strconv.Itoa(len(e.Data))},
		Attribute{AttrOriginalSHA256, hex.EncodeToString(sum[:])})
	return &small
}
