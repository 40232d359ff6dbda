package resource_test

import (
	"fmt"
	"testing"

	"github.com/kubebridge/bridge/internal/resource"
)

// Every object is in one shard, and moves only to new ones.
func TestShards(t *testing.T) {
	typ := resource.Type{Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment", Namespaced: true}
	const objects = 10_000
	before := make([]int, objects)
	for count := 1; count <= 12; count++ {
		have := make([]int, count)
		for n := range objects {
			owner := -1
			for i := range count {
				if (resource.Shard{Index: i, Count: count}).Has(typ, "shop", fmt.Sprint("web-", n)) {
					if owner >= 0 {
						t.Fatalf("of %d shards, %d and %d have web-%d", count, owner, i, n)
					}
					owner = i
				}
			}
			if owner < 0 {
				t.Fatalf("of %d shards none has web-%d", count, n)
			}
			if count > 1 && owner != before[n] && owner != count-1 {
				t.Fatalf("web-%d moved from shard %d to %d, which is not new", n, before[n], owner)
			}
			before[n] = owner
			have[owner]++
		}
		for i, n := range have {
			if mean := objects / count; n < mean*8/10 || n > mean*12/10 {
				t.Errorf("shard %d of %d has %d objects of %d", i, count, n, objects)
			}
		}
	}
}

// TestTheSplitNeverChanges holds the split as it was released: another one would move objects
// between processes.
func TestTheSplitNeverChanges(t *testing.T) {
	pods := resource.Type{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true}
	got := ""
	for n := range 24 {
		for i := range 5 {
			if (resource.Shard{Index: i, Count: 5}).Has(pods, "shop", fmt.Sprint("web-", n)) {
				got += fmt.Sprint(i)
			}
		}
	}
	if want := "242212302131224313123101"; got != want {
		t.Errorf("web-0 to web-23 are of shards %s of 5, and were of %s", got, want)
	}
}

// A shard is read and compared.
func TestShardReplay(t *testing.T) {
	for _, text := range []string{"", "3", "3/3", "-1/3", "0/0", "a/3", "0/b", "auto/3"} {
		if s, err := resource.ParseShard(text); err == nil {
			t.Errorf("%q is %v", text, s)
		}
	}
	for _, c := range []struct {
		now, before string
		within      bool
	}{
		{"0/3", "0/2", true},
		{"0/3", "0/1", true},
		{"1/3", "1/3", true},
		{"1/3", "0/3", false},
		{"0/2", "0/3", false},
		{"2/3", "0/1", false},
	} {
		now, err := resource.ParseShard(c.now)
		before, errBefore := resource.ParseShard(c.before)
		if err != nil || errBefore != nil || now.Within(before) != c.within {
			t.Errorf("%s within %s: %v (%v, %v)", c.now, c.before, now.Within(before), err, errBefore)
		}
	}
}
