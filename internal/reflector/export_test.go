package reflector

import (
	"bytes"
	"errors"
	"io"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubebridge/bridge/internal/resource"
)

// Frame is one frame of a watch, for tests of the splitter.
type Frame struct {
	Event   watch.EventType
	Object  *resource.Object
	Version resource.Version
}

func newTestStream(r io.Reader) *stream {
	return &stream{cause: func() error { return nil }, body: io.NopCloser(r)}
}

// EachFrame splits a watch's answer.
func EachFrame(r io.Reader, limit int64, opts resource.ParseOptions, do func(Frame)) error {
	s := newTestStream(r)
	v := newFrameReader(s, limit)
	for {
		f, _, err := v.next(&opts)
		if err != nil {
			return v.readError(err)
		}
		do(Frame{f.event, f.obj, f.version})
	}
}

// EachItem splits a list's answer, and gives its version and continue token.
func EachItem(
	r io.Reader, limit int64, do func(raw []byte) error,
) (resource.Version, string, error) {
	s := newTestStream(r)
	v := newFrameReader(s, limit)
	p, err := readPage(v, func() error {
		raw, err := v.value()
		if err != nil {
			return err
		}
		return do(raw)
	}, nil)
	if err != nil {
		return "", "", v.readError(err)
	}
	return p.version, p.next, nil
}

// EachObject reads a list's items as Replace gets them.
func EachObject(
	r io.Reader, limit int64, opts resource.ParseOptions, do func(*resource.Object),
) error {
	v := newFrameReader(newTestStream(r), limit)
	_, err := readPage(v, func() error {
		obj, err := resource.ParseNext(v.Scanner, &opts)
		if err == nil {
			do(obj)
		}
		return err
	}, nil)
	return err
}

// IsUnreadable reports whether an error is of the bytes, not of the connection.
func IsUnreadable(err error) bool {
	_, ok := errors.AsType[*unreadableError](err)
	return ok
}

// IsUnexpected reports whether an error is of JSON that is no frame: then nobody has looked at the
// rest of it.
func IsUnexpected(err error) bool {
	return IsUnreadable(err) &&
		whyUnreadable(err) != unreadableSyntax
}

// IsCut reports whether the stream ended amid a value.
func IsCut(err error) bool { return errors.Is(err, errCut) }

// IsDropped reports whether the connection was lost between two values.
func IsDropped(err error) bool { return errors.Is(err, errDropped) }

// Chunks reads n bytes at a time, as a slow connection does.
func Chunks(raw []byte, n int) io.Reader { return &chunks{bytes.NewReader(raw), n} }

type chunks struct {
	r io.Reader
	n int
}

func (c *chunks) Read(p []byte) (int, error) { return c.r.Read(p[:min(len(p), c.n)]) }
