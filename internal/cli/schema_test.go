package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// sent is a message of a sink as its reader has it.
type sent struct {
	channel, address string
	headers          map[string]string
	body             []byte // nil for none
}

// published is what has arrived.
type published struct {
	mu   sync.Mutex
	list []sent // guarded by mu
}

func (p *published) add(s sent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = append(p.list, s)
}

func (p *published) all() []sent {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.list)
}

// document is what `bridge schema` prints.
type document struct {
	t        *testing.T
	compiler *jsonschema.Compiler
	doc      struct {
		Channels map[string]struct {
			Address  string
			Messages map[string]any
		}
		Components struct {
			Messages map[string]struct {
				Name    string
				Headers struct{ Properties map[string]any }
				Payload any
			}
		}
	}
}

func schemaOf(t *testing.T, file string) *document {
	t.Helper()
	var out, stderr bytes.Buffer
	if code := run(t.Context(), []string{"schema", "--config", file, "--output", "json"}, nil, &out, &stderr); code != ExitClean {
		t.Fatalf("exit code %d: %s", code, stderr.String())
	}
	d := &document{t: t, compiler: jsonschema.NewCompiler()}
	testkit.OK(t, json.Unmarshal(out.Bytes(), &d.doc))
	whole, err := jsonschema.UnmarshalJSON(&out)
	testkit.OK(t, err)
	d.compiler.DefaultDraft(jsonschema.Draft7)
	testkit.OK(t, d.compiler.AddResource("asyncapi.json", whole))
	return d
}

// matches reports whether a subject or topic is one of a channel's.
func matches(template, address string) bool {
	pattern := regexp.MustCompile(`\\\{\w+\\\}`).ReplaceAllString(regexp.QuoteMeta(template), "[^.]+")
	return regexp.MustCompile("^" + pattern + "$").MatchString(address)
}

// check is what is wrong with a message by the message of the document of its type, "" for nothing.
func (d *document) check(m *sent) (name, problem string) {
	channel, found := d.doc.Channels[m.channel]
	if !found || !matches(channel.Address, m.address) {
		return "", fmt.Sprintf("%s is no address of %s", m.address, channel.Address)
	}
	typ, informer := typeOf(m)
	for key := range channel.Messages {
		if d.doc.Components.Messages[key].Name == typ && strings.HasPrefix(key, m.channel+"."+informer+".") {
			name = key
		}
	}
	if typ == "" && m.body == nil {
		name = m.channel + ".tombstone"
	}
	described, found := d.doc.Components.Messages[name]
	if !found {
		return name, fmt.Sprintf("no message %q of type %q", name, typ)
	}
	for header := range m.headers {
		if described.Headers.Properties[header] == nil {
			return name, "header " + header + " is not described"
		}
	}
	headers := map[string]any{}
	for k, v := range m.headers {
		headers[k] = v
	}
	if described.Headers.Properties != nil {
		if err := d.validate(name, "headers", headers); err != nil {
			return name, err.Error()
		}
	}
	var body any
	if m.body != nil {
		var err error
		if body, err = jsonschema.UnmarshalJSON(bytes.NewReader(m.body)); err != nil {
			return name, err.Error()
		}
	}
	if err := d.validate(name, "payload", body); err != nil {
		return name, err.Error()
	}
	return name, ""
}

func (d *document) validate(name, part string, value any) error {
	s, err := d.compiler.Compile("asyncapi.json#/components/messages/" + name + "/" + part)
	testkit.OK(d.t, err)
	return s.Validate(value)
}

// typeOf finds the type and the informer of an event, in its headers or in its body.
func typeOf(m *sent) (typ, informer string) {
	for name, value := range m.headers {
		switch strings.ToLower(name) {
		case "ce-type", "ce_type":
			typ = value
		case "ce-informer", "ce_informer":
			informer = value
		}
	}
	if typ == "" {
		var e struct{ Type, Informer string }
		_ = json.Unmarshal(m.body, &e) // a tombstone has none
		typ, informer = e.Type, e.Informer
	}
	return typ, informer
}

// TestSchema holds messages of a bridge against the document that describes them.
func TestSchema(t *testing.T) {
	var got published
	endpoint := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Method == http.MethodPost {
			got.add(sent{"functions", r.URL.Path, map[string]string{"Content-Type": r.Header.Get("Content-Type")}, body})
		}
	}))
	defer endpoint.Close()
	kafka, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "k8s.dev-cluster.pods"))
	testkit.OK(t, err)
	defer kafka.Close()
	nats := testkit.Address(t)
	file := filepath.Join(t.TempDir(), "bridge.yaml")
	writeFile(t, file, fmt.Sprintf(`
cluster: dev-cluster
informers:
  - name: all
    resources: [pods]
    attributes: {team: metadata.labels.team}
    sinks:
      - {name: audit, payload: change}
      - {name: whole, payload: patch}
      - {name: lake, payload: debezium}
      - {name: functions, types: knative, payload: reference}
sinks:
  - {name: audit, nats: {servers: ["nats://%[1]s"], embedded: true}}
  - {name: whole, nats: {servers: ["nats://%[1]s"], stream: {name: WHOLE}, subject: "whole.{resource}.{name}.{op}"}, encoding: structured}
  - {name: lake, kafka: {brokers: [%[2]s], tombstones: true}}
  - {name: functions, http: {url: "%[3]s/in"}, encoding: structured}
`, nats, strings.Join(kafka.ListenAddrs(), ","), endpoint.URL))
	doc := schemaOf(t, file)

	pods := testkit.NewServer(t, resource.Type{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true})
	labels := func(n string) func(map[string]any) {
		return func(o map[string]any) {
			o["metadata"].(map[string]any)["labels"] = map[string]any{"team": "web 50%", "n": n}
		}
	}
	pods.Create("shop/web-0", labels("1"))
	mux := http.NewServeMux()
	serveDiscovery(mux, `{"name":"pods","singularName":"pod","namespaced":true,"kind":"Pod","shortNames":["po"],"verbs":["get","list","watch"]}`)
	mux.Handle("GET /api/v1/pods", pods)
	server := httptest.NewServer(mux)
	defer func() { server.CloseClientConnections(); server.Close() }()
	config := filepath.Join(t.TempDir(), "kubeconfig")
	writeFile(t, config, kubeconfig(server.URL))

	ctx, cancel := context.WithCancel(t.Context())
	var stderr testkit.Buffer
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{
			"run", "--config", file, "--kubeconfig", config, "--state-dir", t.TempDir(), "--admin-address", "",
		}, nil, io.Discard, &stderr)
	}()
	client := connect(t, "nats://"+nats, &stderr)
	defer client.Close()
	for channel, subject := range map[string]string{"audit": "k8s.>", "whole": "whole.>"} {
		readStream(t, client, channel, subject, &got)
	}
	readKafka(ctx, t, kafka.ListenAddrs(), &got)
	has := func(n int) func() bool {
		return func() bool {
			counts := map[string]int{}
			for _, m := range got.all() {
				counts[m.channel]++
			}
			return counts["audit"] >= n && counts["whole"] >= n && counts["lake"] >= n && counts["functions"] >= n
		}
	}
	testkit.Eventually(t, "the first list", has(2))
	pods.Update("shop/web-0", labels("2"))
	testkit.Eventually(t, "an update", has(3))
	pods.Delete("shop/web-0")
	testkit.Eventually(t, "a delete", has(4))
	cancel()
	if c := <-code; c != ExitClean {
		t.Errorf("exit code %d\n%s", c, stderr.String())
	}

	seen := map[string]bool{}
	for _, m := range got.all() {
		name, problem := doc.check(&m)
		if problem != "" {
			t.Errorf("%s %v %s\n%s: %s", m.address, m.headers, m.body, name, problem)
		}
		seen[name] = true
		if broken := breakMessage(m); broken != nil {
			if _, problem := doc.check(broken); problem == "" {
				t.Errorf("what is broken passes: %v %s", broken.headers, broken.body)
			}
		}
	}
	for _, channel := range []string{"audit", "whole", "lake", "functions"} {
		for _, what := range []string{"object.added", "object.updated", "object.deleted", "informer.synced"} {
			if !seen[channel+".all."+what] {
				t.Errorf("%s has sent no %s; seen: %v", channel, what, seen)
			}
		}
	}
	if !seen["lake.tombstone"] {
		t.Error("no tombstone was read")
	}
}

// breakMessage is a message without an attribute, or with data of another form; nil for a
// tombstone.
func breakMessage(m sent) *sent {
	for name := range m.headers {
		if strings.HasSuffix(name, "partitionkey") {
			broken := sent{m.channel, m.address, map[string]string{}, m.body}
			for k, v := range m.headers {
				if k != name {
					broken.headers[k] = v
				}
			}
			return &broken
		}
	}
	if m.body == nil {
		return nil
	}
	return &sent{m.channel, m.address, m.headers, bytes.Replace(m.body, []byte(`"partitionkey"`), []byte(`"other"`), 1)}
}

func readStream(t *testing.T, client *natsgo.Conn, channel, subject string, got *published) {
	t.Helper()
	js, err := client.JetStream()
	testkit.OK(t, err)
	testkit.Eventually(t, "the stream of "+subject, func() bool {
		_, err := js.Subscribe(subject, func(m *natsgo.Msg) {
			s := sent{channel, m.Subject, map[string]string{}, m.Data}
			for name := range m.Header {
				s.headers[name] = m.Header.Get(name)
				if len(m.Header[name]) == 1 {
					s.headers[name] = m.Header[name][0]
				}
			}
			if len(m.Data) == 0 {
				s.body = nil
			}
			got.add(s)
		}, natsgo.OrderedConsumer())
		return err == nil
	})
}

// consumer reads a topic from its start.
func consumer(t *testing.T, brokers []string, topic string) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond),
		kgo.DisableFetchSessions()) // with them, Close has a data race in franz-go
	testkit.OK(t, err)
	t.Cleanup(client.Close)
	return client
}

func readKafka(ctx context.Context, t *testing.T, brokers []string, got *published) {
	t.Helper()
	reader := consumer(t, brokers, "k8s.dev-cluster.pods")
	go func() {
		for ctx.Err() == nil {
			reader.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
				s := sent{"lake", r.Topic, map[string]string{}, r.Value}
				for _, h := range r.Headers {
					s.headers[h.Key] = string(h.Value)
				}
				got.add(s)
			})
		}
	}()
}
