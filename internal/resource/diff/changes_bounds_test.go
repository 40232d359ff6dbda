package diff_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/resource/diff"
	"github.com/kubebridge/bridge/internal/testkit"
)

// membersOf is an object with n members.
func membersOf(n int, name, value string) string {
	var out strings.Builder
	for i := range n {
		fmt.Fprintf(&out, `,"`+name+`":%s`, i, value)
	}
	return "{" + out.String()[1:] + "}"
}

// A tenant's object may have a name of 700 KB above 60,000 values. The path of each change has it.
func TestChangesSize(t *testing.T) {
	name := strings.Repeat("k", 700_000)
	for what, version := range map[string]func(value string) string{
		"values":  func(v string) string { return `{"a":{"` + name + `":` + membersOf(60_000, "%05d", v) + `}}` },
		"objects": func(v string) string { return `{"` + name + `":` + membersOf(30_000, "%05d", `{"a":`+v+`}`) + `}` },
		"one change": func(v string) string {
			return `{"` + name + `":` + membersOf(60_000, "%05d", "0")[:600_000] + `,"x":` + v + `}}`
		},
		"items": func(v string) string {
			return `{"` + name + `":[` + strings.Repeat(v+",", 60_000) + `0]}`
		},
	} {
		t.Run(what+" below a long name", func(t *testing.T) {
			older, newer := []byte(version("1")), []byte(version("2"))
			var list []diff.Change
			used := testkit.Allocated(func() { list = diff.Changes(older, newer) })
			paths := 0
			for _, c := range list {
				paths += len(c.Path)
			}
			input := len(older) + len(newer)
			if len(list) == 0 || paths > 5*input {
				t.Errorf("%d changes, %d bytes of paths for %d bytes of objects", len(list), paths, input)
			}
			if used > 32*uint64(input) {
				t.Errorf("%d bytes were allocated for %d bytes of objects", used, input)
			}
		})
	}
	t.Run("a small value below a long name is one change", func(t *testing.T) {
		list := diff.Changes([]byte(`{"`+name+`":{"a":1,"b":1},"c":1}`), []byte(`{"`+name+`":{"a":2,"b":2},"c":2}`))
		if len(list) != 2 || list[0].Path != name || string(list[0].New) != `{"a":2,"b":2}` || list[1].Path != "c" {
			t.Errorf("%d changes", len(list))
		}
	})
	t.Run("what is replaced as a whole has both values", func(t *testing.T) {
		older := `{"a":{"` + name + `":` + membersOf(60_000, "%05d", "1") + `},"b":1}`
		newer := `{"a":{"` + name + `":` + membersOf(60_000, "%05d", "2") + `},"b":2}`
		list := diff.Changes([]byte(older), []byte(newer))
		if len(list) != 2 || list[0].Path != "a."+name || len(list[0].Old) != len(list[0].New) || list[1].Path != "b" {
			t.Errorf("%d changes", len(list))
		}
	})
}

func TestChangesLinearTime(t *testing.T) {
	for shape, versions := range map[string]func(n int) (older, newer string){
		"all names differ":    func(n int) (string, string) { return membersOf(n, "a%d", "1"), membersOf(n, "b%d", "1") },
		"all values differ":   func(n int) (string, string) { return membersOf(n, "a%d", "1"), membersOf(n, "a%d", "2") },
		"one of many differs": func(n int) (string, string) { return membersOf(n, "a%d", "1"), membersOf(n+1, "a%d", "1") },
		"items with names": func(n int) (string, string) {
			item := func(v string) string {
				return "[" + strings.Trim(strings.ReplaceAll(membersOf(n, "a%d", v), `"a`, `,{"name":"a`), "{},") + "]"
			}
			return strings.ReplaceAll(item("1"), ":1,", `,"v":1},`), strings.ReplaceAll(item("2"), ":2,", `,"v":2},`)
		},
		"items without": func(n int) (string, string) {
			return "[0" + strings.Repeat(",1", n) + "]", "[2" + strings.Repeat(",1", n/2) + "]"
		},
		"levels": func(n int) (string, string) {
			nested := func(v string) string { return strings.Repeat(`{"a":`, n/10) + v + strings.Repeat("}", n/10) }
			return nested("1"), nested("2")
		},
		"a name above many": func(n int) (string, string) {
			name := strings.Repeat("k", 10*n)
			return `{"` + name + `":` + membersOf(n, "%d", "1") + "}", `{"` + name + `":` + membersOf(n, "%d", "2") + "}"
		},
	} {
		t.Run("where "+shape, func(t *testing.T) {
			testkit.CheckLinear(t, 4_000, func(size int) func() {
				older, newer := versions(size)
				return func() { diff.Changes([]byte(older), []byte(newer)) }
			})
		})
	}
}
