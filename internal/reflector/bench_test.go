package reflector_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"testing"

	"github.com/kubebridge/bridge/internal/deltafifo"
	"github.com/kubebridge/bridge/internal/reflector"
	"github.com/kubebridge/bridge/internal/resource"
)

// answers is an API server whose watch sends n updates of pods, as fast as they are read.
type answers struct{ n int }

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	resp := &http.Response{
		StatusCode: http.StatusOK,
		Header:     http.Header{"Content-Type": {"application/json"}}, Request: r,
	}
	if r.URL.Query().Get("watch") == "" {
		resp.Body = io.NopCloser(bytes.NewReader([]byte(`{"metadata":{"resourceVersion":"1000000000"},"items":[]}`)))
		return resp, nil
	}
	resp.Body = &updates{ctx: r.Context(), left: a.n, version: 1_000_000_000}
	return resp, nil
}

// updates is the body of a watch.
type updates struct {
	ctx           context.Context
	text          []byte // what is left of the frame
	frame         []byte
	versions      []int
	left, version int
}

func (u *updates) Close() error { return nil }

func (u *updates) Read(p []byte) (n int, err error) {
	for n < len(p) && (len(u.text) > 0 || u.left > 0) {
		if len(u.text) == 0 {
			u.next()
		}
		copied := copy(p[n:], u.text)
		n += copied
		u.text = u.text[copied:]
	}
	if n == 0 {
		<-u.ctx.Done()
		return 0, u.ctx.Err()
	}
	return n, nil
}

func (u *updates) next() {
	const digits = 10
	if u.frame == nil {
		u.frame = bytes.Replace(podFrameBytes, []byte(`"48151623"`), []byte(`"1000000000"`), 1)
		u.versions = append(u.versions, bytes.Index(u.frame, []byte("1000000000")))
	}
	u.left--
	u.version++
	strconv.AppendInt(u.frame[u.versions[0]:u.versions[0]:u.versions[0]+digits], int64(u.version),
		10)
	u.text = u.frame
}

var podFrameBytes []byte

type unknown struct{}

func (unknown) Missing(resource.Version, resource.Relist) iter.Seq2[resource.Key, error] {
	return func(func(resource.Key, error) bool) {}
}

// count counts the deltas that it gets.
type count int

func (c *count) Process(_ context.Context, d deltafifo.Deltas) error {
	*c += count(len(d))
	return nil
}

func (c *count) TryProcess(d deltafifo.Deltas) (int, error) {
	*c += count(len(d))
	return len(d), nil
}

// BenchmarkWatch is the road from what the transport gives to what the controller pops.
func BenchmarkWatch(b *testing.B) {
	podFrameBytes = podFrame(b)
	fifo, err := deltafifo.New(deltafifo.Config{Known: unknown{}, Resumed: true})
	if err != nil {
		b.Fatal(err)
	}
	address, _ := url.Parse("http://api.test")
	refl, err := reflector.New(reflector.Config{
		Client: &reflector.Client{
			HTTP: &http.Client{Transport: &answers{b.N}},
			Base: address,
		}, Store: fifo, Type: pods, From: "1000000000",
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	b.SetBytes(int64(len(podFrameBytes)))
	b.ReportAllocs()
	b.ResetTimer()
	go func() { done <- refl.Run(ctx) }()
	var read count
	for int(read) < b.N {
		if err := fifo.Pop(ctx, &read); err != nil {
			b.Fatal(err)
		}
	}
	cancel()
	if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
		b.Fatal(err)
	}
}
