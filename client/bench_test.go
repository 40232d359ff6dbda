package client_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/kubebridge/bridge/client"
)

// BenchmarkInformers has many informers of one resource read one bucket of 500 objects. An
// operation is an update that has reached all informers. The heap is what the informers and the
// client take; the CPU is that of the whole process, with the NATS server in it.
func BenchmarkInformers(b *testing.B) {
	for _, n := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			const objects = 500
			br := newBroker(b, "bucket")
			for i := range objects {
				br.put(fmt.Sprint("pod-", i))
			}
			br.synced(objects)
			before := heap()
			c := run(b, br)
			var reported atomic.Int64
			informers := make([]cache.SharedIndexInformer, n)
			for i := range informers {
				informers[i] = countingInformer(b, c, &reported)
			}
			await(b, "the lists", func() bool { return reported.Load() == int64(n)*objects })
			taken := heap() - before
			reported.Store(0)
			cpu := cpuTime(b)
			count := int64(0)
			for b.Loop() {
				br.put(fmt.Sprint("pod-", count%objects))
				count++
				for reported.Load() < int64(n)*count {
					runtime.Gosched()
					time.Sleep(50 * time.Microsecond)
				}
			}
			b.ReportMetric(float64(taken)/(1<<20), "MiB-heap")
			b.ReportMetric(float64((cpuTime(b)-cpu).Microseconds())/float64(count), "cpu-µs/op")
			runtime.KeepAlive(informers)
		})
	}
}

func countingInformer(b *testing.B, c *client.Client, reported *atomic.Int64) cache.SharedIndexInformer {
	b.Helper()
	lw, err := c.ListerWatcher(b.Context(), pods, client.Options{})
	must(b, err)
	informer := cache.NewSharedIndexInformer(lw, &unstructured.Unstructured{}, 0, cache.Indexers{})
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { reported.Add(1) },
		UpdateFunc: func(any, any) { reported.Add(1) },
	})
	must(b, err)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() { defer close(done); informer.Run(stop) }()
	b.Cleanup(func() { close(stop); <-done })
	return informer
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// exampleTB is the testing.TB of an example: what fails panics.
type exampleTB struct{ testing.TB }

func (exampleTB) Helper() {}

func (exampleTB) Context() context.Context { return context.Background() }

func (exampleTB) Fatal(args ...any) { panic(fmt.Sprint(args...)) }

func exampleDir() string {
	dir, err := os.MkdirTemp("", "bridge-client")
	if err != nil {
		panic(err)
	}
	return dir
}
