package kafka_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
)

// BenchmarkPublish measures events through the whole sink to a broker in the same process that
// stores nothing: 8 lanes at once, and one.
func BenchmarkPublish(b *testing.B) {
	for _, size := range []int{2 << 10, 6 << 10} {
		for _, codec := range []string{"none", "lz4"} {
			for _, lanes := range []int{1, 8} {
				b.Run(fmt.Sprintf("size=%dKB/%s/lanes=%d", size>>10, codec, lanes),
					func(b *testing.B) { benchmark(b, size, codec, lanes) })
			}
		}
	}
}

func benchmark(b *testing.B, size int, codec string, lanes int) {
	c := newCluster(b, kfake.SeedTopics(int32(lanes), podsTopic), kfake.BlackholeProduce())
	s := openSink(b, c, func(c *kafka.Options) { c.Compression, c.Log = codec, nil })
	batches := benchBatches(b, s, lanes, 400_000/size*2, size)
	var next atomic.Int64
	b.ReportAllocs()
	b.SetBytes(int64(size))
	b.ResetTimer()
	var work sync.WaitGroup
	for _, batch := range batches {
		work.Go(func() {
			for next.Add(int64(len(batch))) <= int64(b.N)+int64(len(batch)) {
				s.Publish(b.Context(), batch)
				requireStored(b, batch)
			}
		})
	}
	work.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

// benchBatches fills one batch for each lane, with payloads that compress about as a Kubernetes
// object does.
func benchBatches(b *testing.B, s *kafka.Sink, lanes, messages, size int) [][]*sinks.Message {
	byLane := make(map[string][]*sinks.Message)
	for pod := 0; ; pod++ {
		e := podEvent(fmt.Sprint("pod-", pod), 1)
		e.Data = payload(size)
		lane, err := s.Lane(b.Context(), e)
		if err != nil {
			b.Fatal(err)
		}
		if len(byLane[lane]) < messages {
			byLane[lane] = append(byLane[lane], &sinks.Message{Event: e})
		}
		full := 0
		for _, batch := range byLane {
			if len(batch) == messages {
				full++
			}
		}
		if full == lanes {
			break
		}
	}
	var all [][]*sinks.Message
	for _, batch := range byLane {
		all = append(all, batch)
	}
	return all
}

func payload(size int) []byte {
	var out strings.Builder
	out.WriteString(`{"kind":"Pod"`)
	for out.Len() < size {
		fmt.Fprintf(&out,
			`,"metadata":{"name":"web-%08x","uid":"%016x","labels":{"app.kubernetes.io/name":"web"}}`, rand.Uint32(), rand.Uint64())
	}
	return []byte(out.String()[:size-1] + "}")
}

func BenchmarkLane(b *testing.B) {
	s := openSink(b, newCluster(b, kfake.SeedTopics(12, podsTopic)),
		func(c *kafka.Options) { c.Log = nil })
	e := podEvent("web", 1)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Lane(b.Context(), e); err != nil {
			b.Fatal(err)
		}
	}
}
