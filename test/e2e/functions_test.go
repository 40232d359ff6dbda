package e2e_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubebridge/bridge/test/e2e/harness"
)

var (
	functionChanges = flag.Int("functions.changes", 1000, "how many changes the functions get while everything is killed")
	functionKills   = flag.Int("functions.kills", 20, "how often the bridge is killed, and each function")
)

const functionSinks = `
informers: [{name: app, resources: [configmaps], namespaces: ["${NS}"], snapshot: never}]
sinks:
  - {name: js, nats: {servers: ["nats://${NATS_ADDRESS}"], embedded: true}}
  - {name: kafka, kafka: {brokers: ["${KAFKA}"], createTopics: {partitions: 4, replicationFactor: 1}}}
  - name: function
    http: {url: "http://${FUNCTION}/", deadLetterURL: "http://${FUNCTION}/dead"}
    retry: {initial: 20ms, max: 200ms, maxAttempts: 5}
  - name: batches
    encoding: structured
    http: {url: "http://${BATCHES}/", deadLetterURL: "http://${BATCHES}/dead", batch: 20, timeout: 1s}
    retry: {initial: 20ms, max: 200ms, maxAttempts: 5}
`

// sentChange is a change that the test has made.
type sentChange struct {
	name, version string
	poison        bool
	at            time.Time
}

// functionTest is a bridge with a function on each transport.
type functionTest struct {
	*lab
	bridge    *harness.Bridge
	functions []*functionProcess
	random    *rand.Rand

	mu   sync.Mutex
	sent []sentChange // guarded by mu
}

// Functions on HTTP, with batches too, JetStream and Kafka handle each change, in order for each
// object, while they and the bridge are killed, some events are poison, and 18 objects hang. While
// nothing is killed, no other object waits for those that hang. Each poison event is a dead letter
// with its reason.
func TestFunctions(t *testing.T) {
	if testing.Short() {
		t.Skip("it kills everything 20 times; make test-functions")
	}
	l := newLab(t, live(t))
	address, err := harness.FreeAddress()
	must(t, err)
	batches, err := harness.FreeAddress()
	must(t, err)
	broker := startKafka(t).ListenAddrs()[0]
	f := &functionTest{lab: l, random: rand.New(rand.NewPCG(1, 2))}
	f.bridge = l.bridge("bridge", functionSinks, with(map[string]string{"KAFKA": broker, "FUNCTION": address, "BATCHES": batches}))
	f.functions = append(f.functions, l.function(overHTTP, address), l.function(overBatches, batches))
	l.start(f.bridge)
	f.functions = append(f.functions, l.function(overNATS, strings.TrimPrefix(f.bridge.NATS, "nats://")), l.function(overKafka, broker))

	for i := range 18 {
		l.createConfigMap(fmt.Sprint(hangsAt, i), "1")
	}
	f.change(300, 50*time.Millisecond)
	f.awaitAll()
	f.requireSpeed(5 * time.Second)

	done := make(chan struct{})
	go func() {
		defer close(done)
		f.change(*functionChanges, 60*time.Millisecond)
	}()
	for range *functionKills {
		for _, p := range f.functions {
			p.kill()
			time.Sleep(time.Duration(f.random.IntN(300)) * time.Millisecond)
			p.start()
		}
		f.bridge.Kill()
		time.Sleep(time.Duration(f.random.IntN(300)) * time.Millisecond)
		must(t, f.bridge.Start())
		time.Sleep(time.Second + time.Duration(f.random.IntN(1000))*time.Millisecond)
	}
	<-done
	f.awaitAll()
	f.gather()
	f.awaitAll()
	f.requireOrder()
	f.requireDeadLetters()
	f.requireBatches()
}

// gather changes more objects than there are requests at a time, while the function with batches
// answers none.
func (f *functionTest) gather() {
	f.t.Helper()
	i := slices.IndexFunc(f.functions, func(p *functionProcess) bool { return p.transport == overBatches })
	function := f.functions[i].cmd.Process
	must(f.t, function.Signal(syscall.SIGSTOP))
	f.change(20, 0)
	time.Sleep(300 * time.Millisecond)
	must(f.t, function.Signal(syscall.SIGCONT))
}

// change updates objects at random. One change of a hundred is poison.
func (f *functionTest) change(n int, pause time.Duration) {
	for i := range n {
		name := fmt.Sprint("map-", i%20)
		value := fmt.Sprint(i)
		isPoison := i%100 == 50
		if isPoison {
			value = poison
		}
		version := f.write(name, value)
		f.mu.Lock()
		f.sent = append(f.sent, sentChange{name, version, isPoison, time.Now()})
		f.mu.Unlock()
		time.Sleep(pause)
	}
}

// write creates or updates an object, and returns its version.
func (f *functionTest) write(name, value string) string {
	maps := f.client.CoreV1().ConfigMaps(f.namespace)
	patch := fmt.Appendf(nil, `{"data":{"value":%q}}`, value)
	m, err := maps.Patch(f.ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		m, err = maps.Create(f.ctx, configMap(name, map[string]string{"value": value}), metav1.CreateOptions{})
	}
	if err != nil {
		f.t.Error(err)
		return ""
	}
	return m.ResourceVersion
}

// ofObjects are the effects of a function at objects that do not hang, by name and version.
func (f *functionTest) ofObjects(p *functionProcess) map[string]effect {
	found := map[string]effect{}
	for _, e := range p.effects(f.t) {
		if !strings.HasPrefix(e.name, hangsAt) {
			found[e.name+" "+e.version] = e
		}
	}
	return found
}

func (f *functionTest) all() []sentChange {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.sent)
}

// awaitAll waits until each function has an effect for each change.
func (f *functionTest) awaitAll() {
	f.t.Helper()
	for _, p := range f.functions {
		eventually(f.t, "every change over "+p.transport, 2*time.Minute, func() (missing []string) {
			found := f.ofObjects(p)
			for _, c := range f.all() {
				if _, ok := found[c.name+" "+c.version]; !ok {
					missing = append(missing, c.name+" "+c.version)
				}
			}
			return missing
		})
	}
}

// requireSpeed checks how long each change has waited for its function. One in a batch that hangs
// waits for the timeout of the request too.
func (f *functionTest) requireSpeed(limit time.Duration) {
	f.t.Helper()
	for _, p := range f.functions {
		found, slowest, most := f.ofObjects(p), time.Duration(0), limit
		if p.transport == overBatches {
			most += time.Second
		}
		for _, c := range f.all() {
			took := found[c.name+" "+c.version].at.Sub(c.at)
			if slowest = max(slowest, took); took > most {
				f.t.Errorf("over %s, %s in version %s waited %v", p.transport, c.name, c.version, took)
			}
		}
		f.t.Logf("over %s the slowest of %d changes waited %v", p.transport, len(found), slowest)
	}
}

// requireOrder checks that the effects at each object are in the order of its changes, each once.
func (f *functionTest) requireOrder() {
	f.t.Helper()
	want := map[string][]string{}
	for _, c := range f.all() {
		want[c.name] = append(want[c.name], c.version)
	}
	for _, p := range f.functions {
		got := map[string][]string{}
		for _, e := range p.effects(f.t) {
			if !strings.HasPrefix(e.name, hangsAt) {
				got[e.name] = append(got[e.name], e.version)
			}
		}
		for name, versions := range want {
			if !slices.Equal(got[name], versions) {
				f.t.Errorf("over %s, %s had the effects %v, want %v", p.transport, name, got[name], versions)
			}
		}
	}
}

// requireBatches checks that events came together.
func (f *functionTest) requireBatches() {
	f.t.Helper()
	largest, err := os.ReadFile(filepath.Join(f.dir, "effects-"+overBatches+largestBatch))
	must(f.t, err)
	if string(largest) == "1" {
		f.t.Error("no request had two events")
	}
	f.t.Logf("the largest batch had %s events", largest)
}

// requireDeadLetters checks that all poison, and nothing else, is a dead letter with its reason.
func (f *functionTest) requireDeadLetters() {
	f.t.Helper()
	for _, p := range f.functions {
		found, letters := f.ofObjects(p), 0
		for _, c := range f.all() {
			reason := found[c.name+" "+c.version].reason
			if isLetter := strings.HasPrefix(reason, "given up after 5 attempts"); isLetter != c.poison {
				f.t.Errorf("over %s, %s in version %s has the reason %q, and is poison: %v", p.transport, c.name, c.version, reason, c.poison)
			}
			if c.poison {
				letters++
			}
		}
		f.t.Logf("over %s: %d changes, %d dead letters", p.transport, len(f.all()), letters)
	}
}
