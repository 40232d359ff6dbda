package nats_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/nats"
)

func coreMode(c *nats.Options) { c.Mode = nats.Core }

func TestCoreWithoutJetStream(t *testing.T) {
	ts := newTestServer(t)
	sink := ts.openSink(coreMode, ackTimeout(time.Minute))
	mustStore(t, sink, ev("a", 1))
	ts.stop()
	began := time.Now()
	wantClass(t, call(t, sink, ev("a", 2))[0].Err, sinks.Reconnect)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the answer took %v", took)
	}
	ts.start()
	eventually(t, "publish after the server is back", func() error { return call(t, sink, ev("a", 2))[0].Err })
}

func TestCoreFlush(t *testing.T) {
	ts := newTestServer(t)
	proxy := newProxy(t, ts.url())
	sink := openOver(t, proxy.url(), coreMode, ackTimeout(300*time.Millisecond))
	storePatiently(t, sink, ev("a", 1))
	proxy.freeze(true)
	err := call(t, sink, ev("a", 2))[0].Err
	wantClass(t, err, sinks.Retry)
	if !errors.Is(err, nats.ErrAckTimeout) {
		t.Errorf("%v is not ErrAckTimeout", err)
	}
}

func TestCoreWarning(t *testing.T) {
	var log bytes.Buffer
	newTestServer(t).openSink(coreMode,
		func(c *nats.Options) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	if !strings.Contains(log.String(), "level=WARN") ||
		!strings.Contains(log.String(), "at most once") {
		t.Errorf("the log says\n%s", log.String())
	}
}
