package history

import (
	"bytes"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history/keys"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/record"
	"github.com/kubebridge/bridge/internal/resource/diff"
	"github.com/kubebridge/bridge/internal/resource/jsontree"
)

// dataOf is what is stored of an event's data: of a payload with two objects the newer one, and of
// a merge patch the object, where the version that it is to is known.
func (b *batch) dataOf(
	u *record.Unit, e *event.Event, last *lastVersion, seq keys.Sequence,
) ([]byte, error) {
	switch {
	case len(e.Data) == 0:
		return nil, nil
	case e.DataType == event.MergePatchContentType:
		base, err := b.previous(u, e, last, seq)
		if err != nil || base == nil {
			return e.Data, err
		}
		return diff.Apply(base, e.Data), nil
	case bytes.HasPrefix(e.Data, []byte(`{"before":`)):
		if object, ok := event.DebeziumObject(e.Data); ok {
			return object, nil
		}
	case bytes.HasPrefix(e.Data, []byte(`{"object":`)):
		object := diff.Field(e.Data, "object")
		if jsontree.Parse(object).IsObject() && diff.Field(e.Data, "metadata") == nil {
			return object, nil
		}
	}
	return e.Data, nil
}

// previous is the object in the version before an event's, nil where it is not known.
func (b *batch) previous(
	u *record.Unit, e *event.Event, last *lastVersion, seq keys.Sequence,
) ([]byte, error) {
	before := keys.NewSequence(seq.Era, e.Previous, false)
	if e.Previous == "" || before.Compare(seq) > 0 {
		return nil, nil
	}
	if last != nil && last.seq == before {
		if last.form != record.FormObject {
			return nil, nil
		}
		return last.objectJSON(), nil
	}
	v, err := query.StoredVersion(b.db,
		&query.Object{Unit: u, Namespace: e.Namespace, Name: e.Name}, before)
	if err != nil || v == nil || v.Form() != record.FormObject {
		return nil, err
	}
	return v.Event.Data, nil
}
