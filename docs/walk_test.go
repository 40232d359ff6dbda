package docs_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"testing"
)

const maxHops = 16

// hop is a row of the walk in design.md.
var hop = regexp.MustCompile("(?m)^\\| (\\d+) \\| `(internal/[^`]+[.]go)` \\| `(\\w+)[.](\\w+)` \\|")

// TestWalk: each hop of a frame is where the page says.
func TestWalk(t *testing.T) {
	hops := hop.FindAllStringSubmatch(readFile(t, "design.md"), -1)
	if len(hops) < 10 || len(hops) > maxHops {
		t.Errorf("%d hops, want at most %d", len(hops), maxHops)
	}
	for i, m := range hops {
		if m[1] != fmt.Sprint(i+1) {
			t.Errorf("hop %s is the %dth", m[1], i+1)
		}
		if !declares(t, filepath.Join("..", m[2]), m[3], m[4]) {
			t.Errorf("hop %s: %s has no %s.%s", m[1], m[2], m[3], m[4])
		}
	}
}

// declares reports whether a file has a method.
func declares(t *testing.T, file, of, method string) bool {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Error(err)
		return false
	}
	for _, decl := range parsed.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if ok && fn.Recv != nil && fn.Name.Name == method && receiver(fn.Recv.List[0].Type) == of {
			return true
		}
	}
	return false
}
