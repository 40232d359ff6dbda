package rights

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/kube"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// answers is a transport that answers by itself.
type answers func(*http.Request) (*http.Response, error)

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) { return a(r) }

// A server that can't answer is reported once, and asked less and less often.
func TestRightsNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var status, asked atomic.Int64
		status.Store(http.StatusNotImplemented)
		resolver, err := kube.NewResolver(&rest.Config{Host: "http://api", Transport: answers(func(*http.Request) (*http.Response, error) {
			asked.Add(1)
			code := int(status.Load())
			page := "<html>\n<h1>" + http.StatusText(code) + "</h1>\n</html>"
			header := http.Header{"Content-Type": {"text/html"}}
			return &http.Response{StatusCode: code, Header: header, Body: io.NopCloser(strings.NewReader(page))}, nil
		})})
		testkit.OK(t, err)
		var out testkit.Buffer
		c := NewListCheck(resolver, slog.New(slog.NewTextHandler(&out, nil)))
		c.Units = []informer.Config{{Informer: "a", Type: resource.Type{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true}}}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		time.Sleep(10 * time.Minute)
		if lines := out.String(); strings.Count(lines, "\n") != 1 || strings.Contains(lines, "h1") || asked.Load() > 20 {
			t.Errorf("asked %d times, and logged\n%s", asked.Load(), lines)
		}
		status.Store(http.StatusBadGateway)
		time.Sleep(10 * time.Minute)
		stop()
		testkit.OK(t, <-done)
		if lines := out.String(); strings.Count(lines, "\n") != 2 || !strings.Contains(lines, "502 Bad Gateway") {
			t.Errorf("logged\n%s", lines)
		}
	})
}

// A right that was missing is asked for until it is there, also when the API server did not answer
// once meanwhile.
func TestGrantedRight(t *testing.T) {
	const review = `{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":`
	for name, answers := range map[string][]string{
		"after an error":          {review + `false}}`, "", review + `true}}`},
		"after an error at first": {"", review + `false}}`, review + `true}}`},
	} {
		t.Run(name, func(t *testing.T) {
			asked := make(chan string)
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				answer := <-asked
				if answer == "" {
					w.WriteHeader(http.StatusForbidden)
					answer = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`
				}
				_, _ = io.WriteString(w, answer)
			}))
			defer s.Close()
			resolver, err := kube.NewResolver(&rest.Config{Host: s.URL})
			if err != nil {
				t.Fatal(err)
			}
			c := &ListCheck{
				resolver: resolver, log: slog.New(slog.DiscardHandler), pause: time.Millisecond, changes: make(chan []informer.Config, 1),
				Units: []informer.Config{{Informer: "a", Type: resource.Type{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true}}},
			}
			done := make(chan error, 1)
			go func() { done <- c.Run(t.Context()) }()
			defer close(asked)
			for _, answer := range answers {
				select {
				case asked <- answer:
				case <-time.After(time.Minute):
					t.Fatal("it does not ask any more")
				}
				testkit.Eventually(t, "the right is missing", func() bool {
					return answer != answers[0] || answer == "" || len(c.Reasons()) > 0
				})
			}
			testkit.Eventually(t, "the right is granted", func() bool { return len(c.Reasons()) == 0 })
		})
	}
}
