package kafka

import (
	"encoding/binary"
	"hash/crc32"
	"sync"
	"time"
	"unsafe"

	"github.com/segmentio/kafka-go/compress"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
)

// encoder turns events into records. It is immutable.
type encoder struct {
	encoding   string
	mediaType  string // of a whole event; "" where attributes are headers
	headers    []byte // of every record, encoded; they do not change
	count      int    // of headers
	tombstones bool
	bare       bool // nothing but the tombstone
	eventTime  bool
}

// put appends the record of an event, and after a Deleted the tombstone where the configuration
// asks for one. now is the record's time unless the event's own is asked for.
func (c encoder) put(w *batchWriter, e *event.Event, now time.Time) {
	at := now
	if c.eventTime && !e.Time.IsZero() {
		at = e.Time
	}
	// A record without a key is not one with an empty key: compacted topics distinguish the two.
	var key *string
	switch {
	case e.CompactionKey != "":
		key = &e.CompactionKey
	case e.PartitionKey != "":
		key = &e.PartitionKey
	}
	switch {
	case c.bare:
	case c.mediaType != "":
		c.putDocument(w, e, at, key)
	default:
		c.putBinary(w, e, at, key)
	}
	if c.tombstones && e.Op == event.Deleted && key != nil {
		w.appendRecord(at, key, nil, nil, 0)
	}
}

// tryPut is put. A panic refuses the event.
func (c encoder) tryPut(w *batchWriter, e *event.Event, now time.Time) (err error) {
	defer sinks.Recover(&err)
	c.put(w, e, now)
	return nil
}

// putBinary writes the attributes as headers and the payload as the value. The payload's media type
// is the header content-type. The value of an event without payload is empty: a null would delete
// its object's key in a compacted topic. That of an event about an informer is null, since engines
// pass over that (it has a payload, but in Debezium's form).
func (c encoder) putBinary(w *batchWriter, e *event.Event, at time.Time, key *string) {
	count, headers := 0, w.headers[:0]
	e.Each(func(name, value string) {
		if name == "datacontenttype" {
			headers = appendString(headers, "content-type")
		} else {
			headers = appendAttributeName(headers, name)
		}
		headers = appendString(headers, value)
		count++
	})
	w.headers = c.appendOwn(headers, e)
	value := e.Data
	if len(value) == 0 && e.CompactionKey == "" {
		value = []byte{}
	}
	w.appendRecord(at, key, value, w.headers, count+c.count+1)
}

// putDocument writes the whole event as the value.
func (c encoder) putDocument(w *batchWriter, e *event.Event, at time.Time, key *string) {
	w.value = sinks.AppendDocument(w.value[:0], e, c.encoding)
	w.headers = appendString(w.headers[:0], "content-type")
	w.headers = appendString(w.headers, c.mediaType)
	w.headers = c.appendOwn(w.headers, e)
	w.appendRecord(at, key, w.value, w.headers, c.count+2)
}

// These are not attributes of the event. They distinguish records with the same id: the events of
// two informers that select the same object, and those of two sinks that share a topic, for example
// a dead-letter topic. ReadBack recognizes the sink's records by them.
const (
	informerHeader = "informer"
	sinkHeader     = "sink"
)

// idHeader is the header of the attribute id.
const idHeader = "ce_id"

// appendOwn appends the headers that are not attributes.
func (c encoder) appendOwn(dst []byte, e *event.Event) []byte {
	dst = append(dst, c.headers...)
	return appendString(appendString(dst, informerHeader), e.Informer)
}

// appendAttributeName appends the header name of an attribute with its length: ce_id.
func appendAttributeName(dst []byte, name string) []byte {
	const prefix = "ce_"
	if n := len(prefix) + len(name); n < 64 {
		dst = append(dst, byte(n<<1)) // zig-zag: one byte below 64
		dst = append(dst, prefix...)
		return append(dst, name...)
	}
	return appendString(dst, prefix+name)
}

// Offsets of a record batch v2 behind the int32 size that a produce request puts before it. The
// broker checks the CRC over everything from the attributes on.
const (
	sizePrefix = 4

	posLength     = sizePrefix + 8
	posEpochOfLog = sizePrefix + 12
	posMagic      = sizePrefix + 16
	posCRC        = sizePrefix + 17
	posAttributes = sizePrefix + 21
	posLastDelta  = sizePrefix + 23
	posFirstTime  = sizePrefix + 27
	posMaxTime    = sizePrefix + 35
	posProducer   = sizePrefix + 43
	posEpoch      = sizePrefix + 51
	posSequence   = sizePrefix + 53
	posCount      = sizePrefix + 57
	posRecords    = sizePrefix + 61

	batchMagic = 2
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// batchWriter collects records into one record batch v2. It is reused, so its buffers are allocated
// once. It belongs to whoever holds its lane.
type batchWriter struct {
	records   []byte // the records as they will lie in the batch, before compression
	headers   []byte // of the record being written
	value     []byte // of the record being written, when it has to be made
	count     int32
	firstTime int64
	maxTime   int64
}

// reset forgets the records.
func (w *batchWriter) reset() {
	w.records, w.count, w.firstTime, w.maxTime = w.records[:0], 0, 0, 0
}

// size is what the batch takes before compression, in bytes.
func (w *batchWriter) size() int { return posRecords - sizePrefix + len(w.records) }

// savepoint is a place that truncate can go back to: a record that does not fit is taken out again.
type savepoint struct {
	bytes     int
	count     int32
	firstTime int64
	maxTime   int64
}

func (w *batchWriter) savepoint() savepoint {
	return savepoint{bytes: len(w.records), count: w.count, firstTime: w.firstTime, maxTime: w.maxTime}
}

func (w *batchWriter) truncate(to savepoint) {
	w.records, w.count, w.firstTime, w.maxTime = w.records[:to.bytes], to.count, to.firstTime,
		to.maxTime
}

// appendRecord appends a record. A nil key or value is a null; headers are already encoded, count
// of them.
func (w *batchWriter) appendRecord(
	at time.Time, key *string, value []byte, headers []byte, headerCount int,
) {
	timestamp := at.UnixMilli()
	if w.count == 0 {
		w.firstTime, w.maxTime = timestamp, timestamp
	}
	w.maxTime = max(w.maxTime, timestamp)
	timeDelta, offsetDelta := timestamp-w.firstTime, int64(w.count)

	size := 1 + varintSize(timeDelta) + varintSize(offsetDelta) + varintSize(-1) + varintSize(-1) +
		varintSize(int64(headerCount)) + len(headers)
	if key != nil {
		size += varintSize(int64(len(*key))) - varintSize(-1) + len(*key)
	}
	if value != nil {
		size += varintSize(int64(len(value))) - varintSize(-1) + len(value)
	}

	b := binary.AppendVarint(w.records, int64(size))
	b = append(b, 0) // attributes of the record: unused
	b = binary.AppendVarint(b, timeDelta)
	b = binary.AppendVarint(b, offsetDelta)
	if key == nil {
		b = binary.AppendVarint(b, -1)
	} else {
		b = appendString(b, *key)
	}
	if value == nil {
		b = binary.AppendVarint(b, -1)
	} else {
		b = binary.AppendVarint(b, int64(len(value)))
		b = append(b, value...)
	}
	b = binary.AppendVarint(b, int64(headerCount))
	w.records = append(b, headers...)
	w.count++
}

// finish appends the whole batch to dst, with the size prefix of a produce request, compressed
// where that makes it smaller. The batch has no producer yet: stamp gives it one.
func (w *batchWriter) finish(dst []byte, codec compress.Compression) ([]byte, error) {
	dst = append(dst, make([]byte, posRecords)...)
	var attributes int16
	if codec != compress.None {
		sink := appender{bytes: dst}
		if err := compressTo(&sink, codec, w.records); err != nil {
			return nil, err
		}
		if len(sink.bytes)-posRecords < len(w.records) {
			dst, attributes = sink.bytes, int16(codec)
		}
	}
	if attributes == 0 {
		dst = append(dst, w.records...)
	}
	binary.BigEndian.PutUint32(dst, uint32(len(dst)-sizePrefix))
	binary.BigEndian.PutUint32(dst[posLength:], uint32(len(dst)-posEpochOfLog))
	binary.BigEndian.PutUint32(dst[posEpochOfLog:], ^uint32(0)) // the broker's to fill in
	dst[posMagic] = batchMagic
	binary.BigEndian.PutUint16(dst[posAttributes:], uint16(attributes))
	binary.BigEndian.PutUint32(dst[posLastDelta:], uint32(w.count-1))
	binary.BigEndian.PutUint64(dst[posFirstTime:], uint64(w.firstTime))
	binary.BigEndian.PutUint64(dst[posMaxTime:], uint64(w.maxTime))
	binary.BigEndian.PutUint32(dst[posCount:], uint32(w.count))
	return dst, nil
}

// stamp writes the producer's identity and the sequence number of the first record into a batch,
// and its checksum.
func stamp(batch []byte, producer int64, epoch int16, sequence int32) {
	binary.BigEndian.PutUint64(batch[posProducer:], uint64(producer))
	binary.BigEndian.PutUint16(batch[posEpoch:], uint16(epoch))
	binary.BigEndian.PutUint32(batch[posSequence:], uint32(sequence))
	binary.BigEndian.PutUint32(batch[posCRC:], crc32.Checksum(batch[posAttributes:], castagnoli))
}

// redate changes the time of all records, which must have the same one. stamp has written the rest.
func redate(batch []byte, at time.Time) {
	binary.BigEndian.PutUint64(batch[posFirstTime:], uint64(at.UnixMilli()))
	binary.BigEndian.PutUint64(batch[posMaxTime:], uint64(at.UnixMilli()))
	binary.BigEndian.PutUint32(batch[posCRC:], crc32.Checksum(batch[posAttributes:], castagnoli))
}

// compressTo writes data through kafka-go's codec, which keeps its writers in a pool.
func compressTo(sink *appender, codec compress.Compression, data []byte) error {
	w := codec.Codec().NewWriter(sink)
	if _, err := w.Write(data); err != nil {
		_ = w.Close() // returns the writer to the pool; the first error is the cause
		return err
	}
	return w.Close()
}

// appender is an io.Writer that appends to a slice.
type appender struct{ bytes []byte }

func (a *appender) Write(p []byte) (int, error) {
	a.bytes = append(a.bytes, p...)
	return len(p), nil
}

// appendString appends a string with its length before it, as keys and headers have it.
func appendString[S string | []byte](dst []byte, s S) []byte {
	dst = binary.AppendVarint(dst, int64(len(s)))
	return append(dst, s...)
}

// varintSize is how many bytes binary.AppendVarint takes for v (zig-zag, as Kafka has it).
func varintSize(v int64) int {
	u := uint64(v)<<1 ^ uint64(v>>63)
	size := 1
	for ; u >= 0x80; u >>= 7 {
		size++
	}
	return size
}

// lastEncoded is the batch that Fits has made last: Publish sends the same event next, and
// compressing a large one takes most of its time. It is one batch, and no more than a topic takes.
type lastEncoded struct {
	mu    sync.Mutex
	of    eventBytes
	bytes []byte
	size  int // before compression
	count int32
}

// eventBytes distinguishes an event from another one that is kept in the same memory later.
type eventBytes struct {
	event *event.Event
	id    string
	data  *byte
	size  int
}

func bytesOf(e *event.Event) eventBytes {
	return eventBytes{event: e, id: e.MessageID(), data: unsafe.SliceData(e.Data), size: len(e.Data)}
}

// keep takes the bytes over.
func (f *lastEncoded) keep(e *event.Event, bytes []byte, size int, count int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.of, f.bytes, f.size, f.count = bytesOf(e), bytes, size, count
}

// reuse gives the bytes away, nil when they are of another event.
func (f *lastEncoded) reuse(e *event.Event) (bytes []byte, size int, count int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.bytes == nil || f.of.event != e || f.of != bytesOf(e) {
		return nil, 0, 0
	}
	bytes, f.bytes, f.of = f.bytes, nil, eventBytes{}
	return bytes, f.size, f.count
}
