package history

import (
	"encoding/binary"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history/keys"
	"github.com/kubebridge/bridge/internal/history/record"
)

// newestKey has the newest time that the API server gave a change. The timeline can't say it: its
// entries also have times at which a bridge observed a change, by a clock that may have been wrong.
var newestKey = keys.Meta("newest")

// Newest is the newest time that the API server gave a change, in seconds. Zero: none is known.
func (m Maintenance) Newest() (time.Time, error) {
	second, err := m.db.newest()
	if err != nil || second == 0 {
		return time.Time{}, m.db.ReadError(err)
	}
	return time.Unix(int64(second), 0), nil
}

func (db *database) newest() (uint32, error) {
	value, err := db.get(newestKey)
	switch {
	case err != nil || value == nil:
		return 0, err
	case len(value) != 4:
		return 0, record.ErrUnreadable
	}
	return binary.BigEndian.Uint32(value), nil
}

// storeNewest stores the newest time that the API server gave one of the events, where that is
// later than the one that is known.
func (b *batch) storeNewest(events []*event.Event) error {
	newest := uint32(0)
	for _, e := range events {
		if e.TimeSource == event.TimeManagedFields {
			newest = max(newest, keys.Seconds(e.Time))
		}
	}
	if newest == 0 {
		return nil
	}
	if known, err := b.db.newest(); err != nil || newest <= known {
		return err
	}
	return b.Set(newestKey, binary.BigEndian.AppendUint32(nil, newest), nil)
}
