package refused_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/kubebridge/bridge/internal/publisher/refused"
)

// FuzzFile reads a file that may be damaged or edited. An event that can be sent is kept again as
// it was.
func FuzzFile(f *testing.F) {
	const sink, id = "lake", "0123"
	dir, other := f.TempDir(), filepath.Join(f.TempDir(), "kept")
	path := filepath.Join(dir, sink, id+".json")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		f.Fatal(err)
	}
	folder := refused.New(refused.Config{Dir: other, MaxBytes: 1 << 30})
	e := newEvent("u/1", `{"kind":"Pod"}`)
	e.Informer, e.Cluster, e.PartitionKey = "all", "c", "shop/web"
	if err := folder.Keep(e, refused.Refusal{Sink: sink, Reason: "too large"}); err != nil {
		f.Fatal(err)
	}
	for _, text := range files(f, other) {
		f.Add([]byte(text))
		f.Add([]byte(text[:len(text)/2]))
		f.Add([]byte(`{"id":"../other","sink":"s","bytes":7,"problem":"none",` + text[1:]))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		all, err := refused.List(dir)
		if err != nil || len(all) != 1 {
			t.Fatalf("listed %+v, %v", all, err)
		}
		e := all[0]
		if e.ID != id || e.Sink != sink || e.Bytes != int64(len(data)) {
			t.Fatalf("%s of sink %s with %d bytes", e.ID, e.Sink, e.Bytes)
		}
		refused.Order(all)
		if sent, err := e.Parse(); err == nil {
			requireKept(t, e, sent.Data, func() (refused.Entry, error) {
				return keepAgain(folder, other, e)
			})
		}
	})
}

// keepAgain keeps the event of an entry in a folder and reads it there.
func keepAgain(f *refused.Folder, dir string, e refused.Entry) (refused.Entry, error) {
	sent, err := e.Parse()
	if err != nil {
		return e, err
	}
	if err := os.RemoveAll(dir); err != nil {
		return e, err
	}
	if err := f.Keep(sent, e.Refusal); err != nil {
		return e, err
	}
	all, err := refused.List(dir)
	if err != nil || len(all) != 1 {
		return e, err
	}
	return all[0], nil
}

func requireKept(
	t *testing.T, e refused.Entry, data []byte, again func() (refused.Entry, error),
) {
	t.Helper()
	kept, err := again()
	if err != nil {
		t.Fatal(err)
	}
	sent, err := kept.Parse()
	if err != nil || !bytes.Equal(sent.Data, data) || kept.Routing != e.Routing {
		t.Errorf("kept %s, was %s: %v", kept.Event, e.Event, err)
	}
}
