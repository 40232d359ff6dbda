package informer

import (
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/kubebridge/bridge/internal/resource"
)

// ObjectState is the last settled state of an object, as one informer has it.
type ObjectState struct {
	Informer   string `json:"informer"`
	Resource   string `json:"resource"`
	APIVersion string `json:"apiVersion"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
	Version    string `json:"version"`
	// Deleted: it is gone as of Version, and there is no Object.
	Deleted bool `json:"deleted"`
	// Watermark of the informer.
	Watermark string `json:"watermark"`
	// Object is the JSON as it was sent: without what the configuration cuts, and redacted.
	Object json.RawMessage `json:"object,omitempty"`
	// Earlier is Object's own version where it is not Version: in a flood of updates the state has
	// an earlier one (state.bodiesPerSecond).
	Earlier string `json:"earlier,omitempty"`
	// Problem says why it can't be read.
	Problem string `json:"problem,omitempty"`
}

// Objects are those that a pipeline knows. Its methods read the state database alone, and may be
// called at any time until that is closed.
type Objects struct {
	p       *Informer
	counted objectCount
}

// Get returns the last settled state of an object.
func (o *Objects) Get(key resource.Key) (s ObjectState, found bool, err error) {
	p := o.p
	stored, found, err := p.indexer.Stored(key)
	if !found {
		return ObjectState{}, false, err
	}
	namespace, name := key.Split()
	s = ObjectState{
		Informer: p.cfg.Informer, Resource: p.cfg.Type.String(), APIVersion: p.cfg.Type.APIVersion(),
		Namespace: namespace, Name: name, UID: stored.UID, Version: string(stored.Version),
		Deleted: stored.Deleted, Watermark: string(p.stages.Log().Status().Watermark),
		Object: stored.Body,
	}
	if err != nil {
		s.Problem = err.Error()
	}
	if obj, err := resource.Restore(stored.Body, p.cfg.Type); err == nil &&
		obj.Version != stored.Version {
		s.Earlier = string(obj.Version)
	}
	return s, true, nil
}

// Owner returns the metadata of the object that an owner reference in a namespace names, nil when
// this pipeline does not have it.
func (o *Objects) Owner(of resource.Owner, namespace string) *resource.Meta {
	group, _, found := strings.Cut(of.APIVersion, "/")
	if !found {
		group = ""
	}
	t, only := o.p.cfg.Type, o.p.cfg.Namespace
	if t.Group != group || t.Kind != of.Kind || only != "" && only != namespace {
		return nil
	}
	key := resource.MakeKey("", of.Name)
	if t.Namespaced {
		key = resource.MakeKey(namespace, of.Name)
	}
	if obj, err := o.p.indexer.Object(key); err == nil && obj != nil && obj.UID == of.UID {
		return &obj.Meta
	}
	return nil
}

// Count is the number of objects as it was last counted, by this call when that is due; nil when
// they were not counted yet.
func (o *Objects) Count() *int { return o.counted.count(o.p.indexer.Objects) }

// objectCount is a number of objects. Counting goes through all of them, so it is done only when it
// is asked for, and then not often.
type objectCount struct {
	mu   sync.Mutex // guards all below
	busy bool
	n    int
	// known: n was counted.
	known bool
	due   time.Time
}

// Counting takes at most a hundredth of the time, and is repeated at most each countEvery.
const (
	countEvery = time.Second
	countShare = 100
)

func (c *objectCount) count(objects func() (int, error)) *int {
	if c.begin() {
		began := time.Now()
		n, err := objects()
		c.end(n, err, time.Since(began))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return nil
	}
	return new(c.n)
}

// begin reports whether the caller is to count.
func (c *objectCount) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy || time.Now().Before(c.due) {
		return false
	}
	c.busy = true
	return true
}

func (c *objectCount) end(n int, err error, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy = false
	c.due = time.Now().Add(max(countEvery, countShare*took))
	if err == nil {
		c.n, c.known = n, true
	}
}
