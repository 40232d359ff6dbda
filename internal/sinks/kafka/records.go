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
	// maxText is how many bytes of a key or of a header's value are read.
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
	records  int32 // as written; compaction may have removed some
}

// logBatch is a batch as it lies in an answer to a fetch request.
type logBatch struct {
	batchHead
	attributes compress.Compression // and flags
	remaining  int32                // records that compaction has kept
	checksum   uint32
	body       []byte // from the attributes on; nil where the answer does not hold all of it
	cut        bool   // the answer does not hold all of it
}

// endOffset is the offset behind the batch.
func (b *logBatch) endOffset() int64 { return b.offset + int64(b.records) }

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
	b.offset, b.producer, b.records = int64(binary.BigEndian.Uint64(data)), -1, 1
	size := batchSizeEnd + int64(int32(binary.BigEndian.Uint32(at(posLength))))
	rest = data[min(max(size, 0), int64(len(data))):]
	switch magic := at(posMagic)[0]; {
	case b.offset < 0 || b.offset > math.MaxInt64/2 || size < batchStart || magic > batchMagic:
		return b, nil, fmt.Errorf("%w: a batch of version %d and %d bytes at offset %d",
			errMalformed, magic, size, b.offset)
	case magic < batchMagic:
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

// record is what is read of a record in a log.
type record struct {
	key                []byte // nil for none
	value              []byte // its beginning; nil for none
	sink, informer, id string // of the headers; "" for none
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

// each yields the records of the batch from an offset on; each is valid during the call only. Its
// error says why a record can't be read.
func (b *logBatch) each(from int64, yield func(*record)) (err error) {
	defer recoverMalformed(&err)
	in, err := b.open(maxRecords)
	if err != nil {
		return err
	}
	r := recordReader{in: bufio.NewReaderSize(in, 32<<10)}
	for i := int32(0); i < b.remaining && r.err == nil; i++ {
		if delta := r.read(); r.err == nil && b.offset+delta >= from {
			yield(&r.record)
		}
	}
	return errors.Join(r.err, in.Close())
}

// recordReader reads records in sequence. After the first error it reads zeros.
type recordReader struct {
	in *bufio.Reader
	record
	buf []byte
	err error
}

// read reads the next record, and returns its offset in the batch.
func (r *recordReader) read() (offset int64) {
	r.record = record{}
	r.varint() // its size
	r.skip(1)  // attributes
	r.varint() // time
	offset = r.varint()
	if offset < 0 || offset > math.MaxInt32 {
		r.fail("a record has the offset %d", offset)
	}
	if n := r.length(); n >= 0 {
		r.key = append([]byte{}, r.bytes(n, maxText)...)
	}
	if n := r.length(); n >= 0 {
		r.value = append([]byte{}, r.bytes(n, maxValue)...)
	}
	count := r.varint()
	if count < 0 || count > maxHeaders {
		r.fail("a record has %d headers", count)
	}
	for ; count > 0 && r.err == nil; count-- {
		r.header()
	}
	return offset
}

// header reads a header, and keeps those by which the sink recognizes its records.
func (r *recordReader) header() {
	var kept *string
	switch string(r.bytes(r.length(), maxText)) {
	case sinkHeader:
		kept = &r.sink
	case informerHeader:
		kept = &r.informer
	case idHeader:
		kept = &r.id
	}
	n := r.length()
	if value := r.bytes(n, maxText); kept != nil && n <= maxText {
		*kept = string(value)
	}
}

// bytes reads n bytes and returns the first of them, valid until the next read.
func (r *recordReader) bytes(n int64, most int) []byte {
	kept := min(max(n, 0), int64(most))
	if r.err != nil || kept == 0 {
		return nil
	}
	if cap(r.buf) < int(kept) {
		r.buf = make([]byte, kept)
	}
	r.buf = r.buf[:kept]
	if _, err := io.ReadFull(r.in, r.buf); err != nil {
		r.stop(err)
		return nil
	}
	r.skip(n - kept)
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
	if r.err != nil {
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
// 32 KiB with their sizes.
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
)

var errSnappy = errors.New("its snappy framing is damaged, or not the sink's")

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
		var head [xerialHeader]byte
		if _, err := io.ReadFull(r.in, head[:]); err != nil ||
			string(head[:len(xerialMagic)]) != xerialMagic {
			return errSnappy
		}
		r.begun = true
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
		packed := make([]byte, n)
		_, _ = io.ReadFull(r.in, packed) // they are there
		if most, err := snappy.DecodedLen(packed); err != nil || most > maxSnappyBlock {
			return errSnappy
		}
		var err error
		if r.buf, err = snappy.Decode(r.buf[:cap(r.buf)], packed); err != nil {
			return errSnappy
		}
		r.block = r.buf
	}
	return nil
}
