package table

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/apache/iceberg-go"
	icebergio "github.com/apache/iceberg-go/io"
	lib "github.com/apache/iceberg-go/table"

	"github.com/kubebridge/bridge/internal/testkit"
)

// With a REST catalog that hands out no keys, requests to S3 are signed with those of the
// environment.
func TestKeysOfEnvironment(t *testing.T) {
	signed := make(chan string, 100)
	storage := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		signed <- r.Method + " " + r.URL.Path + " " + r.Header.Get("Authorization")
	}))
	t.Cleanup(storage.Close)
	meta, err := lib.NewMetadata(changesSchema, iceberg.UnpartitionedSpec, lib.UnsortedSortOrder, "s3://lake/changes", nil)
	testkit.OK(t, err)
	catalog := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := map[string]any{"defaults": map[string]string{}, "overrides": map[string]string{}}
		if strings.HasSuffix(r.URL.Path, "/tables/changes") {
			answer = map[string]any{"metadata-location": "s3://lake/changes/1.metadata.json", "metadata": meta}
		}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(catalog.Close)
	t.Setenv("AWS_ACCESS_KEY_ID", "key-of-environment")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	p := Place{To: "w", Catalog: catalog.URL, Properties: map[string]string{
		"s3.endpoint": storage.URL, "s3.region": "us-east-1", "s3.force-virtual-addressing": "false",
	}}
	c, closeCatalog, err := p.open(t.Context())
	testkit.OK(t, err)
	t.Cleanup(closeCatalog)
	l, err := openLake(t.Context(), c, defaultNamespace, changes)
	testkit.OK(t, err)
	files, err := l.FS(t.Context())
	testkit.OK(t, err)
	testkit.OK(t, files.(icebergio.WriteFileIO).WriteFile("s3://lake/changes/a", []byte("text")))
	if got := <-signed; !strings.HasPrefix(got, "PUT /lake/changes/a AWS4-HMAC-SHA256 Credential=key-of-environment/") {
		t.Error(got)
	}
}
