package resource

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
)

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
