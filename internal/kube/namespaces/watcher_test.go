package namespaces_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/kube/namespaces"
	"github.com/kubebridge/bridge/internal/resource"
)

// watched is a Watcher whose reflector is the test.
type watched struct {
	*testing.T
	*namespaces.Watcher
	prod *namespaces.Selection // env=prod
}

func watch(t *testing.T) *watched {
	w := namespaces.New(namespaces.Config{Log: slog.New(slog.DiscardHandler)})
	prod, err := w.Select("env=prod")
	if err != nil {
		t.Fatal(err)
	}
	return &watched{t, w, prod}
}

// do calls one method of reflector.Store for a namespace in an environment.
func (w *watched) do(
	call func(context.Context, *resource.Object) error, name, env string, version int,
) {
	w.Helper()
	labels, err := json.Marshal(map[string]string{"env": env})
	if err != nil {
		w.Fatal(err)
	}
	obj := &resource.Object{
		Meta: resource.Meta{Name: name, Version: resource.Version(fmt.Sprint(version))},
		Raw:  fmt.Appendf(nil, `{"metadata":{"name":%q,"labels":%s}}`, name, labels),
	}
	if err := call(w.Context(), obj); err != nil {
		w.Fatal(err)
	}
}

func (w *watched) begin() {
	if err := w.BeginReplace(w.Context(), resource.Relist{}); err != nil {
		w.Fatal(err)
	}
}

func (w *watched) end(version int) {
	if err := w.EndReplace(w.Context(), resource.Version(fmt.Sprint(version))); err != nil {
		w.Fatal(err)
	}
}

// expect compares what is selected, and what exists beside that.
func (w *watched) expect(selected, others string) {
	w.Helper()
	set, _ := w.prod.Current()
	if set == nil {
		w.Fatal("nothing is known")
	}
	is := strings.Join(slices.Sorted(maps.Keys(set.Selected)), " ")
	for name := range set.Selected {
		if !set.Exists[name] {
			w.Errorf("%s is selected and does not exist", name)
		}
	}
	unselected := maps.Clone(set.Exists)
	maps.DeleteFunc(unselected, func(name string, _ bool) bool { return set.Selected[name] != "" })
	beside := strings.Join(slices.Sorted(maps.Keys(unselected)), " ")
	if is != selected || beside != others {
		w.Errorf("selected %q, others %q; want %q and %q", is, beside, selected, others)
	}
}

func TestDeleteInList(t *testing.T) {
	t.Run("the first list", func(t *testing.T) {
		w := watch(t)
		w.begin()
		w.do(w.Replace, "a", "prod", 1)
		w.do(w.Replace, "b", "prod", 2)
		w.do(w.Delete, "a", "prod", 3)
		if set, _ := w.prod.Current(); set != nil {
			t.Errorf("known before the end of the list: %+v", set)
		}
		w.end(4)
		w.expect("b", "")
	})
	t.Run("a later list", func(t *testing.T) {
		w := watch(t)
		w.begin()
		w.do(w.Replace, "a", "prod", 1)
		w.do(w.Replace, "b", "prod", 2)
		w.end(3)
		w.begin()
		w.do(w.Replace, "a", "prod", 1)
		w.do(w.Replace, "b", "prod", 2)
		w.do(w.Delete, "a", "prod", 4)
		w.expect("b", "")
		w.end(5)
		w.expect("b", "")
	})
	t.Run("a namespace that no selection has", func(t *testing.T) {
		w := watch(t)
		w.begin()
		w.end(1)
		_, changed := w.prod.Current()
		w.do(w.Delete, "unknown", "lab", 2)
		select {
		case <-changed:
			t.Error("reported as a change of the selection")
		default:
		}
	})
}

func TestSelection(t *testing.T) {
	w := watch(t)
	w.begin()
	w.do(w.Replace, "a", "prod", 1)
	w.do(w.Replace, "b", "lab", 2)
	w.do(w.Update, "early", "prod", 3) // a store must take any call at any time
	w.do(w.Replace, "early", "prod", 3)
	w.end(4)
	w.expect("a early", "b")

	_, changed := w.prod.Current()
	w.do(w.Update, "a", "prod", 5)
	select {
	case <-changed:
		t.Error("an update that changes no selection is reported as one")
	default:
	}
	w.do(w.Update, "b", "prod", 6)
	<-changed
	w.do(w.Update, "a", "lab", 7)
	w.expect("b early", "a")
	if v := w.prod.LastChange(); v != "7" {
		t.Errorf("last change %s", v)
	}
	w.do(w.Add, "c", "lab", 8)
	w.expect("b early", "a c")
	if v := w.prod.LastChange(); v != "7" {
		t.Errorf("a namespace that is not selected is a change: %s", v)
	}

	t.Run("a namespace keeps the version in which it came in over a relist", func(t *testing.T) {
		w.begin()
		w.do(w.Replace, "b", "prod", 9)
		w.end(10)
		set, seen := w.prod.AsOf()
		if set.Selected["b"] != "6" || seen != "10" {
			t.Errorf("selected since %s, as of %s", set.Selected["b"], seen)
		}
		w.expect("b", "")
	})
}

// skip has the list continue behind a namespace that can't be understood; "" for any.
func (w *watched) skip(name string) {
	w.Helper()
	if err := w.Skip(w.Context(), resource.Identity{Key: resource.Key(name)}); err != nil {
		w.Fatal(err)
	}
}

func TestSkip(t *testing.T) {
	for _, test := range []struct{ name, skipped, selected, others string }{
		{"a namespace that can't be understood stays what it was", "a", "a", "c"},
		{"nothing is gone by a list with an item that nobody knows", "", "a b", "c"},
		{"one that was not known is not there", "new", "", "c"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := watch(t)
			w.begin()
			w.do(w.Replace, "a", "prod", 1)
			w.do(w.Replace, "b", "prod", 2)
			w.do(w.Replace, "c", "prod", 3)
			w.end(4)
			w.begin()
			w.do(w.Replace, "c", "lab", 5)
			w.skip(test.skipped)
			w.end(6)
			w.expect(test.selected, test.others)
		})
	}
	t.Run("its deletion is followed", func(t *testing.T) {
		w := watch(t)
		w.begin()
		w.do(w.Replace, "a", "prod", 1)
		w.end(2)
		obj := &resource.Object{Meta: resource.Meta{Name: "a", Version: "3"}}
		if err := w.Unselected(t.Context(), obj, true); err != nil {
			t.Fatal(err)
		}
		w.expect("", "")
	})
}

func TestSelect(t *testing.T) {
	w := watch(t)
	if _, err := w.Select("env in"); err == nil || !strings.Contains(err.Error(), "namespaceSelector") {
		t.Errorf("a selector that does not parse: %v", err)
	}
	if again, err := w.Select("env=prod"); err != nil || again != w.prod {
		t.Errorf("a second selection for one selector: %v", err)
	}
	if why := w.NotReady(); why != "not in sync yet" {
		t.Errorf("not ready: %q", why)
	}
	w.begin()
	w.do(w.Replace, "a", "prod", 1)
	w.end(1)
	if why := w.NotReady(); why != "" {
		t.Errorf("not ready: %q", why)
	}
	late, err := w.Select("env!=prod")
	if err != nil {
		t.Fatal(err)
	}
	if set, _ := late.Current(); set == nil || len(set.Selected) != 0 || !set.Exists["a"] {
		t.Errorf("a selector that comes late: %+v", set)
	}
}
