package resource_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/kubebridge/bridge/internal/resource"
)

// FuzzParse checks Parse against encoding/json on everything that jsontext lets through, and that
// it refuses the rest as jsontext does.
func FuzzParse(f *testing.F) {
	f.Add(readTestdata(f, "pod.json"), false)
	f.Add(readTestdata(f, "secret.json"), true)
	for _, seed := range []string{
		`{"metadata":{"managedFields":[{"manager":"a","time":"2026-01-01T00:00:00Z"}],"name":"a","resourceVersion":"1"}}`,
		`{"apiVersion":"v1","kind":"Pod","spec":{"metadata":{"name":"no"}},"metadata":{"resourceVersion":"1","name":"a\u0062\ud83d\ude00"}}`,
		"\n{ \"metadata\" :\t{ \"name\" : \"a\" , \"managedFields\" : [ ] , \"resourceVersion\" : \"1\" , \"generation\" : -4 } }\r\n",
		`{"metadata":{"name":"a","resourceVersion":"1","ownerReferences":[{"name":"o","controller":true},{},{"uid":"u"},null]},"a":"\\","b":"\\\""}`,
		`{"metadata":{"name":"a","resourceVersion":"1","deletionTimestamp":null,"creationTimestamp":"2026-01-01T00:00:00+01:00"}}`,
	} {
		f.Add([]byte(seed), false)
	}
	f.Fuzz(func(t *testing.T, raw []byte, keep bool) {
		if len(raw) > 4096 {
			return
		}
		opts := resource.ParseOptions{Type: pods, KeepManagedFields: keep}
		obj, err := resource.Parse(raw, opts)
		if valid := jsontext.Value(raw).IsValid(jsontext.AllowDuplicateNames(true)); valid == errors.Is(err, resource.ErrSyntax) {
			t.Fatalf("Parse: %v, but jsontext says %v", err, valid)
		}
		if !jsontext.Value(raw).IsValid() {
			return // encoding/json would merge what comes twice
		}
		if errors.Is(err, resource.ErrDepth) {
			if bytes.Count(raw, []byte("["))+bytes.Count(raw, []byte("{")) <= resource.MaxDepth {
				t.Fatalf("Parse: %v", err)
			}
			return // encoding/json takes ten times as many levels
		}
		want, wantErr := reference(raw, keep)
		if (err != nil) != (wantErr != nil) {
			t.Fatalf("Parse: %v, encoding/json: %v", err, wantErr)
		}
		if err != nil {
			return
		}
		if !jsontext.Value(obj.Raw).IsValid() {
			t.Fatalf("Raw is not valid: %s", obj.Raw)
		}
		obj.Writes = withoutFields(obj.Writes)
		if !reflect.DeepEqual(obj.Meta, want.Meta) {
			t.Fatalf("Meta = %+v\nwant   %+v", obj.Meta, want.Meta)
		}
		if got, want := decode(t, obj.Raw), decode(t, want.Raw); !reflect.DeepEqual(got, want) {
			t.Fatalf("Raw = %v\nwant  %v", got, want)
		}
		again, err := resource.Parse(obj.Raw, opts)
		if err != nil || !bytes.Equal(again.Raw, obj.Raw) {
			t.Fatalf("parsed again: %v, %s, not %s", err, again.Raw, obj.Raw)
		}
	})
}

// FuzzRedact checks that no value of a Secret survives, and that everything else does.
func FuzzRedact(f *testing.F) {
	f.Add(readTestdata(f, "secret.json"))
	f.Add([]byte(`{"stringData":{"a":1,"b":["x"],"c":null,"\u0064":"e"},"metadata":{"name":"a","resourceVersion":"1","annotations":null},"data":null}`))
	redactor := newRedactor(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		obj, err := resource.Parse(raw, resource.ParseOptions{Type: secrets, Redactor: redactor})
		if err != nil || !jsontext.Value(raw).IsValid() {
			return
		}
		in, out := decode(t, raw), decode(t, obj.Raw)
		for _, member := range []string{"data", "stringData"} {
			before, _ := in[member].(map[string]any)
			after, _ := out[member].(map[string]any)
			if len(before) != len(after) {
				t.Fatalf("%s: %d keys, then %d", member, len(before), len(after))
			}
			for key := range before {
				if text, _ := after[key].(string); !isFingerprint(text) {
					t.Fatalf("%s[%q] = %v", member, key, after[key])
				}
			}
			delete(in, member)
			delete(out, member)
		}
		addType(in, secrets)
		for _, o := range []map[string]any{in, out} {
			metadata := o["metadata"].(map[string]any)
			delete(metadata, "managedFields")
			annotations, _ := metadata["annotations"].(map[string]any)
			for name := range annotations {
				if !slices.Contains(resource.HarmlessAnnotations(), name) {
					delete(annotations, name)
				}
			}
		}
		if !reflect.DeepEqual(in, out) {
			t.Fatalf("%v\nbecame %v", in, out)
		}
	})
}

func decode(t *testing.T, raw []byte) map[string]any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var m map[string]any
	if err := d.Decode(&m); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return m
}

func addType(m map[string]any, typ resource.Type) {
	if _, ok := m["kind"]; !ok {
		m["kind"] = typ.Kind
	}
	if _, ok := m["apiVersion"]; !ok {
		m["apiVersion"] = typ.APIVersion()
	}
}

// reader reads members of decoded JSON and remembers that one had the wrong type. encoding/json
// would match the names of struct fields in any case, so it decodes to maps.
type reader struct{ err error }

var errReference = errors.New("reference: refused")

func member[T any](r *reader, m map[string]any, name string) T {
	var zero T
	if m[name] == nil {
		return zero
	}
	v, ok := m[name].(T)
	if !ok {
		r.err = errReference
	}
	return v
}

func object(r *reader, v any) map[string]any {
	m, ok := v.(map[string]any)
	if !ok && v != nil {
		r.err = errReference
	}
	return m
}

func reference(raw []byte, keep bool) (*resource.Object, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var decoded any
	if err := d.Decode(&decoded); err != nil {
		return nil, err
	}
	all, ok := decoded.(map[string]any)
	if !ok {
		return nil, errReference
	}
	metadata, ok := all["metadata"].(map[string]any)
	if !ok {
		return nil, errReference
	}
	var r reader
	if kind, there := all["kind"]; there && kind != "Pod" {
		r.err = errReference
	}
	obj := &resource.Object{Meta: referenceMeta(&r, metadata)}
	if obj.Name == "" || obj.Version == "" || r.err != nil {
		return nil, errReference
	}
	addType(all, pods)
	if !keep {
		delete(metadata, "managedFields")
	}
	var err error
	obj.Raw, err = json.Marshal(all)
	return obj, err
}

func referenceMeta(r *reader, metadata map[string]any) resource.Meta {
	m := resource.Meta{
		Namespace:         member[string](r, metadata, "namespace"),
		Name:              member[string](r, metadata, "name"),
		UID:               member[string](r, metadata, "uid"),
		Version:           resource.Version(member[string](r, metadata, "resourceVersion")),
		DeletionTimestamp: member[string](r, metadata, "deletionTimestamp"),
	}
	if n := member[json.Number](r, metadata, "generation"); n != "" {
		var err error
		if m.Generation, err = strconv.ParseInt(string(n), 10, 64); err != nil {
			r.err = errReference
		}
	}
	for _, v := range member[[]any](r, metadata, "ownerReferences") {
		o := object(r, v)
		controller, _ := o["controller"].(bool)
		m.Owners = append(m.Owners, resource.Owner{
			APIVersion: member[string](r, o, "apiVersion"),
			Kind:       member[string](r, o, "kind"),
			Name:       member[string](r, o, "name"),
			UID:        member[string](r, o, "uid"),
			Controller: controller,
		})
	}
	for _, v := range member[[]any](r, metadata, "managedFields") {
		e := object(r, v)
		at := member[string](r, e, "time")
		if len(at) != 20 {
			at = ""
		}
		one := writes(at, [4]string{
			member[string](r, e, "manager"), member[string](r, e, "operation"),
			member[string](r, e, "subresource"), member[string](r, e, "apiVersion"),
		})
		if strings.Count(string(one), "\x00") == 6 {
			m.Writes += one
		}
	}
	m.CreationTimestamp = member[string](r, metadata, "creationTimestamp")
	return m
}
