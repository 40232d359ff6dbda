package kafka

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/apiversions"
)

// conn is one connection to one broker. It carries one request at a time: whoever took it out of
// its pool owns it.
type conn struct {
	net      net.Conn
	in       *bufio.Reader
	clientID string
	versions map[protocol.ApiKey]int16 // of the requests that the broker takes
	requests int32                     // sent so far: the number of the last one
	expires  time.Time                 // the end of its SASL session; zero for none
	idle     time.Time                 // since when it has been in its pool
}

// dialer is what connections are made with. It is immutable.
type dialer struct {
	dial     func(ctx context.Context, network, address string) (net.Conn, error)
	tls      *tls.Config
	sasl     mechanismFunc // nil: none
	clientID string
	timeout  time.Duration
}

func newDialer(c Connection) *dialer {
	mechanism, _ := c.mechanism() // check has checked it
	return &dialer{
		dial: c.Dial, tls: c.TLS, sasl: mechanism, clientID: c.ClientID, timeout: c.Timeout,
	}
}

// connect dials a broker and does everything that comes before the first request: TLS, versions,
// SASL. All of it together takes at most the timeout.
func (d *dialer) connect(ctx context.Context, address string) (_ *conn, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, d.timeout, fmt.Errorf("no connection within %v",
		d.timeout))
	defer cancel()
	raw, err := d.dial(ctx, "tcp", address)
	if err != nil {
		return nil, causeOf(ctx, err)
	}
	stop := context.AfterFunc(ctx, func() { expire(raw) })
	defer stop()
	c := &conn{net: raw, clientID: d.clientID}
	defer func() {
		if err != nil {
			c.close()
			err = causeOf(ctx, err)
		}
	}()
	if d.tls != nil {
		if c.net, err = d.secure(ctx, raw, address); err != nil {
			return nil, fmt.Errorf("handshake: %w", err)
		}
	}
	c.in = bufio.NewReader(c.net)
	if err := c.negotiate(); err != nil {
		return nil, err
	}
	if d.sasl != nil {
		if err := c.authenticate(ctx, address, d.sasl); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// secure makes the connection a TLS one, with the broker's host name as the server name unless the
// configuration has one.
func (d *dialer) secure(ctx context.Context, raw net.Conn, address string) (net.Conn, error) {
	config := d.tls
	if config.ServerName == "" {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return raw, err
		}
		config = config.Clone()
		config.ServerName = host
	}
	secured := tls.Client(raw, config)
	return secured, secured.HandshakeContext(ctx)
}

// needed are the requests that the sink can't do without, and the oldest version of each that will
// do.
var needed = map[protocol.ApiKey]int16{
	protocol.Produce:        3, // record batches v2
	protocol.Metadata:       1,
	protocol.InitProducerId: 0,
	protocol.ListOffsets:    1,
	protocol.Fetch:          4,
}

// negotiate asks which versions of each request the broker takes.
func (c *conn) negotiate() error {
	res, err := c.exchange(new(apiversions.Request))
	if err != nil {
		return fmt.Errorf("ask for its versions (is it a Kafka broker, and its TLS listener if "+
			"tls is set?): %w", err)
	}
	answer := res.(*apiversions.Response)
	if answer.ErrorCode != 0 {
		return fmt.Errorf("ask for its versions: %w", kafkago.Error(answer.ErrorCode))
	}
	versions := make(map[protocol.ApiKey]int16, len(answers))
	for _, k := range answer.ApiKeys {
		key := protocol.ApiKey(k.ApiKey)
		if answers[key] == nil {
			continue
		}
		if version := key.SelectVersion(k.MinVersion, k.MaxVersion); version >= k.MinVersion &&
			version <= k.MaxVersion {
			versions[key] = version
		}
	}
	for key, oldest := range needed {
		if version, ok := versions[key]; !ok || version < oldest {
			return fmt.Errorf("%w: it has no %v request of version %d; Kafka 1.0 or later is "+
				"needed", errUnusable, key, oldest)
		}
	}
	c.versions = versions
	return nil
}

// roundTrip sends a request and waits for its answer, for at most timeout, or until ctx ends. After
// an error the connection is unusable, and the request may have been carried out. After roundTrip
// has returned, nothing reads the request's bytes any more.
func (c *conn) roundTrip(
	ctx context.Context, req protocol.Message, timeout time.Duration,
) (protocol.Message, error) {
	if ctx.Err() != nil {
		return nil, &unsentError{errCallerGone}
	}
	if err := c.net.SetDeadline(time.Now().Add(timeout)); err != nil {
		return nil, err // it is closed: another may not be
	}
	stop := context.AfterFunc(ctx, func() { expire(c.net) })
	res, err := c.exchange(req)
	if !stop() && err == nil {
		// The past deadline may be set at any moment from now on: no other request may use this
		// connection.
		c.expires = time.Now()
	}
	if err != nil {
		return nil, fmt.Errorf("%v request: %w", req.ApiKey(), causeOf(ctx, err))
	}
	return res, nil
}

// exchange sends a request and reads its answer.
func (c *conn) exchange(req protocol.Message) (protocol.Message, error) {
	c.requests++
	key := req.ApiKey()
	version := c.versions[key]
	if p, ok := req.(protocol.PreparedMessage); ok {
		p.Prepare(version)
	}
	if err := protocol.WriteRequest(c.net, version, c.requests, c.clientID, req); err != nil {
		return nil, err
	}
	body, err := c.readAnswer(key)
	if err != nil {
		return nil, err
	}
	answer := answers[key]()
	return answer, decodeAnswer(body, version, answer)
}

// usable reports whether the connection may carry another request.
func (c *conn) usable(now time.Time) bool {
	return now.Sub(c.idle) < idleLimit && (c.expires.IsZero() || now.Before(c.expires))
}

// idleLimit is below what brokers (10 minutes) and the load balancers before them (often 4 to 6)
// allow.
const idleLimit = 2 * time.Minute

func (c *conn) close() { _ = c.net.Close() } // nothing is pending in it that could be lost

// expire wakes whoever is reading or writing.
func expire(c net.Conn) { _ = c.SetDeadline(time.Unix(1, 0)) }

// causeOf returns err, or the reason why ctx ended, which then caused err.
func causeOf(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	cause := context.Cause(ctx)
	if errors.Is(cause, context.Canceled) || errors.Is(cause, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", errCallerGone, cause)
	}
	return fmt.Errorf("%w (%w)", cause, err)
}

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
