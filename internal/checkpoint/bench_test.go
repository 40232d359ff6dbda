package checkpoint_test

import (
	"fmt"
	"testing"

	"github.com/kubebridge/bridge/internal/changelog"
	"github.com/kubebridge/bridge/internal/checkpoint"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// BenchmarkTracker is a change's way through the tracker, with as many unsettled before it as a window has.
func BenchmarkTracker(b *testing.B) {
	const window = 4096
	db, err := store.Open(store.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	indexer, err := db.Indexer(store.IndexerConfig{Name: "all/pods", Type: pods})
	if err != nil {
		b.Fatal(err)
	}
	committer, err := checkpoint.New(checkpoint.Config{DB: db})
	if err != nil {
		b.Fatal(err)
	}
	tracker, err := committer.Track(indexer)
	if err != nil {
		b.Fatal(err)
	}
	versions := make([]resource.Version, window)
	keys := make([]resource.Key, window)
	for i := range versions {
		versions[i] = resource.Version(fmt.Sprint(1_000_000 + i))
		keys[i] = resource.Key(fmt.Sprint("shop/p", i%100))
	}
	b.ReportAllocs()
	for n := 1; b.Loop(); n++ {
		at := tracker.Append(keys[n%window])
		version := versions[at%window]
		tracker.Mark(changelog.Event, version)
		if at > window {
			state := store.Settled{Record: store.Record{UID: "u", Version: version}, Seq: uint64(at - window)}
			tracker.Settle(at-window, keys[at%window], state)
		}
	}
}
