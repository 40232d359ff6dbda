package ratelimit_test

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"k8s.io/client-go/util/workqueue"
)

func keys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = "default/pod-" + strconv.Itoa(i)
	}
	return keys
}

// BenchmarkQueue hands 100 keys through; the second is client-go's queue doing the same.
func BenchmarkQueue(b *testing.B) {
	keys := keys(100)
	b.Run("ours in batches", func(b *testing.B) {
		b.ReportAllocs()
		q := newQueue[string]()
		var batch []string
		for b.Loop() {
			q.Add(keys...)
			batch, _ = q.GetBatch(b.Context(), batch[:0], len(keys))
			q.Done(batch...)
		}
	})
	b.Run("ours one by one", func(b *testing.B) {
		b.ReportAllocs()
		q := newQueue[string]()
		var batch []string
		for b.Loop() {
			for _, key := range keys {
				q.Add(key)
				batch, _ = q.GetBatch(b.Context(), batch[:0], 1)
				q.Done(batch...)
			}
		}
	})
	b.Run("client-go one by one", func(b *testing.B) {
		b.ReportAllocs()
		q := workqueue.NewTyped[string]()
		defer q.ShutDown()
		for b.Loop() {
			for _, key := range keys {
				q.Add(key)
				key, _ := q.Get()
				q.Done(key)
			}
		}
	})
}

func BenchmarkAddAfter(b *testing.B) {
	b.ReportAllocs()
	q := newQueue[int]()
	n := 0
	for b.Loop() {
		q.AddAfter(n%100_000, time.Hour+rand.N(time.Hour))
		n++
	}
	q.ShutDown()
}
