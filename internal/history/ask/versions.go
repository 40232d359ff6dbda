package ask

import (
	"cmp"
	"context"
	"slices"

	"github.com/kubebridge/bridge/internal/history/query"
)

// versionsReport answers versions.
type versionsReport struct {
	objectReport
	uncertainty
	// Versions are the newest ones, in their order; Earlier is how many came before in the time
	// asked for.
	Versions []query.VersionReport `json:"versions"`
	Earlier  int                   `json:"earlier,omitempty"`
}

// Bounds of answers that are one document.
const (
	defaultVersions = 500
	mostVersions    = 5000

	// mostBytes is of the objects of versions, or of the changes of a timeline: objects may be
	// large, and each of their versions too.
	mostBytes = 32 << 20
)

func (a *asked) versions(ctx context.Context) (any, error) {
	since, err := a.point("since")
	until, untilErr := a.point("until")
	limit, limitErr := a.limit(defaultVersions, mostVersions)
	if err := cmp.Or(err, untilErr, limitErr); err != nil {
		return nil, err
	}
	o, err := a.find()
	if err != nil {
		return nil, err
	}
	holes, err := a.history.Coverage.Holes(o, since.At, until.At)
	if err != nil {
		return nil, err
	}
	r := versionsReport{objectReport: reportObject(o), Versions: []query.VersionReport{}}
	if r.uncertainty, err = a.uncertainty(holes); err != nil {
		return nil, err
	}
	last := newest{count: limit, bytes: mostBytes}
	for v, err := range a.history.Objects.Versions(o, since.At, until.At) {
		if err := cmp.Or(err, ctx.Err()); err != nil {
			return nil, err
		}
		last.add(v)
	}
	if last.before == nil && len(last.versions) > 0 {
		if last.before, err = a.history.Objects.VersionBefore(last.versions[0]); err != nil {
			return nil, err
		}
	}
	r.Earlier = last.earlier
	before := last.before
	for _, v := range last.versions {
		r.Versions = append(r.Versions, v.Report(before))
		before = v
	}
	return r, nil
}

// newest keeps the last versions that it is given: at most count of them, and at most bytes of
// objects, but always one.
type newest struct {
	count, bytes int
	versions     []*query.Version
	before       *query.Version // the one before them; nil for none
	earlier      int            // how many came before them
}

func (n *newest) add(v *query.Version) {
	n.versions = append(n.versions, v)
	n.bytes -= len(v.Event.Data)
	for len(n.versions) > 1 && (len(n.versions) > n.count || n.bytes < 0) {
		n.before = n.versions[0]
		n.versions = slices.Delete(n.versions, 0, 1)
		n.bytes += len(n.before.Event.Data)
		n.earlier++
	}
}
