package kafka_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/kubebridge/bridge/internal/sinks/kafka"
)

func TestClassify(t *testing.T) {
	for want, errs := range map[string][]error{
		"stored": {nil, kafkago.DuplicateSequenceNumber},
		"resend": {
			io.EOF, io.ErrUnexpectedEOF, os.ErrDeadlineExceeded, syscall.ECONNRESET,
			syscall.ECONNREFUSED, net.ErrClosed,
			&net.OpError{Op: "read", Err: syscall.EPIPE}, &net.DNSError{
				Err:        "no such host",
				IsNotFound: true,
			},
			kafka.NoLeader, kafka.Unusable, context.DeadlineExceeded, errors.New("something new"),
			kafkago.Unknown, kafkago.InvalidMessage, kafkago.UnknownTopicOrPartition,
			kafkago.LeaderNotAvailable,
			kafkago.NotLeaderForPartition, kafkago.RequestTimedOut, kafkago.BrokerNotAvailable,
			kafkago.ReplicaNotAvailable,
			kafkago.NetworkException, kafkago.GroupLoadInProgress, kafkago.NotEnoughReplicas,
			kafkago.NotEnoughReplicasAfterAppend,
			kafkago.KafkaStorageError, kafkago.FencedLeaderEpoch, kafkago.UnknownLeaderEpoch,
			kafkago.ThrottlingQuotaExceeded,
			kafkago.Error(32000),
		},
		"refused": {
			kafkago.MessageSizeTooLarge, kafkago.RecordListTooLarge,
			kafkago.PolicyViolation, kafkago.InvalidRecord,
		},
		"misdated": {kafkago.InvalidTimestamp},
		"forgotten": {
			kafkago.OutOfOrderSequenceNumber, kafkago.InvalidProducerEpoch,
			kafkago.UnknownProducerId, kafkago.ProducerFenced,
		},
		"denied": {
			kafkago.TopicAuthorizationFailed, kafkago.ClusterAuthorizationFailed,
			kafkago.SASLAuthenticationFailed,
			kafkago.UnsupportedSASLMechanism, kafkago.UnsupportedVersion,
			kafkago.UnsupportedCompressionType, kafkago.InvalidTopic,
			x509.UnknownAuthorityError{},
			tls.RecordHeaderError{},
			&net.OpError{Op: "remote error", Err: tls.AlertError(42)},
			&tls.CertificateVerificationError{Err: x509.HostnameError{Certificate: new(x509.Certificate)}},
		},
		"stopped": {kafka.CallerGone},
	} {
		for _, err := range errs {
			wrapped := err
			if err != nil {
				wrapped = fmt.Errorf("broker:9092: %w", fmt.Errorf("produce: %w", err))
			}
			if got := kafka.Outcome(wrapped); got != want {
				t.Errorf("%v means %s, want %s", err, got, want)
			}
		}
	}
}

func TestSequenceWrap(t *testing.T) {
	const last = 1<<31 - 1
	for _, c := range []struct{ from, records, want int32 }{
		{0, 3, 3},
		{last, 1, 0},
		{last - 1, 3, 1},
		{last - 5, 5, last},
	} {
		if got := kafka.SequenceAfter(c.from, c.records); got != c.want {
			t.Errorf("%d records after %d: %d, want %d", c.records, c.from, got, c.want)
		}
	}
}

// Refusals of a broker, and what a person reads.
func TestRefusals(t *testing.T) {
	const (
		replicas = "start the brokers that have the other replicas, or lower min.insync.replicas"
		starting = "knows of no producers yet: if that lasts, start those that are gone"
	)
	for code, want := range map[int16][]string{
		5:  {"Leader Not Available", "start the brokers that have a replica in sync"},
		7:  {"Request Timed Out", "start those that are gone"},
		10: {"Message Size Too Large"},
		14: {"Group Load In Progress", starting},
		15: {"Group Coordinator Not Available", starting},
		19: {"Not Enough Replicas", replicas},
		20: {"Not Enough Replicas After Append", replicas},
		29: {"Topic Authorization Failed", "grant the bridge's user Write and Describe on the topic"},
		31: {"Cluster Authorization Failed", "grant the bridge's user Write on the topic"},
		33: {"Unsupported SASL Mechanism", "set sasl.mechanism to one that the listener offers"},
		38: {"Invalid Replication Factor", "set createTopics.replicationFactor to no more than there are brokers"},
		44: {"Policy Violation", "ask who runs the cluster for its policy"},
		56: {"Kafka Storage Error", "look at the broker's disk"},
		58: {"SASL Authentication Failed", "check the sink's user name and password or token"},
		76: {"Unsupported Compression Type", "set the sink's compression to one that the broker knows"},
		78: {"[78]", "OFFSET_NOT_AVAILABLE", "start the brokers that have the other replicas"},
		89: {"Throttling Quota Exceeded"},
	} {
		text := kafka.Explained(code)
		for _, word := range want {
			if !strings.Contains(text, word) {
				t.Errorf("code %d is %q, want %q in it", code, text, word)
			}
		}
	}
	for code := int16(1); code <= 133; code++ { // of Apache Kafka 4.1
		if text := kafka.Explained(code); strings.HasSuffix(strings.TrimSpace(text), ":") {
			t.Errorf("code %d has no words: %q", code, text)
		}
	}
}
