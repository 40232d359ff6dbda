package cli

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/kubebridge/bridge/internal/testkit"
)

// Values are planted wherever an object can hold one, and looked for in everything that the bridge
// has written: every payload form, every kind of sink, dead letters, what waited on disk for a sink
// that was unavailable, the state directory as a crash leaves it, logs, metrics, status. Where
// everything may be sent, the same search finds every value; else it would prove nothing.
func TestPlantedValuesAreNowhere(t *testing.T) {
	for _, test := range []struct {
		name  string
		rules []string
		found bool
	}{
		{"taken out", allRules, false},
		{"sent as they are", []string{"secrets: send", "keepManagedFields: true"}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			h := newHunt(t)
			h.plant()
			h.runs(test.rules)
			for place, needle := range h.needles {
				found := h.found[place]
				if (len(found) > 0) != test.found {
					t.Errorf("%s (%s) was found in %v", place, needle, found)
				}
			}
			for _, place := range showing {
				if found := h.foundAt(place); found != test.found || h.searched[place] == 0 {
					t.Errorf("%s shows planted values: %t, of %d bytes", place, found, h.searched[place])
				}
			}
			for _, place := range silent {
				if h.foundAt(place) || h.searched[place] == 0 {
					t.Errorf("%s shows planted values: %t, of %d bytes", place, h.foundAt(place), h.searched[place])
				}
			}
			t.Logf("searched %d messages, %d records, %d keys of the state, %d files, %d bytes of text", h.messages, h.records, h.keys, h.files, h.texts)
			if h.messages < 20 || h.records < 2 || h.keys < 20 || h.deadLetters == 0 || h.entries == 0 || h.tailed == 0 || h.undelivered == 0 || h.spans() == 0 || h.pages < 2 {
				t.Errorf("too little was searched: %d dead letters, %d entries of the log on disk, %d messages of the live tail with payloads, %d undelivered, %d bytes of traces, %d pages",
					h.deadLetters, h.entries, h.tailed, h.undelivered, h.spans(), h.pages)
			}
		})
	}
}

// showing are the places that show values where everything may be sent: every way of an object out
// of the process.
var showing = []string{
	"stream object", "stream change", "stream patch", "stream metadata", // forms of the payload
	"stream structured", "stream knative", "stream latest", "stream away", "core subject",
	"stream small", "stream OBJ_claimed", // dead letters, and payloads that are stored apart
	"stream debezium", "stream KV_view", "http", "http dead letter", "topic", "topic dead",
	"deadletters get of small", "deadletters get of narrow", "stdout", "live tail", "object view",
	"statedir get", "sample", "undelivered get",
	"undelivered of second", "first state", "second state", "follower state",
	"object view of the follower", "first history", "second history", "archive", "show", "diff",
	"history command", "history --field", "state command", "timeline", "watch",
	"/history/versions", "/history/object", "/history/diff", "/history/timeline", "/history/state",
	"serve list", "serve table", "serve metadata", "serve watch", "serve get",
	"serve --live list", "serve --live table", "serve --live metadata", "serve --live watch",
	"serve --live get",
}

// silent are the places that never show one, whatever the rules say: they have something, which
// names objects at most.
var silent = []string{
	"log", "log of the follower", "metrics", "metrics of the follower", "page", "page of the follower",
	"status", "status of the follower", "traces", "leases", "statedir ls", "undelivered ls", "validate",
	"validate --live", "validate --print", "rbac", "verify", "status command", "archive command",
	"/history/search", "/history/resources", "serve log", "deadletters ls", "schema", "profiles",
	"profiles of the follower",
}

// everything are the places where each value of the informer "all" comes by, in each version: what
// a rule takes out is found there without the rule.
var everything = []string{"stream debezium", "http", "topic dead"}

// allRules take out every planted value.
var allRules = []string{"redact: [data.dsn, spec.list.*]", "drop: [data.dropped]", "redactEnv: true"}

// Each rule is what keeps its values at home: without it these are found, and the others are not.
func TestPlantedValuesPerRule(t *testing.T) {
	if testing.Short() {
		t.Skip("five more bridges, of a minute together")
	}
	for name, c := range map[string]struct {
		rules []string
		found []string // how the places begin
	}{
		"without redaction of secrets": {append([]string{"secrets: send"}, allRules...), []string{
			// copies of objects are those of redact
			"data of a secret", "stringData of a secret", "malformed secret", "token in an annotation", "kind ",
		}},
		"without redact":    {allRules[1:], []string{"redacted path", "item of a list"}},
		"without drop":      {[]string{allRules[0], allRules[2]}, []string{"dropped path"}},
		"without redactEnv": {allRules[:2], []string{"env by its"}},
		// Only Secrets are redacted beside it. Their managed fields are always cut.
		"with managed fields": {[]string{"keepManagedFields: true"}, []string{
			"managed fields of configmaps", "managed fields of pods", "last applied of a config map",
			"redacted path", "dropped path", "item of a list", "env by its",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHunt(t)
			h.plant()
			h.runsOnce(c.rules)
			for place := range h.needles {
				want := slices.ContainsFunc(c.found, func(begin string) bool { return strings.HasPrefix(place, begin) })
				found := h.found[place]
				if (len(found) > 0) != want {
					t.Errorf("%s was found in %v", place, found)
				}
				if !want || strings.HasPrefix(place, "kind ") || strings.HasPrefix(place, "malformed ") {
					continue // the latter are of no object that is sent
				}
				for _, at := range everything {
					if !slices.Contains(found, at) {
						t.Errorf("%s was not found in %s", place, at)
					}
				}
			}
			for _, place := range []string{
				"topic", "topic dead", "stream debezium", "stream KV_view", "http", "http dead letter",
				"history", "show", "diff", "history --field", "timeline", "/history/versions",
				"/history/object", "/history/diff", "/history/timeline", "/history/state", "serve list",
				"serve table", "serve watch", "serve get", "serve --live list", "serve --live watch",
			} {
				if !h.foundAt(place) {
					t.Errorf("%s shows nothing of what the rule takes out", place)
				}
			}
		})
	}
}

// What was stored while everything could be sent is in no file of the state when redaction is
// turned on: not in tables, not in logs of the database that are written over later. Undelivered
// files and the history keep what they had.
func TestPlantedValuesStored(t *testing.T) {
	t.Parallel()
	h := newHunt(t)
	h.plant()
	h.servers["secrets"].Delete("shop/malformed") // in a state it would have to be redacted, or the start refused
	state := filepath.Join(h.dir, "state")
	h.begin()
	end := h.bridge("", []string{"secrets: send"}, state, nowhere)
	h.awaitSpool()
	end()
	clear(h.found)
	h.searchFiles(state)
	h.searchDatabase("state", filepath.Join(state, "db"))
	if !h.foundAt("state") || !h.foundAt("files of state") {
		t.Errorf("the values are not in the state while they are sent: %v", h.found)
	}

	end = h.bridge("", allRules, state, nowhere)
	h.until("it is ready but for the sink that is unavailable", func() bool { return strings.Contains(h.get("/status"), `"phase"`) })
	before := h.offset()
	h.servers["configmaps"].Update("shop/app", func(obj map[string]any) { obj["data"] = map[string]any{"level": "new"} })
	h.until("an update passes", func() bool { return h.offset() > before })
	end()
	clear(h.found)
	h.searchFiles(state)
	h.searchDatabase("state", filepath.Join(state, "db"))
	for place, found := range h.found {
		found = slices.DeleteFunc(found, func(at string) bool {
			return strings.HasPrefix(at, "undelivered") || strings.HasPrefix(at, "history")
		})
		if len(found) > 0 {
			t.Errorf("%s is still in %v", place, found)
		}
	}
}

// hunt is a cluster with values in it, brokers, and what was found where.
type hunt struct {
	t       *testing.T
	servers map[string]*testkit.Server
	api     string
	nats    *server.Server
	kafka   *kfake.Cluster
	program string
	dir     string
	admin   string // of the bridge that runs
	leases  *testkit.Leases
	core    testkit.Buffer // what was published and is in no stream

	places  []string            // where values are planted, by their number
	needles map[string]string   // by where they are planted
	found   map[string][]string // by where they are planted: where they were found
	// searched is how many bytes of each place were searched.
	searched map[string]int

	messages, records, keys, files, texts, deadLetters, entries, tailed, undelivered, pages int

	posted map[string]*testkit.Buffer // to HTTP endpoints, by place
	hook   string                     // where the endpoints are

	kinds  map[string][]string // paths of credentials by kind
	traces *testkit.Buffer
	otlp   string // where traces are sent
}

func newHunt(t *testing.T) *hunt {
	h := &hunt{
		t: t, servers: map[string]*testkit.Server{}, needles: map[string]string{}, found: map[string][]string{},
		searched: map[string]int{}, program: buildBridge(t), dir: t.TempDir(), admin: testkit.Address(t), leases: testkit.NewLeases(),
	}
	h.readKinds()
	h.serve()
	h.collect()
	h.endpoints()
	var err error
	h.nats, err = server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: filepath.Join(h.dir, "nats"), NoSigs: true, NoLog: true})
	testkit.OK(t, err)
	h.nats.Start()
	t.Cleanup(func() { h.nats.Shutdown(); h.nats.WaitForShutdown() })
	if !h.nats.ReadyForConnections(10 * time.Second) {
		t.Fatal("the NATS server does not start")
	}
	h.kafka, err = kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "k8s", "dead"))
	testkit.OK(t, err)
	testkit.OK(t, h.kafka.CreateTopic("narrow", 1, map[string]string{"max.message.bytes": "2500"}))
	t.Cleanup(h.kafka.Close)
	return h
}

// nowhere is the address of a broker that is unavailable.
const nowhere = "nats://127.0.0.1:1"

// config binds the informer of Secrets, ConfigMaps and Pods to a sink for each form, one that
// refuses, one that is unavailable, Kafka, also with a topic that refuses most objects for their
// size, HTTP endpoints, a view, and standard output. Objects of the other kinds take the same way
// from the reader on: they go to four of the sinks. The bridge called follower has a standby.
func (h *hunt) config(name string, rules []string, state, away, admin string) string {
	var bindings, sinks strings.Builder
	stream := func(name, payload, url, nats, more string) {
		if payload != "" {
			fmt.Fprintf(&bindings, "      - {name: %s, payload: %s, filter: 'object.metadata.name.startsWith(\"x\") == false'}\n", name, payload)
		}
		fmt.Fprintf(&sinks, "  - {name: %s, nats: {servers: [%q], stream: {name: %s}, subject: \"%s.{resource}.{name}.{op}\"%s}%s}\n",
			name, url, name, name, nats, more)
	}
	url := h.nats.ClientURL()
	for _, payload := range []string{"object", "change", "patch", "metadata", "reference", "debezium"} {
		stream(payload, payload, url, "", "")
	}
	bindings.WriteString("      - {name: knative, payload: object, types: knative}\n      - {name: latest, payload: change, delivery: latest}\n")
	stream("knative", "", url, "", "")
	stream("latest", "", url, "", "")
	stream("structured", "change", url, "", ", encoding: structured")
	stream("small", "change", url, `, deadLetterSubject: "dead.{resource}.{op}"`, ", oversize: []") // a dead letter instead
	stream("smaller", "object", url, "", "")
	stream("claims", "change", url, `, objects: {bucket: claimed}`, ", oversize: [claim]")
	// Its place for dead letters refuses them too.
	stream("lost", "change", url, `, deadLetterSubject: "gone.{resource}.{op}"`, ", oversize: [], deadLetterWait: 100ms")
	stream("away", "change", away, "", "")
	standby := ""
	if name != "" {
		standby = fmt.Sprintf("standby: {enabled: true, identity: %q, lease: {namespace: shop}}\nredaction: {keyFile: %q}", name, filepath.Join(h.dir, "key"))
	}
	rule := strings.Join(rules, "\n    ")
	return fmt.Sprintf(`
cluster: test
state: {dir: %q}
admin: {address: %q, pprof: true}
log: {level: debug}
tracing: {endpoint: %q, sampleRatio: 1}
kubernetes: {kubeconfig: %q}
%s
informers:
  - name: all
    resources: [secrets, configmaps, pods]
    attributes: {level: data.level, dsn: data.dsn}
    owners: true
    %s
    sinks:
%s      - {name: kafka, payload: change, resync: 3s}
      - {name: core, payload: change, operations: [added, updated, deleted]}
      - {name: out, payload: change}
      - {name: kept, payload: change}
      - {name: view}
      - {name: hook, payload: change}
      - {name: refused, payload: change}
      - {name: narrow, payload: change}
  - name: kinds
    resources: [%s]
    %s
    sinks:
      - {name: view}
      - {name: kafka, payload: change}
      - {name: lost, payload: change}
      - {name: away, payload: change}
sinks:
%s  - {name: kafka, kafka: {brokers: [%q], topic: k8s}}
  - {name: narrow, oversize: [], kafka: {brokers: [%[11]q], topic: narrow, deadLetterTopic: dead, compression: none}}
  - {name: core, nats: {servers: [%[12]q], mode: core, subject: "core.{resource}"}}
  - {name: out, stdout: {format: json}}
  - {name: kept, history: {}}
  - {name: hook, http: {url: "%[13]s/hook"}}
  - {name: refused, http: {url: "%[13]s/refuse", deadLetterURL: "%[13]s/refused"}}
  - {name: view, nats: {servers: [%[12]q], mode: kv, bucket: view}}
`, state, admin, h.otlp, filepath.Join(h.dir, "kubeconfig"), standby, rule, bindings.String(),
		strings.Join(slices.Sorted(maps.Keys(h.kinds)), ", "), rule, sinks.String(), h.kafka.ListenAddrs()[0], url, h.hook)
}

// runs lets one bridge run until the sink that is unavailable has something on disk, copies its
// state as a crash would leave it, and ends it and its standby. Another bridge then runs over the
// copy with the sink back. All that they have written is searched.
func (h *hunt) runs(rules []string) {
	js := h.begin()
	first, second, follower := filepath.Join(h.dir, "first"), filepath.Join(h.dir, "second"), filepath.Join(h.dir, "follower")
	end := h.bridge("leader", rules, first, nowhere)
	h.until("the first versions are in Kafka", func() bool { return h.offset() >= int64(len(h.servers)) })
	leads := h.admin
	h.admin = testkit.Address(h.t)
	endFollower := h.bridge("follower", rules, follower, nowhere)
	h.until("the follower has read something", func() bool { return strings.Contains(h.get("/metrics"), `bridge_informer_changes_total{`) })
	follows := h.admin
	h.admin = leads
	h.plant() // updates
	h.servers["secrets"].Create("shop/gone", func(obj map[string]any) {
		obj["data"] = map[string]any{"a": base64.StdEncoding.EncodeToString([]byte(h.value("data of a secret that is deleted")))}
	})
	h.servers["secrets"].Delete("shop/gone")
	h.awaitSpool()
	h.copyState(second, first)
	h.admin = follows
	h.awaitSpool()
	h.until("the follower shows an object", func() bool {
		return strings.Contains(h.get("/object?namespace=shop&resource=secrets&name=db"), `"metadata"`)
	})
	h.searchLeases()
	endFollower()
	h.admin = leads
	end()

	h.plant()
	end = h.bridge("", rules, second, h.nats.ClientURL())
	h.until("the sink that was unavailable has everything", func() bool {
		s, err := js.Stream(h.t.Context(), "away")
		return err == nil && int(s.CachedInfo().State.Msgs) >= 2*len(h.servers)
	})
	h.until("each stream that is searched has something", func() bool {
		return !slices.ContainsFunc(showing, func(place string) bool {
			name, isStream := strings.CutPrefix(place, "stream ")
			if !isStream {
				return false
			}
			s, err := js.Stream(h.t.Context(), name)
			return err != nil || s.CachedInfo().State.Msgs == 0
		})
	})
	h.until("something is undelivered", func() bool {
		files, _ := filepath.Glob(filepath.Join(second, "undelivered", "*"))
		return len(files) > 0
	})
	h.command("status command", "status", "--admin-address", h.admin)
	h.ask(3)
	end()
	h.searchStreams(js)
	h.searchKafka()
	for _, dir := range []string{first, second, follower, filepath.Join(h.dir, "nats")} {
		h.searchFiles(dir)
	}
	h.searchDatabase("first state", filepath.Join(first, "db"))
	h.searchDatabase("second state", filepath.Join(second, "db"))
	h.searchDatabase("follower state", filepath.Join(follower, "db"))
	h.searchDatabase("first history", filepath.Join(first, "history"))
	h.searchDatabase("second history", filepath.Join(second, "history"))
	h.in("traces", []byte(h.traces.String()))
	h.in("core subject", []byte(h.core.String()))
	h.searchPosted()
	h.commands(second)
}

// commands looks at what the commands print.
func (h *hunt) commands(state string) {
	file := filepath.Join(h.dir, "bridge.yaml")
	h.command("sample", "sample", "--config", file, "--events", "100", "--timeout", "20s", "--allow-secrets")
	h.command("validate", "validate", "--config", file, "--allow-secrets")
	h.command("validate --live", "validate", "--config", file, "--allow-secrets", "--live")
	h.command("validate --print", "validate", "--config", file, "--allow-secrets", "--print")
	h.command("rbac", "rbac", "--config", file)
	h.command("schema", "schema", "--config", file)
	h.deadLettersOf("small", file)
	h.deadLettersOf("narrow", file)
	h.command("statedir ls", "statedir", "ls", "--state-dir", state)
	h.command("statedir get", "statedir", "get", "secrets", "shop/db", "--state-dir", state)
	h.command("verify", "verify", "--from", h.nats.ClientURL()+"/change")
	h.questions(filepath.Join(state, "history"))
	h.serves(filepath.Join(state, "history"))
	archive := filepath.Join(h.dir, "archive")
	h.command("archive command", "archive", "--from", h.nats.ClientURL()+"/change", "--dir", archive, "--once")
	h.searchDatabase("archive", archive)
	h.watch(file)
	list := h.command("undelivered ls", "undelivered", "ls", "--state-dir", state)
	for line := range strings.Lines(list) {
		if id, _, _ := strings.Cut(line, " "); strings.Contains(line, "secrets") {
			h.command("undelivered get", "undelivered", "get", id, "--state-dir", state)
		}
	}
}

// deadLettersOf reads the dead letters of a sink.
func (h *hunt) deadLettersOf(sink, file string) {
	for line := range strings.Lines(h.command("deadletters ls", "deadletters", "ls", "--sink", sink, "--config", file)) {
		if position, _, _ := strings.Cut(line, " "); strings.Contains(position, "/") {
			h.command("deadletters get of "+sink, "deadletters", "get", position, "--sink", sink, "--config", file)
		}
	}
}

// questions asks a history of what it has.
func (h *hunt) questions(dir string) {
	for object, field := range map[string]string{
		"secret/db": "data.password", "configmap/app": "data", "pod/web": "spec.containers[c].env[DB_PASSWORD].value",
	} {
		of := func(command string, more ...string) []string {
			return append([]string{command, object, "-n", "shop", "--dir", dir}, more...)
		}
		for _, output := range []string{"yaml", "json"} {
			h.command("show", of("show", "-o", output)...)
		}
		h.command("diff", of("diff")...)
		h.command("history --field", of("history", "--field", field)...)
		h.command("history command", of("history")...)
	}
	h.command("state command", "state", "-n", "shop", "--dir", dir, "-o", "yaml")
	h.command("timeline", "timeline", "-A", "--since", "1h", "--dir", dir)
	h.command("timeline", "timeline", "-A", "--since", "1h", "--dir", dir, "-o", "json")
}

// watch lets the command of this name print until it has printed something of each kind.
func (h *hunt) watch(file string) {
	stdout, stderr := &testkit.Buffer{}, &testkit.Buffer{}
	cmd := exec.CommandContext(h.t.Context(), h.program, "watch", "--config", file, "--allow-secrets", "-o", "json")
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = stdout, stderr, time.Minute
	testkit.OK(h.t, cmd.Start())
	h.until("bridge watch has printed all kinds", func() bool {
		for _, resource := range []string{"secrets", "configmaps", "pods"} {
			if !strings.Contains(stdout.String(), `"resource":"`+resource+`"`) {
				return false
			}
		}
		return true
	})
	testkit.OK(h.t, cmd.Process.Signal(os.Interrupt))
	_ = cmd.Wait()
	h.in("watch", []byte(stdout.String()+stderr.String()))
}

// command runs one and looks at what it prints.
func (h *hunt) command(place string, args ...string) string {
	stdout, stderr := &testkit.Buffer{}, &testkit.Buffer{}
	cmd := exec.CommandContext(h.t.Context(), h.program, args...)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	_ = cmd.Run()
	if code := cmd.ProcessState.ExitCode(); code != 0 && code != 1 { // 1: it is not ready
		h.t.Errorf("%s: exit code %d: %s", args, code, lastLine(stderr.String()))
	}
	h.in(place, []byte(stdout.String()+stderr.String()))
	return stdout.String()
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// runsOnce lets one bridge run until everything is in Kafka, and searches the brokers and the
// history.
func (h *hunt) runsOnce(rules []string) {
	js := h.begin()
	state := filepath.Join(h.dir, "state")
	end := h.bridge("", rules, state, nowhere)
	h.until("the first versions are in Kafka", func() bool { return h.offset() >= int64(len(h.servers)) })
	h.plant() // what a diff shows
	h.until("the second versions are in Kafka", func() bool { return h.offset() >= 2*int64(len(h.servers)) })
	h.until("the narrow topic, or the one of its dead letters, has everything", func() bool {
		return h.offsetOf("narrow")+h.offsetOf("dead") >= 2*4+3 // versions of objects, ends of lists
	})
	h.ask(2)
	end()
	h.searchStreams(js)
	h.searchKafka()
	h.searchPosted()
	h.searchDatabase("history", filepath.Join(state, "history"))
	h.questions(filepath.Join(state, "history"))
	h.serves(filepath.Join(state, "history"))
}

func (h *hunt) awaitSpool() {
	h.until("the backlog is on disk", func() bool {
		status := strings.ReplaceAll(h.get("/status"), " ", "")
		return strings.Contains(status, `"spoolBytes":`) && !strings.Contains(status, `"spoolBytes":0`)
	})
}

// begin makes the streams that refuse large messages.
func (h *hunt) begin() jetstream.JetStream {
	testkit.OK(h.t, os.WriteFile(filepath.Join(h.dir, "kubeconfig"), []byte(kubeconfig(h.api)), 0o600))
	testkit.OK(h.t, os.WriteFile(filepath.Join(h.dir, "key"), []byte("a key of at least sixteen bytes"), 0o600))
	conn, err := natsgo.Connect(h.nats.ClientURL())
	testkit.OK(h.t, err)
	h.t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	testkit.OK(h.t, err)
	_, err = conn.Subscribe("core.>", func(m *natsgo.Msg) { fmt.Fprintf(&h.core, "%s %v %s\n", m.Subject, m.Header, m.Data) })
	testkit.OK(h.t, err)
	largest := map[string]int32{"claims": 2500, "small": 2500, "smaller": 2500, "lost": 300} // bytes
	for name, subjects := range map[string][]string{"claims": {"claims.>"}, "small": {"small.>", "dead.>"}, "smaller": {"smaller.>", "k8s._deadletter.>"}, "lost": {"lost.>", "gone.>"}} {
		_, err = js.CreateStream(h.t.Context(), jetstream.StreamConfig{Name: name, Subjects: subjects, MaxMsgSize: largest[name], Duplicates: 2 * time.Minute})
		testkit.OK(h.t, err)
	}
	return js
}

// bridge runs one, and gives what ends it and searches what it has said. With a name it has
// replicas.
func (h *hunt) bridge(name string, rules []string, state, away string) (end func()) {
	file := filepath.Join(h.dir, "bridge"+name+".yaml")
	testkit.OK(h.t, os.WriteFile(file, []byte(h.config(name, rules, state, away, h.admin)), 0o600))
	ctx, cancel := context.WithCancel(context.WithoutCancel(h.t.Context()))
	stdout, stderr := &testkit.Buffer{}, &testkit.Buffer{}
	// A process of its own: what the libraries log is set for a process.
	cmd := exec.CommandContext(ctx, h.program, "run", "--config", file, "--shutdown-timeout", "2s", "--allow-secrets")
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = stdout, stderr, time.Minute
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	testkit.OK(h.t, cmd.Start())
	wait := sync.OnceFunc(func() {
		cancel()
		_ = cmd.Wait()
	})
	h.t.Cleanup(func() {
		wait()
		if h.t.Failed() {
			h.t.Log(stderr.String())
		}
	})
	tail, of := h.tail(ctx), ""
	if name == "follower" {
		of = " of the follower"
	}
	return func() {
		h.in("status"+of, []byte(h.get("/status")))
		for resource, name := range map[string]string{"secrets": "db", "configmaps": "app", "pods": "web"} {
			h.in("object view"+of, []byte(h.get("/object?namespace=shop&resource="+resource+"&name="+name)))
		}
		h.in("live tail"+of, []byte(tail.String()))
		h.tailed += strings.Count(tail.String(), `"payload":`)
		h.in("metrics"+of, []byte(h.get("/metrics")))
		h.profiles("profiles" + of)
		for _, page := range []string{"/", "/readyz", "/healthz"} {
			if text := h.get(page); text != "" {
				h.in("page"+of, []byte(text))
				h.pages++
			}
		}
		wait()
		h.in("stdout"+of, []byte(stdout.String()))
		h.in("log"+of, []byte(stderr.String()))
		h.texts += len(stdout.String()) + len(stderr.String())
	}
}

// tail looks at the events of the bridge that is being started, as long as it runs.
func (h *hunt) tail(ctx context.Context) *testkit.Buffer {
	out := &testkit.Buffer{}
	go func() {
		for ctx.Err() == nil {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+h.admin+"/tail?payload=true", nil)
			testkit.OK(h.t, err)
			if response, err := http.DefaultClient.Do(request); err == nil {
				_, _ = io.Copy(out, response.Body)
				response.Body.Close()
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	return out
}

func (h *hunt) get(path string) string {
	response, err := http.Get("http://" + h.admin + path)
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	testkit.OK(h.t, err)
	return string(body)
}

func (h *hunt) until(what string, so func() bool) {
	h.t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !so(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			h.t.Fatal("never happened: ", what)
		}
	}
}
