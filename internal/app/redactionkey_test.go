package app

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/store/statedb"
	"github.com/kubebridge/bridge/internal/testkit"
)

// keyPlay is one cluster with one Secret, and bridges over it with and without a key file.
type keyPlay struct {
	*play
	dir string
}

func newKeyPlay(t *testing.T) *keyPlay {
	p := &keyPlay{newPlay(t, &txtar.Archive{}), t.TempDir()}
	p.must("create secrets shop/db {data: {password: aHVudGVyMg==}}")
	return p
}

func (p *keyPlay) must(line string) {
	p.t.Helper()
	testkit.OK(p.t, p.do(line))
	synctest.Wait()
}

func (p *keyPlay) key(name, text string) string {
	p.t.Helper()
	file := filepath.Join(p.dir, name)
	testkit.OK(p.t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

var fingerprintText = regexp.MustCompile(`redacted:([0-9a-f]{8}):[0-9a-f]{16}`)

// run runs a bridge until it is in sync and has sent an update, and gives the fingerprints of the
// password in the order in which they were sent.
func (p *keyPlay) run(keyFile string) []string {
	p.t.Helper()
	text := "informers: [{name: all, resources: [secrets], snapshot: always, sinks: [{name: out, payload: change}]}]\nsinks: [{name: out, stdout: {}}]\n"
	if keyFile != "" {
		text += "redaction: {keyFile: " + keyFile + "}\n"
	}
	p.archive.Files = []txtar.File{{Name: "bridge.yaml", Data: []byte(text)}}
	p.must("start")
	p.must("wait 6s")
	p.must("update secrets shop/db {metadata: {labels: {touched: again}}}")
	p.must("wait 1s")
	p.must("stop")
	found := fingerprintText.FindAllString(string(p.output["out"].Take()), -1)
	if len(found) == 0 {
		p.t.Fatal("no fingerprints were sent")
	}
	return found
}

// holds reports whether a file of the state directory has some bytes.
func (p *keyPlay) holds(needle []byte) (found bool) {
	p.t.Helper()
	files := 0
	var search func(dir string)
	search = func(dir string) {
		names, err := p.fs.List(dir)
		testkit.OK(p.t, err)
		for _, name := range names {
			path := p.fs.PathJoin(dir, name)
			info, err := p.fs.Stat(path)
			testkit.OK(p.t, err)
			if info.IsDir() {
				search(path)
				continue
			}
			f, err := p.fs.Open(path)
			testkit.OK(p.t, err)
			text := make([]byte, info.Size())
			if len(text) > 0 {
				_, err = f.ReadAt(text, 0)
				testkit.OK(p.t, err)
			}
			testkit.OK(p.t, f.Close())
			found = found || bytes.Contains(text, needle)
			files++
		}
	}
	search("state")
	if files < 3 {
		p.t.Fatalf("only %d files were searched", files)
	}
	return found
}

func allEqual(list []string) bool {
	return len(list) > 1 && strings.Count(strings.Join(list, ""), list[0]) == len(list)
}

func TestRedactionKey(t *testing.T) {
	const one, two = "a key of 16 bytes or more", "another key of 16 bytes"
	bubble := func(name string, test func(t *testing.T, p *keyPlay)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, newKeyPlay(t)) })
		})
	}
	bubble("with a file a new state directory gives the same hashes", func(t *testing.T, p *keyPlay) {
		before := p.run(p.key("one", one+"\n"))
		p.fs = vfs.NewCrashableMem()
		after := p.run(p.key("same", one))
		if !allEqual(append(before, after...)) {
			t.Errorf("%s\nand then\n%s", before, after)
		}
	})
	bubble("without a file a new state directory has another key, and the hashes say so", func(t *testing.T, p *keyPlay) {
		before := p.run("")
		again := p.run("")
		if !allEqual(append(before, again...)) {
			t.Errorf("a restart: %s\nand then\n%s", before, again)
		}
		p.fs = vfs.NewCrashableMem()
		after := p.run("")
		if before[0][:17] == after[0][:17] {
			t.Errorf("one key: %s and %s", before, after)
		}
	})
	bubble("after a change of the key an update has the old hash in old and the new one in object", func(t *testing.T, p *keyPlay) {
		before := p.run(p.key("one", one))
		after := p.run(p.key("two", two))
		if after[len(after)-1] == before[0] {
			t.Errorf("%s\nand then\n%s", before, after)
		}
		ids := map[string]bool{}
		for _, m := range fingerprintText.FindAllStringSubmatch(strings.Join(after, " "), -1) {
			ids[m[1]] = true
		}
		if len(ids) != 2 {
			t.Errorf("keys %v in %s", ids, after)
		}
	})
	bubble("with a file the state directory holds no key", func(t *testing.T, p *keyPlay) {
		p.run("")
		db, err := store.Open(statedb.Options{Dir: "state", FS: p.fs})
		testkit.OK(t, err)
		own, err := db.Database().Identity().Secret()
		testkit.OK(t, err)
		testkit.OK(t, db.Close())
		if !p.holds(own) {
			t.Error("the search does not find the directory's own key while it is there")
		}
		p.run(p.key("one", one))
		if p.holds([]byte(one)) || p.holds(own) {
			t.Error("the state directory holds a key")
		}
	})
}

func TestRedactionKeyFile(t *testing.T) {
	dir := t.TempDir()
	short := filepath.Join(dir, "short")
	testkit.OK(t, os.WriteFile(short, []byte("15 bytes of key\n"), 0o600))
	for name, c := range map[string]struct{ file, want string }{
		"that is missing":     {filepath.Join(dir, "none"), "no such file or directory; create it once with `openssl rand -hex 32 > " + dir},
		"that is too short":   {short, "redaction key has 15 bytes: it needs 16 or more, from a random source"},
		"that is a directory": {dir, "is a directory"},
	} {
		t.Run(name+" is refused with its line", func(t *testing.T) {
			cfg, err := config.Load(config.Options{File: "bridge.yaml", Data: []byte("cluster: test\nredaction:\n  keyFile: " + c.file + "\n")})
			testkit.OK(t, err)
			_, err = keyFromFile(cfg)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "bridge.yaml:3: redaction.keyFile: ") {
				t.Errorf("%v\nhas not %s", err, c.want)
			}
		})
	}
}

func TestInformersOfAnotherKey(t *testing.T) {
	cfg, err := config.Load(config.Options{File: "bridge.yaml", Data: []byte(
		"informers: [{name: redacts, resources: [secrets]}, {name: sends, resources: [secrets], secrets: send}]\nsinks: [{name: out, stdout: {}}]\n")})
	testkit.OK(t, err)
	plan := func(key string) *planner {
		redactor, err := resource.NewRedactor([]byte(key))
		testkit.OK(t, err)
		p := &planner{informers: cfg.Informers}
		for i := range cfg.Informers {
			template, err := unit(&cfg.Informers[i], redactor)
			testkit.OK(t, err)
			p.templates = append(p.templates, template)
		}
		return p
	}
	before := plan("a key of 16 bytes or more")
	for key, want := range map[string]bool{"a key of 16 bytes or more": true, "another key of 16 bytes": false} {
		after := plan(key)
		if got := after.same(0, before); got != want {
			t.Errorf("the informer that redacts is the same: %t, want %t", got, want)
		}
		if !after.same(1, before) {
			t.Error("the informer that redacts nothing is another")
		}
	}
}
