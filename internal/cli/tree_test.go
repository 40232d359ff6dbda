package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/testkit"
)

// forest is the admin server of a bridge that knows some objects.
type forest struct {
	t          *testing.T
	owned      map[string][]informer.IndexedObject
	incomplete []string
}

func (f *forest) serve(w http.ResponseWriter, r *http.Request) {
	answer := func(value any) {
		data, err := json.Marshal(value)
		testkit.OK(f.t, err)
		_, _ = w.Write(data)
	}
	switch q := r.URL.Query(); r.URL.Path {
	case "/status":
		answer(map[string]any{"started": time.Now(), "informers": []informer.Status{{Resource: "deployments.apps"}, {Resource: "pods"}, {Resource: "jobs.batch"}, {Resource: "jobs.example.com"}}})
	case "/object":
		if q.Get("resource") != "deployments.apps" || q.Get("namespace") != "shop" || q.Get("name") != "web" {
			w.WriteHeader(http.StatusNotFound)
			answer(map[string]string{"error": "nothing is known of it"})
			return
		}
		answer([]informer.ObjectState{{
			Informer: "all", Resource: "deployments.apps", Namespace: "shop", Name: "web", UID: "d", Version: "7",
			Object: json.RawMessage(`{"kind":"Deployment","metadata":{},"status":{"conditions":[{"type":"Available","status":"True"}]}}`),
		}})
	case "/objects":
		if q.Get("index") != "owner" {
			f.t.Errorf("asked for %s", r.URL)
		}
		answer(bridge.IndexedObjects{Objects: f.owned[q.Get("value")], Incomplete: f.incomplete})
	default:
		f.t.Errorf("asked for %s", r.URL)
	}
}

// run runs the command.
func (f *forest) run(args ...string) (out string, code int) {
	server := httptest.NewServer(http.HandlerFunc(f.serve))
	defer server.Close()
	var stdout, stderr strings.Builder
	args = append([]string{"tree", "--admin-address", strings.TrimPrefix(server.URL, "http://")}, args...)
	code = Run(f.t.Context(), Build{}, args, strings.NewReader(""), &stdout, &stderr)
	return stdout.String() + stderr.String(), code
}

func TestTree(t *testing.T) {
	set := informer.IndexedObject{Kind: "ReplicaSet", Name: "web-1", UID: "r", Version: "8"}
	first := informer.IndexedObject{Kind: "Pod", Name: "web-1-a", UID: "a", Version: "9", Ready: "True"}
	second := informer.IndexedObject{Kind: "Pod", Name: "web-1-b\x1b[31m", UID: "b", Version: "10", Ready: "False"}
	f := &forest{t: t, owned: map[string][]informer.IndexedObject{
		"d": {set, {Kind: "ReplicaSet", Name: "web-2", UID: "s", Version: "5"}},
		"r": {second, first, first}, // watched twice
		"a": {set},                  // a cycle
	}}
	out, code := f.run("deploy/web", "-n", "shop")
	testkit.Want(t, strings.Split(strings.TrimSpace(out), "\n"),
		"NAME                     READY  AGE  VERSION",
		"Deployment/web           True   -    7",
		"├─ReplicaSet/web-1       -      -    8",
		"│ ├─Pod/web-1-a          True   -    9",
		`│ └─Pod/web-1-b\x1b[31m  False  -    10`,
		"└─ReplicaSet/web-2       -      -    5",
	)
	if code != ExitClean {
		t.Errorf("exit code %d", code)
	}
	var tree treeNode
	out, _ = f.run("Deployment/web", "-n", "shop", "-o", "json")
	testkit.OK(t, json.Unmarshal([]byte(out), &tree))
	if len(tree.Owns) != 2 || len(tree.Owns[0].Owns) != 2 || tree.Owns[0].Owns[0].UID != "a" {
		t.Errorf("JSON: %s", out)
	}
	for name, c := range map[string]struct {
		args []string
		said string
		code int
	}{
		"an unknown resource": {[]string{"secret/web"}, `no informer watches a resource "secret"`, ExitRefused},
		"several resources":   {[]string{"job/web"}, "jobs.batch, jobs.example.com: say which", ExitRefused},
		"an unknown object":   {[]string{"deploy/web"}, "nothing is known of it", ExitFailed},
		"no object":           {[]string{"deploy"}, "want KIND/NAME", ExitRefused},
	} {
		if out, code := f.run(c.args...); !strings.Contains(out, c.said) || code != c.code {
			t.Errorf("%s: exit code %d: %s", name, code, out)
		}
	}
	f.incomplete = []string{"all/pods"}
	if out, code := f.run("deploy/web", "-n", "shop"); code != ExitFailed || !strings.Contains(out, "web-1-a") || !strings.Contains(out, "may be missing: the index is being built of all/pods") {
		t.Errorf("incomplete: exit code %d: %s", code, out)
	}
}
