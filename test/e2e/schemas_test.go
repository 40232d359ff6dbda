package e2e_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"

	"github.com/kubebridge/bridge/test/e2e/harness"
)

var schemasUpdate = flag.Bool("schemas.update", false, "whether TestSchemas writes what it compares: after another Kubernetes in test/kubernetes")

// The schemas in the program are those that the API server publishes. Kinds of requests are left
// out, whose schemas are not the same in all documents.
func TestSchemas(t *testing.T) {
	t.Parallel()
	root, err := harness.Root()
	must(t, err)
	file := filepath.Join(root, "internal", "history", "serve", "kubernetes.json.gz")
	d, err := discovery.NewDiscoveryClientForConfig(live(t).Admin())
	must(t, err)
	want := publishedSchemas(t, d)
	if *schemasUpdate {
		must(t, os.WriteFile(file, packed(t, want), 0o600))
	}
	got := unpacked(t, file)
	for name := range want {
		if !reflect.DeepEqual(got[name], want[name]) {
			t.Errorf("%s: %.200v, want %.200v", name, got[name], want[name])
		}
	}
	for name := range got {
		if want[name] == nil {
			t.Errorf("%s: the API server does not publish it", name)
		}
	}
}

// publishedSchemas are those of the groups that an API server has by itself.
func publishedSchemas(t *testing.T, d *discovery.DiscoveryClient) map[string]any {
	t.Helper()
	all, differ := map[string]any{}, []string{}
	paths, err := d.OpenAPIV3().Paths()
	must(t, err)
	for path, document := range paths {
		if strings.Contains(path, "example.com") || !strings.HasPrefix(path, "api/") && strings.Count(path, "/") != 2 {
			continue // of another test, or a group without a version
		}
		text, err := document.Schema(runtime.ContentTypeJSON)
		must(t, err)
		var of struct {
			Components struct {
				Schemas map[string]any `json:"schemas"`
			} `json:"components"`
		}
		must(t, json.Unmarshal(text, &of))
		for name, schema := range of.Components.Schemas {
			if !strings.HasPrefix(name, "io.k8s.") {
				continue // of a custom resource
			}
			if other := all[name]; other != nil && !reflect.DeepEqual(other, schema) {
				differ = append(differ, name)
			}
			all[name] = schema
		}
	}
	for _, name := range differ {
		if !slices.Contains([]string{"DeleteOptions", "WatchEvent"}, name[strings.LastIndexByte(name, '.')+1:]) {
			t.Errorf("%s: two documents differ", name)
		}
		delete(all, name)
	}
	return all
}

func packed(t *testing.T, schemas map[string]any) []byte {
	t.Helper()
	text, err := json.Marshal(schemas)
	must(t, err)
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	must(t, err)
	_, err = w.Write(text)
	must(t, err)
	must(t, w.Close())
	return out.Bytes()
}

func unpacked(t *testing.T, file string) (schemas map[string]any) {
	t.Helper()
	f, err := os.Open(file)
	must(t, err)
	defer f.Close()
	r, err := gzip.NewReader(f)
	must(t, err)
	text, err := io.ReadAll(r)
	must(t, err)
	must(t, json.Unmarshal(text, &schemas))
	return schemas
}
