package bridge_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/testkit"
)

// losses returns what the stream's gaps report, each with its reason.
func (r *natsRig) losses() (data []string) {
	stream, err := r.js.Stream(r.t.Context(), "K8S")
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	testkit.OK(r.t, err)
	for seq := stream.CachedInfo().State.FirstSeq; seq <= stream.CachedInfo().State.LastSeq; seq++ {
		m, err := stream.GetMsg(r.t.Context(), seq)
		if err == nil && strings.HasSuffix(header(m, "ce-type"), "informer.gap") {
			data = append(data, string(m.Data))
		}
	}
	return data
}

// A stream that somebody deletes or purges says that events are missing, each time. That of another
// sink does not.
func TestStreamLost(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for inspections")
	}
	r, other := newNATSRig(t), newNATSRig(t)
	r.also = []*natsRig{other}
	r.put("web", 10, 0)
	r.run(nil, nil)
	r.await(1)
	for n, do := range []func() error{
		func() error { return r.js.DeleteStream(t.Context(), "K8S") },
		func() error { return r.purge() },
		func() error { return r.purge() },
	} {
		time.Sleep(6 * time.Second) // it is inspected
		testkit.OK(t, do())
		var got []string
		for began := time.Now(); len(got) == 0 && time.Since(began) < 20*time.Second; time.Sleep(20 * time.Millisecond) {
			got = r.losses()
		}
		if len(got) != 1 || !strings.Contains(got[0], `"reason":"lost"`) {
			t.Errorf("after loss %d the gaps are %q", n, got)
		}
	}
	if got := other.losses(); len(got) > 0 {
		t.Errorf("the other sink has the gaps %q", got)
	}
}

func (r *natsRig) purge() error {
	stream, err := r.js.Stream(r.t.Context(), "K8S")
	if err != nil {
		return err
	}
	return stream.Purge(r.t.Context())
}
