package sinks

import (
	"slices"
	"strings"

	"github.com/kubebridge/bridge/internal/event"
)

// Stub is a dead letter without its payload and with every attribute cut to a length that any broker takes: what is left to
// send when it is the attributes that are too large.
func Stub(letter *event.Event) *event.Event {
	stub := *letter
	stub.Data = nil
	for _, text := range []*string{
		&stub.ID, &stub.Source, &stub.Type, &stub.Subject, &stub.PartitionKey, &stub.Sequence, &stub.APIVersion, &stub.Kind, &stub.Resource,
		&stub.Namespace, &stub.Name, &stub.UID, &stub.ResourceVersion, &stub.Previous,
		&stub.Manager, &stub.LastManager, &stub.Cause, &stub.Group, &stub.Version, &stub.Informer,
	} {
		*text = cut(*text)
	}
	stub.Extensions = slices.Clone(letter.Extensions)
	for i := range stub.Extensions {
		stub.Extensions[i].Value = cut(stub.Extensions[i].Value)
	}
	return &stub
}

// cut keeps the beginning of a text, in whole characters.
func cut(text string) string {
	const longest = 256 // longer than any name in Kubernetes
	if len(text) <= longest {
		return text
	}
	return strings.ToValidUTF8(text[:longest], "")
}
