package history_test

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/testkit"
)

var lifeRounds = flag.Int("history.lives", 2, "rounds of TestLives; 25 take minutes")

// livesBegan is the time of the first event.
var livesBegan = time.Date(2026, 11, 22, 14, 0, 0, 0, time.UTC)

// livesScript makes events of objects that come and go, with restores of etcd between.
type livesScript struct {
	random  *rand.Rand
	era     int
	version int
	at      time.Time
	uid     map[string]string // by name, of what lives
	uids    int
}

func (s *livesScript) event(name string, op event.Op) *event.Event {
	s.version++
	s.at = s.at.Add(time.Duration(s.random.IntN(8000)) * time.Millisecond)
	if s.uid[name] == "" {
		s.uids++
		s.uid[name] = fmt.Sprint(name, "-", s.uids)
	}
	namespace := []string{"shop", "blue"}[len(name)%2]
	e := podVersionIn(namespace, 0, s.version, 0, s.at, "")
	e.Name, e.UID, e.PartitionKey, e.Op = name, s.uid[name], "pods/"+namespace+"/"+name, op
	e.ID, e.Type = fmt.Sprint(e.UID, s.era, s.version), "dev.kubebridge.resource."+string(op)
	e.Sequence = fmt.Sprintf("%08d.%020d", s.era, s.version)
	if op == event.Deleted {
		e.Sequence += ".deleted"
		delete(s.uid, name)
	}
	return e
}

// next are the next events.
func (s *livesScript) next() (events []*event.Event) {
	if s.random.IntN(200) == 0 {
		return s.restore()
	}
	name := fmt.Sprintf("web-%d", s.random.IntN(30))
	switch {
	case s.uid[name] == "":
		return []*event.Event{s.event(name, event.Added)}
	case s.random.IntN(3) == 0:
		return []*event.Event{s.event(name, event.Deleted)}
	}
	return []*event.Event{s.event(name, event.Updated)}
}

// restore is what a list has after a restore: some objects in old versions, others are gone.
func (s *livesScript) restore() (events []*event.Event) {
	s.era++
	before := s.version
	s.version -= min(s.version-1, s.random.IntN(300))
	list := s.version
	gap := s.event("", event.Gap)
	gap.Type, gap.UID, gap.Namespace, gap.PartitionKey = "dev.kubebridge.informer.gap", "", "", ""
	gap.Data = fmt.Appendf(nil, `{"reason":"rewound","from":"%d","to":"%d"}`, before, list)
	events = append(events, gap)
	for i := range 30 {
		name := fmt.Sprintf("web-%d", i)
		isThere, was := s.random.IntN(2) == 0, s.uid[name] != ""
		s.version = 1 + s.random.IntN(list)
		switch {
		case was && (!isThere || s.random.IntN(2) == 0): // the end of what was undone
			if !isThere {
				s.version = list - 1
			}
			end := s.event(name, event.Deleted)
			end.Inferred = true
			events = append(events, end)
			if isThere {
				events = append(events, s.event(name, event.Added))
			}
		case isThere:
			events = append(events, s.event(name, event.Updated))
		}
	}
	s.version = list
	return events
}

// A state is what a walk over all names that were ever known gives: also of objects that come back,
// after restores, for events that are late or repeated, after crashes and retention.
func TestLives(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	for seed := range uint64(*lifeRounds) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { runLives(t, seed) })
	}
}

func runLives(t *testing.T, seed uint64) {
	s := &livesScript{random: rand.New(rand.NewPCG(seed, 7)), version: 1000, at: livesBegan, uid: map[string]string{}}
	var events []*event.Event
	for len(events) < 1500 {
		events = append(events, s.next()...)
	}
	delayed := slices.Clone(events)
	for i := range delayed {
		if s.random.IntN(20) == 0 { // late, and maybe twice
			j := min(i+1+s.random.IntN(40), len(delayed)-1)
			if s.random.IntN(2) == 0 {
				delayed[i], delayed[j] = delayed[j], delayed[i]
			} else {
				delayed = slices.Insert(delayed, j, delayed[i])
			}
		}
	}
	files := vfs.NewCrashableMem()
	options := func() history.Options {
		return history.Options{Dir: "history", FS: files, MemTableBytes: 64 << 10, LastVersionsBytes: []int{1, 5_000, 0}[seed%3]}
	}
	db, err := history.Open(options())
	testkit.OK(t, err)
	defer func() { testkit.OK(t, db.Close()) }()
	horizon := livesBegan
	for len(delayed) > 0 {
		n := min(1+s.random.IntN(80), len(delayed))
		_, err := db.Writer.Append(t.Context(), delayed[:n])
		testkit.OK(t, err)
		delayed = delayed[n:]
		switch s.random.IntN(12) {
		case 0:
			crashed := files.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: s.random.IntN(101), RNG: s.random})
			testkit.OK(t, db.Close())
			files = crashed
			db, err = history.Open(options())
			testkit.OK(t, err)
		case 1:
			if seed%2 == 0 {
				testkit.OK(t, db.Maintenance.Retain(t.Context(), history.Retention{Age: time.Hour}, s.at))
				if horizon, err = db.Questions.Coverage.Horizon(); horizon.IsZero() {
					horizon = livesBegan
				}
				testkit.OK(t, err)
			}
		default:
		}
		if s.random.IntN(4) == 0 {
			compareWalk(t, db, s.random, events, horizon)
		}
	}
	compareWalk(t, db, s.random, events, horizon)
}

// compareWalk compares states with a walk over all names. A version of before the horizon may be of
// something that is removed.
func compareWalk(t *testing.T, db *history.DB, random *rand.Rand, events []*event.Event, horizon time.Time) {
	t.Helper()
	u := db.Questions.Resources.Units()[0]
	removed := uint64(0)
	for _, e := range events {
		if e.Time.Before(horizon) {
			removed = max(removed, version(e))
		}
	}
	for range 15 {
		e := events[random.IntN(len(events))]
		p := query.Point{At: e.Time.Add(time.Duration(random.IntN(3)-1) * time.Second)}
		switch random.IntN(5) {
		case 0:
			p = query.Point{}
		case 1, 2:
			p = query.Point{Version: version(e) + uint64(random.IntN(3)) - 1}
		}
		if p.IsBefore(horizon) || p.Version > 0 && p.Version <= removed {
			continue
		}
		for _, namespace := range []string{"*", "shop"} {
			var want, got []string
			for o, err := range db.Questions.Objects.All(u, "") {
				testkit.OK(t, err)
				v, err := db.Questions.Objects.At(&o, p)
				testkit.OK(t, err)
				if v != nil && !v.Deleted() && (namespace == "*" || o.Namespace == namespace) {
					want = append(want, o.Namespace+"/"+o.Name+" "+v.Event.Sequence)
				}
			}
			for v, err := range db.Questions.Objects.State(query.StateQuery{Units: db.Questions.Resources.Units(), Namespace: namespace, At: p}) {
				testkit.OK(t, err)
				got = append(got, v.Event.Namespace+"/"+v.Event.Name+" "+v.Event.Sequence)
			}
			if !slices.Equal(got, want) {
				t.Fatalf("in %s at %v:\n%q, want\n%q", namespace, p, got, want)
			}
			if len(want) < 3 {
				continue
			}
			behind := want[len(want)/2]
			object, _, _ := strings.Cut(behind, " ")
			ns, name, _ := strings.Cut(object, "/")
			n := 0
			for v, err := range db.Questions.Objects.State(query.StateQuery{
				Units: db.Questions.Resources.Units(), Namespace: namespace, At: p, Behind: &query.Object{Namespace: ns, Name: name},
			}) {
				testkit.OK(t, err)
				n++
				if cmp.Or(cmp.Compare(v.Event.Namespace, ns), cmp.Compare(v.Event.Name, name)) <= 0 {
					t.Fatalf("%s/%s is not behind %s", v.Event.Namespace, v.Event.Name, behind)
				}
			}
			if n != len(want)-len(want)/2-1 {
				t.Fatalf("%d are behind %s of %q", n, behind, want)
			}
		}
	}
}
