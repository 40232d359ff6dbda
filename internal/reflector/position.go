package reflector

import (
	"slices"

	"github.com/kubebridge/bridge/internal/resource"
)

// position is how far the Store has come in the history.
//
// A version is no unique position: an expired lease deletes up to 1,000 Events at one version. A
// watch that is cut amid them must start before that version again, and changes that the Store has
// already are left out.
type position struct {
	// version is that of the last change that the Store took.
	version resource.Version
	// complete is the last version of which the Store has surely taken everything, since a later
	// one was seen.
	complete resource.Version
	// taken are the changes at version that the Store took, while version is not complete.
	taken []taken
	// deletion: the last change at version was a delete: only deletes come several at a time from
	// etcd.
	deletion bool
}

// name is a Key in two parts, which costs no allocation.
type name struct{ namespace, name string }

func nameOf(obj *resource.Object) name { return name{obj.Namespace, obj.Name} }

// taken is an object that has changed. Where an API server gives a deletion the version of the last
// state, both have one version.
type taken struct {
	name
	deletion bool
}

// at returns a position where everything up to v was taken.
func at(v resource.Version) position { return position{version: v, complete: v} }

// has reports whether the Store took this change already.
func (p *position) has(obj *resource.Object, deletion bool) bool {
	return obj.Version == p.version && slices.Contains(p.taken, taken{nameOf(obj), deletion})
}

// took records a change.
func (p *position) took(obj *resource.Object, deletion bool) {
	if obj.Version != p.version {
		p.complete, p.version = p.version, obj.Version
		p.taken = p.taken[:0]
	}
	p.taken = append(p.taken, taken{nameOf(obj), deletion})
	p.deletion = deletion
}

// mayBeIncomplete reports whether a watch must start before the last version. Only deletes come
// several at a time from etcd. Without one a watch may start at the last version itself. So a quiet
// resource is not listed again for nothing because its last change but one is too old for the
// server.
func (p *position) mayBeIncomplete() bool { return p.complete != p.version && !p.deletion }
