package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// maxDesign is how many words the page may have: it is read in one sitting.
const maxDesign = 5500

var (
	codeFile   = regexp.MustCompile(`^[\w./-]+[.](go|md|txt|yaml)$`)
	codeDir    = regexp.MustCompile(`^(internal|config|client|cmd|docs|deploy|test|tools)(/[\w.-]+)*$`)
	identifier = regexp.MustCompile(`^[A-Za-z]\w*([.][A-Za-z]\w*)?$`)
)

// TestDesign: the page of the design names files and identifiers that exist, and stays short.
func TestDesign(t *testing.T) {
	page := readFile(t, "design.md")
	if n := len(strings.Fields(page)); n > maxDesign {
		t.Errorf("design.md has %d words, more than %d", n, maxDesign)
	}
	names := newCodeNames(t)
	checked := 0
	for _, quoted := range span.FindAllString(fence.ReplaceAllString(page, ""), -1) {
		name := strings.Trim(quoted, "`")
		var exists bool
		switch {
		case codeFile.MatchString(name):
			exists = names.hasFile(name)
		case codeDir.MatchString(name):
			exists = names.dirs[name]
		case identifier.MatchString(name):
			exists = names.has(name)
		default: // a path of an id, a command
			continue
		}
		checked++
		if !exists {
			t.Errorf("design.md: there is no %s", quoted)
		}
	}
	if checked < 150 {
		t.Errorf("only %d names were found", checked)
	}
}

// codeNames are the names that a page may use.
type codeNames struct {
	files    []string
	dirs     map[string]bool
	declared map[string]bool // "Name", and "Type.Member" or "package.Name"
	words    map[string]bool // of the pages that are made of the code, and of tests
}

var word = regexp.MustCompile(`[A-Za-z]\w*`)

func newCodeNames(t *testing.T) *codeNames {
	n := &codeNames{dirs: map[string]bool{}, declared: map[string]bool{}, words: map[string]bool{}}
	sources(t, "", func(file string, text []byte) {
		n.files = append(n.files, file)
		for dir := path.Dir(file); dir != "."; dir = path.Dir(dir) {
			n.dirs[dir] = true
		}
		switch {
		case strings.HasSuffix(file, ".go") && !strings.Contains(file, "/testdata/"):
			n.declare(t, file, text)
		case strings.HasPrefix(file, "docs/configuration/"), file == "docs/metrics.md",
			file == "docs/configuration.md", file == "docs/consumers.md", file == "docs/history.md":
			for _, w := range word.FindAllString(string(text), -1) {
				n.words[w] = true
			}
		}
	})
	return n
}

// declare adds what a file declares: functions, methods, types, fields, constants, and strings of
// constants.
func (n *codeNames) declare(t *testing.T, file string, text []byte) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
	if err != nil {
		t.Error(err)
		return
	}
	pkg := strings.TrimSuffix(parsed.Name.Name, "_test")
	n.words[pkg] = true
	for _, decl := range parsed.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			of := pkg
			if d.Recv != nil {
				of = receiver(d.Recv.List[0].Type)
			}
			n.add(of, d.Name)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				n.addSpec(pkg, spec)
			}
		}
	}
}

func (n *codeNames) add(of string, names ...*ast.Ident) {
	for _, name := range names {
		n.declared[name.Name], n.declared[of+"."+name.Name] = true, true
	}
}

func (n *codeNames) addSpec(pkg string, spec ast.Spec) {
	switch s := spec.(type) {
	case *ast.ValueSpec:
		n.add(pkg, s.Names...)
		for _, value := range s.Values {
			if lit, ok := value.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				text, _ := strconv.Unquote(lit.Value)
				n.words[text] = true
			}
		}
	case *ast.TypeSpec:
		n.add(pkg, s.Name)
		switch typ := s.Type.(type) {
		case *ast.StructType:
			for _, field := range typ.Fields.List {
				n.add(s.Name.Name, field.Names...)
			}
		case *ast.InterfaceType:
			for _, method := range typ.Methods.List {
				n.add(s.Name.Name, method.Names...)
			}
		}
	}
}

func (n *codeNames) hasFile(name string) bool {
	return slices.ContainsFunc(n.files, func(file string) bool {
		return file == name || strings.HasSuffix(file, "/"+name)
	})
}

// has reports whether a name is declared. A dotted name may also be a key of the configuration, or
// the type of an event.
func (n *codeNames) has(name string) bool {
	if n.declared[name] || n.words[name] {
		return true
	}
	of, member, ok := strings.Cut(name, ".")
	return ok && strings.ToLower(of+member[:1]) == of+member[:1] && n.words[of] && n.words[member]
}
