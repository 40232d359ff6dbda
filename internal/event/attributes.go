package event

import (
	"cmp"
	"time"
)

// SpecVersion is the CloudEvents version of every event.
const SpecVersion = "1.0"

// Each calls yield for every attribute that is set, specversion first, in a fixed order, with the
// value in its canonical CloudEvents string form. datacontenttype is among them when there is a
// payload. The time is UTC, RFC 3339.
func (e *Event) Each(yield func(name, value string)) {
	put := func(name, value string) {
		if value != "" {
			yield(name, value)
		}
	}
	put("specversion", SpecVersion)
	put("id", e.ID)
	put("source", e.Source)
	put("type", e.Type)
	put("subject", e.Subject)
	if !e.Time.IsZero() {
		put("time", e.Time.UTC().Format(time.RFC3339Nano))
	}
	put("timesource", e.TimeSource)
	if len(e.Data) > 0 || e.DataType != "" {
		put("datacontenttype", cmp.Or(e.DataType, ContentType))
	}
	put("partitionkey", e.PartitionKey)
	put("sequence", e.Sequence)
	put("apiversion", e.APIVersion)
	put("kind", e.Kind)
	put("informer", e.Informer)
	put("resource", e.Resource)
	put("namespace", e.Namespace)
	put("name", e.Name)
	put("uid", e.UID)
	put("resourceversion", e.ResourceVersion)
	put("previous", e.Previous)
	put("manager", e.Manager)
	put("managersubresource", e.ManagerSubresource)
	put("manageroperation", e.ManagerOperation)
	put("lastmanager", e.LastManager)
	put("cause", e.Cause)
	if e.Initial {
		put("initial", "true")
	}
	if e.Inferred {
		put("inferred", "true")
	}
	put("traceparent", e.TraceParent)
	for _, a := range e.Extensions {
		put(a.Name, a.Value)
	}
}
