package kafka_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/compress"
	"github.com/segmentio/kafka-go/protocol"

	"github.com/kubebridge/bridge/internal/sinks/kafka"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var someRecords = []kafka.BatchRecord{
	{
		Time: time.UnixMilli(1763683200123), Key: new("pods/shop/web"), Value: []byte(`{"a":1}`),
		Headers: []protocol.Header{
			{Key: "ce_id", Value: []byte("u/1")},
			{Key: "empty", Value: []byte{}},
		},
	},
	{Time: time.UnixMilli(1763683200000), Key: new("pods/shop/web")},
	{Time: time.UnixMilli(1763683209999), Value: []byte{}},
}

func TestBatchBytes(t *testing.T) {
	batch, err := kafka.EncodeBatch(compress.None, 4711, 3, 17, someRecords...)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", "batch.golden")
	got := hex.Dump(batch)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestBatchProducer(t *testing.T) {
	for codec := compress.None; codec <= compress.Zstd; codec++ {
		batch, err := kafka.EncodeBatch(codec, 4711, 3, 17, someRecords...)
		if err != nil {
			t.Fatal(err)
		}
		var set protocol.RecordSet
		if _, err := set.ReadFrom(bytes.NewReader(batch)); err != nil {
			t.Fatal(err)
		}
		head := set.Records.(*protocol.RecordStream).Records[0].(*protocol.RecordBatch)
		if head.ProducerID != 4711 || head.ProducerEpoch != 3 || head.BaseSequence != 17 {
			t.Errorf("%v: producer %d, epoch %d, sequence %d", codec, head.ProducerID,
				head.ProducerEpoch, head.BaseSequence)
		}
	}
}

// FuzzBatch compares the encoder with kafka-go's: its writer has to make the same bytes, its reader
// to give the records back.
func FuzzBatch(f *testing.F) {
	f.Add("key", "value", "ce_id", "1", int64(1763683200123), int64(5), uint8(0))
	f.Add("", "", "", "", int64(1), int64(-1), uint8(3))
	f.Add(strings.Repeat("k", 200), strings.Repeat("v", 70000), strings.Repeat("h", 90),
		"", int64(1763683200123), int64(-1763683200), uint8(4))
	f.Fuzz(func(t *testing.T, key, value, name, header string, at, later int64, kind uint8) {
		const year = int64(366 * 24 * time.Hour / time.Millisecond)
		first := 1 + (at&(1<<62-1))%(100*year)
		second := max(1, first+later%year)
		records := []kafka.BatchRecord{
			{
				Time: time.UnixMilli(first), Key: &key, Value: []byte(value),
				Headers: []protocol.Header{{Key: name, Value: []byte(header)}},
			},
			{Time: time.UnixMilli(second), Key: &value},
			{
				Time: time.UnixMilli(second), Value: []byte(key),
				Headers: []protocol.Header{
					{Key: header, Value: []byte(name)},
					{Key: name, Value: []byte(value)},
				},
			},
		}
		plain, err := kafka.EncodeBatch(compress.None, -1, -1, -1, records...)
		if err != nil {
			t.Fatal(err)
		}
		if want := theirs(t, records); !bytes.Equal(plain, want) {
			t.Fatalf("got\n%s\nkafka-go makes\n%s", hex.Dump(plain), hex.Dump(want))
		}
		packed, err := kafka.EncodeBatch(compress.Compression(kind%5), 1, 2, 3, records...)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := read(t, packed), read(t, plain); !reflect.DeepEqual(got, want) {
			t.Fatalf("compressed it reads %v, want %v", got, want)
		}
	})
}

// theirs is the batch that kafka-go makes of the same records.
func theirs(t *testing.T, records []kafka.BatchRecord) []byte {
	t.Helper()
	var all []protocol.Record
	for _, r := range records {
		one := protocol.Record{Time: r.Time, Headers: r.Headers}
		if r.Key != nil {
			one.Key = protocol.NewBytes([]byte(*r.Key))
		}
		if r.Value != nil {
			one.Value = protocol.NewBytes(r.Value)
		}
		all = append(all, one)
	}
	var out bytes.Buffer
	set := protocol.RecordSet{Version: 2, Records: protocol.NewRecordReader(all...)}
	if _, err := set.WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

type readRecord struct {
	offset, time int64
	key, value   string
	headers      []protocol.Header
}

// read gives the records of a batch as kafka-go reads them.
func read(t *testing.T, batch []byte) (all []readRecord) {
	t.Helper()
	var set protocol.RecordSet
	if _, err := set.ReadFrom(bytes.NewReader(batch)); err != nil {
		t.Fatal(err)
	}
	for {
		r, err := set.Records.ReadRecord()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, readRecord{
			r.Offset, r.Time.UnixMilli(), text(t, r.Key), text(t, r.Value),
			r.Headers,
		})
	}
}

func text(t *testing.T, b protocol.Bytes) string {
	t.Helper()
	if b == nil {
		return "<null>"
	}
	all, err := protocol.ReadAll(b)
	if err != nil {
		t.Fatal(err)
	}
	return "=" + string(all)
}
