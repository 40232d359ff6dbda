package reflector

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/resource/jsonscan"
)

// frame is one frame of a watch: {"type": …, "object": …}.
type frame struct {
	event watch.EventType
	// obj is the object of ADDED, MODIFIED and DELETED.
	obj *resource.Object
	// refused is why the object can't be read.
	refused error
	// action is what is done with obj.
	action frameAction
	// object is where the frame's object lies; nil before it.
	object *span
	// version is a BOOKMARK's; initialEnd is set on the one that ends the initial events of a
	// WatchList.
	version    resource.Version
	initialEnd bool
	// status is the error of an ERROR frame.
	status *apierrors.StatusError
}

// frameAction is what is done with an object that was read.
type frameAction int

const (
	selected   frameAction = iota
	unselected             // reported to the Store: it does not match
	unwanted               // not reported to the Store
)

// frameReader reads JSON values in sequence, none larger than a limit, in one pass: bytes that it
// returns are valid until the next release.
type frameReader struct {
	in *stream
	*jsonscan.Scanner
	max   int64
	begun bool  // a frame or a list has begun and is not complete
	start int64 // offset of the current frame
}

func newFrameReader(in *stream, limit int64) *frameReader {
	v := &frameReader{in: in, Scanner: jsonscan.NewReader(in), max: limit}
	v.release()
	return v
}

// release drops the bytes that were read, and allows the next value its whole size, and some more
// for the bytes around it.
func (v *frameReader) release() {
	const around = 4096
	v.Release()
	v.in.allow(v.Offset() + v.max + around)
}

// value reads the next value, of any kind.
func (v *frameReader) value() ([]byte, error) {
	at := v.Skip()
	if err := v.Err(); err != nil {
		return nil, err
	}
	return v.checkSize(v.Bytes(at))
}

// checkSize returns an error for a value that is too large.
func (v *frameReader) checkSize(raw []byte) ([]byte, error) {
	if int64(len(raw)) > v.max {
		return v.first(raw), ErrFrameTooLarge
	}
	return raw, nil
}

// begin moves to the next frame, or to the list. It returns io.EOF where the stream ends before it.
func (v *frameReader) begin() error {
	v.release()
	atEnd := v.AtEnd()
	v.release() // the whitespace before it
	v.start = v.Offset()
	if v.begun = !atEnd; atEnd && v.Err() == nil {
		return v.Ended()
	}
	return v.enter('{')
}

// enter opens an object or array. Another value in its place is an unreadableError.
func (v *frameReader) enter(open byte) error {
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

// next reads one frame. Its error comes from readError, and is io.EOF at the end of the stream
// between two frames; raw are the bytes that the error is about, valid until the next read.
func (v *frameReader) next(opts *resource.ParseOptions) (f frame, raw []byte, err error) {
	err = v.begin()
	for err == nil && v.Next('}') {
		err = v.member(&f, opts)
	}
	if err = cmp.Or(err, v.Err()); err == nil {
		err = v.complete(&f, opts)
	}
	if err != nil {
		raw = v.faultyBytes(&f)
	}
	v.begun = v.begun && err != nil
	return f, raw, err
}

func (v *frameReader) member(f *frame, opts *resource.ParseOptions) (err error) {
	switch string(v.Key()) {
	case "type":
		if f.event != "" {
			return &unreadableError{err: resource.ErrDuplicate}
		}
		v.Peek()
		at := v.Skip()
		f.event = eventType(v.Bytes(at))
	case "object":
		if f.object != nil {
			return &unreadableError{err: resource.ErrDuplicate}
		}
		at, err := v.frameObject(f, opts)
		f.object = &at
		return err
	default:
		v.Skip()
	}
	return v.Err()
}

// frameObject reads a frame's object, where its expected kind is known.
func (v *frameReader) frameObject(f *frame, opts *resource.ParseOptions) (at span, err error) {
	switch f.event {
	case watch.Added, watch.Modified, watch.Deleted:
		// A refused object does not end the reading: the rest may show that the frame is no JSON,
		// which is the more important error, and what follows can only be read from the frame's
		// end.
		f.obj, at, f.refused = v.object(opts)
	default:
		v.Peek()
		at.Span = v.Skip()
		if v.Err() == nil {
			_, err = v.checkSize(v.Bytes(at.Span))
		}
	}
	return at, cmp.Or(v.Err(), err)
}

// size returns how many bytes of the current frame were read.
func (v *frameReader) size() int64 { return v.Offset() + int64(v.Pos()) - v.start }

// span is where an object lies in the bytes that were read, or, where it was too large to keep, its
// first bytes.
type span struct {
	jsonscan.Span
	cut []byte
}

// at returns the bytes of a span, valid until more is read.
func (v *frameReader) at(p span) []byte {
	if p.cut != nil {
		return p.cut
	}
	return v.Bytes(p.Span)
}

// object reads the next object. A RefusedError is of this object alone: the data behind it can be
// read.
func (v *frameReader) object(opts *resource.ParseOptions) (obj *resource.Object, at span, err error) {
	begins := v.Peek()
	at.Start = v.Pos()
	level := v.Level()
	obj, err = resource.ParseNext(v.Scanner, opts)
	at.End = v.Pos()
	switch cut, _ := errors.AsType[*resource.CutError](err); {
	case cut != nil && begins == '{' && errors.Is(err, ErrFrameTooLarge):
		at.cut = bytes.Clone(v.first(v.Read()[at.Start:]))
		v.drop(at.Start, level)
		return nil, at, resource.Refuse(cut.Identity, ErrFrameTooLarge)
	case v.Err() != nil || int64(at.End-at.Start) <= v.max:
		return obj, at, err
	}
	at.End = at.Start + int(v.max)
	if refused, ok := errors.AsType[*resource.RefusedError](err); ok {
		return nil, at, resource.Refuse(refused.Identity, ErrFrameTooLarge)
	}
	return nil, at, resource.Refuse(resource.IdentityOf(obj), ErrFrameTooLarge)
}

// skip skips the next value; an object however large it is.
func (v *frameReader) skip() error {
	if v.Peek() == '{' {
		v.drop(v.Pos(), v.Level())
	} else {
		v.Skip()
	}
	return v.Err()
}

// drop skips to the end of an object that begins at start, and keeps nothing of it.
func (v *frameReader) drop(start, level int) {
	v.in.allow(math.MaxInt64)
	v.Drop(start, level)
	v.release()
}

// first returns the part of a value that is kept.
func (v *frameReader) first(raw []byte) []byte { return raw[:min(int64(len(raw)), v.max)] }

// faultyBytes returns the bytes that an error is about: the object if it was read, else everything
// from the beginning of the frame.
func (v *frameReader) faultyBytes(f *frame) []byte {
	if f.object != nil && v.Err() == nil {
		return v.at(*f.object)
	}
	return v.Read()
}

// readError classifies an error of reading: the end of the stream (io.EOF, between two values), a
// lost connection, or bytes that are not the expected JSON.
func (v *frameReader) readError(err error) error {
	cause, broken := v.in.cause(), v.in.broken
	switch {
	case broken == nil && errors.Is(err, io.EOF):
		return err
	case cause != nil:
		return cause
	case broken != nil:
		return v.connectionError(broken)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errCut
	}
	if errors.Is(err, resource.ErrSyntax) || errors.Is(err, ErrFrameTooLarge) {
		return &unreadableError{err: err}
	}
	return fmt.Errorf("read: %w", err)
}

// connectionError returns the error of a connection that has ended: between two values, or within
// one.
func (v *frameReader) connectionError(why error) error {
	where := errDropped
	if v.begun {
		where = errCut
	}
	if errors.Is(why, io.ErrUnexpectedEOF) {
		return where // it has no reason
	}
	// not wrapped: it may be an io.EOF of something else
	return fmt.Errorf("%w: %s", where, why.Error())
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

// complete decodes the object of a frame whose type came behind it, and reports missing parts.
func (v *frameReader) complete(f *frame, opts *resource.ParseOptions) (err error) {
	switch {
	case f.object == nil:
		err = errors.New("frame without an object")
	case f.obj != nil:
	case f.refused != nil:
		err = f.refused
	case f.event == watch.Added, f.event == watch.Modified, f.event == watch.Deleted:
		f.obj, err = resource.Parse(v.at(*f.object), *opts)
	case f.event == watch.Bookmark:
		err = f.readBookmark(v.at(*f.object))
	case f.event == watch.Error:
		err = f.readStatus(v.at(*f.object))
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
	return f.version.Check()
}

func (f *frame) readStatus(raw []byte) error {
	f.status = new(apierrors.StatusError)
	if err := json.Unmarshal(raw, &f.status.ErrStatus); err != nil {
		return fmt.Errorf("watch event ERROR: %w", err)
	}
	return nil
}
