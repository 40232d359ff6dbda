package kafka

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/segmentio/kafka-go/compress"
)

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
	return &inflated{from, maxInflated}, nil
}

// inflated bounds what is read.
type inflated struct {
	io.ReadCloser
	left int
}

func (r *inflated) Read(b []byte) (int, error) {
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
