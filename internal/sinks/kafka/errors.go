package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/kubebridge/bridge/internal/sinks"
)

// verdict is what an answer, or its absence, means for a frozen batch.
type verdict int

const (
	// stored: the broker holds the batch.
	stored verdict = iota
	// resend: the batch may be stored or not, or will be taken later: send the same bytes again.
	resend
	// refused: the broker will never take this batch, and has not stored it. Its sequence numbers are free again.
	refused
	// forgotten: the broker does not know the producer any more, or knows other sequence numbers of it.
	forgotten
	// overtaken: a batch of an earlier process was stored in the place of this one, which was not: freeze it anew, without what the other held.
	overtaken
	// denied: nothing goes until an operator has changed something; whether the batch is stored is as unknown as before.
	denied
	// away: not one broker has answered for a while. No error means this by itself.
	away
	// stopped: the caller's context ended.
	stopped
)

func (v verdict) String() string {
	return [...]string{"stored", "resend", "refused", "forgotten", "overtaken", "denied", "away", "stopped"}[v]
}

// cause is the error behind a verdict that came without one.
func (v verdict) cause() error {
	if v == stopped {
		return errCallerGone
	}
	return nil
}

// sort says what an error means for a batch. It is the only place that knows Kafka's error codes by their consequence.
// Codes it does not know are resent: that is always safe, since the broker drops what it has.
func sort(err error) verdict {
	if err == nil {
		return stored
	}
	if errors.Is(err, errCallerGone) {
		return stopped
	}
	if code, ok := errors.AsType[kafkago.Error](err); ok {
		return sortCode(code)
	}
	if isTLSRefusal(err) {
		return denied
	}
	return resend // also where something else than Kafka answers: the address may be an old one of a broker that has moved
}

// unreadable says whether a broker has answered that the sink may not read: a right that is missing, or a form that the two do not share. That nobody
// could be asked (TLS, SASL, something else behind the address) is another matter.
func unreadable(err error) bool {
	code, _ := errors.AsType[kafkago.Error](err)
	switch code {
	case kafkago.SASLAuthenticationFailed, kafkago.UnsupportedSASLMechanism, kafkago.IllegalSASLState, kafkago.SecurityDisabled:
		return false
	default:
		return sortCode(code) == denied
	}
}

func sortCode(code kafkago.Error) verdict {
	switch code {
	case 0, kafkago.DuplicateSequenceNumber:
		return stored
	case kafkago.MessageSizeTooLarge, kafkago.RecordListTooLarge,
		kafkago.InvalidTimestamp, kafkago.PolicyViolation, kafkago.InvalidRecord:
		return refused
	case kafkago.OutOfOrderSequenceNumber, kafkago.InvalidProducerEpoch, kafkago.UnknownProducerId,
		kafkago.ProducerFenced, kafkago.InvalidTransactionState, kafkago.InvalidProducerIDMapping:
		return forgotten
	case kafkago.TopicAuthorizationFailed, kafkago.ClusterAuthorizationFailed, kafkago.TransactionalIDAuthorizationFailed,
		kafkago.BrokerAuthorizationFailed, kafkago.SASLAuthenticationFailed, kafkago.UnsupportedSASLMechanism,
		kafkago.IllegalSASLState, kafkago.SecurityDisabled:
		return denied
	case kafkago.UnsupportedVersion, kafkago.UnsupportedForMessageFormat, kafkago.UnsupportedCompressionType,
		kafkago.InvalidRequiredAcks, kafkago.InvalidTopic:
		return denied
	default:
		return resend
	}
}

var (
	// errCallerGone marks an error that came about because the caller's context ended.
	errCallerGone = errors.New("stopped by the caller")
	// errUnusable marks a broker that can't serve this sink at all: too old, or not Kafka.
	errUnusable = errors.New("broker can't be used")
	// errNoLeader is a partition without a leader, as the metadata has it: an election, or brokers that are away.
	errNoLeader = errors.New("partition has no leader")
)

// isTLSRefusal says whether the two sides could not agree on TLS: a certificate that one of them does not trust, or a
// listener that does not speak it.
func isTLSRefusal(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return true
	}
	// crypto/tls keeps the type of the other side's alerts to itself, but for this.
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" {
		return true
	}
	_, ok := errors.AsType[x509.UnknownAuthorityError](err)
	return ok
}

// explain puts what to do behind an error that an operator has to act upon.
func explain(err error) error {
	code, _ := errors.AsType[kafkago.Error](err)
	switch {
	case code == kafkago.TopicAuthorizationFailed:
		return fmt.Errorf("%w; grant the bridge's user Write and Describe on the topic", err)
	case code == kafkago.ClusterAuthorizationFailed:
		return fmt.Errorf("%w; grant the bridge's user IdempotentWrite on the cluster", err)
	case code == kafkago.SASLAuthenticationFailed:
		return fmt.Errorf("%w; check the sink's user name and password or token", err)
	case code == kafkago.UnsupportedSASLMechanism:
		return fmt.Errorf("%w; set sasl.mechanism to one that the listener offers", err)
	case isTLSRefusal(err):
		return fmt.Errorf("%w; check the sink's tls settings against the listener's (the CA, the client certificate, the port)", err)
	default:
		return err
	}
}

// reconnect is err as the publisher sees it when the whole sink can't go on.
func reconnect(err error) error {
	return &sinks.Error{Class: sinks.Reconnect, Err: explain(err)}
}

// retry is err as the publisher sees it when this message can't go on yet.
func retry(err error) error {
	return &sinks.Error{Class: sinks.Retry, Err: err}
}

// refuse is err as the publisher sees it when the message will never be taken.
func refuse(err error) error {
	return &sinks.Error{Class: sinks.Refused, Err: err}
}

// gone is the answer of messages that have none because the caller's context ended.
func gone(ctx context.Context) error {
	return &sinks.Error{Class: sinks.Stopped, Err: ctx.Err()}
}

// classify is any error of this package's own requests as the publisher sees it.
func classify(ctx context.Context, err error) error {
	switch sort(err) {
	case stopped:
		return gone(ctx)
	case refused:
		return refuse(err)
	default:
		return reconnect(err)
	}
}
