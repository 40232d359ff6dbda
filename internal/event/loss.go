package event

import (
	"cmp"
	"strconv"
	"time"

	"github.com/kubebridge/bridge/internal/resource"
)

// Loss is about changes that a sink did not get, because too much was pending for it.
type Loss struct {
	// Events is how many; when the bridge died meanwhile, at most how many.
	Events int `json:"events"`
	// From and To are the lowest and the highest version among them.
	From resource.Version `json:"from"`
	To   resource.Version `json:"to"`
	// Start says that any version before To may be among them: the end of a list that did not
	// continue from one.
	Start bool `json:"start,omitempty"`
}

// Between is the loss of one event that reports what was after one version, "" for from the start,
// up to another.
func Between(after, to resource.Version) Loss {
	from := cmp.Or(after, to)
	return Loss{Events: 1, From: from, To: from, Start: after == ""}.And(Loss{From: to, To: to})
}

// And is this loss and another together, which came later in the stream.
func (l Loss) And(later Loss) Loss {
	out := Loss{
		Events: l.Events + later.Events, From: cmp.Or(l.From, later.From),
		To: cmp.Or(later.To, l.To), Start: l.Start || later.Start,
	}
	if out.From.Newer(later.From) && later.From != "" {
		out.From = later.From
	}
	if l.To.Newer(out.To) {
		out.To = l.To
	}
	return out
}

// Dropped makes the event that reports changes which the bridge had read, and dropped before the
// sink could have them. The position of the last of them in the change log distinguishes one such
// event from another: both may be about one version.
func (m *Maker) Dropped(l Loss, era Era, position uint64, observed time.Time) Event {
	if l.Start {
		l.From = ""
	}
	id := "dropped/" + string(l.From) + "/" + string(l.To) + "/" + strconv.FormatUint(position, 10)
	e := m.about("gap", Gap, id, observed)
	e.Sequence, e.ResourceVersion = era.sequence(l.To), string(l.To)
	m.report(&e, gapData{
		Reason: resource.ReasonDropped, From: string(l.From), To: string(l.To), Dropped: l.Events,
		Note: "the log on disk was full: these changes, from the version from (none: from the start) " +
			"to the version to, were dropped before they could be sent and will not come; " +
			"what follows are later changes. Compare with a list of the resource, or take a new snapshot",
	})
	return e
}
