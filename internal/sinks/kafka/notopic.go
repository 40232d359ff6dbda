package kafka

import (
	"fmt"

	kafkago "github.com/segmentio/kafka-go"
)

// noTopicError is kafkago.UnknownTopicOrPartition with what to do.
type noTopicError struct{ topic string }

func (e *noTopicError) Error() string {
	return fmt.Sprintf("there is no topic %s: create it (kafka-topics.sh --create --topic %s "+
		"--partitions 12 --replication-factor 3 --config min.insync.replicas=2), "+
		"or let the sink do so (createTopics)", e.topic, e.topic)
}

func (e *noTopicError) Unwrap() error { return kafkago.UnknownTopicOrPartition }
