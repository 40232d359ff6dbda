package query

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/history/record"
)

// DB is the database that is asked.
type DB interface {
	NewIter(*pebble.IterOptions) (*pebble.Iterator, error)
	// Units returns all units, in the order in which they came.
	Units() []*record.Unit
	// Unit returns the unit of a number, nil for none.
	Unit(number uint32) *record.Unit
	// Horizon returns the time before which only the last versions are kept, zero for none.
	Horizon() (time.Time, error)
	// Trimmed returns the version of a unit, and its era, from which on states lack nothing that
	// retention has removed; 0 for all.
	Trimmed(u *record.Unit) (era uint32, version uint64, err error)
	// Kinds returns the kinds that the objects of a unit had, the newest last.
	Kinds(u *record.Unit) []string
	// Reached returns the highest era that something is stored of, and in it the highest
	// resourceVersion; 0 for none.
	Reached(u *record.Unit) (era uint32, version uint64, err error)
	// ReadError adds to damage what can be done about it.
	ReadError(error) error
}

// Questions are all that can be asked of a history. Several goroutines may ask at a time.
type Questions struct {
	Resources Resources
	Objects   Objects
	Timeline  Timeline
	Coverage  Coverage
	Requests  Requests
}

// Resources are what a history has objects of.
type Resources struct{ db DB }

// Objects are what objects were.
type Objects struct{ db DB }

// Timeline is what happened, and when.
type Timeline struct{ db DB }

// Coverage says from when on a history is complete, up to when, and what may be missing between.
type Coverage struct{ db DB }

// New returns the questions to a database.
func New(db DB) *Questions {
	return &Questions{Resources{db}, Objects{db}, Timeline{db}, Coverage{db}, Requests{db}}
}

// ErrSeveralClusters is in the error for an object that several clusters have.
var ErrSeveralClusters = errors.New("is in several clusters")

// Find finds an object by name, in a namespace or in none: nil when no event ever named it. Where
// several informers have it, it is the one with the newest version; the others are in others.
func (h Objects) Find(
	units []*record.Unit, namespace, name string,
) (best *Object, others []*record.Unit, err error) {
	var newest time.Time
	var clusters []string
	for _, u := range units {
		for _, in := range slices.Compact([]string{namespace, ""}) {
			object := &Object{Unit: u, Namespace: in, Name: name}
			last, err := h.At(object, Point{})
			if err != nil {
				return nil, nil, err
			}
			if last == nil {
				continue
			}
			clusters = append(clusters, u.Cluster())
			others = append(others, u)
			if best == nil || last.Time.After(newest) {
				best, newest = object, last.Time
			}
			break
		}
	}
	slices.Sort(clusters)
	if clusters = slices.Compact(clusters); len(clusters) > 1 {
		return nil, nil, fmt.Errorf("%s/%s %w: %s", units[0].Resource, name, ErrSeveralClusters,
			strings.Join(clusters, ", "))
	}
	others = slices.DeleteFunc(others, func(u *record.Unit) bool { return u == best.Unit })
	return best, others, nil
}

// Errors that say why there is no version of an object at a point. Each has the times.
var (
	// ErrDidNotExist: the history knows that there was no such object.
	ErrDidNotExist = errors.New("did not exist")
	// ErrNotKnown: nothing is known of the object at that point.
	ErrNotKnown = errors.New("is not known")
)

// Existing returns the version of an object that existed at a point. Where there was none the error
// says why.
func (h Objects) Existing(o *Object, p Point) (*Version, error) {
	horizon, err := h.db.Horizon()
	if err != nil {
		return nil, err
	}
	if p.IsBefore(horizon) {
		return nil, fmt.Errorf("what %s was at %s %w: this history is kept from %s on (retention)",
			o, p,
			ErrNotKnown, ShowTime(horizon))
	}
	v, err := h.At(o, p)
	if err == nil && (v == nil || v.Deleted()) {
		err = h.mayHaveExisted(o, v, p)
	}
	switch {
	case err != nil:
		return nil, err
	case v == nil:
		return nil, h.notYet(o, p, horizon)
	case v.Deleted():
		return nil, fmt.Errorf("%s %w at %s: it was deleted at %s (resourceVersion %s)", o,
			ErrDidNotExist, p,
			ShowTime(v.Time), v.Event.ResourceVersion)
	}
	return v, nil
}

// mayHaveExisted returns an error where an object that is not known at a point may have existed in
// a hole, or since before it became known. v is the end of the one before, nil for none.
func (h Objects) mayHaveExisted(o *Object, v *Version, p Point) error {
	d, err := h.LateChange(o, p)
	if err != nil {
		return err
	}
	if d != nil {
		return fmt.Errorf("whether %s existed at %s %w: it was %s", o, p, ErrNotKnown, d)
	}
	holes, err := Coverage(h).Uncertain(o, v, p)
	if err != nil || len(holes) == 0 {
		return err
	}
	return fmt.Errorf("whether %s existed at %s %w: %s", o, p, ErrNotKnown, holes[0].What())
}

// notYet distinguishes an object that did not exist from one that was not known: retention may have
// removed another one of the name before the first version that is left.
func (h Objects) notYet(o *Object, p Point, horizon time.Time) error {
	for first, err := range h.Versions(o, time.Time{}, time.Time{}) {
		if err != nil {
			return err
		}
		e := &first.Event
		if e.IsCreation() && !first.Time.Before(horizon) && (p.Version == 0 || horizon.IsZero()) {
			return fmt.Errorf("%s %w at %s: it was created at %s (resourceVersion %s)", o,
				ErrDidNotExist, p,
				ShowTime(first.Time), e.ResourceVersion)
		}
		return fmt.Errorf("what %s was at %s %w: the history of it begins at %s (resourceVersion %s)", o,
			p, ErrNotKnown, ShowTime(first.Time), e.ResourceVersion)
	}
	return fmt.Errorf("%s %w", o, ErrNotKnown)
}

// VersionBefore returns the version before one, nil for none, and where the object had ended.
func (h Objects) VersionBefore(v *Version) (*Version, error) {
	r, err := newReader(h.db)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	before, err := r.before(v.Unit, v.Event.Namespace, v.Event.Name, v.seq)
	return before, h.db.ReadError(err)
}

// Point is a place in the history of a cluster: a time, or a resourceVersion. The zero point is the
// newest version that is known.
type Point struct {
	At      time.Time
	Version uint64
}

// IsZero reports whether the point is the newest version.
func (p Point) IsZero() bool { return p.At.IsZero() && p.Version == 0 }

// IsBefore reports whether the point is a time before another.
func (p Point) IsBefore(at time.Time) bool { return !p.At.IsZero() && p.At.Before(at) }

// String returns the point with its time zone.
func (p Point) String() string {
	if p.Version > 0 {
		return "resourceVersion " + strconv.FormatUint(p.Version, 10)
	}
	return ShowTime(p.At)
}

// ShowTime returns a time with its zone, so that nobody mistakes one.
func ShowTime(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05 -07:00") }

// ParsePoint reads a point: 14:03 (the last one that was), 2h ago, a date, RFC 3339, "now", or a
// resourceVersion. A time of the future is an error.
func ParsePoint(text string, now time.Time) (p Point, err error) {
	text = strings.TrimSpace(text)
	if n, err := strconv.ParseUint(text, 10, 64); err == nil && n > 0 {
		return Point{Version: n}, nil
	}
	if text == "now" {
		return Point{At: now}, nil
	}
	if ago, ok := parseAgo(text); ok {
		return Point{At: now.Add(-ago)}, nil
	}
	for _, layout := range []string{
		time.RFC3339Nano, "2006-01-02 15:04:05", "2006-01-02 15:04",
		"2006-01-02T15:04:05", "2006-01-02",
	} {
		if at, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			p.At = at
		}
	}
	for _, layout := range []string{"15:04:05", "15:04"} {
		if clock, err := time.Parse(layout, text); err == nil {
			p.At = time.Date(now.Year(), now.Month(), now.Day(), clock.Hour(), clock.Minute(),
				clock.Second(), 0, now.Location())
			if p.At.After(now) {
				p.At = p.At.AddDate(0, 0, -1)
			}
		}
	}
	switch {
	case p.At.IsZero():
		return p, fmt.Errorf("%q is no time: want 14:03, 2h ago, 2026-11-22 14:03, RFC 3339, "+
			"or a resourceVersion", text)
	case p.At.After(now):
		return p, fmt.Errorf("%s is in the future: now is %s", ShowTime(p.At), ShowTime(now))
	}
	return p, nil
}

// parseAgo reads "2h ago", "90m", "3d".
func parseAgo(text string) (time.Duration, bool) {
	text = strings.ReplaceAll(strings.TrimSpace(strings.TrimSuffix(text, "ago")), " ", "")
	if days, found := strings.CutSuffix(text, "d"); found {
		n, err := strconv.ParseFloat(days, 64)
		return time.Duration(n * float64(24*time.Hour)), err == nil && n > 0
	}
	d, err := time.ParseDuration(text)
	return d, err == nil && d > 0
}
