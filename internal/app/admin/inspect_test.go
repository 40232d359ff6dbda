package admin_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/app/admin"
)

// looked is a Inspector for tests.
type looked struct {
	batches chan any
	closed  chan struct{}
	options chan admin.TailOptions
}

func newLooked() *looked {
	return &looked{batches: make(chan any, 8), closed: make(chan struct{}, 8), options: make(chan admin.TailOptions, 8)}
}

func (l *looked) Tail(o admin.TailOptions) (admin.Tail, error) {
	if o.Filter == "bad" {
		return nil, &admin.Error{Code: http.StatusBadRequest, Err: errors.New("no such key")}
	}
	l.options <- o
	return l, nil
}

func (l *looked) Next(ctx context.Context) (any, error) {
	select {
	case b := <-l.batches:
		return b, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *looked) Close() { l.closed <- struct{}{} }

func (l *looked) Object(_ context.Context, resource, namespace, name string) (any, error) {
	if name == "none" {
		return nil, errors.New("disk on fire")
	}
	return []string{resource, namespace, name}, nil
}

// with asks with headers; Host is one of them.
func with(t *testing.T, url string, headers map[string]string) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	request.Host = headers["Host"]
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	return response
}

// A tail sends events until the reader closes it.
func TestTailStream(t *testing.T) {
	l := newLooked()
	url, stop := start(t, admin.Config{Look: l, Access: ownUser})
	response := with(t, url+"/tail?filter=op%3D%3D%22added%22&payload=true", nil)
	if kind := response.Header.Get("Content-Type"); response.StatusCode != 200 || kind != "text/event-stream" {
		t.Fatalf("got %d %s", response.StatusCode, kind)
	}
	if o := <-l.options; o.Filter != `op=="added"` || !o.Payload {
		t.Errorf("asked for %+v", o)
	}
	lines := bufio.NewScanner(response.Body)
	for _, batch := range []string{"one\ntwo", "three"} { // the second comes when nobody asks again
		l.batches <- batch
		for lines.Scan() && !strings.HasPrefix(lines.Text(), "data: ") {
		}
		if want := `data: "` + strings.ReplaceAll(batch, "\n", `\n`) + `"`; lines.Text() != want {
			t.Errorf("got %q, want %q", lines.Text(), want)
		}
	}
	response.Body.Close()
	wait(t, l.closed, "the tail is not closed when its reader has gone")

	response = with(t, url+"/tail", nil)
	<-l.options
	if err := stop(); err != nil {
		t.Error(err)
	}
	wait(t, l.closed, "the tail is not closed when the server stops")
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Errorf("the tail was broken off: %v", err)
	}
}

func wait(t *testing.T, done <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal(what)
	}
}

// A request for something that can't be shown is answered plainly.
func TestInspectionErrors(t *testing.T) {
	url, _ := start(t, admin.Config{Look: newLooked(), Access: ownUser})
	for path, want := range map[string]string{
		"/tail?filter=bad":             "no such key",
		"/object?resource=pods":        "want /object?resource=",
		"/object?resource=a&name=none": "disk on fire",
		"/object?resource=pods&name=x": `"x"`,
	} {
		if _, _, body := get(t, url+path, ""); !strings.Contains(body, want) {
			t.Errorf("%s: got %q, want %q", path, body, want)
		}
	}
	without, _ := start(t, admin.Config{})
	for _, path := range []string{"/tail", "/object?resource=pods&name=x"} {
		if code, _, _ := get(t, without+path, ""); code != 404 {
			t.Errorf("%s without a Inspector: %d", path, code)
		}
	}
}

// Browsers get the page, and nothing from elsewhere.
func TestStatusPageFiles(t *testing.T) {
	url, _ := start(t, admin.Config{})
	page := with(t, url+"/", map[string]string{"Accept": "text/html,*/*"})
	policy := page.Header.Get("Content-Security-Policy")
	if page.StatusCode != 200 || !strings.HasPrefix(page.Header.Get("Content-Type"), "text/html") {
		t.Errorf("got %d %s", page.StatusCode, page.Header.Get("Content-Type"))
	}
	if !strings.HasPrefix(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") || strings.Contains(policy, "http") {
		t.Errorf("the policy lets in more than the bridge's own: %s", policy)
	}
	for path, kind := range map[string]string{"/page.css": "text/css", "/page.js": "text/javascript", "/timeline.js": "text/javascript"} {
		if code, got, body := get(t, url+path, ""); code != 200 || !strings.HasPrefix(got, kind) || len(body) < 1000 {
			t.Errorf("%s: %d %s, %d bytes", path, code, got, len(body))
		}
	}
}
