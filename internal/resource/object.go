package resource

import "strings"

// Object is one version of one object: its JSON as the API server sent it, less what was cut, and
// the few metadata fields that the pipeline needs. It never changes after it was made.
type Object struct {
	// Raw is the object's JSON. Between the cuts it is byte-equal to what the API server sent; kind
	// and apiVersion were added where an item of a list came without them.
	Raw []byte
	Meta
}

// Meta is what one scan reads out of an object. The strings may share memory with Object.Raw:
// whoever keeps one beyond the object clones it.
type Meta struct {
	Namespace  string
	Name       string
	UID        string
	Version    Version
	Generation int64
	// DeletionTimestamp is when a graceful deletion was asked for, as the API server wrote it; ""
	// when it was not.
	DeletionTimestamp string
	// CreationTimestamp is when the object was created, as the API server wrote it; "" when it did
	// not.
	CreationTimestamp string
	// Writes are the newest managedFields entries.
	Writes Writes
	// Owners are the owner references, in the order of the object.
	Owners []Owner
	// APIVersion is that of the object's bytes, where it is another than its type's: it was kept
	// since before the type moved to another version (Restore). Else "".
	APIVersion string
}

// Owner is one owner reference.
type Owner struct {
	APIVersion string
	Kind       string
	Name       string
	UID        string
	Controller bool
}

// Identity is which object it is, in which version, and nothing else. It shares no memory with the
// object.
func (o *Object) Identity() *Object {
	return &Object{Meta: Meta{
		Namespace: strings.Clone(o.Namespace), Name: strings.Clone(o.Name), UID: strings.Clone(o.UID),
		Version: Version(strings.Clone(string(o.Version))),
	}}
}

// Key is the object's name within its type.
func (m *Meta) Key() Key { return MakeKey(m.Namespace, m.Name) }

// Size is what the object costs in a queue, in bytes: its JSON and the bookkeeping around it.
func (o *Object) Size() int {
	const overhead = 256 // an Object, its Key and its place in a queue, rounded up
	return len(o.Raw) + overhead
}
