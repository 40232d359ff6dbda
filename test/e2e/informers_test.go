package e2e_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"

	"github.com/kubebridge/bridge/client"
	"github.com/kubebridge/bridge/test/e2e/crash"
	"github.com/kubebridge/bridge/test/e2e/truth"
)

// transcript is what an informer has reported of each object, in order.
type transcript struct {
	mu    sync.Mutex
	lines map[string][]string // guarded by mu
}

func (s *transcript) note(name, line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines[name] = append(s.lines[name], line)
}

func (s *transcript) OnAdd(obj any, _ bool) {
	m := obj.(*corev1.ConfigMap)
	s.note(m.Name, "add "+m.ResourceVersion)
}

func (s *transcript) OnUpdate(_, obj any) {
	m := obj.(*corev1.ConfigMap)
	s.note(m.Name, "update "+m.ResourceVersion)
}

func (s *transcript) OnDelete(obj any) {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	s.note(obj.(*corev1.ConfigMap).Name, "delete") // in the last version that it had
}

// all is a copy. Lines that are there do not change.
func (s *transcript) all() map[string][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.lines)
}

// follow starts an informer of ConfigMaps.
func follow(t *testing.T, lw cache.ListerWatcher) (cache.SharedIndexInformer, *transcript) {
	t.Helper()
	informer := cache.NewSharedIndexInformer(lw, &corev1.ConfigMap{}, 0, cache.Indexers{})
	reported := &transcript{lines: map[string][]string{}}
	_, err := informer.AddEventHandler(reported)
	must(t, err)
	go informer.Run(t.Context().Done())
	if !cache.WaitForCacheSync(t.Context().Done(), informer.HasSynced) {
		t.Fatal("the informer has not synced")
	}
	return informer, reported
}

// storeProblems are the differences between two stores.
func storeProblems(want, got cache.Store) (problems []string) {
	keys := slices.Concat(want.ListKeys(), got.ListKeys())
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		direct, inDirect, _ := want.GetByKey(key)
		ours, inOurs, _ := got.GetByKey(key)
		if !inDirect || !inOurs {
			problems = append(problems, fmt.Sprintf("%s: at the API server %v, here %v", key, inDirect, inOurs))
			continue
		}
		of := direct.(*corev1.ConfigMap).DeepCopy()
		of.ManagedFields = nil
		if !equality.Semantic.DeepEqual(of, ours) {
			problems = append(problems, fmt.Sprintf("%s: %+v\nwant %+v", key, ours, of))
		}
	}
	return problems
}

// An informer on what the bridge has stored has in the end what one on the API server has, also
// after the bridge was killed. On a stream, which has every version, both report the same of each
// object.
func TestInformersOnStoredState(t *testing.T) {
	t.Parallel()
	l := newLab(t, live(t))
	l.each(20, func(i int) { l.createConfigMap(fmt.Sprintf("before-%d", i), "value") })
	b := l.bridge("bridge", configMaps+embedded+alsoBucket)
	l.start(b)
	nc, err := nats.Connect(jetStream(b).URL, nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
	must(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	must(t, err)
	l.awaitBucket(b, l.exists([]truth.Collection{truth.Core("configmaps", l.namespace)}))

	direct, directReported := follow(t, cache.NewListWatchFromClient(l.client.CoreV1().RESTClient(), "configmaps", l.namespace, fields.Everything()))
	informers := map[string]cache.SharedIndexInformer{}
	var streamReported *transcript
	for name, source := range map[string]client.Source{
		"bucket": client.Bucket(js, "NOW"), "stream": client.Stream(js, "K8S"),
	} {
		c := client.New(source)
		go func() { _ = c.Run(t.Context()) }()
		lw, err := c.ListerWatcher(t.Context(), schema.GroupResource{Resource: "configmaps"},
			client.Options{Scheme: scheme.Scheme})
		must(t, err)
		var reported *transcript
		if informers[name], reported = follow(t, lw); name == "stream" {
			streamReported = reported
		}
	}
	churn := crash.StartChurn(l.ctx, l.client, l.namespace, rand.Uint64(), 1)
	time.Sleep(3 * time.Second)
	b.Kill()
	time.Sleep(time.Second)
	l.start(b)
	time.Sleep(2 * time.Second)
	must(t, churn.Stop())

	for name, informer := range informers {
		eventually(t, "the informer on the "+name, testPatience, func() []string {
			return storeProblems(direct.GetStore(), informer.GetStore())
		})
	}
	changes, objects := 0, 0
	// Handlers are called after the store has changed.
	eventually(t, "what the informers reported", testPatience, func() (problems []string) {
		want, reported := directReported.all(), streamReported.all()
		changes, objects = 0, len(reported)
		for name, lines := range want {
			changes += len(lines)
			if !slices.Equal(reported[name], lines) {
				problems = append(problems, fmt.Sprintf("%s: %q\nwant %q", name, reported[name], lines))
			}
		}
		return problems
	})
	if changes < 100 {
		t.Errorf("only %d changes: the test shows nothing", changes)
	}
	t.Logf("%d changes of %d objects", changes, objects)
}
