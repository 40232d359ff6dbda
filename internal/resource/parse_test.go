package resource_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/resource/jsonscan"
	"github.com/kubebridge/bridge/internal/testkit"
)

var (
	pods    = resource.Type{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true}
	widgets = resource.Type{Group: "example.com", Version: "v1", Resource: "widgets", Kind: "Widget", Namespaced: true}
)

func readTestdata(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSpace(b)
}

func mustParse(t testing.TB, raw string, opts resource.ParseOptions) *resource.Object {
	t.Helper()
	obj, err := resource.Parse([]byte(raw), opts)
	if err != nil {
		t.Fatalf("Parse(%s): %v", raw, err)
	}
	return obj
}

func TestIdentity(t *testing.T) {
	long := strings.Repeat("1", 256)
	for name, raw := range map[string]string{
		"a long version": `{"metadata":{"name":"a","uid":"u","resourceVersion":"` + long + `"}}`,
		"a long uid":     `{"metadata":{"name":"a","uid":"` + long + `","resourceVersion":"1"}}`,
	} {
		t.Run(name+" is refused, and not given on", func(t *testing.T) {
			_, err := resource.Parse([]byte(raw), resource.ParseOptions{})
			refused, ok := errors.AsType[*resource.RefusedError](err)
			if !ok || !errors.Is(err, resource.ErrFieldType) || refused.Key != "a" || len(refused.UID)+len(refused.Version) > 1 {
				t.Errorf("%v, %+v", err, refused)
			}
		})
	}
	t.Run("255 bytes are not too long", func(t *testing.T) {
		obj, err := resource.Parse([]byte(`{"metadata":{"name":"a","uid":"`+long[1:]+`","resourceVersion":"`+long[1:]+`"}}`), resource.ParseOptions{})
		if err != nil || len(obj.UID) != 255 || len(obj.Version) != 255 {
			t.Error(err)
		}
	})
}

func TestCut(t *testing.T) {
	whole := `{"metadata":{"name":"a","uid":"u","resourceVersion":"1"},"spec":{}}`
	for i := range whole[1:] {
		s := jsonscan.NewReader(strings.NewReader(whole[:i]))
		_, err := resource.ParseNext(s, &resource.ParseOptions{})
		cut, ok := errors.AsType[*resource.CutError](err)
		if i == 0 {
			continue // nothing at all
		}
		known := i > strings.Index(whole, "},")
		if !ok || (cut.Identity == resource.Identity{Key: "a", UID: "u", Version: "1"}) != known || !known && cut.Identity != (resource.Identity{}) {
			t.Fatalf("%s: %v, %+v", whole[:i], err, cut)
		}
	}
}

// Parse reads the metadata of a pod.
func TestParseMetadata(t *testing.T) {
	raw := readTestdata(t, "pod.json")
	obj, err := resource.Parse(raw, resource.ParseOptions{Type: pods})
	if err != nil {
		t.Fatal(err)
	}
	want := resource.Meta{
		Namespace:  "shop",
		Name:       "checkout-6d9f8c7b54-x2x7k",
		UID:        "2b1c6f0e-6f2b-4c39-9d4f-0a3c1d9b7e55",
		Version:    "48151623",
		Generation: 1,

		CreationTimestamp: "2026-11-20T09:14:02Z",
		NodeName:          "ip-10-0-41-17.eu-central-1.compute.internal",
		Writes: writes("2020-11-20T09:14:02Z", [4]string{"kube-controller-manager", "Update", "", "v1"}) +
			writes("2020-11-20T09:14:09Z", [4]string{"kubelet", "Update", "status", "v1"}),

		Owners: []resource.Owner{{
			APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "checkout-6d9f8c7b54",
			UID: "7d1f2c55-0c0e-4e0a-9a52-6d0c7a2f1b10", Controller: true,
		}},
	}
	obj.Writes = withoutFields(obj.Writes)
	if !reflect.DeepEqual(obj.Meta, want) {
		t.Errorf("Meta = %+v\nwant   %+v", obj.Meta, want)
	}
	before, _, _ := bytes.Cut(raw, []byte(`,"managedFields":`))
	end := bytes.Index(raw, []byte(`},"spec":`))
	if got, want := string(obj.Raw), string(before)+string(raw[end:]); got != want {
		t.Errorf("Raw is not the input less managedFields:\n%s", got)
	}
}

// The node of a pod is read out of its spec, and of nothing else.
func TestParseNode(t *testing.T) {
	path, err := resource.ParsePath("spec.nodeName")
	if err != nil {
		t.Fatal(err)
	}
	rules := newRules(t, resource.RulesConfig{Drop: []resource.Path{path}})
	for name, c := range map[string]struct {
		typ   resource.Type
		rules *resource.Rules
		spec  string
		want  string
	}{
		"a pod":                {pods, nil, `{"a":{"nodeName":"x"},"nodeName":"n1","b":[{}]}`, "n1"},
		"an escape":            {pods, nil, `{"nodeName":"n\u0031"}`, "n1"},
		"not bound":            {pods, nil, `{"a":1}`, ""},
		"no text":              {pods, nil, `{"nodeName":{"nodeName":"n1"}}`, ""},
		"null":                 {pods, nil, `{"nodeName":null}`, ""},
		"no object":            {pods, nil, `["nodeName"]`, ""},
		"what is dropped":      {pods, rules, `{"nodeName":"n1","b":1}`, ""},
		"another kind":         {secrets, nil, `{"nodeName":"n1"}`, ""},
		"one of any kind":      {resource.Type{}, nil, `{"nodeName":"n1"}`, ""},
		"another group's pods": {resource.Type{Group: "example.com", Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true}, nil, `{"nodeName":"n1"}`, ""},
	} {
		raw := `{"spec":` + c.spec + `,"metadata":{"name":"a","namespace":"shop","uid":"u","resourceVersion":"1","managedFields":[]}}`
		obj, err := resource.Parse([]byte(raw), resource.ParseOptions{Type: c.typ, Rules: c.rules})
		if err != nil || obj.NodeName != c.want {
			t.Errorf("%s: %q, want %q: %v", name, obj.NodeName, c.want, err)
		}
	}
}

// Parse keeps nothing of its input.
func TestParseCopies(t *testing.T) {
	raw := readTestdata(t, "pod.json")
	obj, err := resource.Parse(raw, resource.ParseOptions{Type: pods})
	if err != nil {
		t.Fatal(err)
	}
	again, err := resource.Parse(bytes.Clone(raw), resource.ParseOptions{Type: pods})
	if err != nil {
		t.Fatal(err)
	}
	clear(raw) // as a decoder does when it reads the next frame into its buffer
	if !reflect.DeepEqual(obj, again) {
		t.Errorf("the object changed with the input's buffer: %+v", obj.Meta)
	}
}

// An append to Raw does not change the manager.
func TestAppendToRaw(t *testing.T) {
	obj := mustParse(t, string(readTestdata(t, "pod.json")), resource.ParseOptions{Type: pods})
	_ = append(obj.Raw, "xxxxxxxxxxxxxxxx"...)
	if newest := obj.Writes.Newest(); newest.Second() != 9 {
		t.Errorf("written at %v after an append to Raw", newest)
	}
}

func TestParseEdits(t *testing.T) {
	const meta = `"metadata":{"name":"a","resourceVersion":"5"}`
	tests := []struct {
		name string
		typ  resource.Type
		in   string
		want string
	}{
		{
			"an item of a built-in list gets kind and apiVersion in front", pods,
			`{` + meta + `}`, `{"kind":"Pod","apiVersion":"v1",` + meta + `}`,
		},
		{
			"an item of a group's list gets the group", widgets,
			`{` + meta + `}`, `{"kind":"Widget","apiVersion":"example.com/v1",` + meta + `}`,
		},
		{
			"what has its kind keeps its place", widgets,
			`{"apiVersion":"example.com/v1","kind":"Widget",` + meta + `}`, `{"apiVersion":"example.com/v1","kind":"Widget",` + meta + `}`,
		},
		{"the zero type adds nothing", resource.Type{}, `{` + meta + `}`, `{` + meta + `}`},
		{
			"managedFields first",
			resource.Type{},
			`{"metadata":{"managedFields":[],"name":"a","resourceVersion":"5"}}`, `{` + meta + `}`,
		},
		{
			"managedFields in the middle",
			resource.Type{},
			`{"metadata":{"name":"a","managedFields":[{"manager":"m"}],"resourceVersion":"5"}}`, `{` + meta + `}`,
		},
		{
			"managedFields last",
			resource.Type{},
			`{"metadata":{"name":"a","resourceVersion":"5","managedFields":[{}]}}`, `{` + meta + `}`,
		},
		{
			"managedFields null",
			resource.Type{},
			`{"metadata":{"name":"a","resourceVersion":"5","managedFields":null}}`, `{` + meta + `}`,
		},
		{
			"pretty-printed",
			resource.Type{},
			"{\n \"metadata\": {\n  \"managedFields\": [ ] ,\n  \"name\": \"a\",\n  \"resourceVersion\": \"5\"\n }\n}\n",
			"{\n \"metadata\": {\n  \n  \"name\": \"a\",\n  \"resourceVersion\": \"5\"\n }\n}",
		},
		{
			"managedFields elsewhere stay",
			resource.Type{},
			`{"spec":{"metadata":{"managedFields":[]},"managedFields":1},` + meta + `}`,
			`{"spec":{"metadata":{"managedFields":[]},"managedFields":1},` + meta + `}`,
		},
		{
			"an escaped member name is the same member",
			resource.Type{},
			`{"m\u0065tadata":{"name":"a","manag\u0065dFields":[],"resourceVersion":"5"}}`,
			`{"m\u0065tadata":{"name":"a","resourceVersion":"5"}}`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			obj := mustParse(t, tt.in, resource.ParseOptions{Type: tt.typ})
			if string(obj.Raw) != tt.want {
				t.Errorf("Raw = %s\nwant  %s", obj.Raw, tt.want)
			}
			if obj.Name != "a" || obj.Version != "5" {
				t.Errorf("Name, Version = %q, %q", obj.Name, obj.Version)
			}
		})
	}
}

// Parse keeps managed fields when asked to.
func TestParseManagedFields(t *testing.T) {
	raw := readTestdata(t, "pod.json")
	obj := mustParse(t, string(raw), resource.ParseOptions{Type: pods, KeepManagedFields: true})
	if !bytes.Equal(obj.Raw, raw) {
		t.Error("Raw differs from the input")
	}
	if newest := obj.Writes.Newest(); newest.Second() != 9 {
		t.Errorf("written at %v", newest)
	}
}

// Parse decodes escaped strings.
func TestParseEscapes(t *testing.T) {
	obj := mustParse(t, `{"metadata":{"name":"a\u0062c","namespace":"ü\ud83d\ude00","uid":"\"","resourceVersion":"\u0035",
		"managedFields":[{"manager":"x\ny","time":"2020-11-20T09:14:09Z"}],"ownerReferences":[{"name":"o\/p","controller":true},{"name":"q"}]}}`, resource.ParseOptions{})
	want := resource.Meta{
		Name: "abc", Namespace: "ü😀", UID: `"`, Version: "5",
		Writes: writes("2020-11-20T09:14:09Z", [4]string{"x\ny"}),
		Owners: []resource.Owner{{Name: "o/p", Controller: true}, {Name: "q"}},
	}
	if !reflect.DeepEqual(obj.Meta, want) {
		t.Errorf("Meta = %+v\nwant   %+v", obj.Meta, want)
	}
}

func TestParseRefuses(t *testing.T) {
	tests := []struct {
		name string
		in   string
		want error
	}{
		{"nothing", ``, resource.ErrSyntax},
		{"an array", `[]`, resource.ErrNotObject},
		{"null", `null`, resource.ErrNotObject},
		{"no metadata", `{"kind":"Pod"}`, resource.ErrNoMetadata},
		{"null metadata", `{"metadata":null}`, resource.ErrNoMetadata},
		{"metadata in spec only", `{"spec":{"metadata":{"name":"a","resourceVersion":"5"}}}`, resource.ErrNoMetadata},
		{"no name", `{"metadata":{"resourceVersion":"5"}}`, resource.ErrNoName},
		{"an empty name", `{"metadata":{"name":"","resourceVersion":"5"}}`, resource.ErrNoName},
		{"no version", `{"metadata":{"name":"a"}}`, resource.ErrNoVersion},
		{"metadata twice", `{"metadata":{"name":"a","resourceVersion":"5"},"metadata":{}}`, resource.ErrDuplicate},
		{"a name twice", `{"metadata":{"name":"a","resourceVersion":"5","n\u0061me":"b"}}`, resource.ErrDuplicate},
		{"a name that is a number", `{"metadata":{"name":1,"resourceVersion":"5"}}`, resource.ErrFieldType},
		{"a broken generation", `{"metadata":{"name":"a","resourceVersion":"5","generation":1.5}}`, resource.ErrFieldType},
		{"owners that are none", `{"metadata":{"name":"a","resourceVersion":"5","ownerReferences":[1]}}`, resource.ErrFieldType},
		{"a table", `{"kind":"Table","metadata":{"name":"a","resourceVersion":"5"}}`, resource.ErrWrongKind},
		{"half an object", `{"metadata":{"name":"a","resourceVersion":"5"}`, resource.ErrSyntax},
		{"two objects", `{"metadata":{"name":"a","resourceVersion":"5"}} {}`, resource.ErrSyntax},
		{"a table, and then bad JSON", `{"kind":"Table","metadata":[],"a":tru}`, resource.ErrSyntax},
		{"a name that is an object with bad JSON", `{"metadata":{"name":{"a":"\x"},"resourceVersion":"5"}}`, resource.ErrSyntax},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			obj, err := resource.Parse([]byte(tt.in), resource.ParseOptions{Type: pods})
			if !errors.Is(err, tt.want) || obj != nil {
				t.Errorf("Parse = %v, %v, want %v", obj, err, tt.want)
			}
		})
	}
}

func TestParseAllocatesTwice(t *testing.T) {
	raw := readTestdata(t, "pod.json")
	opts := resource.ParseOptions{Type: pods}
	got := testing.AllocsPerRun(100, func() {
		if _, err := resource.Parse(raw, opts); err != nil {
			t.Fatal(err)
		}
	})
	if got != 2 { // the Object with its owner; Raw with the manager's name
		t.Errorf("Parse of a pod makes %v allocations, want 2", got)
	}
}

func BenchmarkParse(b *testing.B) {
	raw := readTestdata(b, "pod.json")
	for _, bb := range []struct {
		name string
		opts resource.ParseOptions
	}{
		{"cut", resource.ParseOptions{Type: pods}},
		{"keep", resource.ParseOptions{Type: pods, KeepManagedFields: true}},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := resource.Parse(raw, bb.opts); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkWide is of objects of tens of thousands of members.
func BenchmarkWide(b *testing.B) {
	redactor := newRedactor(b)
	for name, bb := range map[string]struct {
		raw  []byte
		opts resource.ParseOptions
	}{
		"ConfigMap": {testkit.Wide(30_000, 1, true), resource.ParseOptions{Type: resource.Type{Version: "v1", Resource: "configmaps", Kind: "ConfigMap", Namespaced: true}}},
		"Secret":    {testkit.WideSecret(75_000, 1), resource.ParseOptions{Type: secrets, Redactor: redactor}},
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(bb.raw)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := resource.Parse(bb.raw, bb.opts); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
