package informer

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/klauspost/compress/s2"

	"github.com/kubebridge/bridge/internal/resource"
)

// record is a change as it lies in the log on disk: a header of JSON behind its length, and the object's bytes, with
// those of the object before it where a listener needs it, as one S2 block.
type record struct {
	facts
	// For are the sinks that it is for; all when empty.
	For       []string `json:"for,omitempty"`
	HasObject bool     `json:"object,omitempty"`
	// OldBytes are those at the block's end that are the object before the update. It costs little there:
	// it is nearly the same.
	OldBytes int `json:"oldBytes,omitempty"`
}

// encode gives the change's form on disk.
func (i *Informer) encode(c *facts) ([]byte, error) {
	r := record{facts: *c, For: i.names(c.audience)}
	var raw []byte
	if c.Object != nil {
		r.HasObject, raw = true, c.Object.Raw
	}
	if c.Old != nil {
		r.OldBytes = len(c.Old.Raw)
		raw = slices.Concat(raw, c.Old.Raw)
	}
	return r.join(raw)
}

// join makes an entry of a record and the bytes of its objects.
func (r *record) join(raw []byte) ([]byte, error) {
	header, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode a change for the log on disk: %w", err)
	}
	var size [binary.MaxVarintLen64]byte
	var block []byte
	if r.HasObject {
		block = s2.Encode(nil, raw)
	}
	// Exactly as long as it is: it stays in memory until it is committed, and an object takes several times the room of its block.
	return slices.Concat(size[:binary.PutUvarint(size[:], uint64(len(header)))], header, block), nil
}

// errRecord is about a log that this bridge can't read.
var errRecord = errors.New("the log on disk is damaged, or of another version of the bridge; restore the state directory from a copy, or reset the informer")

// decodeHeader reads what a change says, without its object, whose block it gives.
func decodeHeader(position uint64, data []byte) (r record, block []byte, err error) {
	size, n := binary.Uvarint(data)
	if n <= 0 || size > uint64(len(data)-n) {
		return r, nil, fmt.Errorf("entry %d: %w", position, errRecord)
	}
	header, block := data[n:n+int(size)], data[n+int(size):]
	if err := json.Unmarshal(header, &r); err != nil {
		return r, nil, fmt.Errorf("entry %d: %w: %w", position, errRecord, err)
	}
	return r, block, nil
}

// decode reads a change back. It is for the one listener that reads it.
func (i *Informer) decode(position uint64, data []byte) (*change, error) {
	r, raw, old, err := split(position, data)
	if err != nil {
		return nil, err
	}
	c := &change{facts: r.facts}
	c.audience, c.position = i.audienceOf(&r), position
	c.spooled.Store(true)
	c.waiting.Store(1) // for the one who reads it
	if !r.HasObject {
		return c, nil
	}
	obj, err := resource.Restore(raw, i.cfg.Type)
	if err != nil {
		return nil, fmt.Errorf("entry %d: %w: %w", position, errRecord, err)
	}
	c.Object = obj
	if r.OldBytes > 0 {
		c.Old = &resource.Object{Raw: slices.Clone(old), Meta: resource.Meta{Version: r.Before}} // payloads are made of its bytes alone
	}
	return c, nil
}

// split takes an entry apart: the record, and the bytes of the object and of the one before it.
func split(position uint64, data []byte) (r record, raw, old []byte, err error) {
	r, block, err := decodeHeader(position, data)
	if err != nil || !r.HasObject {
		return r, nil, nil, err
	}
	if raw, err = s2.Decode(nil, block); err != nil {
		return r, nil, nil, fmt.Errorf("entry %d: %w: %w", position, errRecord, err)
	}
	if r.OldBytes < 0 || r.OldBytes > len(raw) {
		return r, nil, nil, fmt.Errorf("entry %d: %w", position, errRecord)
	}
	now := len(raw) - r.OldBytes
	return r, raw[:now], raw[now:], nil
}

// names are the sinks of an audience; none for everyone.
func (i *Informer) names(audience uint64) []string {
	if audience&i.everyone == i.everyone {
		return nil
	}
	var names []string
	for _, l := range i.listeners {
		if audience&l.bit != 0 {
			names = append(names, l.cfg.Name)
		}
	}
	return names
}

// audienceOf is whom a record is for.
func (i *Informer) audienceOf(r *record) uint64 {
	if r.Losses != nil {
		return r.Losses.listeners(i)
	}
	return i.audience(r.For)
}

// audience is the listeners of sinks by name; sinks that are no longer there are left out.
func (i *Informer) audience(names []string) uint64 {
	if len(names) == 0 {
		return i.everyone
	}
	var audience uint64
	for _, l := range i.listeners {
		for _, name := range names {
			if l.cfg.Name == name {
				audience |= l.bit
			}
		}
	}
	return audience
}
