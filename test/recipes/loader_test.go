package recipes_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A loader continues behind what it has of a stream, and reads a recreated one from its beginning,
// also where that is longer than the old one was.
func TestRecreatedStream(t *testing.T) {
	l := &lab{t: t, addresses: map[string]string{}}
	l.dir, l.env = directory(t, "analytics.md")
	readPage(t, "analytics.md", l.addresses).writeFiles(t, l.dir)
	_, text, err := net.SplitHostPort(l.addresses[natsAddress])
	must(t, err)
	port, err := strconv.Atoi(text)
	must(t, err)
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
	})
	must(t, err)
	s.Start()
	t.Cleanup(s.Shutdown)
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the server is not ready")
	}
	conn, err := nats.Connect(s.ClientURL())
	must(t, err)
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	must(t, err)
	publish := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			m := nats.NewMsg("k8s.test")
			for name, value := range map[string]string{"id": fmt.Sprint(i), "source": "/s", "informer": "i", "name": "a%20b"} {
				m.Header["ce-"+name] = []string{value}
			}
			for name := range strings.FieldsSeq("type subject sequence partitionkey apiversion kind resource namespace" +
				" uid resourceversion previous manager timesource") {
				m.Header["ce-"+name] = []string{"a value of its size"}
			}
			m.Header["ce-time"] = []string{"2026-11-28T02:04:25.123456789Z"}
			m.Data = []byte(`{"metadata":{"name":"a b"},"é":"` + strings.Repeat("x", 1500) + `"}`)
			_, err := js.PublishMsgAsync(m)
			must(t, err)
		}
		<-js.PublishAsyncComplete()
	}
	loaders := []string{"load_duckdb.py", "load_clickhouse.py"}
	rows := func(when string, want int) {
		t.Helper()
		for i, engine := range []string{"duckdb", "clickhouse"} {
			l.run("python3", loaders[i])
			l.run("python3", loaders[i]) // nothing is new
			must(t, os.WriteFile(filepath.Join(l.dir, "count.sql"),
				[]byte("SELECT count(DISTINCT id), min(name) FROM events"), 0o600))
			if got := strings.Fields(l.run("python3", "ask_"+engine+".py", "count.sql")); !slices.Equal(got, []string{fmt.Sprint(want), "a", "b"}) {
				t.Errorf("%s has %v rows %s, want %d", engine, got, when, want)
			}
		}
	}
	stream := jetstream.StreamConfig{Name: "K8S", Subjects: []string{"k8s.>"}}
	_, err = js.CreateStream(t.Context(), stream)
	must(t, err)
	publish(0, 100)
	rows("of the first stream", 100)
	must(t, js.DeleteStream(t.Context(), "K8S"))
	_, err = js.CreateStream(t.Context(), stream)
	must(t, err)
	publish(100, 300)
	rows("after a longer stream took its place", 300)
	l.losesBoth(js)
	publish(300, 20_300)
	cmd, printed := l.start(t.Context(), "python3", "load_duckdb.py")
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, printed)
	}
	used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime() // other tests run beside
	if rate := 20_000 / used.Seconds(); rate < 2500 {
		t.Errorf("%.0f rows a second of a processor were loaded", rate)
	} else {
		t.Logf("%.0f rows a second of a processor, the start included", rate)
	}
}

// losesBoth has the bridge lose its state and its stream together, while an object is deleted: the
// new stream never says so, and its first list has ids that the tables have already, and sequences
// that the old stream had passed. Then the broker loses events, until a first list.
func (l *lab) losesBoth(js jetstream.JetStream) {
	l.t.Helper()
	publish := func(kind, name, id, data string, more ...string) {
		l.t.Helper()
		m := nats.NewMsg("k8s.test")
		for attribute, value := range map[string]string{
			"id": id, "source": "/begun", "informer": "i", "type": "dev.kubebridge." + kind,
			"apiversion": "apps/v1", "resource": "deployments", "sequence": id, "namespace": "shop", "uid": name,
			"time": "2026-11-28T02:04:25Z",
		} {
			m.Header["ce-"+attribute] = []string{value}
		}
		if name != "" {
			m.Header["ce-name"], m.Header["ce-partitionkey"] = []string{name}, []string{"deployments.apps/shop/" + name}
		}
		for _, attribute := range more { // name=value
			attribute, value, _ := strings.Cut(attribute, "=")
			m.Header["ce-"+attribute] = []string{value}
		}
		m.Data = []byte(data)
		_, err := js.PublishMsg(l.t.Context(), m)
		must(l.t, err)
	}
	questions := map[string]string{
		"duckdb": l.query("current.sql", "SELECT namespace, name, data",
			"SELECT name FROM current WHERE source = '/begun'"),
		"clickhouse": strings.Replace(l.query("current_clickhouse.sql", "  AND partitionkey LIKE", "  AND source = '/begun'"),
			"SELECT namespace, name, uid", "SELECT name", 1),
	}
	exist := func(when string, want ...string) {
		l.t.Helper()
		for engine, question := range questions {
			l.run("python3", "load_"+engine+".py")
			got := l.ask(engine, question)
			slices.Sort(got)
			if !slices.Equal(got, want) {
				l.t.Errorf("%s %s has %q, want %q", when, engine, got, want)
			}
		}
	}
	publish("resource.added", "kept", "ua/1", "{}")
	publish("resource.added", "gone", "ub/2", "{}")
	publish("informer.synced", "", "i/synced/3", `{"version":"3","items":2,"first":true}`)
	publish("resource.added", "later", "ud/8", "{}")
	publish("resource.added", "alone", "uc/4", "{}")
	publish("resource.deleted", "alone", "uc/deleted", "{}")
	publish("resource.attributed", "alone", "uc/deleted/actor", `{"user":"ann"}`, "sequence=uc/deleted")
	exist("before", "gone", "kept", "later")
	must(l.t, js.DeleteStream(l.t.Context(), "K8S"))
	_, err := js.CreateStream(l.t.Context(), jetstream.StreamConfig{Name: "K8S", Subjects: []string{"k8s.>"}})
	must(l.t, err)
	publish("resource.added", "kept", "ua/1", "{}")
	publish("resource.added", "later", "ud/0", "{}")
	publish("informer.synced", "", "i/synced/9", `{"version":"9","items":1,"first":true}`)
	warned := func(when, want string) {
		l.t.Helper()
		if got := l.run("python3", "load_duckdb.py"); !strings.Contains(got, want) || want == "" && got != "" {
			l.t.Errorf("%s the loader prints %q, want %q", when, got, want)
		}
	}
	warned("after both were lost", "the stream was recreated")
	exist("after both were lost", "kept", "later")
	publish("informer.gap", "", "i/gap/lost/1", `{"reason":"lost","from":"","to":"9"}`)
	warned("after a loss", "gap lost i deployments 2026-11-28T02:04:25Z")
	warned("later", "what exists may be wrong since a gap: i deployments lost 2026-11-28")
	publish("informer.synced", "", "i/synced/10", `{"version":"10","items":2,"first":false}`)
	warned("after a list of what differs", "what exists may be wrong")
	publish("informer.synced", "", "i/synced/11", `{"version":"11","items":2,"first":true}`)
	warned("after a first list", "")
	l.asksValues(publish)
}

// asksValues asks for the changes of a value that comes, changes, stays and goes, the last time
// behind a version that is missing.
func (l *lab) asksValues(publish func(kind, name, id, data string, more ...string)) {
	l.t.Helper()
	l.env = append(l.env, "TZ=UTC")
	for i, labels := range []string{`{}`, `{"a":"1"}`, `{"a":"1"}`, `{"a":"2"}`, `{}`} {
		previous := i - 1
		if i == 4 {
			previous = 30
		}
		publish("resource.updated", "valued", fmt.Sprint("ue/", i), `{"labels":`+labels+`}`,
			fmt.Sprint("resourceversion=", i), fmt.Sprint("previous=", previous), fmt.Sprint("manager=m", i))
	}
	publish("resource.deleted", "valued", "ue/deleted", `{"labels":{"a":"3"}}`)
	publish("resource.updated", "timed", "ut/1", "{}", "time=2026-11-28T03:00:00Z")
	publish("informer.gap", "", "i/gap/lost/2", `{"reason":"lost"}`, "time=2026-11-28T03:10:00Z")
	publish("informer.synced", "", "i/synced/12", `{"version":"12","items":2,"first":true}`, "time=2026-11-28T03:20:00Z")
	l.run("python3", "load_duckdb.py")
	for at, want := range map[string]string{
		"2026-11-28T02:50:00Z": "", "2026-11-28T03:30:00Z": "",
		"2026-11-28T03:05:00Z": "not known at 2026-11-28T03:05:00Z: i deployments, lost between 2026-11-28 03:00:00+00 and 2026-11-28 03:20:00+00\n",
	} {
		if got := l.run("python3", "ask_duckdb.py", "then.sql", "none", at); got != want {
			l.t.Errorf("at %s: %q, want %q", at, got, want)
		}
	}
	for file, want := range map[string]string{
		"field.sql": "2026-11-28 02:04:25+00 shop valued m1 None 1\n2026-11-28 02:04:25+00 shop valued m3 1 2\n" +
			"2026-11-28 02:04:25+00 shop valued None 2 None\n",
		"most.sql": "2026-11-28 02:04:25+00 shop valued 3\n",
	} {
		if got := l.run("python3", "ask_duckdb.py", file, "deployments.apps/shop/valued", "$.labels.a"); got != want {
			l.t.Errorf("%s: %q, want %q", file, got, want)
		}
	}
}
