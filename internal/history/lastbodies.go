package history

import (
	"container/list"

	"github.com/kubebridge/bridge/internal/history/keys"
	"github.com/kubebridge/bridge/internal/history/record"
	"github.com/kubebridge/bridge/internal/resource/diff"
)

// lastVersion is the newest version of an object, which the next one is stored as a difference to.
type lastVersion struct {
	object string // prefix of its keys
	seq    keys.Sequence
	text   []byte
	// data is how many bytes at the end of text are the object. shape and form are its.
	data  int
	shape diff.Shape
	form  record.Form
	// deltas is how many follow each other up to this one.
	deltas int
	alive  alive
}

func (v *lastVersion) size() int {
	const overhead = 250 // of the entry, its key twice and the list
	return len(v.text) + 2*len(v.object) + v.shape.Size() + overhead
}

func (v *lastVersion) objectJSON() []byte { return v.text[len(v.text)-v.data:] }

// lastVersions keeps those of the objects that changed last, within a number of bytes. An object
// that is not in it is stored whole: to read its last version would cost six times as much.
type lastVersions struct {
	max, size int
	order     list.List // of *lastVersion, the newest in front
	of        map[string]*list.Element
}

func (c *lastVersions) get(object []byte) *lastVersion {
	e := c.of[string(object)]
	if e == nil {
		return nil
	}
	c.order.MoveToFront(e)
	return e.Value.(*lastVersion)
}

// put sets the last version of an object. It keeps the text, but of a delete: nothing is stored as
// a difference to one, and what has gone must not take the place of what lives. It returns a text
// that it keeps no longer.
func (c *lastVersions) put(v lastVersion) (spare []byte) {
	if v.seq.Deleted {
		spare, v.text, v.data, v.shape = v.text, nil, 0, nil
	}
	if e := c.of[v.object]; e != nil {
		was := e.Value.(*lastVersion)
		if spare == nil {
			spare = was.text
		}
		c.size += v.size() - was.size()
		*was = v
		c.order.MoveToFront(e)
		return spare
	}
	if c.of == nil {
		c.of = map[string]*list.Element{}
	}
	c.of[v.object] = c.order.PushFront(&v)
	c.size += v.size()
	return spare
}

// shrink drops the oldest until the rest is within the bound. It is called between batches: what a
// batch has stored of an object stays in memory until the batch is in the database.
func (c *lastVersions) shrink() {
	for c.size > c.max && c.order.Len() > 0 {
		c.drop(c.order.Back())
	}
}

func (c *lastVersions) drop(e *list.Element) {
	v := c.order.Remove(e).(*lastVersion)
	delete(c.of, v.object)
	c.size -= v.size()
}

// clear forgets everything, after a batch that was not committed.
func (c *lastVersions) clear() {
	c.order.Init()
	clear(c.of)
	c.size = 0
}
