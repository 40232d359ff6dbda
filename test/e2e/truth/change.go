package truth

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"
)

// Change is one event of a watch.
type Change struct {
	Collection
	Type    string          // ADDED, MODIFIED, DELETED
	Raw     json.RawMessage // the object, as it was sent
	Initial bool            // it existed when the watch began
	// Inferred: it is no event of a watch, but what a list shows to have happened. See Inferred.
	Inferred bool
	Seen     time.Time // when it was received
	Object
}

// Object is what is read of the object.
type Object struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name              string         `json:"name"`
		Namespace         string         `json:"namespace"`
		UID               string         `json:"uid"`
		ResourceVersion   string         `json:"resourceVersion"`
		CreationTimestamp time.Time      `json:"creationTimestamp"`
		ManagedFields     []ManagedField `json:"managedFields"`
	} `json:"metadata"`
}

// ManagedField is who changed fields of the object, and when.
type ManagedField struct {
	Manager     string    `json:"manager"`
	Operation   string    `json:"operation"`
	Subresource string    `json:"subresource"`
	APIVersion  string    `json:"apiVersion"`
	Time        time.Time `json:"time"`
}

// Newest are the entries of managedFields with the latest time, and those without one.
func (o *Object) Newest() (newest []ManagedField) {
	var latest time.Time
	for _, f := range o.Metadata.ManagedFields {
		if f.Time.After(latest) {
			latest = f.Time
		}
	}
	for _, f := range o.Metadata.ManagedFields {
		if f.Time.IsZero() || f.Time.Equal(latest) {
			newest = append(newest, f)
		}
	}
	return newest
}

// Added are the entries that a version has and the version before it had not, but for what the API
// server itself has gathered of many managers.
func (o *Object) Added(before []ManagedField) (added []ManagedField) {
	for _, f := range o.Metadata.ManagedFields {
		if !slices.Contains(before, f) && f.Manager != "ancient-changes" && f.Manager != "before-first-apply" {
			added = append(added, f)
		}
	}
	return added
}

// Key is "namespace/name", or "name" of cluster-scoped objects.
func (o *Object) Key() string {
	if o.Metadata.Namespace == "" {
		return o.Metadata.Name
	}
	return o.Metadata.Namespace + "/" + o.Metadata.Name
}

// newChange reads the object of a frame.
func newChange(c Collection, kind string, raw json.RawMessage) (Change, error) {
	ch := Change{Collection: c, Type: kind, Raw: raw, Seen: time.Now()}
	if err := json.Unmarshal(raw, &ch.Object); err != nil {
		return ch, fmt.Errorf("object of a frame: %w", err)
	}
	return ch, nil
}

// WithoutManagedFields is the object's JSON less metadata.managedFields and one comma: the bytes
// that a payload is to have.
func (ch *Change) WithoutManagedFields() ([]byte, error) {
	from, to, err := findMember(ch.Raw, "metadata", "managedFields")
	if err != nil || from == to {
		return ch.Raw, err
	}
	return append(bytes.Clone(ch.Raw[:from]), ch.Raw[to:]...), nil
}

// findMember gives the place of a member with the comma that has to go with it; an empty one where
// there is none.
func findMember(raw []byte, path ...string) (from, to int, err error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if _, err := dec.Token(); err != nil { // {
		return 0, 0, err
	}
	for dec.More() {
		before := int(dec.InputOffset())
		name, err := dec.Token()
		if err != nil {
			return 0, 0, err
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return 0, 0, err
		}
		end := int(dec.InputOffset())
		switch {
		case name != path[0]:
		case len(path) > 1:
			from, to, err := findMember(value, path[1:]...)
			return end - len(value) + from, end - len(value) + to, err
		case raw[before] != ',' && end < len(raw) && raw[end] == ',':
			return before, end + 1, nil // the first of several
		default:
			return before, end, nil
		}
	}
	if _, err := dec.Token(); err != nil && err != io.EOF { // }
		return 0, 0, err
	}
	return 0, 0, nil
}
