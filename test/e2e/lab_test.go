package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/bridge/test/e2e/check"
	"github.com/kubebridge/bridge/test/e2e/harness"
	"github.com/kubebridge/bridge/test/e2e/read"
	"github.com/kubebridge/bridge/test/e2e/truth"
)

// clusterName is what the bridges of all tests call their cluster.
const clusterName = "e2e"

// lab is the part of a cluster that belongs to one test: a namespace, and an identity for its
// bridge.
type lab struct {
	*cluster
	*harness.Identity
	t         *testing.T
	ctx       context.Context
	namespace string
	dir       string
	began     time.Time
}

func newLab(t *testing.T, c *cluster) *lab {
	t.Helper()
	l := &lab{cluster: c, t: t, ctx: t.Context(), dir: t.TempDir(), began: time.Now()}
	ns, err := c.client.CoreV1().Namespaces().Create(l.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"}}, metav1.CreateOptions{})
	must(t, err)
	l.namespace = ns.Name
	l.Identity, err = c.NewIdentity(l.ctx, l.namespace, "bridge", harness.ReadEverything()...)
	must(t, err)
	must(t, c.WriteKubeconfig(l.kubeconfig(), l.Token))
	if c.controllers {
		l.waitFurnished()
	}
	return l
}

// waitFurnished waits until the controllers have made what every namespace has, so that nothing
// changes from then on but by the test.
func (l *lab) waitFurnished() {
	l.t.Helper()
	eventually(l.t, "a new namespace", time.Minute, func() []string {
		_, mapErr := l.client.CoreV1().ConfigMaps(l.namespace).Get(l.ctx, "kube-root-ca.crt", metav1.GetOptions{})
		_, accountErr := l.client.CoreV1().ServiceAccounts(l.namespace).Get(l.ctx, "default", metav1.GetOptions{})
		if err := errors.Join(mapErr, accountErr); err != nil {
			return []string{err.Error()}
		}
		return nil
	})
}

func (l *lab) kubeconfig() string { return filepath.Join(l.dir, "kubeconfig") }

// embedded is a sink that runs the embedded NATS server; most tests have it.
const embedded = `
sinks:
  - {name: js, nats: {servers: ["nats://${NATS_ADDRESS}"], embedded: true}}
`

// bridge prepares a bridge with the lab's identity. ${NS} in the configuration is the lab's
// namespace. It is killed at the end of the test at the latest; a panic or a data race in it fails
// the test.
func (l *lab) bridge(name, yaml string, change ...func(*harness.BridgeConfig)) *harness.Bridge {
	l.t.Helper()
	binary, err := bridgeBinary()
	must(l.t, err)
	cfg := harness.BridgeConfig{
		Binary: binary, Dir: filepath.Join(l.dir, name), Kubeconfig: l.kubeconfig(), Cluster: clusterName,
		YAML: yaml, Env: map[string]string{"NS": l.namespace},
	}
	for _, c := range change {
		c(&cfg)
	}
	b, err := harness.NewBridge(cfg)
	must(l.t, err)
	l.t.Cleanup(func() { l.finish(name, b) })
	return b
}

// with sets variables for the configuration.
func with(variables map[string]string) func(*harness.BridgeConfig) {
	return func(c *harness.BridgeConfig) { maps.Copy(c.Env, variables) }
}

// withLogLevel sets how much the bridge logs.
func withLogLevel(level string) func(*harness.BridgeConfig) {
	return func(c *harness.BridgeConfig) { c.LogLevel = level }
}

func (l *lab) finish(name string, b *harness.Bridge) {
	if b.Process != nil {
		b.Kill()
	}
	if _, others := b.Log.Entries(); strings.Contains(strings.Join(others, "\n"), "DATA RACE") || strings.Contains(strings.Join(others, "\n"), "goroutine ") {
		l.t.Errorf("bridge %s panicked or has a data race:\n%s", name, strings.Join(others, "\n"))
	}
	if l.t.Failed() {
		file := filepath.Join(l.t.ArtifactDir(), name+".log")
		l.t.Logf("the end of the log of bridge %s, all of it with -artifacts:\n%s", name, b.Log.Tail(25))
		if err := os.WriteFile(file, []byte(b.Log.String()), 0o600); err != nil {
			l.t.Log(err)
		}
	}
}

// start starts a bridge and waits until it is ready.
func (l *lab) start(b *harness.Bridge) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.ctx, startTime)
	defer cancel()
	must(l.t, b.StartAndWait(ctx))
}

// stop ends a bridge by SIGTERM, which has to be clean.
func (l *lab) stop(b *harness.Bridge) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.ctx, testPatience)
	defer cancel()
	code, err := b.Stop(ctx)
	must(l.t, err)
	if code != 0 {
		l.t.Fatalf("the bridge ended with exit code %d after SIGTERM", code)
	}
}

// witness watches collections from now until the end of the test.
func (l *lab) witness(collections ...truth.Collection) *truth.Ledger {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.ctx, testPatience)
	defer cancel()
	ledger, err := truth.Watch(ctx, l.Admin(), collections...)
	must(l.t, err)
	l.t.Cleanup(ledger.Stop)
	return ledger
}

// reader reads what a sink holds.
type reader interface {
	Refresh(ctx context.Context) ([]read.Event, error)
}

func jetStream(b *harness.Bridge) *read.JetStream { return &read.JetStream{URL: b.NATS, Stream: "K8S"} }

// informerOf says that all resources belong to one informer.
func informerOf(name string, collections ...truth.Collection) map[string]string {
	informers := map[string]string{}
	for _, c := range collections {
		informers[c.String()] = name
	}
	return informers
}

// complete waits until a sink holds what the witness saw, exactly, and fails with what is wrong
// when that does not happen.
func (l *lab) complete(what string, r reader, ledger *truth.Ledger, o check.Options) []read.Event {
	l.t.Helper()
	return l.completeWithin(testPatience, what, r, ledger, o)
}

func (l *lab) completeWithin(patience time.Duration, what string, r reader, ledger *truth.Ledger, o check.Options) []read.Event {
	l.t.Helper()
	o.Cluster, o.Began = clusterName, l.began
	var events []read.Event
	eventually(l.t, what, patience, func() (problems []string) {
		var err error
		if events, err = r.Refresh(l.ctx); err != nil {
			return []string{err.Error()}
		}
		return check.Compare(ledger.Changes(), events, o)
	})
	must(l.t, ledger.Err())
	return events
}

// A busy machine may be slow, and a test that passes waits for none of these.
const (
	// testPatience is how long a test waits for something that should be there in a moment.
	testPatience = time.Minute
	// startTime is for a bridge or a control plane to become ready.
	startTime = 5 * time.Minute
)

// saysNotReady waits until a running bridge reports that one of its parts is not ready, with a
// reason that has the given words in it.
func (l *lab) saysNotReady(b *harness.Bridge, part string, words ...string) {
	l.t.Helper()
	eventually(l.t, "the bridge reports "+part, testPatience, func() []string {
		if !b.Running() {
			l.t.Fatalf("the bridge ended; it wrote:\n%s", b.Log.Tail(10))
		}
		r, err := b.Readiness(l.ctx)
		if err != nil {
			return []string{err.Error()}
		}
		for _, reason := range r.Reasons {
			if reason.What == part && containsAll(reason.Message, words) {
				return nil
			}
		}
		return []string{fmt.Sprintf("want a reason of %q with %q, got %+v", part, words, r)}
	})
}

func containsAll(text string, words []string) bool {
	return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) })
}

// eventually tries until there are no problems, or for so long.
func eventually(t *testing.T, what string, patience time.Duration, problems func() []string) {
	t.Helper()
	const pause, most = 100 * time.Millisecond, 12
	for deadline := time.Now().Add(patience); ; time.Sleep(pause) {
		began := time.Now() // a look may take long, and sees what was there when it began
		found := problems()
		if len(found) == 0 {
			return
		}
		if began.After(deadline) {
			t.Fatalf("%s: %d problems after %v, among them:\n%s", what, len(found), patience, strings.Join(found[:min(len(found), most)], "\n"))
		}
	}
}
