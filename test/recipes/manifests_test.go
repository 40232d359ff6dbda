package recipes_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/yaml"
)

// module is a Go module whose files are read, and none of whose code is run.
type module struct {
	path, hash  string
	definitions []string // directories or files
}

var modules = map[string]module{
	"knative.yaml": {
		"knative.dev/eventing@v0.46.0", "h1:DGkvUcZagkvvcRxf5jh/usdictP8BWa7kHgIocfT4MY=",
		[]string{
			"config/core/resources/broker.yaml", "config/core/resources/sinkbindings.yaml",
			"config/core/resources/trigger.yaml",
		},
	},
	"keda.yaml": {
		"github.com/kedacore/keda/v2@v2.21.0", "h1:R6z2HZvstK4RLUMxroNACzBj74xGxt3kG59b5Xc+Xps=",
		[]string{"config/crd/bases/keda.sh_scaledobjects.yaml"},
	},
	"argo-events.yaml": {
		"github.com/argoproj/argo-events@v1.9.7", "h1:x+JOTsU3rzXSrzDwrUlLza4kmxp5zc1NMlgTgaLF678=",
		[]string{
			"manifests/base/crds/argoproj.io_eventsources.yaml",
			"manifests/base/crds/argoproj.io_sensors.yaml",
		},
	},
}

// download gives the directory of the module, whose content is compared with its hash.
func (m module) download(t *testing.T) (dir string) {
	t.Helper()
	cmd := exec.Command("go", "mod", "download", "-json", m.path)
	cmd.Dir = t.TempDir() // no go.mod is changed
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("download %s: %v\n%s", m.path, err, out)
	}
	var found struct{ Dir, Sum string }
	must(t, json.Unmarshal(out, &found))
	if found.Sum != m.hash {
		t.Fatalf("%s has the hash %s, want %s", m.path, found.Sum, m.hash)
	}
	return found.Dir
}

// TestManifests has an API server with the CRDs of Knative, KEDA and Argo Events take what
// controllers.md says.
//
// What the page has side by side was seen by hand, on 2026-11-29, with ConfigMaps of one namespace
// and an endpoint that noted each POST. The programs were built with this module's versions, after
// go get knative.dev/eventing@v0.46.0 github.com/argoproj/argo-events@v1.9.7:
//
//	KUBE_FEATURE_WatchListClient=false NAMESPACE=side NAME=side K_SINK=http://… \
//	SYSTEM_NAMESPACE=side K_SOURCE_CONFIG='{"mode":"Resource","namespaces":["side"], \
//	"resources":[{"gvr":{"Version":"v1","Resource":"configmaps"}}]}' apiserver_receive_adapter
//
// The adapter got the methods that client-go 0.37 adds to a Store, and no telemetry. Of Argo Events
// a main function called EventListener.StartListening with a dispatch that posts.
func TestManifests(t *testing.T) {
	if _, err := exec.LookPath("kubectl"); err != nil {
		t.Skip("not run: no kubectl on this machine")
	}
	if os.Getenv("CONTROLPLANE_BIN") == "" {
		t.Skip("CONTROLPLANE_BIN is not set: run make test-recipes")
	}
	dir := t.TempDir()
	readPage(t, "controllers.md", map[string]string{}).writeFiles(t, dir)
	kubeconfig := controlPlane(t).Kubeconfig
	kubectl := func(args ...string) error {
		out, err := exec.Command("kubectl", append(args, "--kubeconfig", kubeconfig)...).
			CombinedOutput()
		if err != nil {
			return fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, out)
		}
		return nil
	}
	must(t, kubectl("create", "namespace", shop))
	dirs := map[string]string{}
	for file, m := range modules {
		dirs[file] = m.download(t)
		for _, definition := range m.definitions {
			// Conversions of other versions are a webhook that does not run here.
			must(t, kubectl("create", "-f", filepath.Join(dirs[file], definition)))
		}
	}
	must(t, kubectl("wait", "crd", "--all", "--for=condition=Established", "--timeout=240s"))
	apply := func(path string) error {
		return kubectl("apply", "--dry-run=server", "--validate=strict", "-f", path)
	}
	for file := range modules {
		t.Run("the API server takes "+file, func(t *testing.T) {
			// A kind is served some time after its definition is established.
			var err error
			for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(time.Second) {
				err = apply(filepath.Join(dir, file))
				if err == nil || !strings.Contains(err.Error(), "no matches for kind") {
					break
				}
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("it refuses an unknown field", func(t *testing.T) {
		for _, file := range []string{"knative.yaml", "keda.yaml"} {
			path := filepath.Join(dir, "wrong-"+file)
			text, err := os.ReadFile(filepath.Join(dir, file))
			must(t, err)
			wrong := strings.ReplaceAll(string(text), "\nspec:\n", "\nspec:\n  other: 1\n")
			must(t, os.WriteFile(path, []byte(wrong), 0o600))
			if apply(path) == nil {
				t.Error(file)
			}
		}
	})
	t.Run("the scalers of KEDA know the metadata", func(t *testing.T) {
		for _, object := range objects(t, filepath.Join(dir, "keda.yaml")) {
			spec := object["spec"].(map[string]any)
			trigger := spec["triggers"].([]any)[0].(map[string]any)
			name := strings.ReplaceAll(trigger["type"].(string), "-", "_") + "_scaler.go"
			path := filepath.Join(dirs["keda.yaml"], "pkg", "scalers", name)
			source, err := os.ReadFile(path)
			must(t, err)
			for key := range trigger["metadata"].(map[string]any) {
				if !strings.Contains(string(source), "name="+key) &&
					!strings.Contains(string(source), fmt.Sprintf("%q", key)) {
					t.Errorf("%s does not read %s", name, key)
				}
			}
		}
	})
	t.Run("the JSON schema of Argo Events has the fields", func(t *testing.T) {
		text, err := os.ReadFile(
			filepath.Join(dirs["argo-events.yaml"], "api", "jsonschema", "schema.json"))
		must(t, err)
		var s schema
		must(t, json.Unmarshal(text, &s))
		for _, object := range objects(t, filepath.Join(dir, "argo-events.yaml")) {
			kind := fmt.Sprintf("#/definitions/io.argoproj.events.v1alpha1.%s", object["kind"])
			for _, problem := range s.unknown(&schema{Ref: kind}, object, "") {
				t.Error(problem)
			}
			object["spec"].(map[string]any)["other"] = true
			if len(s.unknown(&schema{Ref: kind}, object, "")) != 1 {
				t.Error("an unknown field is not found")
			}
		}
	})
	t.Run("the others are YAML", func(t *testing.T) {
		files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
		must(t, err)
		if len(files) <= len(modules) {
			t.Errorf("only %d files", len(files))
		}
		for _, file := range files {
			objects(t, file)
		}
	})
}

// objects are the documents of a file.
func objects(t *testing.T, path string) (all []map[string]any) {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	for part := range strings.SplitSeq(string(text), "\n---\n") {
		var object map[string]any
		must(t, yaml.Unmarshal([]byte(part), &object))
		all = append(all, object)
	}
	return all
}

// schema is what is needed of a JSON schema to find fields that it does not have.
type schema struct {
	Ref         string             `json:"$ref"`
	Definitions map[string]*schema `json:"definitions"`
	Properties  map[string]*schema `json:"properties"`
	Additional  *schema            `json:"additionalProperties"`
	Items       *schema            `json:"items"`
}

// unknown are the fields of a value that are not in its schema.
func (s *schema) unknown(of *schema, value any, path string) (problems []string) {
	if name, isRef := strings.CutPrefix(of.Ref, "#/definitions/"); isRef {
		if of = s.Definitions[name]; of == nil {
			return []string{path + ": no schema of " + name}
		}
	}
	switch value := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			field := of.Properties[key]
			if field == nil {
				field = of.Additional
			}
			switch {
			case field != nil:
				problems = append(problems, s.unknown(field, value[key], path+"."+key)...)
			case len(of.Properties) > 0:
				problems = append(problems, path+"."+key+" is unknown")
			}
		}
	case []any:
		for i, item := range value {
			if of.Items != nil {
				problems = append(problems, s.unknown(of.Items, item, fmt.Sprint(path, "[", i, "]"))...)
			}
		}
	}
	return problems
}
