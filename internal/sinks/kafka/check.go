package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/kubebridge/bridge/internal/ratelimit"
)

// Check reports whether Open would succeed and these topics can be found. It changes nothing.
// connect is why the brokers can't be used; topics has an error for each topic that is not as it
// must be. A topic that is missing and would be created is no problem. Settings that may lose
// events are warned of. Whether the user may write to a topic is not checked: only a write shows
// that. The sink must not be open.
func (s *Sink) Check(ctx context.Context, names []string) (topics []error, connect error) {
	c := newCluster(s.config.Connection, s.metrics)
	defer c.close()
	if err := s.checkPatiently(ctx, c); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("connect to Kafka: no answer from %s: %w",
				strings.Join(s.config.Connection.Brokers, ", "), err)
		}
		return nil, err
	}
	for _, name := range names {
		if err := s.checkOneTopic(ctx, c, name); err != nil {
			topics = append(topics, sinkError(ctx, err))
		}
	}
	return topics, nil
}

// checkPatiently retries for a while when a broker answers that it can't serve yet: one that has
// just started knows of no producers for a second or two.
func (s *Sink) checkPatiently(ctx context.Context, c *cluster) error {
	for began := time.Now(); ; {
		_, err := s.check(ctx, c)
		code, answered := errors.AsType[kafkago.Error](err)
		if !answered || !code.Temporary() || time.Since(began) > patience ||
			ratelimit.Sleep(ctx, 200*time.Millisecond) != nil {
			return err
		}
	}
}

// checkOneTopic is resolveTopic without creating anything.
func (s *Sink) checkOneTopic(ctx context.Context, c *cluster, name string) error {
	if err := checkTopic(name); err != nil {
		return err
	}
	l, err := c.refresh(ctx, name)
	switch {
	case errors.Is(err, kafkago.UnknownTopicOrPartition) && s.config.Topics.Create != nil:
		return nil
	case errors.Is(err, kafkago.UnknownTopicOrPartition):
		return &noTopicError{name}
	case err != nil:
		return err
	}
	_, _, err = s.checkSettings(ctx, c, name, l)
	return err
}
