package cli

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// What the hunt plants, and serves as an API server.

// readKinds reads which kinds hold credentials, and where.
func (h *hunt) readKinds() {
	text, err := os.ReadFile("../resource/testdata/kinds.golden")
	testkit.OK(h.t, err)
	h.kinds = map[string][]string{}
	for line := range strings.Lines(string(text)) {
		kind, path, _ := strings.Cut(strings.TrimSpace(line), " ")
		h.kinds[kind] = append(h.kinds[kind], path)
	}
}

// collect takes traces.
func (h *hunt) collect() {
	h.traces = &testkit.Buffer{}
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body := io.Reader(r.Body)
		if r.Header.Get("Content-Encoding") == "gzip" {
			unzipped, err := gzip.NewReader(body)
			if err != nil {
				h.t.Error(err)
				return
			}
			body = unzipped
		}
		_, _ = io.Copy(h.traces, body)
	}))
	h.t.Cleanup(s.Close)
	h.otlp = s.URL
}

// endpoints takes events over HTTP. One refuses them, so that they go to its place for dead
// letters.
func (h *hunt) endpoints() {
	h.posted = map[string]*testkit.Buffer{"http": {}, "http dead letter": {}}
	mux := http.NewServeMux()
	for path, place := range map[string]string{"/hook": "http", "/refused": "http dead letter"} {
		mux.HandleFunc("POST "+path, func(_ http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return // a bridge that is ended
			}
			fmt.Fprintf(h.posted[place], "%v %s\n", r.Header, body)
		})
	}
	mux.HandleFunc("POST /refuse", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
	})
	s := httptest.NewServer(mux)
	h.t.Cleanup(s.Close)
	h.hook = s.URL
}

func (h *hunt) spans() int { return len(h.traces.String()) }

// serve serves Secrets, ConfigMaps, Pods, and the kinds that are known to hold credentials, over
// HTTP.
func (h *hunt) serve() {
	mux := http.NewServeMux()
	answer := func(path, body string) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, body)
		})
	}
	var resources []string
	for name, kind := range map[string]string{"secrets": "Secret", "configmaps": "ConfigMap", "pods": "Pod"} {
		s := testkit.NewServer(h.t, resource.Type{Version: "v1", Resource: name, Kind: kind, Namespaced: true})
		h.servers[name] = s
		mux.Handle("GET /api/v1/"+name, s)
		resources = append(resources, fmt.Sprintf(`{"name":%q,"namespaced":true,"kind":%q,"verbs":["get","list","watch"]}`, name, kind))
	}
	answer("/api", `{"kind":"APIVersions","versions":["v1"]}`)
	groups := map[string][]string{} // resources by group
	for name := range h.kinds {
		plural, group, _ := strings.Cut(name, ".")
		kind := strings.ToUpper(plural[:1]) + plural[1:]
		s := testkit.NewServer(h.t, resource.Type{Group: group, Version: "v1", Resource: plural, Kind: kind, Namespaced: true})
		h.servers[name] = s
		mux.Handle("GET /apis/"+group+"/v1/"+plural, s)
		groups[group] = append(groups[group], fmt.Sprintf(`{"name":%q,"namespaced":true,"kind":%q,"verbs":["get","list","watch"]}`, plural, kind))
	}
	var list []string
	for group, resources := range groups {
		version := fmt.Sprintf(`{"groupVersion":"%s/v1","version":"v1"}`, group)
		list = append(list, fmt.Sprintf(`{"name":%q,"versions":[%s],"preferredVersion":%s}`, group, version, version))
		answer("/apis/"+group+"/v1", fmt.Sprintf(`{"kind":"APIResourceList","groupVersion":"%s/v1","resources":[%s]}`, group, strings.Join(resources, ",")))
	}
	answer("/apis", `{"kind":"APIGroupList","apiVersion":"v1","groups":[`+strings.Join(list, ",")+`]}`)
	answer("/api/v1", `{"kind":"APIResourceList","groupVersion":"v1","resources":[`+strings.Join(resources, ",")+`]}`)
	serveLeases(h.t, mux, h.leases)
	answer("/api/v1/namespaces/kube-system", `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":"11111111-2222-3333-4444-555555555555"}}`)
	s := httptest.NewServer(mux)
	h.t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	h.api = s.URL
}

// serveLeases serves the Leases of replicas, and lets them do everything.
func serveLeases(t testing.TB, mux *http.ServeMux, leases *testkit.Leases) {
	reply := func(w http.ResponseWriter, lease *coordinationv1.Lease, err error) {
		w.Header().Set("Content-Type", "application/json")
		var status apierrors.APIStatus
		if errors.As(err, &status) {
			w.WriteHeader(int(status.Status().Code))
			_ = json.NewEncoder(w).Encode(status.Status())
			return
		}
		_ = json.NewEncoder(w).Encode(lease)
	}
	written := func(r *http.Request) *coordinationv1.Lease {
		lease := &coordinationv1.Lease{}
		if err := json.NewDecoder(r.Body).Decode(lease); err != nil {
			t.Error(err)
		}
		return lease
	}
	const path = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
	client := leases.Client()
	mux.HandleFunc("GET "+path+"/{name}", func(w http.ResponseWriter, r *http.Request) {
		lease, err := client.Get(r.Context(), r.PathValue("namespace"), r.PathValue("name"))
		reply(w, lease, err)
	})
	mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
		lease, err := client.Create(r.Context(), written(r))
		reply(w, lease, err)
	})
	mux.HandleFunc("PUT "+path+"/{name}", func(w http.ResponseWriter, r *http.Request) {
		lease, err := client.Update(r.Context(), written(r))
		reply(w, lease, err)
	})
	mux.HandleFunc("POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":true}}`)
	})
}

// value makes a value that is nowhere else.
func (h *hunt) value(place string) string {
	if h.needles[place] == "" {
		// Short: a timeline leaves long values out.
		h.needles[place] = fmt.Sprintf("hunter2-%04d-", len(h.places))
		h.places = append(h.places, place)
	}
	return h.needles[place]
}

// zipped is a value in an object that is zipped and in base64.
func (h *hunt) zipped(place string) string {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := fmt.Fprintf(w, `{"data":{"password":%q}}`, h.value(place))
	testkit.OK(h.t, err)
	testkit.OK(h.t, w.Close())
	return base64.StdEncoding.EncodeToString(packed.Bytes())
}

// plant makes objects with values in them, or new values in objects that are there. They have a
// managed fields entry that repeats one.
func (h *hunt) plant() {
	round := fmt.Sprintf(" %d", len(h.needles))
	put := func(server, name string, mutate func(obj, annotations map[string]any)) {
		h.servers[server].Update(resource.Key("shop/"+name), func(obj map[string]any) {
			metadata, annotations := obj["metadata"].(map[string]any), map[string]any{}
			metadata["annotations"] = annotations
			annotations["large"] = strings.Repeat("x", 3000) // too large for a stream
			metadata["managedFields"] = []any{map[string]any{
				"manager": "kubectl", "operation": "Update", "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1",
				"fieldsV1": map[string]any{fmt.Sprintf("v:%q", h.value("managed fields of "+server+round)): map[string]any{}},
			}}
			mutate(obj, annotations)
		})
	}
	encoded := func(place string) string {
		return base64.StdEncoding.EncodeToString([]byte(h.value(place + round)))
	}
	const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"
	put("secrets", "db", func(obj, annotations map[string]any) {
		obj["data"] = map[string]any{
			"password": encoded("data of a secret"),
			"release":  base64.StdEncoding.EncodeToString([]byte(h.zipped("data of a secret, zipped as Helm's" + round))),
		}
		obj["stringData"] = map[string]any{"token": h.value("stringData of a secret" + round)}
		annotations[lastApplied] = `{"data":{"password":"` + h.value("last applied of a secret"+round) + `"}}`
		annotations["openshift.io/token-secret.value"] = h.value("token in an annotation of a secret" + round)
		annotations["banzaicloud.com/last-applied"] = encoded("packed copy of a secret")
		annotations["objectset.rio.cattle.io/applied"] = h.zipped("zipped copy of a secret" + round)
	})
	put("secrets", "malformed", func(obj, _ map[string]any) { // not published: reported, without its bytes
		obj["data"] = h.value("malformed secret" + round)
	})
	put("configmaps", "app", func(obj, annotations map[string]any) {
		obj["data"] = map[string]any{"dsn": h.value("redacted path" + round), "dropped": h.value("dropped path" + round), "level": round}
		annotations[lastApplied] = `{"data":{"dsn":"` + h.value("last applied of a config map"+round) + `"}}`
	})
	for kind, paths := range h.kinds {
		put(kind, strings.ReplaceAll(kind, ".", "-"), func(obj, _ map[string]any) {
			for _, path := range paths {
				set(obj, strings.Split(path, "."), h.value("kind "+kind+" "+path+round))
			}
		})
	}
	put("pods", "web", func(obj, _ map[string]any) {
		obj["spec"] = map[string]any{
			"list": []any{h.value("item of a list" + round)},
			"containers": []any{map[string]any{"name": "c", "env": []any{
				map[string]any{"name": "DB_PASSWORD", "value": h.value("env by its name" + round)},
				map[string]any{"name": "URL", "value": "amqp://u:" + h.value("env by its value"+round) + "@broker"},
			}}},
		}
	})
}

// set puts a value at a path. Every member and item is one that is called x.
func set(obj map[string]any, path []string, value any) {
	name := strings.ReplaceAll(path[0], "*", "x")
	if len(path) == 1 {
		obj[name] = value
		return
	}
	inner, _ := obj[name].(map[string]any)
	if inner == nil {
		inner = map[string]any{}
		obj[name] = inner
	}
	set(inner, path[1:], value)
}
