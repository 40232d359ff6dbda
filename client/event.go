package client

import (
	"encoding/json"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Types of events. Those of objects may also be Knative's.
const (
	TypeAdded       = "dev.kubebridge.resource.added"
	TypeUpdated     = "dev.kubebridge.resource.updated"
	TypeDeleted     = "dev.kubebridge.resource.deleted"
	TypeResynced    = "dev.kubebridge.resource.synced"
	TypeSynced      = "dev.kubebridge.informer.synced"
	TypeGap         = "dev.kubebridge.informer.gap"
	TypeProgress    = "dev.kubebridge.informer.progress"
	TypeQuarantined = "dev.kubebridge.informer.quarantined"
	// TypeLost is made by this package: messages that were not read are gone from the source. It
	// has no attributes but its type.
	TypeLost = "dev.kubebridge.client.lost"
)

// Event is one CloudEvent.
type Event struct {
	Type string
	// Attributes are all of the event's, by their names in CloudEvents.
	Attributes map[string]string
	// Data is the payload, nil for none.
	Data []byte
	// Position is behind the event: Events continues from it.
	Position Position
}

// AboutObject reports whether the event is about an object, and not about an informer.
func (e *Event) AboutObject() bool {
	return !strings.HasPrefix(e.Type, "dev.kubebridge.informer.") && e.Type != TypeLost
}

// IsDelete reports whether the object of the event is gone.
func (e *Event) IsDelete() bool {
	return e.AboutObject() && (strings.HasSuffix(e.Type, ".deleted") ||
		strings.HasSuffix(e.Type, ".delete"))
}

// Resource is what the event is about.
func (e *Event) Resource() schema.GroupResource {
	group, _, ok := strings.Cut(e.Attributes["apiversion"], "/")
	if !ok {
		group = ""
	}
	return schema.GroupResource{Group: group, Resource: e.Attributes["resource"]}
}

// key of the object: namespace and name.
func (e *Event) key() string { return e.Attributes["namespace"] + "/" + e.Attributes["name"] }

// identity is the same for two messages of one event.
func (e *Event) identity() string {
	return e.Attributes["source"] + " " + e.Attributes["informer"] + " " + e.Attributes["id"]
}

// unit is the informer's share of a resource that an event about an informer is about: its id
// begins with that.
func (e *Event) unit() string {
	what := "/" + e.Type[strings.LastIndexByte(e.Type, '.')+1:] + "/"
	unit, _, _ := strings.Cut(e.Attributes["id"], what)
	return unit
}

// newEvent makes an event of the attributes and the data of a message, or of the data alone where
// that is the whole event.
func newEvent(attributes map[string]string, contentType string, data []byte) (*Event, error) {
	e := &Event{Attributes: attributes, Data: data}
	if isStructured(contentType) {
		if err := e.parseStructured(data); err != nil {
			return nil, err
		}
	}
	if len(e.Data) == 0 {
		e.Data = nil
	}
	e.Type = e.Attributes["type"]
	return e, nil
}

func (e *Event) parseStructured(text []byte) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return err
	}
	e.Data = members["data"]
	delete(members, "data")
	for name, raw := range members {
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			text = string(raw) // a number or a boolean
		}
		e.Attributes[name] = text
	}
	return nil
}

func isStructured(contentType string) bool {
	return strings.HasPrefix(contentType, "application/cloudevents+json")
}
