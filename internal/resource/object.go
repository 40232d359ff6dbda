package resource

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/cespare/xxhash/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubebridge/bridge/internal/resource/jsonscan"
)

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
	// NodeName is the node of a pod; "" where it has none, and of other objects.
	NodeName string
	// Writes are the managedFields entries.
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

// MoreOwners is the last of a chain of owners that is cut.
var MoreOwners = Owner{Name: "…"}

// Identity is which object it is, in which version, and nothing else. It shares no memory with the
// object.
func (o *Object) Identity() *Object {
	return &Object{Meta: Meta{
		Namespace: strings.Clone(o.Namespace), Name: strings.Clone(o.Name), UID: strings.Clone(o.UID),
		Version: Version(strings.Clone(string(o.Version))),
	}}
}

// Key returns the object's name within its type.
func (m *Meta) Key() Key { return MakeKey(m.Namespace, m.Name) }

// Size returns what the object costs in a queue, in bytes: its JSON, what is kept of its
// managedFields, and the bookkeeping around it.
func (o *Object) Size() int {
	const overhead = 256 // an Object, its Key and its place in a queue, rounded up
	return len(o.Raw) + len(o.Writes) + overhead
}

// Type is one resource as the API server serves it: what discovery says of it, and no more.
type Type struct {
	Group      string // "" for the core group
	Version    string // "v1"
	Resource   string // plural, lower case: "deployments"
	Kind       string // "Deployment"
	Namespaced bool
}

// APIVersion returns the value of an object's apiVersion member: "apps/v1", or "v1" for the core
// group.
func (t Type) APIVersion() string {
	if t.Group == "" {
		return t.Version
	}
	return t.Group + "/" + t.Version
}

// String names the type as kubectl does: "deployments.apps", or "pods" for the core group.
// It is stable across API versions, so state on disk is kept under it.
func (t Type) String() string {
	if t.Group == "" {
		return t.Resource
	}
	return t.Resource + "." + t.Group
}

// IsPods reports whether the objects are pods.
func (t Type) IsPods() bool { return t.Group == "" && t.Resource == "pods" }

// GVR returns the type in apimachinery's words.
func (t Type) GVR() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: t.Group, Version: t.Version, Resource: t.Resource}
}

// root returns the path of the type's group and version, without a leading slash.
func (t Type) root() string {
	if t.Group == "" {
		return "api/" + t.Version
	}
	return "apis/" + t.Group + "/" + t.Version
}

// CollectionPath returns the URL path of the collection, without a leading slash: of one namespace,
// or of all for namespace "".
func (t Type) CollectionPath(namespace string) string {
	if t.Namespaced && namespace != "" {
		return t.root() + "/namespaces/" + namespace + "/" + t.Resource
	}
	return t.root() + "/" + t.Resource
}

// ObjectPath returns the URL path of one object, without a leading slash:
// "apis/apps/v1/namespaces/shop/deployments/web".
func (t Type) ObjectPath(key Key) string {
	namespace, name := key.Split()
	return t.CollectionPath(namespace) + "/" + name
}

// Key names an object within its type as client-go's MetaNamespaceKeyFunc does: "namespace/name",
// or "name" for cluster-scoped objects.
type Key string

// MakeKey joins a namespace (which may be empty) and a name.
func MakeKey(namespace, name string) Key {
	if namespace == "" {
		return Key(name)
	}
	return Key(namespace + "/" + name)
}

// Digest stands for the key where its name must not be shown. It is the same in every process.
func (k Key) Digest() uint64 { return xxhash.Sum64String(string(k)) }

// Split returns the namespace ("" for cluster-scoped objects) and the name. Neither can contain
// a slash.
func (k Key) Split() (namespace, name string) {
	if namespace, name, ok := strings.Cut(string(k), "/"); ok {
		return namespace, name
	}
	return "", string(k)
}

// Version is a resourceVersion: where in the history of its resource type an object, a list or a
// bookmark stands. Versions of one type are comparable (KEP-5504) when both are decimal numbers
// without leading zeros, however long; aggregated API servers may use others, which can only be
// equal or not.
type Version string

// Check reports whether v is short enough to be stored.
func (v Version) Check() error {
	if len(v) > MaxIdentity {
		return ErrVersion
	}
	return nil
}

// Ordered reports whether v is a number, so that it can be compared with another.
func (v Version) Ordered() bool {
	if v == "" || v[0] == '0' {
		return false
	}
	for i := range len(v) {
		if v[i] < '0' || v[i] > '9' {
			return false
		}
	}
	return true
}

// Compare orders two versions of one resource type: negative when v is older than other, zero when
// they are the same, positive when it is newer. Where the two have no order, ok is false.
func (v Version) Compare(other Version) (order int, ok bool) {
	switch {
	case v == other:
		return 0, true
	case !v.Ordered() || !other.Ordered():
		return 0, false
	case len(v) != len(other):
		return len(v) - len(other), true
	case v < other:
		return -1, true
	default:
		return 1, true
	}
}

// Before returns the version that is one lower, or v where it is no number, or 1.
func (v Version) Before() Version {
	if !v.Ordered() || v == "1" {
		return v
	}
	digits := []byte(v)
	i := len(digits) - 1
	for ; digits[i] == '0'; i-- {
		digits[i] = '9'
	}
	digits[i]--
	if digits[0] == '0' {
		digits = digits[1:]
	}
	return Version(digits)
}

// Newer reports whether v is known to be after other. It is false where the two have no order.
func (v Version) Newer(other Version) bool {
	order, ok := v.Compare(other)
	return ok && order > 0
}

// NotNewer reports whether v is known to be other or before it. It is false where the two have no
// order.
func (v Version) NotNewer(other Version) bool {
	order, ok := v.Compare(other)
	return ok && order <= 0
}

// Labels are an object's labels as they stand in its JSON: what a labels.Selector of apimachinery
// looks into. They share the object's memory, and so do the values.
type Labels []byte

// Labels returns the object's labels, empty where it has none.
func (o *Object) Labels() Labels { return Member(Member(o.Raw, "metadata"), "labels") }

// Lookup returns the value of a label, and reports whether there is one.
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

// Get returns the value of a label, "" where there is none.
func (l Labels) Get(label string) string {
	value, _ := l.Lookup(label)
	return value
}

// Members yields the members of a JSON object in their order: names unescaped, values as they
// stand. Of anything else, and of bytes that are no valid JSON, it yields what comes before the
// mistake. A name may share memory with raw.
func Members(raw []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		s := jsonscan.Of(raw)
		for s.Open('{'); s.Next('}'); {
			name := s.Key()
			at := s.Skip()
			if s.Err() != nil || !yield(view(name), s.Bytes(at)) {
				return
			}
		}
	}
}

// Member returns the value of a member of a JSON object, nil when there is none.
func Member(raw []byte, name string) []byte {
	for found, value := range Members(raw) {
		if found == name {
			return value
		}
	}
	return nil
}

// LargeBytes is the size from which on an object is large: work on it takes a millisecond. An
// object of half a megabyte is read, decided, compared and compressed for ten milliseconds and
// more. Where as many large ones are worked on as there are processors, everything else waits for
// that: small objects of others too. Waits for a processor show it late, and only by chance, since
// the runtime notes one of eight.
const LargeBytes = 64 << 10

var largeSeen = make(chan struct{}, 1)

// NoteLarge says that an object of a size has come. It never blocks, and may be called
// concurrently.
func NoteLarge(bytes int) {
	if bytes < LargeBytes {
		return
	}
	select {
	case largeSeen <- struct{}{}:
	default:
	}
}

// LargeSeen has an element once a large object came since the last one was received.
func LargeSeen() <-chan struct{} { return largeSeen }

// MaxUnreadable is how much is kept of what can't be understood: in base64 it fits into a message
// of any broker's defaults.
const MaxUnreadable = 256 << 10

// Unreadable is something that the API server sent and that can't be understood: no JSON, no
// object, an object of another kind, too large.
type Unreadable struct {
	// Reason is a short constant, see Reason* of the reflector; Message says more, for a person,
	// and is empty where Withheld is set.
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
	// Key of the object, where it is known beyond doubt.
	Key Key `json:"key,omitempty"`
	// Listed: it was an item of a list, which continued behind it. Version is set on what a watch
	// reported and continued behind: the object's.
	Listed  bool    `json:"listed,omitempty"`
	Version Version `json:"version,omitempty"`
	// Raw are the first bytes, at most MaxUnreadable; nil where Withheld is set.
	Raw []byte `json:"raw,omitempty"`
	// Size is how many bytes there were. Where Partial is set, there were more, or where it ends
	// is not known.
	Size    int  `json:"size"`
	Partial bool `json:"partial,omitempty"`
	// Withheld: these bytes may hold values to be redacted, and where they stand nobody knows.
	Withheld bool `json:"withheld,omitempty"`
	// Digest is the SHA-256 of what was read, in hex; where Withheld is set, one under the
	// redaction key, unless values are redacted nowhere.
	Digest string `json:"digest"`
	// Occurrence identifies what the Digest does not. An object it identifies by its uid and
	// version, since a watch and a list may differ in its bytes. What is partial it identifies by
	// the version after which it came, and a digest of what is sure to be the same when it comes
	// again.
	Occurrence string `json:"place,omitempty"`
}

// Whole says that all bytes belong to what can't be understood.
const Whole = -1

// NewUnreadable keeps what may be kept of raw. stable is how many of its bytes will be there too
// when the same comes again, or Whole; after is the version after which it came. Bytes of another
// kind than was asked for are withheld: they may be of Secrets.
func NewUnreadable(
	opts *ParseOptions, raw []byte, stable int, after Version, why error,
) *Unreadable {
	u := &Unreadable{Size: len(raw), Partial: stable != Whole}
	u.Withheld = opts.Redacts() || errors.Is(why, ErrWrongKind)
	digest := sha256Hex
	if key := opts.secretKey(); u.Withheld && key != nil {
		digest = key.digest
	}
	if !u.Withheld {
		u.Raw = bytes.Clone(raw[:min(len(raw), MaxUnreadable)])
	}
	u.Digest = digest(raw)
	if u.Partial {
		u.Occurrence = string(after) + "/" + digest(raw[:stable])[:idDigits]
	}
	return u
}

// idDigits is how much of a digest is in an id.
const idDigits = 32

// ID returns an id, the same each time the same bytes come.
func (u *Unreadable) ID() string { return u.Reason + "/" + cmp.Or(u.Occurrence, u.Digest[:idDigits]) }

// Bytes returns the size in a queue.
func (u *Unreadable) Bytes() int {
	const overhead = 512
	return len(u.Raw) + overhead
}

func sha256Hex(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// PanicError is a panic in the work on one object.
type PanicError struct {
	// Stack is where it came from. Neither the Stack nor the error's text has anything of the
	// object.
	Stack []byte
	what  string
}

// Panicked makes an error of what recover has given.
func Panicked(v any) *PanicError {
	what := fmt.Sprintf("%T", v) // its text may be of the object
	if err, ok := v.(runtime.Error); ok {
		what = err.Error()
	}
	return &PanicError{debug.Stack(), what}
}

func (e *PanicError) Error() string { return "panic: " + e.what }

// IdentityOf returns what an object says of itself.
func IdentityOf(o *Object) Identity { return Identity{o.Key(), o.UID, o.Version} }
