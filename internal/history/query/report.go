package query

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history/record"
	"github.com/kubebridge/bridge/internal/resource/diff"
)

// VersionReport is a version as JSON.
type VersionReport struct {
	Time       time.Time `json:"time"`
	TimeSource string    `json:"timeSource,omitempty"`
	Operation  string    `json:"operation"`
	Version    string    `json:"resourceVersion"`
	Previous   string    `json:"previous,omitempty"`
	// UID of the object; a timeline has none.
	UID string `json:"uid,omitempty"`
	// Manager of this change, with its subresource as "kubelet/status"; "" where it is not known.
	Manager  string         `json:"manager,omitempty"`
	Changed  []ChangeReport `json:"changed,omitempty"`
	Initial  bool           `json:"initial,omitempty"`
	Inferred bool           `json:"inferred,omitempty"`
	// Known is what is known of the object: object, metadata, patch, none.
	Known record.Form `json:"known"`
}

// ChangeReport is a Change as JSON.
type ChangeReport struct {
	Field string          `json:"field"`
	Old   json.RawMessage `json:"old,omitempty"`
	New   json.RawMessage `json:"new,omitempty"`
	// Omitted: a value is too long for a timeline. The versions of the object have it.
	Omitted bool `json:"omitted,omitempty"`
}

// TimelineReport is a change in a timeline as JSON.
type TimelineReport struct {
	Cluster   string `json:"cluster"`
	Resource  string `json:"resource"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Owners    string `json:"owners,omitempty"`
	VersionReport
	// More is how many changed fields are not in Changed.
	More int `json:"moreChanged,omitempty"`
}

// Report returns a version with what it changed; before is nil where that is not known.
func (v *Version) Report(before *Version) VersionReport {
	return v.report(v.ChangesSince(before))
}

func (v *Version) report(changes []diff.Change) VersionReport {
	e := &v.Event
	r := VersionReport{
		Time: v.Time, TimeSource: e.TimeSource, Operation: string(e.Op), Version: e.ResourceVersion,
		Previous: e.Previous,
		UID:      e.UID, Manager: v.Manager(), Initial: e.Initial, Inferred: e.Inferred,
		Known: v.Form(),
	}
	for _, c := range changes {
		r.Changed = append(r.Changed, ChangeReport{c.Path, c.Old, c.New, c.Omitted})
	}
	return r
}

// Size is about how many bytes it takes as JSON.
func (r *VersionReport) Size() int {
	size := 256
	for _, c := range r.Changed {
		size += len(c.Field) + len(c.Old) + len(c.New)
	}
	return size
}

// Report returns an entry of a timeline as JSON.
func (e *Entry) Report() TimelineReport {
	return TimelineReport{
		Cluster: e.Unit.Cluster(), Resource: e.Unit.GroupResource(), Namespace: e.Event.Namespace,
		Name:   e.Event.Name,
		Owners: e.Attribute("owners"), VersionReport: e.report(e.Changes), More: e.More,
	}
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
// a hole. v is the end of the one before, nil for none.
func (h Objects) mayHaveExisted(o *Object, v *Version, p Point) error {
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
		if e.Op == event.Added && !e.Initial && !e.Inferred && e.Cause != "entered-selector" &&
			!first.Time.Before(horizon) && (p.Version == 0 || horizon.IsZero()) {
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
