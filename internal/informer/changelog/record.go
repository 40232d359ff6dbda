package changelog

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/klauspost/compress/s2"

	"github.com/kubebridge/bridge/internal/resource"
)

// record is an entry as it lies on disk: a header of JSON behind its length, and the object's
// bytes, with those of the object before it where a listener needs it, as one S2 block.
type record struct {
	Entry
	// For are the sinks that it is for; all when empty.
	For       []string `json:"for,omitempty"`
	HasObject bool     `json:"object,omitempty"`
	// OldBytes are those at the block's end that are the object before the update. It costs little
	// there: it is nearly the same.
	OldBytes int `json:"oldBytes,omitempty"`
}

// encode gives the entry's form on disk.
func (l *Log) encode(e *Entry) ([]byte, error) {
	r := record{Entry: *e, For: l.names(e.For)}
	var raw []byte
	if e.Object != nil {
		r.HasObject, raw = true, e.Object.Raw
	}
	if e.Old != nil {
		r.OldBytes = len(e.Old.Raw)
		raw = slices.Concat(raw, e.Old.Raw)
	}
	return r.join(raw)
}

// join makes an entry of a record and the bytes of its objects.
func (r *record) join(raw []byte) ([]byte, error) {
	header, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode an entry for the log on disk: %w", err)
	}
	var size [binary.MaxVarintLen64]byte
	var block []byte
	if r.HasObject {
		block = s2.Encode(nil, raw)
	}
	// Exactly as long as it is: it stays in memory until it is committed, and an object takes
	// several times the room of its block.
	return slices.Concat(size[:binary.PutUvarint(size[:], uint64(len(header)))], header, block), nil
}

// maxDecoded is more than two objects can have: the reflector refuses what is larger than 16 MiB.
// The length of a block comes from the disk, and nothing is allocated for one that no entry has.
const maxDecoded = 64 << 20

// errRecord is about a log that this bridge can't read.
var errRecord = errors.New("the log on disk is damaged, or of another version of the bridge; " +
	"restore the state directory from a copy, or reset the informer")

// decodeHeader reads what an entry says, without its object, whose block it gives.
func decodeHeader(at Position, data []byte) (r record, block []byte, err error) {
	size, n := binary.Uvarint(data)
	if n <= 0 || size > uint64(len(data)-n) {
		return r, nil, fmt.Errorf("entry %d: %w", at, errRecord)
	}
	header, block := data[n:n+int(size)], data[n+int(size):]
	if err := json.Unmarshal(header, &r); err != nil {
		return r, nil, fmt.Errorf("entry %d: %w: %w", at, errRecord, err)
	}
	return r, block, nil
}

// decode reads an entry back. It is for the one listener that reads it.
func (l *Log) decode(at Position, data []byte) (*Entry, error) {
	r, raw, old, err := split(at, data)
	if err != nil {
		return nil, err
	}
	e := &r.Entry
	e.For, e.Position = l.Set(r.For), at
	if !r.HasObject {
		return e, nil
	}
	if e.Object, err = resource.Restore(raw, l.cfg.Type); err != nil {
		return nil, fmt.Errorf("entry %d: %w: %w", at, errRecord, err)
	}
	if r.OldBytes > 0 { // payloads are made of its bytes alone
		e.Old = &resource.Object{Raw: slices.Clone(old), Meta: resource.Meta{Version: e.Before}}
	}
	return e, nil
}

// split takes an entry apart: the record, and the bytes of the object and of the one before it.
func split(at Position, data []byte) (r record, raw, old []byte, err error) {
	r, block, err := decodeHeader(at, data)
	if err != nil || !r.HasObject {
		return r, nil, nil, err
	}
	if n, err := s2.DecodedLen(block); err != nil || n > maxDecoded {
		return r, nil, nil, fmt.Errorf("entry %d: %w: its objects have %d bytes, at most %d are "+
			"written: %w", at, errRecord, n, maxDecoded, errors.Join(err, s2.ErrTooLarge))
	}
	if raw, err = s2.Decode(nil, block); err != nil {
		return r, nil, nil, fmt.Errorf("entry %d: %w: %w", at, errRecord, err)
	}
	if r.OldBytes < 0 || r.OldBytes > len(raw) {
		return r, nil, nil, fmt.Errorf("entry %d: %w", at, errRecord)
	}
	now := len(raw) - r.OldBytes
	return r, raw[:now], raw[now:], nil
}
