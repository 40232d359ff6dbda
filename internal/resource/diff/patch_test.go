package diff_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/resource/diff"
	"github.com/kubebridge/bridge/internal/testkit"
)

// The public suite tests those who apply patches. Here its documents are the two versions, and its
// own patches show that the library that ours are checked with applies them as it should.
func TestDiffOfPublicSuite(t *testing.T) {
	for _, file := range []string{"tests.json", "spec_tests.json"} {
		data, err := os.ReadFile("testdata/" + file)
		if err != nil {
			t.Fatal(err)
		}
		var cases []struct {
			Comment              string
			Doc, Expected, Patch json.RawMessage
			Error                string
			Disabled             bool
		}
		if err := json.Unmarshal(data, &cases); err != nil {
			t.Fatal(err)
		}
		ran := 0
		for i, c := range cases {
			if c.Expected == nil || c.Error != "" || c.Disabled {
				continue
			}
			ran++
			t.Run(fmt.Sprintf("%s %d %s", file, i, c.Comment), func(t *testing.T) {
				checkDiff(t, c.Doc, c.Expected)
				checkDiff(t, c.Expected, c.Doc)
				checkMerge(t, c.Doc, c.Expected)
				checkMerge(t, c.Expected, c.Doc)
			})
		}
		if ran < 10 {
			t.Errorf("%s: %d cases", file, ran)
		}
	}
}

// The examples of RFC 6902, appendix A, that a diff can make: those with add, remove and replace.
func TestDiffOfRFCExamples(t *testing.T) {
	for _, tt := range []struct{ name, old, changed, want string }{
		{"A.1 adding an object member", `{"foo":"bar"}`, `{"baz":"qux","foo":"bar"}`, `[{"op":"add","path":"/baz","value":"qux"}]`},
		{"A.2 adding an array element", `{"foo":["bar","baz"]}`, `{"foo":["bar","qux","baz"]}`, `[{"op":"add","path":"/foo/1","value":"qux"}]`},
		{"A.3 removing an object member", `{"baz":"qux","foo":"bar"}`, `{"foo":"bar"}`, `[{"op":"remove","path":"/baz"}]`},
		{"A.4 removing an array element", `{"foo":["bar","qux","baz"]}`, `{"foo":["bar","baz"]}`, `[{"op":"remove","path":"/foo/1"}]`},
		{"A.5 replacing a value", `{"baz":"qux","foo":"bar"}`, `{"baz":"boo","foo":"bar"}`, `[{"op":"replace","path":"/baz","value":"boo"}]`},
		{"A.10 adding a nested member object", `{"foo":"bar"}`, `{"foo":"bar","child":{"grandchild":{}}}`, `[{"op":"add","path":"/child","value":{"grandchild":{}}}]`},
		{"A.14 ~ escape ordering", `{"/":9,"~1":10}`, `{"/":9,"~1":11}`, `[{"op":"replace","path":"/~01","value":11}]`},
		{"a name that is empty", `{"":{"a":1}}`, `{"":{"a":2}}`, `[{"op":"replace","path":"//a","value":2}]`},
		{"A.16 adding an array value", `{"foo":["bar"]}`, `{"foo":["bar",["abc","def"]]}`, `[{"op":"add","path":"/foo/1","value":["abc","def"]}]`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := string(diff.Diff([]byte(tt.old), []byte(tt.changed))); got != tt.want {
				t.Errorf("%s\nwant %s", got, tt.want)
			}
			checkDiff(t, []byte(tt.old), []byte(tt.changed))
		})
	}
}

// The table of RFC 7386, appendix A: original, patch, result. Its patches are not always the
// shortest.
var rfc7386 = [][3]string{
	{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
	{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
	{`{"a":"b"}`, `{"a":null}`, `{}`},
	{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
	{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
	{`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
	{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
	{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
	{`["a","b"]`, `["c","d"]`, `["c","d"]`},
	{`{"a":"b"}`, `["c"]`, `["c"]`},
	{`{"a":"foo"}`, `null`, `null`},
	{`{"a":"foo"}`, `"bar"`, `"bar"`},
	{`{"e":null}`, `{"a":1}`, `{"e":null,"a":1}`},
	{`[1,2]`, `{"a":"b","c":null}`, `{"a":"b"}`},
	{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
}

// The examples of the RFC, as merge patches.
func TestMergeOfRFCExamples(t *testing.T) {
	for _, tt := range rfc7386 {
		t.Run(tt[0]+" and "+tt[1], func(t *testing.T) {
			if got := applyMerge(decode(t, []byte(tt[0])), decode(t, []byte(tt[1]))); !reflect.DeepEqual(got, decode(t, []byte(tt[2]))) {
				t.Fatalf("the test's own MergePatch gives %v", got)
			}
			checkMerge(t, []byte(tt[0]), []byte(tt[2]))
		})
	}
}

// Merge names what it can not do.
func TestMergeErrors(t *testing.T) {
	for _, tt := range []struct {
		name, old, changed string
		want               bool
	}{
		{"a member becomes null", `{"a":1}`, `{"a":null}`, false},
		{"a member that is null comes", `{}`, `{"a":null}`, false},
		{"an object with a null in it comes", `{}`, `{"a":{"b":{"c":null}}}`, false},
		{"a list becomes an object with a null", `{"a":[]}`, `{"a":{"b":null}}`, false},
		{"a null stays", `{"a":{"b":null,"c":1}}`, `{"a":{"b":null,"c":2}}`, true},
		{"a null goes", `{"a":null}`, `{}`, true},
		{"a null in a list comes", `{"a":1}`, `{"a":[null,{"b":null}]}`, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got, ok := diff.Merge([]byte(tt.old), []byte(tt.changed)); ok != tt.want {
				t.Errorf("%s, %v", got, ok)
			}
			checkMerge(t, []byte(tt.old), []byte(tt.changed))
		})
	}
}

// Patches are exact about numbers, and ignore the order of members.
func TestNumbersAndOrder(t *testing.T) {
	old, changed := []byte(`{"a":9007199254740992,"b":{"x":1,"y":2}}`), []byte(`{"b":{"y":2,"x":1},"a":9007199254740993}`)
	if got := string(diff.Diff(old, changed)); got != `[{"op":"replace","path":"/a","value":9007199254740993}]` {
		t.Errorf("Diff = %s", got)
	}
	if got, ok := diff.Merge(old, changed); string(got) != `{"a":9007199254740993}` || !ok {
		t.Errorf("Merge = %s, %v", got, ok)
	}
	if got := string(diff.Diff(old, old)); got != "[]" {
		t.Errorf("Diff of equals = %s", got)
	}
	if got, _ := diff.Merge(old, old); string(got) != "{}" {
		t.Errorf("Merge of equals = %s", got)
	}
}

// A patch is not longer than what it makes.
// What is different as a whole is replaced as a whole.
func TestPatchLength(t *testing.T) {
	got := string(diff.Diff([]byte(`{"list":[1,2,3,4,5,6,7,8]}`), []byte(`{"list":[9]}`)))
	if got != `[{"op":"replace","path":"/list","value":[9]}]` {
		t.Error(got)
	}
}

func TestPatchesOfRandomObjects(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		old := random(rng, 4)
		changed := mutate(rng, old)
		a, b := mustMarshal(old), mustMarshal(changed)
		checkDiff(t, a, b)
		checkMerge(t, a, b)
		if t.Failed() {
			t.Fatalf("%s\n%s", a, b)
		}
	}
}

func FuzzPatches(f *testing.F) {
	for _, tt := range rfc7386 {
		f.Add([]byte(tt[0]), []byte(tt[2]))
	}
	f.Add([]byte("{ \"a\\u0062\" : [ 1 , {} ] }"), []byte(`{"ab":[1,{"":0}],"~/":-1e5}`))
	f.Fuzz(func(t *testing.T, old, changed []byte) {
		if !jsontext.Value(old).IsValid() || !jsontext.Value(changed).IsValid() || len(old)+len(changed) > 4096 {
			return
		}
		checkDiff(t, old, changed)
		checkMerge(t, old, changed)
	})
}

// checkDiff applies a diff with a library that is not ours.
func checkDiff(t *testing.T, old, changed []byte) {
	t.Helper()
	diff := diff.Diff(old, changed)
	checkDiffSize(t, diff, changed)
	if bytes.Contains(old, []byte(`"":`)) || bytes.Contains(changed, []byte(`"":`)) {
		return // to the library "" is the whole document, wherever it stands
	}
	p, err := jsonpatch.DecodePatch(diff)
	if err != nil {
		t.Fatalf("%s: %v", diff, err)
	}
	// The library takes no scalar documents; in a list they are as good.
	got, err := p.Apply(old)
	if err != nil {
		got, err = wrapped(diff, old)
	}
	if err != nil {
		t.Fatalf("%s does not apply to %s: %v", diff, old, err)
	}
	if !reflect.DeepEqual(decode(t, got), decode(t, changed)) {
		t.Errorf("%s makes %s of\n%s, not\n%s", diff, got, old, changed)
	}
}

// wrapped applies a patch to the member "in" of an object.
func wrapped(diff, doc []byte) ([]byte, error) {
	var ops []map[string]any
	d := json.NewDecoder(bytes.NewReader(diff))
	d.UseNumber()
	if err := d.Decode(&ops); err != nil {
		return nil, err
	}
	for _, op := range ops {
		op["path"] = "/in" + op["path"].(string)
	}
	p, err := jsonpatch.DecodePatch(mustMarshal(ops))
	if err != nil {
		return nil, err
	}
	out, err := p.Apply(append(append([]byte(`{"in":`), doc...), '}'))
	if err != nil {
		return nil, err
	}
	var in struct{ In json.RawMessage }
	err = json.Unmarshal(out, &in)
	if in.In == nil {
		in.In = []byte("null")
	}
	return in.In, err
}

// checkMerge applies a merge patch as the RFC's pseudo code does.
func checkMerge(t *testing.T, old, changed []byte) {
	t.Helper()
	merge, ok := diff.Merge(old, changed)
	if !ok {
		return
	}
	if !jsontext.Value(merge).IsValid() {
		t.Fatalf("%s is not valid", merge)
	}
	got := applyMerge(decode(t, old), decode(t, merge))
	if equal := reflect.DeepEqual(got, decode(t, changed)); !equal {
		t.Errorf("%s makes %v of\n%s, not\n%s", merge, got, old, changed)
	}
}

// applyMerge is MergePatch of RFC 7386, section 2.
func applyMerge(target, patch any) any {
	p, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	out := map[string]any{}
	if t, ok := target.(map[string]any); ok {
		maps.Copy(out, t)
	}
	for k, v := range p {
		if v == nil {
			delete(out, k)
		} else {
			out[k] = applyMerge(out[k], v)
		}
	}
	return out
}

func decode(t *testing.T, raw []byte) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return v
}

func mustMarshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

var names = []string{"a", "b", "c/d", "~", "~1", "metadata", "e\"f"}

// random makes a value like those in objects; at the top always an object.
func random(rng *rand.Rand, depth int) any {
	if depth == 4 || depth > 0 && rng.IntN(3) > 0 {
		if depth < 4 && rng.IntN(2) == 0 {
			list := []any{}
			for range rng.IntN(5) {
				list = append(list, random(rng, depth-1))
			}
			return list
		}
		object := map[string]any{}
		for range rng.IntN(5) {
			object[names[rng.IntN(len(names))]] = random(rng, depth-1)
		}
		return object
	}
	return []any{nil, true, "x", "y", 1, 2, 1.5}[rng.IntN(7)]
}

// mutate changes a value here and there.
func mutate(rng *rand.Rand, v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, item := range v {
			switch rng.IntN(8) {
			case 0:
			case 1:
				out[k] = random(rng, 2)
			default:
				out[k] = mutate(rng, item)
			}
		}
		if rng.IntN(4) == 0 {
			out[names[rng.IntN(len(names))]] = random(rng, 2)
		}
		return out
	case []any:
		out := []any{}
		for _, item := range v {
			switch rng.IntN(8) {
			case 0:
			case 1:
				out = append(out, random(rng, 2), item)
			default:
				out = append(out, mutate(rng, item))
			}
		}
		return out
	}
	if rng.IntN(8) == 0 {
		return random(rng, 1)
	}
	return v
}

func BenchmarkUpdate(b *testing.B) {
	pod, err := os.ReadFile("../testdata/pod.json")
	if err != nil {
		b.Fatal(err)
	}
	changed := bytes.Replace(pod, []byte(`"resourceVersion":"`), []byte(`"resourceVersion":"9`), 1)
	if bytes.Equal(pod, changed) {
		b.Fatal("nothing is changed")
	}
	b.Run("Diff", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			diff.Diff(pod, changed)
		}
	})
	b.Run("Merge", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			diff.Merge(pod, changed)
		}
	})
}

// BenchmarkWide is of an object of many members that were all renamed.
func BenchmarkWide(b *testing.B) {
	old, changed := testkit.Wide(30_000, 1, false), testkit.Wide(30_000, 2, false)
	b.Run("Diff", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			diff.Diff(old, changed)
		}
	})
	b.Run("Merge", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			diff.Merge(old, changed)
		}
	})
	b.Run("Equal", func(b *testing.B) {
		seen := resource.NewPaths(mustPath(b, "metadata.annotations.seen"), mustPath(b, "metadata.resourceVersion"))
		b.ReportAllocs()
		for b.Loop() {
			diff.Equal(old, changed, seen)
		}
	})
}
