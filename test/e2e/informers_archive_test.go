package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"

	"github.com/kubebridge/bridge/client"
	"github.com/kubebridge/bridge/test/e2e/crash"
)

// Informers on an archive end with what one on the API server has, over kills of the bridge that
// writes it and over a gap, and so do those of a client that begins then.
func TestInformersOnAnArchive(t *testing.T) {
	t.Parallel()
	l := newLab(t, ownCluster(t, "archive", noControllers, "--etcd-compaction-interval=0"))
	l.createConfigMap("deleted-in-the-gap", "1")
	b := l.bridge("bridge", configMaps+kept)
	l.start(b)
	config := l.served(b, "--live")
	direct, _ := follow(t, cache.NewListWatchFromClient(l.client.CoreV1().RESTClient(), "configmaps",
		l.namespace, fields.Everything()))
	informers := func() (list []cache.SharedIndexInformer) {
		t.Helper()
		c := client.New(client.Archive(config))
		go func() { _ = c.Run(t.Context()) }()
		for range 10 {
			lw, err := c.ListerWatcher(t.Context(), schema.GroupResource{Resource: "configmaps"},
				client.Options{Namespace: l.namespace, Scheme: scheme.Scheme})
			must(t, err)
			informer, _ := follow(t, lw)
			list = append(list, informer)
		}
		return list
	}
	archived := informers()
	equal := func(after string) {
		t.Helper()
		// client-go's informer may wait for a minute before it asks an API server again.
		for i, informer := range archived {
			eventually(t, fmt.Sprintf("informer %d after %s", i, after), 3*testPatience, func() []string {
				return storeProblems(direct.GetStore(), informer.GetStore())
			})
		}
	}
	churned := func(do func()) {
		t.Helper()
		churn := crash.StartChurn(l.ctx, l.client, l.namespace, rand.Uint64(), 1)
		time.Sleep(2 * time.Second)
		do()
		time.Sleep(time.Second)
		must(t, churn.Stop())
	}
	equal("the first list")
	churned(func() { b.Kill(); l.start(b) })
	equal("a kill of the bridge")

	b.Kill()
	churned(func() { l.deleteConfigMap("deleted-in-the-gap") })
	l.operate("compact")
	l.operate("restart-apiserver")
	l.start(b)
	eventually(t, "the gap", testPatience, func() []string {
		out, err := b.Output(l.ctx, "timeline", "-n", l.namespace, "--since", "1h")
		if err != nil || !strings.Contains(out, "gap") {
			return []string{out, fmt.Sprint(err)}
		}
		return nil
	})
	equal("a gap")
	archived = slices.Concat(archived, informers())
	churned(func() {})
	equal("more changes")
	if n := len(direct.GetStore().List()); n < 3 {
		t.Errorf("only %d objects: the test shows nothing", n)
	}
}
