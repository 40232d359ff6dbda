package kafka

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
)

// maxAnswer bounds an answer of a broker: franz-go's default too. The largest that the sink asks for are some MiB of batches.
const maxAnswer = 100 << 20

// framed looks at how an answer begins before kafka-go reads it. That takes every length in it for true and makes room for as much at once:
// NATS' "INFO" would be a list of 12 GB, and half an hour of decoding nothing. It is owned by whoever owns the connection.
type framed struct {
	net.Conn
	in    *bufio.Reader
	begun bool // the first answer has come
	left  int  // bytes of this answer that were not read yet
}

func newFramed(c net.Conn) *framed { return &framed{Conn: c, in: bufio.NewReader(c)} }

// Read gives bytes of one answer.
func (f *framed) Read(b []byte) (int, error) {
	if f.left == 0 {
		if err := f.begin(); err != nil {
			return 0, err
		}
	}
	n, err := f.in.Read(b[:min(len(b), f.left)])
	f.left -= n
	return n, err
}

// begin checks an answer's size, and of the first one also that it bears the number of the first request: then a broker has sent it.
func (f *framed) begin() error {
	const sizeBytes, numberBytes, firstNumber = 4, 4, 1
	head, err := f.peek(sizeBytes)
	if err != nil {
		return err
	}
	size := int64(int32(binary.BigEndian.Uint32(head)))
	if size < 0 || size > maxAnswer {
		return f.foreign()
	}
	if !f.begun {
		if head, err = f.peek(sizeBytes + numberBytes); err != nil {
			return err
		}
		if binary.BigEndian.Uint32(head[sizeBytes:]) != firstNumber {
			return f.foreign()
		}
		f.begun = true
	}
	f.left = sizeBytes + int(size)
	return nil
}

// peek waits for the first bytes of what comes next. They are valid until the next read.
func (f *framed) peek(n int) ([]byte, error) {
	head, err := f.in.Peek(n)
	if errors.Is(err, io.EOF) && len(head) > 0 {
		err = io.ErrUnexpectedEOF
	}
	return head, err
}

// foreign is the error for an answer that is none of Kafka's protocol. It shows how that begins, by which a person knows what it is.
func (f *framed) foreign() error {
	const tlsAlert, shown = 0x15, 16
	head, _ := f.in.Peek(min(f.in.Buffered(), shown))
	if len(head) > 0 && head[0] == tlsAlert {
		return fmt.Errorf("%w: it answers with TLS: set the sink's tls", errUnusable)
	}
	return fmt.Errorf("%w: its answer is not of Kafka's protocol, and begins with %q", errUnusable, head)
}
