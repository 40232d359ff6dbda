package docs_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// pipPackage is a package of a requirements.txt, up to the next one.
var pipPackage = regexp.MustCompile(`(?m)^([\w.-]+)==(\S+)((?:.*\\\n)*.*)`)

// Packages that are not locked could be others tomorrow, and what they bring runs on the machine of
// whoever runs the tests.
func TestLocks(t *testing.T) {
	t.Run("each package of Python is locked with its hashes", func(t *testing.T) {
		for _, in := range named(t, "requirements.in") {
			locked := map[string]string{}
			text := readFile(t, strings.TrimSuffix(in, ".in")+".txt")
			for _, m := range pipPackage.FindAllStringSubmatch(text, -1) {
				locked[m[1]] = m[2]
				if !strings.Contains(m[3], "--hash=sha256:") {
					t.Errorf("%s: %s has no hash", in, m[1])
				}
			}
			for wanted := range strings.Lines(readFile(t, in)) {
				name, version, _ := strings.Cut(strings.TrimSpace(wanted), "==")
				name, _, _ = strings.Cut(name, "[") // with extras
				if locked[name] != version {
					t.Errorf("%s wants %s %s, and %q is locked: make lock", in, name, version, locked[name])
				}
			}
		}
	})
	t.Run("each package of npm is locked with its hash", func(t *testing.T) {
		for _, file := range named(t, "package.json") {
			var wanted struct{ Dependencies map[string]string }
			var lock struct {
				Packages map[string]struct{ Version, Integrity string }
			}
			readJSON(t, file, &wanted)
			readJSON(t, filepath.Join(filepath.Dir(file), "package-lock.json"), &lock)
			for name, p := range lock.Packages {
				if name != "" && p.Integrity == "" {
					t.Errorf("%s: %s has no hash", file, name)
				}
			}
			for name, version := range wanted.Dependencies {
				if got := lock.Packages["node_modules/"+name].Version; got != version {
					t.Errorf("%s wants %s %s, and %q is locked: make lock", file, name, version, got)
				}
			}
		}
	})
	t.Run("the Makefile installs nothing else", func(t *testing.T) {
		installs := regexp.MustCompile(`pip install .*|npm (install|i|ci|exec) .*|npx .*`)
		for _, command := range installs.FindAllString(readFile(t, "../Makefile"), -1) {
			if !strings.Contains(command, "--require-hashes") && !strings.Contains(command, "npm ci") &&
				!strings.Contains(command, "--package-lock-only") {
				t.Errorf("installs what is not locked: %s", command)
			}
		}
	})
	t.Run("each program that the Makefile has Go install has a version", func(t *testing.T) {
		makefile := readFile(t, "../Makefile")
		programs := regexp.MustCompile(`(?m)^[A-Z]+ *:= (\S+\.\S+/\S+@(\S+))$`).
			FindAllStringSubmatch(makefile, -1)
		if len(programs) < 4 {
			t.Errorf("only %d programs were found", len(programs))
		}
		for _, program := range programs {
			if !regexp.MustCompile(`^v\d+\.\d+\.\d+$`).MatchString(program[2]) {
				t.Errorf("%s has no version that stays the same", program[1])
			}
		}
	})
}

// named are the files of the repository with that name, from here.
func named(t *testing.T, name string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case slices.Contains([]string{".git", "bin", "dist", "node_modules"}, d.Name()):
			if d.IsDir() {
				return filepath.SkipDir
			}
		case d.Name() == name:
			found = append(found, path)
		}
		return nil
	})
	if err != nil || len(found) == 0 {
		t.Fatalf("no file is named %s: %v", name, err)
	}
	return found
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func readJSON(t *testing.T, path string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(readFile(t, path)), into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}
