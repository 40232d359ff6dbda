package serve_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/serve"
	"github.com/kubebridge/bridge/internal/testkit"
)

var inventoryTime = time.Date(2026, 11, 22, 14, 0, 0, 0, time.UTC)

// inventory are objects, named resource/namespace/name.
func inventory(objects ...string) (events []event.Event) {
	for i, object := range objects {
		parts := strings.Split(object, "/")
		resource, group, _ := strings.Cut(parts[0], ".")
		events = append(events, event.Event{
			ID: object, Source: "/clusters/prod", Type: "dev.kubebridge.resource.added", Op: event.Added, Time: inventoryTime,
			Informer: "all", ObjectAttributes: event.ObjectAttributes{
				Resource:   resource,
				Kind:       strings.ToUpper(resource[:1]) + resource[1:len(resource)-1],
				APIVersion: strings.TrimPrefix(group+"/v1", "/"), Namespace: parts[1],
				Name: parts[2], UID: object, ResourceVersion: fmt.Sprint(i + 1),
			}, Routing: event.Routing{Group: group},
			Sequence: fmt.Sprintf("00000000.%020d", i+1),
			Data:     fmt.Appendf(nil, `{"metadata":{"name":%q,"namespace":%q}}`, parts[2], parts[1]),
		})
	}
	return events
}

func TestAccess(t *testing.T) {
	events := inventory("pods/shop/web", "pods/bank/vault", "secrets/shop/db", "secrets/bank/key", "nodes//node-0", "namespaces//shop",
		"deployments.apps/shop/web", "deployments.apps/bank/vault")
	access := []serve.Access{
		{Token: "of-shop", Namespaces: []string{"shop"}, Resources: []string{"*"}},
		{Token: "of-pods", Namespaces: []string{"*"}, Resources: []string{"pods"}},
		{Token: "of-secrets", Namespaces: []string{"bank"}, Resources: []string{"secrets"}},
		{Token: "of-group", Namespaces: []string{"*"}, Resources: []string{"deployments"}},
	}
	for name, cfg := range map[string]serve.Config{
		"at a time": {At: query.Point{At: inventoryTime}, Access: access}, "live": {Live: true, Access: access},
	} {
		s := newSite(t, events, cfg)
		for _, c := range []struct {
			token, path string
			want        int
			has         string // in the answer
		}{
			{"of-shop", "/api/v1/namespaces/shop/pods", 200, "web"},
			{"of-shop", "/api/v1/namespaces/shop/pods/web", 200, "web"},
			{"of-shop", "/api/v1/namespaces/shop/pods?watch=true&timeoutSeconds=3", 200, "web"},
			{"of-shop", "/apis/apps/v1/namespaces/shop/deployments", 200, "web"},
			{"of-shop", "/api/v1/pods", 403, "in all namespaces"},
			{"of-shop", "/api/v1/pods?watch=true&timeoutSeconds=3", 403, "in all namespaces"},
			{"of-shop", "/api/v1/pods?fieldSelector=metadata.namespace%3Dshop", 403, "in all namespaces"},
			{"of-shop", "/api/v1/namespaces//pods", 403, "in all namespaces"},
			{"of-shop", "/api/v1/namespaces/*/pods", 403, "forbidden"},
			{"of-shop", "/api/v1/namespaces/bank/pods", 403, `in the namespace \"bank\"`},
			{"of-shop", "/api/v1/namespaces/bank/pods/vault", 403, `in the namespace \"bank\"`},
			{"of-shop", "/api/v1/namespaces/bank/pods/no-such", 403, `in the namespace \"bank\"`},
			{"of-shop", "/api/v1/namespaces/bank/pods/vault/status", 403, `in the namespace \"bank\"`},
			{"of-shop", "/api/v1/namespaces/shop/secrets/db", 403, "secrets is forbidden"},
			{"of-shop", "/api/v1/namespaces/shop/secrets", 403, "secrets is forbidden"},
			{"of-shop", "/api/v1/nodes", 403, "nodes is forbidden"},
			{"of-shop", "/api/v1/nodes/node-0", 403, "nodes is forbidden"},
			{"of-shop", "/api/v1/namespaces", 403, "namespaces is forbidden"},
			{"of-shop", "/api/v1/namespaces/shop", 403, "namespaces is forbidden"},
			{"of-pods", "/api/v1/pods", 200, "vault"},
			{"of-pods", "/api/v1/namespaces/bank/pods/vault", 200, "vault"},
			{"of-pods", "/api/v1/nodes", 403, "nodes is forbidden"},
			{"of-pods", "/apis/apps/v1/deployments", 403, "deployments.apps is forbidden"},
			{"of-secrets", "/api/v1/namespaces/bank/secrets/key", 200, "key"},
			{"of-secrets", "/api/v1/namespaces/shop/secrets/db", 403, "secrets is forbidden"},
			{"of-secrets", "/api/v1/secrets", 403, "in all namespaces"},
			{"of-group", "/apis/apps/v1/deployments", 403, "deployments.apps is forbidden"},
			{token, "/api/v1/secrets", 200, "key"},
			{token, "/api/v1/nodes", 200, "node-0"},
			{"of-no-token", "/api/v1/pods", 401, "send the token"},
		} {
			t.Run(fmt.Sprintf("%s: %s asks for %s", name, c.token, c.path), func(t *testing.T) {
				code, body := s.request("GET", c.path, map[string]string{"Authorization": "Bearer " + c.token})
				if code != c.want || !strings.Contains(body, c.has) {
					t.Errorf("%d %s, want %d %s", code, body, c.want, c.has)
				}
				if c.token == "of-shop" && (strings.Contains(body, "vault") || strings.Contains(body, "node-0")) {
					t.Errorf("it has what the token may not read: %s", body)
				}
			})
		}
		for _, path := range []string{
			"/api", "/apis", "/apis/apps", "/api/v1", "/apis/apps/v1", "/openapi/v3", "/openapi/v3/api/v1", "/openapi/v2", "/version", "/readyz",
		} {
			t.Run(fmt.Sprintf("%s: discovery is open to each token: %s", name, path), func(t *testing.T) {
				for _, a := range access {
					if code, body := s.request("GET", path, map[string]string{"Authorization": "Bearer " + a.Token}); code != 200 {
						t.Errorf("%s: %d %s", a.Token, code, body)
					}
				}
			})
		}
	}
}

func TestAccessFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	testkit.OK(t, os.WriteFile(file, []byte("0123456789abcdef-file\n"), 0o600))
	t.Run("each entry has a token, or a file of one", func(t *testing.T) {
		list, err := serve.ParseAccess(fmt.Appendf(nil, `
- {token: 0123456789abcdef, namespaces: [shop], resources: [pods, deployments.apps]}
- {tokenFile: %s, namespaces: ["*"], resources: ["*", secrets]}
`, file))
		testkit.OK(t, err)
		if got := fmt.Sprint(list); got != "[{0123456789abcdef [shop] [pods deployments.apps]} {0123456789abcdef-file [*] [* secrets]}]" {
			t.Error(got)
		}
	})
	for text, want := range map[string]string{
		"":                       "want a list of tokens",
		"token: x":               "cannot unmarshal",
		"- {tokn: x}":            "field tokn not found",
		"- {namespaces: [shop]}": "entry 1: want token or tokenFile",
		"- {token: 0123456789abcdef, tokenFile: x, namespaces: [shop], resources: [pods]}": "entry 1: want token or tokenFile",
		"- {token: short, namespaces: [shop], resources: [pods]}":                          "entry 1: the token has fewer than 16 characters",
		"- {token: 0123456789abcdef, resources: [pods]}":                                   "entry 1: namespaces: want names",
		"- {token: 0123456789abcdef, namespaces: [shop], resources: ['']}":                 "entry 1: resources: want names",
		"- {tokenFile: /nothing/here, namespaces: [shop], resources: [pods]}":              "entry 1: tokenFile: open /nothing/here",
		"- {token: 0123456789abcdef, namespaces: [shop], resources: [pods]}\n" +
			"- {token: 0123456789abcdef, namespaces: [bank], resources: [pods]}": "entry 2: an entry before it has the same token",
	} {
		t.Run("it is refused: "+want, func(t *testing.T) {
			if list, err := serve.ParseAccess([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v %v", list, err)
			}
		})
	}
}
