package ask

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/resource/diff"
)

// stateOf is an object at a point.
type stateOf struct {
	objectReport
	uncertainty
	query.VersionReport
	Object json.RawMessage `json:"object,omitempty"`
}

// existing is the version at a parameter's point, the last one when it is left out.
func (a *asked) existing(
	o *query.Object, name string,
) (v *query.Version, holes []*query.Mark, err error) {
	p, err := a.point(name)
	if err != nil {
		return nil, nil, err
	}
	if p.IsZero() {
		v, err = a.history.Objects.At(o, p)
	} else {
		v, err = a.history.Objects.Existing(o, p)
	}
	if err == nil && !p.IsZero() {
		holes, err = a.history.Coverage.Uncertain(o, v, p)
	}
	return v, holes, err
}

func (a *asked) object(_ context.Context) (any, error) {
	o, err := a.find()
	if err != nil {
		return nil, err
	}
	v, holes, err := a.existing(o, "at")
	if err != nil {
		return nil, err
	}
	r := stateOf{objectReport: reportObject(o), VersionReport: v.Report(nil)}
	if r.uncertainty, err = a.uncertainty(holes); err != nil {
		return nil, err
	}
	if json.Valid(v.Event.Data) {
		r.Object = v.Event.Data
	}
	return r, nil
}

// diffReport is what differs between two versions.
type diffReport struct {
	objectReport
	uncertainty
	From    query.VersionReport  `json:"from"`
	To      query.VersionReport  `json:"to"`
	Changed []query.ChangeReport `json:"changed"`
}

func (a *asked) diff(_ context.Context) (any, error) {
	o, err := a.find()
	if err != nil {
		return nil, err
	}
	to, holes, err := a.existing(o, "to")
	if err != nil {
		return nil, err
	}
	var from *query.Version
	if a.q.Get("from") == "" {
		if from, err = a.history.Objects.VersionBefore(to); err == nil && from == nil {
			err = notFound(fmt.Errorf("%s has no version before resourceVersion %s", o,
				to.Event.ResourceVersion))
		}
	} else {
		var more []*query.Mark
		from, more, err = a.existing(o, "from")
		holes = append(holes, more...)
	}
	if err != nil {
		return nil, err
	}
	if from.Form() != to.Form() {
		return nil, notFound(fmt.Errorf("the two versions can't be compared: of one the history has "+
			"the %s, of the other the %s", from.Form(), to.Form()))
	}
	r := diffReport{
		objectReport: reportObject(o), From: from.Report(nil), To: to.Report(nil),
		Changed: []query.ChangeReport{},
	}
	if r.uncertainty, err = a.uncertainty(holes); err != nil {
		return nil, err
	}
	for _, c := range diff.Changes(from.Event.Data, to.Event.Data) {
		r.Changed = append(r.Changed, query.ChangeReport{Field: c.Path, Old: c.Old, New: c.New})
	}
	return r, nil
}
