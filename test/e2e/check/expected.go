package check

import (
	"bytes"
	"fmt"
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
	data       []byte
	change     *truth.Change
}

var ops = map[string]string{"ADDED": "added", "MODIFIED": "updated", "DELETED": "deleted"}

// history is what there was of an object before a change.
type history struct {
	version string // "" for none
	newest  []truth.ManagedField
}

// expect makes the event of a change, which becomes a part of the history.
func expect(ch *truth.Change, cluster, informer string, before *history) (*expected, error) {
	m := &ch.Metadata
	e := &expected{op: ops[ch.Type], change: ch, id: m.UID + "/" + m.ResourceVersion}
	newest := ch.Newest()
	by, isKnown := truth.Writer(before.newest, newest)
	switch {
	case ch.Type == "DELETED":
		e.id = m.UID + "/deleted"
		isKnown = false
	case ch.Initial || ch.Inferred:
		isKnown = false
	case ch.Type == "ADDED" && by.Time.Sub(m.CreationTimestamp).Abs() > time.Second:
		isKnown = false
	}
	if isKnown {
		e.time = by.Time
	} else {
		by = truth.ManagedField{}
	}
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
		if len(newest) == 1 {
			e.attributes["lastmanager"] = newest[0].Manager
		}
	}
	if ch.Initial {
		e.attributes["initial"] = "true"
	}
	if ch.Inferred {
		e.attributes["inferred"] = "true"
	}
	if ch.Inferred && ch.Type == "DELETED" {
		e.attributes["lastmanager"] = "" // the state that is kept has no managedFields any more
	}
	before.version = m.ResourceVersion
	if len(newest) > 0 && (len(before.newest) == 0 || !newest[0].Time.Before(before.newest[0].Time)) {
		before.newest = newest
	}
	var err error
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
		if have != want {
			complain("%s is %q, want %q", name, have, want)
		}
	}
	switch source := attribute(got, "timesource"); {
	case source == "managedfields" && !e.time.IsZero():
		if !got.Time().Equal(e.time) {
			complain("time is %v, want %v", got.Time(), e.time)
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
