package nats

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
)

// dataRefScheme begins the URIs that Claim returns: nats-object://<bucket>/<name>. The name is the
// event's message id and a digest of the payload, since sinks that share a bucket may send one
// event in several forms. Each part is escaped as in a URL.
const dataRefScheme = "nats-object://"

// ensureObjects finds the bucket for large payloads, or creates it. It never changes one.
func (s *Sink) ensureObjects(ctx context.Context, conn *nats.Conn) error {
	s.objects = nil
	bucket := s.cfg.Objects.Bucket
	if bucket == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Connection.Timeout)
	defer cancel()
	js, err := s.jetStream(conn)
	if err != nil {
		return err
	}
	s.objects, err = js.ObjectStore(ctx, bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		s.objects, err = s.createObjects(ctx, conn, js)
	}
	if err != nil {
		s.objects = nil
		return explainAPI("OBJ_"+bucket, err)
	}
	return nil
}

func (s *Sink) createObjects(
	ctx context.Context, conn *nats.Conn, js jetstream.JetStream,
) (jetstream.ObjectStore, error) {
	c := s.cfg.Objects
	if s.cfg.Stream.Manage != Create {
		return nil, operatorError("object store bucket %s does not exist: create it (nats object "+
			"add %s), or set stream.manage: create", c.Bucket, c.Bucket)
	}
	wanted := jetstream.ObjectStoreConfig{
		Bucket: c.Bucket, Description: "Payloads of CloudEvents that are too large for a " +
			"message", TTL: c.MaxAge, MaxBytes: unlimited(c.MaxBytes),
		Storage: s.cfg.Stream.storage(), Replicas: s.cfg.Stream.Replicas,
		Compression: s.cfg.Stream.Compression != "none",
	}
	if wanted.Replicas == 0 {
		wanted.Replicas = defaultReplicas(conn)
	}
	store, err := js.CreateObjectStore(ctx, wanted)
	if err == nil {
		s.log.Info("object store bucket created", "bucket", c.Bucket, "replicas", wanted.Replicas)
	}
	return store, err
}

// claimDigest is how many bytes of a payload's SHA-256 are in its name.
const claimDigest = 16

// Claim stores the event's payload in the object store.
func (s *Sink) Claim(ctx context.Context, e *event.Event) (dataref string, err error) {
	defer sinks.RecoverAnswer(&err)
	if s.objects == nil {
		return "", sinks.ErrNoClaims
	}
	if _, err := s.limits(); err != nil {
		return "", err
	}
	sum := sha256.Sum256(e.Data)
	name := e.MessageID() + "/" + hex.EncodeToString(sum[:claimDigest])
	dataref = dataRefScheme + s.cfg.Objects.Bucket + "/" + escapePath(name)
	began := time.Now()
	fail := func(err error) error {
		return classified(s.withErrorSince(time.Since(began), fmt.Errorf("object store bucket %s: %w",
			s.cfg.Objects.Bucket, err)))
	}
	isKept, err := s.isKept(ctx, name, sum)
	switch {
	case ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled):
		return "", stopped(ctx.Err())
	case err != nil:
		return "", fail(err)
	case isKept:
		return dataref, nil
	}
	const usual = 128 << 10
	meta := jetstream.ObjectMeta{
		Name: name,
		Opts: &jetstream.ObjectMetaOptions{ChunkSize: uint32(min(usual, max(s.conn.MaxPayload()/2,
			1)))},
	}
	if _, err := s.objects.Put(ctx, meta, bytes.NewReader(e.Data)); err != nil {
		if ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled) {
			return "", stopped(ctx.Err())
		}
		return "", fail(err)
	}
	return dataref, nil
}

// isKept reports whether the bucket has the payload already, of an earlier attempt.
func (s *Sink) isKept(ctx context.Context, name string, sum [sha256.Size]byte) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Connection.Timeout)
	defer cancel()
	info, err := s.objects.GetInfo(ctx, name)
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		return false, nil
	}
	return err == nil && info.Digest == "SHA-256="+base64.URLEncoding.EncodeToString(sum[:]), err
}

func escapePath(name string) string {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		parts[i] = url.PathEscape(part)
	}
	return strings.Join(parts, "/")
}
