package store_test

import (
	"fmt"
	"testing"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/testkit"
)

func TestOfWhoControlledWhatIsGoneTheNewestAreKept(t *testing.T) {
	db := openDB(t, "")
	const more = 10
	b := db.NewBatch()
	for n := range uint64(store.MaxAncestors + more) {
		b.SetAncestor(store.Ancestor{Number: n, UID: fmt.Sprint("uid-", n), Controller: resource.Owner{Kind: "Deployment", Name: fmt.Sprint("web-", n), Controller: true}})
	}
	testkit.OK(t, b.Commit())
	list, err := db.Ancestors()
	testkit.OK(t, err)
	if len(list) != store.MaxAncestors {
		t.Fatalf("%d are kept", len(list))
	}
	for _, a := range list {
		if a.Number < more || a.UID != fmt.Sprint("uid-", a.Number) || a.Controller.Name != fmt.Sprint("web-", a.Number) {
			t.Errorf("%+v", a)
		}
	}
}
