package kafka

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/segmentio/kafka-go/protocol"
)

// Bounds of an answer in bytes. An answer about a topic of 60,000 partitions fits the first. A
// fetch answer has 4 MiB, or one larger batch.
const (
	maxAnswer      = 4 << 20
	maxFetchAnswer = 32 << 20
)

// readAnswer reads the answer to the last request, without its size and number. A fetch answer that
// is too large is cut.
func (c *conn) readAnswer(key protocol.ApiKey) ([]byte, error) {
	const sizeBytes, numberBytes = 4, 4
	head, err := c.peek(sizeBytes)
	if err != nil {
		return nil, err
	}
	size, limit := int64(int32(binary.BigEndian.Uint32(head))), int64(maxAnswer)
	if key == protocol.Fetch {
		limit = maxFetchAnswer
	}
	if size < numberBytes || size > limit && key != protocol.Fetch {
		return nil, c.notKafka()
	}
	if head, err = c.peek(sizeBytes + numberBytes); err != nil {
		return nil, err
	}
	if number := int32(binary.BigEndian.Uint32(head[sizeBytes:])); number != c.requests {
		if c.requests == 1 {
			return nil, c.notKafka()
		}
		return nil, fmt.Errorf("%w: it has the number %d, not %d", errMalformed, number, c.requests)
	}
	if _, err := c.in.Discard(sizeBytes + numberBytes); err != nil {
		return nil, err
	}
	size -= numberBytes
	body, err := readBody(c.in, int(min(size, limit)))
	if err == nil {
		_, err = io.CopyN(io.Discard, c.in, size-int64(len(body)))
	}
	return body, err
}

// readBody reads size bytes. Memory for them is allocated as they arrive.
func readBody(in io.Reader, size int) ([]byte, error) {
	const step = 512 << 10
	body := make([]byte, 0, min(size, step))
	for len(body) < size {
		if len(body) == cap(body) {
			body = slices.Grow(body, min(size-len(body), 3*len(body)))
		}
		n, err := io.ReadFull(in, body[len(body):min(cap(body), size)])
		body = body[:len(body)+n]
		if err != nil {
			return nil, noEOF(err)
		}
	}
	return body, nil
}

// peek waits for the first bytes of what comes next. They are valid until the next read.
func (c *conn) peek(n int) ([]byte, error) {
	head, err := c.in.Peek(n)
	return head, noEOF(err)
}

// noEOF makes the end of a connection an error: an answer was expected.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// notKafka is the error for an answer that is not of Kafka's protocol. It shows how the answer
// begins, so that a person can recognize what sent it.
func (c *conn) notKafka() error {
	const tlsAlert, shown = 0x15, 16
	head, _ := c.in.Peek(min(c.in.Buffered(), shown))
	if len(head) > 0 && head[0] == tlsAlert {
		return fmt.Errorf("%w: it answers with TLS: set the sink's tls", errUnusable)
	}
	return fmt.Errorf("%w: its answer is not of Kafka's protocol, and begins with %q", errUnusable,
		head)
}
