package store

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/resource"
)

// MaxAncestors bounds for how many deleted objects their controller is kept: some 300 bytes each.
// The newest replaces the oldest.
const MaxAncestors = 8192

// Ancestor is who controlled a deleted object.
type Ancestor struct {
	// Number counts them, whatever informer they are of.
	Number uint64 `json:"number"`
	// Namespace and UID are those of the deleted object.
	Namespace  string         `json:"namespace,omitempty"`
	UID        string         `json:"uid"`
	Controller resource.Owner `json:"controller"`
}

// SetAncestor keeps one.
func (b *Batch) SetAncestor(a Ancestor) {
	value, err := json.Marshal(a)
	b.fail(err)
	b.put(binary.BigEndian.AppendUint32([]byte{spaceAncestor}, uint32(a.Number%MaxAncestors)),
		value)
}

// Ancestors reads them, in no order.
func (db *DB) Ancestors() (list []Ancestor, err error) {
	it, err := db.pebble.NewIter(&pebble.IterOptions{
		LowerBound: []byte{spaceAncestor},
		UpperBound: []byte{spaceAncestor + 1},
	})
	if err != nil {
		return nil, wrap(err)
	}
	for it.First(); it.Valid() && err == nil; it.Next() {
		var a Ancestor
		if err = json.Unmarshal(it.Value(), &a); err != nil {
			err = fmt.Errorf("state database: who controlled a deleted object does not parse; "+
				"the directory is damaged, or of another version of the bridge: %w", err)
		}
		list = append(list, a)
	}
	return list, errors.Join(err, wrap(it.Error()), wrap(it.Close()))
}
