package deltafifo

import "github.com/kubebridge/bridge/internal/resource"

// listState is the list that handed out deltas belong to.
type listState struct {
	relist *resource.Relist // of the ReplaceBegin that has no ReplaceEnd yet; nil between lists
	// in that list is something of which nobody knows which object it is
	incomplete bool
}

// annotate notes on deltas in stream order which list they belong to, and reports whether a first
// population ends with them.
func (l *listState) annotate(d Deltas) (synced bool) {
	for i := range d {
		switch d := &d[i]; d.Type {
		case ReplaceBegin:
			l.relist, l.incomplete = d.Relist, false
			if d.Relist.Kind == resource.RelistSelection {
				l.relist = nil
			}
		case ReplaceEnd:
			d.Relist, l.relist = l.ended(), nil
			synced = true
		case Skipped:
			l.incomplete = l.incomplete || d.Key == ""
		case Replaced, Quarantined:
		default:
			synced = synced || l.relist == nil
			d.Listed = (d.Type == Unselected || d.Type == Deleted) && l.relist != nil
		}
	}
	return synced
}

// ended is the Relist of a ReplaceEnd. Whoever was handed the ReplaceBegin has the other.
func (l *listState) ended() *resource.Relist {
	if l.relist == nil || !l.incomplete {
		return l.relist
	}
	why := *l.relist
	why.Incomplete = true
	return &why
}
