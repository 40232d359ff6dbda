package jsontree_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/resource/jsonscan"
	"github.com/kubebridge/bridge/internal/resource/jsontree"
)

var texts = []string{
	``, ` `, `{}`, `[]`, `""`, `0`, `null`, ` { "a" : [ 1 , { } , "x" ] , "b" : -1.5e3 } `,
	`{"a":{"b":[{"c":[[],{},"",0,true]}]},"d":null}`, `["\\","\"","\\\"",{"\"":"\\\\"},"\u00e9"]`,
	`{"\u0061":1,"~/":2,"":{"":3}}`, `{"{":"[","]":"}",",":":"}`, `{"a":"` + strings.Repeat(`\\`, 100) + `"}`,
	strings.Repeat("[", 300) + strings.Repeat("]", 300), strings.Repeat(`{"a":`, 300) + "1" + strings.Repeat("}", 300),
	// not valid
	`{`, `[`, `}`, `]`, `"`, `{"`, `{"a`, `{"a"`, `{"a":`, `{"a":"`, `{"a":1`, `{"a":[}`, `{"a":[},"b":{}}`, `{"a":1{"b":2}}`, `[1{}]`, `[1"a"]`, `{"a""b"}`,
	`{"a"{}}`, `{,}`, `[,,1]`, `{"a":]}`, `{a:1}`, `[[[`, `{"a":1"b,{"c":{}}`, `[1]]`, `{}{}`, `:`, `,`,
}

// walk checks that a value's places are within the one around it, and in their order, and gives it
// as text in which everything is named.
func walk(t *testing.T, out *strings.Builder, v jsontree.Value) {
	from := v.Start()
	for w := v.Walk(); w.Next(); {
		inner := w.Value()
		if raw := v.Raw(); jsontext.Value(raw).IsValid(jsontext.AllowDuplicateNames(true)) {
			if end := v.Start() + jsontree.End(raw, inner.Start()-v.Start()); end != inner.End() {
				t.Fatalf("the value from %d ends at %d, want %d", inner.Start(), end, inner.End())
			}
		} else {
			jsontree.End(raw, inner.Start()-v.Start()) // it must end
		}
		if w.Gap() < from || inner.Start() < w.Gap() || inner.End() < inner.Start() || inner.End() > v.End() {
			t.Fatalf("%d to %d behind %d, in %d to %d", inner.Start(), inner.End(), w.Gap(), v.Start(), v.End())
		}
		from = inner.End()
		if v.IsObject() {
			fmt.Fprintf(out, "%q", w.Name())
		}
		fmt.Fprintf(out, "=%s(", inner.Raw())
		walk(t, out, inner)
		out.WriteString(")")
	}
}

// reference writes the same as walk, with the scanner that checks the syntax.
func reference(out *strings.Builder, raw []byte) {
	element := func(name string, value []byte) {
		fmt.Fprintf(out, "%s=%s(", name, value)
		reference(out, value)
		out.WriteString(")")
	}
	s := jsonscan.Of(raw)
	switch s.Peek() {
	case '{':
		for name, value := range resource.Members(raw) {
			element(strconv.Quote(name), value)
		}
	case '[':
		for s.Open('['); s.Next(']'); {
			element("", s.Bytes(s.Skip()))
		}
	}
}

func check(t *testing.T, raw []byte) {
	t.Helper()
	var got, want strings.Builder
	walk(t, &got, jsontree.Parse(raw)) // also where it is not valid: it must end
	if !jsontext.Value(raw).IsValid(jsontext.AllowDuplicateNames(true)) {
		return
	}
	if reference(&want, raw); got.String() != want.String() {
		t.Errorf("%.300q: %.300s\nwant %.300s", raw, got.String(), want.String())
	}
}

func TestWalk(t *testing.T) {
	for _, text := range texts {
		check(t, []byte(text))
	}
	pod, err := os.ReadFile("../testdata/pod.json")
	if err != nil {
		t.Fatal(err)
	}
	check(t, pod)
	for i := range pod {
		if i%97 == 0 {
			check(t, pod[:i])
		}
	}
}

func FuzzWalk(f *testing.F) {
	for _, text := range texts {
		f.Add([]byte(text))
	}
	f.Fuzz(check)
}

func TestPairs(t *testing.T) {
	many := func(n int, format string) string {
		var out strings.Builder
		for i := range n {
			fmt.Fprintf(&out, format, i)
		}
		return "{" + strings.TrimPrefix(out.String(), ",") + "}"
	}
	for name, tt := range map[string][2]string{
		"the same order":           {`{"a":1,"b":2}`, `{"a":3,"b":4}`},
		"another order":            {`{"a":1,"b":2,"c":3}`, `{"c":1,"a":2,"b":3}`},
		"one more, one fewer":      {`{"a":1,"b":2,"c":3}`, `{"a":1,"x":2,"c":3}`},
		"a name escaped":           {`{"\u0061":1,"b":2}`, `{"a":1,"\u0062":2}`},
		"many, some escaped":       {many(100, `,"%d":0`), `{"\u0039\u0039":1,` + many(99, `,"\u0030%d":2`)[1:]},
		"many of one beginning":    {many(100, `,"name-%d":"name-%[1]d"`), many(100, `,"name-%d-":"name-%[1]d"`)},
		"nothing":                  {`{}`, `{}`},
		"many":                     {many(100, `,"%d":0`), many(120, `,"%02d":1`)},
		"many in another order":    {many(100, `,"%d":0`), `{"99":1,` + many(99, `,"%d":2`)[1:]},
		"what is no object is one": {`[]`, `{"a":1}`},
	} {
		t.Run(name, func(t *testing.T) {
			old, changed := maps.Collect(resource.Members([]byte(tt[0]))), maps.Collect(resource.Members([]byte(tt[1])))
			var order []string
			for pair := range jsontree.Pairs(jsontree.Parse([]byte(tt[0])), jsontree.Parse([]byte(tt[1]))) {
				order = append(order, pair.Name)
				if !bytes.Equal(pair.Old.Raw(), old[pair.Name]) || !bytes.Equal(pair.New.Raw(), changed[pair.Name]) {
					t.Errorf("%s: %s, %s", pair.Name, pair.Old.Raw(), pair.New.Raw())
				}
			}
			var want []string
			for name := range resource.Members([]byte(tt[1])) {
				want = append(want, name)
			}
			for name := range resource.Members([]byte(tt[0])) {
				if changed[name] == nil {
					want = append(want, name)
				}
			}
			if !slices.Equal(order, want) {
				t.Errorf("%v, want %v", order, want)
			}
		})
	}
}

func TestPairsOfRenamedMembers(t *testing.T) {
	renamed := func(format string) jsontree.Value {
		var out strings.Builder
		for i := range 10_000 {
			fmt.Fprintf(&out, format, i)
		}
		return jsontree.Parse([]byte("{" + out.String()[1:] + "}"))
	}
	old, changed := renamed(`,"a%d":0`), renamed(`,"b%d":0`)
	t.Run("who stops at the first pair pays for no table", func(t *testing.T) {
		allocations := testing.AllocsPerRun(10, func() {
			for pair := range jsontree.Pairs(old, changed) {
				if pair.Name != "b0" || pair.Old.Exists() {
					t.Errorf("%+v", pair)
				}
				break
			}
		})
		if allocations > 10 {
			t.Errorf("%v allocations", allocations)
		}
	})
}
