package resource_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/kubebridge/bridge/internal/resource"
)

func newRules(t testing.TB, cfg resource.RulesConfig) *resource.Rules {
	t.Helper()
	cfg.Redactor = newRedactor(t)
	r, err := resource.NewRules(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func pathsOf(t testing.TB, texts ...string) []resource.Path {
	t.Helper()
	var paths []resource.Path
	for _, text := range texts {
		paths = append(paths, mustPath(t, text))
	}
	return paths
}

// Rules take out what they name, and nothing else.
func TestRulesTakeOut(t *testing.T) {
	f := func(value string, field ...string) string {
		return `"` + fingerprint(resource.Type{}, "", "", value, field...) + `"`
	}
	for _, tt := range []struct {
		name, in     string
		redact, drop []string
		want         string
	}{
		{"a string", `{"a":"x", "b":1}`, []string{"a"}, nil, `{"a":` + f("x", ".a") + `, "b":1}`},
		{"a string with escapes", `{"a":"\u0078"}`, []string{"a"}, nil, `{"a":` + f("x", ".a") + `}`},
		{"under a name with escapes", `{"\u0061":"x"}`, []string{"a"}, nil, `{"\u0061":` + f("x", ".a") + `}`},
		{"a number, and what is of another kind", `{"a":12,"b":{"a":[1]},"c":null}`, []string{"a", "b", "c"}, nil, `{"a":` + f("12", ".a") + `,"b":` + f(`{"a":[1]}`, ".b") + `,"c":` + f("null", ".c") + `}`},
		{"every member", `{"a":{"b":"x","c":"y"}}`, []string{"a.*"}, nil, `{"a":{"b":` + f("x", ".a", ".b") + `,"c":` + f("y", ".a", ".c") + `}}`},
		{"in every item", `{"a":[{"b":"x"},{"c":"y"},"z"]}`, []string{"a.*.b"}, nil, `{"a":[{"b":` + f("x", ".a", "[0", ".b") + `},{"c":"y"},"z"]}`},
		{"nothing that is not there", ` { "a" : [ 1 , 2 ] } `, []string{"b", "a.b", "a.*.c"}, []string{"c"}, ` { "a" : [ 1 , 2 ] } `},
		{"the first member", `{"a":1, "b":2}`, nil, []string{"a"}, `{ "b":2}`},
		{"the last member", `{"a":1 , "b":2 }`, nil, []string{"b"}, `{"a":1  }`},
		{"one in the middle", `{"a":1,"b":2,"c":3}`, nil, []string{"b"}, `{"a":1,"c":3}`},
		{"all but the last", `{"a":1,"b":2,"c":3}`, nil, []string{"a", "b"}, `{"c":3}`},
		{"all members", `{"a":{"b":1,"c":2}}`, nil, []string{"a.*"}, `{"a":{}}`},
		{"all items", `{"a":[1,[2],{}]}`, nil, []string{"a.*"}, `{"a":[]}`},
		{"a drop beside a redaction", `{"a":{"b":"x","c":1,"d":"y"}}`, []string{"a.b", "a.d"}, []string{"a.c"}, `{"a":{"b":` + f("x", ".a", ".b") + `,"d":` + f("y", ".a", ".d") + `}}`},
		{"a drop within a redaction", `{"a":{"b":"x"}}`, []string{"a"}, []string{"a.b"}, `{"a":` + f(`{"b":"x"}`, ".a") + `}`},
		{"a redaction of what is dropped", `{"a":"x","b":1}`, []string{"a"}, []string{"a"}, `{"b":1}`},
		{"the copy that kubectl keeps", `{"metadata":{"annotations":{"x":"y","` + lastApplied + `":"{}"}}}`, []string{"b"}, nil, `{"metadata":{"annotations":{"x":"y","` + lastApplied + `":` + f("{}", ".metadata", ".annotations", "."+lastApplied) + `}}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := newRules(t, resource.RulesConfig{Redact: pathsOf(t, tt.redact...), Drop: pathsOf(t, tt.drop...)}).Rewrite([]byte(tt.in))
			if err != nil || string(got) != tt.want {
				t.Errorf("%s, %v\nwant %s", got, err, tt.want)
			}
		})
	}
}

// Variables that look like secrets are redacted.
func TestRulesOnVariables(t *testing.T) {
	const in = `{"spec":{"template":{"spec":{"initContainers":[{"name":"i","env":[{"value":"s1","name":"DB_PASSWORD"}]}],"containers":[{"name":"c","env":[
		{"name":"API_TOKEN","value":"s2"},{"name":"LEVEL","value":"debug"},{"name":"URL","value":"https://u:s3@h/"},
		{"name":"TOKEN_REF","valueFrom":{"secretKeyRef":{"name":"x","key":"y"}}}, {"name":"EMPTY_SECRET"}, null],"args":["--password"]}]}}},
		"env":[{"name":"PASSWORD","value":"not of a container"}]}`
	got, err := newRules(t, resource.RulesConfig{Env: true}).Rewrite([]byte(in))
	if err != nil {
		t.Fatal(err)
	}
	f := func(value, container, variable string, to ...string) string {
		field := append(append([]string{".spec", ".template", ".spec"}, to...), "="+container, ".env", "="+variable, ".value")
		return `"` + fingerprint(resource.Type{}, "", "", value, field...) + `"`
	}
	want := strings.NewReplacer(
		`"s1"`, f("s1", "i", "DB_PASSWORD", ".initContainers"), `"s2"`, f("s2", "c", "API_TOKEN", ".containers"),
		`"https://u:s3@h/"`, f("https://u:s3@h/", "c", "URL", ".containers"),
	).Replace(in)
	if string(got) != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// Arguments that look like secrets are redacted, and of a flag with its value the value alone.
func TestRulesOnArguments(t *testing.T) {
	const in = `{"spec":{"containers":[{"name":"c","command":["app","--token","s1","--level","debug"],
		"args":["--password=s2","--port=80","API_KEY=s3","--secret","--verbose",3,"-c","export DB_PASSWORD=s4","echo --token=$TOKEN","--redis=redis://:s5@h"]}]},"args":["--password=x"]}`
	rules := newRules(t, resource.RulesConfig{Env: true})
	got, err := rules.Rewrite([]byte(in))
	if err != nil {
		t.Fatal(err)
	}
	f := func(value, list, index string) string {
		return fingerprint(resource.Type{}, "", "", value, ".spec", ".containers", "=c", "."+list, "["+index)
	}
	want := strings.NewReplacer(
		"s1", f("s1", "command", "2"), "s2", f("s2", "args", "0"), "s3", f("s3", "args", "2"),
		"export DB_PASSWORD=s4", f("export DB_PASSWORD=s4", "args", "7"), "redis://:s5@h", f("redis://:s5@h", "args", "9"),
	).Replace(in)
	if string(got) != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if again, err := rules.Rewrite(got); err != nil || string(again) != string(got) {
		t.Errorf("another time it is %s, %v", again, err)
	}
}

// Rules keep what is known of an object.
func TestRulesKeepMetadata(t *testing.T) {
	const in = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"7","managedFields":[
		{"manager":"kubectl","time":"2026-01-01T00:00:00Z","fieldsV1":{"v:\"hunter2\"":{}}}]},"spec":{"list":["hunter2"]}}`
	obj := mustParse(t, in, resource.ParseOptions{Type: pods, KeepManagedFields: true, Rules: newRules(t, resource.RulesConfig{Redact: pathsOf(t, "spec.list.*")})})
	if bytes.Contains(obj.Raw, []byte("hunter2")) {
		t.Errorf("Raw = %s", obj.Raw)
	}
	if obj.Key() != "n/a" || obj.UID != "u" || obj.Version != "7" || withoutFields(obj.Writes) != writes("2026-01-01T00:00:00Z", [4]string{"kubectl"}) {
		t.Errorf("Meta = %+v", obj.Meta)
	}
}

// The managed fields of a Secret are cut, even when others are kept.
func TestRulesOnManagedFields(t *testing.T) {
	const in = `{"metadata":{"name":"s","resourceVersion":"1","managedFields":[{"manager":"m","time":"2026-01-01T00:00:00Z","fieldsV1":{"v:\"hunter2\"":{}}}]}}`
	obj := mustParse(t, in, resource.ParseOptions{Type: secrets, KeepManagedFields: true, Redactor: newRedactor(t)})
	if bytes.Contains(obj.Raw, []byte("hunter2")) || !strings.HasPrefix(string(obj.Writes), "m\x00") {
		t.Errorf("%s, written by %q", obj.Raw, obj.Writes)
	}
}

// Rules must not reach the fields that identify an object.
func TestRulesOnIdentity(t *testing.T) {
	for text, bad := range map[string]bool{
		"metadata.name": true, "metadata": true, "*": true, "*.uid": true, "metadata.*": true, "kind": true,
		"metadata.labels": false, "spec.name": false, "metadata.annotations.*": false, "metadata.ownerReferences": false,
	} {
		if err := resource.CheckRule(mustPath(t, text)); (err != nil) != bad {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestRulesFailClosed(t *testing.T) {
	rules := newRules(t, resource.RulesConfig{Redact: pathsOf(t, "a.b")})
	for _, in := range []string{`{"a":{"b":"hunter2`, `{"a":{"b":"hunter2"} "c":1}`, `{"a":{"b":"hunter2"}}}`, `{"a":{"b":hunter2"}`} {
		got, err := rules.Rewrite([]byte(in))
		if !errors.Is(err, resource.ErrRedact) || got != nil || strings.Contains(err.Error(), "hunter") {
			t.Errorf("%s: %s, %v", in, got, err)
		}
	}
}

var fingerprints = regexp.MustCompile(`"redacted:[0-9a-f]{8}:[0-9a-f]{16}"`)

// FuzzRules: of any object, by any path, the value is gone, what remains is valid JSON, and
// everything else is as it was.
func FuzzRules(f *testing.F) {
	f.Add([]byte(`{"a":{"b":[1,{"c":"x"}]},"d":null}`), "a.b.*.c", false)
	f.Add([]byte(`{"a":{"b":[1,{"c":"x"}]},"d":null}`), "*", true)
	f.Add([]byte("{ \"a\\u0062\" : [ \"\\\"\" , {} ] }"), "ab[*]", true)
	f.Add([]byte(`{"a":1,"b":2,"c":3}`), "b", true)
	f.Fuzz(func(t *testing.T, raw []byte, text string, drop bool) {
		path, err := resource.ParsePath(text)
		if err != nil || !jsontext.Value(raw).IsValid() || resource.CheckRule(path) != nil {
			return
		}
		if again, err := resource.ParsePath(path.String()); err != nil || !reflect.DeepEqual(again, path) {
			t.Fatalf("%q is printed as %s, which is read as %s, %v", text, path, again, err)
		}
		cfg := resource.RulesConfig{Redact: []resource.Path{path}}
		if drop {
			cfg = resource.RulesConfig{Drop: []resource.Path{path}}
		}
		got, err := newRules(t, cfg).Rewrite(raw)
		if err != nil {
			t.Fatal(err)
		}
		if !jsontext.Value(got).IsValid() {
			t.Fatalf("%s became %s", raw, got)
		}
		steps := stepsOf(path)
		want := without(decodeAny(t, raw), steps, drop)
		for _, name := range resource.CopiesOfObject {
			want = without(want, []string{"metadata", "annotations", name}, false)
		}
		have := decodeAny(t, got)
		if !reflect.DeepEqual(blank(have), blank(want)) {
			t.Fatalf("%s became %s by %s", raw, got, path)
		}
		if drop {
			return
		}
		rest := string(raw)
		for i, piece := range fingerprints.Split(string(got), -1) {
			at := strings.Index(rest, piece)
			if at < 0 || i == 0 && at > 0 {
				t.Fatalf("%s became %s: %q is not of it", raw, got, piece)
			}
			rest = rest[at+len(piece):]
		}
	})
}

// stepsOf gives a path's names; "" stands for all.
func stepsOf(p resource.Path) []string {
	var steps []string
	for rest := p.String(); rest != ""; {
		rest = strings.TrimPrefix(rest, ".")
		if strings.HasPrefix(rest, "[") {
			end := 2 + strings.Index(rest[2:], rest[1:2]+"]")
			steps, rest = append(steps, rest[2:end]), rest[end+2:]
			continue
		}
		end := strings.IndexAny(rest, ".[")
		if end < 0 {
			end = len(rest)
		}
		name := rest[:end]
		if name == "*" {
			name = ""
		}
		steps, rest = append(steps, name), rest[end:]
	}
	return steps
}

type gone struct{}

// without takes the values at a path out of decoded JSON, the slow way. A redacted value becomes
// "redacted".
func without(v any, steps []string, drop bool) any {
	if len(steps) == 0 {
		if drop {
			return gone{}
		}
		return "redacted:00000000:0000000000000000"
	}
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, inner := range v {
			if steps[0] == "" || steps[0] == name {
				inner = without(inner, steps[1:], drop)
			}
			if inner != (gone{}) {
				out[name] = inner
			}
		}
		return out
	case []any:
		out := []any{}
		for _, inner := range v {
			if steps[0] == "" {
				inner = without(inner, steps[1:], drop)
			}
			if inner != (gone{}) {
				out = append(out, inner)
			}
		}
		return out
	}
	return v
}

// blank makes all fingerprints alike.
func blank(v any) string {
	raw, _ := json.Marshal(v)
	return fingerprints.ReplaceAllString(string(raw), `"redacted:00000000:0000000000000000"`)
}

func decodeAny(t *testing.T, raw []byte) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return v
}
