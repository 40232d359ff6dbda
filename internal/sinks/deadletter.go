package sinks

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/kubebridge/bridge/internal/event"
)

// DeadLetter sends an event with the attributes deadletterreason and deadletterattempts, and with
// to, the place where the event should have gone. When the letter is refused for its size, it goes
// without its payload, with truncated=true and originalsize in bytes. Where the attributes are too
// large, they are cut in the end.
func DeadLetter(ctx context.Context, e *event.Event, reason error, attempts int, to event.Attribute,
	send func(context.Context, *event.Event) error,
) error {
	letter := *e // an event does not change once it was handed on
	letter.Extensions = append(slices.Clip(slices.Clone(e.Extensions)),
		event.Attribute{Name: "deadletterreason", Value: oneLine(reason)},
		event.Attribute{Name: "deadletterattempts", Value: strconv.Itoa(attempts)}, to)
	err := send(ctx, &letter)
	if !isRefused(err) {
		return err
	}
	letter.Extensions = append(letter.Extensions,
		event.Attribute{Name: "truncated", Value: "true"},
		event.Attribute{Name: "originalsize", Value: strconv.Itoa(len(e.Data))})
	letter.Data = nil
	if err = send(ctx, &letter); !isRefused(err) {
		return err
	}
	return send(ctx, stub(&letter))
}

func isRefused(err error) bool { return err != nil && Classify(err) == Refused }

// maxReason bounds the reason in bytes, so that it never makes a dead letter too large.
const maxReason = 1024

// oneLine gives an error's text as the value of an attribute: CloudEvents strings hold no control
// characters.
func oneLine(err error) string {
	if err == nil {
		return "unknown"
	}
	words := strings.FieldsFunc(strings.ToValidUTF8(err.Error(), "?"), func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r)
	})
	text := strings.Join(words, " ")
	return strings.ToValidUTF8(text[:min(len(text), maxReason)], "")
}

// stub is a letter without its payload and with every attribute cut to a length that any broker
// takes.
func stub(letter *event.Event) *event.Event {
	stub := *letter
	stub.Data = nil
	for _, text := range []*string{
		&stub.ID, &stub.Source, &stub.Type, &stub.Subject, &stub.PartitionKey, &stub.Sequence,
		&stub.APIVersion, &stub.Kind, &stub.Resource,
		&stub.Namespace, &stub.Name, &stub.UID, &stub.ResourceVersion, &stub.Previous, &stub.Changed,
		&stub.TimeSource, &stub.Manager, &stub.ManagerSubresource, &stub.ManagerOperation,
		&stub.LastManager, &stub.Cause, &stub.Group, &stub.Version, &stub.Informer,
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
