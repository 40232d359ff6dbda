package nats_test

import (
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/sinks/nats"
)

// FuzzAck reads what anybody may send to the bridge's inbox.
func FuzzAck(f *testing.F) {
	f.Add([]byte(`{"stream":"K8S","seq":7}`))
	f.Add([]byte(`{"type":"x","stream":"K8S","domain":"d", "seq": 18446744073709551615,"duplicate":true}`))
	f.Add([]byte(`{"error":{"code":400,"err_code":10071,"description":"wrong last sequence"},"seq":0}`))
	f.Add([]byte(`"stream":"seq":`))
	f.Fuzz(func(t *testing.T, data []byte) {
		stream, seq, ok := nats.ParseAck(data)
		if ok && (stream == "" || seq == 0 || seq > 1<<63 ||
			!strings.Contains(string(data), stream)) {
			t.Errorf("stored in %q at %d", stream, seq)
		}
	})
}

// FuzzServer reads what a server may send, in parts of any size.
func FuzzServer(f *testing.F) {
	f.Add([]byte("INFO {}\r\nMSG a 1 5\r\nhello\r\nHMSG b 1 c 12 "+
		"14\r\nNATS/1.0\r\n\r\nhi\r\nPING\r\n"), 3)
	f.Add([]byte("MSG a 1 2147483647\r\n"), 1)
	f.Add([]byte("hmsg \t -1\r\n+OK\r\n\n\n"), 100)
	f.Fuzz(func(t *testing.T, data []byte, part int) {
		whole, err := nats.CheckServer(data, len(data))
		parts, errParts := nats.CheckServer(data, part)
		if (err == nil) != (errParts == nil) || err == nil && whole != parts {
			t.Errorf("%d bytes are to come (%v), in parts %d (%v)", whole, err, parts, errParts)
		}
	})
}

// FuzzWebSocket does so for what a server may send over WebSocket.
func FuzzWebSocket(f *testing.F) {
	const response = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n"
	f.Add([]byte(response+"\x82\x7e\x00\x09INFO {}\r\n\x89\x02hi\x02\x07MSG a 1\x80\x03 5\n"), 3)
	f.Add([]byte(response+"\x82\x7f\x00\x00\x00\x00\x00\x00\x00\x14MSG a 1 2147483647\r\n"), 1)
	f.Add([]byte("\n\xc2\x00"), 1)
	f.Fuzz(func(t *testing.T, data []byte, part int) {
		whole, frame, err := nats.CheckWebSocket(data, len(data))
		parts, frameParts, errParts := nats.CheckWebSocket(data, part)
		if (err == nil) != (errParts == nil) ||
			err == nil && (whole != parts || frame != frameParts) {
			t.Errorf("%d bytes in a frame of %d are to come (%v), in parts %d in %d (%v)", whole,
				frame, err, parts, frameParts, errParts)
		}
	})
}

// FuzzPosition reads what the state directory or the progress of another replica holds.
func FuzzPosition(f *testing.F) {
	f.Add([]byte(`{"format":1,"streams":[{"name":"K8S","created":"2026-11-21T01:02:03Z","last":7}],"at":"2026-11-21T01:02:03Z"}`), uint64(9), uint64(1))
	f.Add([]byte(`{"format":1,"streams":[{"name":"K8S","last":18446744073709551615}]}`), uint64(0),
		uint64(0))
	f.Fuzz(func(t *testing.T, saved []byte, last, messages uint64) {
		if first, end, ok := nats.RangeBehind(saved, "K8S", last, messages); ok && end > last {
			t.Errorf("read from %d to %d, and the stream ends at %d", first, end, last)
		}
	})
}
