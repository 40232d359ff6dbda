package config_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/settings"
)

var update = flag.Bool("update", false, "write the golden files, docs/configuration.md and docs/configuration")

func load(t *testing.T, yaml string) (*config.Config, error) {
	t.Helper()
	return config.Load(config.Options{File: "bridge.yaml", Data: []byte(yaml)})
}

func mustLoad(t *testing.T, yaml string) *config.Config {
	t.Helper()
	c, err := load(t, yaml)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The default configuration is what runs without a file.
func TestDefaults(t *testing.T) {
	c, err := config.Load(config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.String(), config.Default().String(); got != want {
		t.Errorf("Load without a file:\n%s\nDefault:\n%s", got, want)
	}
	golden(t, "testdata/default.golden", c.String())
	if err := config.Default().Validate(); err != nil {
		t.Errorf("the default is not valid: %v", err)
	}
}

// An empty file is the default.
func TestEmptyFile(t *testing.T) {
	for _, text := range []string{"", "\n", "# only a comment\n", "---\n", "state:\nsinks:\n", "null\n"} {
		if got := mustLoad(t, text).String(); got != config.Default().String() {
			t.Errorf("%q:\n%s", text, got)
		}
	}
}

// A configuration that is printed can be read again.
func TestPrintRoundTrip(t *testing.T) {
	example, err := os.ReadFile("bridge.example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"the default":                     "",
		"the example":                     string(example),
		"standard output":                 "sinks: [{name: s, stdout: {}}]",
		"core NATS":                       "sinks: [{name: s, nats: {mode: core}}]",
		"Kafka with TLS and nothing more": "sinks: [{name: s, kafka: {brokers: [\"h:1\"], tls: {}, createTopics: {}}}]",
	} {
		t.Run(name, func(t *testing.T) {
			want := mustLoad(t, text).String()
			if got := mustLoad(t, want).String(); got != want {
				t.Errorf("printed:\n%s\nread again:\n%s", want, got)
			}
		})
	}
}

func TestTheExampleLoads(t *testing.T) {
	c, err := config.Load(config.Options{File: "bridge.example.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Informers) != 2 || len(c.Sinks) != 7 || c.Sinks[1].Kafka.CreateTopics.Config["cleanup.policy"] != "compact" {
		t.Errorf("loaded:\n%s", c)
	}
}

// The example has every key.
func TestExampleKeys(t *testing.T) {
	text, err := os.ReadFile("bridge.example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct {
			return
		}
		for f := range typ.Fields() {
			if key := f.Tag.Get("yaml"); key != "" {
				if !strings.Contains(string(text), key) {
					t.Errorf("bridge.example.yaml does not show %s of %s", key, typ.Name())
				}
				walk(f.Type)
			}
		}
	}
	walk(reflect.TypeFor[config.Config]())
}

// Each testdata/bad-*.yaml has its errors beside it. They are what people see, so they are reviewed
// as text.
func TestBadFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/bad-*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no test files", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			_, err := config.Load(config.Options{File: file})
			if err == nil {
				t.Fatal("it was accepted")
			}
			if problem := err.Error(); !strings.HasPrefix(problem, file) && !strings.HasPrefix(problem, "BRIDGE_") {
				t.Errorf("an editor can't find the file by %q", problem)
			}
			golden(t, strings.TrimSuffix(file, ".yaml")+".golden", strings.ReplaceAll(err.Error(), "testdata/", "")+"\n")
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("a secret is in the error: %v", err)
			}
		})
	}
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; run go test ./config -update", err)
	}
	if got != string(want) {
		t.Errorf("%s differs; run go test ./config -update and look at the difference\ngot:\n%s\nwant:\n%s", file, got, want)
	}
}

// Values keep what was written.
func TestValuesKept(t *testing.T) {
	c := mustLoad(t, `
cluster: 0123
kubernetes: {qps: 12.5, burst: 0}
state: {dir: /data, commitInterval: 1s}
admin: {address: ""}
informers:
  - name: a
    resources: [Pods, deployments.v1.apps]
    resync: 0s
    queue: {memory: 1.5MiB}
sinks:
  - name: s
    nats: {username: u, password: 0077, stream: {maxAge: 0s, maxBytes: 2GB, duplicateWindow: 1h}}
`)
	for _, check := range []struct {
		what      string
		got, want any
	}{
		{"a cluster of digits", c.Cluster, "0123"},
		{"a fraction", c.Kubernetes.QPS, float32(12.5)},
		{"an explicit zero", c.Kubernetes.Burst, 0},
		{"a duration", c.State.CommitInterval, time.Second},
		{"an explicitly empty text", c.Admin.Address, ""},
		{"a size with a fraction", c.Informers[0].Queue.Memory, settings.Size(1536 << 10)},
		{"a password of digits", string(c.Sinks[0].NATS.Password), "0077"},
		{"an explicit zero over a default", c.Sinks[0].NATS.Stream.MaxAge, time.Duration(0)},
		{"a decimal size", c.Sinks[0].NATS.Stream.MaxBytes, settings.Size(2e9)},
		{"a default beside it", c.Sinks[0].NATS.Stream.Storage, "file"},
		{"an informer without sinks has all", fmt.Sprint(c.Informers[0].Sinks), "[{s object bridge []  history 0s 0s}]"},
		{"the encoding", c.Sinks[0].Encoding, "binary"},
	} {
		if check.got != check.want {
			t.Errorf("%s: got %v, want %v", check.what, check.got, check.want)
		}
	}
}

// A binding has the values of its informer, unless it has its own.
func TestBindingDefaults(t *testing.T) {
	t.Setenv("BRIDGE_INFORMERS_ALL_SINKS_2_RESYNC", "5m")
	c, err := config.Load(config.Options{File: "f", Data: []byte(`
informers:
  - {name: all, resources: [pods], delivery: latest, resync: 10m, sinks: [{name: a}, {name: b, delivery: history, resync: 0s}, {name: c}]}
  - {name: plain, resources: [nodes]}
sinks: [{name: a, stdout: {}}, {name: b, stdout: {}}, {name: c, stdout: {}}]
`)})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, inf := range c.Informers {
		for _, b := range inf.Sinks {
			got = append(got, fmt.Sprintf("%s %s %s", b.Name, b.Delivery, b.Resync))
		}
	}
	want := []string{"a latest 10m0s", "b history 0s", "c latest 5m0s", "a history 0s", "b history 0s", "c history 0s"}
	if !slices.Equal(got, want) {
		t.Errorf("bindings %q, want %q", got, want)
	}
}

// Variables in the file are expanded.
func TestVariablesInFile(t *testing.T) {
	t.Setenv("PW", "a: {b} ${HOME} \"'#\n- x")
	t.Setenv("N", "7")
	c := mustLoad(t, `
cluster: $${literal}-${N}
kubernetes: {burst: "${N}"}
sinks: [{name: s, nats: {username: u, password: "${PW}"}}]
`)
	if c.Cluster != "${literal}-7" || c.Kubernetes.Burst != 7 {
		t.Errorf("got %q, %d", c.Cluster, c.Kubernetes.Burst)
	}
	if got := string(c.Sinks[0].NATS.Password); got != os.Getenv("PW") {
		t.Errorf("the value of a variable was read again: %q", got)
	}
}

// A flag beats a variable, and a variable beats the file.
func TestPrecedence(t *testing.T) {
	flags := pflag.NewFlagSet("run", pflag.ContinueOnError)
	flags.String("state-dir", "flag-default", "")
	byPath := map[string]*pflag.Flag{"state.dir": flags.Lookup("state-dir")}
	dir := func() string {
		t.Helper()
		c, err := config.Load(config.Options{File: "b.yaml", Data: []byte("state: {dir: file}"), Flags: byPath})
		if err != nil {
			t.Fatal(err)
		}
		return c.State.Dir
	}
	if got := dir(); got != "file" {
		t.Errorf("with the file alone: %q", got)
	}
	t.Setenv("BRIDGE_STATE_DIR", "variable")
	if got := dir(); got != "variable" {
		t.Errorf("with the variable: %q", got)
	}
	if err := flags.Parse([]string{"--state-dir", "flag"}); err != nil {
		t.Fatal(err)
	}
	if got := dir(); got != "flag" {
		t.Errorf("with the flag: %q", got)
	}
}

func TestVariablesReachIntoLists(t *testing.T) {
	t.Setenv("BRIDGE_INFORMERS_0_RESOURCES", "pods, nodes")
	t.Setenv("BRIDGE_INFORMERS_ALL_LABEL_SELECTOR", "a=b")
	t.Setenv("BRIDGE_SINKS_NATS_NATS_SERVERS", "nats://broker:4222")
	t.Setenv("BRIDGE_SINKS_0_NATS_SERVERS", "nats://loses-to-the-name:4222")
	t.Setenv("BRIDGE_SINKS_NATS_NATS_EMBEDDED", "false")
	t.Setenv("BRIDGE_SINKS_NATS_NATS_TLS_CA_FILE", "/ca.pem")
	t.Setenv("BRIDGE_SHUTDOWN_TIMEOUT", "1s")
	t.Setenv("BRIDGE_KUBERNETES_QPS", "3.5")
	c, err := config.Load(config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	n := c.Sinks[0].NATS
	if !slices.Equal(n.Servers, []settings.URL{"nats://broker:4222"}) || n.Embedded || n.TLS == nil || n.TLS.CAFile != "/ca.pem" {
		t.Errorf("sink: %+v", n)
	}
	if inf := c.Informers[0]; len(inf.Resources) != 2 || inf.Resources[1] != "nodes" || inf.LabelSelector != "a=b" || len(inf.Exclude) != 3 {
		t.Errorf("informer: %+v", inf)
	}
	if c.ShutdownTimeout != time.Second || c.Kubernetes.QPS != 3.5 {
		t.Errorf("shutdownTimeout %v, qps %v", c.ShutdownTimeout, c.Kubernetes.QPS)
	}
}

// Variables that name no key are refused.
func TestUnknownVariables(t *testing.T) {
	for name, want := range map[string]string{
		"BRIDGE_STATE_DIRR":             "BRIDGE_STATE_DIRR: no such key: did you mean BRIDGE_STATE_DIR?",
		"BRIDGE_STAT_DIR":               "BRIDGE_STAT_DIR: no such key: did you mean BRIDGE_STATE_DIR?",
		"BRIDGE_SINKS_OTHER_NATS_XY":    "BRIDGE_SINKS_OTHER_NATS_XY: no such key: it names none of the sinks, which are nats, history",
		"BRIDGE_SINK_WEB_HTTP_URL":      "BRIDGE_SINK_WEB_HTTP_URL: no such key: it names none of the sinks, which are nats, history",
		"BRIDGE_SINKS_NATS_NATS_NOSUCH": "BRIDGE_SINKS_NATS_NATS_NOSUCH: no such key; the reference",
		"BRIDGE_HTTP_URL": "BRIDGE_HTTP_URL: no such key; a key of one of the sinks has its name or number in it: " +
			"BRIDGE_SINKS_0_HTTP_URL",
		"BRIDGE_SINKS_9_NATS_SERVERS":   "BRIDGE_SINKS_9_NATS_SERVERS: no such key",
		"BRIDGE_SINK_NATS_NATS_SERVERS": "BRIDGE_SINK_NATS_NATS_SERVERS: no such key: did you mean BRIDGE_SINKS_NATS_NATS_SERVERS?",
		"BRIDGE_SINK_URL":               "BRIDGE_SINK_URL: no such key; the reference",
		"BRIDGE_INFORMER_ALL_MAX_LAG":   "BRIDGE_INFORMER_ALL_MAX_LAG: no such key: did you mean BRIDGE_INFORMERS_ALL_MAX_LAG?",
		"BRIDGE_SINK":                   "BRIDGE_SINK: no such key",
		"BRIDGE_SINKS":                  "BRIDGE_SINKS: no such key",
		"BRIDGE_NATS_SERVERS": "BRIDGE_NATS_SERVERS: no such key; a key of one of the sinks has its name or number in it: " +
			"BRIDGE_SINKS_0_NATS_SERVERS",
		"BRIDGE_KAFKA_BROKERS": "BRIDGE_KAFKA_BROKERS: no such key; a key of one of the sinks has its name or number in it: " +
			"BRIDGE_SINKS_0_KAFKA_BROKERS",
		"BRIDGE_RESOURCES": "BRIDGE_RESOURCES: no such key; a key of one of the informers has its name or number in it: " +
			"BRIDGE_INFORMERS_0_RESOURCES",
		"BRIDGE_NATS_SERVICE_HOST":  "",
		"BRIDGE_PORT_8080_TCP_ADDR": "",
		"BRIDGE_ADMIN_SERVICE_HOST": "",
		"BRIDGE_ADMIN_PORT":         "",
		"BRIDGE_SOMEBODY_ELSES":     "",
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, "x")
			_, err := config.Load(config.Options{})
			if want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
				t.Errorf("got %v, want %q", err, want)
			}
		})
	}
}

// Problems of variables and flags name the variable or the flag.
func TestProblemSources(t *testing.T) {
	flags := pflag.NewFlagSet("run", pflag.ContinueOnError)
	flags.String("log-level", "", "")
	flags.String("shutdown-timeout", "", "")
	if err := flags.Parse([]string{"--log-level=loud", "--shutdown-timeout=soon"}); err != nil {
		t.Fatal(err)
	}
	t.Setenv("BRIDGE_STATE_COMMIT_INTERVAL", "often")
	t.Setenv("BRIDGE_STATE_MODE", "tape")
	t.Setenv("BRIDGE_SINKS_NATS_RETRY_MAX", "x")
	_, err := config.Load(config.Options{Flags: map[string]*pflag.Flag{"log.level": flags.Lookup("log-level"), "shutdownTimeout": flags.Lookup("shutdown-timeout")}})
	if err == nil {
		t.Fatal("it was accepted")
	}
	golden(t, "testdata/variables.golden", err.Error()+"\n")
	if got := len(settings.Problems(err)); got != 5 {
		t.Errorf("%d problems, want 5", got)
	}
}

// A missing file is reported plainly.
func TestMissingFile(t *testing.T) {
	_, err := config.Load(config.Options{File: "testdata/none.yaml"})
	if err == nil || err.Error() != "configuration file testdata/none.yaml does not exist" || settings.Problems(err) != nil {
		t.Errorf("got %v", err)
	}
}

// Secrets are masked however they are printed.
func TestMaskedSecrets(t *testing.T) {
	c := mustLoad(t, `
sinks:
  - name: a
    nats: {servers: ["nats://u:hunter2@h:4222", "nats://hunter2@h2:4222"], username: u, password: hunter2}
  - name: b
    nats: {token: hunter2, servers: ["nats://h:4222"]}
  - name: c
    kafka: {brokers: ["h:1"], sasl: {mechanism: PLAIN, username: u, password: hunter2}}
`)
	var logged strings.Builder
	slog.New(slog.NewJSONHandler(&logged, nil)).Info("x", "config", c, "password", c.Sinks[0].NATS.Password, "servers", c.Sinks[0].NATS.Servers)
	asJSON, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	for how, text := range map[string]string{
		"String": c.String(), "%v": fmt.Sprintf("%v", *c.Sinks[0].NATS), "%+v": fmt.Sprintf("%+v", c.Sinks[0].NATS),
		"%#v": fmt.Sprintf("%#v", *c.Sinks[0].NATS), "JSON": string(asJSON), "slog": logged.String(),
	} {
		if strings.Contains(text, "hunter2") {
			t.Errorf("%s shows a secret: %s", how, text)
		}
		if !strings.Contains(text, settings.Masked) {
			t.Errorf("%s shows no mask: %s", how, text)
		}
	}
	if string(c.Sinks[0].NATS.Password) != "hunter2" {
		t.Error("the value is lost")
	}
}

// A secret comes from a file.
func TestSecretFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(" pass word \r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := settings.ReadSecret("", file); err != nil || string(got) != " pass word " {
		t.Errorf("got %q, %v", string(got), err)
	}
	if got, err := settings.ReadSecret("direct", ""); err != nil || string(got) != "direct" {
		t.Errorf("got %q, %v", string(got), err)
	}
	if _, err := settings.ReadSecret("", file+"-missing"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if err := os.WriteFile(file, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := settings.ReadSecret("", file); err == nil {
		t.Error("an empty file was taken for a secret")
	}
}

// A configuration made in Go is checked too.
func TestConfigInGo(t *testing.T) {
	c := config.Default()
	c.Informers[0].Sinks[0].Name = "nast"
	c.ShutdownTimeout = -1
	err := c.Validate()
	want := "shutdownTimeout: must not be negative, is -1ns\ninformers[0].sinks[0].name: no sink \"nast\": did you mean \"nats\"?"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// TestMergeKeys writes what two informers share once.
func TestMergeKeys(t *testing.T) {
	c := mustLoad(t, `
informers:
  - &base {name: a, resources: [pods], namespaces: [shop], redactEnv: true}
  - {<<: *base, name: b, resources: [services]}
  - {resources: [nodes], <<: [{name: c}, *base], namespaces: []}
`)
	b, last := c.Informers[1], c.Informers[2]
	if b.Name != "b" || !slices.Equal(b.Resources, []string{"services"}) || !b.RedactEnv || !slices.Equal(b.Namespaces, []string{"shop"}) {
		t.Errorf("of one map: %+v", b)
	}
	if last.Name != "c" || !slices.Equal(last.Resources, []string{"nodes"}) || len(last.Namespaces) > 0 {
		t.Errorf("of a list of maps: %+v", last)
	}
	for text, want := range map[string]string{
		"informers: [{<<: 3}]": "map merge requires map or sequence of maps as the value",
		"a: &a {<<: *a}":       "anchor 'a' value contains itself",
		"informers:\n  - &a {name: a, resources: [pods], colour: x}\n  - {<<: *a, name: b}\n": "informers[1].colour: unknown key",
	} {
		if _, err := load(t, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func FuzzLoad(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.yaml")
	for _, file := range append(files, "bridge.example.yaml") {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte("cluster: a$${b}"))
	f.Add([]byte("sinks: &s [{name: x, nats: {}}]\ninformers: *s"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 4096 {
			return
		}
		c, err := config.Load(config.Options{File: "bridge.yaml", Data: append(data, '\n')})
		if err != nil {
			return
		}
		if err := c.Validate(); err != nil {
			t.Errorf("loaded, but is not valid: %v", err)
		}
		again, err := config.Load(config.Options{File: "again.yaml", Data: []byte(c.String())})
		if err != nil {
			t.Fatalf("loaded:\n%s\nnot loaded again: %v", c, err)
		}
		if again.String() != c.String() {
			t.Errorf("loaded:\n%s\nloaded again:\n%s", c, again)
		}
	})
}

func TestDurations(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "500ms": 500 * time.Millisecond, "1h30m": 90 * time.Minute, "7d": 168 * time.Hour,
		"2w": 336 * time.Hour, "1w1d1h": 193 * time.Hour, "1.5d": 36 * time.Hour,
	} {
		c := mustLoad(t, "informers: [{name: a, resources: [pods], resync: "+text+"}]")
		if got := c.Informers[0].Resync; got != want {
			t.Errorf("%s is read as %v, want %v", text, got, want)
		}
	}
	for _, text := range []string{"7", "d", "1y", "7 days", "1.d.5d", "99999999w", "-", "1e3d"} {
		if _, err := load(t, "informers: [{name: a, resources: [pods], resync: "+text+"}]"); err == nil {
			t.Errorf("%s is taken for a duration", text)
		}
	}
}

func TestServers(t *testing.T) {
	t.Run("a variable holds several, also where a password has a comma", func(t *testing.T) {
		t.Setenv("BRIDGE_SINKS_NATS_NATS_SERVERS", "nats://u:a,b@one:4222, nats://two:4222")
		t.Setenv("BRIDGE_SINKS_NATS_NATS_EMBEDDED", "false")
		c, err := config.Load(config.Options{})
		if err != nil {
			t.Fatal(err)
		}
		want := []settings.URL{"nats://u:a,b@one:4222", "nats://two:4222"}
		if got := c.Sinks[0].NATS.Servers; !slices.Equal(got, want) {
			t.Errorf("got %d servers: %v", len(got), got)
		}
	})
	for text, want := range map[string]string{
		"[]":                          "sinks[0].nats.servers: must not be empty",
		"nats://a:4222":               "sinks[0].nats.servers: want a list such as [a, b], got a single value",
		`["nats://a,nats://b"]`:       "sinks[0].nats.servers[0]: want a URL such as nats://127.0.0.1:4222",
		`["nats://a:1", "nats://:p"]`: "sinks[0].nats.servers[1]: want a URL such as nats://127.0.0.1:4222",
	} {
		_, err := load(t, "sinks: [{name: s, nats: {servers: "+text+"}}]")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}

func TestMessages(t *testing.T) {
	for text, want := range map[string]string{
		"informers: [{name: a, resources: [pods], labelSelector: {app: web}}]":                `labelSelector: want a string such as "app=web", got a map`,
		"informers: [{name: a, resources: [pods], sinks: [lake]}]":                            `informers[0].sinks[0]: want a map, got a single value: write {name: lake}`,
		`informers: [{name: a, resources: [pods], filter: 'op != "x" && object.kind = "y"'}]`: `filter: 1:26: "=" is not CEL: write "=="`,
		"informers: [{name: a, resources: [pods], resync: soon}]":                             `resync: want a duration such as 500ms, 30s or 7d, got "soon"`,
		"sinks: [{name: s}]": `sinks[0]: missing sink type: set one of nats, kafka, http, history, stdout, file`,
		"{sinks: [{name: s, nats: {}, encoding: structured}], informers: [{name: a, resources: [pods], sinks: [{name: s, payload: debezium}]}]}": `informers[0].sinks[0].payload: with encoding: structured on sink s`,
		"{sinks: [{name: s, nats: {}, encoding: flat}], informers: [{name: a, resources: [pods], sinks: [{name: s, payload: debezium}]}]}":       `informers[0].sinks[0].payload: with encoding: flat on sink s`,
		"sinks: [{name: s, file: {path: f}, encoding: flat}]":                                                    `encoding: has no effect with file, which has its format`,
		"sinks: [{name: s, history: {}, encoding: structured}]":                                                  `encoding: has no effect with history`,
		"{state: {mode: memory}, sinks: [{name: s, history: {}}]}":                                               `history.dir: required with state.mode memory`,
		"sinks: [{name: a, history: {dir: x}}, {name: b, history: {dir: x}}]":                                    `sinks[1].history.dir: sinks[0] writes to the same directory`,
		"sinks: [{name: a, history: {audit: {files: [x], sinks: [b]}}}]":                                         `sinks[0].history.audit.sinks[0]: there is no sink "b"`,
		"sinks: [{name: a, history: {audit: {streams: [S]}}}]":                                                   `audit.streams[0]: want a map, got a single value`,
		"sinks: [{name: a, history: {audit: {streams: [{from: 'nats://n/S', sink: b}]}}}]":                       `audit.streams[0].sink: there is no sink "b"`,
		"sinks: [{name: a, history: {audit: {streams: [{from: 'kafka://n/t', sink: b}]}}}, {name: b, nats: {}}]": `audit.streams[0].sink: b is of another kind than kafka://n/t`,
		"sinks: [{name: a, history: {audit: {files: [x], sinks: [a]}}}]":                                         `audit.sinks[0]: a is a history`,
		"sinks: [{name: a, history: {audit: {files: [x], sinks: [b]}}}, {name: b, nats: {mode: kv, bucket: B}}]": `audit.sinks[0]: b keeps the newest state`,
		`{informers: [{name: i, resources: [pods], sinks: [{name: b, filter: 'op != "x"'}]}], sinks: [{name: a, history: {audit: {files: [x], sinks: [b]}}}, {name: b, nats: {}}]}`: `informer i sends b a part of its changes`,
		"sinks: [{name: s, stdout: {}, nats: {}}]": `sinks[0]: set only one of nats, kafka, http, history, stdout, file, got nats and stdout`,
		"sinks: [{name: s, nats: {password: p}}]":  `nats.password: requires username`,
		"state: {dir: [x]}":                        `state.dir: want a string, got a list`,
		"state: {maxUndeliveredBytes: {}}":         `state.maxUndeliveredBytes: want a size such as 64MiB, got a map`,
		"informers: [{name: a, resources: [pods], namespaces: [x], namespaceSelector: a=b}]": `namespaceSelector: cannot be combined with namespaces`,
		"sinks: [{name: s, nats: {tlsFirst: true}}]":                                         `tlsFirst: has no effect without the section tls`,
		"sinks: [{name: s, nats: {domain: hub, apiPrefix: $JS.hub.API}}]":                    `apiPrefix: cannot be combined with domain`,
		"sinks: [{name: s, nats: {apiPrefix: $JS.>}}]":                                       `apiPrefix: want the beginning of a subject`,
		"sinks: [{name: s, nats: {stream: {compression: zstd}}}]":                            `compression: want one of s2, none, got "zstd"`,
		"sinks: [{name: s, nats: {stream: {maxMsgsPerSubject: -1}}}]":                        `maxMsgsPerSubject: must not be negative`,
		"sinks: [{name: s, nats: {embedded: true, apiPrefix: $JS.hub.API}}]":                 `apiPrefix: the embedded server has neither accounts`,
		"sinks: [{name: s, kafka: {brokers: [h:1], sasl: {mechanism: OAUTHBEARER}}}]":        `sasl.tokenFile: required for OAUTHBEARER: tokenFile or oauth`,
		"sinks: [{name: s, kafka: {brokers: [h:1], sasl: {mechanism: OAUTHBEARER, tokenFile: /t, oauth: {tokenURL: 'https://i/t', clientID: a, clientSecret: b}}}}]": `sasl.oauth: cannot be combined with tokenFile`,
		"sinks: [{name: s, kafka: {brokers: [h:1], sasl: {mechanism: OAUTHBEARER, oauth: {tokenURL: 'ftp://u:p@h', clientID: a, clientSecret: b}}}}]":                `sasl.oauth.tokenURL: want a URL such as https://`,
		"sinks: [{name: s, kafka: {brokers: [h:1], sasl: {mechanism: OAUTHBEARER, oauth: {tokenURL: 'https://i/t', clientID: a}}}}]":                                 `sasl.oauth.clientSecret: required`,
		"sinks: [{name: s, kafka: {brokers: [h:1], sasl: {mechanism: OAUTHBEARER, tokenFile: /t, extensions: [lkc]}}}]":                                              `sasl.extensions[0]: want name=value`,
		"sinks: [{name: s, kafka: {brokers: [h:1], sasl: {mechanism: PLAIN, username: u, password: p, extensions: [a=b]}}}]":                                         `sasl.extensions: has no effect with PLAIN`,
		"sinks: [{name: s, kafka: {brokers: [h:1], sasl: {mechanism: AWS_MSK_IAM}}}]":                                                                                `kafka.tls: required for AWS_MSK_IAM`,
		"sinks: [{name: s, kafka: {brokers: [h:1], tls: {}, sasl: {mechanism: AWS_MSK_IAM, aws: {region: 'evil.example.com/'}}}}]":                                   `sasl.aws.region: want a region such as eu-central-1`,
		"sinks: [{name: s, kafka: {brokers: [h:1], tls: {}, sasl: {mechanism: AWS_MSK_IAM, aws: {roleARN: bridge}}}}]":                                               `sasl.aws.roleARN: want the ARN of a role`,
		"sinks: [{name: s, kafka: {brokers: [h:1], tls: {}, sasl: {mechanism: AWS_MSK_IAM, username: u, oauth: {}}}}]":                                               `sasl.username: has no effect with AWS_MSK_IAM`,
		"sinks: [{name: s, kafka: {brokers: [h:1], sasl: {mechanism: PLAIN, username: u, password: p, aws: {}}}}]":                                                   `sasl.aws: has no effect with PLAIN`,
		"sinks: [{name: s, nats: {deadLetter: dead}}]":                                       `deadLetter: unknown key: did you mean "deadLetterSubject"?`,
		"sinks: [{name: s, kafka: {brokers: [h:1], deadLetter: dead}}]":                      `deadLetter: unknown key: did you mean "deadLetterTopic"?`,
		"sinks: [{name: s, nats: {tls: {}, handshakeFirst: true}}]":                          `handshakeFirst: unknown key: did you mean "tlsFirst"?`,
		"sinks: [{name: s, kafka: {brokers: [h:1], sasl: {mechanism: PLAIN, tokenURL: x}}}]": `tokenURL: unknown key`,
		"informers: [{name: a, resources: [pods], filter: object.metadata}]":                 `filter: 1:1: want a condition, which is true or false`,
		"informers: [{name: a, resources: [pods], redact: ['spec.containers[0].env']}]":      `redact[0]: path "spec.containers[0].env"`,
		"sinks: [{name: s, kafka: {brokers: 'h:1'}}]":                                        `kafka.brokers: want a list such as [a, b], got a single value`,
		"sinks: [{name: s, kafka: {brokers: [h:1], sasl: {mechanism: PLAIN, user: u}}}]":     `user: unknown key: did you mean "username"?`,
		"informers: [{name: a, resources: [pods], lag: 1m}]":                                 `lag: unknown key: did you mean "maxLag"?`,
		"state: {undelivered: 1MiB}":                                                         `undelivered: unknown key: did you mean "maxUndeliveredBytes"?`,
		"state: {sync: 1s}":                                                                  `sync: unknown key: did you mean "commitInterval"?`,
		"kubernetes: {watchdog: 1m}":                                                         `watchdog: unknown key: did you mean "watchIdleTimeout"?`,
		"kubernetes: {discovery: 1m}":                                                        `discovery: unknown key: did you mean "discoveryInterval"?`,
		"sinks: [{name: s, kafka: {brokers: [h:1]}, recall: false}]":                         `recall: unknown key: did you mean "readBack"?`,
		"reload: 1m": `reload: unknown key: did you mean "reloadInterval"?`,
		"drain: 5s":  `drain: unknown key: did you mean "shutdownTimeout"?`,
		"informers: [{name: a, kinds: [Pod], resources: [pods]}]":     `kinds: unknown key: did you mean "resources"?`,
		"informers: [{name: a, resources: [pods], on: [spec]}]":       `on: unknown key: did you mean "changedParts"?`,
		"sinks: [{name: s, nats: {url: nats://h, user: u}}]":          `url: unknown key: did you mean "servers"?`,
		"sinks: [{name: s, kafka: {brokers: [h:1], tls: {ca: x}}}]":   `ca: unknown key: did you mean "caFile"?`,
		"sinks: [{name: s, stdout: {}, queue: {memory: 1MiB}}]":       `queue: unknown key: did you mean "maxInFlightBytes"?`,
		"sinks: [{name: s, nats: {stream: {name: X, subject: [a]}}}]": `subject: unknown key: did you mean "subjects"?`,
	} {
		if _, err := load(t, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
	_, err := load(t, "sinks: [{name: s, kafka: {brokers: [h:1], sasl: {mechanism: GSSAPI}}}]")
	if got := settings.Problems(err); len(got) != 1 || got[0].Path != "sinks[0].kafka.sasl.mechanism" {
		t.Errorf("of a mechanism that is not known: %v", err)
	}
}
