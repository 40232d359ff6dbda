package event

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
)

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

// Trimmed is the event without what an object can lose and still be the object: its
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

// Claimed is the event with its payload kept elsewhere.
func Claimed(e *Event, dataref string) *Event {
	small := e.resized(OversizeClaimed, nil)
	small.DataType = e.DataType // of what is kept
	small.Extensions = append(small.Extensions, Attribute{AttrDataRef, dataref})
	return small
}

// Reference is the event with the object's metadata, trimmed, in place of the object: a
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

// BareReference is the event without a payload: its attributes name the object.
func BareReference(e *Event) *Event { return e.resized(OversizeReference, nil) }

// resized is a copy of the event with another payload, and with what it says of the first one.
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
