package deploy_test

import (
	"errors"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/kubebridge/bridge/config"
)

// namespace is where the tests put the bridge.
const namespace = "streaming"

// objects are those of a stream of YAML documents.
func objects(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	list, err := decode(text)
	must(t, err)
	return list
}

func decode(text string) (list []*unstructured.Unstructured, err error) {
	decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		var content map[string]any
		err := decoder.Decode(&content)
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil {
			return nil, err
		}
		if len(content) > 0 {
			list = append(list, &unstructured.Unstructured{Object: content})
		}
	}
}

// find gives the object of a kind whose name does not end in a suffix.
func find(t *testing.T, list []*unstructured.Unstructured, kind, not string) *unstructured.Unstructured {
	t.Helper()
	for _, o := range list {
		if o.GetKind() == kind && (not == "" || !strings.HasSuffix(o.GetName(), not)) {
			return o
		}
	}
	t.Fatalf("there is no %s", kind)
	return nil
}

// as decodes an object into a type of the API; what the type does not know is an error.
func as[T any](t *testing.T, o *unstructured.Unstructured) *T {
	t.Helper()
	out := new(T)
	must(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, out, true))
	return out
}

func equal(a, b any) bool { return reflect.DeepEqual(a, b) }

// load reads a configuration as the bridge does, with the variables that it names set.
func load(t *testing.T, text string) (*config.Config, error) {
	t.Helper()
	os.Expand(text, func(name string) string {
		t.Setenv(name, "1")
		return ""
	})
	return config.Load(config.Options{File: "bridge.yaml", Data: []byte(text)})
}
