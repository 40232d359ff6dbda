package controllerruntime_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubebridge/bridge/client"
)

const patience = 30 * time.Second

// mapper knows the resource of a Pod, as discovery would.
func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	m.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	return m
}

// newInformer is all that a program changes: the cache's informers list and watch the source.
func newInformer(
	ctx context.Context, c *client.Client, mapper meta.RESTMapper,
) func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer {
	return func(
		api toolscache.ListerWatcher, obj runtime.Object, resync time.Duration, indexers toolscache.Indexers,
	) toolscache.SharedIndexInformer {
		lw, err := listerWatcher(ctx, c, mapper, obj)
		if err != nil {
			panic(err) // or the API server's: return NewSharedIndexInformer(api, …)
		}
		return toolscache.NewSharedIndexInformer(lw, obj, resync, indexers)
	}
}

func listerWatcher(
	ctx context.Context, c *client.Client, mapper meta.RESTMapper, obj runtime.Object,
) (*client.ListerWatcher, error) {
	kind, err := apiutil.GVKForObject(obj, scheme.Scheme)
	if err != nil {
		return nil, err
	}
	mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	options := client.Options{Scheme: scheme.Scheme}
	if _, ok := obj.(runtime.Unstructured); ok {
		options.Scheme = nil
	}
	return c.ListerWatcher(ctx, mapping.Resource.GroupResource(), options)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// bucket is a bucket in a NATS server that a test fills as the bridge does.
type bucket struct {
	t       *testing.T
	js      jetstream.JetStream
	version int
}

func newBucket(t *testing.T) *bucket {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(),
		NoSigs: true, NoLog: true,
	})
	must(t, err)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(patience) {
		t.Fatal("nats-server does not become ready")
	}
	nc, err := nats.Connect(s.ClientURL())
	must(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	must(t, err)
	_, err = js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "K8S"})
	must(t, err)
	return &bucket{t: t, js: js}
}

func (b *bucket) send(key, typ, id, name, data string) {
	b.t.Helper()
	m := nats.NewMsg("$KV.K8S." + key)
	m.Data = []byte(data)
	for attribute, text := range map[string]string{
		"specversion": "1.0", "source": "/clusters/test", "informer": "all", "apiversion": "v1",
		"resource": "pods", "sequence": fmt.Sprintf("00000000.%020d", b.version), "type": typ, "id": id,
		"resourceversion": fmt.Sprint(b.version), "namespace": "shop", "name": name, "uid": "uid-" + name,
	} {
		if name != "" || attribute != "namespace" && attribute != "name" && attribute != "uid" {
			m.Header["ce-"+attribute] = []string{text}
		}
	}
	if typ == client.TypeDeleted {
		m.Header["KV-Operation"] = []string{"DEL"}
	}
	_, err := b.js.PublishMsg(b.t.Context(), m)
	must(b.t, err)
}

// put makes or changes a Pod, on a node named after the version.
func (b *bucket) put(name string) {
	b.t.Helper()
	b.version++
	b.send("core.pods.shop."+name, client.TypeUpdated, fmt.Sprintf("uid-%s/%d", name, b.version), name,
		fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":"shop","uid":"uid-%s",`+
			`"resourceVersion":"%d"},"spec":{"nodeName":"node-%[3]d"}}`, name, name, b.version))
}

func (b *bucket) delete(name string) {
	b.t.Helper()
	b.version++
	b.send("core.pods.shop."+name, client.TypeDeleted, "uid-"+name+"/deleted", name, "")
}

func (b *bucket) synced(items int) {
	b.t.Helper()
	b.version++
	b.send("_informers.all.pods.synced", client.TypeSynced, fmt.Sprintf("all/pods/synced/%d", b.version), "",
		fmt.Sprintf(`{"items":%d}`, items))
}

// noAPIServer fails the test when somebody asks it.
func noAPIServer(t *testing.T) *rest.Config {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("the API server was asked: %s %s", r.Method, r.URL)
		http.NotFound(w, r)
	}))
	t.Cleanup(s.Close)
	return &rest.Config{Host: s.URL}
}

func run(t *testing.T, b *bucket) *client.Client {
	t.Helper()
	c := client.New(client.Bucket(b.js, "K8S"))
	go func() { _ = c.Run(t.Context()) }()
	return c
}

func await(t *testing.T, what string, isTrue func() bool) {
	t.Helper()
	for began := time.Now(); !isTrue(); time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatalf("%s: not after %v", what, patience)
		}
	}
}

func TestCache(t *testing.T) {
	b := newBucket(t)
	b.put("a")
	b.put("b")
	b.synced(2)
	made, err := cache.New(noAPIServer(t), cache.Options{
		Scheme: scheme.Scheme, Mapper: mapper(), NewInformer: newInformer(t.Context(), run(t, b), mapper()),
	})
	must(t, err)
	must(t, made.IndexField(t.Context(), &corev1.Pod{}, "node", func(obj ctrlclient.Object) []string {
		return []string{obj.(*corev1.Pod).Spec.NodeName}
	}))
	go func() { _ = made.Start(t.Context()) }()
	if !made.WaitForCacheSync(t.Context()) {
		t.Fatal("the cache has not synced")
	}
	key := ctrlclient.ObjectKey{Namespace: "shop", Name: "a"}

	t.Run("typed objects are got, and listed by an index", func(t *testing.T) {
		var pod corev1.Pod
		must(t, made.Get(t.Context(), key, &pod))
		var list corev1.PodList
		must(t, made.List(t.Context(), &list, ctrlclient.InNamespace("shop"), ctrlclient.MatchingFields{"node": "node-2"}))
		if pod.Spec.NodeName != "node-1" || len(list.Items) != 1 || list.Items[0].Name != "b" {
			t.Errorf("got %s on %s, listed %v", pod.Name, pod.Spec.NodeName, list.Items)
		}
	})
	t.Run("unstructured objects have an informer of their own", func(t *testing.T) {
		pod := &unstructured.Unstructured{}
		pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
		must(t, made.Get(t.Context(), key, pod))
		if node, _, _ := unstructured.NestedString(pod.Object, "spec", "nodeName"); node != "node-1" {
			t.Errorf("got %v", pod.Object)
		}
	})
	t.Run("changes and deletes arrive", func(t *testing.T) {
		b.put("a")
		b.delete("b")
		await(t, "the change and the delete", func() bool {
			var a, gone corev1.Pod
			must(t, made.Get(t.Context(), key, &a))
			err := made.Get(t.Context(), ctrlclient.ObjectKey{Namespace: "shop", Name: "b"}, &gone)
			return a.Spec.NodeName == "node-4" && apierrors.IsNotFound(err)
		})
	})
}

// A controller reconciles what the bucket says. Its manager asks no API server.
func TestManager(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	b := newBucket(t)
	b.put("a")
	b.synced(1)
	config := noAPIServer(t)
	c := run(t, b)
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme.Scheme, Metrics: metricsserver.Options{BindAddress: "0"},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mapper(), nil },
		Cache:          cache.Options{NewInformer: newInformer(t.Context(), c, mapper())},
	})
	must(t, err)
	seen := make(chan string, 100)
	must(t, ctrl.NewControllerManagedBy(manager).For(&corev1.Pod{}).Complete(reconcile.Func(
		func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
			var pod corev1.Pod
			err := manager.GetClient().Get(ctx, request.NamespacedName, &pod)
			if apierrors.IsNotFound(err) {
				seen <- request.Name + " is gone"
				return reconcile.Result{}, nil
			}
			seen <- pod.Name + " is on " + pod.Spec.NodeName
			return reconcile.Result{}, err
		})))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	wait := func(want string) {
		t.Helper()
		for {
			select {
			case got := <-seen:
				if got == want {
					return
				}
			case <-time.After(patience):
				t.Fatalf("not reconciled: %s", want)
			}
		}
	}
	wait("a is on node-1")
	b.put("a")
	wait("a is on node-3")
	b.put("b")
	wait("b is on node-4")
	b.delete("a")
	wait("a is gone")
	stop()
	must(t, <-ended)
}
