package kafkatest_test

import (
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// history is what was done to the objects of a server.
type history struct {
	server *testkit.Server
	rng    *rand.Rand
	pad    string
	alive  map[resource.Key]bool
	want   map[string][]string // by partition key, what its consumer must read, in order
	writes int
}

func newHistory(server *testkit.Server, objects, size int) *history {
	h := &history{server: server, rng: rand.New(rand.NewPCG(1, 2)), alive: map[resource.Key]bool{}, want: map[string][]string{}}
	for range size {
		h.pad += string("abcdefghijklmnopqrstuvwxyz0123456789"[h.rng.IntN(36)])
	}
	for i := range objects {
		h.put(resource.MakeKey("shop", fmt.Sprint("pod-", i)), "added")
	}
	return h
}

// change does something to one of the objects.
func (h *history) change() {
	keys := slices.Sorted(maps.Keys(h.alive))
	key := keys[h.rng.IntN(len(keys))]
	switch {
	case !h.alive[key]:
		h.put(key, "added")
	case h.rng.IntN(50) == 0:
		h.note(key, "deleted", h.server.Delete(key))
		h.alive[key] = false
	default:
		h.put(key, "updated")
	}
}

func (h *history) put(key resource.Key, op string) {
	h.note(key, op, h.server.Update(key, func(obj map[string]any) {
		obj["spec"] = map[string]any{"write": h.writes, "pad": h.pad}
	}))
	h.alive[key] = true
}

func (h *history) note(key resource.Key, op string, version resource.Version) {
	h.writes++
	partitionKey := "pods/" + string(key)
	h.want[partitionKey] = append(h.want[partitionKey], op+" "+string(version))
}

// findings are how the contents of a broker differ from what was done.
type findings struct{ lost, reordered, duplicates, strange int }

// stored is an event that a broker has.
type stored struct {
	kind, key, version string
	partition          int32
}

// judge takes what a broker has, in the order of each partition.
func (h *history) judge(t *testing.T, all iter.Seq[stored]) (v findings) {
	t.Helper()
	got := map[string][]string{}
	partitions := map[string]int32{}
	for r := range all {
		op, ok := strings.CutPrefix(r.kind, "dev.kubebridge.resource.")
		if !ok {
			continue // about the informer
		}
		if before, ok := partitions[r.key]; ok && before != r.partition {
			t.Errorf("%s lies in partitions %d and %d", r.key, before, r.partition)
		}
		partitions[r.key] = r.partition
		got[r.key] = append(got[r.key], op+" "+r.version)
	}
	for key, want := range h.want {
		v.compare(t, key, got[key], want)
		delete(got, key)
	}
	v.strange += len(got)
	return v
}

func (v *findings) compare(t *testing.T, key string, got, want []string) {
	t.Helper()
	if slices.Equal(got, want) {
		return
	}
	place := map[string]int{}
	for i, w := range want {
		place[w] = i + 1
	}
	seen, last := map[string]bool{}, 0
	for i, g := range got {
		at := place[g]
		switch {
		case at == 0:
			v.strange++
			t.Logf("%s: record %d, %s, is none that was written", key, i, g)
		case seen[g]:
			v.duplicates++
			t.Logf("%s: record %d, %s, is there twice", key, i, g)
		case at < last:
			v.reordered++
			t.Logf("%s: record %d, %s, comes behind %s", key, i, g, want[last-1])
		}
		seen[g], last = true, max(last, at)
	}
	for _, w := range want {
		if !seen[w] {
			v.lost++
			t.Logf("%s: %s is missing", key, w)
		}
	}
}
