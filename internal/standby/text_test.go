package standby_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/standby"
	"github.com/kubebridge/bridge/internal/testkit"
)

// places look like a Kafka sink's position in so many partitions.
func places(partitions int) []byte {
	var b strings.Builder
	random := rand.New(rand.NewPCG(1, 2))
	for p := range partitions {
		if p%12 == 0 {
			fmt.Fprintf(&b, `],"k8s.prod-eu-1.team-%d.pods":[`, p/12)
		}
		fmt.Fprintf(&b, "[%d,%d,0,%d],", random.IntN(1e8), 4000+p, random.IntN(1e6))
	}
	return []byte(b.String())
}

func manyUnits(n int) map[string]standby.Unit {
	units := map[string]standby.Unit{}
	for i := range n {
		units[fmt.Sprintf("workloads/widgets-%d.example.com", i)] = standby.Unit{Scope: "labels=,fields=", Delivered: resource.Version(fmt.Sprint(1e6 + i)), Epoch: 1}
	}
	return units
}

func TestAProgressThatIsLargeIsToldInASmallerForm(t *testing.T) {
	outline := map[string][]byte{"lake": []byte("outline"), "audit": []byte("other outline")}
	few := manyUnits(20)
	for name, c := range map[string]struct {
		units  map[string]standby.Unit
		sinks  map[string][]byte
		want   map[string][]byte // nil: as they are
		short  bool
		format string
	}{
		"a small one is left to be read":             {few, map[string][]byte{"lake": places(24)}, nil, false, `"units":{"workloads/`},
		"many positions are packed":                  {few, map[string][]byte{"lake": places(8000), "audit": {0xff, 0}}, nil, false, `"packed":"`},
		"many units are packed":                      {manyUnits(2500), map[string][]byte{"lake": places(600)}, nil, false, `"packed":"`},
		"outlines are told of what is too large yet": {few, map[string][]byte{"lake": places(15000), "audit": []byte("small")}, outline, true, `"packed":"`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first := campaign(t, testkit.NewLeases(), "first")
				defer first.stop()
				_, _, err := first.board.Take(t.Context())
				ok(t, err)
				progress := standby.Progress{Units: c.units, Sinks: c.sinks, Feeds: map[string][]string{"workloads": {"lake"}}, Version: "v", RedactionKey: "0123abcd", Outlines: outline}
				told, err := first.board.Put(t.Context(), &progress)
				ok(t, err)
				object, err := first.client.Leases("tools").Get(t.Context(), "bridge-progress", metav1.GetOptions{})
				ok(t, err)
				text := object.Annotations["bridge.kubebridge.dev/progress"]
				if told.Short != c.short || told.Bytes > 200<<10 || told.Bytes != len(text) || !strings.Contains(text, c.format) {
					t.Errorf("told %+v; it begins with %.100s", told, text)
				}
				got, _, err := first.board.Get(t.Context())
				ok(t, err)
				want := standby.Progress{Units: c.units, Sinks: c.sinks, Feeds: progress.Feeds, Version: "v", RedactionKey: "0123abcd"}
				if c.want != nil {
					want.Sinks = c.want
				}
				if !reflect.DeepEqual(got, want) {
					t.Errorf("read %d units, %d sinks, %v, %s", len(got.Units), len(got.Sinks), got.Feeds, got.Version)
				}
				t.Logf("%d bytes", told.Bytes)
			})
		})
	}
}

func TestAProgressWithoutOutlinesThatIsTooLargeIsToldWithoutPositions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := campaign(t, testkit.NewLeases(), "first")
		defer first.stop()
		_, _, err := first.board.Take(t.Context())
		ok(t, err)
		progress := standby.Progress{Units: manyUnits(20), Sinks: map[string][]byte{"lake": places(15000)}}
		told, err := first.board.Put(t.Context(), &progress)
		got, _, getErr := first.board.Get(t.Context())
		if err != nil || getErr != nil || !told.Short || len(got.Sinks) != 0 || len(got.Units) != 20 {
			t.Errorf("told %+v (%v), read %d units and %d sinks (%v)", told, err, len(got.Units), len(got.Sinks), getErr)
		}
	})
}
