package ask

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/kubebridge/bridge/internal/history/audit"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/record"
)

// Actors finds who made versions, in what a history has recorded of audit logs. It is not for
// concurrent use.
type Actors struct {
	history  *query.Questions
	recorded map[string]*audit.Recorded // by cluster; nil: nothing is recorded
	notices  map[*record.Unit]unitNotices
	sent     map[*record.Unit]bool      // a stream has said who made its changes
	parts    map[objectName]*actorsPart // the last one of each object
}

// objectName identifies an object.
type objectName struct {
	unit            uint32
	namespace, name string
}

// actorsPart are the versions of one object in a part of the time.
type actorsPart struct {
	from, loaded time.Time
	join         *audit.Join
	indices      map[string]int // of the versions, by sequence
}

// isOld reports whether versions may have come since they were read.
func (p *actorsPart) isOld() bool {
	wasOver := p.loaded.After(p.from.Add(2 * actorsPartSize))
	return !wasOver && time.Since(p.loaded) > maxActorsAge
}

// has reports whether a version is of this part of the time, and was there.
func (p *actorsPart) has(v *query.Version) bool {
	_, isKnown := p.indices[v.Sequence()]
	return isKnown && p.from.Equal(v.Time.Truncate(actorsPartSize))
}

// unitNotices are what may be missing of a unit, as of a time.
type unitNotices struct {
	read time.Time
	list []*query.Notice
}

const (
	actorsPartSize = 10 * time.Minute
	// mostActorsParts bounds the memory.
	mostActorsParts = 1000
	// maxActorsAge bounds how much older what is known of an object may be than the log: a request
	// may have made a version that was not there yet.
	maxActorsAge = time.Second
)

// NewActors returns actors of a history.
func NewActors(history *query.Questions) *Actors {
	return &Actors{
		history,
		map[string]*audit.Recorded{},
		map[*record.Unit]unitNotices{},
		map[*record.Unit]bool{},
		map[objectName]*actorsPart{},
	}
}

// IsRecorded reports whether users of a cluster's changes are known: its audit log was recorded, or
// the stream has them from which the history was read.
func (a *Actors) IsRecorded(cluster string) (bool, error) {
	r, err := a.recordedOf(cluster)
	if err != nil || r != nil {
		return r != nil, err
	}
	for _, u := range a.history.Resources.Units() {
		if has, err := a.isSent(u); u.Cluster() == cluster && (has || err != nil) {
			return has, err
		}
	}
	return false, nil
}

// isSent reports whether a stream has said who made changes of a unit.
func (a *Actors) isSent(u *record.Unit) (has bool, err error) {
	has, isKnown := a.sent[u]
	if !isKnown {
		if has, err = a.history.Requests.HasActors(u); err == nil {
			a.sent[u] = has
		}
	}
	return has, err
}

func (a *Actors) recordedOf(cluster string) (r *audit.Recorded, err error) {
	r, isKnown := a.recorded[cluster]
	if !isKnown {
		if r, err = audit.NewRecorded(a.history, cluster); err == nil {
			a.recorded[cluster] = r
		}
	}
	return r, err
}

// AddTo adds to a report who made its version; nothing where no audit log was recorded.
func (a *Actors) AddTo(r *query.VersionReport, v *query.Version) error {
	actor, err := a.of(v)
	if err == nil {
		r.Actor = actor
	}
	return err
}

// of returns who made a version; nil where no audit log was recorded.
func (a *Actors) of(v *query.Version) (*query.ActorReport, error) {
	recorded, err := a.recordedOf(v.Unit.Cluster())
	if err != nil {
		return nil, err
	}
	if recorded == nil {
		isSent, err := a.isSent(v.Unit)
		if err != nil || !isSent {
			return nil, err
		}
		actor, err := a.history.Requests.ActorOf(v)
		if err == nil && actor == nil {
			actor = &query.ActorReport{Unknown: "the stream does not say it"}
		}
		return actor, err
	}
	name := objectName{v.Unit.Number, v.Event.Namespace, v.Event.Name}
	part := a.parts[name]
	if part == nil || part.isOld() || !part.has(v) {
		if part, err = a.load(v, v.Time.Truncate(actorsPartSize), recorded); err != nil {
			return nil, err
		}
		if len(a.parts) >= mostActorsParts {
			clear(a.parts)
		}
		a.parts[name] = part
	}
	i, isKnown := part.indices[v.Sequence()]
	if !isKnown {
		return (&audit.Answer{Reason: "its object has changed meanwhile"}).Report(), nil
	}
	answer, err := part.join.Answer(i)
	if err != nil {
		return nil, err
	}
	return answer.Report(), nil
}

// load reads the part of an object's versions that begins at a time.
func (a *Actors) load(
	v *query.Version, from time.Time, recorded *audit.Recorded,
) (*actorsPart, error) {
	part := &actorsPart{from: from, indices: map[string]int{}}
	notices, err := a.noticesOf(v.Unit)
	if err != nil {
		return nil, err
	}
	object := &query.Object{Unit: v.Unit, Namespace: v.Event.Namespace, Name: v.Event.Name}
	versions := 0
	known, err := audit.Load(a.history.Objects, object, from, from.Add(actorsPartSize), notices,
		func(v, _ *query.Version) {
			part.indices[v.Sequence()] = versions
			versions++
		})
	if err != nil {
		return nil, err
	}
	part.join, part.loaded = audit.NewJoin(known, recorded), time.Now()
	return part, nil
}

// noticesOf returns what may be missing of a unit.
func (a *Actors) noticesOf(u *record.Unit) ([]*query.Notice, error) {
	if known, ok := a.notices[u]; ok && time.Since(known.read) <= maxActorsAge {
		return known.list, nil
	}
	now := unitNotices{read: time.Now()}
	for m, err := range a.history.Coverage.Notices(u, time.Time{}, time.Time{}) {
		if err != nil {
			return nil, err
		}
		if m.IsHole() {
			now.list = append(now.list, m)
		}
	}
	a.notices[u] = now
	return now.list, nil
}

// ErrNoAudit is the error of a question about users, where no audit log was recorded.
var ErrNoAudit = errors.New("this history has recorded no audit log, so no user is known: have the " +
	"history sink record it (key audit)")

// Selected is the relation of a change to the users that are asked for.
type Selected int

// Values of Selected.
const (
	UserWanted Selected = iota
	UserOther
	UserUnknown // it may be by one of them
)

// Selects reports whether a version is by a user that fits one of the patterns actors, and none of
// notActors. In a pattern * is any text; no patterns select all. A change of which the user is not
// known may be by anybody: notActors do not leave it out.
func (a *Actors) Selects(v *query.Version, actors, notActors []string) (Selected, error) {
	if len(actors)+len(notActors) == 0 {
		return UserWanted, nil
	}
	actor, err := a.of(v)
	isOf := func(pattern string) bool { return actor.User != "" && fitsPattern(pattern, actor.User) }
	switch {
	case err != nil || actor == nil:
		return UserUnknown, err
	case actor.User == "" && len(actors) > 0:
		return UserUnknown, nil
	case len(actors) > 0 && !slices.ContainsFunc(actors, isOf), slices.ContainsFunc(notActors, isOf):
		return UserOther, nil
	}
	return UserWanted, nil
}

// fitsPattern reports whether a text is as a pattern, in which * is any text.
func fitsPattern(pattern, text string) bool {
	first, rest, hasStar := strings.Cut(pattern, "*")
	if !hasStar {
		return pattern == text
	}
	text, ok := strings.CutPrefix(text, first)
	if !ok {
		return false
	}
	parts := strings.Split(rest, "*")
	for _, part := range parts[:len(parts)-1] {
		_, after, found := strings.Cut(text, part)
		if !found {
			return false
		}
		text = after
	}
	return strings.HasSuffix(text, parts[len(parts)-1])
}
