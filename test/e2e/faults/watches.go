package faults

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EndingIn lets a watch end after some frames with an ERROR event.
func EndingIn(frames, code int, reason metav1.StatusReason) func(http.Handler) http.Handler {
	last := slices.Concat([]byte(`{"type":"ERROR","object":`), status(code, reason), []byte("}\n"))
	return spoiled(frames, func(<-chan struct{}) []byte { return last })
}

// Silent lets a watch send some frames and then nothing, while its connection is well.
func Silent(frames int) func(http.Handler) http.Handler {
	return spoiled(frames, func(ended <-chan struct{}) []byte { <-ended; return nil })
}

// spoiledKey is in the context of a request whose answer's body is to be made into another.
type spoiledKey struct{}

// spoiled lets an answer continue with something else after some lines.
func spoiled(lines int, last func(ended <-chan struct{}) []byte) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b := &body{lines: lines, last: last}
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), spoiledKey{}, b)))
		})
	}
}

// spoil changes an answer as its request says.
func spoil(resp *http.Response) error {
	if b, ok := resp.Request.Context().Value(spoiledKey{}).(*body); ok && resp.StatusCode == http.StatusOK {
		b.ended, b.Closer, b.in = resp.Request.Context().Done(), resp.Body, bufio.NewReader(resp.Body)
		resp.Body = b
	}
	return nil
}

// body is lines of another one, and then something else.
type body struct {
	io.Closer
	ended   <-chan struct{} // closed when the request ends
	in      *bufio.Reader
	lines   int // that are still to pass
	last    func(ended <-chan struct{}) []byte
	pending []byte
}

// Read gives a line at a time.
func (b *body) Read(p []byte) (int, error) {
	if len(b.pending) == 0 {
		if err := b.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, b.pending)
	b.pending = b.pending[n:]
	return n, nil
}

func (b *body) next() (err error) {
	switch {
	case b.lines > 0:
		b.lines--
		b.pending, err = b.in.ReadBytes('\n')
		return err
	case b.last == nil:
		return io.EOF
	}
	b.pending, b.last = b.last(b.ended), nil
	if len(b.pending) == 0 {
		return io.EOF
	}
	return nil
}
