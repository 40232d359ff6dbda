package rights

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/kube"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

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
