package e2e_test

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
)

// goClients reads a cluster with each client of client-go and with the cache of controller-runtime,
// and returns the names of the pods that each of them has seen.
func (p *past) goClients(t *testing.T, cfg *rest.Config) map[string][]string {
	t.Helper()
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1
	seen := map[string][]string{}
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	for contentType, name := range map[string]string{"application/json": "typed", "application/vnd.kubernetes.protobuf": "typed with protobuf"} {
		typed := rest.CopyConfig(cfg)
		typed.ContentType, typed.AcceptContentTypes = contentType, contentType+",application/json"
		client, err := kubernetes.NewForConfig(typed)
		must(t, err)
		list, err := client.CoreV1().Pods(p.lab.namespace).List(t.Context(), metav1.ListOptions{})
		must(t, err)
		for _, o := range list.Items {
			seen[name] = append(seen[name], o.Name)
		}
		_, err = client.CoreV1().Secrets(p.lab.namespace).List(t.Context(), metav1.ListOptions{})
		must(t, err)
		p.informs(t, client)
	}
	for _, options := range []metav1.ListOptions{
		{},
		{Limit: 2},
		{ResourceVersion: "0"},
		{ResourceVersion: p.version, ResourceVersionMatch: metav1.ResourceVersionMatchExact},
		{ResourceVersion: p.version, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan},
		{ResourceVersion: "0", ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan},
		{LabelSelector: "app in (web,db),tier"},
		{LabelSelector: "!app"},
		{FieldSelector: "spec.nodeName=worker-1"},
		{FieldSelector: "status.phase!=Running"},
	} {
		client, err := dynamic.NewForConfig(cfg)
		must(t, err)
		list, err := client.Resource(pods).Namespace(p.lab.namespace).List(t.Context(), options)
		must(t, err)
		for i := range list.Items {
			seen["dynamic "+options.String()] = append(seen["dynamic "+options.String()], list.Items[i].GetName())
		}
		of, err := metadata.NewForConfig(cfg)
		must(t, err)
		partial, err := of.Resource(pods).Namespace(p.lab.namespace).List(t.Context(), options)
		must(t, err)
		for i := range partial.Items {
			seen["metadata "+options.String()] = append(seen["metadata "+options.String()], partial.Items[i].Name)
		}
	}
	p.discovers(t, cfg)
	seen["controller-runtime"] = p.cached(t, cfg)
	return seen
}

// informs runs informers of every kind that has one until they have synced, by WatchList.
func (p *past) informs(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	factory := informers.NewSharedInformerFactory(client, 0)
	factory.Core().V1().Pods().Informer()
	factory.Core().V1().Secrets().Informer()
	factory.Core().V1().Nodes().Informer()
	factory.Apps().V1().Deployments().Informer()
	factory.Batch().V1().Jobs().Informer()
	factory.Rbac().V1().ClusterRoles().Informer()
	factory.StartWithContext(ctx)
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			t.Errorf("the informer of %v has not synced", kind)
		}
	}
	stop()
	factory.Shutdown()
}

// discovers asks in both forms.
func (p *past) discovers(t *testing.T, cfg *rest.Config) {
	t.Helper()
	client, err := discovery.NewDiscoveryClientForConfig(cfg)
	must(t, err)
	_, _, err = client.ServerGroupsAndResources()
	must(t, err)
	client = client.WithLegacy().(*discovery.DiscoveryClient) //nolint:forcetypeassert // it is one
	_, _, err = client.ServerGroupsAndResources()
	must(t, err)
	_, err = client.OpenAPISchema()
	must(t, err)
}

// cached are the pods in a cache of controller-runtime.
func (p *past) cached(t *testing.T, cfg *rest.Config) (names []string) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	c, err := crcache.New(cfg, crcache.Options{DefaultNamespaces: map[string]crcache.Config{p.lab.namespace: {}}})
	must(t, err)
	ended := make(chan error, 1)
	go func() { ended <- c.Start(ctx) }()
	var pods corev1.PodList
	must(t, c.List(ctx, &pods))
	var secrets corev1.SecretList
	must(t, c.List(ctx, &secrets))
	for i := range pods.Items {
		names = append(names, pods.Items[i].Name)
	}
	stop()
	must(t, <-ended)
	slices.Sort(names)
	return names
}
