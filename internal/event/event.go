package event

import (
	"strconv"
	"strings"
	"time"
)

// Op is what happened to an object. Its text is the last token of a NATS subject and of the
// CloudEvent type.
type Op string

// The ops of objects. Gap, Quarantined, Progress, and Synced without an object, are events about an
// informer.
const (
	Added   Op = "added"
	Updated Op = "updated"
	Deleted Op = "deleted"
	Synced  Op = "synced"
	Gap     Op = "gap"
	// Quarantined is about something that is no object.
	Quarantined Op = "quarantined"
	// Progress says up to which version the stream is complete.
	Progress Op = "progress"
)

// Event is a CloudEvent in flight to a sink: the attributes of docs/design.md ("The CloudEvent")
// as plain fields, so that no map is built on the hot path. An Event does not change once it was
// handed to a publisher; its strings and Data may share memory with the object.
type Event struct {
	// Attributes, in the words of CloudEvents. Empty ones are not sent.
	ID           string
	Source       string
	Type         string
	Subject      string
	Time         time.Time
	PartitionKey string
	Sequence     string
	ObjectAttributes
	OriginAttributes
	// Informer is the name of the informer that the event is of.
	Informer    string
	TraceParent string // W3C trace context, "" for none
	// Extensions are further attributes, names lower-case alphanumeric, in the order they are sent.
	Extensions []Attribute

	// Data is the payload, JSON; nil for none.
	Data []byte
	// DataType is the payload's media type; "" is ContentType.
	DataType string

	// What is not sent.
	Op Op
	Routing
	// Observed is when the bridge learned of the change.
	Observed time.Time
	// Err is why the event lacks its payload and what comes from the object: it is a dead letter.
	// It is nil for every other event.
	Err error
}

// ObjectAttributes are the attributes that say which state of which object an event is about.
type ObjectAttributes struct {
	APIVersion      string
	Kind            string
	Resource        string // "deployments"
	Namespace       string
	Name            string
	UID             string
	ResourceVersion string
	// Previous is the resourceVersion of the object's version before this one; "" for none.
	Previous string
}

// OriginAttributes are the attributes that say who made a change, and how it became known.
type OriginAttributes struct {
	// TimeSource says where Time is from; see Change.
	TimeSource string
	// Manager made the change, with ManagerOperation on ManagerSubresource. All three are "" where
	// that is not known, and of a Deleted.
	Manager            string
	ManagerSubresource string
	ManagerOperation   string
	// LastManager is, of a Deleted, the manager of the last state. Who deleted it is not known.
	LastManager string
	Cause       string
	Initial     bool
	Inferred    bool
}

// Routing is what sinks need to route an event and the attributes do not hold.
type Routing struct {
	Cluster string
	Group   string // API group, "" for core
	Version string // API version: "v1"
	// Part is 0, or 1 for the first part of the destination, 2 for the second: it goes there,
	// whatever its PartitionKey says.
	Part int
	// CompactionKey is "" for the PartitionKey, or the key under which a compacted topic keeps the
	// event: one about an informer must replace neither an object nor one of another type.
	CompactionKey string
	// Run is empty, or sets the message apart from what other processes have sent of the same
	// event. A sink that gets the newest states only may be sent an older one again after a crash.
	// Then it must be sent what came after it again too. It begins with a slash.
	Run string
}

// Attribute is one CloudEvents attribute by name.
type Attribute struct{ Name, Value string }

// Media types of payloads: of all, but for merge patches.
const (
	ContentType           = "application/json"
	MergePatchContentType = "application/merge-patch+json"
)

// MessageID names the event among all that one bridge sends: Nats-Msg-Id. Two informers may select
// the same object, so the id alone is not enough.
func (e *Event) MessageID() string { return e.Informer + "/" + e.ID }

// partInfix is in the id of an event about an informer, before the part that it is for.
const partInfix = "/partition/"

// Copy is the event about an informer for one part of its destination, from 0 on. Each has an id of
// its own, so that one that is stored is not taken for the others.
func (e Event) Copy(part int) Event {
	e.Part = part + 1
	e.ID += partInfix + strconv.Itoa(part)
	return e
}

// PartOf is the Part of an event about an informer, of which only the id is known.
func PartOf(id string) int {
	if at := strings.LastIndex(id, partInfix); at >= 0 {
		if part, err := strconv.Atoi(id[at+len(partInfix):]); err == nil && part >= 0 {
			return part + 1
		}
	}
	return 0
}
