package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kubebridge/bridge/test/bench/apiserver"
)

// broker is where the events arrive.
type broker interface {
	// count says how many have.
	count(ctx context.Context) (int64, error)
	close()
}

type natsBroker struct {
	nc *nats.Conn
	js jetstream.JetStream
}

func dialNATS(url string) (*natsBroker, error) {
	nc, err := nats.Connect(url)
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	return &natsBroker{nc, js}, err
}

func (b *natsBroker) close() { b.nc.Close() }

const streamName = "K8S"

func (b *natsBroker) count(ctx context.Context) (int64, error) {
	stream, err := b.js.Stream(ctx, streamName)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return int64(stream.CachedInfo().State.LastSeq), nil
}

// latencies reads what came after a message, and says how long after it was sent each was stored,
// the shortest first.
func (b *natsBroker) latencies(ctx context.Context, after int64, n int) ([]time.Duration, error) {
	consumer, err := b.js.OrderedConsumer(ctx, streamName, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: uint64(after + 1),
	})
	if err != nil {
		return nil, err
	}
	var list []time.Duration
	for len(list) < n {
		msg, err := consumer.Next(jetstream.FetchMaxWait(10 * time.Second))
		if err != nil {
			return list, err
		}
		meta, err := msg.Metadata()
		if err != nil {
			return list, err
		}
		sent, err := apiserver.Stamp(msg.Data())
		if err != nil {
			continue // an event about the informer
		}
		list = append(list, meta.Timestamp.Sub(sent))
	}
	slices.Sort(list)
	return list, nil
}

type kafkaBroker struct {
	client *kgo.Client
	admin  *kadm.Client
}

func dialKafka(address string) (*kafkaBroker, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(address))
	if err != nil {
		return nil, err
	}
	return &kafkaBroker{client, kadm.NewClient(client)}, nil
}

func (b *kafkaBroker) close() { b.client.Close() }

func (b *kafkaBroker) count(ctx context.Context) (int64, error) {
	offsets, err := b.admin.ListEndOffsets(ctx)
	if err != nil {
		return 0, err
	}
	total := int64(0)
	offsets.Each(func(o kadm.ListedOffset) { total += max(0, o.Offset) })
	return total, nil
}
