package bridge_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer/changelog"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// reader reads the stream of one broker from its beginning and says what is wrong with it. What it
// knows of an object at any time is what the bridge must know: the state that was on disk when the
// run began, and what the stream has reported since.
type reader struct {
	m        *model
	b        *testkit.Broker
	latest   bool // the sink is sent the newest states only
	problems []string

	// Of the run.
	run     int
	known   map[resource.Key]known
	queue   map[resource.Key][]spooled       // what the log on disk held for this sink when the run began
	notices []spooled                        // in that log: of gaps and finished lists
	last    map[resource.Key]*testkit.Record // of the run, by object
	unborn  map[resource.Key]string          // uids whose added, in the log on disk, a later state replaces
	owed    map[resource.Key]bool            // names that must be used again before the list ends
	// poisoned are names of which something was reported that can't be understood.
	poisoned map[resource.Key]bool
	relist   *gap // between a gap event, or the start of a first snapshot, and its synced event
	// first: the run continues with a first snapshot. Its gap comes later, or never.
	first bool
	// abandoned: a list was given up since the last gap, when its unit began again.
	abandoned bool
	// incomplete: the list that ended last had items that nobody could read. The delete of an
	// object that it lacks follows when the name is used again.
	incomplete bool

	// Of the whole stream.
	now      time.Time       // of the record that is looked at
	began    time.Time       // when relist was
	history  int             // of the cluster's, that the stream is in
	reported map[*write]int  // in which run a write was reported first
	buried   map[string]bool // uids whose delete was reported
	gaps     []*gap
	ends     map[string]bool         // of lists, by id
	ids      map[string]string       // of changes
	changes  map[string]string       // by id
	folded   map[resource.Key]string // what a consumer holds: marks of what exists
	// unclean: the run before died, and nothing was listed since. After a rewind everything is
	// reported. A unit that a reload ends in the middle is as clean as it began.
	unclean bool
	// announced are the versions of objects of which a run before may have reported something,
	// without anything being settled.
	announced map[string]int64
}

// gap is what the stream says is missing: versions after from, up to the version of the list that
// follows.
type gap struct {
	run      int
	reason   string
	from, to int64
	history  int // that the versions after from are of
	synced   int64
	// items are what the list reported so far: what came before is lost for these objects, even if
	// the list was not finished.
	items map[resource.Key]int64
}

const initialSnapshot = "" // the reason of the gap that a first snapshot is

// stream reads the whole stream of a broker.
func (m *model) stream(b *testkit.Broker) *reader {
	r := &reader{
		m: m, b: b, run: -1, reported: map[*write]int{}, buried: map[string]bool{}, folded: map[resource.Key]string{},
		ids: map[string]string{}, changes: map[string]string{}, ends: map[string]bool{},
	}
	for _, s := range m.unit.Sinks {
		r.latest = r.latest || s.Sink == b.Name && s.Latest
	}
	for _, rec := range b.Records() {
		for r.run < rec.Process {
			r.nextRun()
		}
		r.record(rec)
	}
	return r
}

func (r *reader) problem(rec *testkit.Record, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if rec != nil {
		text = fmt.Sprintf("%s: %s", describe(rec), text)
	}
	r.problems = append(r.problems, r.b.Name+": "+text)
}

// describe is a record in a line.
func describe(rec *testkit.Record) string {
	words := []string{
		fmt.Sprintf("run %d %s", rec.Process, rec.At.Format("15:04:05.000")),
		strings.TrimPrefix(rec.Type, "dev.kubebridge."), rec.Namespace + "/" + rec.Name, rec.ID,
		"@" + rec.ResourceVersion,
	}
	for word, is := range map[string]bool{
		"initial": rec.Initial, "inferred": rec.Inferred, "not acknowledged": !rec.Acked,
		"dead": rec.Dead, "again": rec.Again,
	} {
		if is {
			words = append(words, word)
		}
	}
	return strings.Join(words, " ")
}

// nextRun begins with what is on disk.
func (r *reader) nextRun() {
	r.run++
	s := r.m.states[r.run]
	r.queue, r.notices = map[resource.Key][]spooled{}, nil
	for _, c := range s.pending[r.b.Name] {
		switch {
		case changelog.Kind(c.Kind) == changelog.OfProgress:
		case c.Kind != 0:
			r.notices = append(r.notices, c)
		case c.Op != "synced":
			r.queue[c.Key] = append(r.queue[c.Key], c)
		}
	}
	r.compare(&s)
	if r.known = maps.Clone(s.known); len(r.notices) == 0 {
		r.relist = nil
	}
	r.last, r.owed, r.unborn = map[resource.Key]*testkit.Record{}, map[resource.Key]bool{}, map[resource.Key]string{}
	r.poisoned = map[resource.Key]bool{}
	r.announced = maps.Clone(s.announced)
	maps.Copy(r.announced, r.m.announced[r.run])
	r.unclean = r.run > 0 && (r.unclean || !s.clean)
	if r.first = s.watermark == 0 && (!s.gapOwed || len(s.known)+len(s.announced) == 0); r.first {
		r.begin(&gap{reason: initialSnapshot})
	}
}

// compare sees whether what is settled was reported, and what was reported is settled.
func (r *reader) compare(s *state) {
	if s.clean && len(s.pending[r.b.Name]) > 0 {
		r.problem(nil, "run %d finds unsent changes after a clean stop: %v", r.run, s.pending[r.b.Name])
	}
	for key, k := range s.known {
		switch {
		case len(r.queue[key]) > 0:
		case k.alive && !r.latest && !r.wasReported(key, k), !k.alive && !r.buried[k.uid]:
			r.problem(nil, "run %d begins with %s %+v, which was never reported", r.run, key, k)
		}
	}
	for key, before := range r.known {
		if now := s.known[key]; now != before && (now.alive || before.alive) {
			if s.clean {
				r.problem(nil, "run %d begins with %s %+v after a clean stop, and %+v was reported", r.run, key, now, before)
			}
		}
	}
}

func (r *reader) wasReported(key resource.Key, k known) bool {
	for w := range r.reported {
		if w.key == key && w.uid == k.uid && w.version == k.version {
			return true
		}
	}
	return false
}

// begin notes that a list replaces everything.
func (r *reader) begin(g *gap) {
	g.items = map[resource.Key]int64{}
	g.synced = -1
	r.relist, r.began, r.abandoned = g, r.now, false
	r.gaps = append(r.gaps, g)
}

func (r *reader) record(rec *testkit.Record) {
	r.now = rec.At
	if r.latest && rec.Dead && !rec.Acked {
		return // refused and in no dead letters: a newer state may take its place, as if it had never been sent
	}
	switch strings.TrimPrefix(rec.Type, "dev.kubebridge.") {
	case "informer.gap":
		r.gap(rec)
	case "informer.synced":
		r.synced(rec)
	case "informer.progress":
		r.progress(rec)
	case "informer.quarantined":
		r.quarantined(rec)
	case "resource.synced":
		r.sync(rec)
	case "resource.added", "resource.updated":
		r.put(rec)
	case "resource.deleted":
		r.deleted(rec)
	default:
		r.problem(rec, "unknown type")
	}
}

// progress checks that everything up to its version came before.
func (r *reader) progress(rec *testkit.Record) {
	for _, w := range r.m.cluster.histories[r.history].writes {
		if _, reported := r.reported[w]; !reported && w.version <= number(resource.Version(rec.ResourceVersion)) &&
			!r.latest && !r.excused(w) {
			r.problem(rec, "it is too early: %s", w)
		}
	}
}

// bound checks that a write was made within the bounds that its event has.
func (r *reader) bound(rec *testkit.Record, w *write) {
	if r.m.stalls != nil {
		return // TestModelUnderAllFaults does
	}
	switch {
	case rec.Initial || rec.TimeSource != event.TimeObserved:
	case w.at.Before(rec.NotBefore) || w.at.After(rec.Time):
		r.problem(rec, "made at %s, not between %s and %s", w.at, rec.NotBefore, rec.Time)
	case rec.Inferred && r.cameBack(w): // the change is the restore of the server's history
	case rec.NotBefore.IsZero() && rec.Time.Sub(w.at) > event.MaxUnwatched && !r.rewound():
		r.problem(rec, "made at %s, and said to be made right before %s", w.at, rec.Time)
	}
}

// quarantined finds the write that can't be understood, where it is one and not a broken stream.
func (r *reader) quarantined(rec *testkit.Record) {
	if !rec.Again {
		r.lay(func(c *spooled) bool { return changelog.Kind(c.Kind) == changelog.OfQuarantined })
	}
	var q struct {
		Key resource.Key
		Raw []byte
	}
	if err := json.Unmarshal(rec.Data, &q); err != nil {
		r.problem(rec, "%v", err)
	}
	w, version := r.m.garbledIn(q.Raw)
	if w == nil {
		return
	}
	r.poisoned[w.key] = true
	if q.Key != w.key || !w.garbled {
		r.problem(rec, "of key %q; the server made %s", q.Key, w)
	}
	if version == w.version { // else it is the delete of it
		r.note(w)
	}
}

var (
	garbledMark    = regexp.MustCompile(`"mark": ?"(.+?)"`)
	garbledVersion = regexp.MustCompile(`"resourceVersion": ?"(.+?)"`)
)

// garbledIn is the write that bytes which can't be understood are of, and the version that they
// have; nil where they are of none. They may be the first bytes only.
func (m *model) garbledIn(raw []byte) (*write, int64) {
	mark, version := garbledMark.FindSubmatch(raw), garbledVersion.FindSubmatch(raw)
	if mark == nil || version == nil {
		return nil, 0
	}
	return m.cluster.byMark[string(mark[1])], number(resource.Version(version[1]))
}

func (r *reader) gap(rec *testkit.Record) {
	if rec.Again {
		return
	}
	var data struct{ Reason, From, To string }
	if err := json.Unmarshal(rec.Data, &data); err != nil {
		r.problem(rec, "%v", err)
	}
	g := &gap{run: r.run, reason: data.Reason, from: number(resource.Version(data.From)), to: number(resource.Version(data.To)), history: r.history}
	// stale: the last on disk: the run that reported it died in the middle of the list
	lay, stale := r.lay(func(c *spooled) bool {
		isDropped := changelog.Kind(c.Kind) == changelog.OfDropped && data.Reason == resource.ReasonDropped
		return isDropped || changelog.Kind(c.Kind) == changelog.OfGap && string(c.Relist.To) == rec.ResourceVersion
	})
	if !lay && !r.m.caused(g) {
		r.problem(rec, "a gap that nothing has caused: %+v", *g)
	}
	if g.reason == resource.ReasonRewound {
		r.history = r.m.historyAt(rec.Time)
		g.history = r.history - 1
		for key, k := range r.known {
			if !k.alive { // the versions of what is gone say nothing any more
				delete(r.known, key)
			}
		}
	}
	r.begin(g)
	r.began = rec.Time // it may have waited for its sink for long
	if stale {
		r.relist = nil
	}
	switch {
	case stale && r.first:
		r.begin(&gap{reason: initialSnapshot})
	case !lay:
		r.first = false
	}
}

// lay reports whether a notice lay on disk when the run began, and whether it was the last there.
func (r *reader) lay(is func(c *spooled) bool) (lay, last bool) {
	n := slices.IndexFunc(r.notices, func(c spooled) bool { return is(&c) })
	if n < 0 {
		return false, false
	}
	last = n == len(r.notices)-1
	r.notices = slices.Delete(r.notices, n, n+1)
	return true, last
}

func (r *reader) synced(rec *testkit.Record) {
	if rec.Again {
		return
	}
	lay, _ := r.lay(func(c *spooled) bool {
		return changelog.Kind(c.Kind) == changelog.OfListEnd && string(c.Version) == rec.ResourceVersion
	})
	if r.relist == nil {
		// A gap may have passed the end of the list before, and begin where that ends.
		isOwed := r.m.stalls != nil && len(r.ends) <= len(r.gaps)
		if !lay && !r.ends[rec.ID] && !isOwed { // else it lay on disk, and was reported without an answer
			r.problem(rec, "nothing was listed")
		}
		r.ends[rec.ID] = true
		return
	}
	for key := range r.owed {
		if r.poisoned[key] {
			continue // what has the name now is reported, and is no object that can be added
		}
		r.problem(rec, "%s was deleted in a first snapshot, which is no gap", key)
	}
	var listed struct{ Unreadable int }
	if err := json.Unmarshal(rec.Data, &listed); err != nil {
		r.problem(rec, "%v", err)
	}
	r.incomplete = listed.Unreadable > 0
	if !r.ends[rec.ID] { // else it is a repeat
		r.listed(rec)
	}
	r.ends[rec.ID] = true
	version := number(resource.Version(rec.ResourceVersion))
	for _, g := range r.gaps {
		if g.synced < 0 && g.history == r.relist.history && g.to <= version {
			g.synced = version
		}
	}
	if r.m.stalls != nil && r.relist.to > version {
		return // of an earlier list, and late
	}
	r.relist.synced = version
	r.relist = nil
	r.unclean = r.unclean && (r.m.reloads || lay) // one that lay on disk is of the run before
}

// listed checks that everything is there: what exists at the version of an end of a list, or later,
// and at the version up to which the gap before it is.
func (r *reader) listed(rec *testkit.Record) {
	if r.incomplete || r.m.cluster.garble != nil {
		return
	}
	version := max(number(resource.Version(rec.ResourceVersion)), r.relist.to)
	last := map[resource.Key]*write{}
	there := map[resource.Key]bool{}
	for _, w := range r.m.cluster.histories[r.history].writes {
		if w.version <= version {
			last[w.key] = w
			delete(there, w.key)
		}
		if _, ok := r.reported[w]; ok {
			there[w.key] = true
		}
	}
	for key, w := range last {
		if !w.deleted && !w.garbled && !there[key] && !r.poisoned[key] {
			r.problem(rec, "it is too early: %s", w)
		}
	}
}

// cameBack reports whether a write is of before the server's history went back.
func (r *reader) cameBack(w *write) bool {
	return r.history > 0 && slices.Contains(r.m.cluster.histories[r.history-1].writes, w)
}

// rewound reports whether versions can't be compared.
func (r *reader) rewound() bool {
	return r.relist != nil && (r.relist.reason == resource.ReasonRewound || r.m.stalls != nil &&
		slices.ContainsFunc(r.gaps, func(g *gap) bool { return g.synced < 0 && g.reason == resource.ReasonRewound }))
}

func (r *reader) put(rec *testkit.Record) {
	key, w := r.look(rec)
	if w == nil || r.resent(key, rec) {
		return
	}
	r.note(w)
	delete(r.owed, key)
	r.folded[key] = w.mark
	if w.deleted || w.uid != rec.UID || w.key != key || w.version != number(resource.Version(rec.ResourceVersion)) {
		r.problem(rec, "the server made %s", w)
	}
	r.bound(rec, w)
	r.identify(rec, w, fmt.Sprintf("%s/%d", w.uid, w.version))
	now := known{uid: w.uid, version: w.version, alive: true}
	if r.fromDisk(key, rec, now) {
		return
	}
	k := r.known[key]
	switch {
	case k == now && (!r.rewound() || !r.unclean), !r.rewound() && w.version <= k.version:
		r.problem(rec, "it comes behind what was settled or reported: %+v", k)
	case k.alive && k.uid != w.uid:
		r.problem(rec, "the object that had the name, %s, was not deleted", k.uid)
	case (k.alive && r.unborn[key] != w.uid) != strings.HasSuffix(rec.Type, ".updated"):
		r.problem(rec, "known is %+v", k)
	}
	r.marks(rec)
	r.report(key, rec, now)
}

func (r *reader) deleted(rec *testkit.Record) {
	key, w := r.look(rec)
	if w == nil || r.resent(key, rec) {
		return
	}
	if rec.UID != w.uid || w.key != key {
		r.problem(rec, "it has the state of %s", w)
	}
	r.identify(rec, w, w.uid+"/deleted")
	delete(r.folded, key)
	r.buried[w.uid] = true
	version := number(resource.Version(rec.ResourceVersion))
	if !rec.Inferred {
		r.watched(rec, key, version)
	}
	if r.fromDisk(key, rec, known{uid: rec.UID, version: version}) {
		return
	}
	k := r.known[key]
	if announced, ok := r.announced[rec.UID]; ok && (!k.alive || k.uid != rec.UID) {
		if k.alive && !r.rewound() { // a rewind may have brought that one back: it is added then
			r.problem(rec, "the object that had the name, %s, was not deleted", k.uid)
		}
		k = known{uid: rec.UID, version: announced, alive: true}
	}
	switch {
	case !k.alive && !r.latest, k.alive && k.uid != rec.UID:
		r.problem(rec, "of an object that is not known: %+v", k)
	case rec.Inferred && k.version > version && !r.latest: // a run before may have announced it with a later one
		r.problem(rec, "the last state that was known is %+v", k)
	case !rec.Inferred && version <= k.version:
		r.problem(rec, "it comes behind what was settled or reported: %+v", k)
	}
	if rec.Inferred && r.rewound() {
		version = 0
	}
	r.marks(rec)
	r.report(key, rec, known{uid: rec.UID, version: version})
}

// identify checks an id: it is made of the change, the same change has it always, and nothing else
// has it.
func (r *reader) identify(rec *testkit.Record, w *write, want string) {
	if base, _, _ := strings.Cut(rec.ID, "/epoch/"); base != want {
		r.problem(rec, "id %s, want %s", rec.ID, want)
	}
	if len(r.queue[resource.MakeKey(rec.Namespace, rec.Name)]) > 0 {
		return // it lay on disk, maybe since before a rewind
	}
	change := fmt.Sprintf("%s of %s in history %d", want, w.mark, r.history)
	if strings.HasSuffix(want, "/deleted") { // an object dies once, whatever its last known state
		change = fmt.Sprintf("%s in history %d", want, r.history)
	}
	if before, ok := r.ids[change]; ok && before != rec.ID {
		r.problem(rec, "the same change had id %s", before)
	}
	if before, ok := r.changes[rec.ID]; ok && before != change {
		r.problem(rec, "the same id was that of %s", before)
	}
	r.ids[change], r.changes[rec.ID] = rec.ID, change
}

// watched finds the deletion that a watch reported.
func (r *reader) watched(rec *testkit.Record, key resource.Key, version int64) {
	histories := r.m.cluster.histories[r.history : r.history+1]
	if len(r.queue[key]) > 0 { // it may be from before a rewind
		histories = r.m.cluster.histories
	}
	found := false
	for _, h := range histories {
		for _, w := range h.writes {
			if w.deleted && w.key == key && w.version == version && w.uid == rec.UID {
				r.note(w)
				r.bound(rec, w)
				found = true
			}
		}
	}
	if !found {
		r.problem(rec, "the server made no such deletion")
	}
}

// note remembers when a write was reported first.
func (r *reader) note(w *write) {
	if _, ok := r.reported[w]; !ok {
		r.reported[w] = r.run
	}
}

// fromDisk reports whether the record is the next that the log on disk held of its object. It was
// decided in a run before.
func (r *reader) fromDisk(key resource.Key, rec *testkit.Record, now known) bool {
	q := r.queue[key]
	if r.latest {
		q = r.newest(q, rec, now)
	}
	if last := r.last[key]; last != nil && last.Dead && last.ID != rec.ID {
		// Reported by lists of two runs under one id, and refused in one call. Behind a rewind the
		// same state has another id.
		for len(q) > 0 && q[0].is(last) && (!q[0].is(rec) || len(q) > 1 && q[1].is(last)) {
			q = q[1:]
		}
	}
	if len(q) == 0 {
		delete(r.queue, key)
		return false
	}
	if q[0].UID != now.uid || number(q[0].Version) != now.version || !strings.HasSuffix(rec.Type, "."+q[0].Op) {
		r.problem(rec, "the log on disk has %v", q)
	}
	// Of what was refused, later changes may be settled: they were stored in the same call.
	isLast := len(q) == 1 && now.alive && !rec.Dead && !r.latest
	if r.queue[key] = q[1:]; isLast && r.known[key] != now {
		r.problem(rec, "the last of the log on disk, and settled is %+v", r.known[key])
	}
	if len(r.gaps) > 0 && r.gaps[len(r.gaps)-1].synced < 0 {
		r.gaps[len(r.gaps)-1].item(rec)
	}
	r.last[key] = rec
	return true
}

// newest leaves out what a record takes the place of, of what lay on disk for a sink that is sent
// the newest states only. The first that is left is an added when one of those was.
func (r *reader) newest(q []spooled, rec *testkit.Record, now known) []spooled {
	key := resource.MakeKey(rec.Namespace, rec.Name)
	delete(r.unborn, key)
	for len(q) > 0 {
		if q[0].UID == now.uid && number(q[0].Version) == now.version && (q[0].Op == "deleted") == !now.alive {
			if r.unborn[key] == now.uid && now.alive {
				q = slices.Clone(q)
				q[0].Op = "added"
			}
			delete(r.unborn, key)
			return q
		}
		if q[0].Op == "deleted" || q[0].UID != now.uid {
			r.problem(rec, "it takes the place of %s", q[0])
		}
		if q[0].Op == "added" {
			r.unborn[key] = now.uid
		}
		q = q[1:]
	}
	return nil
}

// sync checks that what is reported again is what was reported last.
func (r *reader) sync(rec *testkit.Record) {
	key, w := r.look(rec)
	if w == nil || rec.Again || len(r.queue[key]) > 0 {
		return
	}
	k := r.known[key]
	if r.latest && r.folded[key] == w.mark {
		k.version = w.version // what is settled since was not sent, and something newer will be
	}
	if !k.alive || k.uid != rec.UID || k.version != number(resource.Version(rec.ResourceVersion)) || k.version != w.version {
		r.problem(rec, "known is %+v", k)
	}
}

// marks checks initial and inferred.
func (r *reader) marks(rec *testkit.Record) {
	listing := r.relist != nil
	switch {
	case rec.Inferred && listing && r.relist.reason == initialSnapshot:
		// a new object of that name, which a WatchList reported already
		r.owed[resource.MakeKey(rec.Namespace, rec.Name)] = true
	case rec.Inferred && !listing && r.abandoned && r.m.restarted(rec.Observed, rec.At):
		// an item of the list that was given up, behind a later change of another object
	case rec.Inferred && !listing && r.incomplete && strings.HasSuffix(rec.Type, ".deleted"):
		// found when the name was used again
	case rec.Inferred && !listing:
		r.problem(rec, "inferred, and no gap was reported")
	case rec.Initial && !listing:
		r.problem(rec, "initial, and nothing is listed")
	case listing && !rec.Initial && !rec.Inferred && strings.HasSuffix(rec.Type, ".deleted"):
		// before the end of a WatchList
	case listing && !rec.Initial && !rec.Inferred && r.m.restarted(r.began, rec.At):
		// The list was given up, and what it was for turned out not to be needed.
		r.relist, listing, r.abandoned = nil, false, true
	case listing && !rec.Initial && !rec.Inferred && r.m.stalls != nil:
		r.m.stalls.count++ // the end of the list is late
	case listing && !rec.Initial && !rec.Inferred:
		r.problem(rec, "from a watch, in the middle of a list")
	}
	if listing {
		r.relist.item(rec)
	}
}

// item notes what a list reported about an object.
func (g *gap) item(rec *testkit.Record) {
	version := int64(math.MaxInt64)
	if !rec.Inferred || !strings.HasSuffix(rec.Type, ".deleted") {
		version = number(resource.Version(rec.ResourceVersion))
	}
	g.items[resource.MakeKey(rec.Namespace, rec.Name)] = version
}

func (r *reader) report(key resource.Key, rec *testkit.Record, k known) {
	r.known[key] = k
	r.last[key] = rec
	delete(r.unborn, key)
}

// resent reports whether the record was sent again only because its answer got lost; nothing may
// have passed it.
func (r *reader) resent(key resource.Key, rec *testkit.Record) bool {
	if !rec.Again {
		return false
	}
	if last := r.last[key]; last == nil || last.ID != rec.ID {
		r.problem(rec, "sent again behind a later event of the object")
	}
	return true
}

// look finds the write whose state an event has.
func (r *reader) look(rec *testkit.Record) (resource.Key, *write) {
	var data struct {
		Metadata struct{ Name, Namespace, UID string }
		Spec     struct{ Mark string }
	}
	if err := json.Unmarshal(rec.Data, &data); err != nil {
		r.problem(rec, "data %q: %v", rec.Data, err)
		return "", nil
	}
	key := resource.MakeKey(data.Metadata.Namespace, data.Metadata.Name)
	w := r.m.cluster.byMark[data.Spec.Mark]
	if w == nil || data.Metadata.UID != rec.UID || key != resource.MakeKey(rec.Namespace, rec.Name) {
		r.problem(rec, "data %s", rec.Data)
	}
	return key, w
}

// complete checks that everything that could be known was reported, and that the stream ends in the
// server's state.
func (r *reader) complete() {
	for _, w := range r.m.cluster.all {
		if _, reported := r.reported[w]; !reported && !r.latest && !r.excused(w) {
			r.problem(nil, "missing: %s", w)
		}
	}
	for n := range r.m.states {
		r.passed(n)
	}
	want := map[resource.Key]string{}
	for key, w := range r.m.cluster.alive {
		want[key] = w.mark
		if w.garbled { // it counts as what it was before
			if r.buried[w.uid] {
				r.problem(nil, "reported as deleted, and there: %s", w)
			}
			if want[key] = r.folded[key]; want[key] == "" {
				delete(want, key)
			}
		}
	}
	if !maps.Equal(r.folded, want) {
		r.problem(nil, "the stream ends with\n\t%v\nthe server with\n\t%v", r.folded, want)
	}
}

// passed checks the watermark that a run began with: everything up to it was reported before, or
// lies on disk.
func (r *reader) passed(run int) {
	s := &r.m.states[run]
	for _, w := range r.m.cluster.histories[s.history].writes {
		first, reported := r.reported[w]
		waits := slices.ContainsFunc(s.pending[r.b.Name], func(c spooled) bool {
			if garbled, _ := r.m.garbledIn(c.Unreadable.Raw); garbled == w {
				return true
			}
			return c.Key == w.key && c.UID == w.uid && number(c.Version) == w.version
		})
		if w.version <= s.watermark && !(reported && first < run) && !waits && !r.latest && !r.excused(w) {
			r.problem(nil, "run %d begins at %d, and %s was not settled", run, s.watermark, w)
		}
	}
}

// unfollowed reports whether w is the delete of an object that was never reported, since it was too
// deep.
func (r *reader) unfollowed(w *write) bool {
	if !w.deleted || !r.m.cluster.deep {
		return false
	}
	for before := range r.reported {
		if before.uid == w.uid && !before.garbled {
			return false
		}
	}
	return true
}

// excused reports whether the stream has reported that a write may be missing.
func (r *reader) excused(w *write) bool {
	return r.unfollowed(w) || slices.ContainsFunc(r.gaps, func(g *gap) bool {
		switch {
		case g.reason == resource.ReasonRewound && w.history <= g.history && w.version > g.from:
			return !slices.Contains(r.m.cluster.histories[g.history+1].writes, w)
		case g.history != w.history && !slices.Contains(r.m.cluster.histories[g.history].writes, w):
			return false
		case w.version < g.from, w.version == g.from && !w.deleted: // of the deletes at one version some may have come
			return false
		case g.synced >= 0:
			return w.version <= g.synced
		default: // it was not finished; the run after it began where it had begun
			return w.version <= g.items[w.key]
		}
	})
}
