package source

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Place is a message in its lane.
type Place struct {
	Lane   string
	Offset uint64
}

// Delete deletes messages of streams. One that is gone already is no error. Config.From is
// the address of NATS servers.
func Delete(ctx context.Context, cfg Config, places []Place) error {
	scheme, rest, _ := strings.Cut(cfg.From, "://")
	hosts, _, _ := strings.Cut(rest, "/")
	conn, js, err := dialNATS(ctx, cfg, scheme, hosts)
	if err != nil {
		return err
	}
	defer conn.Close()
	streams := map[string]jetstream.Stream{}
	for _, at := range places {
		if err := deleteMessage(ctx, js, streams, at); err != nil {
			if last := conn.LastError(); last != nil {
				err = last // the lack of a right, which the server answers with silence
			}
			return fmt.Errorf("delete message %d of stream %s: %w", at.Offset, at.Lane, err)
		}
	}
	return nil
}

// deleteMessage deletes one. streams are those that were asked for before.
func deleteMessage(
	ctx context.Context, js jetstream.JetStream, streams map[string]jetstream.Stream, at Place,
) error {
	const patience = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	stream, ok := streams[at.Lane]
	if !ok {
		var err error
		if stream, err = js.Stream(ctx, at.Lane); err != nil {
			return err
		}
		streams[at.Lane] = stream
	}
	err := stream.DeleteMsg(ctx, at.Offset)
	// "no message found", "sequence 7 not found": the client gives the server's text alone
	if errors.Is(err, jetstream.ErrMsgDeleteUnsuccessful) && strings.Contains(err.Error(), "found") {
		return nil
	}
	return err
}
