package history

import "container/list"

// lastVersion is the newest version of an object, which the next one is stored as a difference to.
type lastVersion struct {
	object string // prefix of its keys
	seq    sequence
	text   []byte
	// deltas is how many follow each other up to this one.
	deltas int
	alive  alive
}

func (v *lastVersion) size() int {
	const overhead = 200 // of the entry, its key twice and the list
	return len(v.text) + 2*len(v.object) + overhead
}

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

// put sets the last version of an object. It keeps text, but of a delete: nothing is stored as a
// difference to one, and what has gone must not take the place of what lives.
func (c *lastVersions) put(object []byte, seq sequence, text []byte, deltas int, a alive) {
	if seq.deleted {
		text = nil
	}
	if e := c.of[string(object)]; e != nil {
		v := e.Value.(*lastVersion)
		c.size += len(text) - len(v.text)
		v.seq, v.text, v.deltas, v.alive = seq, text, deltas, a
		c.order.MoveToFront(e)
	} else {
		v := &lastVersion{string(object), seq, text, deltas, a}
		if c.of == nil {
			c.of = map[string]*list.Element{}
		}
		c.of[v.object] = c.order.PushFront(v)
		c.size += v.size()
	}
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
