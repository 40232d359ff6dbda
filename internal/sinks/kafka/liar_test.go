package kafka_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"math"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kubebridge/bridge/internal/sinks/kafka"
	"github.com/kubebridge/bridge/internal/testkit"
)

// liar stands between a sink and a broker, and answers in the broker's place.
type liar struct {
	virtual kfake.VirtualNetwork

	mu     sync.Mutex
	key    kmsg.Key
	times  int    // how often it still lies
	lied   int    // answers that were other than the broker's, or late
	effort uint64 // what its lies have made the process allocate
	lie    func(version int16, frame []byte) []byte
}

// answer makes the next answers to a kind of request lies: frames with their size and number. An
// empty one closes the connection.
func (l *liar) answer(key kmsg.Key, times int, lie func(version int16, frame []byte) []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.key, l.times, l.lie, l.lied = key, times, lie, 0
}

func (l *liar) take(key kmsg.Key) func(int16, []byte) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.times == 0 || key != l.key {
		return nil
	}
	l.times--
	return l.lie
}

func (l *liar) left() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.times
}

// reply gives what the liar says in place of a frame, and counts it where that is no truth.
func (l *liar) reply(lie func(int16, []byte) []byte, version int16, frame []byte) []byte {
	truth, began := slices.Clone(frame), time.Now()
	effort := testkit.Allocated(func() { frame = lie(version, frame) })
	l.mu.Lock()
	defer l.mu.Unlock()
	l.effort += effort
	if !bytes.Equal(frame, truth) || time.Since(began) > 0 { // in a bubble: only a lie sleeps
		l.lied++
	}
	return frame
}

// requireLies fails where the liar was not asked, or had nothing to change: then the test shows
// nothing. Call it before the next answer.
func (l *liar) requireLies(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lied == 0 {
		t.Error("it never lied")
	}
}

func (l *liar) use(c *kafka.Options) {
	c.Connection.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := l.virtual.DialContext(ctx, network, address)
		return &liarConn{Conn: conn, liar: l}, err
	}
}

// liarConn carries one request at a time.
type liarConn struct {
	net.Conn
	liar    *liar
	written []byte // of the request
	said    []byte // of the answer, not read yet
}

func (c *liarConn) Write(p []byte) (int, error) {
	c.written = append(c.written, p[:min(len(p), max(0, 8-len(c.written)))]...)
	return c.Conn.Write(p)
}

func (c *liarConn) Read(p []byte) (int, error) {
	if len(c.said) == 0 {
		if err := c.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, c.said)
	c.said = c.said[n:]
	return n, nil
}

// next reads the broker's answer, or makes the liar's.
func (c *liarConn) next() error {
	var size [4]byte
	if _, err := io.ReadFull(c.Conn, size[:]); err != nil {
		return err
	}
	frame := make([]byte, 4+binary.BigEndian.Uint32(size[:]))
	copy(frame, size[:])
	if _, err := io.ReadFull(c.Conn, frame[4:]); err != nil {
		return err
	}
	key, version := kmsg.Key(binary.BigEndian.Uint16(c.written[4:])),
		int16(binary.BigEndian.Uint16(c.written[6:]))
	c.written = nil
	if lie := c.liar.take(key); lie != nil {
		if frame = c.liar.reply(lie, version, frame); len(frame) == 0 {
			_ = c.Conn.Close()
			return io.EOF
		}
	}
	c.said = frame
	return nil
}

// sealed writes the size of a frame into it.
func sealed(frame []byte) []byte {
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	return frame
}

// as gives a lie that changes the broker's answer.
func as[T any, R interface {
	*T
	kmsg.Response
}](change func(R)) func(int16, []byte) []byte {
	return func(version int16, frame []byte) []byte {
		answer := R(new(T))
		answer.SetVersion(version)
		head := 8
		if answer.IsFlexible() {
			head++ // no tags
		}
		if err := answer.ReadFrom(frame[head:]); err != nil {
			panic(err)
		}
		change(answer)
		return sealed(answer.AppendTo(frame[:head:head]))
	}
}

// raw gives a lie that keeps the number of the answer, and says this.
func raw(body ...byte) func(int16, []byte) []byte {
	return func(_ int16, frame []byte) []byte { return sealed(append(frame[:8:8], body...)) }
}

// resized gives a lie about the size of the answer.
func resized(size uint32) func(int16, []byte) []byte {
	return func(_ int16, frame []byte) []byte {
		binary.BigEndian.PutUint32(frame, size)
		return frame
	}
}

// lies about any answer.
func generalLies() map[string]func(int16, []byte) []byte {
	return map[string]func(int16, []byte) []byte{
		"nothing":             func(int16, []byte) []byte { return nil },
		"an empty answer":     raw(),
		"lists without end":   raw(bytes.Repeat([]byte{0x7f, 0xff, 0xff, 0xff}, 32)...),
		"ones":                raw(bytes.Repeat([]byte{0xff}, 64)...),
		"numbers without end": raw(bytes.Repeat([]byte{0x80}, 64)...),
		"large lists of nothing": raw(append([]byte{0, 0, 0, 0, 0, 0x0f, 0xff, 0xff},
			make([]byte, 2<<20)...)...),
		"a size of 2 GiB": resized(math.MaxInt32),
		"a negative size": resized(math.MaxUint32),
		"a size of zero":  resized(0),
		"half an answer": func(_ int16,
			frame []byte,
		) []byte {
			return sealed(frame[:8+(len(frame)-8)/2])
		},
		"an answer twice": func(_ int16, frame []byte) []byte {
			return append(frame,
				frame...)
		},
		"a minute late": func(_ int16, frame []byte) []byte {
			time.Sleep(time.Minute)
			return frame
		},
		"another request's number": func(_ int16,
			frame []byte,
		) []byte {
			frame[7] ^= 0x55
			return frame
		},
		"what is no Kafka": func(int16, []byte) []byte {
			return []byte("HTTP/1.1 400 Bad Request\r\nContent-Length: 11\r\n\r\nBad Request")
		},
	}
}

// inBubble runs a test with a liar before a broker with one partition, where time is fake.
func inBubble(
	t *testing.T, run func(t *testing.T, c *kfake.Cluster, l *liar), more ...kfake.Opt,
) {
	synctest.Test(t, func(t *testing.T) {
		l := new(liar)
		c := newCluster(t, append([]kfake.Opt{
			kfake.ListenFn(l.virtual.Listen), kfake.SeedTopics(1, podsTopic),
		}, more...)...)
		run(t, c, l)
		c.Close()
	})
}

// maxHarm is what the answers of one subtest may make the process allocate, all in all. With the
// race detector slices.Grow also allocates what it appends. So `make test` runs the tests of
// hostile brokers without it too: 64 MiB is what is promised.
const maxHarm = 64 << (20 + raceFactor)

// allocates fails when a function allocates more than that, not counting the liar's effort.
func (l *liar) allocates(t *testing.T, f func()) (bytes uint64) {
	t.Helper()
	before := l.effort
	bytes = testkit.Allocated(f)
	if bytes -= l.effort - before; bytes > maxHarm {
		t.Errorf("%d MiB were allocated", bytes>>20)
	}
	return bytes
}
