//go:build ignore

package main

import (
	"context"
	"errors"
	"log"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func main() {
	log.SetFlags(0)
	if err := read(context.Background(), os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

func read(ctx context.Context, dir, name string) error {
	nc, err := nats.Connect("nats://127.0.0.1:4222")
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	consumer, err := js.CreateOrUpdateConsumer(ctx, "K8S", jetstream.ConsumerConfig{
		Durable: name, FilterSubject: "k8s.*.core.*.configmaps.shop.>",
		// The next event waits for this one: in order. What a crash interrupts comes again.
		AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 1, AckWait: 10 * time.Second,
	})
	if err != nil {
		return err
	}
	for {
		m, err := consumer.Next(jetstream.FetchMaxWait(5 * time.Second))
		if errors.Is(err, nats.ErrTimeout) {
			info, err := consumer.Info(ctx)
			if err != nil {
				return err
			}
			isIdle := info.NumPending == 0 && info.NumAckPending == 0
			if isIdle && slices.Contains(os.Args, "--once") {
				return nil
			}
			continue
		}
		if err == nil {
			err = act(dir, attributes(m.Headers()), m.Data())
		}
		if err == nil {
			err = m.DoubleAck(ctx) // the effect is stored
		}
		if err != nil {
			return err
		}
	}
}

// attributes are those of an event. A message of something else has none.
func attributes(header nats.Header) map[string]string {
	event := map[string]string{}
	for key := range header {
		if name, ok := strings.CutPrefix(key, "ce-"); ok {
			event[name], _ = url.PathUnescape(header.Get(key))
		}
	}
	return event
}
