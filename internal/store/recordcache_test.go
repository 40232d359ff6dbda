package store_test

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"testing"
	"unsafe"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/testkit"
)

// aKey is one of n keys, of lengths from a few bytes to more than a table takes.
func aKey(n int) resource.Key {
	return resource.Key(fmt.Sprintf("shop/%d-%s", n, strings.Repeat("x", n*7%500)))
}

// A table is a map of what was put into it.
func TestTableAsMap(t *testing.T) {
	type record struct {
		uid     byte
		version uint64
		behind  bool
	}
	for name, hash := range map[string]func(resource.Key) uint64{
		"with a hash of its own": nil,
		"with a hash that many keys share": func(key resource.Key) uint64 {
			h := fnv.New64()
			_, _ = h.Write([]byte(key))
			return h.Sum64() % 50
		},
	} {
		t.Run(name, func(t *testing.T) {
			table, model := store.NewTable(), map[resource.Key]record{}
			if hash != nil {
				table.SetHash(hash)
			}
			taken, refused := 0, 0
			for range 20_000 {
				key := aKey(rand.IntN(200))
				switch before, there := model[key]; rand.IntN(4) {
				case 0:
					table.Remove(key)
					delete(model, key)
				case 1:
					is := rand.IntN(2) == 0
					if table.SetStale(key, is); there {
						before.behind = is
						model[key] = before
					}
				default:
					r := record{byte(rand.Uint32()), rand.Uint64() >> 1, before.behind}
					if table.Put(key, r.uid, r.version) {
						model[key] = r
						taken++
					} else if refused++; there {
						t.Fatalf("%s is there, and was not taken again", key)
					}
				}
				checked := aKey(rand.IntN(200))
				uid, version, behind, ok := table.Get(checked)
				if want, there := model[checked]; ok != there || (record{uid, version, behind}) != want {
					t.Fatalf("%s: got %d %d %v %v, want %v %v", checked, uid, version, behind, ok, want, there)
				}
			}
			if taken == 0 || refused == 0 {
				t.Errorf("%d taken, %d refused: both are to be seen", taken, refused)
			}
		})
	}
}

// A table keeps nothing of its keys.
func TestTableKeyMemory(t *testing.T) {
	table := store.NewTable()
	memory := []byte("shop/web")
	table.Put(resource.Key(unsafe.String(&memory[0], len(memory))), 1, 5)
	clear(memory)
	if _, version, _, ok := table.Get("shop/web"); !ok || version != 5 {
		t.Errorf("%d, %v", version, ok)
	}
}

// A table reuses the memory of deleted records.
func TestTableMemoryReuse(t *testing.T) {
	table := store.NewTable()
	const alive = 2000
	key := func(n int) resource.Key { return resource.Key(fmt.Sprintf("shop/pod-%08d", n)) }
	for n := range alive {
		table.Put(key(n), 1, 1)
	}
	before := table.Bytes()
	for n := range 50 * alive {
		table.Remove(key(n))
		table.Put(key(n+alive), 1, 1)
	}
	if after := table.Bytes(); after != before {
		t.Errorf("%d objects at a time take %d bytes, and %d after many have gone", alive, before, after)
	}
}

// BenchmarkKnown looks records up among so many, in another order than they came.
func BenchmarkKnown(b *testing.B) {
	for _, objects := range []int{10_000, 1_000_000} {
		b.Run(fmt.Sprint(objects), func(b *testing.B) {
			keys := make([]resource.Key, objects)
			for n := range keys {
				keys[n] = resource.Key(fmt.Sprintf("shop/web-%08d-x7k2p", n*7919%objects))
			}
			before := testkit.Heap()
			table := store.NewTable()
			for n := range keys {
				table.Put(keys[len(keys)-1-n], 1, uint64(n))
			}
			bytes := testkit.Heap() - before
			n := 0
			for b.Loop() {
				if _, _, _, ok := table.Get(keys[n%objects]); !ok {
					b.Fatal("not there")
				}
				n++
			}
			b.ReportMetric(float64(bytes)/float64(objects), "B/object")
		})
	}
}
