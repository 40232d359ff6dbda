package resource

import (
	"bytes"
	"encoding/json"
)

// Labels are an object's labels as they stand in its JSON: what a labels.Selector of apimachinery
// looks into. They share the object's memory, and so do the values.
type Labels []byte

// Labels are the object's labels, empty where it has none.
func (o *Object) Labels() Labels { return Member(Member(o.Raw, "metadata"), "labels") }

// Lookup gives the value of a label, and reports whether there is one.
func (l Labels) Lookup(label string) (value string, exists bool) {
	raw := Member(l, label)
	switch {
	case len(raw) < 2 || raw[0] != '"':
		return "", raw != nil
	case bytes.IndexByte(raw, '\\') < 0:
		return view(raw[1 : len(raw)-1]), true
	}
	_ = json.Unmarshal(raw, &value) // it was scanned before
	return value, true
}

// Has reports whether there is a label.
func (l Labels) Has(label string) bool {
	_, exists := l.Lookup(label)
	return exists
}

// Get is the value of a label, "" where there is none.
func (l Labels) Get(label string) string {
	value, _ := l.Lookup(label)
	return value
}
