package kafka_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/segmentio/kafka-go/compress"
	"github.com/segmentio/kafka-go/protocol"

	"github.com/kubebridge/bridge/internal/sinks/kafka"
)

// FuzzAnswer decodes what a broker may send in answer to each kind of request.
func FuzzAnswer(f *testing.F) {
	for _, key := range kafka.AnswerKinds() {
		for version := range int16(12) {
			f.Add(int16(key), version, bytes.Repeat([]byte{0, 0, 0, 1}, 32))
		}
		f.Add(int16(key), int16(4), bytes.Repeat([]byte{2}, 100))
	}
	f.Fuzz(func(t *testing.T, key, version int16, data []byte) {
		if !slices.Contains(kafka.AnswerKinds(), protocol.ApiKey(key)) {
			t.Skip()
		}
		if size := kafka.DecodeAnswer(protocol.ApiKey(key), version, data); size > 16<<20 {
			t.Errorf("lists of %d bytes from %d", size, len(data))
		}
	})
}

// FuzzLog reads the records of an answer as a sink does that looks for its own.
func FuzzLog(f *testing.F) {
	for codec := range compress.Compression(5) {
		batch, err := kafka.EncodeBatch(codec, 4711, 3, 17, someRecords...)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(batch[4:], int64(0))
		f.Add(append(batch[4:], batch[4:]...), int64(1))
	}
	f.Fuzz(func(t *testing.T, data []byte, from int64) {
		ids, next := kafka.ReadLog(data, from)
		if next < from {
			t.Errorf("the log goes from %d to %d", from, next)
		}
		for _, id := range ids {
			if len(id) > 64<<10 {
				t.Errorf("an id has %d bytes", len(id))
			}
		}
	})
}

// FuzzPosition reads what the state directory or the progress of another replica holds.
func FuzzPosition(f *testing.F) {
	f.Add([]byte(`{"v":1,"topics":{"k8s.test.pods":[[7,4711,3,17],[-1,-1,0,0]]},"partitions":{"idle":3},"time":"2026-11-21T01:02:03Z"}`))
	f.Add([]byte(`{"v":1,"topics":{"a":null,"b":[[1]]}}`))
	f.Fuzz(func(t *testing.T, saved []byte) {
		kafka.PlacesOf(saved)
		kafka.OffsetsOf(saved, "k8s.test.pods")
		new(kafka.Sink).Outline(saved)
	})
}
