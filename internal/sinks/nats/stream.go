package nats

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/sinks"
)

// ensureStream creates the stream or checks the existing one. It never changes one: a change of
// retention or of limits deletes messages.
func (s *Sink) ensureStream(ctx context.Context, conn *nats.Conn, wanted Stream) (*stream, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	js, err := s.jetStream(conn)
	if err != nil {
		return nil, err
	}
	found, err := js.Stream(ctx, wanted.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		found, err = s.createStream(ctx, conn, js, wanted)
	}
	if err != nil {
		return nil, explainAPI(wanted.Name, err)
	}
	info := found.CachedInfo()
	if err := s.checkStream(info.Config, wanted); err != nil {
		return nil, err
	}
	for _, problem := range unsafeSettings(info.Config, info.Cluster != nil &&
		info.Cluster.Name != "", wanted.bucket) {
		s.log.Warn("the stream's settings may lose events", "stream", wanted.Name,
			"problem", problem)
	}
	st := &stream{
		name: wanted.Name, replicas: info.Config.Replicas, created: info.Created,
		maxMsgSize: sinks.NewSizeLimit(int(max(info.Config.MaxMsgSize, 0))),
		duplicates: info.Config.Duplicates, allowsTTL: info.Config.AllowMsgTTL,
		wanted: wanted, seen: info.State,
	}
	st.reached(info.State.LastSeq)
	return st, nil
}

func (s *Sink) jetStream(conn *nats.Conn) (jetstream.JetStream, error) {
	return API(conn, &s.cfg.Config)
}

func (s *Sink) createStream(
	ctx context.Context, conn *nats.Conn, js jetstream.JetStream, want Stream,
) (jetstream.Stream, error) {
	if want.Manage == Verify {
		return nil, missingStream(want)
	}
	wanted := want.config()
	if wanted.Replicas == 0 {
		wanted.Replicas = defaultReplicas(conn)
	}
	stream, err := js.CreateStream(ctx, wanted)
	// a cluster without JetStream's clustering
	if codeOf(err) == codeNoReplicas && want.Replicas == 0 {
		wanted.Replicas = 1
		stream, err = js.CreateStream(ctx, wanted)
	}
	switch {
	case err == nil:
		s.log.Info("stream created", "stream", want.Name, "subjects", wanted.Subjects,
			"replicas", wanted.Replicas)
		return stream, nil
	// another replica of the bridge was faster
	case errors.Is(err, jetstream.ErrStreamNameAlreadyInUse):
		return js.Stream(ctx, want.Name)
	case codeOf(err) == codeStreamOverlap:
		return nil, overlapError(ctx, js, want)
	default:
		return nil, fmt.Errorf("create: %w", err)
	}
}

// missingStream is the error of a stream that must exist.
func missingStream(want Stream) error {
	return operatorError("stream %s does not exist: create it with subjects %s, or set "+
		"stream.manage: create", want.Name, strings.Join(want.Subjects, " "))
}

func (s *Stream) config() jetstream.StreamConfig {
	config := jetstream.StreamConfig{
		Name:        s.Name,
		Description: "Changes of Kubernetes objects as CloudEvents",
		Subjects:    s.Subjects,
		Retention:   jetstream.LimitsPolicy,
		Discard:     jetstream.DiscardOld,
		Storage:     s.storage(),
		Replicas:    s.Replicas,
		MaxAge:      s.MaxAge,
		MaxBytes:    unlimited(int64(s.MaxBytes)),
		MaxMsgs:     -1,
		MaxMsgSize:  -1,
		Duplicates:  s.DuplicateWindow,
		Compression: s.compression(),
		AllowDirect: true,
		DenyDelete:  s.DenyDelete,
		DenyPurge:   s.DenyPurge,

		MaxMsgsPerSubject: unlimited(int64(s.MaxMsgsPerSubject)),
	}
	if p := s.Placement; p.Cluster != "" || len(p.Tags) > 0 {
		config.Placement = &jetstream.Placement{Cluster: p.Cluster, Tags: p.Tags}
	}
	if s.bucket {
		asBucket(&config)
	}
	return config
}

func unlimited(limit int64) int64 {
	if limit <= 0 {
		return -1
	}
	return limit
}

// defaultReplicas is 3 where the server reports that it belongs to a cluster.
func defaultReplicas(conn *nats.Conn) int {
	if conn.ConnectedClusterName() != "" {
		return 3
	}
	return 1
}

// overlapError names the stream that has the subjects already.
func overlapError(ctx context.Context, js jetstream.JetStream, want Stream) error {
	for _, subject := range want.Subjects {
		if other, err := js.StreamNameBySubject(ctx, subject); err == nil {
			return operatorError("stream %s can't be created: stream %s takes messages of its "+
				"subject %s already; set stream.name: %s to publish into that, or choose another "+
				"subject",
				want.Name, other, subject, other)
		}
	}
	return operatorError("stream %s can't be created: its subjects %v overlap with those of "+
		"another stream; choose other subjects, or the name of that stream",
		want.Name, want.Subjects)
}

// checkStream reports every difference that a promise rests on as an error, others as a warning.
func (s *Sink) checkStream(actual jetstream.StreamConfig, wanted Stream) error {
	problems := wanted.differences(actual)
	if wanted.bucket {
		problems = append(problems, bucketDifferences(actual)...)
	}
	if len(problems) > 0 && wanted.bucket {
		return operatorError("bucket %s is not as configured: %s. It was left as it is: choose "+
			"another bucket, delete it (nats kv del %[1]s), or change it (nats stream edit %[3]s)",
			strings.TrimPrefix(actual.Name, bucketStream), strings.Join(problems, "; "), actual.Name)
	}
	if len(problems) > 0 {
		return operatorError("stream %s is not as configured: %s. It was left as it is: change "+
			"the configuration, choose another stream.name, or change the stream (nats stream "+
			"edit %s)",
			actual.Name, strings.Join(problems, "; "), actual.Name)
	}
	if milder := wanted.minorDifferences(actual); len(milder) > 0 {
		s.log.Warn("stream differs from the configuration and was left as it is",
			"stream", actual.Name, "differences", strings.Join(milder, "; "))
	}
	return nil
}

// differences returns those that would break a promise: complete, in order, duplicates removable,
// as durable as configured.
func (s *Stream) differences(actual jetstream.StreamConfig) (problems []string) {
	differ := func(when bool, format string, args ...any) {
		if when {
			problems = append(problems, fmt.Sprintf(format, args...))
		}
	}
	missing := uncovered(actual.Subjects, s.Subjects)
	differ(len(missing) > 0, "its subjects %v do not cover %v", actual.Subjects, missing)
	differ(actual.Retention != jetstream.LimitsPolicy, "retention is %v, which deletes messages "+
		"once they were read (wanted Limits)", actual.Retention)
	differ(actual.Storage != s.storage(), "storage is %v, wanted %v", actual.Storage, s.storage())
	differ(actual.Duplicates < s.DuplicateWindow, "duplicates window is %v, wanted at least %v",
		actual.Duplicates, s.DuplicateWindow)
	differ(actual.Replicas < s.Replicas, "replicas are %d, wanted %d", actual.Replicas, s.Replicas)
	differ(actual.NoAck, "it acknowledges nothing (no_ack)")
	differ(actual.Sealed, "it is sealed")
	differ(actual.Mirror != nil, "it is a mirror")
	differ(actual.AllowMsgCounter, "it holds counters (allow_msg_counter)")
	return problems
}

// minorDifferences returns those about how long messages are kept, and who may remove them.
func (s *Stream) minorDifferences(actual jetstream.StreamConfig) (differences []string) {
	wanted := s.config()
	differ := func(when bool, format string, args ...any) {
		if when {
			differences = append(differences, fmt.Sprintf(format, args...))
		}
	}
	differ(actual.MaxAge != wanted.MaxAge, "max age is %v, wanted %v", actual.MaxAge, wanted.MaxAge)
	differ(unlimited(actual.MaxBytes) != wanted.MaxBytes, "max bytes are %d, wanted %d",
		actual.MaxBytes, wanted.MaxBytes)
	differ(actual.Compression != wanted.Compression, "compression is %v, wanted %v",
		actual.Compression, wanted.Compression)
	differ(s.DenyDelete && !actual.DenyDelete, "single messages may be deleted, though denyDelete "+
		"is set (nats stream edit %s --deny-delete)", actual.Name)
	differ(s.DenyPurge && !actual.DenyPurge, "it may be purged, though denyPurge is set (nats "+
		"stream edit %s --deny-purge)", actual.Name)
	differ(s.MaxMsgsPerSubject > 0 && actual.MaxMsgsPerSubject != int64(s.MaxMsgsPerSubject),
		"max messages per subject are %d, wanted %d", actual.MaxMsgsPerSubject, s.MaxMsgsPerSubject)
	differ(wanted.Placement != nil && !reflect.DeepEqual(actual.Placement, wanted.Placement),
		"placement is %+v, wanted %+v", actual.Placement, wanted.Placement)
	differ(wanted.Replicas != 0 && actual.Replicas > wanted.Replicas, "replicas are %d, wanted %d",
		actual.Replicas, wanted.Replicas)
	differ(!slices.Equal(actual.Subjects, wanted.Subjects), "subjects are %v, wanted %v",
		actual.Subjects, wanted.Subjects)
	return differences
}

// unsafeSettings returns settings that weaken the bridge's promises without being other than
// configured.
func unsafeSettings(actual jetstream.StreamConfig, clustered, bucket bool) (found []string) {
	weak := func(when bool, problem string, args ...any) {
		if when {
			found = append(found, fmt.Sprintf(problem, args...))
		}
	}
	limited := actual.MaxBytes > 0 || actual.MaxMsgs > 0 || actual.MaxMsgsPerSubject > 0 && !bucket
	weak(clustered && actual.Replicas == 1, "it has one replica on a cluster: a lost server "+
		"loses its events; use 3")
	weak(actual.Discard == jetstream.DiscardNew && limited, "it refuses new messages when it is "+
		"full (discard new): the sink then stands still until there is room")
	weak(actual.MaxMsgsPerSubject > 0 && !bucket, "it keeps %d messages of a subject "+
		"(max_msgs_per_subject): earlier versions of an object are "+
		"dropped", actual.MaxMsgsPerSubject)
	weak(actual.MaxMsgs > 0, "it keeps %d messages (max_msgs), however old they are",
		actual.MaxMsgs)
	weak(actual.MaxAge > 0 && actual.MaxAge < time.Hour, "it keeps messages for %v only "+
		"(max_age): a consumer that is gone for longer misses events", actual.MaxAge)
	weak(actual.Storage == jetstream.MemoryStorage, "it is in memory: a restart of its servers "+
		"loses its events")
	return found
}

// operatorError is an error that only the operator can fix.
func operatorError(format string, args ...any) error {
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

// explainAPI adds what an error of the JetStream API means for the operator.
func explainAPI(name string, err error) error {
	if _, ok := errors.AsType[*sinks.Error](err); ok {
		return err
	}
	switch {
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("stream %s: the server has no JetStream: start it with -js, or set "+
			"mode: core: %w", name, err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return fmt.Errorf("stream %s: the JetStream API does not answer: the account may lack "+
			"permission for $JS.API.>, or the cluster has no leader: %w", name, err)
	default:
		return fmt.Errorf("stream %s: %w", name, err)
	}
}
