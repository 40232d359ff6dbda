package check

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubebridge/bridge/test/e2e/read"
	"github.com/kubebridge/bridge/test/e2e/truth"
)

// expected is the event that a change is to become.
type expected struct {
	id         string
	op         string
	attributes map[string]string
	time       time.Time // zero: when the bridge observed the change, which nobody else knows
	// writers are the only entries that may have written it, where managedFields do not show which:
	// two writes of one manager in a second, or one whose entry has no time. None is right too.
	writers []truth.ManagedField
	data    []byte
	// changed are the parts that an update changed; "" where that can't be known.
	changed string
	change  *truth.Change
}

var ops = map[string]string{"ADDED": "added", "MODIFIED": "updated", "DELETED": "deleted"}

// history is what there was of an object before a change.
type history struct {
	version string // "" for none
	raw     []byte
	fields  []truth.ManagedField
	// last is the entry of the manager that has set a value last, nil where that is not certain.
	last *truth.ManagedField
}

// expect makes the event of a change, which becomes a part of the history.
func expect(ch *truth.Change, cluster, informer string, before *history) (*expected, error) {
	m := &ch.Metadata
	e := &expected{op: ops[ch.Type], change: ch, id: m.UID + "/" + m.ResourceVersion}
	var by truth.ManagedField
	last := before.last
	switch added := ch.Added(before.fields); {
	case ch.Type == "DELETED":
		e.id = m.UID + "/deleted"
	case ch.Initial || ch.Inferred:
		last = nil
	case len(added) == 1 && (before.version == "" || len(before.fields) > 0):
		if ch.Type != "ADDED" || added[0].Time.Sub(m.CreationTimestamp).Abs() <= time.Second {
			by = added[0]
		}
		last = &by
	case len(added) == 0 && ch.Type == "MODIFIED":
		e.writers, last = ch.Newest(), nil
	default:
		last = nil
	}
	e.time = by.Time
	before.last = last
	e.attributes = map[string]string{
		"specversion": "1.0", "id": e.id, "source": "/clusters/" + cluster, "type": "dev.kubebridge.resource." + e.op,
		"subject":         ch.Path(m.Namespace) + "/" + m.Name,
		"datacontenttype": "application/json",
		"partitionkey":    ch.Collection.String() + "/" + m.Namespace + "/" + m.Name,
		"sequence":        "00000000." + strings.Repeat("0", 20-len(m.ResourceVersion)) + m.ResourceVersion,
		"apiversion":      ch.Object.APIVersion, "kind": ch.Kind, "resource": ch.Resource,
		"namespace": m.Namespace, "name": m.Name, "uid": m.UID, "resourceversion": m.ResourceVersion,
		"previous": before.version, "informer": informer,
		"manager": by.Manager, "manageroperation": by.Operation, "managersubresource": by.Subresource, "lastmanager": "", "inferred": "", "cause": "", "initial": "",
	}
	if ch.Type == "DELETED" {
		e.attributes["sequence"] += ".deleted"
		e.writers = m.ManagedFields
		if last != nil && slices.Contains(m.ManagedFields, *last) {
			e.attributes["lastmanager"], e.writers = last.Manager, nil
		}
	}
	if ch.Initial {
		e.attributes["initial"] = "true"
	}
	if ch.Inferred {
		e.attributes["inferred"] = "true"
	}
	if ch.Inferred && ch.Type == "DELETED" {
		e.attributes["lastmanager"], e.writers = "", nil // the state that is kept has no managedFields any more
	}
	var err error
	if ch.Type == "MODIFIED" && !ch.Initial && !ch.Inferred && before.raw != nil {
		if e.changed, err = changedParts(before.raw, ch.Raw); err != nil {
			return nil, err
		}
	}
	before.version, before.fields, before.raw = m.ResourceVersion, m.ManagedFields, ch.Raw
	e.data, err = ch.WithoutManagedFields()
	return e, err
}

// differences says in what an event is not what it should be.
func (e *expected) differences(got *read.Event, o *Options) (problems []string) {
	complain := func(format string, args ...any) {
		problems = append(problems, fmt.Sprintf("%s: ", e)+fmt.Sprintf(format, args...))
	}
	for name, want := range e.attributes {
		have := attribute(got, name)
		if name == "sequence" && e.op == "deleted" && e.change.Inferred && have > want && strings.HasSuffix(have, ".deleted") {
			continue // it has the version of the list, which nobody else knows
		}
		if have != want && !(want == "" && strings.Contains(name, "manager")) {
			complain("%s is %q, want %q", name, have, want)
		}
	}
	if have := attribute(got, "changed"); have != e.changed && (have != "" || o.Changed) {
		complain("changed is %q, want %q", have, e.changed)
	}
	by := e.writer(got, complain)
	switch source := attribute(got, "timesource"); {
	case source == "managedfields" && !by.Time.IsZero():
		if !got.Time().Equal(by.Time) {
			complain("time is %v, want %v", got.Time(), by.Time)
		}
	case source != "observed":
		complain("timesource is %q", source)
	case got.Time().Before(o.Began) || got.Time().After(time.Now().Add(time.Second)):
		complain("time is %v, want one since %v", got.Time(), o.Began)
	}
	if !bytes.Equal(got.Data(), e.data) {
		complain("payload differs from what the API server sent:\n%s\nwant:\n%s", got.Data(), e.data)
	}
	if got.Lane == "" {
		e.differencesOfNATS(got, o, complain)
	} else {
		e.differencesOfKafka(got, o, complain)
	}
	return problems
}

// writer returns the entry that an event names, where only some may have written it.
func (e *expected) writer(got *read.Event, complain func(string, ...any)) truth.ManagedField {
	if e.attributes["manager"]+e.attributes["lastmanager"] != "" {
		return truth.ManagedField{Time: e.time}
	}
	name := orElse(attribute(got, "manager"), attribute(got, "lastmanager"))
	if name == "" {
		return truth.ManagedField{}
	}
	for _, by := range e.writers {
		if by.Manager == name && (e.op == "deleted" || by.Subresource == attribute(got, "managersubresource") && by.Operation == attribute(got, "manageroperation")) {
			return by
		}
	}
	complain("written by %q, want nobody, or one of %v", name, e.writers)
	return truth.ManagedField{}
}

func attribute(e *read.Event, name string) string {
	switch name {
	case "specversion":
		return e.SpecVersion()
	case "id":
		return e.ID()
	case "source":
		return e.Source()
	case "type":
		return e.Type()
	case "subject":
		return e.Subject()
	case "datacontenttype":
		return e.DataContentType()
	}
	return e.Attribute(name)
}

func (e *expected) differencesOfNATS(got *read.Event, o *Options, complain func(string, ...any)) {
	if want := e.natsSubject(o.Cluster); got.NATSSubject != want {
		complain("it is on NATS subject %s, want %s", got.NATSSubject, want)
	}
	if want := o.Informers[e.change.Collection.String()] + "/" + e.id; got.MessageID != want {
		complain("Nats-Msg-Id is %s, want %s", got.MessageID, want)
	}
}

// natsSubject is k8s.{cluster}.{group}.{version}.{resource}.{namespace}.{name}.{op}, for names of
// letters, digits and "-.:".
func (e *expected) natsSubject(cluster string) string {
	ch := e.change
	var tokens []string
	for _, value := range []string{"k8s", cluster, orElse(ch.Group, "core"), ch.Version, ch.Resource, orElse(ch.Metadata.Namespace, "-"), ch.Metadata.Name, e.op} {
		tokens = append(tokens, strings.ReplaceAll(value, ".", "_"))
	}
	return strings.Join(tokens, ".")
}

func orElse(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

func (e *expected) differencesOfKafka(got *read.Event, o *Options, complain func(string, ...any)) {
	if want := "k8s." + o.Cluster + "." + e.change.Resource; got.Topic != want {
		complain("it is in topic %s, want %s", got.Topic, want)
	}
	key := e.attributes["partitionkey"]
	if got.Key != key {
		complain("its record's key is %q, want %q", got.Key, key)
	}
	if want := partitionOf(key, got.Partitions); got.Partition != want {
		complain("it is in partition %d of %d, want %d, where Java's partitioner puts the key", got.Partition, got.Partitions, want)
	}
}

func (e *expected) String() string {
	m := &e.change.Metadata
	return fmt.Sprintf("%s %s %s (uid %s, version %s)", e.change.Collection, e.change.Key(), e.op, m.UID, m.ResourceVersion)
}
