package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// goTest is one test function in a Go file.
type goTest struct {
	file string // below the root that was read, with slashes
	name string
	// subtests are the names that it plainly gives: of t.Run, and of tables with a member called
	// name.
	subtests []string
	literals map[string]bool // all strings in it
}

// readTests finds the test functions below a directory.
func readTests(t *testing.T, root string) []goTest {
	t.Helper()
	var tests []goTest
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		tests = append(tests, testsOf(file, filepath.ToSlash(rel))...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return tests
}

func testsOf(file *ast.File, path string) []goTest {
	var tests []goTest
	for _, decl := range file.Decls {
		if fn, ok := decl.(*ast.FuncDecl); ok && isTest(fn) {
			test := goTest{file: path, name: fn.Name.Name, literals: map[string]bool{}}
			ast.Inspect(fn.Body, test.read)
			tests = append(tests, test)
		}
	}
	return tests
}

// isTest leaves out TestMain, and methods.
func isTest(fn *ast.FuncDecl) bool {
	if fn.Recv != nil || fn.Body == nil || !strings.HasPrefix(fn.Name.Name, "Test") || len(fn.Type.Params.List) != 1 {
		return false
	}
	star, ok := fn.Type.Params.List[0].Type.(*ast.StarExpr)
	if !ok {
		return false
	}
	of, ok := star.X.(*ast.SelectorExpr)
	return ok && of.Sel.Name == "T"
}

// read notes what one node says.
func (g *goTest) read(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.BasicLit:
		if s, ok := text(n); ok {
			g.literals[s] = true
		}
	case *ast.CallExpr:
		if run, ok := n.Fun.(*ast.SelectorExpr); ok && run.Sel.Name == "Run" && len(n.Args) == 2 {
			g.subtest(n.Args[0])
		}
	case *ast.CompositeLit:
		if n.Type == nil { // an element of a table
			g.row(n)
		}
	}
	return true
}

// row reads the name of an element of a table.
func (g *goTest) row(n *ast.CompositeLit) {
	for _, e := range n.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			if key, ok := kv.Key.(*ast.Ident); ok && key.Name == "name" {
				g.subtest(kv.Value)
			}
		}
	}
}

func (g *goTest) subtest(e ast.Expr) {
	if s, ok := text(e); ok {
		g.subtests = append(g.subtests, s)
	}
}

func text(e ast.Expr) (string, bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	s, err := strconv.Unquote(lit.Value)
	return s, err == nil
}
