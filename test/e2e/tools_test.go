package e2e_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// tools makes a directory for $PATH with the programs that the documentation names beside ours:
// kubectl, which is the control plane's program under another name, and nats, which is this one.
func tools(t *testing.T) string {
	t.Helper()
	controlPlane, err := controlPlaneBinary()
	must(t, err)
	self, err := os.Executable()
	must(t, err)
	dir := t.TempDir()
	must(t, os.Symlink(controlPlane, filepath.Join(dir, "kubectl")))
	must(t, os.Symlink(self, filepath.Join(dir, natsName)))
	return dir
}

// natsName is the name of a link to the test program that makes it a stand-in for NATS' command
// line: of the flags and commands that the documentation uses it has just those.
const natsName = "nats"

// runNATS is its main function. It gives the exit code.
func runNATS(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	flags := flag.NewFlagSet(natsName, flag.ContinueOnError)
	server := flags.String("server", "", "")
	err := flags.Parse(args)
	if err == nil {
		err = natsCommand(ctx, *server, flags.Args())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "nats:", err)
		return 1
	}
	return 0
}

func natsCommand(ctx context.Context, server string, args []string) error {
	conn, err := nats.Connect(server)
	if err != nil {
		return err
	}
	defer conn.Close()
	switch {
	case len(args) == 2 && args[0] == "subscribe":
		return natsSubscribe(ctx, conn, args[1])
	case len(args) == 3 && args[0] == "stream" && args[1] == "view":
		return natsView(ctx, conn, args[2])
	default:
		return fmt.Errorf("this stand-in does not know %q", args)
	}
}

// natsSubscribe prints the subjects of messages, until it is interrupted.
func natsSubscribe(ctx context.Context, conn *nats.Conn, subject string) error {
	_, err := conn.Subscribe(subject, func(m *nats.Msg) { fmt.Println(m.Subject) })
	if err == nil {
		fmt.Printf("Subscribing on %s\n", subject)
		<-ctx.Done()
	}
	return err
}

// natsView prints the subjects of the messages that a stream holds.
func natsView(ctx context.Context, conn *nats.Conn, name string) error {
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return err
	}
	consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return err
	}
	for range stream.CachedInfo().State.Msgs {
		m, err := consumer.Next(jetstream.FetchMaxWait(5 * time.Second))
		if errors.Is(err, nats.ErrTimeout) { // a message was removed meanwhile
			return nil
		}
		if err != nil {
			return err
		}
		fmt.Println(m.Subject())
	}
	return nil
}
