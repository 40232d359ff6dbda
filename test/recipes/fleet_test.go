package recipes_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/kubebridge/bridge/test/e2e/crash"
	"github.com/kubebridge/bridge/test/e2e/harness"
	"github.com/kubebridge/bridge/test/e2e/read"
	"github.com/kubebridge/bridge/test/e2e/truth"
)

// Where fleet.md has the hub's server, for clients and for leaf nodes.
const (
	hubAddress  = "127.0.0.1:4223"
	leafAddress = "127.0.0.1:7422"
)

var fleet = []string{"north", "south"}

// TestFleet walks fleet.md. Then the connection of one cluster to the hub is cut while both
// clusters change. The hub has every event of both, once, and in order per object.
func TestFleet(t *testing.T) {
	var gate crash.Gate
	addresses := map[string]string{}
	planes := map[string]*harness.ControlPlane{}
	walkWith(t, "fleet.md", addresses, func(dir string) []string {
		for _, cluster := range fleet {
			planes[cluster] = controlPlane(t)
			must(t, os.Symlink(planes[cluster].Kubeconfig,
				filepath.Join(dir, cluster+".kubeconfig")))
		}
		proxy, stop, err := gate.Proxy(addresses[leafAddress])
		must(t, err)
		t.Cleanup(stop)
		replaceIn(t, filepath.Join(dir, "north.conf"), addresses[leafAddress], proxy)
		return nil
	})
	reader := &read.JetStream{URL: "nats://" + addresses[hubAddress], Stream: "FLEET"}

	churns, ledgers := map[string]*crash.Churn{}, map[string]*truth.Ledger{}
	for _, cluster := range fleet {
		config := planes[cluster].Admin()
		var err error
		ledgers[cluster], err = truth.WatchFromNow(t.Context(), config, truth.Core("configmaps", shop))
		must(t, err)
		t.Cleanup(ledgers[cluster].Stop)
		client, err := kubernetes.NewForConfig(config)
		must(t, err)
		churns[cluster] = crash.StartChurn(t.Context(), client, shop, rand.Uint64(), 4)
	}
	const apart = 3 * time.Second
	time.Sleep(apart)
	gate.Shut()
	time.Sleep(apart) // what had come through is in the stream
	north, south := count(t, reader)
	time.Sleep(2 * apart)
	northThen, southThen := count(t, reader)
	if northThen != north || southThen == south {
		t.Errorf("during the cut the hub got %d events of the cluster that is cut off, "+
			"and %d of the other", northThen-north, southThen-south)
	}
	gate.Open()
	time.Sleep(apart)
	for _, cluster := range fleet {
		must(t, churns[cluster].Stop())
	}

	var want, got map[string][]string
	// After a cut the hub's nats-server asks again within half a minute.
	deadline := time.Now().Add(3 * time.Minute)
	for done := false; !done && time.Now().Before(deadline); {
		time.Sleep(apart) // the ledgers see the last changes
		want = changesOf(t, ledgers)
		got = map[string][]string{}
		for _, e := range refresh(t, reader) {
			key := fmt.Sprint(e.Source(), " ", e.Attribute("name"))
			if e.AboutObject() && want[key] != nil {
				got[key] = append(got[key], e.ID())
			}
		}
		done = fmt.Sprint(got) == fmt.Sprint(want)
	}
	for key, ids := range want {
		if fmt.Sprint(got[key]) != fmt.Sprint(ids) {
			t.Errorf("%s: the hub has\n%v\nbut the cluster\n%v", key, got[key], ids)
		}
	}
	t.Logf("%d objects, %d events", len(want), len(refresh(t, reader)))
}

// changesOf are the ids of the changes that the ledgers saw, by their objects.
func changesOf(t *testing.T, ledgers map[string]*truth.Ledger) map[string][]string {
	t.Helper()
	ids := map[string][]string{}
	for cluster, ledger := range ledgers {
		must(t, ledger.Err())
		changes := ledger.Changes()
		for i := range changes {
			if !changes[i].Initial {
				key := "/clusters/" + cluster + " " + changes[i].Metadata.Name
				ids[key] = append(ids[key], id(&changes[i]))
			}
		}
	}
	return ids
}

// count is how many events of each cluster the hub has.
func count(t *testing.T, reader *read.JetStream) (north, south int) {
	t.Helper()
	for _, e := range refresh(t, reader) {
		if e.Source() == "/clusters/north" {
			north++
		} else {
			south++
		}
	}
	return north, south
}

func refresh(t *testing.T, reader *read.JetStream) []read.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	events, err := reader.Refresh(ctx)
	must(t, err)
	return events
}

func replaceIn(t *testing.T, path, old, other string) {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	changed := strings.ReplaceAll(string(text), old, other)
	if changed == string(text) {
		t.Fatalf("%s has no %s", path, old)
	}
	must(t, os.WriteFile(path, []byte(changed), 0o600))
}
