package kafka

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"time"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/segmentio/kafka-go/compress"
)

// Whoever may write to the topic wrote what lies in a log. The head of a batch shows whether it can
// be this sink's; only then its records are inflated and read, and nothing in them is believed
// beyond these bounds.
const (
	// maxRecords of a batch: more than a Publish call holds, with a tombstone for each message.
	maxRecords = 10_000
	// maxHeaders of a record: more than any event has attributes.
	maxHeaders = 1_000
	// maxText is how many bytes of a key or of a header are read.
	maxText = 4 << 10
	// maxValue is how many bytes of a value are read: the id is at its beginning.
	maxValue = 16 << 10
)

// batchHead identifies a batch in a log.
type batchHead struct {
	producer int64
	epoch    int16
	sequence int32
	offset   int64
	records  int32 // as written
	// remaining are those that compaction has kept.
	remaining int32
}

// logBatch is a batch as it lies in an answer to a fetch request.
type logBatch struct {
	batchHead
	attributes compress.Compression // and flags
	checksum   uint32
	body       []byte // from the attributes on; nil where the answer does not hold all of it
	cut        bool   // the answer does not hold all of it
	isOld      bool   // of a format before batches: its offset may be that of its last message
}

// endOffset is the offset behind the batch.
func (b *batchHead) endOffset() int64 { return b.offset + int64(b.records) }

// Flags in a batch's attributes, and the bits that name its compression.
const (
	codecBits         = 0x07
	transactionalFlag = 0x10
	controlFlag       = 0x20
)

// Sizes of the parts of a batch.
const (
	batchStart     = posMagic - sizePrefix + 1 // up to the magic byte, in all versions
	batchSizeEnd   = posEpochOfLog - sizePrefix
	batchFixedSize = posRecords - sizePrefix
)

// readBatch reads the head of the first batch of data. It is io.ErrUnexpectedEOF when data does not
// have all of the head. The log may have messages of an old format: each counts as a batch of no
// producer.
func readBatch(data []byte) (b logBatch, rest []byte, err error) {
	at := func(pos int) []byte { return data[pos-sizePrefix:] }
	if len(data) < batchStart {
		return b, nil, io.ErrUnexpectedEOF
	}
	b.offset, b.producer, b.records, b.remaining = int64(binary.BigEndian.Uint64(data)), -1, 1, 1
	size := batchSizeEnd + int64(int32(binary.BigEndian.Uint32(at(posLength))))
	rest = data[min(max(size, 0), int64(len(data))):]
	switch magic := at(posMagic)[0]; {
	case b.offset < 0 || b.offset > math.MaxInt64/2 || size < batchStart || magic > batchMagic:
		return b, nil, fmt.Errorf("%w: a batch of version %d and %d bytes at offset %d",
			errMalformed, magic, size, b.offset)
	case magic < batchMagic:
		b.isOld = true
		return b, rest, nil
	case len(data) < batchFixedSize:
		return b, nil, io.ErrUnexpectedEOF
	}
	last := int32(binary.BigEndian.Uint32(at(posLastDelta)))
	if size < batchFixedSize || last < 0 || last == math.MaxInt32 {
		return b, nil, fmt.Errorf("%w: a batch of %d bytes and %d records at offset %d",
			errMalformed, size, int64(last)+1, b.offset)
	}
	b.records = last + 1
	b.attributes = compress.Compression(at(posAttributes)[1])
	b.producer = int64(binary.BigEndian.Uint64(at(posProducer)))
	b.epoch = int16(binary.BigEndian.Uint16(at(posEpoch)))
	b.sequence = int32(binary.BigEndian.Uint32(at(posSequence)))
	b.remaining = int32(binary.BigEndian.Uint32(at(posCount)))
	b.checksum = binary.BigEndian.Uint32(at(posCRC))
	if b.cut = size > int64(len(data)); !b.cut {
		b.body = data[posAttributes-sizePrefix : size]
	}
	return b, rest, nil
}

// isForeign reports whether the batch can't be this sink's, without reading its records: this
// sink's batches have a producer id and belong to no transaction.
func (b *logBatch) isForeign() bool {
	return b.producer < 0 || b.attributes&(transactionalFlag|controlFlag) != 0
}

// open checks the batch and returns its records, inflated, to be closed. A batch of more than most
// records is not believed.
func (b *logBatch) open(most int32) (io.ReadCloser, error) {
	switch {
	case b.body == nil:
		return nil, errors.New("it is of an old form, or too large for an answer")
	case b.remaining < 0 || b.remaining > most:
		return nil, fmt.Errorf("it has %d records", b.remaining)
	case crc32.Checksum(b.body, castagnoli) != b.checksum:
		return nil, errors.New("its checksum is wrong")
	}
	return inflate(b.attributes&codecBits, b.body[posRecords-posAttributes:])
}

// recordBounds bound what is read of a record.
type recordBounds struct {
	records int32 // of a batch
	text    int64 // bytes of a key or of a header's value; a longer value of a header is left out
	value   int64 // bytes of a value
}

// ownRecords are the bounds of what this sink has sent.
var ownRecords = recordBounds{records: maxRecords, text: maxText, value: maxValue}

// each yields the records of the batch from an offset on; each is valid during the call only. Its
// error says why a record can't be read.
func (b *logBatch) each(from int64, yield func(*Record)) error {
	return b.read(ownRecords, func(r *Record) bool {
		if r.Offset >= from {
			yield(r)
		}
		return true
	})
}

// read yields the records of the batch while yield returns true. Each is valid during the call
// only.
func (b *logBatch) read(bounds recordBounds, yield func(*Record) bool) (err error) {
	defer recoverMalformed(&err)
	in, err := b.open(bounds.records)
	if err != nil {
		return err
	}
	began := int64(binary.BigEndian.Uint64(b.body[posFirstTime-posAttributes:]))
	r := recordReader{in: bufio.NewReaderSize(in, 32<<10), bounds: bounds, names: map[string]string{}}
	for i := int32(0); i < b.remaining && r.err == nil; i++ {
		if r.read(b.offset, began); r.err == nil && !yield(&r.record) {
			break
		}
	}
	return errors.Join(r.err, in.Close())
}

// recordReader reads records in sequence. After the first error it reads zeros.
type recordReader struct {
	in     *bufio.Reader
	bounds recordBounds
	record Record
	text   []byte            // of the record
	names  map[string]string // of headers, each made once
	buf    []byte
	err    error
}

// read reads the next record of a batch that begins at an offset and a time.
func (r *recordReader) read(base, began int64) {
	r.record, r.text = Record{Headers: r.record.Headers[:0]}, r.text[:0]
	r.varint() // its size
	r.skip(1)  // attributes
	r.record.Time = time.UnixMilli(began + r.varint())
	delta := r.varint()
	if delta < 0 || delta > math.MaxInt32 {
		r.fail("a record has the offset %d", delta)
	}
	r.record.Offset = base + delta
	r.record.Key, _ = r.keep(r.bounds.text)
	r.record.Value, _ = r.keep(r.bounds.value)
	count := r.varint()
	if count < 0 || count > maxHeaders {
		r.fail("a record has %d headers", count)
	}
	for ; count > 0 && r.err == nil; count-- {
		name, _ := r.keep(r.bounds.text)
		value, isWhole := r.keep(r.bounds.text)
		if !isWhole {
			value = nil
		}
		r.record.Headers = append(r.record.Headers, Header{r.nameOf(name), value})
	}
}

// nameOf returns the name of a header as a string. Records of one writer have the same names.
func (r *recordReader) nameOf(name []byte) string {
	const most = 100 // others are made for each record
	known, ok := r.names[string(name)]
	if !ok {
		known = string(name)
		if len(r.names) < most {
			r.names[known] = known
		}
	}
	return known
}

// keep reads a key, value or text, and returns the first bytes of it; nil for null. Its memory
// grows as the bytes come: a length is not believed.
func (r *recordReader) keep(most int64) (kept []byte, isWhole bool) {
	n := r.length()
	if n < 0 || r.err != nil {
		return nil, true
	}
	const step = 64 << 10
	at := len(r.text)
	for left := min(n, most); left > 0 && r.err == nil; left -= step {
		r.text = append(r.text, r.bytes(min(left, step))...)
	}
	r.skip(max(n-most, 0))
	return r.text[at:len(r.text):len(r.text)], n <= most
}

// bytes reads n bytes, valid until the next read.
func (r *recordReader) bytes(n int64) []byte {
	if cap(r.buf) < int(n) {
		r.buf = make([]byte, n)
	}
	r.buf = r.buf[:n]
	if _, err := io.ReadFull(r.in, r.buf); err != nil {
		r.stop(err)
		return nil
	}
	return r.buf
}

// length reads the length of a key, value or header: -1 for null.
func (r *recordReader) length() int64 {
	n := r.varint()
	if n < -1 || n > maxInflated {
		r.fail("a record has %d bytes", n)
		return -1
	}
	return n
}

func (r *recordReader) varint() int64 {
	if r.err != nil {
		return 0
	}
	n, err := binary.ReadVarint(r.in)
	if err != nil {
		r.stop(err)
		return 0
	}
	return n
}

func (r *recordReader) skip(n int64) {
	if r.err != nil || n == 0 {
		return
	}
	if _, err := r.in.Discard(int(n)); err != nil {
		r.stop(err)
	}
}

func (r *recordReader) stop(err error) {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	r.err = err
}

func (r *recordReader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

// maxInflated bounds how much of a batch is inflated: a larger one was not sent by this sink.
const maxInflated = maxRequest

// errInflated is a batch beyond that bound.
var errInflated = fmt.Errorf("it inflates to more than %d bytes", maxInflated)

// inflate gives the records of a batch, at most maxInflated bytes of them. Its memory does not
// depend on what the compressed bytes claim.
func inflate(codec compress.Compression, body []byte) (io.ReadCloser, error) {
	var from io.ReadCloser
	switch in := bytes.NewReader(body); codec {
	case compress.None:
		from = io.NopCloser(in)
	case compress.Gzip, compress.Lz4:
		from = codec.Codec().NewReader(in)
	case compress.Snappy:
		from = io.NopCloser(&snappyReader{in: in})
	case compress.Zstd:
		var err error
		if from, err = newZstdReader(in); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("it has an unknown compression (%d)", codec)
	}
	return &boundedReader{from, maxInflated}, nil
}

// boundedReader bounds what is read.
type boundedReader struct {
	io.ReadCloser
	left int
}

func (r *boundedReader) Read(b []byte) (int, error) {
	if r.left <= 0 {
		return 0, errInflated
	}
	n, err := r.ReadCloser.Read(b[:min(len(b), r.left)])
	r.left -= n
	return n, err
}

// maxWindow is the largest window that a zstd frame may ask for. The sink's own ask for 8 MiB.
const maxWindow = 16 << 20

// newZstdReader makes a decoder for one batch: reading back is rare.
func newZstdReader(in io.Reader) (io.ReadCloser, error) {
	d, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return nil, err
	}
	return d.IOReadCloser(), nil
}

// snappyReader reads the xerial framing, in which the sink writes snappy: a header, then blocks of
// 32 KiB with their sizes. A batch without it is one block, as librdkafka and franz-go write it.
type snappyReader struct {
	in    *bytes.Reader
	begun bool
	block []byte // inflated, not read yet
	buf   []byte
}

const (
	xerialMagic  = "\x82SNAPPY\x00"
	xerialHeader = 16
	// maxSnappyBlock is more than any writer of the framing uses.
	maxSnappyBlock = 1 << 20
	// maxSnappyRatio is above what the format can reach: three bytes stand for 64 at most.
	maxSnappyRatio = 22
)

var errSnappy = errors.New("it is no snappy, or damaged")

func (r *snappyReader) Read(b []byte) (int, error) {
	if len(r.block) == 0 {
		if err := r.next(); err != nil {
			return 0, err
		}
	}
	n := copy(b, r.block)
	r.block = r.block[n:]
	return n, nil
}

// next inflates the next block that is not empty.
func (r *snappyReader) next() error {
	if !r.begun {
		r.begun = true
		var head [xerialHeader]byte
		if _, err := io.ReadFull(r.in, head[:]); err != nil ||
			string(head[:len(xerialMagic)]) != xerialMagic {
			return r.whole()
		}
	}
	for len(r.block) == 0 {
		var size [4]byte
		if _, err := io.ReadFull(r.in, size[:]); err != nil {
			return err // io.EOF at the end
		}
		n := int(binary.BigEndian.Uint32(size[:]))
		if n > min(r.in.Len(), snappy.MaxEncodedLen(maxSnappyBlock)) {
			return errSnappy
		}
		if err := r.inflate(n, maxSnappyBlock); err != nil {
			return err
		}
	}
	return nil
}

// whole inflates a batch without framing.
func (r *snappyReader) whole() error {
	_, _ = r.in.Seek(0, io.SeekStart) // it can
	return r.inflate(r.in.Len(), min(maxInflated, maxSnappyRatio*r.in.Len()))
}

// inflate inflates the next n bytes, which are there, to at most so many.
func (r *snappyReader) inflate(n, most int) error {
	packed := make([]byte, n)
	_, _ = io.ReadFull(r.in, packed)
	if size, err := snappy.DecodedLen(packed); err != nil || size > most {
		return errSnappy
	}
	var err error
	if r.buf, err = snappy.Decode(r.buf[:cap(r.buf)], packed); err != nil {
		return errSnappy
	}
	r.block = r.buf
	return nil
}
