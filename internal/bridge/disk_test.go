package bridge_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/testkit"
)

// state is what a run begins with: what a test reads out of the database without the bridge.
type state struct {
	began     time.Time
	clean     bool // the run before ended with everything sent
	history   int  // of the cluster's, that the watermark is of: not the last when the server has gone back behind it
	watermark int64
	gapOwed   bool // where there is no watermark: a list has ended before
	listing   bool // a list had begun that the watermark has not reached
	known     map[resource.Key]known
	announced map[string]int64 // by uid, with the version that was announced
	// pending are, by sink, the changes in the log on disk that the sink has not settled, in order.
	pending map[string][]spooled
}

// known is what is known of an object.
type known struct {
	uid     string
	version int64
	alive   bool
}

// spooled is a change in the log on disk.
type spooled struct {
	Kind    int
	Op      string
	Key     resource.Key
	UID     string
	Version resource.Version
	For     []string

	Unreadable resource.Unreadable
	Relist     resource.Relist
}

// is reports whether a record is of the same change.
func (c *spooled) is(rec *testkit.Record) bool {
	return c.UID == rec.UID && string(c.Version) == rec.ResourceVersion && strings.HasSuffix(rec.Type, "."+c.Op)
}

// readState reads what is known of the given objects, and the backlogs of sinks.
func readState(t *testing.T, db *store.DB, cfg store.IndexerConfig, keys []resource.Key, sinks ...string) state {
	t.Helper()
	ix, err := db.Indexer(cfg)
	testkit.OK(t, err)
	pos, err := ix.Meta().Position()
	testkit.OK(t, err)
	owed, _, err := ix.Meta().GapOwed()
	testkit.OK(t, err)
	listing, err := ix.Meta().ListPending()
	testkit.OK(t, err)
	s := state{
		began: time.Now(), watermark: number(pos.Version), gapOwed: owed, listing: listing,
		known: map[resource.Key]known{}, announced: map[string]int64{}, pending: map[string][]spooled{},
	}
	for _, key := range keys {
		rec, found, err := ix.Get(key)
		testkit.OK(t, err)
		if found {
			s.known[key] = known{uid: rec.UID, version: number(rec.Version), alive: !rec.Deleted}
		}
		for _, left := range ix.Announcements().Left(key) {
			s.announced[left.UID] = number(left.Version)
		}
	}
	cursors, err := ix.Log().Cursors()
	testkit.OK(t, err)
	for _, sink := range sinks {
		if saved, found := cursors[sink]; found {
			s.pending[sink] = pendingOf(t, ix, sink, saved)
		}
	}
	return s
}

// pendingOf reads the part of the log on disk that is before a listener: what it had passed on and
// not seen settled, and what follows.
func pendingOf(t *testing.T, ix *store.Indexer, sink string, cursor []byte) (list []spooled) {
	t.Helper()
	read := func() uint64 {
		v, n := binary.Uvarint(cursor)
		cursor = cursor[n:]
		return v
	}
	next, tried, count := read(), read(), read()
	for range tried { // they are among what is pending
		read()
	}
	passed := map[uint64]bool{}
	var last uint64
	for range count {
		last += read()
		passed[last] = true
	}
	first, end, err := ix.Log().Bounds()
	testkit.OK(t, err)
	for e, err := range ix.Log().Entries(first, end) {
		testkit.OK(t, err)
		if e.Position < next && !passed[e.Position] {
			continue
		}
		size, n := binary.Uvarint(e.Data)
		var c spooled
		testkit.OK(t, json.Unmarshal(e.Data[n:n+int(size)], &c))
		if len(c.For) == 0 || slices.Contains(c.For, sink) {
			list = append(list, c)
		}
	}
	return list
}

func (c spooled) String() string { return fmt.Sprintf("%s %s %s@%s", c.Op, c.Key, c.UID, c.Version) }
