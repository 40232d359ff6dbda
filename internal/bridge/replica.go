package bridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/standby"
)

// Standby makes the bridge one of several replicas, each with its own state, of which one publishes. Zero durations mean the documented default.
type Standby struct {
	Lease Lease
	Board Board
	// Interval of telling and reading the leader's progress; default 1 s.
	Interval time.Duration
}

// Lease says who leads: *standby.Lease.
type Lease interface {
	Run(ctx context.Context) error
	Elected() <-chan struct{}
	Leader() string
	Identity() string
	Name() string
	Duration() time.Duration
	Gate() error
	Defer(unfit func() string)
	Release()
}

// Board is where the leader tells its progress: *standby.Board.
type Board interface {
	Get(ctx context.Context) (p standby.Progress, led bool, err error)
	Take(ctx context.Context) (p standby.Progress, led bool, err error)
	Put(ctx context.Context, p *standby.Progress) (standby.PutResult, error)
}

// errFollowed ends a replica that did not lead: it has nothing to send.
var errFollowed = errors.New("stopped as standby")

// replica is the bridge as one of several.
type replica struct {
	*Bridge
	cfg     Standby
	metrics *replicaMetrics

	mu       sync.Mutex
	progress standby.Progress     // guarded by mu: of the leader; of the one before, once this replica leads
	version  string               // guarded by mu: of the configuration
	led      bool                 // guarded by mu: others have published
	leading  bool                 // guarded by mu
	readAt   time.Time            // guarded by mu: when the progress was last read
	readErr  error                // guarded by mu: of the last attempt
	doubtful map[string]time.Time // guarded by mu: units whose progress is not believed, and since when; zero once that is reported
	takeErr  error                // guarded by mu: why this replica, which has the lease, does not lead yet
}

func (b *Bridge) newReplica() *replica {
	if b.cfg.Standby == nil {
		return nil
	}
	r := &replica{Bridge: b, cfg: *b.cfg.Standby, version: b.cfg.Version, doubtful: map[string]time.Time{}}
	r.cfg.Interval = cmp.Or(r.cfg.Interval, time.Second)
	r.metrics = newReplicaMetrics(b.cfg.Registerer, r)
	return r
}

// begin waits until it is known who leads, or for a while, and until the leader's progress was read once.
func (r *replica) begin(ctx context.Context) {
	const patience = 3 * time.Second
	for began := time.Now(); r.cfg.Lease.Leader() == "" && time.Since(began) < patience && ctx.Err() == nil; {
		_ = ratelimit.Sleep(ctx, 10*time.Millisecond)
	}
	for ctx.Err() == nil && r.read(ctx) != nil {
		_ = ratelimit.Sleep(ctx, r.cfg.Interval)
	}
	leader := r.cfg.Lease.Leader()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.led = r.led || leader != "" && leader != r.cfg.Lease.Identity()
}

// read takes note of the leader's progress.
func (r *replica) read(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	p, led, err := r.cfg.Board.Get(ctx)
	r.mu.Lock()
	told := r.readErr != nil
	r.readErr = err
	if err == nil {
		r.progress, r.led, r.readAt = p, r.led || led, time.Now()
	}
	r.mu.Unlock()
	if err != nil && !told && ctx.Err() == nil {
		r.log.Warn("can't read the leader's progress, trying again", "err", err)
	}
	return err
}

// welcome prepares a unit before it starts.
func (r *replica) welcome(u *unit) error {
	p, _ := r.progressOf(u)
	if err := errors.Join(u.adoptEpoch(p.Epoch), u.indexer.AdoptSelection(p.Selectors)); err != nil {
		return err
	}
	for _, relay := range u.relays {
		relay.Follow(r.progressFor(u, relay))
		if !r.follows() {
			if err := relay.Lead(context.Background()); err != nil { // it holds nothing
				return err
			}
		}
	}
	return nil
}

// adoptEpoch takes over how often the server's history went back, when the unit knows nothing itself.
func (u *unit) adoptEpoch(number int) error {
	empty, err := u.indexer.Empty()
	if err != nil || !empty || u.tracker.Status().Watermark != "" {
		return err
	}
	own, err := u.indexer.Epoch()
	if err != nil || own.Open || own.Number >= number {
		return err
	}
	return u.indexer.AdoptEpoch(number)
}

// progressOf is what the leader has told of a unit; ok is false when it has not, or selects something else.
func (r *replica) progressOf(u *unit) (p standby.Unit, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, ok = r.progress.Units[u.name]
	// Where a leader has selected something else meanwhile, what came back is told again, however old it is: what was told before says nothing of it.
	if p.Scope != u.cfg.toldScope() || r.leading && p.Selectors < u.indexer.Selection() {
		return standby.Unit{}, false
	}
	return p, ok
}

// succeeds says whether others have published the unit's changes before, and up to which version at least.
func (r *replica) succeeds(u *unit) (from resource.Version, led bool) {
	p, ok := r.progressOf(u)
	r.mu.Lock()
	defer r.mu.Unlock()
	nothingTold := len(r.progress.Units) == 0
	return p.Delivered, ok || r.led && nothingTold
}

// othersLed says whether another replica leads or has led. It is false for a bridge that has no others.
func (r *replica) othersLed() bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.led
}

// follows says whether another replica is to publish. It is false for a bridge that has no others.
func (r *replica) follows() bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.leading
}

// sends is an error while another replica is to publish.
func (r *replica) sends() error {
	switch {
	case !r.follows():
		return nil
	case r.cfg.Lease.Leader() == "":
		return fmt.Errorf("%w; nobody leads at the moment", ErrStandby)
	default:
		return fmt.Errorf("%w; ask %s, which leads", ErrStandby, r.cfg.Lease.Leader())
	}
}

// follow follows the leader until this replica is elected, then takes over; it ends when it has, or when reading ends.
func (r *replica) follow(read, hard context.Context, publish func(), handOn func(*relay)) error {
	tick := time.NewTicker(r.cfg.Interval)
	defer tick.Stop()
	r.log.Info("following", "leader", r.cfg.Lease.Leader())
	for {
		select { // to lead goes before all else
		case <-r.cfg.Lease.Elected():
			return r.takeOver(read, publish, handOn)
		default:
		}
		select {
		case <-read.Done():
			return nil
		case <-hard.Done():
			return nil
		case <-r.cfg.Lease.Elected():
		case <-tick.C:
			if r.read(read) == nil {
				r.pass()
			}
		}
	}
}

// pass lets the relays know the progress.
func (r *replica) pass() {
	for _, u := range r.roster.all() {
		_, ok := r.progressOf(u)
		for _, relay := range u.relays {
			if !ok && u.leaving() == leavingGone && r.toldAnything() {
				relay.FollowToEnd()
				continue
			}
			relay.Follow(r.progressFor(u, relay))
		}
	}
}

func (r *replica) toldAnything() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.progress.Units) > 0
}

// takeOver makes this replica the one that publishes: from where the leader before has told last, and out of its own log.
func (r *replica) takeOver(ctx context.Context, publish func(), handOn func(*relay)) error {
	began := time.Now()
	p, led, ok, err := r.takeBoard(ctx)
	if !ok || r.changing.Acquire(ctx, 1) != nil {
		return err
	}
	defer r.changing.Release(1)
	r.mu.Lock()
	r.progress, r.led = p, r.led || led
	r.mu.Unlock()
	r.pass()
	behind := r.notInStep()
	r.mu.Lock()
	r.leading = true
	r.mu.Unlock()
	r.log.Info("this replica leads now, and publishes", "from_another", led, "units_in_step", len(r.roster.all())-len(behind), "not_in_step", len(behind), "took", time.Since(began).String())
	for i, why := range behind {
		if led && i < 10 {
			r.log.Warn("taking over without being in step: an informer.gap event tells of it", "informer", why.Component, "why", why.Message)
		}
	}
	r.metrics.takeovers.Inc()
	for _, pub := range r.outlets.all() {
		pub.Inherit(p.Sinks[pub.key])
	}
	publish()
	for _, u := range r.roster.all() {
		for _, relay := range u.relays {
			handOn(relay)
		}
	}
	return nil
}

// takePatience is for how many lease durations a replica that has the lease, and can't take the board, keeps the lease.
const takePatience = 3

// takeBoard tries until it succeeds; ok is false when ctx ended before. When it does not for long, the lease is given back, and the error ends this
// replica: another one may succeed.
func (r *replica) takeBoard(ctx context.Context) (p standby.Progress, led, ok bool, err error) {
	for began := time.Now(); ctx.Err() == nil; _ = ratelimit.Sleep(ctx, 100*time.Millisecond) {
		limited, cancel := context.WithTimeout(ctx, 5*time.Second)
		p, led, err = r.cfg.Board.Take(limited)
		cancel()
		if !r.failsToTake(err) {
			return p, led, true, nil
		}
		if waited := time.Since(began); waited > takePatience*r.cfg.Lease.Duration() {
			r.cfg.Lease.Release() // it has published nothing
			return p, false, false, fmt.Errorf("%w: this replica gives it back, since it can't take over: %w", standby.ErrLost, err)
		}
	}
	return p, false, false, nil
}

// failsToTake notes whether taking the board has failed.
func (r *replica) failsToTake(err error) bool {
	r.mu.Lock()
	told := r.takeErr != nil
	r.takeErr = err
	r.mu.Unlock()
	if err != nil && !told {
		r.log.Warn("can't take over yet, trying again", "err", err)
	}
	return err != nil
}

// teller tells this replica's progress while it leads. It is owned by one goroutine at a time.
type teller struct {
	*replica
	deliveries map[string]*delivery // by unit
	trails     map[string]*trail    // by key of the sink
	last       standby.Progress
	short      bool // the last one left something of the sinks' positions out
}

func (r *replica) newTeller() *teller {
	return &teller{replica: r, deliveries: map[string]*delivery{}, trails: map[string]*trail{}}
}

// run tells the progress until ctx ends. ErrTaken ends the bridge.
func (t *teller) run(ctx context.Context) error {
	for ctx.Err() == nil && t.follows() {
		_ = ratelimit.Sleep(ctx, t.cfg.Interval/10)
	}
	failing := false
	for ctx.Err() == nil {
		size, err := t.tell(ctx)
		switch {
		case errors.Is(err, standby.ErrTaken):
			return fmt.Errorf("%w: %w", standby.ErrLost, err)
		case err != nil && !failing && ctx.Err() == nil:
			t.log.Warn("can't tell the progress; a replica that takes over sends more again meanwhile", "err", err)
		}
		failing = err != nil
		// An object of many units is written less often: 16 KiB a second.
		_ = ratelimit.Sleep(ctx, max(t.cfg.Interval, time.Duration(size)*time.Second/(16<<10)))
	}
	return nil
}

// tell writes the progress, if it is another than last time. It gives its size, about.
func (t *teller) tell(ctx context.Context) (size int, err error) {
	if !t.changing.TryAcquire(1) {
		return 0, nil // units that end and begin again are not missing
	}
	p, err := t.look()
	t.changing.Release(1)
	if err != nil || reflect.DeepEqual(p, t.last) {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	told, err := t.cfg.Board.Put(ctx, &p)
	if err != nil {
		return told.Bytes, err
	}
	t.last = p
	t.note(told)
	return told.Bytes, nil
}

// note tells an operator when the progress is too large to say all.
func (t *teller) note(told standby.PutResult) {
	value := 0.0
	if told.Short {
		value = 1
	}
	t.metrics.short.Set(value)
	if told.Short && !t.short {
		t.log.Warn("the progress is too large for its object, and says of the sinks only what is most needed: a replica that takes over looks for what was sent last by its time, "+
			"does not go on with this one's producers in Kafka, and may send events again; split the configuration between bridges, or spread it over fewer topics and partitions",
			"units", len(t.last.Units), "bytes", told.Bytes)
	}
	t.short = told.Short
}

// look gives the progress of now.
func (t *teller) look() (p standby.Progress, err error) {
	p = standby.Progress{Units: map[string]standby.Unit{}, Sinks: map[string][]byte{}, Outlines: map[string][]byte{}, Feeds: map[string][]string{}, Version: t.current()}
	for _, u := range t.roster.all() {
		if p.Units[u.name], err = t.delivery(u).look(u); err != nil {
			return p, err
		}
		p.Feeds[u.cfg.Informer] = u.feeds()
	}
	p.RedactionKey = t.redactionKey()
	for _, pub := range t.outlets.all() {
		position := t.trail(pub.key).pass(time.Now(), pub.Position())
		if position == nil {
			continue
		}
		p.Sinks[pub.key] = position
		if outline := t.outline(pub, position); outline != nil {
			p.Outlines[pub.key] = outline
		}
	}
	return p, nil
}

// outline of a position that may be too large to be told; nil for one that is not.
func (t *teller) outline(pub *outlet, position []byte) []byte {
	const large = 64 << 10
	if len(position) < large {
		return nil
	}
	return pub.Outline(position)
}

// delivery of a unit. It begins where the leader before stood.
func (t *teller) delivery(u *unit) *delivery {
	d := t.deliveries[u.name]
	switch {
	case d == nil || d.scope != u.cfg.toldScope():
		p, _ := t.progressOf(u)
		d = &delivery{life: u.life, scope: u.cfg.toldScope(), at: p.Delivered, epoch: p.Epoch, selection: p.Selection}
		t.deliveries[u.name] = d
	case d.life != u.life: // places in the log of the one before say nothing about this one's
		d.life, d.samples, d.selecting, d.workedIn = u.life, nil, sample{}, nil
	}
	return d
}

// trail of a sink. It begins where the leader before stood.
func (t *teller) trail(key string) *trail {
	tr := t.trails[key]
	if tr == nil {
		tr = &trail{}
		t.mu.Lock()
		inherited := t.progress.Sinks[key]
		t.mu.Unlock()
		tr.pass(time.Now(), inherited)
		t.trails[key] = tr
	}
	return tr
}

// resign tells the progress once more and gives the lease up, when everything has ended in order.
func (t *teller) resign(hard context.Context) {
	if t.follows() || hard.Err() != nil {
		return
	}
	if _, err := t.tell(context.WithoutCancel(hard)); err != nil {
		t.log.Warn("can't tell the progress at the end; the next leader sends more again", "err", err)
	}
	t.cfg.Lease.Release()
}

// replicate has the sinks run: at once where there are no other replicas, else when this one leads. What it gives is called when all has ended, and
// hands over to the next.
func (b *Bridge) replicate(read context.Context, replicas, commits, units, publishing *stage, publish func()) (resign func(hard context.Context) error) {
	r := b.replica
	if r == nil {
		publish()
		return func(context.Context) error { return nil }
	}
	_ = r.read(read) // who knows nothing of the others gives way to them
	r.cfg.Lease.Defer(r.unfit)
	replicas.start("", r.cfg.Lease.Run)
	r.begin(read)
	teller := r.newTeller()
	commits.start("", teller.run)
	units.start("", func(hard context.Context) error {
		return r.follow(read, hard, publish, func(relay *relay) { publishing.start("", relay.handOn) })
	})
	return func(hard context.Context) error {
		teller.resign(hard)
		return nil
	}
}

// succeeds is nil where there are no other replicas.
func (u *unit) succeeds(b *Bridge) func() (resource.Version, bool) {
	if b.replica == nil {
		return nil
	}
	return func() (resource.Version, bool) { return b.replica.succeeds(u) }
}
