package reflector

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubebridge/bridge/internal/resource"
)

// frame is one frame of a watch: {"type": …, "object": …}.
type frame struct {
	event watch.EventType
	// obj is the object of ADDED, MODIFIED and DELETED.
	obj *resource.Object
	// version is a BOOKMARK's; initialEnd marks the one that ends the initial events of a WatchList.
	version    resource.Version
	initialEnd bool
	// status is what an ERROR says.
	status *apierrors.StatusError
}

// values reads JSON values one after the other, none larger than a limit. The bytes of one are valid until the next read.
type values struct {
	in  *stream
	dec *jsontext.Decoder
	max int64
}

func newValues(in *stream, limit int64) *values {
	// Names that come twice are not looked for everywhere, which would cost a third more; where they matter they are
	// found here and by resource.Parse.
	v := &values{in: in, dec: jsontext.NewDecoder(in, jsontext.AllowDuplicateNames(true)), max: limit}
	v.allow()
	return v
}

// allow gives the next value its whole size, and some whitespace before it: what was read ahead counts for it.
func (v *values) allow() {
	const space = 4096
	v.in.allow(v.dec.InputOffset() + v.max + space)
}

func (v *values) value() (jsontext.Value, error) {
	v.allow()
	value, err := v.dec.ReadValue()
	if err == nil && int64(len(value)) > v.max {
		return value[:v.max], ErrFrameTooLarge
	}
	return value, err
}

// peek says what comes next, or 0 when reading it will fail.
func (v *values) peek() jsontext.Kind {
	v.allow()
	return v.dec.PeekKind()
}

func (v *values) token(want jsontext.Kind) error {
	v.allow()
	got, err := v.dec.ReadToken()
	if err != nil {
		return err
	}
	if got.Kind() != want {
		return &unreadableError{err: fmt.Errorf("%s where %s should be, at byte %d", got.Kind(), want, v.dec.InputOffset())}
	}
	return nil
}

// members walks over an object. The value of each member is read by do, which gets the name.
func (v *values) members(do func(name string) error) error {
	if err := v.token('{'); err != nil {
		return err
	}
	for v.peek() != '}' {
		name, err := v.value()
		if err != nil {
			return err
		}
		if err := do(memberName(name)); err != nil {
			return err
		}
	}
	return v.token('}')
}

// memberName is a name as one of the constants that are asked for, without an allocation for these.
func memberName(quoted jsontext.Value) string {
	switch string(quoted) {
	case `"type"`:
		return "type"
	case `"object"`:
		return "object"
	}
	name, _ := jsontext.AppendUnquote(nil, quoted) // validated by the decoder
	return string(name)
}

// next reads one frame. Its error goes through failed, and is io.EOF at the end of the stream between two frames; raw are the
// bytes that it is about, valid until the next read.
func (v *values) next(opts resource.ParseOptions) (f frame, raw []byte, err error) {
	known := false
	err = v.members(func(name string) error {
		value, err := v.value()
		switch {
		case err != nil:
			raw = value
			return err
		case name == "type" && known, name == "object" && raw != nil:
			return &unreadableError{err: resource.ErrDuplicate}
		case name == "type":
			f.event, known = eventType(value), true
		case name == "object" && known:
			raw = value
			return f.read(value, opts)
		case name == "object":
			raw = bytes.Clone(value) // its type is still to come
		}
		return nil
	})
	switch {
	case err == nil && raw == nil:
		err = &unreadableError{err: errors.New("frame without an object")}
	case err == nil && f.obj == nil && f.version == "" && f.status == nil:
		err = f.read(raw, opts)
	}
	if err != nil && raw == nil {
		raw = v.dec.UnreadBuffer() // from where it stopped making sense
	}
	return f, raw, err
}

// failed says what an error of reading means: the end of the stream (io.EOF, between two values), a lost connection, or bytes
// that are not the JSON that they should be.
func (v *values) failed(err error) error {
	cause, broken := context.Cause(v.in.ctx), v.in.broken
	switch {
	case broken == nil && errors.Is(err, io.EOF):
		return err
	case cause != nil:
		return cause
	case broken != nil: // whatever the decoder makes of it: amid a value it is a syntax error to it
		return v.lost(broken)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errCut
	}
	if _, ok := errors.AsType[*jsontext.SyntacticError](err); ok || errors.Is(err, ErrFrameTooLarge) {
		return &unreadableError{err: err}
	}
	return fmt.Errorf("read: %w", err)
}

// lost is the end of a connection, with where it came.
func (v *values) lost(why error) error {
	where := errDropped
	if v.amid() {
		where = errCut
	}
	if errors.Is(why, io.ErrUnexpectedEOF) {
		return where // it has no more to say
	}
	return fmt.Errorf("%w: %s", where, why.Error()) // not wrapped: it may be an io.EOF of something else
}

// amid says whether a value has begun and is not complete.
func (v *values) amid() bool {
	return v.dec.StackDepth() > 0 || len(bytes.TrimSpace(v.dec.UnreadBuffer())) > 0
}

func eventType(quoted jsontext.Value) watch.EventType {
	switch string(quoted) {
	case `"MODIFIED"`:
		return watch.Modified
	case `"ADDED"`:
		return watch.Added
	case `"DELETED"`:
		return watch.Deleted
	case `"BOOKMARK"`:
		return watch.Bookmark
	case `"ERROR"`:
		return watch.Error
	}
	return watch.EventType(quoted[:min(len(quoted), 64)])
}

// read reads a frame's object as what its type says it is.
func (f *frame) read(raw []byte, opts resource.ParseOptions) (err error) {
	switch f.event {
	case watch.Added, watch.Modified, watch.Deleted:
		f.obj, err = resource.Parse(raw, opts)
	case watch.Bookmark:
		err = f.readBookmark(raw)
	case watch.Error:
		err = f.readStatus(raw)
	default:
		err = fmt.Errorf("watch event of unknown type %s", f.event)
	}
	if err != nil {
		return &unreadableError{err: err}
	}
	return nil
}

func (f *frame) readBookmark(raw []byte) error {
	var bookmark struct {
		Metadata struct {
			ResourceVersion resource.Version  `json:"resourceVersion"`
			Annotations     map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(raw, &bookmark); err != nil {
		return fmt.Errorf("bookmark: %w", err)
	}
	f.version = bookmark.Metadata.ResourceVersion
	f.initialEnd = bookmark.Metadata.Annotations[metav1.InitialEventsAnnotationKey] == "true"
	if f.version == "" {
		return fmt.Errorf("bookmark: %w", resource.ErrNoVersion)
	}
	return nil
}

func (f *frame) readStatus(raw []byte) error {
	f.status = new(apierrors.StatusError)
	if err := json.Unmarshal(raw, &f.status.ErrStatus); err != nil {
		return fmt.Errorf("watch event ERROR: %w", err)
	}
	return nil
}
