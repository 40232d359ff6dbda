package licences

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// allowed are the licences that a program under Apache-2.0 may be compiled of, when the notices go
// with it. Another one is looked at first, by a person, and added here with the reason.
var allowed = []string{
	"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "0BSD", "ISC", "MIT", "Unlicense", "CC0-1.0", "Zlib",
	"MPL-2.0",           // asks for the source of the files under it only, unchanged here and public
	"GooglePatentsFile", // a grant beside the BSD licence of what comes from the Go project
}

// ofDocumentation are licences that a module names for its documentation only. That is not
// compiled.
var ofDocumentation = map[string]string{
	"github.com/modelcontextprotocol/go-sdk": "CC-BY-4.0",
}

// examined are files with words of their own, or lists of licences, that a person has read.
var examined = map[string]string{
	"modernc.org/libc LICENSE-3RD-PARTY.md":   "musl: MIT, and parts under MIT, BSD, or in the public domain",
	"modernc.org/sqlite LICENSE-3RD-PARTY.md": "MIT, BSD-3-Clause, public domain in what is compiled",
	"modernc.org/sqlite LICENSE-SQLITE":       "public domain",
	"modernc.org/memory LICENSE-LOGO":         "where a picture is from, which is not compiled",
}

// recognized is how much of a file must be that of known licences, in percent; the rest are names
// and years.
const recognized = 75

// Check says what is wrong with the licences of modules, all of it.
func Check(modules []Module) error {
	var wrong []error
	for i := range modules {
		wrong = append(wrong, modules[i].check())
	}
	return errors.Join(wrong...)
}

func (m *Module) check() error {
	if len(m.IDs()) == 0 {
		return fmt.Errorf("%s %s has no licence that is known: its files are %q", m.Path, m.Version,
			m.fileNames())
	}
	var wrong []error
	for _, f := range m.Files {
		for _, id := range f.IDs {
			if !slices.Contains(allowed, id) && ofDocumentation[m.Path] != id {
				wrong = append(wrong, fmt.Errorf("%s %s: %s is under %s, which nobody has allowed", m.Path,
					m.Version, f.Name, id))
			}
		}
		if f.isLicence() && f.Known < recognized && examined[m.Path+" "+f.Name] == "" {
			wrong = append(wrong, fmt.Errorf("%s %s: only %.0f %% of %s is a known licence: look at it",
				m.Path, m.Version, f.Known, f.Name))
		}
	}
	return errors.Join(wrong...)
}

// isLicence reports whether a file is one, and not a notice or a grant beside it.
func (f *File) isLicence() bool {
	name := strings.ToLower(f.Name[strings.LastIndexByte(f.Name, '/')+1:])
	return !strings.HasPrefix(name, "notice") && !strings.HasPrefix(name, "patents")
}

func (m *Module) fileNames() []string {
	list := make([]string, len(m.Files))
	for i, f := range m.Files {
		list[i] = f.Name
	}
	return list
}
