package docs_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	maxMethods = 20 // exported, of one type
	maxFields  = 20 // of one struct
)

// exceptions are structs that may have more fields, and why.
var exceptions = map[string]string{
	"config.Informer":            "each field is a key of the configuration, and keys of an informer are flat",
	"internal/sinks/nats.Config": "each field is a key of the configuration, and keys of a sink are flat",
}

// TestTrackedFiles fails for a tracked file that is larger than text gets: a program that was built
// in its own directory, a picture that is not reduced.
func TestTrackedFiles(t *testing.T) {
	const largest = 512 << 10
	for _, file := range tracked(t, ".") {
		info, err := os.Stat("../" + file)
		if err == nil && info.Size() > largest {
			t.Errorf("%s has %d bytes, more than %d", file, info.Size(), largest)
		}
	}
}

// TestLimits: a type that does not keep them is two.
func TestLimits(t *testing.T) {
	methods, fields := map[string]int{}, map[string]int{}
	sources(t, ".go", func(file string, text []byte) {
		if !isProduct(file) {
			return
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
		if err != nil {
			t.Error(err)
			return
		}
		for _, decl := range parsed.Decls {
			countDecl(decl, path.Dir(file), methods, fields)
		}
	})
	if len(methods) < 200 || len(fields) < 500 {
		t.Errorf("only %d types with methods and %d structs were found", len(methods), len(fields))
	}
	for of, n := range methods {
		if n > maxMethods {
			t.Errorf("%s has %d exported methods, more than %d", of, n, maxMethods)
		}
	}
	for of, n := range fields {
		if n > maxFields && exceptions[of] == "" {
			t.Errorf("%s has %d fields, more than %d", of, n, maxFields)
		}
	}
	for of := range exceptions {
		if fields[of] <= maxFields {
			t.Errorf("%s is no exception: it has %d fields", of, fields[of])
		}
	}
}

// isProduct leaves out tests, and modules that only tests need.
func isProduct(file string) bool {
	top, _, _ := strings.Cut(file, "/")
	return slices.Contains([]string{"client", "cmd", "config", "internal"}, top) &&
		!strings.HasSuffix(file, "_test.go")
}

// countDecl counts the exported method, or the fields, of one declaration in a directory.
func countDecl(decl ast.Decl, dir string, methods, fields map[string]int) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Recv != nil && d.Name.IsExported() {
			methods[dir+"."+receiver(d.Recv.List[0].Type)]++
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			named, ok := spec.(*ast.TypeSpec)
			if !ok {
				continue
			}
			if of, ok := named.Type.(*ast.StructType); ok {
				fields[dir+"."+named.Name.Name] = of.Fields.NumFields()
			}
		}
	}
}

// receiver is the name of a method's type.
func receiver(of ast.Expr) string {
	switch of := of.(type) {
	case *ast.StarExpr:
		return receiver(of.X)
	case *ast.IndexExpr:
		return receiver(of.X)
	case *ast.IndexListExpr:
		return receiver(of.X)
	case *ast.Ident:
		return of.Name
	}
	return ""
}

// maxWords of a decision, without its title, and of all decisions.
const maxWords, maxAllWords = 400, 3800

// TestDecisions: a page that is read is short, and a number names one page.
func TestDecisions(t *testing.T) {
	n, all, numbers := 0, 0, map[string]string{}
	sources(t, ".md", func(file string, text []byte) {
		if path.Dir(file) != "docs/decisions" {
			return
		}
		n++
		number, _, numbered := strings.Cut(path.Base(file), "-")
		if other := numbers[number]; numbered && other != "" {
			t.Errorf("%s and %s have one number", file, other)
		}
		numbers[number] = file
		title, body, _ := strings.Cut(string(text), "\n")
		if at, _ := strconv.Atoi(number); numbered && !strings.HasPrefix(title, fmt.Sprintf("# %d. ", at)) {
			t.Errorf("%s begins with %q", file, title)
		}
		words := len(strings.Fields(body))
		if all += words; words > maxWords {
			t.Errorf("%s has %d words, more than %d", file, words, maxWords)
		}
	})
	if all > maxAllWords {
		t.Errorf("the decisions have %d words, more than %d", all, maxAllWords)
	}
	if n < 10 {
		t.Errorf("only %d decisions were found", n)
	}
}

// maxDoc is how many lines a doc.go may have.
const maxDoc = 40

func TestPackageComments(t *testing.T) {
	sources(t, "/doc.go", func(file string, text []byte) {
		if lines := strings.Count(string(text), "\n"); isProduct(file) && lines > maxDoc {
			t.Errorf("%s has %d lines, more than %d", file, lines, maxDoc)
		}
	})
}
