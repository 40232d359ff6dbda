package nats_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/nats"
	"github.com/kubebridge/bridge/internal/testkit"
)

// What docs/security.md gives to the bridge's user of a bucket.
var rightsOfBucket = []string{
	"$KV.SHOP.>", "$JS.API.STREAM.INFO.KV_SHOP", "$JS.API.STREAM.CREATE.KV_SHOP",
	"$JS.API.CONSUMER.>", "$JS.API.DIRECT.GET.KV_SHOP", "$JS.API.DIRECT.GET.KV_SHOP.>",
}

// liveInBucket opens a sink, stores entries, compares them with a list after somebody has deleted
// one, and reads them back as after a crash and as after the loss of the state. It returns what
// went wrong first, with what the sinks have logged.
func liveInBucket(t *testing.T, ts *testServer) (err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var log testkit.Buffer
	defer func() {
		if err != nil {
			err = errors.Join(err, errors.New(log.String()))
		}
	}()
	open := func() (*nats.Sink, error) {
		s := asBridge(t, ts, func(c *nats.Options) {
			inBucket(c)
			c.Log = slog.New(slog.NewTextHandler(&log, nil))
		})
		return s, s.Open(ctx)
	}
	first, err := open()
	if err != nil {
		return err
	}
	from := first.Position()
	for _, m := range call(t, first, ev("web", 1), ev("api", 1)) {
		if m.Err != nil {
			return m.Err
		}
	}
	_ = first.Close()
	js := ts.jetStream() // of the owner
	if err := bucket(t, js).Delete(ctx, key+"web"); err != nil {
		t.Fatal(err)
	}
	second, err := open()
	if err != nil {
		return err
	}
	// The stream knows its id, and the key is gone.
	if m := call(t, second, ev("web", 1))[0]; m.Err != nil {
		return m.Err
	}
	if err := publishEnd(t, second, 9, "web"); err != nil {
		return err
	}
	if got, want := entries(t, js), map[string]string{
		key + "web": "1", "_informers.workloads.deployments_apps.synced": "9",
	}; !maps.Equal(got, want) {
		return fmt.Errorf("the bucket has %v, want %v", got, want)
	}
	third, err := open()
	if err != nil {
		return err
	}
	var recalled int
	if err := third.ReadBack(ctx, from, func(string) { recalled++ }); err != nil || recalled == 0 {
		return errors.Join(errors.New("not recalled"), err)
	}
	found, err := third.FindEarlierRun(ctx, listEnd(1), func(sinks.Trace) bool { return true })
	if err == nil && !found {
		err = errors.New("not remembered")
	}
	return err
}

func TestBucketRights(t *testing.T) {
	t.Run("these are enough", func(t *testing.T) {
		t.Parallel()
		wantEnough(t, func() error {
			return liveInBucket(t, newTestServer(t, restricted(rightsOfBucket, "_bridge.>")))
		})
	})
	for i, right := range rightsOfBucket {
		t.Run("what is said without "+right+" names it", func(t *testing.T) {
			t.Parallel()
			fewer := slices.Delete(slices.Clone(rightsOfBucket), i, i+1)
			wantNamed(t, strings.TrimSuffix(right, ">"), func() error {
				return liveInBucket(t, newTestServer(t, restricted(fewer, "_bridge.>")))
			})
		})
	}
}
