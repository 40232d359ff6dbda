package nats_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/nats"
	"github.com/kubebridge/bridge/internal/testkit"
)

// What docs/security.md gives to the bridge's user of a bucket.
var rightsOfBucket = []string{
	"$KV.SHOP.>", "$JS.API.STREAM.INFO.KV_SHOP", "$JS.API.STREAM.CREATE.KV_SHOP",
	"$JS.API.CONSUMER.>", "$JS.API.DIRECT.GET.KV_SHOP", "$JS.API.DIRECT.GET.KV_SHOP.>",
}

func TestBucketRights(t *testing.T) {
	ts := newTestServer(t, restricted(rightsOfBucket, "_bridge.>"))
	var log testkit.Buffer
	open := func() *nats.Sink {
		return ts.openSink(inBucket, func(c *nats.Config) {
			c.Connection.Auth = nats.Auth{User: "bridge", Password: "secret"}
			c.Connection.InboxPrefix = "_bridge"
			c.Log = slog.New(slog.NewTextHandler(&log, nil))
			c.Connection.Timeout, c.AckTimeout = time.Second, time.Second
		})
	}
	first := open()
	from := first.Position()
	mustStore(t, first, ev("web", 1), ev("api", 1))
	_ = first.Close()
	js := ts.jetStream() // of the owner
	if err := bucket(t, js).Delete(t.Context(), key+"web"); err != nil {
		t.Fatal(err)
	}
	second := open()
	mustStore(t, second, ev("web", 1)) // the stream knows its id, and the key is gone
	if err := publishEnd(t, second, 9, "web"); err != nil {
		t.Fatal(err)
	}
	wantEntries(t, js, map[string]string{
		key + "web": "1", "_informers.workloads.deployments_apps.synced": "9",
	})
	third := open()
	if len(recalled(t, third, from)) == 0 {
		t.Error("nothing was read back")
	}
	found, err := third.Remembers(t.Context(), listEnd(1), func(sinks.Trace) bool { return true })
	if err != nil || !found {
		t.Errorf("not remembered: %v", err)
	}
	if t.Failed() {
		t.Log(log.String())
	}
}
