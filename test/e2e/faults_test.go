package e2e_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubebridge/bridge/test/e2e/check"
	"github.com/kubebridge/bridge/test/e2e/crash"
	"github.com/kubebridge/bridge/test/e2e/faults"
	"github.com/kubebridge/bridge/test/e2e/harness"
	"github.com/kubebridge/bridge/test/e2e/read"
	"github.com/kubebridge/bridge/test/e2e/truth"
)

var faultsTime = flag.Duration("faults.time", 5*time.Second, "how long each kind of fault in TestAPIServerFaults lasts at least")

// What goes wrong between the bridge and an API server that is well costs nobody anything: no
// change is lost, none comes twice or out of order, and no gap is reported, since the API server
// remembers. What the API server does itself disturbs everybody, so that comes one after the other.
func TestAPIServerFaults(t *testing.T) {
	t.Parallel()
	// Nothing changes there but by tests. The API server answers the second page of a list from
	// etcd, as all did before 1.34.
	c := ownCluster(t, "faulty", noControllers, "--etcd-compaction-interval=0",
		"--apiserver-arg=--feature-gates=ListFromCacheSnapshot=false")
	installWidgets(t, c)
	t.Run("on the way", func(t *testing.T) {
		for name, test := range map[string]func(*faultRun){
			"connections that are cut anywhere":                        connectionsAreCut,
			"connections that go silent are found by health checks":    connectionsGoSilent,
			"refusals of an API server that is overloaded or restarts": requestsAreRefused,
			"versions that have expired":                               versionsExpire,
			"a continue token that has expired":                        continueTokenExpires,
			"another cluster at the same address":                      clusterIsReplaced,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(newFaultRun(t, c))
			})
		}
	})
	for _, test := range []struct {
		name string
		run  func(*faultRun)
	}{
		{"an API server that is restarted under load", apiServerRestarts},
		{"a compaction between two pages of a list", compactionBetweenPages},
		{"a long absence of the bridge", longAbsence},
		{"an etcd that is restored while the bridge is down", etcdIsRestoredMeanwhile},
		{"an etcd that is restored under load", etcdIsRestoredUnderLoad},
		{"an API server that comes back while bridges start", apiServerStarts},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(newFaultRun(t, c)) })
	}
}

// faultRun is a lab whose objects change all the time.
type faultRun struct {
	*lab
	churn  *crash.Churn
	ledger *truth.Ledger
}

func newFaultRun(t *testing.T, c *cluster) *faultRun {
	t.Helper()
	return &faultRun{lab: newLab(t, c)}
}

func (f *faultRun) collections() []truth.Collection {
	return []truth.Collection{
		truth.Core("pods", f.namespace), truth.Named("deployments", "apps", "v1", f.namespace), truth.Core("configmaps", f.namespace),
	}
}

// faulted prepares the bridge, and has a witness begin with it, for which what exists by now is the
// first snapshot.
func (f *faultRun) faulted(more ...func(*harness.BridgeConfig)) *harness.Bridge {
	f.t.Helper()
	f.ledger = f.witness(f.collections()...)
	return f.bridge("bridge", `informers: [{name: app, resources: [pods, deployments.apps, configmaps], namespaces: ["${NS}"]}]`+embedded+alsoBucket, more...)
}

// wire lets the bridge reach the API server through a wire.
func (f *faultRun) wire() *faults.Wire {
	f.t.Helper()
	server, err := url.Parse(f.Server)
	must(f.t, err)
	w, err := faults.NewWire(server.Host)
	must(f.t, err)
	f.t.Cleanup(w.Stop)
	must(f.t, f.WriteKubeconfigThrough(f.kubeconfig(), "https://"+w.Address(), f.Admin().CAData, f.Token))
	return w
}

// front lets the bridge reach the API server through a front.
func (f *faultRun) front() *faults.Front {
	f.t.Helper()
	p, err := faults.NewFront(f.Admin())
	must(f.t, err)
	f.t.Cleanup(p.Stop)
	must(f.t, f.WriteKubeconfigThrough(f.kubeconfig(), p.URL, p.CA(), f.Token))
	return p
}

// change begins to change everything.
func (f *faultRun) change() {
	f.churn = crash.StartChurn(f.ctx, f.client, f.namespace, rand.Uint64(), 1)
	f.t.Cleanup(func() { _ = f.churn.Stop() }) // calm has reported its error
}

// calm ends the changes.
func (f *faultRun) calm() {
	f.t.Helper()
	must(f.t, f.churn.Stop())
}

// exact waits until the stream is what the witness saw, and fails when the bridge reported a gap.
// That its first list was broken off and begun again is none of what a witness sees.
func (f *faultRun) exact(b *harness.Bridge) []read.Event {
	f.t.Helper()
	const patience = 2 * time.Minute // after failures in a row a request is tried again after up to a minute
	began := time.Now()
	events := f.completeWithin(patience, "all changes", jetStream(b), f.ledger, check.Options{Informers: informerOf("app", f.collections()...)})
	f.awaitBucket(b, f.exist())
	if reported := gapEvents(events); len(reported) > 0 {
		f.t.Errorf("%d gaps were reported: %s", len(reported), reported[0].Data())
	}
	f.t.Logf("lost 0, reordered 0, twice 0 of %d changes; the last came %v after the end of the changes", len(f.ledger.Changes()), time.Since(began).Round(10*time.Millisecond))
	return events
}

// gapEvents are those that report a gap after the first list.
func gapEvents(events []read.Event) (reported []read.Event) {
	for i := range events {
		if events[i].Type() == "dev.kubebridge.informer.gap" && !strings.Contains(string(events[i].Data()), `"reason":"interrupted"`) {
			reported = append(reported, events[i])
		}
	}
	return reported
}

// changeBig changes large objects until ctx ends: most bytes are theirs, so that connections are
// cut amid them.
func (f *faultRun) changeBig(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		patch := fmt.Appendf(nil, `{"data":{"round":"%d","value":%q}}`, i, strings.Repeat(fmt.Sprint(i%10), 50_000))
		_, _ = f.client.CoreV1().ConfigMaps(f.namespace).Patch(ctx, "big", types.MergePatchType, patch, metav1.PatchOptions{}) // it comes again
		time.Sleep(50 * time.Millisecond)
	}
}

// A connection is cut after a random number of bytes: while the bridge asks what there is, in its
// first lists, between and amid events.
func connectionsAreCut(f *faultRun) {
	const objects, cuts = 150, 8
	f.each(objects, func(i int) { f.createConfigMap(fmt.Sprintf("unchanged-%d", i), strings.Repeat("x", 2000)) })
	f.createConfigMap("big", "0")
	w := f.wire()
	b := f.faulted()
	// The first ones can't hold the list of the config maps.
	w.CutAfter(func(cuts int) int64 {
		if cuts < 2 {
			return 100_000 + rand.Int64N(150_000)
		}
		return 400_000 + rand.Int64N(400_000)
	})
	f.start(b)
	inLists := w.Cuts()

	w.CutAfter(func(int) int64 { return 1 + rand.Int64N(400_000) })
	f.change()
	big, stop := context.WithCancel(f.ctx)
	done := make(chan struct{})
	go func() { defer close(done); f.changeBig(big) }()
	time.Sleep(*faultsTime)
	eventually(f.t, "enough cuts", 2*time.Minute, func() []string {
		if n := w.Cuts() - inLists; n < cuts {
			return []string{fmt.Sprintf("%d cuts of %d", n, cuts)}
		}
		return nil
	})
	stop()
	<-done
	f.calm()
	total := w.Cuts()
	w.CutAfter(nil)
	f.exact(b)
	amid := strings.Count(b.Log.String(), "in the middle of an object")
	f.t.Logf("%d cuts before everything was listed, %d later; %d times a reader was amid an object", inLists, total-inLists, amid)
	if inLists == 0 || amid == 0 {
		f.t.Errorf("%d cuts in lists, %d amid an object: the test shows nothing", inLists, amid)
	}
	f.stop(b)
}

// healthChecks are client-go's settings of how soon HTTP/2 asks whether a silent connection is
// alive, which is half a minute by default.
func healthChecks(c *harness.BridgeConfig) {
	c.Env["HTTP2_READ_IDLE_TIMEOUT_SECONDS"], c.Env["HTTP2_PING_TIMEOUT_SECONDS"] = "1", "1"
}

func connectionsGoSilent(f *faultRun) {
	const silences = 3
	w := f.wire()
	b := f.faulted(healthChecks)
	f.start(b)
	f.change()
	for i := range silences {
		time.Sleep(*faultsTime / silences)
		made, deaf := w.Made(), time.Now()
		w.Deafen()
		eventually(f.t, "another connection", testPatience, func() []string {
			if w.Made() == made {
				return []string{"none was made"}
			}
			return nil
		})
		f.t.Logf("silence %d was noticed after %v", i+1, time.Since(deaf).Round(10*time.Millisecond))
	}
	f.calm()
	f.exact(b)
	f.stop(b)
}
