package sinkmaker

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"testing"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/testkit"
)

// TestKafkaClientID reads the first request that a broker gets.
func TestKafkaClientID(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	testkit.OK(t, err)
	defer listener.Close()
	s := config.Sink{Name: "lake", Kafka: &config.Kafka{
		Brokers: []string{listener.Addr().String()}, Topic: "t", ClientID: "cluster-a",
	}}
	sink, _, err := newMaker(t).Make(&s)
	testkit.OK(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	opened := make(chan error, 1)
	go func() { opened <- sink.Open(ctx) }()
	conn, err := listener.Accept()
	testkit.OK(t, err)
	defer conn.Close()
	header := make([]byte, 14) // size, key, version, correlation, length of the client's id
	_, err = io.ReadFull(conn, header)
	testkit.OK(t, err)
	name := make([]byte, binary.BigEndian.Uint16(header[12:]))
	_, err = io.ReadFull(conn, name)
	testkit.OK(t, err)
	if string(name) != "cluster-a" {
		t.Errorf("the broker knows it as %q", name)
	}
	cancel()
	if err := <-opened; err == nil {
		t.Error("it opened without a broker")
	}
	testkit.OK(t, sink.Close())
}
