package store_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/testkit"
)

// Else each flush of a first list would overlap all before it, and its bodies be merged again and
// again.
func TestBodyTables(t *testing.T) {
	db := openDB(t, "")
	ix := newIndexer(t, db)
	for n := range 3 {
		settled := map[resource.Key]store.NewState{}
		var list []store.Announcement
		for i := range 10 {
			name := fmt.Sprintf("pod-%d-%d", n, i)
			key, obj := resource.Key("shop/"+name), pod(t, name, fmt.Sprint(1+i))
			list = append(list, store.Announcement{Key: key, Object: obj, Seq: uint64(n*10 + i + 1), Unknown: true})
			settled[key] = live(obj, uint64(n*10+i+1))
		}
		testkit.OK(t, ix.Listing().Add(slices.Collect(maps.Keys(settled))))
		testkit.OK(t, ix.Announcements().Announce(list))
		settle(t, db, ix, "", settled)
		tables, err := db.FlushedTables()
		testkit.OK(t, err)
		if !slices.Contains(tables, "bb") {
			t.Errorf("there is no table of bodies: %v", tables)
		}
		for _, bounds := range tables {
			if strings.Contains(bounds, "b") && bounds != "bb" || bounds[0] < 'b' && bounds[1] > 'b' {
				t.Errorf("a table reaches from %c to %c", bounds[0], bounds[1])
			}
		}
	}
}
