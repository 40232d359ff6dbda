package serve_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/serve"
	"github.com/kubebridge/bridge/internal/testkit"
)

// clients are typed ones, which send reviews as JSON, or as protobuf.
func (s *site) clients(contentType, token string) *kubernetes.Clientset {
	s.t.Helper()
	cfg := rest.CopyConfig(s.config())
	cfg.BearerToken, cfg.ContentType = token, contentType
	cfg.AcceptContentTypes = contentType + ",application/json"
	c, err := kubernetes.NewForConfig(cfg)
	testkit.OK(s.t, err)
	return c
}

func TestReviews(t *testing.T) {
	events := inventory("pods/shop/web", "secrets/shop/db", "deployments.apps/shop/web")
	s := newSite(t, events, serve.Config{At: query.Point{At: inventoryTime}, Access: []serve.Access{
		{Token: "of-shop", Namespaces: []string{"shop"}, Resources: []string{"*"}},
	}})
	for _, contentType := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		for _, test := range []struct {
			token, verb, group, resource, namespace string
			want                                    bool
		}{
			{token, "list", "", "secrets", "", true},
			{token, "get", "apps", "deployments", "shop", true},
			{token, "create", "", "pods", "shop", false},
			{token, "*", "", "pods", "shop", false},
			{"of-shop", "list", "", "pods", "shop", true},
			{"of-shop", "watch", "apps", "deployments", "shop", true},
			{"of-shop", "list", "", "pods", "", false},
			{"of-shop", "list", "", "secrets", "shop", false},
			{"of-shop", "delete", "", "pods", "shop", false},
			{token, "get", "", "pods/log", "shop", false},
			{token, "get", "", "pods/status", "shop", true},
		} {
			t.Run(fmt.Sprintf("%s: may %.7s %s %s in %q", contentType, test.token, test.verb, test.resource, test.namespace), func(t *testing.T) {
				resource, subresource, _ := strings.Cut(test.resource, "/")
				review, err := s.clients(contentType, test.token).AuthorizationV1().SelfSubjectAccessReviews().
					Create(t.Context(), &authorization.SelfSubjectAccessReview{Spec: authorization.SelfSubjectAccessReviewSpec{
						ResourceAttributes: &authorization.ResourceAttributes{
							Verb: test.verb, Group: test.group, Resource: resource, Subresource: subresource, Namespace: test.namespace,
						},
					}}, metav1.CreateOptions{})
				testkit.OK(t, err)
				if st := review.Status; st.Allowed != test.want || st.Denied == test.want || !test.want && st.Reason == "" {
					t.Errorf("%+v, want %t", st, test.want)
				}
			})
		}
		rules, err := s.clients(contentType, "of-shop").AuthorizationV1().SelfSubjectRulesReviews().
			Create(t.Context(), &authorization.SelfSubjectRulesReview{Spec: authorization.SelfSubjectRulesReviewSpec{Namespace: "shop"}}, metav1.CreateOptions{})
		testkit.OK(t, err)
		if got := fmt.Sprint(rules.Status.ResourceRules); !strings.Contains(got, "deployments") || strings.Contains(got, "secrets") {
			t.Errorf("rules %s", got)
		}
		who, err := s.clients(contentType, "of-shop").AuthenticationV1().SelfSubjectReviews().
			Create(t.Context(), &authentication.SelfSubjectReview{}, metav1.CreateOptions{})
		testkit.OK(t, err)
		if who.Status.UserInfo.Username == "" {
			t.Errorf("%+v", who.Status)
		}
	}
	for body, want := range map[string]int{"{}": 422, "x": 400, strings.Repeat("x", 70<<10): 413} {
		path := s.server.URL + "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body))
		testkit.OK(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		response, err := http.DefaultClient.Do(r)
		testkit.OK(t, err)
		if response.Body.Close(); response.StatusCode != want {
			t.Errorf("%.10s: %s, want %d", body, response.Status, want)
		}
	}
}

// Typed clients read a redacted Secret: its values are base64 of what stands in their place.
func TestTypedClients(t *testing.T) {
	events := inventory("secrets/shop/db", "pods/shop/web")
	events[0].Data = []byte(`{"kind":"Secret","apiVersion":"v1","metadata":{"name":"db","namespace":"shop","resourceVersion":"1"},` +
		`"data":{"password":"redacted:56ea30ca:8087932a22879e0b","plain":"eA=="},"type":"Opaque"}`)
	s := newSite(t, events, serve.Config{Live: true})
	c := s.clients("application/vnd.kubernetes.protobuf", token)
	list, err := c.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{FieldSelector: "type=Opaque"})
	testkit.OK(t, err)
	if len(list.Items) != 1 || string(list.Items[0].Data["password"]) != "redacted:56ea30ca:8087932a22879e0b" || string(list.Items[0].Data["plain"]) != "x" {
		t.Errorf("%+v", list.Items)
	}
	found, err := c.CoreV1().Events("shop").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=web"})
	testkit.OK(t, err)
	if len(found.Items) != 0 {
		t.Errorf("%+v", found.Items)
	}
	schemas, err := c.Discovery().OpenAPISchema()
	testkit.OK(t, err)
	if schemas.GetInfo().GetTitle() != "bridge serve" || schemas.GetInfo().GetVersion() != "1" || schemas.GetSwagger() != "2.0" {
		t.Errorf("%v", schemas)
	}
	meta, err := metadata.NewForConfig(s.config())
	testkit.OK(t, err)
	partial, err := meta.Resource(pods).List(t.Context(), metav1.ListOptions{})
	testkit.OK(t, err)
	if len(partial.Items) != 1 || partial.Items[0].Name != "web" {
		t.Errorf("%+v", partial.Items)
	}
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	factory := informers.NewSharedInformerFactory(c, 0)
	secrets := factory.Core().V1().Secrets().Informer()
	factory.StartWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), secrets.HasSynced) || len(secrets.GetStore().ListKeys()) != 1 {
		t.Errorf("an informer has %v", secrets.GetStore().ListKeys())
	}
	stop()
	factory.Shutdown()
	if _, err := base64.StdEncoding.DecodeString(string(list.Items[0].Data["password"])); err == nil {
		t.Error("the value is encoded twice")
	}
}

// Versions and selectors of lists are read as an API server reads them.
func TestListParameters(t *testing.T) {
	events := inventory("pods/shop/web", "pods/shop/api", "nodes//n")
	later := events[1]
	later.ID, later.Op, later.Type = "later", event.Updated, "dev.kubebridge.resource.updated"
	later.ResourceVersion, later.Previous, later.Time = "9", "2", inventoryTime.Add(time.Minute)
	later.Sequence = fmt.Sprintf("00000000.%020d", 9)
	later.Data = []byte(`{"metadata":{"name":"api","namespace":"shop","labels":{"later":"yes"}},"spec":{"nodeName":"n"}}`)
	s := newSite(t, append(events, later), serve.Config{Live: true})
	terms := strings.Repeat("metadata.name!=x,", 101)
	for _, test := range []struct {
		query string
		code  int
		has   string
	}{
		{"", 200, `"later":"yes"`},
		{"resourceVersion=2&resourceVersionMatch=Exact", 200, `"resourceVersion":"2"`},
		{"resourceVersion=2&limit=5", 200, `"resourceVersion":"2"`},
		{"resourceVersion=2&resourceVersionMatch=NotOlderThan", 200, `"later":"yes"`},
		{"resourceVersion=0", 200, `"later":"yes"`},
		{"resourceVersion=2", 200, `"later":"yes"`},
		{"resourceVersion=10&resourceVersionMatch=Exact", 504, "ResourceVersionTooLarge"},
		{"resourceVersion=10", 504, "Too large resource version: 10, current: 9"},
		{"resourceVersion=0&resourceVersionMatch=Exact", 422, "forbidden"},
		{"resourceVersionMatch=Exact", 422, "forbidden"},
		{"resourceVersion=2&resourceVersionMatch=Other", 422, "Unsupported value"},
		{"sendInitialEvents=true", 422, "forbidden for list"},
		{"watch=1&resourceVersionMatch=Exact", 422, "forbidden"},
		{"continue=x", 400, "invalid continue token"},
		{"limit=x", 400, "invalid syntax"},
		{"limit=-1", 200, `"later":"yes"`},
		{"resourceVersion=x", 400, "resourceVersion"},
		{"fieldSelector=spec.nodeName%3Dn", 200, `"later":"yes"`},
		{"fieldSelector=spec.hostNetwork%3Dfalse", 200, `"later":"yes"`},
		{"fieldSelector=spec.image%3Dx", 400, "field label not supported"},
		{"fieldSelector=" + terms + "metadata.name!%3Dx", 400, "fieldSelector has 102 terms, at most 100"},
		{"labelSelector=x+in+(" + strings.Repeat("value,", 3000) + "value)", 400, "labelSelector has 18012 bytes, at most 16384"},
		{"labelSelector=later", 200, `"later":"yes"`},
	} {
		t.Run(fmt.Sprintf("%.60s", test.query), func(t *testing.T) {
			code, body := s.request("GET", "/api/v1/pods?"+test.query, map[string]string{"Authorization": "Bearer " + token})
			if code != test.code || !strings.Contains(body, test.has) {
				t.Errorf("%d %s, want %d %s", code, body, test.code, test.has)
			}
		})
	}
	if _, body := s.request("GET", "/api/v1/pods?resourceVersion=2&resourceVersionMatch=Exact", map[string]string{"Authorization": "Bearer " + token}); strings.Contains(body, "later") {
		t.Errorf("a later state is at version 2: %s", body)
	}
}

// untilBookmark ends a watch when its initial events have been sent.
type untilBookmark struct {
	*httptest.ResponseRecorder
	cancel context.CancelFunc
}

func (w *untilBookmark) Write(b []byte) (int, error) {
	if strings.Contains(string(b), "BOOKMARK") {
		w.cancel()
	}
	return w.ResponseRecorder.Write(b)
}

// A list and the initial events of a watch read the pods of a node by the index: that allocates a
// part of what a selector does which is compared with each pod.
func TestSelectByNode(t *testing.T) {
	const many = 2000
	var objects []string
	for i := range many {
		objects = append(objects, fmt.Sprintf("pods/shop/web-%d", i))
	}
	events := inventory(objects...)
	events[7].Data = []byte(`{"metadata":{"name":"web-7","namespace":"shop","labels":{"one":"yes"}},"spec":{"nodeName":"n"}}`)
	s := newSite(t, events, serve.Config{At: query.Point{At: inventoryTime}})
	read := func(query string) uint64 {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/api/v1/pods?"+query, nil)
		r.Header.Set("Authorization", "Bearer "+token)
		w := &untilBookmark{httptest.NewRecorder(), cancel}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		s.server.Config.Handler.ServeHTTP(w, r)
		runtime.ReadMemStats(&after)
		if text := w.Body.String(); strings.Count(text, `"web-`) != 1 || !strings.Contains(text, `"web-7"`) {
			t.Errorf("%s: %d %s", query, w.Code, text)
		}
		return after.TotalAlloc - before.TotalAlloc
	}
	const initial = "&watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
	for _, of := range []string{"", initial} {
		const byNode, byLabel = "fieldSelector=spec.nodeName%3Dn", "labelSelector=one"
		read(byNode + of) // what is read once
		if indexed, all := read(byNode+of), read(byLabel+of); indexed > all/2 {
			t.Errorf("%q: %d bytes by the node, %d by a label", of, indexed, all)
		}
	}
}

// A watch over HTTP/2 may be idle for longer than a client may take to read.
func TestPatience(t *testing.T) {
	const patience = 200 * time.Millisecond
	s := newSite(t, inventory("pods/shop/web"), serve.Config{Live: true, Patience: patience})
	server := httptest.NewUnstartedServer(s.server.Config.Handler)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	get := func(query string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/api/v1/pods?"+query, nil)
		testkit.OK(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		response, err := server.Client().Do(r)
		testkit.OK(t, err)
		return response
	}
	watch := get("watch=true&resourceVersion=1")
	defer watch.Body.Close()
	if watch.ProtoMajor != 2 {
		t.Fatalf("%s", watch.Proto)
	}
	time.Sleep(3 * patience) // the deadline of the first write passes
	later := inventory("pods/shop/web", "pods/shop/api")[1:]
	s.append(later)
	line, err := bufio.NewReader(watch.Body).ReadString('\n')
	if err != nil || !strings.Contains(line, `"api"`) {
		t.Errorf("after a while without changes: %q, %v", line, err)
	}
}

// A client that does not read is given up: its request ends, and with it the loan of the history.
func TestClientThatDoesNotRead(t *testing.T) {
	var objects []string
	for i := range 300 {
		objects = append(objects, fmt.Sprintf("pods/shop/web-%d", i))
	}
	events := inventory(objects...)
	for i := range events { // together more than what sockets hold
		events[i].Data = fmt.Appendf(nil, `{"metadata":{"name":"web-%d","annotations":{"x":%q}}}`, i, strings.Repeat("x", 128<<10))
	}
	s := newSite(t, events, serve.Config{Live: true, Patience: 200 * time.Millisecond})
	ended := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		s.server.Config.Handler.ServeHTTP(w, r)
	}))
	defer server.Close()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	testkit.OK(t, err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "GET /api/v1/pods HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", token)
	testkit.OK(t, err)
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Error("the request waits for ever")
	}
}

// A token has a bounded number of requests at once; another one is not held up.
func TestRequestsAtOnce(t *testing.T) {
	s := newSite(t, inventory("pods/shop/web"), serve.Config{
		Live: true, MaxRequests: 2, Access: []serve.Access{{Token: "other", Namespaces: []string{"*"}, Resources: []string{"*"}}},
	})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for range 2 {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.server.URL+"/api/v1/pods?watch=true", nil)
		testkit.OK(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		response, err := http.DefaultClient.Do(r)
		testkit.OK(t, err)
		defer response.Body.Close()
	}
	list := func(of string) int {
		code, _ := s.request("GET", "/api/v1/pods", map[string]string{"Authorization": "Bearer " + of})
		return code
	}
	if of, other := list(token), list("other"); of != 429 || other != 200 {
		t.Errorf("beside two watches: %d, and %d with another token", of, other)
	}
	stop()
	for began := time.Now(); list(token) != 200; time.Sleep(10 * time.Millisecond) { // the server sees their end later
		if time.Since(began) > 30*time.Second {
			t.Fatal("the watches have ended, and still count")
		}
	}
}

// A name that no object can have is refused, whatever bytes it has.
func TestOddNames(t *testing.T) {
	s := newSite(t, inventory("pods/shop/web"), serve.Config{Live: true})
	for path, want := range map[string]int{
		"/api/v1/namespaces/shop/pods/x%00y": 400, "/api/v1/namespaces/sh%00op/pods": 400, "/api/v1/namespaces/sh%00op/pods/web": 400,
		"/api/v1/namespaces/shop/po%00ds": 404, "/api/v1/namespaces/shop/pods/x%ffy": 400, "/api/v1/namespaces/shop/pods/%7f": 400,
		"/api/v1/namespaces/shop/pods/x%25y": 400, "/apis/x%00/v1/y": 404, "/api/v1/namespaces/shop/pods?fieldSelector=metadata.name%3D%00": 200,
		"/at/1%00/api/v1/pods": 400, "/api/v1/namespaces/shop/pods/" + strings.Repeat("x", 5000): 404,
	} {
		code, body := s.request("GET", path, map[string]string{"Authorization": "Bearer " + token})
		if code != want || code == 200 && strings.Contains(body, "web") {
			t.Errorf("%.80s: %d %s, want %d", path, code, body, want)
		}
	}
}

// Why a history can't be read is in the log: an answer names no file of this machine.
func TestNoPaths(t *testing.T) {
	handler, err := serve.New(serve.Config{
		Open: func() (*query.Questions, func(), error) {
			return nil, nil, errors.New("open /var/lib/bridge/history/000004.sst: no such file")
		},
		Cluster: "prod", Live: true, Access: []serve.Access{serve.Everything(token)},
	})
	testkit.OK(t, err)
	for _, path := range []string{"/api/v1/pods", "/version", "/openapi/v3", "/at/1/api/v1/pods", "/apis", "/api/v1"} {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		if handler.ServeHTTP(w, r); w.Code != http.StatusInternalServerError || strings.Contains(w.Body.String(), "/var") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

// Each request may name its time.
func TestPointOfPath(t *testing.T) {
	events := inventory("pods/shop/web")
	later := inventory("pods/shop/web", "pods/shop/api")[1]
	later.Time = inventoryTime.Add(time.Hour)
	s := newSite(t, append(events, later), serve.Config{Live: true})
	for _, test := range []struct {
		path string
		code int
		has  string
		not  string
	}{
		{"/api/v1/pods", 200, "api", "xxx"},
		{"/at/2026-11-22T14:10:00Z/api/v1/namespaces/shop/pods", 200, "web", "api\""},
		{"/at/2026-11-22T15:10:00Z/api/v1/namespaces/shop/pods", 200, "api", "xxx"},
		{"/at/1/api/v1/pods", 200, "web", "api\""},
		{"/at/1/api", 200, "v1", "xxx"},
		{"/at/2099-01-01T00:00:00Z/api/v1/pods", 400, "future", "items"},
		{"/at/77/api/v1/pods", 400, "reaches to 2", "items"},
		{"/at/yesterday/api/v1/pods", 400, "want a time", "items"},
		{"/at/1h/api/v1/pods", 400, "want a time", "items"},
		{"/at/1/at/2/api/v1/pods", 404, "there is no", "items"},
	} {
		t.Run(test.path, func(t *testing.T) {
			code, body := s.request("GET", test.path, map[string]string{"Authorization": "Bearer " + token})
			if code != test.code || !strings.Contains(body, test.has) || strings.Contains(body, test.not) {
				t.Errorf("%d %s, want %d %s", code, body, test.code, test.has)
			}
		})
	}
	if code, _ := s.request("GET", "/at/1/api/v1/pods", map[string]string{"Authorization": "Bearer x"}); code != 401 {
		t.Errorf("without a token: %d", code)
	}
	_, err := s.clients("application/json", token).CoreV1().Pods("shop").Create(t.Context(), nil, metav1.CreateOptions{})
	if !apierrors.IsMethodNotSupported(err) {
		t.Errorf("a write: %v", err)
	}
}
