package bridge_test

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/nats"
	"github.com/kubebridge/bridge/internal/testkit"
)

func intoBucket(c *nats.Options) { c.Mode, c.Bucket = nats.KV, "NOW" }

// awaitBucket waits until the bucket holds exactly these pods, each by its name in the value of its
// key.
func (r *natsRig) awaitBucket(want ...string) {
	r.t.Helper()
	wanted := map[string]bool{}
	for _, name := range want {
		wanted[name] = true
	}
	var got map[string]bool
	var err error
	for began := time.Now(); time.Since(began) < 30*time.Second; time.Sleep(20 * time.Millisecond) {
		if got, err = r.podsInBucket(); err == nil && maps.Equal(got, wanted) {
			return
		}
	}
	r.t.Fatalf("the bucket has %v (%v), want %v", got, err, wanted)
}

func (r *natsRig) podsInBucket() (map[string]bool, error) {
	kv, err := r.js.KeyValue(r.t.Context(), "NOW")
	if err != nil {
		return nil, err
	}
	lister, err := kv.ListKeysFiltered(r.t.Context(), "core.pods.>")
	if err != nil {
		return nil, err
	}
	got := map[string]bool{}
	for key := range lister.Keys() {
		entry, err := kv.Get(r.t.Context(), key)
		if err != nil {
			return nil, err
		}
		name := header(mustRaw(r, entry.Revision()), "ce-name")
		got[name] = key == "core.pods.shop."+name && len(entry.Value()) > 0
	}
	return got, nil
}

// A bucket is healed when the state is lost.
// The state directory is lost each time: the bridge knows of nothing.
func TestBucketAfterLostState(t *testing.T) {
	for name, change := range map[string]func(*nats.Options){
		"binary": intoBucket,
		"structured": func(c *nats.Options) {
			intoBucket(c)
			c.Encoding = sinks.Structured
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newNATSRig(t)
			for i := range 5 {
				r.put(fmt.Sprint("web-", i), 10, 0)
			}
			end := r.run(nil, change)
			r.awaitBucket("web-0", "web-1", "web-2", "web-3", "web-4")
			r.Delete("shop/web-0")
			r.awaitBucket("web-1", "web-2", "web-3", "web-4")
			end()
			r.Delete("shop/web-1")
			r.put("db", 10, 0)
			end = r.run(nil, change)
			r.awaitBucket("web-2", "web-3", "web-4", "db")
			r.put("web-1", 10, 0) // it comes back
			r.awaitBucket("web-1", "web-2", "web-3", "web-4", "db")
			end()
			for _, gone := range []string{"web-1", "web-2", "web-3", "web-4", "db"} {
				r.Delete(resource.MakeKey("shop", gone))
			}
			r.run(nil, change)
			r.awaitBucket()
		})
	}
}

func TestBucketOverAnOutage(t *testing.T) {
	r := newNATSRig(t)
	r.put("web", 10, 0)
	r.put("api", 10, 0)
	r.run(nil, intoBucket)
	r.awaitBucket("web", "api")
	r.stop()
	r.Delete("shop/web")
	r.put("db", 10, 0)
	r.Expire() // 410 meanwhile
	r.Delete("shop/api")
	r.serve()
	r.awaitBucket("db")
}

// A bucket that somebody deletes, recreates or purges fills again by itself.
func TestBucketRefilled(t *testing.T) {
	for name, do := range map[string]func(*natsRig, jetstream.Stream) error{
		"deleted": func(r *natsRig, _ jetstream.Stream) error { return r.js.DeleteStream(r.t.Context(), "KV_NOW") },
		"purged":  func(r *natsRig, s jetstream.Stream) error { return s.Purge(r.t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			if name == "purged" && testing.Short() {
				t.Skip("it waits for two inspections; TestLoss of the sink purges too")
			}
			r := newNATSRig(t)
			r.put("web", 10, 0)
			r.put("api", 10, 0)
			r.run(nil, intoBucket)
			r.awaitBucket("web", "api")
			stream, err := r.js.Stream(t.Context(), "KV_NOW")
			testkit.OK(t, err)
			testkit.OK(t, do(r, stream))
			r.put("db", 10, 0)
			if name == "purged" { // perhaps before the sink has inspected what it has stored
				for began := time.Now(); time.Since(began) < 12*time.Second; time.Sleep(20 * time.Millisecond) {
					if got, _ := r.podsInBucket(); len(got) == 3 {
						return
					}
				}
				testkit.OK(t, do(r, stream))
			}
			r.awaitBucket("web", "api", "db")
		})
	}
}

// A key that somebody else deletes, purges or replaces comes back within 20 seconds, and no other
// key is stored again.
func TestBucketRepaired(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for inspections")
	}
	const key = "core.pods.shop.web"
	for name, do := range map[string]func(context.Context, jetstream.KeyValue, jetstream.Stream) error{
		"deleted": func(ctx context.Context, kv jetstream.KeyValue, _ jetstream.Stream) error { return kv.Delete(ctx, key) },
		"purged":  func(ctx context.Context, kv jetstream.KeyValue, _ jetstream.Stream) error { return kv.Purge(ctx, key) },
		"purged from the stream": func(ctx context.Context, _ jetstream.KeyValue, s jetstream.Stream) error {
			return s.Purge(ctx, jetstream.WithPurgeSubject("$KV.NOW."+key))
		},
		"replaced": func(ctx context.Context, kv jetstream.KeyValue, _ jetstream.Stream) error {
			_, err := kv.PutString(ctx, key, "of somebody else")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newNATSRig(t)
			r.put("web", 10, 0)
			r.put("api", 10, 0)
			r.run(nil, intoBucket)
			r.awaitBucket("web", "api")
			time.Sleep(6 * time.Second) // it is inspected
			kv, err := r.js.KeyValue(t.Context(), "NOW")
			testkit.OK(t, err)
			stream, err := r.js.Stream(t.Context(), "KV_NOW")
			testkit.OK(t, err)
			other, err := kv.Get(t.Context(), "core.pods.shop.api")
			testkit.OK(t, err)
			testkit.OK(t, do(t.Context(), kv, stream))
			began := time.Now()
			r.awaitBucket("web", "api")
			t.Logf("after %v", time.Since(began))
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("it took %v", took)
			}
			after, err := kv.Get(t.Context(), "core.pods.shop.api")
			testkit.OK(t, err)
			if after.Revision() != other.Revision() {
				t.Error("the other key was stored again")
			}
		})
	}
}

func mustRaw(r *natsRig, sequence uint64) *jetstream.RawStreamMsg {
	r.t.Helper()
	stream, err := r.js.Stream(r.t.Context(), "KV_NOW")
	testkit.OK(r.t, err)
	m, err := stream.GetMsg(r.t.Context(), sequence)
	if err != nil {
		return &jetstream.RawStreamMsg{} // it was replaced meanwhile
	}
	return m
}
