package reflector

import (
	"slices"

	"github.com/kubebridge/bridge/internal/resource"
)

// position is where in the history the Store stands.
//
// A version is no unique position: an expired lease deletes up to 1,000 Events at one version. A watch that is cut
// amid them has to begin before that version again, and what the Store has of it already is left out.
type position struct {
	// version is the last one that the Store took something of.
	version resource.Version
	// complete is the last one that the Store surely took everything of, since something later was seen.
	complete resource.Version
	// taken are the changes at version that the Store took, while version is not complete.
	taken []taken
	// deletion says that the last change at version was one: only these come several at a time from etcd.
	deletion bool
}

// name is a Key in two parts, which costs no allocation.
type name struct{ namespace, name string }

func nameOf(obj *resource.Object) name { return name{obj.Namespace, obj.Name} }

// taken is an object that has changed. Where an API server gives a deletion the version of the last state, both are of one version.
type taken struct {
	name
	deletion bool
}

// at is a position where everything up to v was taken.
func at(v resource.Version) position { return position{version: v, complete: v} }

// has says whether the Store took this change already.
func (p *position) has(obj *resource.Object, deletion bool) bool {
	return obj.Version == p.version && slices.Contains(p.taken, taken{nameOf(obj), deletion})
}

// took notes a change.
func (p *position) took(obj *resource.Object, deletion bool) {
	if obj.Version != p.version {
		p.complete, p.version = p.version, obj.Version
		p.taken = p.taken[:0]
	}
	p.taken = append(p.taken, taken{nameOf(obj), deletion})
	p.deletion = deletion
}

// mayBeIncomplete reports whether a watch has to begin before the last version. Only deletes come several at a time from etcd: without
// one a watch may begin at the last version itself, so that a quiet resource whose last change but one is too old for the server is not
// listed again for nothing.
func (p *position) mayBeIncomplete() bool { return p.complete != p.version && !p.deletion }
