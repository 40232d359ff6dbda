package sinkmaker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/event/asyncapi"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
)

// kafkaKind publishes to Kafka.
type kafkaKind struct {
	sink *config.Sink
	*config.Kafka
}

func (kafkaKind) key() string { return "kafka" }

func (k kafkaKind) target() []string { return []string{k.Topic} }

func (k kafkaKind) make(m *Maker, log *slog.Logger) (sinks.Sink, Service, error) {
	c := k.sink
	topic, err := event.ParseTemplate(k.Topic)
	if err != nil {
		return nil, nil, err
	}
	var deadLetter *event.Template
	if k.DeadLetterTopic != "" {
		if deadLetter, err = event.ParseTemplate(k.DeadLetterTopic); err != nil {
			return nil, nil, err
		}
	}
	connection, err := KafkaConnection(k.Kafka, k.ClientID)
	if err != nil {
		return nil, nil, err
	}
	connection.Brokers = k.Brokers
	sink, err := kafka.New(kafka.Config{
		Name: c.Name, Cluster: m.Cluster,
		Connection: connection,
		Topics: kafka.Topics{
			Events: topic, DeadLetters: deadLetter, Max: k.MaxTopics,
			Create: kafkaTopics(k.CreateTopics), NewPartitions: k.NewPartitions,
		},
		Records: kafka.Records{
			Encoding: c.Encoding, Timestamps: k.Timestamps, Tombstones: k.Tombstones,
			Compression: k.Compression,
		},
		View: k.View, Informers: m.Feeds.informersOf(c.Name),
		LostByCompaction: m.Feeds.lostByCompaction(c.Name), Confirm: m.Confirm,
		Log: log, Registerer: m.Registry,
	})
	return sink, nil, err
}

// KafkaConnection is how a client with an id connects, without the addresses.
func KafkaConnection(k *config.Kafka, clientID string) (kafka.Connection, error) {
	encryption, tlsErr := tlsConfig(k.TLS)
	sasl, saslErr := kafkaSASL(k.SASL)
	return kafka.Connection{ClientID: clientID, TLS: encryption, SASL: sasl},
		errors.Join(tlsErr, saslErr)
}

func kafkaSASL(s *config.SASL) (*kafka.SASL, error) {
	if s == nil {
		return nil, nil
	}
	password, err := config.ReadSecret(s.Password, s.PasswordFile)
	made := &kafka.SASL{
		Mechanism: s.Mechanism, Username: s.Username, Password: string(password),
		TokenFile: s.TokenFile, Extensions: s.Extensions,
	}
	if s.OAuth != nil {
		made.Token = newTokenSource(s.OAuth).token
	}
	if s.Mechanism == "AWS_MSK_IAM" {
		made.Mechanism = "OAUTHBEARER" // which MSK takes for IAM too
		made.Token, err = mskToken(context.Background(), s.AWS)
		return made, err
	}
	return made, aboutKey("sasl.passwordFile", err)
}

func kafkaTopics(c *config.CreateTopics) *kafka.CreateTopics {
	if c == nil {
		return nil
	}
	return &kafka.CreateTopics{
		Partitions: c.Partitions, ReplicationFactor: c.ReplicationFactor,
		Config: c.Config,
	}
}

func (k kafkaKind) check(ctx context.Context, m *Maker, topics func(string) []string) error {
	sink, _, err := k.make(m, m.Log.With("sink", k.sink.Name))
	if err != nil {
		return err
	}
	wrong, connect := sink.(*kafka.Sink).Check(ctx, topics(k.Topic))
	problems := []error{aboutKey("brokers", connect)}
	for _, err := range wrong {
		problems = append(problems, aboutKey("topic", err))
	}
	return errors.Join(problems...)
}

func (k kafkaKind) sample() (Form, error) {
	topic, err := event.ParseTemplate(k.Topic)
	return Form{
		Prefix: "ce_", Value: func(value string) string { return value },
		Structured: k.sink.Encoding == "structured",
		Destination: func(e *event.Event) string {
			return fmt.Sprintf("sink %s: topic %s, key %s",
				k.sink.Name, topic.Append(nil, e, event.AppendTopicPart), e.PartitionKey)
		},
	}, err
}

func (k kafkaKind) describe() *asyncapi.Sink {
	d := &asyncapi.Sink{
		Protocol: "kafka", Servers: k.Brokers, Address: k.Topic, DeadLetters: k.DeadLetterTopic,
		Prefix:    "ce_",
		MediaType: "content-type", ContentType: "content-type", Own: []string{"informer", "sink"},
		Keyed: true, Tombstones: k.Tombstones,
		Oversize: true,
	}
	if k.TLS != nil {
		d.Protocol = "kafka-secure"
	}
	return d
}
