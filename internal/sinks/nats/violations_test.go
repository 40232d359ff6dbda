package nats_test

import (
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/nats"
)

// restrictedBut are these rights without those to publish on some subjects.
func restrictedBut(publish []string, denied ...string) func(*server.Options) {
	return func(o *server.Options) {
		restricted(publish, "_bridge.>")(o)
		o.Users[0].Permissions.Publish.Deny = denied
	}
}

// A subject that may not be published does not stand for the right to read.
func TestViolationOfAnEvent(t *testing.T) {
	t.Run("a key that can't be deleted leaves the list's end unanswered", func(t *testing.T) {
		t.Parallel()
		ts := newTestServer(t, restrictedBut(rightsOfBucket, "$KV.SHOP."+key+"bad"))
		mustStore(t, ts.openSink(inBucket), ev("bad", 1), ev("web", 1)) // as owner
		s := asBridge(t, ts, inBucket)
		patiently(t, func() error { return s.Open(t.Context()) })
		err := publishEnd(t, s, 9, "web")
		wantClass(t, err, sinks.Retry)
		if got := entries(t, ts.jetStream()); len(got) != 2 || got[key+"bad"] != "1" {
			t.Errorf("the bucket has %v", got)
		}
	})
	t.Run("a stream that can't be read back now is not given up", func(t *testing.T) {
		t.Parallel()
		ts := newTestServer(t, restrictedBut(rights, "k8s.test.*.*.*.*.bad.>"))
		js := ts.jetStream()
		stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
			Name: "K8S", Subjects: []string{"k8s.test.>"}, AllowDirect: true, MaxConsumers: 1,
		})
		if err != nil {
			t.Fatal(err)
		}
		first := ts.openSink()
		from := first.Position()
		mustStore(t, first, ev("web", 1))
		_ = first.Close()
		if _, err := stream.CreateConsumer(t.Context(), jetstream.ConsumerConfig{
			Durable: "other",
		}); err != nil {
			t.Fatal(err)
		}
		second := asBridge(t, ts, func(*nats.Options) {})
		patiently(t, func() error { return second.Open(t.Context()) })
		wantNamed(t, ".bad.", func() error { return call(t, second, ev("bad", 1))[0].Err })
		wantClass(t, second.ReadBack(t.Context(), from, func(string) {}), sinks.Retry)
		if err := stream.DeleteConsumer(t.Context(), "other"); err != nil {
			t.Fatal(err)
		}
		wantIDs(t, recalled(t, second, from), ev("web", 1))
	})
	t.Run("the lack of the right to read is seen behind it", func(t *testing.T) {
		t.Parallel()
		ts := newTestServer(t, restrictedBut(rightsOfBucket, "$JS.API.CONSUMER.>",
			"$KV.SHOP."+key+"bad"))
		mustStore(t, ts.openSink(inBucket), ev("web", 1)) // as owner
		s := asBridge(t, ts, inBucket)
		patiently(t, func() error { return s.Open(t.Context()) })
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for version := 1; ; version++ {
				select {
				case <-stop:
					return
				default:
					s.Publish(t.Context(), []*sinks.Message{{Event: ev("bad", version)}})
				}
			}
		}()
		patiently(t, func() error { return publishEnd(t, s, 9) })
		close(stop)
		<-stopped
	})
}
