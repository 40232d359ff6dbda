package history

import (
	"bytes"
	"encoding/json"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/jsontree"
	"github.com/kubebridge/bridge/internal/patch"
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

// dataOf is what is stored of an event's data: of a payload with two objects the newer one, and of
// a merge patch the object, where the version that it is to is known.
func (b *batch) dataOf(u *Unit, e *event.Event, last *lastVersion, seq sequence) ([]byte, error) {
	switch {
	case len(e.Data) == 0:
		return nil, nil
	case e.DataType == event.MergePatchContentType:
		base, err := b.previous(u, e, last, seq)
		if err != nil || base == nil {
			return e.Data, err
		}
		return patch.Apply(base, e.Data), nil
	case bytes.HasPrefix(e.Data, []byte(`{"before":`)):
		if object, ok := event.DebeziumObject(e.Data); ok {
			return object, nil
		}
	case bytes.HasPrefix(e.Data, []byte(`{"object":`)):
		if object := member(e.Data, "object"); object.IsObject() && !member(e.Data, "metadata").Exists() {
			return object.Raw(), nil
		}
	}
	return e.Data, nil
}

// previous is the object in the version before an event's, nil where it is not known.
func (b *batch) previous(u *Unit, e *event.Event, last *lastVersion, seq sequence) ([]byte, error) {
	before := newSequence(seq.era, e.Previous, false)
	if e.Previous == "" || before.compare(seq) > 0 {
		return nil, nil
	}
	if last != nil && last.seq == before {
		text := last.text
		v, err := versionOf(u, e.Namespace, e.Name, last.seq, header{op: event.Updated}, text, "")
		if err != nil || v.Form() != FormObject {
			return nil, err
		}
		return v.Event.Data, nil
	}
	r, err := b.db.reader()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	v, err := r.atSequence(u, e.Namespace, e.Name, before)
	if err != nil || v == nil || v.Form() != FormObject {
		return nil, err
	}
	return v.Event.Data, nil
}

// member is the value of a member of an object.
func member(object []byte, name string) jsontree.Value {
	for w := jsontree.Parse(object).Walk(); w.Next(); {
		if w.Name() == name {
			return w.Value()
		}
	}
	return jsontree.Value{}
}

// Labels are those of the object, as far as they are known.
func (v *Version) Labels() labels.Set {
	set := labels.Set{}
	for w := member(member(v.Event.Data, "metadata").Raw(), "labels").Walk(); w.Next(); {
		var value string
		if json.Unmarshal(w.Value().Raw(), &value) == nil { // a redacted one may be anything
			set[w.Name()] = value
		}
	}
	return set
}
