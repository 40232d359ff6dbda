package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/kubebridge/bridge/client"
)

// served is a script of what bridge serve answers of pods.
type served struct {
	*httptest.Server
	mu      sync.Mutex
	version int
	pods    map[string]int // versions, guarded by mu
	watches chan string    // lines; "" ends a watch
	ended   atomic.Int32   // watches
	asked   []string       // versions that watches began at, guarded by mu
}

func serve(t *testing.T) *served {
	t.Helper()
	s := &served{pods: map[string]int{}, watches: make(chan string)}
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, value any) { _ = json.NewEncoder(w).Encode(value) }
	mux.HandleFunc("/apis", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, metav1.APIGroupList{})
	})
	mux.HandleFunc("/api/v1", func(w http.ResponseWriter, _ *http.Request) {
		verbs := []string{"get", "list", "watch"}
		answer(w, metav1.APIResourceList{APIResources: []metav1.APIResource{
			{Name: "pods", Verbs: verbs},
			{Name: "pods/status", Verbs: verbs},
			{Name: "secrets", Verbs: verbs},
		}})
	})
	mux.HandleFunc("/api/v1/secrets", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		answer(w, metav1.Status{Message: "this token may not read secrets"})
	})
	mux.HandleFunc("/api/v1/pods", s.answerPods)
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.CloseClientConnections)
	t.Cleanup(s.Close)
	return s
}

func (s *served) answerPods(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("watch") == "" {
		s.mu.Lock()
		defer s.mu.Unlock()
		var items []string
		for name, version := range s.pods {
			items = append(items, strings.Replace(podJSON(name, version), podType, "", 1))
		}
		_, _ = fmt.Fprintf(w, `{"kind":"PodList","apiVersion":"v1","items":[%s],"metadata":{"resourceVersion":"%d"}}`,
			strings.Join(items, ","), s.version)
		return
	}
	s.mu.Lock()
	s.asked = append(s.asked, r.URL.Query().Get("resourceVersion"))
	s.mu.Unlock()
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	defer s.ended.Add(1)
	for {
		select {
		case line := <-s.watches:
			if line == "" {
				return
			}
			_, _ = w.Write([]byte(line + "\n"))
			_ = http.NewResponseController(w).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

// put makes or changes a pod, and sends no event.
func (s *served) put(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.pods[name] = s.version
}

func (s *served) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	delete(s.pods, name)
}

func (s *served) lastAsked() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[len(s.asked)-1]
}

func watched(kind, name string, version int) string {
	return fmt.Sprintf(`{"type":%q,"object":%s}`, kind, podJSON(name, version))
}

func TestArchive(t *testing.T) {
	s := serve(t)
	for _, name := range []string{"a", "b", "c"} {
		s.put(name)
	}
	source := client.Archive(&rest.Config{Host: s.URL})
	c := client.New(source)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = c.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	_, h := start(t, c, client.Options{}, &unstructured.Unstructured{}, 0)
	h.wantLines(t, "list a 1", "list b 2", "list c 3")
	t.Run("what a token may not read is not there", func(t *testing.T) {
		has, err := c.Resources(t.Context())
		must(t, err)
		if len(has) != 1 || has[0] != pods {
			t.Errorf("it has %v", has)
		}
	})
	t.Run("changes arrive, a late one of a lower version too", func(t *testing.T) {
		s.watches <- watched("ADDED", "d", 9)
		s.watches <- watched("MODIFIED", "a", 7)
		s.watches <- watched("DELETED", "b", 8)
		h.wantLines(t, "add d 9", "delete b 2", "update a 7 from 1")
	})
	t.Run("a watch that ends continues where it was", func(t *testing.T) {
		s.watches <- `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"12"}}}`
		s.watches <- ""
		s.watches <- watched("DELETED", "d", 13)
		h.wantLines(t, "delete d 9")
		if at := s.lastAsked(); at != "12" {
			t.Errorf("it began at %s", at)
		}
	})
	t.Run("after versions that are gone it lists again", func(t *testing.T) {
		s.put("b")
		s.put("a")
		s.remove("c")
		s.watches <- `{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}`
		h.wantLines(t, "update a 5 from 7", "add b 4", "vanish c 3")
	})
	t.Run("after an outage it continues where it was", func(t *testing.T) {
		ended := s.ended.Load()
		s.CloseClientConnections()
		await(t, "the end of the watch", func() bool { return s.ended.Load() > ended })
		s.watches <- watched("ADDED", "e", 14)
		h.wantLines(t, "add e 14")
		if at := s.lastAsked(); at != "6" {
			t.Errorf("it began at %s", at)
		}
	})
	t.Run("it has no order of events", func(t *testing.T) {
		for _, err := range source.Events(t.Context(), "") {
			if err == nil || !strings.Contains(err.Error(), "informers only") {
				t.Errorf("got %v", err)
			}
		}
	})
}

// answers is a transport.
type answers func(r *http.Request) string

// RoundTrip implements http.RoundTripper.
func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	body := io.NopCloser(strings.NewReader(a(r)))
	return &http.Response{StatusCode: http.StatusOK, Body: body, Request: r}, nil
}

// An archive is read to its end, though each watch on it ends at once.
func TestShortArchiveWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var watches atomic.Int64
		transport := answers(func(r *http.Request) string {
			switch {
			case r.URL.Path == "/apis":
				return `{}`
			case r.URL.Path == "/api/v1":
				return `{"resources":[{"name":"pods","verbs":["list","watch"]}]}`
			case r.URL.Query().Get("watch") == "":
				return `{"metadata":{"resourceVersion":"1"}}`
			}
			watches.Add(1)
			return ""
		})
		c := client.New(client.Archive(&rest.Config{Host: "archive.test", Transport: transport}))
		ctx, stop := context.WithTimeout(t.Context(), 10500*time.Millisecond)
		defer stop()
		if err := c.Run(ctx); err != nil && ctx.Err() == nil {
			t.Fatal(err)
		}
		if n := watches.Load(); n != 11 {
			t.Errorf("%d watches in 10.5 s, want 11", n)
		}
	})
}
