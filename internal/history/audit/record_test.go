package audit

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/metric"
	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/testkit"
)

// recording is a history, and recorders of it, one after the other.
type recording struct {
	*testing.T
	db       *history.DB
	config   Config
	registry *prometheus.Registry
	end      func()
}

func startRecording(t *testing.T, c Config) *recording {
	db, err := history.Open(history.Options{Dir: t.TempDir()})
	testkit.OK(t, err)
	r := &recording{T: t, db: db, config: c, end: func() {}}
	t.Cleanup(func() {
		r.end()
		_ = db.Close()
	})
	r.start()
	return r
}

// start starts a recorder, once another one has ended.
func (r *recording) start() {
	r.Helper()
	r.end()
	r.registry = prometheus.NewPedanticRegistry()
	recorder := &Recorder{
		Config: r.config, Cluster: "prod", Store: r.db.Requests, Log: slog.New(slog.DiscardHandler),
		Metrics: NewMetrics(metric.With(r.registry)), Pseudonym: func(user string) string { return "hash of " + user },
		pace: 20,
	}
	ctx, cancel := context.WithCancel(r.Context())
	var running sync.WaitGroup
	running.Go(func() { recorder.Run(ctx) })
	r.end = func() { cancel(); running.Wait() }
}

// users are those with a claim.
func (r *recording) users(claim string) (users []string) {
	r.Helper()
	recorded, err := NewRecorded(r.db.Questions, "prod")
	testkit.OK(r.T, err)
	if recorded == nil {
		return nil
	}
	requests, err := recorded.Claiming(claim)
	testkit.OK(r.T, err)
	for _, request := range requests {
		users = append(users, request.User)
	}
	return users
}

// waitFor waits until the requests with claims U0 to Un-1 are there, once each.
func (r *recording) waitFor(n int) {
	r.Helper()
	testkit.Eventually(r.T, fmt.Sprintf("%d requests", n), func() bool { return len(r.users(fmt.Sprint("U", n-1))) > 0 })
	for i := range n {
		if got := r.users(fmt.Sprint("U", i)); len(got) != 1 {
			r.Fatalf("claim U%d has %v", i, got)
		}
	}
}

func (r *recording) losses() float64 {
	return testkit.Metrics(r.T, r.registry)["bridge_audit_losses_total"]
}

// log is a file of an API server, which is rotated as the API server does.
type log struct {
	*testing.T
	path    string
	begin   int // minutes from noon to its first event
	written int
	rotated int
}

// write appends events, of which some come in two parts.
func (l *log) write(n int) {
	l.Helper()
	f, err := os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	testkit.OK(l.T, err)
	defer f.Close()
	for range n {
		text := line("ann", "patch", l.begin+l.written, 200, fmt.Sprintf("uid:u1 U%d", l.written), fmt.Sprintf(`auditID="%d"`, l.written)) + "\n"
		cut := rand.IntN(len(text))
		for _, part := range []string{text[:cut], text[cut:]} {
			_, err = f.WriteString(part)
			testkit.OK(l.T, err)
		}
		l.written++
	}
}

// rotate renames the file, and returns the new name.
func (l *log) rotate() string {
	l.Helper()
	l.rotated++
	to := strings.TrimSuffix(l.path, ".log") + fmt.Sprintf("-%03d.log", l.rotated)
	testkit.OK(l.T, os.Rename(l.path, to))
	return to
}

// compress replaces a file by a compressed one, slowly.
func (l *log) compress(path string) {
	l.Helper()
	text, err := os.ReadFile(path)
	testkit.OK(l.T, err)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err = z.Write(text)
	testkit.OK(l.T, err)
	testkit.OK(l.T, z.Close())
	f, err := os.Create(path + ".gz")
	testkit.OK(l.T, err)
	defer f.Close()
	_, err = f.Write(packed.Bytes()[:packed.Len()/2])
	testkit.OK(l.T, err)
	time.Sleep(pollEvery / 10)
	_, err = f.Write(packed.Bytes()[packed.Len()/2:])
	testkit.OK(l.T, err)
	testkit.OK(l.T, os.Remove(path))
}

func newLog(t *testing.T) *log {
	return &log{T: t, path: filepath.Join(t.TempDir(), "audit.log"), begin: -20_000}
}

func (l *log) pattern() string { return strings.TrimSuffix(l.path, ".log") + "*.log*" }

// Each event of files is stored once, whatever happens to the files and to the recorder.
func TestFiles(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.write(3)
	l.rotate()
	l.write(2)
	r := startRecording(t, Config{Files: []string{l.pattern()}, Groups: true})
	r.waitFor(5) // what was there before
	l.write(1)
	r.waitFor(6)
	old := l.rotate()
	l.write(700) // more than a batch
	r.waitFor(706)
	l.compress(old)
	l.write(1)
	r.waitFor(707)

	r.end() // a kill would do no more: each batch is stored with its position
	l.write(2)
	rotated := l.rotate()
	l.write(1)
	r.start()
	r.waitFor(710)
	l.compress(rotated)
	testkit.OK(t, os.Remove(old+".gz"))
	testkit.OK(t, os.Remove(l.rotate())) // within a poll: it is open
	l.write(1)
	r.waitFor(711)
	r.end() // requests are counted when they are stored
	if n := testkit.Metrics(t, r.registry)["bridge_audit_requests_total"]; n != 4 {
		t.Errorf("after the restart %v were stored", n)
	}
	if n := r.losses(); n != 0 {
		t.Errorf("%v losses", n)
	}
}

// What was removed or cut before it was read is a loss, with its time.
func TestLosses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		harm func(l *log)
		want float64
	}{
		"none":                    {func(l *log) { l.rotate() }, 0},
		"removed while it ran":    {func(l *log) { testkit.OK(l.T, os.Remove(l.path)) }, 1},
		"truncated":               {func(l *log) { testkit.OK(l.T, os.Truncate(l.path, 0)) }, 1},
		"removed after the newer": {func(l *log) { path := l.rotate(); l.write(1); testkit.OK(l.T, os.Remove(path)) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLog(t)
			l.write(3)
			r := startRecording(t, Config{Files: []string{l.pattern()}, Complete: true})
			r.waitFor(3)
			r.end()
			began := time.Now()
			c.harm(l)
			l.write(1)
			r.start()
			r.waitFor(l.written)
			testkit.Eventually(t, "it is said", func() bool { return r.losses() == c.want })
			recorded, err := NewRecorded(r.db.Questions, "prod")
			testkit.OK(t, err)
			testkit.Eventually(t, "the log is read up to now", func() bool {
				recorded, err = NewRecorded(r.db.Questions, "prod")
				return err == nil && !strings.Contains(recorded.Lacks(began, began.Add(time.Millisecond)), "not recorded so far")
			})
			if lacks := recorded.Lacks(began, began.Add(time.Millisecond)); (lacks == "") != (c.want == 0) {
				t.Error(lacks)
			}
			if got := recorded.IsComplete(began, began.Add(time.Millisecond)); got != (c.want == 0) {
				t.Error(got)
			}
			if lacks := recorded.Lacks(noon.AddDate(-1, 0, 0), noon); !strings.Contains(lacks, "not recorded then") {
				t.Error(lacks)
			}
		})
	}
}

// A line that is too long, or no event, is counted, and the others are stored.
func TestHostileLines(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.write(1)
	f, err := os.OpenFile(l.path, os.O_APPEND|os.O_WRONLY, 0)
	testkit.OK(t, err)
	defer f.Close()
	for _, bad := range []string{"{}\n", "\x00\xff\n", strings.Repeat("x", maxLine+100_000) + "\n", "\n"} {
		_, err = f.WriteString(bad)
		testkit.OK(t, err)
	}
	l.write(1)
	r := startRecording(t, Config{Files: []string{l.pattern()}})
	r.waitFor(2)
	if n := testkit.Metrics(t, r.registry)["bridge_audit_unreadable_total"]; n != 3 {
		t.Errorf("%v can't be read", n)
	}
	recorded, err := NewRecorded(r.db.Questions, "prod")
	testkit.OK(t, err)
	if got := recorded.Lacks(noon, noon); !strings.Contains(got, "can't be read") {
		t.Errorf("each may have been a write, but: %q", got)
	}
}

// With users: hashed no name is stored but those of the system, and without groups no group.
func TestPrivacy(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	for i, user := range []string{`{"username":"ann","groups":["devs"]}`, `{"username":"system:node:a","groups":["nodes"]}`} {
		testkit.OK(t, os.WriteFile(fmt.Sprint(l.path, i), []byte(line("", "patch", i, 200, fmt.Sprint("uid:u1 U", i), "user="+user,
			`impersonatedUser={"username":"bob"}`)+"\n"), 0o600))
	}
	r := startRecording(t, Config{Files: []string{l.path + "*"}, Users: "hashed"})
	r.waitFor(2)
	recorded, err := NewRecorded(r.db.Questions, "prod")
	testkit.OK(t, err)
	var got []string
	for _, claim := range []string{"U0", "U1"} {
		requests, err := recorded.Claiming(claim)
		testkit.OK(t, err)
		got = append(got, fmt.Sprint(requests[0].User, requests[0].Impersonator, requests[0].Groups))
	}
	if want := []string{"hash of bobhash of ann[]", "hash of bobsystem:node:a[]"}; !slices.Equal(got, want) {
		t.Error(got)
	}
}

// Posts are stored before they are answered, and only those of who is admitted.
func TestWebhook(t *testing.T) {
	t.Parallel()
	ca := testkit.NewCA(t)
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	testkit.OK(t, os.WriteFile(token, []byte("a token of sixteen\n"), 0o600))
	cert, key := ca.Files(t, dir)
	config := Config{Address: testkit.Address(t), CertFile: cert, KeyFile: key, TokenFile: token}
	ps := &settings.Report{}
	config.Validate(ps, "audit")
	if list := ps.List(); len(list) > 0 {
		t.Fatal(list)
	}
	r := startRecording(t, config)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool}}}
	post := func(body, token string) int {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+config.Address+"/", strings.NewReader(body))
		testkit.OK(t, err)
		request.Header.Set("Authorization", "Bearer "+token)
		answer, err := client.Do(request)
		if err != nil {
			return 0
		}
		defer answer.Body.Close()
		_, err = io.Copy(io.Discard, answer.Body)
		testkit.OK(t, err)
		return answer.StatusCode
	}
	list := func(n int) string {
		return `{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":[` +
			strings.Replace(line("ann", "patch", n, 200, fmt.Sprint("uid:u1 U", n)), `"kind":"Event",`, "", 1) + "]}" // as an API server posts it
	}
	const good = "a token of sixteen"
	testkit.Eventually(t, "it listens", func() bool { return post(list(0), good) == http.StatusOK })
	for body, want := range map[string]int{
		list(0): http.StatusOK, "{}": http.StatusBadRequest, `{"kind":"EventList","items":3}`: http.StatusBadRequest,
		list(1):                             http.StatusOK,
		strings.Repeat(" ", maxPost) + "{}": http.StatusRequestEntityTooLarge,
	} {
		if got := post(body, good); got != want {
			t.Errorf("%.40s: %d, want %d", body, got, want)
		}
	}
	if got := post(list(2), "another"); got != http.StatusUnauthorized {
		t.Error(got)
	}
	if a, b, c := r.users("U0"), r.users("U1"), r.users("U2"); len(a) != 1 || len(b) != 1 || len(c) != 0 {
		t.Error(a, b, c)
	}
	if n := r.losses(); n != 1 {
		t.Errorf("%v losses: the post that was too large is one", n)
	}
}

// What an API server gave up to post is missing, and what came before the webhook did is not known.
func TestWebhookMisses(t *testing.T) {
	t.Parallel()
	db, err := history.Open(history.Options{Dir: t.TempDir()})
	testkit.OK(t, err)
	defer db.Close()
	now := time.Now()
	w := &webhook{source: &source{
		name: webhookName, state: state{Since: now.Add(-time.Hour)},
		Recorder: &Recorder{
			Cluster: "prod", Store: db.Requests, Log: slog.New(slog.DiscardHandler),
			Metrics: NewMetrics(metric.With(prometheus.NewPedanticRegistry())),
		},
	}}
	handler := w.handler()
	post := func(ctx context.Context, body io.Reader) {
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodPost, "/", body))
	}
	lacks := func(at time.Time) string {
		t.Helper()
		recorded, err := NewRecorded(db.Questions, "prod")
		testkit.OK(t, err)
		return recorded.Lacks(at, at)
	}
	old := `{"kind":"EventList","items":[` + line("ann", "patch", -500_000, 200, "uid:u1 U1") + "]}"
	post(t.Context(), strings.NewReader(old))
	if got := lacks(now.Add(-30 * time.Minute)); got != "" {
		t.Error(got)
	}
	if got := lacks(now.Add(-2 * time.Hour)); got != lacksBefore {
		t.Errorf("before the webhook: %q", got)
	}

	var slow sync.WaitGroup
	var bodies []*io.PipeWriter
	for range maxPostings {
		read, write := io.Pipe()
		bodies = append(bodies, write)
		slow.Go(func() { post(t.Context(), read) })
		_, err := io.WriteString(write, "{") // it is read: the post has its slot
		testkit.OK(t, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 3 {
		post(ended, strings.NewReader(old))
	}
	for _, body := range bodies {
		testkit.OK(t, body.Close())
	}
	slow.Wait()
	post(t.Context(), strings.NewReader(old))
	if len(w.state.Losses) != 1 || w.state.lacks(now.Add(-webhookLag/2), now.Add(-webhookLag/2)) == "" {
		t.Errorf("%+v", w.state)
	}
}

// A source that the configuration names no more is not waited for, and its time stays known.
func TestOtherSources(t *testing.T) {
	t.Parallel()
	first, second := newLog(t), newLog(t)
	first.write(3)
	r := startRecording(t, Config{Files: []string{first.pattern()}})
	r.waitFor(3)
	lacks := func(at time.Time) string {
		t.Helper()
		recorded, err := NewRecorded(r.db.Questions, "prod")
		testkit.OK(t, err)
		return recorded.Lacks(at, at)
	}
	then := time.Now().Add(-time.Hour)
	testkit.Eventually(t, "the first log is read so far", func() bool { return lacks(then) == "" })
	r.config.Files = []string{second.pattern()}
	r.start()
	second.begin = int(time.Since(noon).Minutes())
	second.write(1)
	testkit.Eventually(t, "the second log has begun", func() bool { return len(r.users("U0")) == 2 })
	// Of the first log nothing more comes.
	testkit.Eventually(t, "the second log is read so far", func() bool { return lacks(time.Now().Add(-2*lag)) == "" })
	if got := lacks(then); got != "" {
		t.Errorf("when the first was read: %s", got)
	}
	if got := lacks(noon.AddDate(-1, 0, 0)); got != lacksBefore {
		t.Errorf("a year ago: %q", got)
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		config Config
		want   string
	}{
		{Config{}, "audit.files"},
		{Config{Files: []string{"a"}, TokenFile: "t"}, "audit.tokenFile"},
		{Config{Address: "nowhere", CertFile: "c", KeyFile: "k", TokenFile: "t"}, "audit.address"},
		{Config{Address: ":1", TokenFile: "t"}, "audit.certFile"},
		{Config{Address: ":1", CertFile: "c", KeyFile: "k"}, "audit.clientCAFile"},
		{Config{Address: ":1", CertFile: "c", KeyFile: "k", TokenFile: "t", Complete: true}, "audit.complete"},
		{Config{Files: []string{"a"}, Retention: -1}, "audit.retention"},
		{Config{Streams: []Stream{{}}}, "audit.streams[0].from"},
		{Config{Streams: []Stream{{From: "http://a/b"}}}, "audit.streams[0].from"},
		{Config{Streams: []Stream{{From: "nats://a"}}}, "audit.streams[0].from"},
		{Config{Streams: []Stream{{From: "nats://u:p@a/S"}}}, "must have none"},
		{Config{Streams: []Stream{{From: "nats://a/S"}, {From: "nats://a/S"}}}, "audit.streams[1].from"},
		{Config{Streams: []Stream{{From: "kafka://a/t", Subject: "s"}}}, "audit.streams[0].subject"},
		{Config{Streams: []Stream{{From: "kafka://a/t", Delay: attributedBy}}}, "audit.streams[0].delay"},
		{Config{Streams: []Stream{{From: "kafka://a/t"}}, Complete: true}, "audit.complete"},
	} {
		ps := &settings.Report{}
		c.config.Validate(ps, "audit")
		if list := ps.List(); len(list) != 1 || !strings.Contains(list[0].Error(), c.want) {
			t.Errorf("%+v: %v", c.config, list)
		}
	}
}

// BenchmarkRecord records a log as an API server writes it at the level RequestResponse, a request
// each iteration, into a history on this disk.
func BenchmarkRecord(b *testing.B) {
	db, err := history.Open(history.Options{Dir: b.TempDir()})
	testkit.OK(b, err)
	defer db.Close()
	body := `{"metadata":{"uid":"u1","resourceVersion":"20"},"data":{"text":"` + strings.Repeat("x", 600) + `"}}`
	var text bytes.Buffer
	for i := range b.N {
		text.WriteString(line(fmt.Sprint("user-", i%20), "patch", i-b.N-60_000, 200, fmt.Sprintf("uid:u1 U%d", i),
			"responseObject="+strings.Replace(body, `"20"`, fmt.Sprintf(`"%d"`, i+1), 1), "requestObject="+body) + "\n")
	}
	path := filepath.Join(b.TempDir(), "audit.log")
	testkit.OK(b, os.WriteFile(path, text.Bytes(), 0o600))
	b.SetBytes(int64(text.Len() / b.N))
	text = bytes.Buffer{}
	runtime.GC() // of what the benchmark has made
	s := &source{name: path, Recorder: &Recorder{
		Cluster: "prod", Store: db.Requests, Log: slog.New(slog.DiscardHandler), Config: Config{Groups: true},
		Metrics: NewMetrics(metric.With(prometheus.NewPedanticRegistry())),
	}}
	t := &tail{source: s, isFirst: true}
	before := db.Maintenance.DiskBytes()
	began := cpu(b)
	b.ResetTimer()
	testkit.OK(b, t.poll(b.Context()))
	b.StopTimer()
	b.ReportMetric(float64((cpu(b)-began).Microseconds())/float64(b.N), "µs-cpu/op")
	b.ReportMetric(float64(db.Maintenance.DiskBytes()-before)/float64(b.N), "disk-B/op")
}

// cpu is what this process has used.
func cpu(b *testing.B) time.Duration {
	var used syscall.Rusage
	testkit.OK(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
