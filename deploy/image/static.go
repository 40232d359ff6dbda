package image

import (
	"debug/elf"
	"fmt"
)

// CheckStatic fails for a program that needs a loader or libraries, which the image does not have.
func CheckStatic(file string) error {
	f, err := elf.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("%s is not static: it asks for a loader", file)
		}
	}
	libraries, err := f.ImportedLibraries()
	if err == nil && len(libraries) > 0 {
		return fmt.Errorf("%s is not static: it needs %v", file, libraries)
	}
	return nil
}
