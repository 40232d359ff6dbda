package nats

import (
	"fmt"
	"math"

	"github.com/kubebridge/bridge/internal/event"
)

// Limits of the protocol that the server does not report.
const (
	maxHeader = math.MaxUint16 // of a message in a stream, with its first line
	// maxSubjects keeps "HPUB subject reply sizes" within max_control_line, 4,096 by default: a
	// longer line makes the server close the connection, and the resent message would close the
	// next one.
	maxSubjects = 4096 - 64
)

// maxUsualHeader is larger than the headers of an event, unless one is unusually long.
const maxUsualHeader = 8 << 10

// Fits returns nil when the server and the stream accept the event as it would be encoded. After a
// reconnect the limits may be others, so Publish checks again.
func (s *Sink) Fits(e *event.Event) error {
	if s.conn == nil {
		return nil
	}
	limits, err := s.limits()
	if err != nil {
		return nil // Publish reports it
	}
	limits = limits.of(s.streamOf(e))
	if most := len(e.Data) + maxUsualHeader; (limits.payload <= 0 || most < limits.payload) &&
		(limits.stream <= 0 || most < limits.stream) {
		return nil
	}
	enc := encoders.Get().(*encoder)
	defer enc.release()
	enc.encode(e, s.events, s.cfg.Encoding, nil)
	return classified(limits.check(enc))
}

// sizeLimits are the sizes that the server accepts; 0 means no limit.
type sizeLimits struct {
	payload int // max_payload: headers and data
	stream  int // the stream's max_msg_size: headers and data
	header  int
}

// check reports whether the server would refuse for its size what was encoded last. Checked here it
// costs no connection: the server answers a payload above max_payload by closing the connection.
func (l sizeLimits) check(e *encoder) error {
	msg, header := &e.msg, e.header
	size := header + len(msg.Data)
	switch {
	case len(msg.Subject)+len(msg.Reply) > maxSubjects:
		return fmt.Errorf("%w: its subject has %d bytes, at most %d fit", ErrTooLarge,
			len(msg.Subject), maxSubjects-len(msg.Reply))
	case l.header > 0 && header > l.header:
		return fmt.Errorf("%w: its headers have %d bytes, a stream takes %d", ErrTooLarge, header,
			l.header)
	case l.payload > 0 && size > l.payload:
		return fmt.Errorf("%w: %d bytes with headers, the server's max_payload is %d", ErrTooLarge,
			size, l.payload)
	case l.stream > 0 && size > l.stream:
		return fmt.Errorf("%w: %d bytes with headers, the stream's max_msg_size is %d", ErrTooLarge,
			size, l.stream)
	default:
		return nil
	}
}
