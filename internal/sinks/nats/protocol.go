package nats

import (
	"bytes"
	"errors"
	"strconv"
)

// Bounds of what a server may send. The sink reads answers, and single messages that are not larger
// than what it sends.
const (
	maxFrame   = 32 << 20
	maxControl = 1 << 20 // an INFO names all servers of a cluster
)

var (
	errUnbounded = errors.New("the server announces a message that is too large: it is not " +
		"believed")
	errAmbiguous = errors.New("the server sends a control line that the protocol does not allow: " +
		"it is not believed")
)

// protocol follows what a server sends, as far as the client library allocates memory by it.
type protocol struct {
	line    []byte // an incomplete control line
	payload int    // bytes of a message that are still to come
}

// check follows the protocol through what was read.
func (c *protocol) check(p []byte) error {
	for len(p) > 0 {
		if c.payload > 0 {
			n := min(len(p), c.payload)
			p, c.payload = p[n:], c.payload-n
			continue
		}
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			c.line = append(c.line, p...)
			if len(c.line) > maxControl {
				return errUnbounded
			}
			return nil
		}
		line := p[:end]
		if len(c.line) > 0 {
			line = append(c.line, line...)
		}
		size, err := sizeIn(line)
		if err != nil {
			return err
		}
		p, c.line, c.payload = p[end+1:], c.line[:0], size
	}
	return nil
}

// sizeIn returns how many bytes follow a control line. Lines in which the client library would read
// something else are refused: behind a \r in the middle it drops the last byte of the line, and a
// line without arguments continues for it behind the \n.
func sizeIn(line []byte) (int, error) {
	const lineEnd = 2
	line = bytes.TrimRight(line, "\r \t")
	kind, arguments := line, []byte(nil)
	if end := bytes.IndexAny(line, " \t"); end >= 0 {
		kind, arguments = line[:end], line[end+1:]
	}
	isMessage := isKind(kind, "MSG") || isKind(kind, "HMSG")
	switch {
	case !isMessage && !isKind(kind, "INFO") && !isKind(kind, "-ERR"):
		return 0, nil
	case len(arguments) == 0:
		return 0, errAmbiguous
	case !isMessage:
		return 0, nil
	case bytes.IndexByte(arguments, '\r') >= 0:
		return 0, errAmbiguous
	}
	last := arguments[bytes.LastIndexAny(arguments, " \t")+1:]
	size, err := strconv.ParseUint(string(last), 10, 31)
	if err != nil || size > maxFrame {
		return 0, errUnbounded
	}
	return int(size) + lineEnd, nil
}

func isKind(kind []byte, name string) bool { return bytes.EqualFold(kind, []byte(name)) }
