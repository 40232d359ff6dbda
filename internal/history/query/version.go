package query

import (
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history/keys"
	"github.com/kubebridge/bridge/internal/history/record"
	"github.com/kubebridge/bridge/internal/resource/diff"
	"github.com/kubebridge/bridge/internal/resource/jsontree"
)

// Version is one version of an object, or its end.
type Version struct {
	Event event.Event
	Unit  *record.Unit
	// Time is when the change was made or observed.
	Time time.Time
	seq  keys.Sequence
	form record.Form // where the event has no data, and the stored version has; else ""
}

// Form is what is known of the object.
func (v *Version) Form() record.Form {
	if v.form != "" {
		return v.form
	}
	return record.FormOf(diff.ShapeOf(v.Event.Data, nil, nil), v.Event.Data, v.Event.DataType)
}

// Deleted reports whether the object ends with this version.
func (v *Version) Deleted() bool { return v.Event.Op == event.Deleted }

// Object names an object in a unit.
type Object struct {
	Unit            *record.Unit
	Namespace, Name string
}

// String is "deployments.apps/shop/web".
func (o *Object) String() string {
	if o.Namespace == "" {
		return o.Unit.GroupResource() + "/" + o.Name
	}
	return o.Unit.GroupResource() + "/" + o.Namespace + "/" + o.Name
}

func (o *Object) prefix() []byte {
	return keys.AppendObject(make([]byte, 0, 128), o.Unit.Number, o.Namespace, o.Name)
}

// versionOf makes a version of its text. Its data is a part of text.
func versionOf(
	u *record.Unit, namespace, name string, seq keys.Sequence, h record.Header, text []byte,
	base string,
) (*Version, error) {
	v := &Version{}
	return v, v.read(u, namespace, name, seq, h, text, base)
}

// read makes v the version of a text. Its data is a part of text.
func (v *Version) read(
	u *record.Unit, namespace, name string, seq keys.Sequence, h record.Header, text []byte,
	base string,
) error {
	*v = Version{Unit: u, Time: h.Time, seq: seq}
	v.Event = event.Event{
		Source: u.Source, Informer: u.Informer, Op: h.Op, Time: h.Time,
		ObjectAttributes: event.ObjectAttributes{
			Resource: u.Resource, Namespace: namespace, Name: name,
		},
		Routing: event.Routing{Cluster: u.Cluster(), Group: u.Group},
	}
	if err := record.ReadText(&v.Event, u, seq, text, base); err != nil {
		return fmt.Errorf("version %s of %s/%s/%s: %w", seq, u.GroupResource(), namespace, name, err)
	}
	return nil
}

// Number is the resourceVersion as a number, 0 where it is none.
func (v *Version) Number() uint64 { return v.seq.Version }

// Labels are those of the object, as far as they are known.
func (v *Version) Labels() labels.Set {
	set := labels.Set{}
	for w := jsontree.Parse(diff.Field(v.Event.Data, "metadata.labels")).Walk(); w.Next(); {
		var value string
		if json.Unmarshal(w.Value().Raw(), &value) == nil { // a redacted one may be anything
			set[w.Name()] = value
		}
	}
	return set
}

// Manager made this change, with its subresource as "kubelet/status"; "" where that is not known.
func (v *Version) Manager() string {
	if v.Event.Manager == "" || v.Event.ManagerSubresource == "" {
		return v.Event.Manager
	}
	return v.Event.Manager + "/" + v.Event.ManagerSubresource
}

// Attribute is one beside those that every event has, "" for none.
func (v *Version) Attribute(name string) string {
	for _, a := range v.Event.Extensions {
		if a.Name == name {
			return a.Value
		}
	}
	return ""
}

// ChangesSince are those of an update; nil where one of the two objects is not known.
func (v *Version) ChangesSince(before *Version) []diff.Change {
	if before == nil || before.Deleted() || v.Form() == record.FormNone || v.Form() != before.Form() ||
		v.Form() == record.FormPatch {
		return nil
	}
	return diff.Changes(before.Event.Data, v.Event.Data)
}
