package bridge

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/kubebridge/bridge/internal/pipeline"
)

// pipelines has the pipelines that run, and what is left of those whose resource has gone.
type pipelines struct {
	mu sync.Mutex // guards all below; held for a few map operations only
	// list is replaced and never changed, so that a reader may go through it.
	list []*pipeline.Pipeline
	// gone has the retired pipelines: those whose resource the API server does not serve any more,
	// by name. The pipeline itself is released: it holds memory.
	gone map[string]retired
	// unclean: a pipeline ended before it found out what a run before has sent.
	unclean bool
}

// retired is what is left of a pipeline whose resource has gone.
type retired struct {
	name     string
	notReady string
	status   pipeline.Status
}

// all are the pipelines that run, those that drain among them. It must not be changed.
func (r *pipelines) all() []*pipeline.Pipeline {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.list
}

// retired are the pipelines whose resource has gone, by name.
func (r *pipelines) retired() []retired {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.SortedFunc(maps.Values(r.gone),
		func(a, b retired) int { return strings.Compare(a.name, b.name) })
}

func (r *pipelines) add(u *pipeline.Pipeline) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(slices.Clone(r.list), u)
	delete(r.gone, u.Name())
}

// remove takes out a pipeline that has ended.
func (r *pipelines) remove(u *pipeline.Pipeline, why pipeline.Drain) {
	isClean, left := u.IsClean(), retired{u.Name(), u.NotReady(false), u.Status()}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = slices.DeleteFunc(slices.Clone(r.list),
		func(other *pipeline.Pipeline) bool { return other == u })
	// One that has changed has a successor that finds out, or setUnclean is called.
	r.unclean = r.unclean || !isClean && why != pipeline.Changed
	if why == pipeline.Gone {
		r.gone[u.Name()] = left
	}
}

// setUnclean says that a pipeline without a successor may have sent what is not known.
func (r *pipelines) setUnclean() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unclean = true
}

// keepInformers forgets the retired pipelines of all other informers.
func (r *pipelines) keepInformers(names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.gone, func(_ string, p retired) bool {
		return !slices.Contains(names,
			p.status.Informer)
	})
}

// isClean reports whether every pipeline knows what was sent.
func (r *pipelines) isClean() bool {
	r.mu.Lock()
	list, unclean := r.list, r.unclean
	r.mu.Unlock()
	return !unclean && !slices.ContainsFunc(list,
		func(u *pipeline.Pipeline) bool { return !u.IsClean() })
}
