package licences

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// Module is a module that the program has packages of.
type Module struct {
	Path, Version string
	Files         []File
}

// IDs are the licences of a module as SPDX names them, sorted.
func (m *Module) IDs() []string {
	seen := map[string]bool{}
	for _, f := range m.Files {
		for _, id := range f.IDs {
			seen[id] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// File is a licence or a notice in a module.
type File struct {
	Name string // within the module
	Text string
	IDs  []string // of the licences in it, as SPDX names them; none for a notice
	// Known is how much of the text is that of licences, in percent.
	Known float64
}

// Find lists the modules that a package of the module in dir is compiled of, for linux, Go itself
// first.
func Find(ctx context.Context, dir, pkg string, architectures ...string) ([]Module, error) {
	found := map[string]*Module{}
	for _, arch := range architectures {
		packages, err := list(ctx, dir, pkg, arch)
		if err != nil {
			return nil, err
		}
		for _, p := range packages {
			if err := p.addTo(found); err != nil {
				return nil, err
			}
		}
	}
	modules, err := goItself(ctx)
	if err != nil {
		return nil, err
	}
	for _, path := range slices.Sorted(maps.Keys(found)) {
		modules = append(modules, *found[path])
	}
	return modules, nil
}

// listed is a package, as `go list` reports it.
type listed struct {
	Dir      string
	Standard bool
	Module   *struct {
		Path, Version, Dir string
		Main               bool
	}
}

func list(ctx context.Context, dir, pkg, arch string) (packages []listed, err error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-json=Dir,Standard,Module", pkg)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+arch, "CGO_ENABLED=0")
	out, err := output(cmd)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(out))
	for {
		var p listed
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return packages, nil
		}
		if err != nil {
			return nil, err
		}
		packages = append(packages, p)
	}
}

func output(cmd *exec.Cmd) ([]byte, error) {
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, exit.Stderr)
	}
	return out, err
}

// addTo adds what is beside a package, and above it up to its module: part of a module may be
// somebody else's.
func (p *listed) addTo(found map[string]*Module) error {
	if p.Standard || p.Module == nil || p.Module.Main {
		return nil
	}
	m := found[p.Module.Path]
	if m == nil {
		m = &Module{Path: p.Module.Path, Version: p.Module.Version}
		found[m.Path] = m
	}
	for dir := p.Dir; ; dir = filepath.Dir(dir) {
		if err := m.addFiles(p.Module.Dir, dir); err != nil {
			return err
		}
		if dir == p.Module.Dir || len(dir) <= 1 {
			slices.SortFunc(m.Files, func(a, b File) int { return cmp.Compare(a.Name, b.Name) })
			return nil
		}
	}
}

var names = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([-._].*)?$`)

// code that happens to be called so.
var code = regexp.MustCompile(`(?i)\.(go|s|sh|tmpl|proto|json)$`)

func (m *Module) addFiles(root, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() || !names.MatchString(e.Name()) || code.MatchString(e.Name()) {
			continue
		}
		name, err := filepath.Rel(root, filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		if slices.ContainsFunc(m.Files, func(f File) bool { return f.Name == name }) {
			continue
		}
		f, err := read(root, name)
		if err != nil {
			return err
		}
		m.Files = append(m.Files, f)
	}
	return nil
}

func read(root, name string) (File, error) {
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		return File{}, err
	}
	scanned := licensecheck.Scan(text)
	f := File{Name: filepath.ToSlash(name), Text: string(text), Known: scanned.Percent}
	for _, match := range scanned.Match {
		if !slices.Contains(f.IDs, match.ID) {
			f.IDs = append(f.IDs, match.ID)
		}
	}
	return f, nil
}

// goItself is the standard library and the runtime, which are in every program.
func goItself(ctx context.Context) ([]Module, error) {
	out, err := output(exec.CommandContext(ctx, "go", "env", "GOROOT", "GOVERSION"))
	if err != nil {
		return nil, err
	}
	root, version, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	m := Module{Path: "std", Version: version}
	err = m.addFiles(root, root)
	return []Module{m}, err
}
