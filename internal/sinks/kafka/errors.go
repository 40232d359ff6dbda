package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/kubebridge/bridge/internal/sinks"
)

// outcome is what an answer, or its absence, means for the batch in flight.
type outcome int

const (
	// stored: the broker holds the batch.
	stored outcome = iota
	// resend: the batch may be stored or not, or will be accepted later: send the same bytes again.
	resend
	// refused: the broker will never accept this batch, and has not stored it. Its sequence numbers
	// are free again.
	refused
	// forgotten: the broker does not know the producer any more, or expects another sequence
	// number.
	forgotten
	// overtaken: a batch of an earlier process was stored in the place of this one, which was not:
	// encode it again, without the messages of the other.
	overtaken
	// misdated: the broker does not accept the records' time, and has not stored this batch.
	misdated
	// denied: nothing is accepted until an operator has changed something; whether the batch is
	// stored is as unknown as before.
	denied
	// unreachable: not one broker has answered for a while. No error means this by itself.
	unreachable
	// stopped: the caller's context ended.
	stopped
)

func (v outcome) String() string {
	return [...]string{
		"stored", "resend", "refused", "forgotten", "overtaken", "misdated",
		"denied", "unreachable", "stopped",
	}[v]
}

// missingCause returns the error of an outcome that came without one.
func (v outcome) missingCause() error {
	if v == stopped {
		return errCallerGone
	}
	return nil
}

// classify decides what an error means for a batch. It is the only place that knows the
// consequences of Kafka's error codes. Unknown codes are resent: that is always safe, since the
// broker drops duplicates.
func classify(err error) outcome {
	if err == nil {
		return stored
	}
	if errors.Is(err, errCallerGone) {
		return stopped
	}
	if code, ok := errors.AsType[kafkago.Error](err); ok {
		return classifyCode(code)
	}
	if isTLSRefusal(err) {
		return denied
	}
	// also where something else than Kafka answers: the broker may have moved away from the address
	return resend
}

// unreadable reports whether a broker has answered that the sink may not read: a missing right, or
// a format that the two do not share. It is false when no broker could be asked (TLS, SASL,
// something else behind the address).
func unreadable(err error) bool {
	code, _ := errors.AsType[kafkago.Error](err)
	switch code {
	case kafkago.SASLAuthenticationFailed, kafkago.UnsupportedSASLMechanism,
		kafkago.IllegalSASLState, kafkago.SecurityDisabled:
		return false
	default:
		return classifyCode(code) == denied
	}
}

func classifyCode(code kafkago.Error) outcome {
	switch code {
	case 0, kafkago.DuplicateSequenceNumber:
		return stored
	case kafkago.MessageSizeTooLarge, kafkago.RecordListTooLarge,
		kafkago.PolicyViolation, kafkago.InvalidRecord:
		return refused
	case kafkago.InvalidTimestamp:
		return misdated
	case kafkago.OutOfOrderSequenceNumber, kafkago.InvalidProducerEpoch, kafkago.UnknownProducerId,
		kafkago.ProducerFenced, kafkago.InvalidTransactionState, kafkago.InvalidProducerIDMapping:
		return forgotten
	case kafkago.TopicAuthorizationFailed, kafkago.ClusterAuthorizationFailed,
		kafkago.TransactionalIDAuthorizationFailed,
		kafkago.BrokerAuthorizationFailed, kafkago.SASLAuthenticationFailed,
		kafkago.UnsupportedSASLMechanism,
		kafkago.IllegalSASLState, kafkago.SecurityDisabled:
		return denied
	case kafkago.UnsupportedVersion, kafkago.UnsupportedForMessageFormat,
		kafkago.UnsupportedCompressionType,
		kafkago.InvalidRequiredAcks, kafkago.InvalidTopic:
		return denied
	default:
		return resend
	}
}

var (
	// errCallerGone marks an error caused by the end of the caller's context.
	errCallerGone = errors.New("stopped by the caller")
	// errUnusable marks a broker that can't serve this sink at all: too old, or not Kafka.
	errUnusable = errors.New("broker can't be used")
	// errClock is a refusal of the time at which this machine says that it sends.
	errClock = errors.New("the broker refuses this machine's clock: set the clocks of the two " +
		"right, or change the topic's message.timestamp.after.max.ms or " +
		"message.timestamp.before.max.ms; the events are pending until then")
	// errNoLeader is a partition without a leader, by the metadata: an election, or brokers that
	// are unavailable.
	errNoLeader = errors.New("partition has no leader")
)

// isTLSRefusal reports whether the two sides could not agree on TLS: a certificate that one of them
// does not trust, or a listener that does not speak it.
func isTLSRefusal(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return true
	}
	// crypto/tls does not export the type of the other side's alerts, except this one.
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" {
		return true
	}
	_, ok := errors.AsType[x509.UnknownAuthorityError](err)
	return ok
}

// missingRight is an error of a request that takes another right than publishing.
type missingRight struct {
	error
	right string
}

func (e *missingRight) Unwrap() error { return e.error }

// needing notes the right that a request takes.
func needing(right string, err error) error { return &missingRight{err, right} }

// explain appends what an operator has to do to an error.
func explain(err error) error {
	code, _ := errors.AsType[kafkago.Error](err)
	missing, other := errors.AsType[*missingRight](err)
	switch denied := code == kafkago.TopicAuthorizationFailed; {
	case other && (denied || code == kafkago.ClusterAuthorizationFailed):
		return fmt.Errorf("%w; grant the bridge's user %s", err, missing.right)
	case denied:
		return fmt.Errorf("%w; grant the bridge's user Write and Describe on the topic", err)
	case code == kafkago.ClusterAuthorizationFailed:
		return fmt.Errorf("%w; grant the bridge's user Write on the topic (before Kafka 2.8 "+
			"IdempotentWrite on the cluster)", err)
	case code == kafkago.SASLAuthenticationFailed:
		return fmt.Errorf("%w; check the sink's user name and password or token", err)
	case code == kafkago.UnsupportedSASLMechanism:
		return fmt.Errorf("%w; set sasl.mechanism to one that the listener offers", err)
	case isTLSRefusal(err):
		return fmt.Errorf("%w; check the sink's tls settings against the listener's (the CA, the "+
			"client certificate, the port)", err)
	case advice[code] != "":
		return fmt.Errorf("%w; %s", err, advice[code])
	default:
		return err
	}
}

const (
	startMissing  = "brokers that have to acknowledge it do not answer in time: start those that are gone"
	startOthers   = "start the brokers that have the other replicas"
	startReplicas = startOthers + ", or lower min.insync.replicas"
	hasStarted    = "the broker has just started and knows of no producers yet: if that lasts, start those that are gone"
)

// offsetNotAvailable is a code that kafka-go does not have.
const offsetNotAvailable = kafkago.Error(78)

// advice is what an operator has to do about a broker's state.
var advice = map[kafkago.Error]string{
	kafkago.RequestTimedOut:              startMissing,
	kafkago.NotEnoughReplicas:            startReplicas,
	kafkago.NotEnoughReplicasAfterAppend: startReplicas,
	kafkago.LeaderNotAvailable:           "start the brokers that have a replica in sync",
	kafkago.GroupLoadInProgress:          hasStarted,
	kafkago.GroupCoordinatorNotAvailable: hasStarted,
	offsetNotAvailable:                   "its new leader waits for others: " + startOthers,
	kafkago.KafkaStorageError:            "look at the broker's disk",
	kafkago.PolicyViolation:              "ask who runs the cluster for its policy (create.topic.policy.class.name)",
	kafkago.InvalidReplicationFactor:     "set createTopics.replicationFactor to no more than there are brokers",
	kafkago.UnsupportedCompressionType:   "set the sink's compression to one that the broker knows",
}

// asReconnect reports to the publisher that the whole sink can't continue.
func asReconnect(err error) error {
	return &sinks.Error{Class: sinks.Reconnect, Err: explain(err)}
}

// asRetry reports to the publisher that this message can't be stored yet.
func asRetry(err error) error {
	return &sinks.Error{Class: sinks.Retry, Err: explain(err)}
}

// asRefused reports to the publisher that this message will never be accepted.
func asRefused(err error) error {
	return &sinks.Error{Class: sinks.Refused, Err: err}
}

// stoppedError is the answer of messages without one because the caller's context ended; with why
// the last attempt failed, where there was one.
func stoppedError(ctx context.Context, why ...error) error {
	err := ctx.Err()
	if len(why) > 0 && why[0] != nil && !errors.Is(why[0], errCallerGone) {
		err = fmt.Errorf("%w; the last attempt: %w", err, why[0])
	}
	return &sinks.Error{Class: sinks.Stopped, Err: err}
}

// sinkError is an error of this package's own requests as the publisher understands it.
func sinkError(ctx context.Context, err error) error {
	switch classify(err) {
	case stopped:
		return stoppedError(ctx)
	case refused:
		return asRefused(err)
	default:
		return asReconnect(err)
	}
}

// noTopicError is kafkago.UnknownTopicOrPartition with what to do.
type noTopicError struct{ topic string }

func (e *noTopicError) Error() string {
	return fmt.Sprintf("there is no topic %s: create it (kafka-topics.sh --create --topic %s "+
		"--partitions 12 --replication-factor 3 --config min.insync.replicas=2), "+
		"or let the sink do so (createTopics)", e.topic, e.topic)
}

func (e *noTopicError) Unwrap() error { return kafkago.UnknownTopicOrPartition }

// blockedLanes has the lanes that store nothing: retrying alone is not likely to help, or has not
// helped for a while.
type blockedLanes struct {
	count atomic.Int64 // len(lanes): avoids the lock while there are none

	mu    sync.Mutex
	lanes map[*lane]blockedLane // guarded by mu
}

type blockedLane struct {
	err error
	at  time.Time // of the last failure
}

const (
	// blockedAfter is how long a lane retries whatever the cause before it counts as blocked.
	blockedAfter = 10 * time.Second
	// blockedFor is how long a lane counts as blocked that nobody uses any more. Attempts, and the
	// publisher's delays between them, are closer together.
	blockedFor = 75 * time.Second
)

// set records why a lane failed for the second time, if an operator must act, or if the lane has
// been retrying for some time. The first failure may end when the lane looks up the partition's
// leader.
func (b *blockedLanes) set(l *lane, err error, retrying time.Duration) {
	switch {
	case errors.Is(err, kafkago.UnknownTopicOrPartition):
		err = fmt.Errorf("topic %s, or its partition %d, does not exist any more; create it "+
			"again, with as many partitions: %w", l.topic, l.partition, err)
	case errors.Is(err, errClock):
		err = fmt.Errorf("publish to %s: %w", l.name, err)
	case errors.Is(err, errPolicy): // it names the topic
	case errors.Is(err, errUnusable):
		err = fmt.Errorf("the leader of %s can't be used: %w", l.name, err)
	case retrying >= blockedAfter || b.has(l):
		err = fmt.Errorf("publish to %s: %w", l.name, explain(err))
	default:
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lanes == nil {
		b.lanes = map[*lane]blockedLane{}
	}
	b.lanes[l] = blockedLane{err, time.Now()}
	b.count.Store(int64(len(b.lanes)))
}

func (b *blockedLanes) has(l *lane) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, ok := b.lanes[l]
	return ok
}

func (b *blockedLanes) clear(l *lane) {
	if b.count.Load() == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.lanes, l)
	b.count.Store(int64(len(b.lanes)))
}

// Blocked implements sinks.Blocker: it names the first of the lanes.
func (s *Sink) Blocked() error {
	s.blocked.mu.Lock()
	defer s.blocked.mu.Unlock()
	var first *lane
	for l, in := range s.blocked.lanes {
		if time.Since(in.at) > blockedFor {
			delete(s.blocked.lanes, l)
			continue
		}
		if first == nil || l.name < first.name {
			first = l
		}
	}
	if first == nil {
		return nil
	}
	if n := len(s.blocked.lanes); n > 1 {
		return fmt.Errorf("%d partitions wait; the first: %w", n, s.blocked.lanes[first].err)
	}
	return s.blocked.lanes[first].err
}
