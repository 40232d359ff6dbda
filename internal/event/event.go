package event

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/kubebridge/bridge/internal/resource"
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
	// Attributed says which user made a change that was sent before.
	Attributed Op = "attributed"
)

// TypeAttributed is the type of all that are Attributed.
const TypeAttributed = resourcePrefix + string(Attributed)

// AttributedSuffix ends the id of what is Attributed, behind that of the change.
const AttributedSuffix = "/actor"

// Event is a CloudEvent in flight to a sink: the attributes of docs/consumers.md ("Attributes") as
// plain fields, so that no map is built on the hot path. An Event does not change once it was
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
	// Changed are the parts of the object that differ from Previous; see Change.
	Changed string
}

// OriginAttributes are the attributes that say who made a change, and how it became known.
type OriginAttributes struct {
	// TimeSource says where Time is from; see Change.
	TimeSource string
	// NotBefore is set where the change became known late: it was made between that and Time.
	NotBefore time.Time
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

// IsCreation reports whether the event is about the first version of an object, rather than about
// the first one that was seen.
func (e *Event) IsCreation() bool {
	return e.Op == Added && !e.Initial && !e.Inferred && (e.Cause == "" || e.Cause == CauseCreated)
}

// partInfix is in the id of an event about an informer, before the part that it is for.
const partInfix = "/partition/"

// Copy returns the event about an informer for one part of its destination, from 0 on. Each has an
// id of its own, so that one that is stored is not taken for the others.
func (e Event) Copy(part int) Event {
	e.Part = part + 1
	e.ID += partInfix + strconv.Itoa(part)
	return e
}

// PartOf returns the Part of an event about an informer, of which only the id is known.
func PartOf(id string) int {
	if at := strings.LastIndex(id, partInfix); at >= 0 {
		if part, err := strconv.Atoi(id[at+len(partInfix):]); err == nil && part >= 0 {
			return part + 1
		}
	}
	return 0
}

// LossReport is about changes that a sink did not get, because too much was pending for it.
type LossReport struct {
	// Events is how many; when the bridge died meanwhile, at most how many.
	Events int `json:"events"`
	// From and To are the lowest and the highest version among them.
	From resource.Version `json:"from"`
	To   resource.Version `json:"to"`
	// Start says that any version before To may be among them: the end of a list that did not
	// continue from one.
	Start bool `json:"start,omitempty"`
}

// Between returns the loss of one event that reports what was after one version, "" for from the
// start, up to another.
func Between(after, to resource.Version) LossReport {
	from := cmp.Or(after, to)
	return LossReport{Events: 1, From: from, To: from, Start: after == ""}.And(LossReport{From: to, To: to})
}

// And is this loss and another together, which came later in the stream.
func (l LossReport) And(later LossReport) LossReport {
	out := LossReport{
		Events: l.Events + later.Events, From: cmp.Or(l.From, later.From),
		To: cmp.Or(later.To, l.To), Start: l.Start || later.Start,
	}
	if out.From.Newer(later.From) && later.From != "" {
		out.From = later.From
	}
	if l.To.Newer(out.To) {
		out.To = l.To
	}
	return out
}

// Dropped makes the event that reports changes which the bridge had read, and dropped before the
// sink could have them. The position of the last of them in the change log distinguishes one such
// event from another: both may be about one version.
func (m *Maker) Dropped(l LossReport, era IDSuffix, position uint64, observed time.Time) Event {
	if l.Start {
		l.From = ""
	}
	id := "dropped/" + string(l.From) + "/" + string(l.To) + "/" + strconv.FormatUint(position, 10)
	e := m.about("gap", Gap, id, observed)
	e.Sequence, e.ResourceVersion = era.sequence(l.To), string(l.To)
	m.report(&e, gapData{
		Reason: resource.ReasonDropped, From: string(l.From), To: string(l.To), Dropped: l.Events,
		Note: "the log on disk was full: these changes, from the version from (none: from the start) " +
			"to the version to, were dropped before they could be sent and will not come; " +
			"what follows are later changes. Compare with a list of the resource, or take a new snapshot",
	})
	return e
}

// MissingObject is what a sink holds of an object that does not exist, as far as it knows.
type MissingObject struct {
	Namespace, Name               string
	UID, Subject, ResourceVersion string // "" where that is not known
}

// Deleted returns the event of an object that vanished before a list, whose end is the event end.
// The same list makes the same event. Its id lacks nothing but what only the informer could know:
// where the uid is not known, the object's key stands for it.
func (v MissingObject) Deleted(end *Event) *Event {
	key := end.PartitionKey + "/" + v.Namespace + "/" + v.Name
	if v.UID == "" {
		v.UID = key
	}
	if v.Subject == "" {
		v.Subject = end.Subject + "/" + v.Name
	}
	_, era, _ := strings.Cut(end.ID, "/synced/"+end.ResourceVersion)
	if at := strings.Index(era, "/partition/"); at >= 0 {
		era = era[:at]
	}
	return &Event{
		ID: v.UID + "/deleted" + era, Source: end.Source, Type: "dev.kubebridge.resource.deleted",
		Subject: v.Subject, Time: end.Time, PartitionKey: key, Sequence: end.Sequence + ".deleted",
		ObjectAttributes: ObjectAttributes{
			APIVersion: end.APIVersion, Kind: end.Kind, Resource: end.Resource,
			Namespace: v.Namespace, Name: v.Name, UID: v.UID, ResourceVersion: v.ResourceVersion,
		},
		OriginAttributes: OriginAttributes{TimeSource: TimeObserved, Inferred: true},
		Informer:         end.Informer, Op: Deleted, Observed: end.Observed,
		Routing: Routing{Cluster: end.Cluster, Group: end.Group, Version: end.Version},
	}
}

// PanicError is a panic during the work on one object. It says nothing of what the object holds.
type PanicError struct {
	reason string
	stack  []byte
}

// maxStack bounds the stack in the log, in bytes.
const maxStack = 8 << 10

// NewPanicError makes the error of what recover has returned. Call it in the deferred function, so
// that the stack is that of the panic.
func NewPanicError(recovered any) *PanicError {
	e := &PanicError{reason: fmt.Sprintf("panic: %T", recovered), stack: debug.Stack()}
	if err, ok := recovered.(runtime.Error); ok { // another error may quote the object
		e.reason = "panic: " + err.Error()
	}
	e.stack = e.stack[:min(len(e.stack), maxStack)]
	return e
}

func (e *PanicError) Error() string { return e.reason }

// StackOf returns the stack of the panic that an error wraps, "" for none.
func StackOf(err error) string {
	e, ok := errors.AsType[*PanicError](err)
	if !ok {
		return ""
	}
	return string(e.stack)
}

// LogValue adds the stack where the error is logged.
func (e *PanicError) LogValue() slog.Value {
	return slog.GroupValue(slog.String("reason", e.reason), slog.String("stack", string(e.stack)))
}
