package nats

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/sinks"
)

// Errors of a message, to be found with errors.Is.
var (
	// ErrAckTimeout: the server did not answer within AckTimeout; the message may be stored or not.
	ErrAckTimeout = errors.New("no ack in time; the message may be stored or not")
	// ErrNoStream: no stream answers on the subject.
	ErrNoStream = errors.New("no stream takes the subject: it was deleted, has other subjects, or is " +
		"choosing a leader")
	// ErrTooLarge: larger than the server's max_payload, the stream's max_msg_size, or what a
	// header may hold.
	ErrTooLarge = sinks.ErrTooLarge
	// ErrNotOpen: Open has not succeeded yet, or Close was called.
	ErrNotOpen = errors.New("the sink is not open")
)

// classified gives an error the class that the publisher acts on. It is the one place that
// classifies the client's errors.
func classified(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*sinks.Error](err); ok {
		return err
	}
	return &sinks.Error{Class: classOf(err), Err: err}
}

func classOf(err error) sinks.Class {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		return classOfCode(api.ErrorCode)
	}
	switch {
	case isAny(err, context.Canceled):
		return sinks.Stopped
	case isAny(err, ErrTooLarge, nats.ErrMaxPayload, nats.ErrBadSubject, nats.ErrBadHeaderMsg):
		return sinks.Refused
	case needsOperator(err):
		return sinks.Refused
	case isAny(err, ErrNoStream, ErrAckTimeout, nats.ErrNoResponders, nats.ErrTimeout,
		jetstream.ErrNoStreamResponse, context.DeadlineExceeded):
		return sinks.Retry
	case isAny(err, ErrNotOpen, nats.ErrConnectionClosed, nats.ErrDisconnected,
		nats.ErrConnectionReconnecting, nats.ErrReconnectBufExceeded,
		nats.ErrNoServers, nats.ErrStaleConnection, nats.ErrConnectionDraining,
		nats.ErrInvalidConnection, nats.ErrMaxConnectionsExceeded, io.EOF, net.ErrClosed):
		return sinks.Reconnect
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return sinks.Reconnect
	}
	return sinks.Retry
}

// needsOperator reports whether only a person can fix it: credentials, certificates, files. On an
// open connection none of these is seen: the client keeps trying to reconnect.
func needsOperator(err error) bool {
	if isAny(err, nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked,
		nats.ErrAccountAuthExpired, nats.ErrNkeysNotSupported,
		nats.ErrSecureConnRequired, nats.ErrSecureConnWanted, nats.ErrHeadersNotSupported,
		fs.ErrNotExist, fs.ErrPermission) {
		return true
	}
	_, verification := errors.AsType[*tls.CertificateVerificationError](err)
	_, authority := errors.AsType[x509.UnknownAuthorityError](err)
	_, hostname := errors.AsType[x509.HostnameError](err)
	_, record := errors.AsType[tls.RecordHeaderError](err)
	return verification || authority || hostname || record
}

func isAny(err error, targets ...error) bool {
	for _, target := range targets {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// Codes of the JetStream API that the client library has no name for.
const (
	codeHeaderTooLarge   jetstream.ErrorCode = 10097
	codeInvalidConfig    jetstream.ErrorCode = 10052
	codeStreamOverlap    jetstream.ErrorCode = 10065
	codeNoReplicas       jetstream.ErrorCode = 10074
	codeMaxBytesRequired jetstream.ErrorCode = 10113
	codeMaxBytesExceeded jetstream.ErrorCode = 10122
)

// classOfCode classifies the server's own errors. What an error says about the message itself stays
// true however often the message is sent. Everything else (no room, no leader, too busy, offline,
// future codes) may end, and a message that waits is not lost, so it is Retry.
func classOfCode(code jetstream.ErrorCode) sinks.Class {
	switch code {
	case jetstream.JSErrCodeStreamMessageExceedsMaximum, codeHeaderTooLarge:
		return sinks.Refused
	// answers to creating a stream: the operator must act
	case codeInvalidConfig, codeStreamOverlap, codeNoReplicas, codeMaxBytesRequired,
		codeMaxBytesExceeded:
		return sinks.Refused
	default:
		return sinks.Retry
	}
}

// explainRefusal appends to a stream's refusal what an operator has to do.
func explainRefusal(err *jetstream.APIError) error {
	if do := advice[err.ErrorCode]; do != "" {
		return fmt.Errorf("refused by the stream: %w; %s", err, do)
	}
	return fmt.Errorf("refused by the stream: %w", err)
}

const (
	makeRoom   = "give the server more room for streams, or delete messages"
	startPeers = "start the servers that have the stream, more than half of them"
)

// advice is what an operator has to do, by the code.
var advice = map[jetstream.ErrorCode]string{
	10002: "raise the limits of the account",                                   // resource limits exceeded
	10008: startPeers,                                                          // temporarily unavailable
	10009: startPeers,                                                          // the cluster can not handle it
	10118: startPeers,                                                          // stream offline
	10194: startPeers,                                                          // stream offline, with a reason
	10023: makeRoom,                                                            // insufficient resources
	10028: makeRoom,                                                            // memory exceeded
	10047: makeRoom,                                                            // storage exceeded
	10077: "raise the stream's limit, or delete messages",                      // a limit of the stream
	10109: "a sealed stream never takes messages again: recreate it",           // sealed
	10166: "set allow_msg_ttl of the stream",                                   // TTL disabled
	10167: "the stream gets more than it can store: look at the server's disk", // too many requests
}

// Rights whose lack the sink has to know, by the API's subjects behind its prefix.
const (
	rightConsumer = "CONSUMER.CREATE."
	rightDelivery = "CONSUMER.MSG.NEXT."
	rightInfo     = "STREAM.INFO."
	rightNames    = "STREAM.NAMES"
	rightGet      = "STREAM.MSG.GET."
	rightDirect   = "DIRECT.GET."
	// rightInbox is to subscribe. The sink subscribes to nothing but inboxes.
	rightInbox = "inbox"
)

// What the sink does by these rights.
var (
	readRights = []string{rightConsumer, rightDelivery, rightInfo, rightNames, rightInbox}
	getRights  = []string{rightGet, rightDirect, rightInfo, rightInbox}
)

// violations has the newest violation of each of these rights. Others do not hide it: an event
// whose subject may not be published is sent again and again, and each time the server reports it.
type violations map[string]*lastError

func newViolations() violations {
	all := violations{}
	for _, right := range slices.Concat(readRights, getRights) {
		all[right] = new(lastError)
	}
	return all
}

// add records what the server reported, if it is a violation of one of the rights. Connect makes a
// Sink that has none.
func (v violations) add(err error, apiPrefix string) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}
	text, rest, _ := strings.Cut(err.Error(), `"`) // Permissions Violation for Publish to "subject"
	subject, _, _ := strings.Cut(rest, `"`)
	call, isAPI := strings.CutPrefix(subject, apiPrefix)
	for right, last := range v {
		if right == rightInbox && strings.Contains(text, "for Subscription") ||
			isAPI && strings.HasPrefix(call, right) {
			last.set(err)
		}
	}
}

// since returns a violation of one of the rights that is not older than this; nil for none.
func (v violations) since(age time.Duration, rights []string) error {
	for _, right := range rights {
		if err := v[right].since(age); err != nil {
			return err
		}
	}
	return nil
}

// apiPrefix is the beginning of the JetStream API's subjects, as API chooses it.
func (c *Options) apiPrefix() string {
	switch {
	case c.Domain != "":
		return "$JS." + c.Domain + ".API."
	case c.APIPrefix != "":
		return strings.TrimSuffix(c.APIPrefix, ".") + "."
	default:
		return "$JS.API."
	}
}
