package docs_test

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// road are the packages that a change goes through, and those that start and stop it.
var road = []string{
	"reflector", "deltafifo", "informer/controller", "store", "informer/changelog", "informer/processor", "informer",
	"publisher", "informer/checkpoint", "kube/standby", "bridge",
}

// TestFileArrows: the files of a package can be read from the top to the bottom, since none uses a
// file that uses it, directly or by others. What counts is the name of a function, a method, a
// variable or a constant. Types do not count: a part may know its whole. Nor do methods of
// interfaces.
func TestFileArrows(t *testing.T) {
	l := &loader{fset: token.NewFileSet(), packages: map[string]*types.Package{}}
	l.std = importer.ForCompiler(l.fset, "source", nil)
	n := 0
	for _, name := range road {
		found := l.arrows(t, filepath.Join("..", "internal", name))
		for _, to := range found {
			n += len(to)
		}
		for from, to := range cycles(found) {
			for file, names := range to {
				t.Errorf("internal/%s: a cycle of files: %s uses %s of %s", name, from,
					strings.Join(slices.Sorted(maps.Keys(names)), ", "), file)
			}
		}
	}
	if n < 200 {
		t.Errorf("only %d files that use another were found", n)
	}
}

// arrows are, by file and by the file that it uses, the names that it uses of that.
type arrows map[string]map[string]map[string]bool

// cycles leaves the files that are in a cycle, or between two cycles.
func cycles(all arrows) arrows {
	for found := true; found; {
		found = false
		called := map[string]bool{}
		for from, to := range all {
			maps.DeleteFunc(to, func(file string, _ map[string]bool) bool { return all[file] == nil })
			if len(to) == 0 {
				delete(all, from)
				found = true
			}
			for file := range to {
				called[file] = true
			}
		}
		maps.DeleteFunc(all, func(from string, _ map[string]map[string]bool) bool {
			found = found || !called[from]
			return !called[from]
		})
	}
	return all
}

// loader finds the types of packages of this module. Packages of others are empty, except for
// sync/atomic, whose Load returns types of this module.
type loader struct {
	fset     *token.FileSet
	std      types.Importer
	packages map[string]*types.Package // by path
}

const module = "github.com/kubebridge/bridge/"

// Import is that of types.Importer.
func (l *loader) Import(of string) (*types.Package, error) {
	dir, ours := strings.CutPrefix(of, module)
	switch p := l.packages[of]; {
	case p != nil:
	case of == "sync/atomic":
		return l.std.Import(of)
	case ours:
		return l.load(filepath.Join("..", dir), &types.Info{})
	default:
		l.packages[of] = types.NewPackage(of, path.Base(of))
		l.packages[of].MarkComplete()
	}
	return l.packages[of], nil
}

// load ignores errors of types: what is used of an empty package is not there.
func (l *loader) load(dir string, info *types.Info) (*types.Package, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(l.fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	of := module + strings.TrimPrefix(filepath.ToSlash(dir), "../")
	config := types.Config{Importer: l, Error: func(error) {}}
	l.packages[of], _ = config.Check(of, l.fset, files, info)
	return l.packages[of], nil
}

// arrows finds those of one package.
func (l *loader) arrows(t *testing.T, dir string) arrows {
	t.Helper()
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	p, err := l.load(dir, info)
	if err != nil {
		t.Fatal(err)
	}
	file := func(at token.Pos) string { return filepath.Base(l.fset.Position(at).Filename) }
	found := arrows{}
	for id, used := range info.Uses {
		from, to := file(id.Pos()), file(used.Pos())
		if used.Pkg() != p || from == to || !counts(used) {
			continue
		}
		if found[from] == nil {
			found[from] = map[string]map[string]bool{}
		}
		if found[from][to] == nil {
			found[from][to] = map[string]bool{}
		}
		found[from][to][used.Name()] = true
	}
	return found
}

// counts reports whether the use of something in another file is an arrow.
func counts(used types.Object) bool {
	switch o := used.(type) {
	case *types.Func:
		of := o.Signature().Recv()
		return of == nil || !types.IsInterface(of.Type())
	case *types.Var, *types.Const:
		return o.Parent() == o.Pkg().Scope()
	}
	return false
}
