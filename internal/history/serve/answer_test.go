package serve_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history/serve"
	"github.com/kubebridge/bridge/internal/testkit"
)

// large are pods with annotations of so many bytes each.
func large(pods, size int) []event.Event {
	var objects []string
	for i := range pods {
		objects = append(objects, fmt.Sprintf("pods/shop/web-%03d", i))
	}
	events := inventory(objects...)
	for i := range events {
		events[i].Data = fmt.Appendf(nil, `{"metadata":{"name":"web-%03d","namespace":"shop","annotations":{"x":%q}}}`, i, strings.Repeat("x", size))
	}
	return events
}

// An answer of more than 128 KiB is compressed for who accepts gzip, as an API server does it.
func TestGzip(t *testing.T) {
	s := newSite(t, large(3, 60<<10), serve.Config{Live: true})
	for _, test := range []struct {
		path, accepts string
		want          bool
	}{
		{"/api/v1/pods", "gzip", true},
		{"/api/v1/pods", "deflate, gzip , br", true},
		{"/api/v1/pods", "gzip;q=1.0", false},
		{"/api/v1/pods", "identity", false},
		{"/api/v1/pods?limit=2", "gzip", false}, // 120 KiB
		{"/api/v1/namespaces/shop/pods/web-000", "gzip", false},
		{"/api/v1/pods?watch=1&timeoutSeconds=1", "gzip", false},
	} {
		get := func(accepts string) (*http.Response, []byte) {
			t.Helper()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.server.URL+test.path, nil)
			testkit.OK(t, err)
			r.Header.Set("Authorization", "Bearer "+token)
			r.Header.Set("Accept-Encoding", accepts)
			response, err := http.DefaultTransport.RoundTrip(r)
			testkit.OK(t, err)
			defer response.Body.Close()
			body, err := io.ReadAll(response.Body)
			testkit.OK(t, err)
			return response, body
		}
		_, want := get("identity")
		response, body := get(test.accepts)
		encoding, vary := response.Header.Get("Content-Encoding"), response.Header.Get("Vary")
		if (encoding == "gzip") != test.want || (vary == "Accept-Encoding") != test.want {
			t.Errorf("%s, Accept-Encoding %q: Content-Encoding %q, Vary %q", test.path, test.accepts, encoding, vary)
			continue
		}
		if test.want {
			unpacked, err := gzip.NewReader(bytes.NewReader(body))
			testkit.OK(t, err)
			if body, err = io.ReadAll(unpacked); err != nil {
				t.Errorf("%s: %v", test.path, err)
			}
		}
		if !bytes.Equal(body, want) {
			t.Errorf("%s, Accept-Encoding %q: another body", test.path, test.accepts)
		}
	}
}

// A list that can't be completed is no list: it is an error while nothing was sent, else it breaks
// off.
func TestListThatFails(t *testing.T) {
	for secrets, want := range map[int]string{3: "500", 40: "EOF"} {
		var objects []string
		for i := range secrets {
			objects = append(objects, fmt.Sprintf("secrets/shop/db-%03d", i))
		}
		events := inventory(objects...)
		for i := range events {
			events[i].Data = fmt.Appendf(nil, `{"metadata":{"name":"db-%03d","namespace":"shop"},"data":{"x":%q}}`, i, strings.Repeat("x", 60<<10))
		}
		events[secrets-1].Data = []byte(`{"metadata":{"name":"db","namespace":"shop"},"data":{"x":"redacted:","y":"\q"}}`)
		s := newSite(t, events, serve.Config{Live: true})
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.server.URL+"/api/v1/secrets?limit=100", nil)
		testkit.OK(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		got := ""
		response, err := http.DefaultClient.Do(r)
		if err == nil {
			got = response.Status
			_, err = io.ReadAll(response.Body)
			response.Body.Close()
		}
		if got = fmt.Sprint(got, " ", err); !strings.Contains(got, want) {
			t.Errorf("of %d Secrets: %s, want %s", secrets, got, want)
		}
	}
}
