package serve_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/serve"
	"github.com/kubebridge/bridge/internal/testkit"
)

// FuzzRequest asks for any path, with any selectors: the answer is never that the server failed.
func FuzzRequest(f *testing.F) {
	dir := f.TempDir()
	db, err := history.Open(history.Options{Dir: dir})
	testkit.OK(f, err)
	f.Cleanup(func() { _ = db.Close() })
	events := testkit.Events(f, 5, 9, 4)
	var list []*event.Event
	for i := range events {
		list = append(list, &events[i])
	}
	_, err = db.Writer.Append(f.Context(), list)
	testkit.OK(f, err)
	source, err := serve.NewSharedHistory(dir, false)
	testkit.OK(f, err)
	f.Cleanup(func() { _ = source.Close() })
	handler, err := serve.New(serve.Config{
		Open: source.Open, Cluster: "prod", At: query.Point{At: events[0].Observed.Add(time.Hour)}, Poll: 10 * time.Millisecond, Access: []serve.Access{serve.Everything(token)},
	})
	testkit.OK(f, err)
	const pods = "/api/v1/namespaces/shop/pods"
	for _, seed := range [][3]string{
		{pods, "limit=2", ""},
		{pods + "/web-0", "", "application/yaml"},
		{pods, "labelSelector=a in (b,c),!d", ""},
		{pods, "fieldSelector=spec.nodeName=n,metadata.name!=x&limit=1&continue=e30", "application/json;as=Table;g=meta.k8s.io;v=v1"},
		{pods, "resourceVersion=1001&resourceVersionMatch=Exact", ""},
		{pods, "resourceVersion=1200", ""},
		{pods, "watch=1&timeoutSeconds=1&sendInitialEvents=true", ""},
		{"/at/2026-11-21T10:00:09Z" + pods, "", ""},
		{"/version/1002" + pods, "", ""},
		{"/apis/apps/v1/deployments", "watch=true&resourceVersion=9", ""},
		{"/openapi/v2", "", ""},
		{"/openapi/v3/apis/apps/v1", "", ""},
		{pods + "/x\x00y", "", ""},
		{"/apis", "", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, path, query, accept string) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		request := (&http.Request{
			Method: http.MethodGet, URL: &url.URL{Path: strings.Replace("/"+path, "//", "/", 1), RawQuery: query}, Host: "history",
			Header: http.Header{"Authorization": {"Bearer " + token}, "Accept": {accept}},
		}).WithContext(ctx)
		answer := httptest.NewRecorder()
		func() {
			defer func() { // a list is broken off when its client has gone
				switch r := recover(); {
				case r == nil, r == any(http.ErrAbortHandler) && ctx.Err() != nil:
				default:
					panic(r)
				}
			}()
			handler.ServeHTTP(answer, request)
		}()
		// Of a version that is not there yet a list answers as the API server does.
		isEarly := answer.Code == http.StatusGatewayTimeout &&
			strings.Contains(answer.Body.String(), "Too large resource version")
		if answer.Code >= http.StatusInternalServerError && !isEarly && ctx.Err() == nil {
			t.Errorf("%q?%q: %d %s", path, query, answer.Code, answer.Body)
		}
	})
}
