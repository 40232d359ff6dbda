package source

import (
	"context"
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
	for _, at := range places {
		err := deleteMessage(ctx, js, at)
		// "no message found", "sequence 7 not found"
		if err == nil || strings.Contains(err.Error(), "found") {
			continue
		}
		if last := conn.LastError(); last != nil {
			err = last // the lack of a right, which the server answers with silence
		}
		return fmt.Errorf("delete message %d of stream %s: %w", at.Offset, at.Lane, err)
	}
	return nil
}

func deleteMessage(ctx context.Context, js jetstream.JetStream, at Place) error {
	const patience = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	stream, err := js.Stream(ctx, at.Lane)
	if err != nil {
		return err
	}
	return stream.DeleteMsg(ctx, at.Offset)
}
