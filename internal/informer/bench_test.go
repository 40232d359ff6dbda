package informer_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/deltafifo"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/informer/checkpoint"
	"github.com/kubebridge/bridge/internal/informer/processor"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/store/statedb"
)

// swallow is a Publisher that settles everything at once.
type swallow struct{ events, bytes int }

// Detach takes nothing back: the listeners of these tests end with their process.
func (s *swallow) Detach(context.Context, publisher.Settler) []*publisher.Item { return nil }

func (s *swallow) TryAdd(items []*publisher.Item) bool {
	return s.Add(context.Background(), items) == nil
}

func (s *swallow) Add(_ context.Context, items []*publisher.Item) error {
	s.events += len(items)
	for _, it := range items {
		s.bytes += len(it.Message.Event.Data)
	}
	items[0].Settler.Settle(items)
	return nil
}

// BenchmarkUpdate is the cost of an update of a pod of 2 KB between the FIFO and the publisher,
// with nothing on the way and with what the configuration may put there.
func BenchmarkUpdate(b *testing.B) {
	for name, change := range benchmarked {
		b.Run(name, func(b *testing.B) {
			db, err := store.Open(statedb.Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer db.Close()
			indexer, _ := db.Indexer(store.IndexerConfig{Name: "all/pods", Type: pods})
			committer, _ := checkpoint.New(checkpoint.Config{DB: db})
			fifo, _ := deltafifo.New(deltafifo.Config{Known: indexer.Listing(), MaxBytes: 64 << 10})
			maker := event.MakerConfig{Cluster: "c", Informer: "all", Type: pods}
			cfg := informer.StagesConfig{Name: "all/pods", Type: pods, FIFO: fifo, Indexer: indexer, Committer: committer}
			sink := &swallow{}
			lc := informer.ListenerConfig{Config: processor.Config{Name: "sink", Publisher: sink}}
			change(b, &maker, &lc)
			lc.Maker, _ = event.NewMaker(maker)
			cfg.Changed = name == "changed"
			cfg.Listeners = []informer.ListenerConfig{lc}
			inf, err := informer.NewStages(cfg)
			if err != nil {
				b.Fatal(err)
			}
			committer.Track(inf.Log())
			done := make(chan error, 1)
			go func() { done <- inf.Run(context.WithoutCancel(b.Context())) }()
			objects := make([]*resource.Object, 0, 4096)
			padding := strings.Repeat("x", 2000)
			version := 1000
			b.ReportAllocs()
			b.ResetTimer()
			for i := 0; i < b.N; i++ { //nolint:intrange // b.Loop would count what is prepared
				if len(objects) == 0 {
					b.StopTimer()
					for range cap(objects) {
						version++
						raw := fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p-%d","namespace":"shop","uid":"u%d","resourceVersion":"%d"},"spec":{"x":%q},"status":{"phase":"Running"}}`, version%100, version%100, version, padding)
						obj, err := resource.Parse([]byte(raw), resource.ParseOptions{Type: pods})
						if err != nil {
							b.Fatal(err)
						}
						objects = append(objects, obj)
					}
					b.StartTimer()
				}
				if err := fifo.Update(b.Context(), objects[0]); err != nil {
					b.Fatal(err)
				}
				objects = objects[1:]
				if len(objects) == 0 {
					objects = make([]*resource.Object, 0, 4096)
				}
			}
			fifo.Close()
			if err := <-done; err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(sink.bytes)/float64(sink.events), "bytes/event")
			if sink.events != b.N {
				b.Errorf("%d events of %d updates", sink.events, b.N)
			}
		})
	}
}
