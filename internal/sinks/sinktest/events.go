package sinktest

import (
	"bytes"
	"fmt"
	"time"

	"github.com/kubebridge/bridge/internal/event"
)

// NewEvent is the version-th event of an object: an update of a Deployment with every attribute set
// and a payload of about size bytes, with white space in it that a sink must not touch. Versions
// start at 1; equal arguments give equal events.
func NewEvent(name string, version, size int) *event.Event {
	return &event.Event{
		ID:           fmt.Sprintf("uid-%s/%d", name, version),
		Source:       "/clusters/" + Cluster,
		Type:         "dev.kubebridge.resource.updated",
		Subject:      "apis/apps/v1/namespaces/shop/deployments/" + name,
		Time:         time.Date(2026, 11, 21, 10, 20, 30, 123456789, time.UTC),
		PartitionKey: "deployments.apps/shop/" + name,
		Sequence:     fmt.Sprintf("%020d", version),
		ObjectAttributes: event.ObjectAttributes{
			APIVersion: "apps/v1", Kind: "Deployment",
			Resource: "deployments", Namespace: "shop",
			Name: name, UID: "uid-" + name,
			ResourceVersion: fmt.Sprint(version),
		},
		OriginAttributes: event.OriginAttributes{Manager: "kubectl-edit"},
		Data:             payload(name, version, size),
		Routing: event.Routing{
			Cluster: Cluster, Group: "apps", Version: "v1",
		},
		Op:       event.Updated,
		Informer: "workloads",
	}
}

func payload(name string, version, size int) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "{ \"kind\":\t\"Deployment\", \"metadata\": "+
		"{\"name\":%q,\"resourceVersion\":\"%d\"}, \"html\":\"<&>\", \"pad\":\"", name, version)
	const closing = `" }`
	for b.Len() < size-len(closing) {
		b.WriteByte("abcdefghijklmnopqrstuvwxyz0123456789"[b.Len()*7%36])
	}
	b.WriteString(closing)
	return b.Bytes()
}

// gapEvent is an event about an informer: it has no object.
func gapEvent() *event.Event {
	return &event.Event{
		ID:           "gap/workloads/100/200",
		Source:       "/clusters/" + Cluster,
		Type:         "dev.kubebridge.informer.gap",
		Subject:      "informers/workloads",
		Time:         time.Date(2026, 11, 21, 10, 20, 30, 0, time.UTC),
		PartitionKey: "informers/workloads",
		Data:         []byte(`{"from":"100","to":"200","reason":"expired"}`),
		Routing:      event.Routing{Cluster: Cluster},
		Op:           event.Gap,
		Informer:     "workloads",
	}
}

// attributesOf is what a reader must find of an event.
func attributesOf(e *event.Event) map[string]string {
	attributes := map[string]string{}
	e.Each(func(name, value string) { attributes[name] = value })
	return attributes
}
