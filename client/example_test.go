package client_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kgo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"

	"github.com/kubebridge/bridge/client"
)

// An informer of Pods that reads a bucket in place of an API server.
func Example() {
	js, stop := exampleBucket() // yours: a connection to the NATS server that the bridge writes to
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	c := client.New(client.Bucket(js, "K8S"))
	go c.Run(ctx)
	lw, err := c.ListerWatcher(ctx, schema.GroupResource{Resource: "pods"},
		client.Options{Scheme: scheme.Scheme})
	if err != nil {
		fmt.Println(err)
		return
	}
	informer := cache.NewSharedIndexInformer(lw, &corev1.Pod{}, 0, cache.Indexers{})
	go informer.Run(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return
	}
	for _, obj := range informer.GetStore().List() {
		pod := obj.(*corev1.Pod)
		fmt.Println(pod.Namespace, pod.Name, "is on", pod.Spec.NodeName)
	}
	// Output: shop web is on node-1
}

// The same from compacted topics of Kafka.
func ExampleView() {
	connection, err := kgo.NewClient(kgo.SeedBrokers("kafka:9092")) // yours, with its credentials
	if err != nil {
		fmt.Println(err)
		return
	}
	defer connection.Close()
	c := client.New(client.View(connection, "k8s.prod.pods", "k8s.prod.nodes"))
	_ = c // as above
}

// exampleBucket is what the bridge makes, with one Pod.
func exampleBucket() (jetstream.JetStream, func()) {
	dir := exampleDir()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: dir, NoSigs: true,
		NoLog: true,
	})
	if err != nil {
		panic(err)
	}
	s.Start()
	s.ReadyForConnections(patience)
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		panic(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		panic(err)
	}
	b := &broker{t: exampleTB{}, js: js, kind: "bucket"}
	b.create()
	b.put("web")
	b.synced(1)
	return js, func() {
		nc.Close()
		s.Shutdown()
		s.WaitForShutdown()
		_ = os.RemoveAll(dir)
	}
}
