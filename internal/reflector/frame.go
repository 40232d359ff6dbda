package reflector

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubebridge/bridge/internal/jsonscan"
	"github.com/kubebridge/bridge/internal/resource"
)

// frame is one frame of a watch: {"type": …, "object": …}.
type frame struct {
	event watch.EventType
	// obj is the object of ADDED, MODIFIED and DELETED.
	obj *resource.Object
	// refused says why there is none.
	refused error
	// version is a BOOKMARK's; initialEnd marks the one that ends the initial events of a WatchList.
	version    resource.Version
	initialEnd bool
	// status is what an ERROR says.
	status *apierrors.StatusError
}

// values reads JSON values one after the other, none larger than a limit, in one pass: what is said of a value's bytes is valid until the
// next release.
type values struct {
	in *stream
	*jsonscan.Scanner
	max   int64
	begun bool // a frame or a list has begun and is not complete
}

func newValues(in *stream, limit int64) *values {
	v := &values{in: in, Scanner: jsonscan.NewReader(in), max: limit}
	v.release()
	return v
}

// release forgets what was read, and gives the next value its whole size, and some more for what is around it.
func (v *values) release() {
	const around = 4096
	v.Release()
	v.in.allow(v.Offset() + v.max + around)
}

// value reads the value that comes next, whatever it is.
func (v *values) value() ([]byte, error) {
	at := v.Skip()
	if err := v.Err(); err != nil {
		return nil, err
	}
	return v.measured(v.Bytes(at))
}

// measured says whether a value is too large.
func (v *values) measured(raw []byte) ([]byte, error) {
	if int64(len(raw)) > v.max {
		return raw[:v.max], ErrFrameTooLarge
	}
	return raw, nil
}

// begin goes to the next frame, or to the list. It returns io.EOF where the stream ends before it.
func (v *values) begin() error {
	v.release()
	atEnd := v.AtEnd()
	v.release() // the whitespace before it
	if v.begun = !atEnd; atEnd && v.Err() == nil {
		return v.Ended()
	}
	return v.enter('{')
}

// enter opens an object or array. Another value in its place is JSON, but not what should be there.
func (v *values) enter(open byte) error {
	switch c := v.Peek(); c {
	case open:
		v.Open(open)
	case '{', '[', '"':
		return &unreadableError{err: fmt.Errorf("%q where %q should be", c, open)}
	default:
		if v.Skip(); v.Err() == nil {
			return &unreadableError{err: fmt.Errorf("a number or literal where %q should be", open)}
		}
	}
	return v.Err()
}

// next reads one frame. Its error goes through failed, and is io.EOF at the end of the stream between two frames; raw are the
// bytes that it is about, valid until the next read.
func (v *values) next(opts *resource.ParseOptions) (f frame, raw []byte, err error) {
	var object jsonscan.Span
	err = v.begin()
	for err == nil && v.Next('}') {
		object, err = v.member(&f, object, opts)
	}
	if err = cmp.Or(err, v.Err()); err == nil {
		err = f.complete(v.Bytes(object), opts)
	}
	if err != nil {
		raw = v.blamed(object)
	}
	v.begun = v.begun && err != nil
	return f, raw, err
}

// member reads a member of a frame, and says where its object stands once it was there.
func (v *values) member(f *frame, object jsonscan.Span, opts *resource.ParseOptions) (jsonscan.Span, error) {
	switch string(v.Key()) {
	case "type":
		if f.event != "" {
			return object, &unreadableError{err: resource.ErrDuplicate}
		}
		v.Peek()
		at := v.Skip()
		f.event = eventType(v.Bytes(at))
	case "object":
		if object != (jsonscan.Span{}) {
			return object, &unreadableError{err: resource.ErrDuplicate}
		}
		v.Peek()
		object.Start = v.Pos()
		err := v.object(f, opts)
		object.End = v.Pos()
		if err == nil {
			_, err = v.measured(v.Bytes(object))
		}
		return object, err
	default:
		v.Skip()
	}
	return object, v.Err()
}

// object reads a frame's object, where it is known what it must be.
func (v *values) object(f *frame, opts *resource.ParseOptions) (err error) {
	switch f.event {
	case watch.Added, watch.Modified, watch.Deleted:
		f.obj, f.refused = resource.ParseNext(v.Scanner, opts) // the frame is gone over to its end
	default:
		v.Skip()
	}
	return v.Err()
}

// blamed are the bytes that an error is about: the object if it was there, else all from where the frame began.
func (v *values) blamed(object jsonscan.Span) []byte {
	if object.End > object.Start && v.Err() == nil {
		return v.Bytes(object)
	}
	return v.Read()
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
	case broken != nil:
		return v.lost(broken)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errCut
	}
	if errors.Is(err, resource.ErrSyntax) || errors.Is(err, ErrFrameTooLarge) {
		return &unreadableError{err: err}
	}
	return fmt.Errorf("read: %w", err)
}

// lost is the end of a connection, with where it came.
func (v *values) lost(why error) error {
	where := errDropped
	if v.begun {
		where = errCut
	}
	if errors.Is(why, io.ErrUnexpectedEOF) {
		return where // it has no more to say
	}
	return fmt.Errorf("%w: %s", where, why.Error()) // not wrapped: it may be an io.EOF of something else
}

func eventType(quoted []byte) watch.EventType {
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

// complete reads what could not be read before the type was known, and says whether everything is there.
func (f *frame) complete(object []byte, opts *resource.ParseOptions) (err error) {
	switch {
	case len(object) == 0:
		err = errors.New("frame without an object")
	case f.obj != nil:
	case f.refused != nil:
		err = f.refused
	case f.event == watch.Added, f.event == watch.Modified, f.event == watch.Deleted:
		f.obj, err = resource.Parse(object, *opts)
	case f.event == watch.Bookmark:
		err = f.readBookmark(object)
	case f.event == watch.Error:
		err = f.readStatus(object)
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
