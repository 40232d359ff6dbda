package docs_test

import (
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// refusal is a line of words.txt.
type refusal struct {
	line         int
	word, better string
	pattern      *regexp.Regexp // nil for a name
}

// found is the problem at a place.
func (r *refusal) found(path string, line int) string {
	return fmt.Sprintf("%s:%d: %q: write %q (docs/words.txt:%d)", path, line, r.word, r.better, r.line)
}

// refusals are the words that are refused in prose, and in names.
func refusals(t *testing.T) (prose []refusal, names map[string]refusal) {
	t.Helper()
	text, err := os.ReadFile("words.txt")
	if err != nil {
		t.Fatal(err)
	}
	names = map[string]refusal{}
	for n, line := range strings.Split(string(text), "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Split(line, "|")
		for i := range fields {
			fields[i] = strings.TrimSpace(fields[i])
		}
		if len(fields) != 3 || fields[1] == "" || fields[2] == "" {
			t.Fatalf("words.txt:%d: want: kind | word | what to write instead", n+1)
		}
		r := refusal{line: n + 1, word: fields[1], better: fields[2]}
		switch fields[0] {
		case "name":
			names[r.word] = r
		case "prose":
			r.pattern = phrase(r.word)
			prose = append(prose, r)
		default:
			t.Fatalf("words.txt:%d: no kind %q", n+1, fields[0])
		}
	}
	return prose, names
}

// phrase finds a phrase, also where it is wrapped, in a comment too.
func phrase(words string) *regexp.Regexp {
	return regexp.MustCompile(`\b` + strings.ReplaceAll(regexp.QuoteMeta(strings.ToLower(words)), " ", `[\s/]+`) + `\b`)
}

// sources calls found with the path and text of every file of the repository with this suffix.
func sources(t *testing.T, suffix string, found func(path string, text []byte)) {
	t.Helper()
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{".git", "bin", "dist", "node_modules"}, d.Name()):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, suffix):
			return nil
		}
		text, err := os.ReadFile(path)
		if err == nil {
			found(strings.TrimPrefix(filepath.ToSlash(path), "../"), text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// checkProse gives the refused words of a text that begins in a line of a file.
func checkProse(prose []refusal, path string, line int, text string) (problems []string) {
	text = strings.ToLower(text)
	for _, r := range prose {
		if first, _, _ := strings.Cut(strings.ToLower(r.word), " "); !strings.Contains(text, first) {
			continue // which is much faster than the pattern
		}
		for _, at := range r.pattern.FindAllStringIndex(text, -1) {
			problems = append(problems, r.found(path, line+strings.Count(text[:at[0]], "\n")))
		}
	}
	return problems
}

// checkGo gives the refused words of a Go file: in its comments, in its texts, in its names.
func checkGo(prose []refusal, names map[string]refusal, path string, source []byte) (problems []string) {
	files := token.NewFileSet()
	file := files.AddFile(path, -1, len(source))
	var s scanner.Scanner
	s.Init(file, source, nil, scanner.ScanComments)
	comment, begins, ends := "", 0, 0 // adjacent lines are one text
	flush := func() {
		problems = append(problems, checkProse(prose, path, begins, comment)...)
		comment = ""
	}
	for {
		pos, tok, text := s.Scan()
		line := file.Line(pos)
		if comment != "" && (tok != token.COMMENT && tok != token.SEMICOLON || line > ends+1) {
			flush()
		}
		switch tok {
		case token.EOF:
			return problems
		case token.COMMENT:
			if comment == "" {
				begins = line
			} else {
				comment += "\n"
			}
			comment += text
			ends = line + strings.Count(text, "\n")
		case token.STRING:
			if !strings.HasSuffix(path, "_test.go") { // which may hold any data
				problems = append(problems, checkProse(prose, path, line, text)...)
			}
		case token.IDENT:
			for _, word := range wordsOf(text) {
				if r, refused := names[word]; refused {
					problems = append(problems, r.found(path, line)+" in "+text)
				}
			}
		default: // no words
		}
	}
}

// wordsOf are the words of a name, in lower case, and the name itself.
func wordsOf(name string) []string {
	list, begin := []string{}, 0
	runes := []rune(name)
	for i := 1; i <= len(runes); i++ {
		if i == len(runes) || unicode.IsUpper(runes[i]) && !unicode.IsUpper(runes[i-1]) || runes[i] == '_' {
			list = append(list, strings.ToLower(strings.Trim(string(runes[begin:i]), "_")))
			begin = i
		}
	}
	if whole := strings.ToLower(name); len(list) > 1 {
		list = append(list, whole)
	}
	return list
}

var code = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`")

// blank takes code out of Markdown, and keeps its lines.
func blank(text []byte) string {
	return code.ReplaceAllStringFunc(string(text), func(found string) string {
		return "`" + strings.Repeat("\n", strings.Count(found, "\n")) + "`"
	})
}

// isOurText matches files besides Go and Markdown that users read.
var isOurText = regexp.MustCompile(`^(deploy|config|internal/admin|\.github|mkdocs\.yml)`)

// The list has what a reader of the field does not expect. Its head says how it grows.
func TestRefusedWords(t *testing.T) {
	prose, names := refusals(t)
	if len(prose) == 0 || len(names) == 0 {
		t.Fatalf("words.txt has %d words of prose and %d of names", len(prose), len(names))
	}
	files := 0
	report := func(problems []string) {
		files++
		for _, p := range problems {
			t.Error(p)
		}
	}
	sources(t, ".go", func(path string, text []byte) {
		if path != "docs/words_test.go" { // has them as examples
			report(checkGo(prose, names, path, text))
		}
	})
	sources(t, ".md", func(path string, text []byte) { report(checkProse(prose, path, 1, blank(text))) })
	for _, suffix := range []string{".yaml", ".yml", ".tpl", ".txt", ".html", ".js", ".json"} {
		sources(t, suffix, func(path string, text []byte) {
			if isOurText.MatchString(path) && !strings.Contains(path, "testdata/") {
				report(checkProse(prose, path, 1, string(text)))
			}
		})
	}
	if files < 500 {
		t.Errorf("only %d files were read", files)
	}
}

func TestRefusedWordsAreFound(t *testing.T) {
	prose := []refusal{{line: 1, word: "in step", better: "in sync", pattern: phrase("in step")}}
	names := map[string]refusal{"heir": {line: 2, word: "heir", better: "resumed"}}
	const inStep, heir = `: "in step": write "in sync" (docs/words.txt:1)`, `: "heir": write "resumed" (docs/words.txt:2) in `
	for source, want := range map[string][]string{
		"package p\n\n// It is in step.\n":               {"p.go:3" + inStep},
		"package p\n\n// It is in\n// Step.\n":           {"p.go:3" + inStep},
		"package p\n\nconst c = \"not in step\"\n":       {"p.go:3" + inStep},
		"package p\n\nvar noHeir, theirs, heir2 int\n":   {"p.go:3" + heir + "noHeir"},
		"package p\n\n// In stepping.\nvar instep int\n": nil,
		"package p\n\n// It is in\n\n// step.\n":         nil,
	} {
		if got := checkGo(prose, names, "p.go", []byte(source)); !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", source, got, want)
		}
	}
	markdown := blank([]byte("`in step`\n```\nin step\n```\nin step\n"))
	if got := checkProse(prose, "p.md", 1, markdown); !slices.Equal(got, []string{"p.md:5" + inStep}) {
		t.Errorf("got %q", got)
	}
}
