package standby_test

import (
	"bytes"
	"compress/flate"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/kubebridge/bridge/internal/kube/standby"
	"github.com/kubebridge/bridge/internal/resource"
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
		units[fmt.Sprintf("workloads/widgets-%d.example.com",
			i)] = standby.Unit{
			Scope:     "labels=,fields=",
			Delivered: resource.Version(fmt.Sprint(1e6 + i)), Epoch: 1,
		}
	}
	return units
}

// A large progress is reported in a smaller form.
func TestLargeProgress(t *testing.T) {
	outline := map[string][]byte{"lake": []byte("outline"), "audit": []byte("other outline")}
	few := manyUnits(20)
	for name, c := range map[string]struct {
		units  map[string]standby.Unit
		sinks  map[string][]byte
		want   map[string][]byte // nil: as they are
		short  bool
		format string
	}{
		"a small one is left to be read": {
			few,
			map[string][]byte{"lake": places(24)},
			nil, false, `"units":{"workloads/`,
		},
		"many positions are packed": {few, map[string][]byte{
			"lake":  places(8000),
			"audit": {0xff, 0},
		}, nil, false, `"packed":"`},
		"many units are packed": {
			manyUnits(2500),
			map[string][]byte{"lake": places(600)},
			nil, false, `"packed":"`,
		},
		"only outlines are reported of what is still too large": {few, map[string][]byte{
			"lake":  places(15000),
			"audit": []byte("small"),
		}, outline, true, `"packed":"`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first := campaign(t, testkit.NewLeases(), "first")
				defer first.stop()
				_, _, err := first.board.Acquire(t.Context())
				testkit.OK(t, err)
				progress := standby.Progress{
					Units: c.units, Sinks: c.sinks,
					Feeds:   map[string][]string{"workloads": {"lake"}},
					Version: "v", RedactionKey: "0123abcd", Outlines: outline,
				}
				result, err := first.board.Put(t.Context(), &progress)
				testkit.OK(t, err)
				object, err := first.client.Get(t.Context(), "tools", "bridge-progress")
				testkit.OK(t, err)
				text := object.Annotations["bridge.kubebridge.dev/progress"]
				if result.Short != c.short || result.Bytes > 200<<10 || result.Bytes != len(text) ||
					!strings.Contains(text, c.format) {
					t.Errorf("reported %+v; it begins with %.100s", result, text)
				}
				got, _, err := first.board.Get(t.Context())
				testkit.OK(t, err)
				want := standby.Progress{
					Units: c.units, Sinks: c.sinks, Feeds: progress.Feeds,
					Version: "v", RedactionKey: "0123abcd",
				}
				if c.want != nil {
					want.Sinks = c.want
				}
				if !reflect.DeepEqual(got, want) {
					t.Errorf("read %d units, %d sinks, %v, %s", len(got.Units), len(got.Sinks),
						got.Feeds, got.Version)
				}
				t.Logf("%d bytes", result.Bytes)
			})
		})
	}
}

// TestHostileProgress reads what somebody has written to the Lease.
func TestHostileProgress(t *testing.T) {
	bomb := func(first string, size int) string {
		var b bytes.Buffer
		w, _ := flate.NewWriter(&b, flate.BestCompression)
		_, _ = w.Write([]byte(first))
		_, _ = w.Write(make([]byte, size))
		_ = w.Close()
		return base64.StdEncoding.EncodeToString(b.Bytes())
	}
	for name, text := range map[string]string{
		"200 MiB in 200 KiB": `{"format":1,"packed":"` + bomb("{}\n", 200<<20) + `"}`,
		"no JSON":            `{"format":1,"packed":"` + bomb("", 10) + `"}`,
		"a position of -1 bytes": `{"format":1,"packed":"` + bomb(`{"sizes":{"lake":-1}}`+
			"\n", 10) + `"}`,
		"a position that is not there": `{"format":1,"packed":"` +
			bomb(`{"sizes":{"lake":2147483647}}`+"\n", 10) + `"}`,
		"what is not deflated":       `{"format":1,"packed":"AAAA"}`,
		"another format":             `{"format":2}`,
		"an epoch beyond numbers":    `{"format":1,"units":{"u":{"e":9223372036854775807}}}`,
		"an epoch before the first":  `{"format":1,"units":{"u":{"e":-1}}}`,
		"a selection beyond numbers": `{"format":1,"units":{"u":{"l":9223372036854775807}}}`,
		"text":                       `hello`,
	} {
		t.Run(name, func(t *testing.T) {
			var err error
			made := testkit.Allocated(func() { _, err = standby.Decode(text) })
			if harm := made >> 20; err == nil || harm > 32 {
				t.Errorf("%v after %d MiB", err, harm)
			}
		})
	}
}

func TestFarAhead(t *testing.T) {
	for _, c := range []struct {
		delivered, seen resource.Version
		want            bool
	}{
		{"100", "90", false},
		{"90", "100", false},
		{"10000090", "90", false},
		{"10000091", "90", true},
		{"99999999999", "4000000", true},
		{"99999999999999999999999", "4000000", true},
		{"", "90", false},
		{"99999999999", "", false},
		{"99999999999", "opaque", false},
		{"opaque", "90", false},
	} {
		further := standby.Unit{Delivered: "1", Further: map[string]resource.Version{"js": c.delivered}}
		if got := further.IsFarAheadOf(c.seen); got != c.want && c.delivered != "" {
			t.Errorf("%+v: %t: one sink is further", c, got)
		}
		if got := (&standby.Unit{Delivered: c.delivered}).IsFarAheadOf(c.seen); got != c.want {
			t.Errorf("%s far ahead of %s: %t", c.delivered, c.seen, got)
		}
	}
}

// FuzzProgress reads any text on the Lease. What can be read is written and read again as it was.
func FuzzProgress(f *testing.F) {
	f.Add(`{"format":1,"units":{"u":{"v":"7","e":1}},"sinks":{"lake":"AAAA"}}`)
	f.Add(`{"format":1,"packed":"q1bKLC5JzEtOVbJSMtQxrgUA"}`)
	f.Fuzz(func(t *testing.T, text string) {
		p, err := standby.Decode(text)
		if err != nil {
			return
		}
		again, err := standby.Encode(&p, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := standby.Decode(again); err != nil {
			t.Errorf("%q becomes %q: %v", text, again, err)
		}
	})
}

// A progress that is still too large without outlines is reported without positions.
func TestOversizeProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := campaign(t, testkit.NewLeases(), "first")
		defer first.stop()
		_, _, err := first.board.Acquire(t.Context())
		testkit.OK(t, err)
		progress := standby.Progress{
			Units: manyUnits(20),
			Sinks: map[string][]byte{"lake": places(15000)},
		}
		result, err := first.board.Put(t.Context(), &progress)
		got, _, getErr := first.board.Get(t.Context())
		if err != nil || getErr != nil || !result.Short || len(got.Sinks) != 0 ||
			len(got.Units) != 20 {
			t.Errorf("reported %+v (%v), read %d units and %d sinks (%v)", result, err, len(got.Units),
				len(got.Sinks), getErr)
		}
	})
}
