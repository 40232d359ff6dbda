package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubebridge/bridge/test/e2e/crash"
	"github.com/kubebridge/bridge/test/e2e/harness"
	"github.com/kubebridge/bridge/test/e2e/read"
	"github.com/kubebridge/bridge/test/e2e/soak"
	"github.com/kubebridge/bridge/test/e2e/truth"
)

var (
	soakKill    = flag.Duration("soak.kill", 0, "how long TestSoakKills lets a bridge live before it kills it; 0 skips it")
	soakRestart = flag.Duration("soak.restart", 7*time.Minute, "how often TestSoakKills restarts the NATS server")
	soakRate    = flag.Float64("soak.rate", 550, "how many requests a second TestSoakKills makes; about nine of ten change something")
	soakAsk     = flag.Duration("soak.ask", 300*time.Millisecond, "the pause between two questions to the history of TestSoakKills")
)

// The history forgets, since it would grow with the changes.
const soakKillsYAML = `
informers:
  - {name: app, resources: [pods, deployments.apps, configmaps], namespaces: ["${NS}"]}
sinks:
  - {name: js, nats: {servers: ["nats://${JETSTREAM}"]}}
  - {name: history, history: {retention: 10m}}
`

// TestSoakKills kills the bridge again and again, and restarts its broker, while many objects
// change and somebody asks the history. Nothing is lost, nothing is stored twice, and a late life
// needs at each age what an early one needed.
func TestSoakKills(t *testing.T) {
	if *soakTime == 0 || *soakKill == 0 {
		t.Skip("it takes long: -soak.time=2h -soak.kill=5m")
	}
	s := newSoakKills(t)
	s.begin()
	s.run()
	s.settle()
	s.judge()
}

// soakKills is a run of TestSoakKills.
type soakKills struct {
	*lab
	out    string // directory for what is found
	nats   *soakBroker
	bridge *harness.Bridge
	ledger *truth.Ledger
	reader *read.JetStream
	tally  *soak.Tally
	churns []*crash.Churn
	past   *soakClient

	asking     sync.WaitGroup
	stopAsking func()

	began, born     time.Time // of the test, of this life
	kills, restarts int
	// all has every sample; mature those of a bridge that has lived for half of its time.
	all, mature soak.Series
}

// What the columns may grow by, from the lives of the first window to those of the last. The
// history is removed in steps of its compactions.
var soakKillsColumns = []soak.Column{
	{Name: "resident memory, MiB", Unit: mib, Ratio: 0.25, Slack: 16 * mib},
	{Name: "heap in use, MiB", Unit: mib, Ratio: 0.25, Slack: 8 * mib},
	{Name: "goroutines", Ratio: 0.1, Slack: 4},
	{Name: "open files", Ratio: 0.1, Slack: 4},
	{Name: "state without history, MiB", Unit: mib, Ratio: 0.25, Slack: 32 * mib},
	{Name: "history, MiB", Unit: mib, Ratio: 0.25, Slack: 32 * mib},
	{Name: "change log in memory, KiB", Unit: 1 << 10, Slack: mib},
	{Name: "change log on disk, KiB", Unit: 1 << 10, Slack: mib},
	{Name: "changes that JetStream does not have", Slack: 500},
	{Name: "longest answer, ms", Ratio: 1, Slack: 500},
	{Name: "changes so far"},
}

func newSoakKills(t *testing.T) *soakKills {
	t.Helper()
	c := ownCluster(t, "soaking", noControllers)
	s := &soakKills{
		lab: newLab(t, c), tally: soak.NewTally(),
		all: soak.Series{Columns: soakKillsColumns}, mature: soak.Series{Columns: soakKillsColumns},
	}
	if s.out = *soakDir; s.out == "" {
		s.out = t.ArtifactDir()
	}
	must(t, os.MkdirAll(s.out, 0o755))
	t.Cleanup(s.keepSamples)
	s.nats = &soakBroker{dir: filepath.Join(s.dir, "nats"), port: server.RANDOM_PORT}
	must(t, s.nats.start())
	t.Cleanup(s.nats.stop)
	s.reader = &read.JetStream{URL: s.nats.url(), Stream: "K8S"}
	s.bridge = s.lab.bridge("bridge", soakKillsYAML, with(map[string]string{"JETSTREAM": strings.TrimPrefix(s.nats.url(), "nats://")}))
	s.past = &soakClient{url: s.bridge.AdminURL(), namespace: s.namespace}
	return s
}

// begin starts everything. Some objects stay as they are, so that a list takes a moment.
func (s *soakKills) begin() {
	s.t.Helper()
	value := strings.Repeat("idle ", 200)
	s.each(500, func(i int) { s.createConfigMap(fmt.Sprintf("idle-%d", i), value) })
	s.start(s.bridge)
	s.began, s.born = time.Now(), time.Now()
	s.past.excuse()
	s.ledger = s.witness(s.collections()...)
	s.startChurns()
	ctx, cancel := context.WithCancel(s.ctx)
	s.asking.Go(func() { s.past.run(ctx) })
	s.stopAsking = func() { cancel(); s.asking.Wait() }
	s.t.Cleanup(s.stopAsking)
}

// startChurns begins the changes. Their pauses are short, so that the rate is the client's.
func (s *soakKills) startChurns() {
	s.t.Helper()
	config := rest.CopyConfig(s.Admin())
	config.QPS, config.Burst = float32(*soakRate), 10
	client, err := kubernetes.NewForConfig(config)
	must(s.t, err)
	for range 3 {
		s.churns = append(s.churns, crash.StartChurn(s.ctx, client, s.namespace, rand.Uint64(), 0.1))
	}
}

func (s *soakKills) collections() []truth.Collection {
	return []truth.Collection{
		truth.Core("pods", s.namespace), truth.Named("deployments", "apps", "v1", s.namespace), truth.Core("configmaps", s.namespace),
	}
}

// run measures until the time is over, and kills and restarts meanwhile.
func (s *soakKills) run() {
	s.t.Helper()
	tick := time.NewTicker(min(5*time.Second, *soakTime/100))
	defer tick.Stop()
	restarted := s.began
	for ; time.Since(s.began) < *soakTime; <-tick.C {
		s.compare()
		if time.Since(s.born) >= *soakKill {
			s.kill()
		}
		if time.Since(restarted) >= *soakRestart {
			restarted = time.Now()
			s.restartBroker()
		}
		if !s.bridge.Running() {
			s.t.Fatalf("the bridge has ended; it wrote:\n%s", s.bridge.Log.Tail(10))
		}
		s.measure()
	}
	for _, churn := range s.churns {
		must(s.t, churn.Stop())
	}
	s.stopAsking()
}

func (s *soakKills) kill() {
	s.t.Helper()
	s.kills++
	s.past.excuse()
	s.bridge.Kill()
	must(s.t, s.bridge.Start())
	s.born = time.Now()
}

func (s *soakKills) restartBroker() {
	s.t.Helper()
	const pause = 3 * time.Second
	s.restarts++
	s.nats.stop()
	time.Sleep(pause) // changes wait meanwhile
	must(s.t, s.nats.start())
}

// compare adds what has come to the tally.
func (s *soakKills) compare() {
	s.t.Helper()
	eventually(s.t, "what the broker has", testPatience, func() []string { // it was restarted, or is busy
		if err := addToTally(s.ctx, s.tally, s.ledger, s.reader); err != nil {
			return []string{err.Error()}
		}
		return nil
	})
}

// addToTally adds what the witness has seen, and the stream has stored, since the last call.
func addToTally(ctx context.Context, tally *soak.Tally, ledger *truth.Ledger, reader *read.JetStream) error {
	events, err := reader.Take(ctx)
	if err := errors.Join(err, ledger.Err()); err != nil {
		return err
	}
	changes := ledger.Take()
	for i := range changes {
		c := &changes[i]
		tally.Witness(c.Metadata.UID, c.Metadata.ResourceVersion, c.Type == "DELETED")
	}
	for i := range events {
		switch e := &events[i]; {
		case e.AboutObject():
			tally.Store(e.Attribute("uid"), e.Attribute("resourceversion"), e.Op() == "deleted")
		case e.Op() == "gap":
			tally.Gaps++
		}
	}
	return nil
}

// measure adds a sample, unless the bridge starts at this moment.
func (s *soakKills) measure() {
	s.t.Helper()
	age := time.Since(s.born)
	m, err := s.bridge.Metrics(s.ctx)
	if err != nil && age < settled {
		return
	}
	must(s.t, err)
	state, err := sizeOf(s.bridge.StateDir)
	must(s.t, err)
	past, err := sizeOf(filepath.Join(s.bridge.StateDir, "history"))
	must(s.t, err)
	values := []float64{
		m.Max("process_resident_memory_bytes"), m.Max("go_memstats_heap_inuse_bytes"), m.Max("go_goroutines"), m.Max("process_open_fds"),
		float64(max(0, state-past)), float64(past), m.Sum("bridge_informer_log_bytes"), m.Sum("bridge_informer_spool_bytes"),
		float64(max(0, s.tally.Witnessed-s.tally.Stored)), s.past.longest(), float64(s.tally.Witnessed),
	}
	at := time.Since(s.began)
	s.all.Add(at, values...)
	if age >= *soakKill/2 {
		s.mature.Add(at, values...)
	}
}

// settled is how long after a start a bridge must answer everything.
const settled = 20 * time.Second

// settle waits until the stream and the history have what the cluster has.
func (s *soakKills) settle() {
	s.t.Helper()
	eventually(s.t, "the stream", 2*testPatience, func() []string {
		s.compare()
		if s.tally.Missing() > 0 {
			return []string{s.tally.String()}
		}
		return nil
	})
	exist := s.exists(s.collections())
	eventually(s.t, "the history", 2*testPatience, func() []string { return s.past.lacks(s.ctx, exist) })
	s.stop(s.bridge)
	_, err := s.bridge.Output(s.ctx, "history", "check")
	must(s.t, err)
}

// keepSamples leaves all samples as a file, also those of a run that fails.
func (s *soakKills) keepSamples() {
	file, err := os.Create(filepath.Join(s.out, "soak.csv"))
	must(s.t, err)
	must(s.t, s.all.WriteCSV(file))
	must(s.t, file.Close())
}

// judge prints the table, leaves it as a file, and fails for what is wrong.
func (s *soakKills) judge() {
	s.t.Helper()
	part := func(from, to float64) soak.Window {
		return soak.Window{From: time.Duration(float64(*soakTime) * from), To: time.Duration(float64(*soakTime) * to)}
	}
	first, last := part(0.2, 0.5), part(0.7, 1)
	text := fmt.Sprintf("soak of %v, %.0f changes/s, %d kills, %d restarts of the NATS server; lives of at least %v are compared\n%s\n%s%s\n",
		*soakTime, float64(s.tally.Witnessed)/soakTime.Seconds(), s.kills, s.restarts, *soakKill/2, s.tally, s.mature.Table(first, last), s.past)
	s.t.Logf("\n%s", text)
	must(s.t, os.WriteFile(filepath.Join(s.out, "soak.txt"), []byte(text), 0o644))
	for _, problem := range append(s.mature.Problems(first, last), s.tally.Problems...) {
		s.t.Error(problem)
	}
	if s.tally.Missing()+s.tally.Foreign()+s.tally.Gaps > 0 {
		s.t.Error(s.tally)
	}
	if s.past.failed > 0 {
		s.t.Error(s.past)
	}
}

// soakBroker is a NATS server that keeps its streams and its address over restarts.
type soakBroker struct {
	dir  string
	port int
	*server.Server
}

func (b *soakBroker) start() error {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: b.port, JetStream: true, StoreDir: b.dir, NoSigs: true, NoLog: true})
	if err != nil {
		return err
	}
	s.Start()
	if !s.ReadyForConnections(testPatience) {
		return errors.New("the NATS server does not start")
	}
	b.Server = s
	return nil
}

func (b *soakBroker) url() string { return b.ClientURL() }

func (b *soakBroker) stop() {
	b.port = b.Addr().(*net.TCPAddr).Port
	b.Shutdown()
	b.WaitForShutdown()
}

// soakClient asks the history again and again.
type soakClient struct {
	url, namespace string

	mu       sync.Mutex
	excused  time.Time     // guarded by mu: when a bridge was last killed
	slowest  time.Duration // guarded by mu: since the last sample
	answered int           // guarded by mu
	failed   int           // guarded by mu: without an excuse
	lastErr  error         // guarded by mu: of those
}

// run asks until ctx ends.
func (a *soakClient) run(ctx context.Context) {
	questions := []struct {
		name string
		q    url.Values
	}{
		{"state", nil},
		{"timeline", url.Values{"limit": {"200"}}},
		{"versions", url.Values{"object": {"cm/map-0-1"}, "limit": {"50"}}},
		{"state", url.Values{"kind": {"pods"}, "at": {"2m ago"}}},
	}
	for i := 0; ctx.Err() == nil; i++ {
		began := time.Now()
		_, err := a.ask(ctx, questions[i%len(questions)].name, questions[i%len(questions)].q)
		if ctx.Err() == nil {
			a.note(began, err)
		}
		select {
		case <-time.After(*soakAsk):
		case <-ctx.Done():
		}
	}
}

// ask gives the answer to a question.
func (a *soakClient) ask(ctx context.Context, question string, more url.Values) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, testPatience)
	defer cancel()
	q := url.Values{"namespace": {a.namespace}}
	maps.Copy(q, more)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url+"/history/"+question+"?"+q.Encode(), nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", question, response.Status, bytes.TrimSpace(body))
	}
	return string(body), err
}

// lacks gives the objects that the history does not have in their newest version.
func (a *soakClient) lacks(ctx context.Context, exist []truth.Change) (missing []string) {
	answer, err := a.ask(ctx, "state", nil)
	if err != nil {
		return []string{err.Error()}
	}
	for i := range exist {
		m := exist[i].Metadata
		if !strings.Contains(answer, strconv.Quote(m.UID)) || !strings.Contains(answer, strconv.Quote(m.ResourceVersion)) {
			missing = append(missing, m.Name+" in version "+m.ResourceVersion)
		}
	}
	return missing
}

func (a *soakClient) note(began time.Time, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case err == nil:
		a.answered++
		a.slowest = max(a.slowest, time.Since(began))
	case began.Sub(a.excused) > settled: // so it is not younger than the bridge either
		a.failed++
		a.lastErr = err
	}
}

// excuse says that the bridge is about to be killed: for a while, it need not answer.
func (a *soakClient) excuse() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.excused = time.Now()
}

// longest is how many milliseconds an answer took since the last call.
func (a *soakClient) longest() float64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	took := a.slowest
	a.slowest = 0
	return float64(took.Milliseconds())
}

// String is the account as a line of a report.
func (a *soakClient) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return fmt.Sprintf("questions: %d answered, %d failed (%v)", a.answered, a.failed, a.lastErr)
}
