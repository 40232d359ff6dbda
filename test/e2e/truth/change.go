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

// Newest are the entries of managedFields with the latest time.
func (o *Object) Newest() (newest []ManagedField) {
	for _, f := range o.Metadata.ManagedFields {
		if len(newest) > 0 && f.Time.After(newest[0].Time) {
			newest = nil
		}
		if len(newest) == 0 || f.Time.Equal(newest[0].Time) {
			newest = append(newest, f)
		}
	}
	return newest
}

// Writer is the entry that a version has and the versions before it had not. Before are the newest
// entries of any version before. False when there is none, or more than one.
func Writer(before, now []ManagedField) (by ManagedField, ok bool) {
	if len(now) == 0 || len(before) > 0 && now[0].Time.Before(before[0].Time) {
		return by, false
	}
	added := 0
	for _, f := range now {
		if !slices.Contains(before, f) {
			by = f
			added++
		}
	}
	if len(before) > 0 && now[0].Time.Equal(before[0].Time) && len(now) != len(before)+1 {
		return by, false // one has gone as well: it may have been replaced
	}
	return by, added == 1
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
