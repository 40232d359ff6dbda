package bridge_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/reflector"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/store/statedb"
	"github.com/kubebridge/bridge/internal/testkit"
)

var (
	modelRounds  = flag.Int("bridge.model.rounds", 10, "rounds of the randomised test of the whole pipeline")
	modelSeed    = flag.Uint64("bridge.model.seed", 1, "seed of its first round; 0 for a new one in each round")
	modelSteps   = flag.Int("bridge.model.steps", 120, "steps of a round")
	modelVerbose = flag.Bool("bridge.model.verbose", false, "show the bridge's log")
)

// TestModelUnderAllFaults runs the whole pipeline, from a scripted API server
// to brokers in memory, through random histories: writes, expired versions, rewinds, broken
// streams, refusals; brokers that are unavailable, hang, refuse, or take a message and lose the
// answer; stops and crashes, which lose what was not synced. A reader then compares each stream
// with what the server truly did.
func TestModelUnderAllFaults(t *testing.T) {
	for round := range testkit.Rounds(*modelRounds, 2) {
		seed := *modelSeed + uint64(round)
		if *modelSeed == 0 {
			seed = rand.Uint64() >> 1
		}
		ok := t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel(t, seed)
				m.poison(seed)
				m.play(*modelSteps)
			})
		})
		if !ok {
			t.Fatalf("to see it again: go test ./internal/bridge -run UnderAllFaults -bridge.model.rounds 1 -bridge.model.steps %d -bridge.model.seed %d", *modelSteps, seed)
		}
	}
}

// model is one round.
type model struct {
	t        *testing.T
	rng      *rand.Rand
	cluster  *cluster
	features testkit.Features // of the cluster
	brokers  []*testkit.Broker
	unit     informer.Config
	retry    publisher.Config
	commit   time.Duration
	recall   bool         // the brokers can be read back
	http     *http.Client // nil for the cluster's
	reloads  bool         // the configuration changes while the bridge runs
	healed   bool         // in the end everything can be understood
	stalls   *stalls      // objects that brokers do not take; nil for none
	// announced are, by run, what units that ended early within it had announced.
	announced map[int]map[string]int64
	restarts  []moment // of units, within a run

	fs        *vfs.MemFS
	disk      func(vfs.FS) vfs.FS  // put between the state and fs; nil for nothing
	tables    uint64               // bytes after which the state goes from its log into tables
	bodies    int                  // a second; 0 for all
	life      *life                // the process that runs; nil when none does
	running   atomic.Pointer[life] // the same, for whoever is not the test itself
	clean     bool                 // the last run ended with everything sent
	states    []state              // that each run began with
	rewinds   []moment             // of the cluster
	rewinding bool                 // the cluster was rewound and the bridge has not worked through it: versions must not pass its watermark
	causes    map[string]int
	trace     []string
}

// moment is when the cluster's history became another.
type moment struct{ at time.Time }

// life is one process.
type life struct {
	db       *store.DB
	bridge   *bridge.Bridge
	sessions []*testkit.Session
	stop     context.CancelCauseFunc
	done     chan error
}

func newModel(t *testing.T, seed uint64) *model {
	rng := rand.New(rand.NewPCG(seed, 0))
	m := &model{t: t, rng: rng, fs: vfs.NewCrashableMem(), tables: 256 << 10, causes: map[string]int{}, announced: map[int]map[string]int64{}}
	typ := pods
	if m.one(3) {
		typ = widgets
	}
	m.cluster = newCluster(t, typ, rng, 3+rng.IntN(8))
	m.features = testkit.Features{
		NoWatchList: m.one(5), NoInitialEnd: m.one(10), EmptyWhenExpired: m.one(8), Gzip: m.one(6), Pretty: m.one(10),
	}
	m.features.InitialEndDelay = time.Duration(max(0, rand.New(rand.NewPCG(seed, 2)).IntN(1600)-600)) * time.Millisecond // its dice are its own
	m.cluster.SetFeatures(m.features)
	for i := range 1 + rng.IntN(3) {
		limits := sinks.Limits{Messages: 1 + rng.IntN(20), Concurrency: 1 + rng.IntN(4)}
		b := testkit.NewBroker(t, fmt.Sprint("sink", i), sinks.Order(rng.IntN(2)))
		b.Seed, b.Bounds = seed, limits
		b.Faulty = !m.one(3)
		m.brokers = append(m.brokers, b)
	}
	m.configure(typ)
	return m
}

// poison makes a third of the rounds such that the cluster has objects now and then that can't be
// understood. Its dice are its own.
func (m *model) poison(seed uint64) {
	dice := rand.New(rand.NewPCG(seed, 1))
	if dice.IntN(3) > 0 {
		return
	}
	m.healed = dice.IntN(2) == 0
	often := 3 + dice.IntN(20)
	m.cluster.deep = dice.IntN(2) == 0
	m.cluster.garble = func() bool {
		if dice.IntN(often) > 0 {
			return false
		}
		if !m.cluster.deep { // else no list follows
			m.cause(resource.ReasonUnreadable)
		}
		return true
	}
}

func (m *model) configure(typ resource.Type) {
	m.commit = pick(m, time.Millisecond, 50*time.Millisecond, 0, 2*time.Second)
	m.bodies = pick(m, 0, 1)
	m.retry = publisher.Config{
		MaxItems: pick(m, 0, 3, 50), PublishTimeout: 3 * time.Second, Retry: publisher.Retry{Initial: 10 * time.Millisecond, Max: time.Second},
	}
	m.unit = informer.Config{
		Informer: "all", Type: typ,
		Queue: informer.Queue{
			Memory: pick(m, 0, 1<<10, 16<<10), Spool: pick[int64](m, 0, 0, -1, 8<<10),
		},
		Reflector: reflector.Limits{
			PageSize: 1 + m.rng.IntN(4), DisableWatchList: m.one(4),
			WatchTimeout: pick(m, 0, 10*time.Second), Watchdog: pick(m, 0, 30*time.Second),
			ListTimeout: 5 * time.Second, WatchListTimeout: 5 * time.Second,
			Backoff: reflector.Backoff{Initial: 20 * time.Millisecond, Max: time.Second},
		},
	}
	for _, b := range m.brokers {
		m.unit.Sinks = append(m.unit.Sinks, informer.Binding{
			Sink: b.Name, Latest: m.one(3), Resync: pick(m, 0, 0, 7*time.Second, 11*time.Second),
		})
	}
}

// noResync stops what is reported again from time to time.
func (m *model) noResync() {
	for i := range m.unit.Sinks {
		m.unit.Sinks[i].Resync = 0
	}
}

// noLatest sends every version to everyone.
func (m *model) noLatest() {
	for i := range m.unit.Sinks {
		m.unit.Sinks[i].Latest = false
	}
}

func (m *model) one(in int) bool { return m.rng.IntN(in) == 0 }

func pick[T any](m *model, of ...T) T { return of[m.rng.IntN(len(of))] }

// note writes a line of what happens.
func (m *model) note(format string, args ...any) {
	m.trace = append(m.trace, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// play does some steps at random, heals everything, and judges.
func (m *model) play(steps int) { m.playTo(steps, m.judge) }

func (m *model) playTo(steps int, judge func()) {
	defer m.report()
	for range m.rng.IntN(20) {
		m.note("%s", m.cluster.change())
	}
	m.start()
	for range steps {
		m.stalls.step(m)
		m.step()
		if m.one(3) {
			synctest.Wait()
		} else {
			time.Sleep(time.Duration(m.rng.IntN(400)) * time.Millisecond)
		}
		if m.t.Failed() {
			break
		}
	}
	m.heal()
	m.catchUp()
	judge()
}

// report shows what happened when it went wrong.
func (m *model) report() {
	if m.life != nil { // not the place to wait for it to drain
		m.kill()
		m.end()
	}
	if !m.t.Failed() {
		return
	}
	m.t.Logf("unit %+v, commits every %s, publisher %+v", m.unit, m.commit, m.retry)
	m.t.Logf("what happened:\n%s", strings.Join(m.trace, "\n"))
	for _, b := range m.brokers {
		m.t.Logf("%s, order %d, limits %+v, has", b.Name, b.Unit, b.Bounds)
		for _, rec := range b.Records() {
			m.t.Log(describe(rec))
		}
	}
}

// start opens the state, remembers it, and runs a bridge.
func (m *model) start() {
	log := slog.DiscardHandler
	if *modelVerbose {
		log = slog.NewTextHandler(m.t.Output(), nil)
	}
	db := m.open()
	m.states = append(m.states, m.read(db))
	l := &life{db: db, done: make(chan error, 1)}
	cfg := bridge.Config{
		Cluster: "test", DB: db, Log: slog.New(log), CommitInterval: m.commit, Units: []informer.Config{m.unit},
		Client: &reflector.Client{HTTP: cmp.Or(m.http, m.cluster.HTTP()), Base: m.cluster.URL()},
	}
	for _, b := range m.brokers {
		s := b.Connect(len(m.states) - 1)
		l.sessions = append(l.sessions, s)
		var sink sinks.Sink = s
		if m.recall {
			sink = recaller{s}
		}
		cfg.Sinks = append(cfg.Sinks, bridge.SinkConfig{Name: b.Name, Sink: sink, Publisher: m.retry})
	}
	var err error
	if l.bridge, err = bridge.New(cfg); err != nil {
		m.t.Fatal(err)
	}
	ctx, stop := context.WithCancelCause(context.WithoutCancel(m.t.Context()))
	l.stop = stop
	go func() { l.done <- l.bridge.Run(ctx) }()
	m.life = l
	m.running.Store(l)
	m.note("start run %d from %d", len(m.states)-1, m.states[len(m.states)-1].watermark)
}

// open opens the state, with little memory so that it often has to go to its disk.
func (m *model) open() *store.DB {
	var disk vfs.FS = m.fs
	if m.disk != nil {
		disk = m.disk(disk)
	}
	db, err := store.Open(statedb.Options{Dir: "state", FS: disk, CacheBytes: 1 << 20, MemTableBytes: m.tables})
	if err != nil {
		m.t.Fatal(err)
	}
	db.SetBodiesPerSecond(m.bodies)
	return db
}

// read reads what is on disk.
func (m *model) read(db *store.DB) state {
	var names []string
	for _, b := range m.brokers {
		names = append(names, b.Name)
	}
	s := readState(m.t, db, store.IndexerConfig{Name: m.unit.Name(), Scope: m.unit.Scope(), Type: m.unit.Type}, m.cluster.names, names...)
	s.clean, s.history = m.clean, len(m.cluster.histories)-1
	if m.rewinding {
		s.history--
	}
	return s
}

var errStop = errors.New("the test stops it")

// stopLife stops the process in order; whether that succeeds in time the brokers decide.
func (m *model) stopLife() {
	m.life.stop(errStop)
	err := <-m.life.done
	m.note("stopped: %v", err)
	if err != nil && !errors.Is(err, bridge.ErrDrain) {
		m.t.Errorf("Run: %v", err)
	}
	if err := m.life.db.Close(); err != nil {
		m.t.Errorf("close the state: %v", err)
	}
	m.running.Store(nil)
	m.life, m.clean = nil, err == nil
}

// crash ends the process with what was synced by then.
func (m *model) crash() {
	percent := pick(m, 0, 50, 100)
	clone := func() *vfs.MemFS {
		return m.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: m.rng})
	}
	var after *vfs.MemFS
	if m.one(2) {
		after = clone()
		m.kill()
	} else {
		m.kill()
		after = clone()
	}
	m.note("crash, %d %% of what was not synced stays", percent)
	m.end()
	m.fs = after
}

func (m *model) kill() { m.life.kill() }

func (l *life) kill() {
	for _, s := range l.sessions {
		s.Kill()
	}
}

// end waits until the goroutines of a dead process have ended.
func (m *model) end() {
	m.life.stop(errStop)
	<-m.life.done
	if err := m.life.db.Close(); err != nil {
		m.t.Errorf("close the state: %v", err)
	}
	m.running.Store(nil)
	m.life, m.clean = nil, false
}

// historyAt is which of its histories the cluster was in.
func (m *model) historyAt(at time.Time) (n int) {
	for _, r := range m.rewinds {
		if !r.at.After(at) {
			n++
		}
	}
	return n
}

// caused reports whether something happened that makes a gap.
func (m *model) caused(g *gap) bool {
	switch g.reason {
	case resource.ReasonRewound:
		return len(m.rewinds) > 0
	case "interrupted":
		began := m.states[g.run] // a restart within the run may have broken off a list too
		return began.watermark == 0 || began.listing || len(m.restarts) > 0
	case resource.ReasonUnreadable:
		return m.causes[resource.ReasonUnreadable] > 0 || m.causes["error 500"] > 4
	case resource.ReasonExpired:
		h := m.cluster.histories[g.history]
		before := h.before(g.from) // a watch may have to begin again one version earlier
		return m.causes["closed"] > 4 || m.causes["error 410"] > 0 ||
			slices.ContainsFunc(h.expired, func(v int64) bool { return v > before && v <= g.to })
	default:
		return false
	}
}

// heal ends all faults and waits until the bridge has caught up.
func (m *model) heal() {
	m.cluster.Faults.Heal()
	m.cluster.SetFeatures(testkit.Features{})
	for _, b := range m.brokers {
		b.Set(testkit.Healthy)
	}
	m.stalls.heal()
	if m.life == nil {
		m.start()
	}
	m.note("all is mended")
	m.cluster.garble = nil
	if m.causes[resource.ReasonUnreadable] > 0 {
		time.Sleep(11 * time.Minute) // a watch behind a list of which an item may be any object ends, and another list follows
	}
	for range 1500 { // seconds; a watch that is never answered is given up after ten minutes and a half
		if !m.healed && m.settled() {
			return
		}
		time.Sleep(time.Second)
		m.thaw()
		if m.healed && !m.rewinding {
			m.note("%s", m.cluster.ungarble())
			m.healed = false
		}
		m.bookmark()
	}
	m.t.Errorf("it does not catch up: %+v, %v; the server is at %d", m.life.bridge.Status(), m.life.bridge.Ready(), m.cluster.version())
}

// catchUp waits until what floods have left behind on disk is up to date, and compares that with
// what the cluster has.
func (m *model) catchUp() {
	for range 500 {
		if m.life.bridge.Status().Informers[0].BodiesBehind == 0 {
			break
		}
		time.Sleep(10 * time.Second) // at most an hour passes between two tries
		m.bookmark()
	}
	typ := m.unit.Type
	for key, w := range m.cluster.alive {
		if w.garbled {
			continue
		}
		namespace, name := key.Split()
		states, err := m.life.bridge.Object(typ.String(), namespace, name)
		if err != nil || len(states) != 1 || states[0].Earlier != "" || !strings.Contains(string(states[0].Object), strconv.Quote(w.mark)) {
			m.t.Errorf("the state of %s is not what the cluster has, %s: %v, %+v", key, w, err, states)
		}
	}
}

// settled reports whether the bridge is ready and everything is where it belongs.
func (m *model) settled() bool {
	s := m.life.bridge.Status().Informers[0]
	return len(m.life.bridge.Ready()) == 0 && m.watermark() == m.cluster.version() && s.Unsettled == 0 && s.LogChanges == 0 && s.QueuedDeltas == 0
}

// judge stops the bridge, reads all streams, and sees that another start has nothing to say.
func (m *model) judge() {
	m.stopLife()
	for _, b := range m.brokers {
		r := m.stream(b)
		r.complete()
		for _, p := range r.problems {
			m.t.Error(p)
		}
	}
	m.nothingMore()
}

// nothingMore starts once more: one probe, one watch, no events.
func (m *model) nothingMore() {
	counts := make([]int, len(m.brokers))
	for i, b := range m.brokers {
		counts[i] = len(b.Records())
	}
	before := len(m.cluster.Requests(testkit.Any))
	m.noResync()
	m.start()
	time.Sleep(5 * time.Second) // less than any watchdog
	m.stopLife()
	for i, b := range m.brokers {
		for _, rec := range b.Records()[counts[i]:] {
			m.t.Errorf("after a clean restart: %s: %s", b.Name, describe(rec))
		}
	}
	for i, q := range m.cluster.Requests(testkit.Any)[before:] {
		if i == 0 && !testkit.Probes(q) || i > 0 && !testkit.Watches(q) {
			m.t.Errorf("after a clean restart request %d is %v", i+1, q.Query)
		}
	}
}
