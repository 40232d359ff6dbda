package kafka_test

import (
	"math/rand/v2"
	"testing"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/kubebridge/bridge/internal/sinks/kafka"
)

func TestMurmur2(t *testing.T) {
	// From UtilsTest.testMurmur2 of Apache Kafka.
	for text, want := range map[string]int32{
		"21":                         -973932308,
		"foobar":                     -790332482,
		"a-little-bit-long-string":   -985981536,
		"a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc": 479470107,
	} {
		if got := int32(kafka.Murmur2(text)); got != want {
			t.Errorf("murmur2(%q) = %d, want %d", text, got, want)
		}
	}
}

func TestPartitionOf(t *testing.T) {
	var balancer kafkago.Murmur2Balancer
	for range 2000 {
		key := make([]byte, rand.IntN(40))
		for i := range key {
			key[i] = byte(rand.Uint32())
		}
		n := 1 + rand.IntN(64)
		partitions := make([]int, n)
		for i := range partitions {
			partitions[i] = i
		}
		if got, want := kafka.PartitionOf(string(key),
			n), balancer.Balance(kafkago.Message{Key: key}, partitions...); got != want {
			t.Fatalf("key %q over %d: partition %d, want %d", key, n, got, want)
		}
	}
}
