// Command clientgo is what the bridge is measured against: the program that somebody who knows
// client-go, the CloudEvents SDK and NATS writes to send every change of every pod to JetStream. It
// drops managedFields on arrival, publishes asynchronously, sets ids so that JetStream drops
// duplicates, and tries again when the client's window is full. It keeps no position: a restart
// lists everything.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"os/signal"
	"syscall"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig")
	url := flag.String("nats", "", "URL of the NATS server")
	typed := flag.Bool("typed", false, "typed informers instead of dynamic ones")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, *kubeconfig, *url, *typed); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, kubeconfig, url string, typed bool) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	p, err := newPublisher(ctx, url)
	if err != nil {
		return err
	}
	defer p.nc.Close()
	informer, err := newInformer(cfg, typed)
	if err != nil {
		return err
	}
	err = informer.SetTransform(func(obj any) (any, error) {
		if o, ok := obj.(metav1.Object); ok {
			o.SetManagedFields(nil)
		}
		return obj, nil
	})
	if err != nil {
		return err
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { p.send("added", obj) },
		UpdateFunc: func(_, obj any) { p.send("updated", obj) },
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			p.send("deleted", obj)
		},
	})
	if err != nil {
		return err
	}
	informer.Run(ctx.Done())
	<-p.js.PublishAsyncComplete()
	return nil
}

func newInformer(cfg *rest.Config, typed bool) (cache.SharedIndexInformer, error) {
	if typed {
		client, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			return nil, err
		}
		return informers.NewSharedInformerFactory(client, 0).Core().V1().Pods().Informer(), nil
	}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	return dynamicinformer.NewDynamicSharedInformerFactory(client, 0).ForResource(pods).Informer(), nil
}

// publisher sends objects as CloudEvents in binary mode.
type publisher struct {
	nc *nats.Conn
	js jetstream.JetStream
}

func newPublisher(ctx context.Context, url string) (*publisher, error) {
	nc, err := nats.Connect(url)
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(4096))
	if err != nil {
		return nil, err
	}
	_, err = js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: "K8S", Subjects: []string{"k8s.>"}, Storage: jetstream.FileStorage})
	return &publisher{nc: nc, js: js}, err
}

func (p *publisher) send(op string, obj any) {
	meta, ok := obj.(metav1.Object)
	if !ok {
		return
	}
	if pod, ok := obj.(*corev1.Pod); ok {
		pod.APIVersion, pod.Kind = "v1", "Pod"
	}
	e := cloudevents.NewEvent()
	e.SetID(string(meta.GetUID()) + "/" + meta.GetResourceVersion())
	e.SetSource("/clusters/bench")
	e.SetType("dev.kubebridge.resource." + op)
	e.SetSubject("api/v1/namespaces/" + meta.GetNamespace() + "/pods/" + meta.GetName())
	e.SetTime(time.Now())
	e.SetExtension("partitionkey", "pods/"+meta.GetNamespace()+"/"+meta.GetName())
	e.SetExtension("resourceversion", meta.GetResourceVersion())
	if err := e.SetData(cloudevents.ApplicationJSON, obj); err != nil {
		log.Print(err)
		return
	}
	if err := e.Validate(); err != nil {
		log.Print(err)
		return
	}
	p.publish(message(op, meta, &e))
}

func message(op string, meta metav1.Object, e *cloudevents.Event) *nats.Msg {
	msg := nats.NewMsg("k8s.bench.core.v1.pods." + meta.GetNamespace() + "." + meta.GetName() + "." + op)
	msg.Data = e.Data()
	h := msg.Header
	h.Set(jetstream.MsgIDHeader, e.ID())
	h.Set("ce-specversion", e.SpecVersion())
	h.Set("ce-id", e.ID())
	h.Set("ce-source", e.Source())
	h.Set("ce-type", e.Type())
	h.Set("ce-subject", e.Subject())
	h.Set("ce-time", e.Time().Format(time.RFC3339Nano))
	h.Set("content-type", e.DataContentType())
	for name, value := range e.Extensions() {
		if s, ok := value.(string); ok {
			h.Set("ce-"+name, s)
		}
	}
	return msg
}

// publish waits while the window is full.
func (p *publisher) publish(msg *nats.Msg) {
	for {
		_, err := p.js.PublishMsgAsync(msg)
		if !errors.Is(err, jetstream.ErrTooManyStalledMsgs) {
			if err != nil {
				log.Print(err)
			}
			return
		}
	}
}
