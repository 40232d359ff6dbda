package changelog

import "github.com/kubebridge/bridge/internal/resource"

// Front is the newest version that the watch has sent, while more of it may follow, and of which
// objects it was so far. The watermark does not pass that version before a later one or a bookmark
// comes, which may take as long as nothing changes. So the progress for other replicas names the
// objects of it that are delivered.
type Front struct {
	Version resource.Version
	Objects []uint64 // their Key.Digest
}

// maxFront is how many objects a Front has at most. One etcd transaction seldom writes more than
// one; with more there is no Front.
const maxFront = 16

// front is the Front of a log while it is filled.
type front struct {
	Front
	isPartial bool // of some objects it is not known, or there are too many
}

// add adds the object of a mark that the watermark has; version is that of the Watermark's front.
func (f *front) add(m Mark, version resource.Version) {
	if version != f.Version {
		*f = front{Front: Front{Version: version, Objects: f.Objects[:0]}}
	}
	switch {
	case m.Kind != Event || m.Version != version:
	case m.Key == "" || len(f.Objects) == maxFront:
		f.isPartial = true
	default:
		f.Objects = append(f.Objects, m.Key.Digest())
	}
}
