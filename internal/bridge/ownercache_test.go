package bridge

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/resource"
)

func controlled(namespace, uid, by string) *resource.Object {
	o := &resource.Object{}
	o.Namespace, o.UID = namespace, uid
	o.Owners = []resource.Owner{{APIVersion: "apps/v1", Kind: "Deployment", Name: by, UID: "of-" + by, Controller: true}}
	return o
}

// Objects may own each other, or themselves: no owner is in a chain twice, and not the object. A
// chain that is cut says so.
func TestOwnerChain(t *testing.T) {
	b := &Bridge{}
	b.ownerCache.enable()
	b.ownerCache.deleted(controlled("shop", "of-b", "a"))
	b.ownerCache.deleted(controlled("shop", "of-a", "b"))
	b.ownerCache.deleted(controlled("shop", "of-self", "self"))
	for i := range 12 {
		b.ownerCache.deleted(controlled("shop", fmt.Sprint("of-n", i), fmt.Sprint("n", i+1)))
	}
	for _, tt := range []struct{ uid, by, want string }{
		{"of-a", "b", "b"},
		{"of-b", "a", "a"},
		{"of-self", "self", ""},
		{"pod", "self", "self"},
		{"pod", "a", "a b"},
		{"pod", "n5", "n5 n6 n7 n8 n9 n10 n11 n12"},
		{"pod", "n4", "n4 n5 n6 n7 n8 n9 n10 n11 " + resource.MoreOwners.Name},
	} {
		var names []string
		for _, o := range b.owners(controlled("shop", tt.uid, tt.by)) {
			names = append(names, o.Name)
		}
		if got := strings.Join(names, " "); got != tt.want {
			t.Errorf("%s, owned by %s: %q, want %q", tt.uid, tt.by, got, tt.want)
		}
	}
}

func TestOwnerCache(t *testing.T) {
	var c ownerCache
	c.deleted(controlled("bank", "before", "vault"))
	c.enable()
	c.deleted(controlled("bank", "gone", "vault"))
	put := func(namespace, uid, by string) {
		controller, _ := controllerOf(&controlled(namespace, uid, by).Meta)
		c.put(namespace, uid, controller)
	}
	put("bank", "lives", "safe")
	put("", "node", "pool")

	check := func(t *testing.T, namespace, uid, want string) {
		t.Helper()
		owner, ok := c.get(namespace, uid)
		if ok != (want != "") || owner.Name != want {
			t.Errorf("%s of %s has the controller %q, want %q", uid, namespace, owner.Name, want)
		}
	}
	t.Run("nothing is remembered where no informer adds owners", func(t *testing.T) {
		check(t, "bank", "before", "")
	})
	t.Run("an owner of the own namespace", func(t *testing.T) {
		check(t, "bank", "gone", "vault")
		check(t, "bank", "lives", "safe")
	})
	t.Run("a uid of another namespace reveals nothing", func(t *testing.T) {
		check(t, "evil", "gone", "")
		check(t, "evil", "lives", "")
	})
	t.Run("an owner of the cluster is one for all namespaces", func(t *testing.T) {
		check(t, "shop", "node", "pool")
	})
	t.Run("a foreign object of the same uid replaces nothing", func(t *testing.T) {
		c.deleted(controlled("evil", "gone", "forged"))
		check(t, "bank", "gone", "vault")
	})
	t.Run("a reference of a megabyte is not kept", func(t *testing.T) {
		c.deleted(controlled("evil", "long", strings.Repeat("x", 1<<20)))
		check(t, "evil", "long", "")
	})
	t.Run("one that has no controller any more is forgotten", func(t *testing.T) {
		c.remove("bank", "lives")
		check(t, "bank", "lives", "")
	})
	t.Run("the oldest are forgotten", func(t *testing.T) {
		for i := range 3 * maxOwnerCache {
			put("shop", fmt.Sprint("uid-", i), "web")
			if entries := len(c.recent) + len(c.older); entries > 2*maxOwnerCache {
				t.Fatalf("%d entries after %d", entries, i+1)
			}
		}
		check(t, "bank", "gone", "")
		check(t, "shop", fmt.Sprint("uid-", 2*maxOwnerCache+1), "web")
	})
}
