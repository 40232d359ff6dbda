package deltafifo_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/deltafifo"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// known is a KnownObjects of a fixed set.
type known struct {
	missing []resource.Key
	err     error
	asked   int
}

func (k *known) Missing(resource.Version, resource.Relist) iter.Seq2[resource.Key, error] {
	return func(yield func(resource.Key, error) bool) {
		k.asked++
		for _, m := range k.missing {
			if !yield(m, nil) {
				return
			}
		}
		if k.err != nil {
			yield("", k.err)
		}
	}
}

func newFIFO(t testing.TB, cfg deltafifo.Config) *deltafifo.FIFO {
	t.Helper()
	if cfg.Known == nil {
		cfg.Known = &known{}
	}
	f, err := deltafifo.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// object makes "name" of a uid made of the name, or of what follows a "#".
func object(name, version string) *resource.Object {
	name, uid, _ := strings.Cut(name, "#")
	return &resource.Object{
		Raw:  []byte(`{"metadata":{"name":"` + name + `"}}`),
		Meta: resource.Meta{Name: name, UID: "uid-" + name + uid, Version: resource.Version(version)},
	}
}

// list queues a whole list of "name@version" items.
func list(t testing.TB, f *deltafifo.FIFO, version resource.Version, items ...string) {
	t.Helper()
	testkit.OK(t, f.BeginReplace(t.Context(), resource.Relist{Kind: resource.RelistInitial}))
	for _, item := range items {
		name, v, _ := strings.Cut(item, "@")
		testkit.OK(t, f.Replace(t.Context(), object(name, v)))
	}
	testkit.OK(t, f.EndReplace(t.Context(), version))
}

// process is a Processor.
type process func(deltafifo.Deltas) error

func (p process) Process(_ context.Context, d deltafifo.Deltas) error { return p(d) }

func (p process) TryProcess(deltafifo.Deltas) (int, error) { return 0, nil }

// pop pops once and gives what was processed, "Type key version", and "|" between two calls of
// Process.
func pop(t testing.TB, f *deltafifo.FIFO) (got []string) {
	t.Helper()
	testkit.OK(t, f.Pop(t.Context(), process(func(d deltafifo.Deltas) error {
		if len(got) > 0 {
			got = append(got, "|")
		}
		for i := range d {
			got = append(got, line(&d[i]))
		}
		return nil
	})))
	return got
}

// popAll pops everything that waits.
func popAll(t testing.TB, f *deltafifo.FIFO) (got []string) {
	t.Helper()
	for f.Stats().Deltas > 0 {
		got = append(got, pop(t, f)...)
	}
	return got
}

// popNothing pops an empty FIFO.
func popNothing(t testing.TB, f *deltafifo.FIFO) error {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return f.Pop(ctx, process(func(deltafifo.Deltas) error { return errors.New("something is left") }))
}

func line(d *deltafifo.Delta) string {
	version := d.Version
	if d.Object != nil {
		version = d.Object.Version
	}
	words := []string{fmt.Sprint(d.Type), string(d.Key), string(version)}
	if d.FinalStateUnknown {
		words = append(words, "unknown")
	}
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " ")
}
