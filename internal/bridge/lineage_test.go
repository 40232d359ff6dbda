package bridge

import (
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

func controlled(namespace, uid, by string) *resource.Object {
	o := &resource.Object{}
	o.Namespace, o.UID = namespace, uid
	o.Owners = []resource.Owner{{APIVersion: "apps/v1", Kind: "Deployment", Name: by, UID: "of-" + by, Controller: true}}
	return o
}

func TestLineage(t *testing.T) {
	db, err := store.Open(store.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	var l lineage
	if err := l.load(db); err != nil {
		t.Fatal(err)
	}
	write := l.died(controlled("bank", "gone", "vault"))
	controller, _ := controllerOf(&controlled("bank", "lives", "safe").Meta)
	l.note("bank", "lives", controller, true)
	node, _ := controllerOf(&controlled("", "node", "pool").Meta)
	l.note("", "node", node, true)

	check := func(t *testing.T, l *lineage, namespace, uid, want string) {
		t.Helper()
		owner, ok := l.of(namespace, uid)
		if ok != (want != "") || owner.Name != want {
			t.Errorf("%s of %s has the controller %q, want %q", uid, namespace, owner.Name, want)
		}
	}
	t.Run("an owner of the own namespace", func(t *testing.T) {
		check(t, &l, "bank", "gone", "vault")
		check(t, &l, "bank", "lives", "safe")
	})
	t.Run("a uid of another namespace tells nothing", func(t *testing.T) {
		check(t, &l, "evil", "gone", "")
		check(t, &l, "evil", "lives", "")
	})
	t.Run("an owner of the cluster is one for all namespaces", func(t *testing.T) {
		check(t, &l, "shop", "node", "pool")
	})
	t.Run("a foreign object of the same uid replaces nothing", func(t *testing.T) {
		l.died(controlled("evil", "gone", "forged"))
		check(t, &l, "bank", "gone", "vault")
	})
	t.Run("a reference of a megabyte is not kept", func(t *testing.T) {
		long := controlled("evil", "long", strings.Repeat("x", 1<<20))
		if l.died(long) != nil {
			t.Error("it is written to disk")
		}
		owner, _ := controllerOf(&long.Meta)
		l.note("evil", "long", owner, true)
		check(t, &l, "evil", "long", "")
	})
	t.Run("it survives a restart", func(t *testing.T) {
		b := db.NewBatch()
		write(b)
		if err := b.Commit(); err != nil {
			t.Fatal(err)
		}
		var after lineage
		if err := after.load(db); err != nil {
			t.Fatal(err)
		}
		check(t, &after, "bank", "gone", "vault")
		check(t, &after, "evil", "gone", "")
	})
}
