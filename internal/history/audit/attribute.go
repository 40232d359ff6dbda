package audit

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/record"
	"github.com/kubebridge/bridge/internal/metric"
)

// FollowUp publishes events to a sink, those of which it has acknowledged the changes, which were
// stored at Event.Observed. For each that need not be sent again is a function in settled, nil for
// the others: it is called when that is stored.
type FollowUp func(ctx context.Context, sink string, events []*event.Event) (settled []func(), err error)

// Attributor sends an event about the user of each change to other sinks. Make it with its fields,
// and call Run once.
type Attributor struct {
	Sinks     []string
	Cluster   string
	Unsent    history.Unsent
	Questions *query.Questions
	FollowUp  FollowUp
	Metrics   *AttributorMetrics
	Log       *slog.Logger

	// pace divides the pauses, for tests; 0: by one.
	pace time.Duration
}

// AttributorMetrics are those of attributors.
type AttributorMetrics struct{ named, unnamed, dropped *metric.Counter }

// NewAttributorMetrics registers the metrics.
func NewAttributorMetrics(f metric.Factory) *AttributorMetrics {
	const name, help = "bridge_attributed_total",
		"Events about the user of a change: that name one, that say why none is known, and changes of " +
			"which none was sent, since a sink took nothing for a day."
	counters := f.Counters(name, help, "outcome", "known", "unknown", "dropped")
	return &AttributorMetrics{counters.With("known"), counters.With("unknown"), counters.With("dropped")}
}

const (
	// attributedAfter is how long after it was stored the user of a change is looked for: changes
	// of the same time are stored then too.
	attributedAfter = 10 * time.Second
	// attributedBy is how long the audit log is waited for.
	attributedBy = 15 * time.Minute
	// unsentFor is how long a sink may take nothing. It is less where the history keeps less: the
	// backlog is within its bounds too.
	unsentFor = 24 * time.Hour
	// longestPause is between two looks at versions that wait.
	longestPause = 8 * time.Second
	// mostUnsent are looked at together.
	mostUnsent = 500
)

// Run sends until ctx ends. What goes wrong is logged, and tried again.
func (a *Attributor) Run(ctx context.Context) {
	var sinks sync.WaitGroup
	defer sinks.Wait()
	for _, name := range a.Sinks {
		s := &attribution{
			Attributor: a, sink: name, notices: map[*record.Unit]notices{}, settled: map[uint64]func(){},
		}
		sinks.Go(func() { s.run(ctx) })
	}
}

// attribution is for one sink.
type attribution struct {
	*Attributor
	sink    string
	notices map[*record.Unit]notices
	// settled are versions that the sink knows the users of, behind one that it does not.
	settled map[uint64]func()
}

// notices are those of a unit that say what may be missing, as of a time.
type notices struct {
	at   time.Time
	list []*query.Notice
}

func (s *attribution) run(ctx context.Context) {
	var pause time.Duration
	for last := ""; ctx.Err() == nil; {
		moves, isFull, err := s.pass(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			last = ""
		case err.Error() != last:
			last = err.Error()
			s.Log.Warn("users of changes can't be sent now; they are kept", "sink", s.sink, "err", err)
		}
		if isFull {
			continue
		}
		if moves {
			pause = 0
		}
		pause = min(max(2*pause, time.Second), longestPause) // a pass that moves nothing costs as much
		select {
		case <-ctx.Done():
		case <-time.After(pause / max(s.pace, 1)):
		}
	}
}

// pass sends what is known by now. moves is false where versions wait, and isFull says that there
// may be more.
func (s *attribution) pass(ctx context.Context) (moves, isFull bool, err error) {
	list, err := s.Unsent.Next(s.sink, mostUnsent)
	if err != nil {
		return false, false, err
	}
	isFull = len(list) == mostUnsent
	after := attributedAfter / max(s.pace, 1)
	list = slices.Clip(list[:dueAmong(list, time.Now().Add(-after))])
	if len(list) == 0 {
		return true, false, nil
	}
	events, err := s.events(list)
	if err != nil || len(events) == 0 {
		return false, false, err
	}
	err = s.send(ctx, list[:len(events)], events)
	done := 0
	for done < len(events) && (events[done] == nil || s.settled[list[done].Number] != nil) {
		done++
	}
	keptFrom, horizonErr := s.Questions.Coverage.Horizon()
	if horizonErr != nil {
		return false, false, horizonErr
	}
	if day := time.Now().Add(-unsentFor / max(s.pace, 1)); keptFrom.Before(day) {
		keptFrom = day
	}
	if old := dueAmong(list[:len(events)], keptFrom); done == 0 && old > 0 {
		dropped := 0
		for _, v := range list[:old] {
			if s.settled[v.Number] == nil {
				dropped++
			}
		}
		s.Log.Warn("users of changes are not sent any more: the sink has not taken them for a day, or the history forgets "+
			"them", "sink", s.sink, "changes", dropped)
		s.Metrics.dropped.Add(float64(dropped))
		done = old
	}
	if done == 0 {
		return false, false, err
	}
	if err := s.Unsent.Sent(ctx, s.sink, list[done-1].Number, s.Sinks); err != nil {
		return false, false, err
	}
	for _, v := range list[:done] {
		if release := s.settled[v.Number]; release != nil {
			release()
			delete(s.settled, v.Number)
		}
	}
	return true, isFull && done == len(list), err
}

// send sends the events of versions, but for those that were sent before.
func (s *attribution) send(ctx context.Context, list []history.UnsentVersion, events []*event.Event) error {
	var wanted []*event.Event
	var numbers []uint64
	for i, e := range events {
		if e != nil && s.settled[list[i].Number] == nil {
			wanted, numbers = append(wanted, e), append(numbers, list[i].Number)
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	settled, err := s.FollowUp(ctx, s.sink, wanted)
	for i, release := range settled {
		if release == nil {
			continue
		}
		s.settled[numbers[i]] = release
		if slices.ContainsFunc(wanted[i].Extensions, func(a event.Attribute) bool { return a.Name == "actor" }) {
			s.Metrics.named.Inc()
		} else {
			s.Metrics.unnamed.Inc()
		}
	}
	return err
}

// dueAmong returns how many were stored before a time.
func dueAmong(list []history.UnsentVersion, before time.Time) int {
	n := slices.IndexFunc(list, func(v history.UnsentVersion) bool { return !v.Stored.Before(before) })
	if n < 0 {
		return len(list)
	}
	return n
}

// events returns the events of the first versions of a list, up to one for which the audit log is
// to be waited for; nil for a version that retention has removed.
func (s *attribution) events(list []history.UnsentVersion) ([]*event.Event, error) {
	recorded, err := NewRecorded(s.Questions, s.Cluster)
	if err != nil {
		return nil, err
	}
	if recorded == nil { // nothing was read yet
		recorded = &Recorded{s.Questions.Requests, s.Cluster, map[string]*state{"": {}}}
	}
	events, pending := make([]*event.Event, len(list)), make([]bool, len(list))
	byObject := map[query.Object][]int{}
	for i := range list {
		byObject[list[i].Object] = append(byObject[list[i].Object], i)
	}
	for object, indices := range byObject {
		if err := s.answer(&object, recorded, list, indices, events, pending); err != nil {
			return nil, err
		}
	}
	if n := slices.Index(pending, true); n >= 0 {
		events = events[:n]
	}
	return events, nil
}

// answer makes the events of an object's versions.
func (s *attribution) answer(
	o *query.Object, recorded *Recorded, list []history.UnsentVersion, indices []int,
	events []*event.Event, pending []bool,
) error {
	first, last := &list[indices[0]], &list[indices[len(indices)-1]]
	from, to := first.Made, first.Made
	wanted := map[string]int{}
	for _, i := range indices {
		wanted[list[i].Sequence] = i
		if list[i].Made.Before(from) {
			from = list[i].Made
		}
		if list[i].Made.After(to) {
			to = list[i].Made
		}
	}
	holes, err := s.noticesOf(o.Unit, last.Stored)
	if err != nil {
		return err
	}
	var sequences []string
	var changes map[string]*event.Event
	load := func(since time.Time) (*History, error) {
		sequences, changes = nil, map[string]*event.Event{}
		return Load(s.Questions.Objects, o, since, to.Add(time.Second), holes, func(v, _ *query.Version) {
			sequences = append(sequences, v.Sequence())
			if _, isWanted := wanted[v.Sequence()]; isWanted {
				change := v.Event
				change.Data = nil // of the others it is not kept either
				changes[v.Sequence()] = &change
			}
		})
	}
	known, err := load(from)
	if err == nil && len(changes) < len(wanted) {
		// A version that became known late has a later time than the one behind it, which is where
		// the search for the time ends.
		known, err = load(time.Time{})
	}
	if err != nil {
		return err
	}
	join := NewJoin(known, recorded)
	for k, sequence := range sequences {
		change := changes[sequence]
		if change == nil {
			continue
		}
		a, err := join.Answer(k)
		if err != nil {
			return err
		}
		i := wanted[sequence]
		isYoung := time.Since(list[i].Stored) < attributedBy/max(s.pace, 1)
		if pending[i] = a.Reason == lacksYet && isYoung; pending[i] {
			continue
		}
		if events[i], err = attributed(change, &a, list[i].Stored); err != nil {
			return err
		}
	}
	return nil
}

// noticesOf returns what may be missing of a unit, as of a time or later.
func (s *attribution) noticesOf(u *record.Unit, at time.Time) ([]*query.Notice, error) {
	if known, ok := s.notices[u]; ok && known.at.After(at) {
		return known.list, nil
	}
	now := notices{at: time.Now()}
	for m, err := range s.Questions.Coverage.Notices(u, time.Time{}, time.Time{}) {
		if err != nil {
			return nil, err
		}
		if m.IsHole() {
			now.list = append(now.list, m)
		}
	}
	s.notices[u] = now
	return now.list, nil
}

// attributed makes the event about the user of a change that was stored at a time.
func attributed(change *event.Event, a *Answer, stored time.Time) (*event.Event, error) {
	data, err := json.Marshal(struct {
		Change string   `json:"change"`
		Op     event.Op `json:"op"`
		*query.ActorReport
	}{change.ID, change.Op, a.Report()})
	e := &event.Event{
		ID: change.ID + event.AttributedSuffix, Source: change.Source, Type: event.TypeAttributed,
		Subject: change.Subject, Time: change.Time, PartitionKey: change.PartitionKey,
		Sequence: change.Sequence, ObjectAttributes: change.ObjectAttributes, Informer: change.Informer,
		Data: data, Op: event.Attributed, Routing: change.Routing, Observed: stored,
	}
	e.TimeSource = change.TimeSource
	if a.Request != nil {
		for _, x := range []event.Attribute{
			{Name: "actor", Value: a.User},
			{Name: "actorgrade", Value: string(a.Grade)},
			{Name: "impersonator", Value: a.Impersonator},
			{Name: "verb", Value: a.Verb},
			{Name: "auditid", Value: a.ID},
		} {
			if x.Value != "" {
				e.Extensions = append(e.Extensions, x)
			}
		}
	}
	return e, err
}
