package nats_test

import (
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"testing"

	natsclient "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/nats"
)

func TestClassified(t *testing.T) {
	code := func(code jetstream.ErrorCode) error {
		return &jetstream.APIError{Code: 400, ErrorCode: code, Description: "as the server says"}
	}
	for _, c := range []struct {
		name string
		err  error
		want sinks.Class
	}{
		{"message larger than the stream takes", code(10054), sinks.Refused},
		{"header larger than a stream takes", code(10097), sinks.Refused},
		{"wrong last sequence", code(10071), sinks.Retry},
		{"wrong last sequence, replicated", code(10164), sinks.Retry},
		{"wrong last message id", code(10070), sinks.Retry},
		{"not the expected stream", code(10060), sinks.Retry},
		{"store failed: maximum bytes", code(10077), sinks.Retry},
		{"insufficient resources", code(10023), sinks.Retry},
		{"insufficient storage", code(10047), sinks.Retry},
		{"account limits", code(10002), sinks.Retry},
		{"no meta leader", code(10008), sinks.Retry},
		{"stream offline", code(10118), sinks.Retry},
		{"sealed", code(10109), sinks.Retry},
		{"too many requests", code(10167), sinks.Retry},
		{"the same id is being stored", code(10158), sinks.Retry},
		{"a code of the future", code(19999), sinks.Retry},
		{"subjects overlap", code(10065), sinks.Refused},
		{"a stream that no server makes", code(10052), sinks.Refused},
		{"replicas without a cluster", code(10074), sinks.Refused},
		{"account wants max bytes", code(10113), sinks.Refused},

		{"max payload", natsclient.ErrMaxPayload, sinks.Refused},
		{"too large", fmt.Errorf("x: %w", nats.ErrTooLarge), sinks.Refused},
		{"bad subject", natsclient.ErrBadSubject, sinks.Refused},
		{"no responders", natsclient.ErrNoResponders, sinks.Retry},
		{"no stream", nats.ErrNoStream, sinks.Retry},
		{"timeout", natsclient.ErrTimeout, sinks.Retry},
		{"ack timeout", nats.ErrAckTimeout, sinks.Retry},
		{"API deadline", context.DeadlineExceeded, sinks.Retry},

		{"connection closed", natsclient.ErrConnectionClosed, sinks.Reconnect},
		{"disconnected", fmt.Errorf("x: %w", natsclient.ErrDisconnected), sinks.Reconnect},
		{"reconnecting", natsclient.ErrReconnectBufExceeded, sinks.Reconnect},
		{"no servers", natsclient.ErrNoServers, sinks.Reconnect},
		{"stale connection", natsclient.ErrStaleConnection, sinks.Reconnect},
		{"end of file", io.EOF, sinks.Reconnect},
		{"write deadline", &net.OpError{Op: "write", Err: os.ErrDeadlineExceeded}, sinks.Reconnect},
		{"not open", nats.ErrNotOpen, sinks.Reconnect},

		{"authorization", natsclient.ErrAuthorization, sinks.Refused},
		{"credentials expired", natsclient.ErrAuthExpired, sinks.Refused},
		{"revoked", natsclient.ErrAuthRevoked, sinks.Refused},
		{"unknown CA", x509.UnknownAuthorityError{}, sinks.Refused},
		{
			"wrong host name",
			fmt.Errorf("x: %w", x509.HostnameError{Certificate: &x509.Certificate{}}),
			sinks.Refused,
		},
		{
			"no creds file", &fs.PathError{Op: "open", Path: "x.creds", Err: fs.ErrNotExist},
			sinks.Refused,
		},

		{"cancelled", fmt.Errorf("x: %w", context.Canceled), sinks.Stopped},
		{"sorted already", &sinks.Error{Class: sinks.Stopped, Err: io.EOF}, sinks.Stopped},
		{"unknown", fmt.Errorf("what is this"), sinks.Retry},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := sinks.Classify(nats.Classified(c.err)); got != c.want {
				t.Errorf("%v is %v, want %v", c.err, got, c.want)
			}
		})
	}
}

// Refusals of a stream, and what a person reads.
func TestRefusals(t *testing.T) {
	const (
		room  = "give the server more room for streams, or delete messages"
		peers = "start the servers that have the stream, more than half of them"
	)
	for code, want := range map[int]string{
		10002: "raise the limits of the account",
		10008: peers, 10009: peers, 10118: peers, 10194: peers,
		10023: room, 10028: room, 10047: room,
		10077: "raise the stream's limit, or delete messages",
		10109: "a sealed stream never takes messages again: recreate it",
		10166: "set allow_msg_ttl of the stream",
		10167: "the stream gets more than it can store: look at the server's disk",
		10054: "", 10060: "", 10071: "", 10158: "", 19999: "", // it resolves them, or they resolve themselves
	} {
		answer := fmt.Sprintf(`{"error":{"code":503,"err_code":%d,"description":"as the server says"}}`, code)
		text := fmt.Sprintf("refused by the stream: nats: API error: code=503 err_code=%d description=as the server says", code)
		if want != "" {
			text += "; " + want
		}
		if got := nats.Refusal(answer); got != text {
			t.Errorf("%d is %q, want %q", code, got, text)
		}
	}
}
