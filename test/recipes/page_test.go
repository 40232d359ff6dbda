package recipes_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kubebridge/bridge/test/e2e/harness"
)

// block is a fenced block of a page.
type block struct {
	line                int
	language, title     string
	text                string
	installs, isPrinted bool
	topic               string // that a block creates
}

// page is one of docs/consumers.
type page struct {
	name   string
	blocks []block
	files  map[string]string // those of the folder of the page, by name
}

var (
	fenced = regexp.MustCompile("(?ms)^```(\\w*)(?: title=\"([^\"\n]+)\")?\n(.*?)^```$")
	local  = regexp.MustCompile(`127\.0\.0\.1:\d+`)
)

// readPage reads a page, and the files of its folder. Each address of this machine becomes the
// given one, or a free one.
func readPage(t *testing.T, name string, addresses map[string]string) *page {
	t.Helper()
	root, err := harness.Root()
	must(t, err)
	read := func(path string) string {
		source, err := os.ReadFile(path)
		must(t, err)
		return local.ReplaceAllStringFunc(string(source), func(address string) string {
			if addresses[address] == "" {
				addresses[address], err = harness.FreeAddress()
				must(t, err)
			}
			return addresses[address]
		})
	}
	path := filepath.Join(root, "docs", "consumers", name)
	p := &page{name: name, blocks: parse(read(path)), files: map[string]string{}}
	inFolder, err := filepath.Glob(filepath.Join(strings.TrimSuffix(path, ".md"), "*"))
	must(t, err)
	for _, file := range inFolder {
		p.files[filepath.Base(file)] = read(file)
	}
	return p
}

func parse(text string) (blocks []block) {
	for _, at := range fenced.FindAllStringSubmatchIndex(text, -1) {
		part := func(n int) string {
			if at[2*n] < 0 {
				return ""
			}
			return text[at[2*n]:at[2*n+1]]
		}
		line := 1 + strings.Count(text[:at[0]], "\n")
		b := block{line: line, language: part(1), title: part(2), text: part(3)}
		b.installs = b.language == "sh" && installs.MatchString(b.text)
		if found := creates.FindStringSubmatch(b.text); b.language == "sh" && found != nil {
			b.topic = found[1]
		}
		b.isPrinted = b.language == "text" && b.title == ""
		blocks = append(blocks, b)
	}
	return blocks
}

// names reports whether a block has a word.
func (p *page) names(word string) bool {
	return slices.ContainsFunc(p.blocks, func(b block) bool {
		return strings.Contains(b.text, word)
	})
}

// writeFiles writes the files of the page, and those of its folder.
func (p *page) writeFiles(t *testing.T, dir string) {
	t.Helper()
	for name, text := range p.files {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	for _, b := range p.blocks {
		if b.title != "" {
			must(t, os.WriteFile(filepath.Join(dir, b.title), []byte(b.text), 0o600))
		}
	}
}

var (
	installs = regexp.MustCompile(`(?m)^(pip install|npm install|mvn|go mod init) `)
	creates  = regexp.MustCompile(`^kafka-topics\.sh --bootstrap-server \S+ --create ` +
		`--topic (\S+) \\\n  --partitions 3 --replication-factor 1 --config cleanup.policy=compact\n$`)
	pinned = regexp.MustCompile(`(@?[a-z][a-z0-9./-]*)(?:==|@)(v?\d[\w.]*)`)
)

// checkInstalled compares the packages that a page installs with those that are pinned here.
func checkInstalled(t *testing.T, p *page, text string) {
	t.Helper()
	if strings.HasPrefix(text, "mvn ") { // make test-recipes-jvm has fetched what pom.xml names
		if jars[p.name] == "" || p.files["pom.xml"] == "" {
			t.Errorf("%s has no pom.xml", p.name)
		}
		return
	}
	var pins strings.Builder
	for _, file := range []string{
		"testdata/requirements.in", "testdata/package.json", goModule + "/go.mod",
	} {
		b, err := os.ReadFile(file)
		must(t, err)
		pins.Write(b)
	}
	found := pinned.FindAllStringSubmatch(text, -1)
	if len(found) == 0 {
		t.Errorf("no version is named: %s", text)
	}
	for _, f := range found {
		python, node := f[1]+"=="+f[2]+"\n", fmt.Sprintf("%q: %q", f[1], f[2])
		module := f[1] + " " + f[2] + "\n"
		if !strings.Contains(pins.String(), python) && !strings.Contains(pins.String(), node) &&
			!strings.Contains(pins.String(), module) {
			t.Errorf("the page installs %s %s, the tests another version", f[1], f[2])
		}
	}
}

// createTopics creates the topics that the page has kafka-topics.sh create.
func (p *page) createTopics(t *testing.T, addresses map[string]string) {
	t.Helper()
	for _, b := range p.blocks {
		if b.topic == "" {
			continue
		}
		client, err := kgo.NewClient(kgo.SeedBrokers(addresses[kafkaAddress]))
		must(t, err)
		defer client.Close()
		_, err = kadm.NewClient(client).CreateTopic(t.Context(), 3, 1,
			map[string]*string{"cleanup.policy": new("compact")}, b.topic)
		must(t, err)
	}
}

var (
	variable = regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d\d:\d\d|\d\d:\d\d:\d\d|\b(?:\d+m)?\d+s\b|\d{3,}`)
	spaces   = regexp.MustCompile(`[ \t]+`)
)

// matches reports whether a command has printed what a page says.
func matches(want, got string) bool {
	var pattern strings.Builder
	pattern.WriteString("^")
	for line := range strings.Lines(plain(want)) {
		if strings.TrimSpace(line) == "…" {
			pattern.WriteString(`(?:.*\n)*`)
			continue
		}
		pattern.WriteString(strings.ReplaceAll(regexp.QuoteMeta(line), "…", ".*"))
	}
	return regexp.MustCompile(pattern.String() + "$").MatchString(plain(got))
}

// plain is a text without what differs from run to run, and without the widths of columns.
func plain(text string) string {
	var b strings.Builder
	for line := range strings.Lines(strings.TrimSpace(text) + "\n") {
		line = spaces.ReplaceAllString(variable.ReplaceAllString(line, "0"), " ")
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return b.String()
}

// TestFolders: a page names each file of its folder, and a folder has a page.
func TestFolders(t *testing.T) {
	root, err := harness.Root()
	must(t, err)
	files, err := filepath.Glob(filepath.Join(root, "docs", "consumers", "*", "*"))
	must(t, err)
	if len(files) < 20 {
		t.Errorf("only %d files were found", len(files))
	}
	for _, file := range files {
		text, err := os.ReadFile(filepath.Dir(file) + ".md")
		must(t, err)
		name := filepath.Base(file)
		if name != "jars.sha256" && !strings.Contains(string(text), name) {
			t.Errorf("%s.md does not name %s", filepath.Dir(file), name)
		}
	}
}

func TestPage(t *testing.T) {
	t.Run("blocks are files, commands and what they print", func(t *testing.T) {
		got := parse("a\n```python title=\"load.py\"\nx\n```\n\n" +
			"```sh\npip install a==1\n```\n```text\nb\n```\n")
		want := []block{
			{line: 2, language: "python", title: "load.py", text: "x\n"},
			{line: 6, language: "sh", text: "pip install a==1\n", installs: true},
			{line: 9, language: "text", text: "b\n", isPrinted: true},
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
	t.Run("what is printed may differ in times, versions and widths only", func(t *testing.T) {
		const want = "TIME   WHAT\n2026-11-22 23:00:00 +00:00  added  2  @231 … end\n"
		for got, ok := range map[string]bool{
			"TIME WHAT\n2027-01-02 01:02:03 +01:00 added 2 @4711 web-5d4 end\n": true,
			"TIME WHAT\n2027-01-02 01:02:03 +01:00 added 3 @4711 web-5d4 end\n": false,
			"TIME WHAT\n2027-01-02 01:02:03 +01:00 added 2 @4711 end\nmore\n":   false,
			"TIME WHAT\n": false,
		} {
			if matches(want, got) != ok {
				t.Errorf("%q: %v", got, !ok)
			}
		}
		if !matches("a\n…\nb\n", "a\nx\ny\nb\n") || matches("a\n…\nb\n", "a\nx\n") {
			t.Error("lines that are left out")
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
