package app

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rogpeppe/go-internal/txtar"
	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/app/rights"
	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/event/verify"
	"github.com/kubebridge/bridge/internal/reflector"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/resource/jsontree"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/stdout"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/store/statedb"
	"github.com/kubebridge/bridge/internal/testkit"
)

var update = flag.Bool("update", false, "rewrite the events in testdata/events/*.txtar")

// Each file shows one feature: what happens in a cluster, a configuration, and exactly the
// CloudEvents that come of it. The script is at the top; its commands are
//
//	create|update <resource> <namespace/name> <YAML>
//	                        of members; an update merges them, and null removes one
//	delete <resource> <namespace/name>...
//	expire                  the API server forgets its history
//	start [file]            run a bridge with bridge.yaml, or another configuration
//	stop                    end it; its state stays
//	show <attribute>...     what of the events is compared from now on; all of it at first
//	events <file>           compare what came since the last time with a file
//	log <text>              the bridge has logged it
//	away <sink>             it takes nothing, until it is back
//	back <sink>
//	serve|unserve <resource>	a custom resource is installed, or removed
//	wait <duration>
//
// bridge verify finds nothing wrong in what each sink has got.
//
// Time stands still but for a second after each command, and some more after a start. Hashes of
// redacted values are numbered.
func TestEvents(t *testing.T) {
	files, err := filepath.Glob("testdata/events/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { playFile(t, file) })
		})
	}
}

// stageTypes are the resources that there are.
var stageTypes = []resource.Type{
	{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true},
	{Version: "v1", Resource: "secrets", Kind: "Secret", Namespaced: true},
	{Version: "v1", Resource: "configmaps", Kind: "ConfigMap", Namespaced: true},
	{Version: "v1", Resource: "nodes", Kind: "Node"},
	{Version: "v1", Resource: "namespaces", Kind: "Namespace"},
	{Version: "v1", Resource: "endpoints", Kind: "Endpoints", Namespaced: true},
	{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices", Kind: "EndpointSlice", Namespaced: true},
	{Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment", Namespaced: true},
	{Group: "apps", Version: "v1", Resource: "replicasets", Kind: "ReplicaSet", Namespaced: true},
	{Group: "coordination.k8s.io", Version: "v1", Resource: "leases", Kind: "Lease", Namespaced: true},
}

// play is a cluster and one bridge after the other over it.
type play struct {
	t       *testing.T
	archive *txtar.Archive
	servers map[string]*testkit.Server // by resource
	fs      *vfs.MemFS
	log     testkit.Buffer
	output  map[string]*testkit.Buffer // by sink
	streams map[string]*verify.Checker // by sink
	shown   []string                   // attributes; nil for all
	hashes  []string                   // of redacted values, in the order they were first seen

	stop func() error // nil when none runs

	mu     sync.Mutex
	away   map[string]chan struct{} // guarded by mu: by sink, closed when it is back
	served map[string]bool          // guarded by mu: custom resources
}

func newPlay(t *testing.T, archive *txtar.Archive) *play {
	p := &play{t: t, archive: archive, servers: map[string]*testkit.Server{}, fs: vfs.NewCrashableMem(), output: map[string]*testkit.Buffer{}, streams: map[string]*verify.Checker{}, away: map[string]chan struct{}{}, served: map[string]bool{}}
	for _, typ := range slices.Concat(stageTypes, customTypes) {
		p.servers[typ.String()] = testkit.NewServer(t, typ)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(p.log.String())
		}
	})
	return p
}

func playFile(t *testing.T, file string) {
	archive, err := txtar.ParseFile(file)
	testkit.OK(t, err)
	p := newPlay(t, archive)
	defer p.end()
	for number, line := range strings.Split(string(archive.Comment), "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := p.do(line); err != nil {
			t.Fatalf("%s:%d: %v", file, number+1, err)
		}
		time.Sleep(time.Second)
		if strings.HasPrefix(line, "start") {
			time.Sleep(5 * time.Second) // pauses before something is tried again have jitter
		}
		synctest.Wait()
	}
	for sink, checker := range p.streams {
		if r := checker.Report(); !r.OK {
			t.Errorf("bridge verify finds in what sink %s has: %+v", sink, r.Found)
		}
	}
	if *update {
		testkit.OK(t, updateFile(file, txtar.Format(archive)))
	}
}

// do runs one command.
func (p *play) do(line string) error {
	command, rest, _ := strings.Cut(line, " ")
	args := strings.Fields(rest)
	switch command {
	case "create", "update":
		return p.put(rest)
	case "delete":
		for _, key := range args[1:] {
			p.servers[args[0]].Delete(resource.Key(key))
		}
	case "bookmark":
		p.servers[rest].Streams.Bookmark()
	case "expire":
		for _, s := range p.servers {
			s.Expire()
		}
	case "start":
		return p.start(cmp.Or(rest, "bridge.yaml"))
	case "stop":
		p.end()
	case "show":
		p.shown = args
	case "events":
		p.compare(rest)
	case "away", "back":
		p.send(rest, command == "away")
	case "serve", "unserve":
		return p.serve(rest, command == "serve")
	case "wait":
		d, err := time.ParseDuration(rest)
		time.Sleep(d)
		return err
	case "log":
		if !strings.Contains(p.log.String(), rest) {
			return fmt.Errorf("the log does not have %q", rest)
		}
	default:
		return fmt.Errorf("no command %q", command)
	}
	return nil
}

// send sends a sink away, or lets it come back.
func (p *play) send(sink string, away bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if away {
		p.away[sink] = make(chan struct{})
		return
	}
	close(p.away[sink])
	delete(p.away, sink)
}

func (p *play) put(rest string) error {
	words := strings.SplitN(rest, " ", 3)
	if len(words) < 2 || p.servers[words[0]] == nil {
		return fmt.Errorf("want a resource, a key and members, got %q", rest)
	}
	members := map[string]any{}
	if len(words) == 3 {
		if err := yaml.Unmarshal([]byte(words[2]), &members); err != nil {
			return err
		}
	}
	p.servers[words[0]].Update(resource.Key(words[1]), func(obj map[string]any) { merge(obj, members) })
	return nil
}

func merge(into, members map[string]any) {
	for name, value := range members {
		inner, ok := value.(map[string]any)
		before, there := into[name].(map[string]any)
		switch {
		case value == nil:
			delete(into, name)
		case ok && there:
			merge(before, inner)
		default:
			into[name] = value
		}
	}
}

func (p *play) file(name string) *txtar.File {
	for i := range p.archive.Files {
		if p.archive.Files[i].Name == name {
			return &p.archive.Files[i]
		}
	}
	p.t.Fatalf("no file %s", name)
	return nil
}

// RoundTrip sends a request to the server of its resource.
func (p *play) RoundTrip(r *http.Request) (*http.Response, error) {
	if answer := p.answer(r.URL.Path); answer != nil {
		answer.Request = r
		return answer, nil
	}
	for _, typ := range p.types() {
		root := "/" + typ.CollectionPath("")
		if r.URL.Path == root || strings.HasPrefix(r.URL.Path, root[:len(root)-len(typ.Resource)]+"namespaces/") && strings.HasSuffix(r.URL.Path, "/"+typ.Resource) {
			return p.servers[typ.String()].HTTP().Transport.RoundTrip(r)
		}
	}
	missing := answerOf(http.StatusNotFound, &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound})
	missing.Request = r
	return missing, nil
}

// start runs a bridge as `bridge run` would, but for discovery.
func (p *play) start(file string) error {
	c, err := config.Load(config.Options{File: file, Data: p.file(file).Data})
	if err != nil {
		return err
	}
	if !strings.Contains(string(p.archive.Comment), "\nserve ") {
		c.Kubernetes.DiscoveryInterval = 0 // the types never change
	}
	found, err := p.discover(c)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(&p.log, nil))
	a := &assembler{config: c, log: log, sink: p.sink}
	parts, err := a.sinks("test")
	if err != nil {
		return err
	}
	db, err := store.Open(statedb.Options{Dir: "state", FS: p.fs, CacheBytes: 1 << 20, MemTableBytes: 256 << 10})
	if err != nil {
		return err
	}
	server := p.servers["pods"]
	b, err := a.bridge(bridge.Config{
		Cluster: "test", Client: &reflector.Client{HTTP: &http.Client{Transport: p}, Base: server.URL()}, DB: db, Sinks: parts.sinks, Log: log,
		CommitInterval: 100 * time.Millisecond,
	}, found, &rights.ListCheck{})
	if err != nil {
		return errors.Join(err, db.Close())
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(p.t.Context()))
	done := make(chan error, 1)
	go func() { done <- b.bridge.Run(ctx) }()
	p.stop = func() error {
		cancel()
		return errors.Join(<-done, db.Close())
	}
	return nil
}

// sink prints on a buffer of its own.
func (p *play) sink(_ string, c *config.Sink, _ prometheus.Registerer) (sinks.Sink, sinks.Service, error) {
	if p.output[c.Name] == nil {
		p.output[c.Name] = &testkit.Buffer{}
	}
	s, err := stdout.New(p.output[c.Name], stdout.JSON)
	a := &absent{Sink: s, name: c.Name, play: p}
	if err != nil || c.Stdout != nil {
		return a, nil, err
	}
	r, err := newRouted(a, c, p.output[c.Name])
	return r, nil, err
}

// absent is a sink that can be unavailable.
type absent struct {
	sinks.Sink
	name string
	play *play
}

// Publish implements sinks.Sink.
func (a *absent) Publish(ctx context.Context, batch []*sinks.Message) {
	a.wait(ctx)
	a.Sink.Publish(ctx, batch)
}

// wait waits until it is there, and reports whether it is.
func (a *absent) wait(ctx context.Context) bool {
	a.play.mu.Lock()
	back := a.play.away[a.name]
	a.play.mu.Unlock()
	if back != nil {
		select {
		case <-back:
		case <-ctx.Done():
		}
	}
	return ctx.Err() == nil
}

func (p *play) end() {
	if p.stop == nil {
		return
	}
	testkit.OK(p.t, p.stop())
	p.stop = nil
}

// compare compares the events since the last call with a file.
func (p *play) compare(name string) {
	p.t.Helper()
	var out bytes.Buffer
	for _, sink := range slices.Sorted(maps.Keys(p.output)) {
		lines := p.output[sink].Take()
		p.verify(sink, lines)
		for _, text := range p.readable(lines) {
			if out.Len() > 0 {
				out.WriteByte('\n')
			}
			if len(p.output) > 1 {
				fmt.Fprintf(&out, "sink %s\n", sink)
			}
			out.WriteString(text)
		}
	}
	want := p.file(name)
	if *update {
		want.Data = out.Bytes()
	}
	if got := out.String(); got != string(want.Data) {
		p.t.Errorf("%s: got\n%s\nwant\n%s", name, got, want.Data)
	}
}

// verify feeds what a sink has to the checks of bridge verify.
func (p *play) verify(sink string, lines []byte) {
	p.t.Helper()
	if p.streams[sink] == nil {
		p.streams[sink] = verify.New(verify.Config{Whole: func() bool { return true }})
	}
	for line := range bytes.Lines(lines) {
		e, err := event.ParseStructured(line)
		testkit.OK(p.t, err)
		p.streams[sink].Feed(&e, verify.Position{Lane: sink})
	}
}

// readable gives events as text, those of a resource together: between resources there is no order.
func (p *play) readable(lines []byte) []string {
	type entry struct{ resource, text string }
	var entries []entry
	for line := range bytes.Lines(lines) {
		var e entry
		for name, value := range resource.Members(line) {
			if name == "resource" {
				e.resource = string(value)
			}
			if p.shown == nil || slices.Contains(p.shown, name) {
				e.text += name + ": " + plain(name, value) + "\n"
			}
		}
		entries = append(entries, e)
	}
	slices.SortStableFunc(entries, func(a, b entry) int { return cmp.Compare(a.resource, b.resource) })
	var texts []string
	for _, e := range entries {
		texts = append(texts, redacted.ReplaceAllStringFunc(e.text, p.hash))
	}
	return texts
}

var redacted = regexp.MustCompile(`redacted:[0-9a-f]{8}:[0-9a-f]{16}`)

// hash numbers the hashes: their key is another each time.
func (p *play) hash(text string) string {
	at := slices.Index(p.hashes, text)
	if at < 0 {
		at = len(p.hashes)
		p.hashes = append(p.hashes, text)
	}
	return fmt.Sprintf("redacted:<hash %d>", at+1)
}

// plain is an attribute without its quotes, and data in lines where it is long.
func plain(name string, value []byte) string {
	if name != "data" {
		return strings.Trim(string(value), `"`)
	}
	if len(value) < 100 {
		return string(value)
	}
	return indent(value)
}

// indent puts members on lines of their own, but for those of small objects.
func indent(value []byte) string {
	var out strings.Builder
	writeIndented(&out, value, "")
	return out.String()
}

func writeIndented(out *strings.Builder, value []byte, margin string) {
	if len(value) < 80 || value[0] != '{' && value[0] != '[' {
		out.Write(value)
		return
	}
	inner, first := margin+"  ", true
	element := func(name string, v []byte) {
		if !first {
			out.WriteByte(',')
		}
		first = false
		out.WriteString("\n" + inner + name)
		writeIndented(out, v, inner)
	}
	out.WriteByte(value[0])
	for w := jsontree.Parse(value).Walk(); w.Next(); {
		name := ""
		if value[0] == '{' {
			name = fmt.Sprintf("%q: ", w.Name())
		}
		element(name, w.Value().Raw())
	}
	out.WriteString("\n" + margin + string(value[0]+2))
}

func updateFile(file string, data []byte) error { return os.WriteFile(file, data, 0o644) }
