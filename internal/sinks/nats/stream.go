package nats

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/sinks"
)

// ensureStream creates the stream or checks the one that is there. It never changes one: a change of retention or of limits
// deletes messages.
func (s *Sink) ensureStream(ctx context.Context, conn *nats.Conn) error {
	if s.cfg.Stream.Manage == Off {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ConnectTimeout)
	defer cancel()
	js, err := s.jetStream(conn)
	if err != nil {
		return err
	}
	stream, err := js.Stream(ctx, s.cfg.Stream.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		stream, err = s.createStream(ctx, conn, js)
	}
	if err != nil {
		return explainAPI(s.cfg.Stream.Name, err)
	}
	actual := stream.CachedInfo().Config
	if err := s.checkStream(actual); err != nil {
		return err
	}
	s.maxMsgSize.Store(int64(max(actual.MaxMsgSize, 0)))
	return nil
}

func (s *Sink) jetStream(conn *nats.Conn) (jetstream.JetStream, error) {
	if s.cfg.Domain != "" {
		return jetstream.NewWithDomain(conn, s.cfg.Domain)
	}
	return jetstream.New(conn)
}

func (s *Sink) createStream(ctx context.Context, conn *nats.Conn, js jetstream.JetStream) (jetstream.Stream, error) {
	name := s.cfg.Stream.Name
	if s.cfg.Stream.Manage == Verify {
		return nil, operators("stream %s does not exist: create it with subjects %s, or set stream.manage: create",
			name, strings.Join(s.cfg.Stream.Subjects, " "))
	}
	wanted := s.streamConfig()
	if wanted.Replicas == 0 {
		wanted.Replicas = defaultReplicas(conn)
	}
	stream, err := js.CreateStream(ctx, wanted)
	if codeOf(err) == codeNoReplicas && s.cfg.Stream.Replicas == 0 { // a cluster without JetStream's clustering
		wanted.Replicas = 1
		stream, err = js.CreateStream(ctx, wanted)
	}
	switch {
	case err == nil:
		s.log.Info("stream created", "stream", name, "subjects", wanted.Subjects, "replicas", wanted.Replicas)
		return stream, nil
	case errors.Is(err, jetstream.ErrStreamNameAlreadyInUse): // another replica of the bridge was faster
		return js.Stream(ctx, name)
	case codeOf(err) == codeStreamOverlap:
		return nil, s.overlap(ctx, js)
	default:
		return nil, fmt.Errorf("create: %w", err)
	}
}

func (s *Sink) streamConfig() jetstream.StreamConfig {
	c := s.cfg.Stream
	return jetstream.StreamConfig{
		Name:        c.Name,
		Description: "Changes of Kubernetes objects as CloudEvents",
		Subjects:    c.Subjects,
		Retention:   jetstream.LimitsPolicy,
		Discard:     jetstream.DiscardOld,
		Storage:     c.storage(),
		Replicas:    c.Replicas,
		MaxAge:      c.MaxAge,
		MaxBytes:    unlimited(c.MaxBytes),
		MaxMsgs:     -1,
		MaxMsgSize:  -1,
		Duplicates:  c.Duplicates,
		Compression: c.compression(),
		AllowDirect: true,
	}
}

func unlimited(limit int64) int64 {
	if limit <= 0 {
		return -1
	}
	return limit
}

// defaultReplicas is 3 where the server says that it is one of a cluster.
func defaultReplicas(conn *nats.Conn) int {
	if conn.ConnectedClusterName() != "" {
		return 3
	}
	return 1
}

// overlap tells which stream holds the subjects already.
func (s *Sink) overlap(ctx context.Context, js jetstream.JetStream) error {
	for _, subject := range s.cfg.Stream.Subjects {
		if other, err := js.StreamNameBySubject(ctx, subject); err == nil {
			return operators("stream %s can't be created: stream %s takes messages of its subject %s already; set stream.name: %s to publish into that, or choose another subject",
				s.cfg.Stream.Name, other, subject, other)
		}
	}
	return operators("stream %s can't be created: its subjects %v overlap with those of another stream; choose other subjects, or the name of that stream",
		s.cfg.Stream.Name, s.cfg.Stream.Subjects)
}

// checkStream reports every difference that a promise rests on as an error, others as a warning.
func (s *Sink) checkStream(actual jetstream.StreamConfig) error {
	if problems := s.differences(actual); len(problems) > 0 {
		return operators("stream %s is not as configured: %s. It was left as it is: change the configuration, choose another stream.name, or change the stream (nats stream edit %s)",
			actual.Name, strings.Join(problems, "; "), actual.Name)
	}
	if milder := s.milderDifferences(actual); len(milder) > 0 {
		s.log.Warn("stream differs from the configuration and was left as it is", "stream", actual.Name, "differences", strings.Join(milder, "; "))
	}
	return nil
}

// differences are those that would break a promise: complete, in order, duplicates removable, as durable as asked for.
func (s *Sink) differences(actual jetstream.StreamConfig) (problems []string) {
	wanted := s.cfg.Stream
	differ := func(when bool, format string, args ...any) {
		if when {
			problems = append(problems, fmt.Sprintf(format, args...))
		}
	}
	missing := uncovered(actual.Subjects, wanted.Subjects)
	differ(len(missing) > 0, "its subjects %v do not cover %v", actual.Subjects, missing)
	differ(actual.Retention != jetstream.LimitsPolicy, "retention is %v, which deletes messages once they were read (wanted Limits)", actual.Retention)
	differ(actual.Storage != wanted.storage(), "storage is %v, wanted %v", actual.Storage, wanted.storage())
	differ(actual.Duplicates < wanted.Duplicates, "duplicates window is %v, wanted at least %v", actual.Duplicates, wanted.Duplicates)
	differ(actual.Replicas < wanted.Replicas, "replicas are %d, wanted %d", actual.Replicas, wanted.Replicas)
	differ(actual.NoAck, "it acknowledges nothing (no_ack)")
	differ(actual.Sealed, "it is sealed")
	differ(actual.Mirror != nil, "it is a mirror")
	differ(actual.AllowMsgCounter, "it holds counters (allow_msg_counter)")
	return problems
}

// milderDifferences are about how long messages are kept.
func (s *Sink) milderDifferences(actual jetstream.StreamConfig) (differences []string) {
	wanted := s.streamConfig()
	differ := func(when bool, format string, args ...any) {
		if when {
			differences = append(differences, fmt.Sprintf(format, args...))
		}
	}
	differ(actual.MaxAge != wanted.MaxAge, "max age is %v, wanted %v", actual.MaxAge, wanted.MaxAge)
	differ(unlimited(actual.MaxBytes) != wanted.MaxBytes, "max bytes are %d, wanted %d", actual.MaxBytes, wanted.MaxBytes)
	differ(actual.Compression != wanted.Compression, "compression is %v, wanted %v", actual.Compression, wanted.Compression)
	differ(wanted.Replicas != 0 && actual.Replicas > wanted.Replicas, "replicas are %d, wanted %d", actual.Replicas, wanted.Replicas)
	differ(!slices.Equal(actual.Subjects, wanted.Subjects), "subjects are %v, wanted %v", actual.Subjects, wanted.Subjects)
	return differences
}

// operators is an error that only the operator can heal.
func operators(format string, args ...any) error {
	return &sinks.Error{Class: sinks.Refused, Err: fmt.Errorf(format, args...)}
}

func codeOf(err error) jetstream.ErrorCode {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		return api.ErrorCode
	}
	if js, ok := errors.AsType[jetstream.JetStreamError](err); ok && js.APIError() != nil {
		return js.APIError().ErrorCode
	}
	return 0
}

// explainAPI says what an error of the JetStream API means for the operator.
func explainAPI(name string, err error) error {
	if _, ok := errors.AsType[*sinks.Error](err); ok {
		return err
	}
	switch {
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("stream %s: the server has no JetStream: start it with -js, or set mode: core: %w", name, err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return fmt.Errorf("stream %s: the JetStream API does not answer: the account may lack permission for $JS.API.>, or the cluster has no leader: %w", name, err)
	default:
		return fmt.Errorf("stream %s: %w", name, err)
	}
}
