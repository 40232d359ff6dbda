package serve_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/serve"
	"github.com/kubebridge/bridge/internal/testkit"
)

func TestWarnings(t *testing.T) {
	mark := func(op event.Op, version, data string, after time.Duration) event.Event {
		return event.Event{
			ID: string(op) + version, Source: "/clusters/prod", Type: "dev.kubebridge.informer." + string(op), Op: op, Informer: "all",
			ObjectAttributes: event.ObjectAttributes{Resource: "pods", Kind: "Pod", ResourceVersion: version}, Time: inventoryTime.Add(after), Data: []byte(data),
		}
	}
	events := append(inventory("pods/shop/web", "configmaps/shop/app"),
		mark(event.Synced, "3", "", time.Second),
		mark(event.Gap, "20", `{"reason":"expired\u0007","from":"10","to":"20"}`, time.Minute))
	s := newSite(t, events, serve.Config{At: query.Point{At: inventoryTime.Add(time.Hour)}})
	warnings := func(path string) string {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.server.URL+path, nil)
		testkit.OK(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		response, err := http.DefaultClient.Do(r)
		testkit.OK(t, err)
		testkit.OK(t, response.Body.Close())
		return strings.Join(response.Header.Values("Warning"), "\n")
	}
	for path, want := range map[string]string{
		"/api/v1/pods":                             `299 - "this answer may be incomplete: gap (expired ), versions 10 to 20, `,
		"/api/v1/namespaces/shop/pods":             "gap (expired ), versions 10 to 20",
		"/api/v1/namespaces/shop/pods/web":         "gap (expired ), versions 10 to 20",
		"/api/v1/namespaces/shop/pods/nothing":     "gap (expired ), versions 10 to 20",
		"/api/v1/pods?watch=true&timeoutSeconds=1": "gap (expired ), versions 10 to 20",
		"/api/v1/configmaps":                       "configmaps of informer all: no list of them has ended",
		"/api/v1/namespaces/shop/configmaps/app":   "",
		"/apis":                                    "",
		"/api/v1/pods?limit=1&continue=eyJ2IjozfQ": "",
	} {
		t.Run("what may be missing is a warning: "+path, func(t *testing.T) {
			if got := warnings(path); !strings.Contains(got, want) || want == "" && got != "" {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}
