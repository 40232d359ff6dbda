package asyncapi

import (
	"cmp"
	"maps"

	"github.com/kubebridge/bridge/internal/event"
)

// messagesOf returns the messages of a stream, by their names: <sink>.<informer>.object.<op>, and
// <sink>.<informer>.informer.<op>.
func (d *document) messagesOf(s *Sink, stream *Stream) map[string]schema {
	list := map[string]schema{}
	for _, op := range stream.Ops {
		typ := event.TypeOf(op, stream.Types, stream.Payload)
		payload := d.payload(stream, op)
		if s.Oversize && stream.Payload != event.PayloadReference {
			payload = anyOf(payload, d.useForm("metadata"), schema{"type": "null"})
		}
		list[s.Name+"."+stream.Informer+".object."+string(op)] = d.message(s, stream, typ, true, payload)
	}
	for _, op := range []event.Op{event.Synced, event.Gap, event.Quarantined, event.Progress} {
		payload := d.useForm("informer-" + string(op))
		if stream.Payload == event.PayloadDebezium {
			payload = schema{"type": "null"}
		}
		list[s.Name+"."+stream.Informer+".informer."+string(op)] = d.message(s, stream,
			"dev.kubebridge.informer."+string(op), false, payload)
	}
	return list
}

// payload returns the schema of the data of an event about an object.
func (d *document) payload(stream *Stream, op event.Op) schema {
	switch stream.Payload {
	case event.PayloadChange:
		return d.useForm("change")
	case event.PayloadPatch:
		if op == event.Updated {
			return anyOf(d.useForm("mergepatch"), d.useForm("object"))
		}
		return d.useForm("object")
	case event.PayloadMetadata:
		return d.useForm("metadata")
	case event.PayloadDebezium:
		return d.useForm("debezium")
	case event.PayloadReference:
		if stream.Types == event.TypesKnative {
			return d.useForm("reference")
		}
		return schema{"type": "null"}
	default:
		if op == event.Deleted { // the last state may be unknown
			return anyOf(d.useForm("object"), schema{"type": "null"})
		}
		return d.useForm("object")
	}
}

func anyOf(list ...schema) schema {
	all := []any{}
	for _, s := range list {
		all = append(all, s)
	}
	return schema{"anyOf": all}
}

// message returns a message of a type.
func (d *document) message(s *Sink, stream *Stream, typ string, ofObject bool, data schema) schema {
	attributes, required := d.attributes(stream, typ, ofObject, s.Oversize)
	m := schema{
		"name": typ, "title": typ + " of the informer " + stream.Informer,
		"bindings": d.keyBinding(s),
	}
	d.put(m, s, attributes, required, data)
	if m["bindings"] == nil {
		delete(m, "bindings")
	}
	return m
}

// put lays attributes and data out as headers and payload.
func (d *document) put(
	m schema, s *Sink, attributes map[string]schema, required []string, data schema,
) {
	headers, mustHave := schema{}, []any{}
	for _, name := range s.Own {
		headers[name] = schema{"type": "string"}
		mustHave = append(mustHave, name)
	}
	if !s.Structured || s.HeadersToo {
		for name, value := range attributes {
			if name == "datacontenttype" {
				headers[s.MediaType] = value
				continue
			}
			headers[s.Prefix+name] = encoded(value, s.Encode)
		}
		for _, name := range required {
			mustHave = append(mustHave, s.Prefix+name)
		}
	}
	if s.Structured {
		if s.ContentType != "" {
			headers[s.ContentType] = schema{"type": "string", "pattern": "^application/cloudevents\\+json"}
			mustHave = append(mustHave, s.ContentType)
		}
		m["contentType"] = event.StructuredContentType
		properties := schema{"data": data}
		for name, value := range attributes {
			properties[name] = value
		}
		data = schema{"type": "object", "properties": properties, "required": list(required)}
	}
	m["payload"] = data
	if len(headers) > 0 {
		m["headers"] = schema{"type": "object", "properties": headers, "required": mustHave}
	}
}

// encoded returns the schema of a value as it stands in a header.
func encoded(value schema, encode func(string) string) schema {
	text, ok := value["const"].(string)
	if encode == nil || !ok {
		return value
	}
	changed := maps.Clone(value)
	changed["const"] = encode(text)
	return changed
}

func list(texts []string) []any {
	all := []any{}
	for _, text := range texts {
		all = append(all, text)
	}
	return all
}

func (d *document) keyBinding(s *Sink) any {
	if !s.Keyed {
		return nil
	}
	return schema{"kafka": schema{"key": schema{
		"type": "string", "description": "partitionkey; of an event about an informer informers/…",
	}}}
}

// deadLetter returns an event of any message of the sink, with the reason.
func (d *document) deadLetter(s *Sink) schema {
	attributes, _ := d.attributes(&Stream{Payload: event.PayloadObject}, "", true, true)
	attributes["deadletterreason"] = text("Why the event was refused")
	attributes["deadletterattempts"] = digits("How often it was tried")
	attributes["truncated"] = text("true: the data did not fit")
	m := schema{"name": "deadletter", "title": "An event that was refused"}
	if key := d.keyBinding(s); key != nil {
		m["bindings"] = key
	}
	d.put(m, s, attributes, []string{"id", "source", "type", "deadletterreason", "deadletterattempts"},
		schema{})
	return m
}

// attributes returns the schemas of the attributes of an event, and the names of those that it
// always has.
func (d *document) attributes(
	stream *Stream, typ string, ofObject, oversize bool,
) (all map[string]schema, required []string) {
	all = map[string]schema{
		"specversion":     constant(event.SpecVersion),
		"id":              text("The same for the same change; compare it, never parse it"),
		"source":          {"type": "string", "pattern": "^/clusters/"},
		"type":            text("The type of the event"),
		"subject":         text("The API path of what the event is about"),
		"time":            {"type": "string", "format": "date-time"},
		"datacontenttype": text("The media type of the data"),
		"partitionkey": text("<resource.group>/<namespace>/<name>; of an event about an " +
			"informer the resource"),
		"apiversion":      text("The API version of the object"),
		"kind":            text("The kind of the object"),
		"informer":        text("The informer that produced the event"),
		"resource":        text("The resource in the plural"),
		"namespace":       text("The namespace, where there is one"),
		"sequence":        text("Sorts all events of one object as text"),
		"resourceversion": text("The version of the object, or up to which the stream is complete"),
		"inferred":        constant("true"),
		"traceparent":     text("W3C trace context"),
	}
	required = []string{
		"specversion", "id", "source", "type", "subject", "partitionkey", "apiversion",
		"kind", "resource", "informer",
	}
	if d.cluster != "" {
		all["source"] = constant(event.SourceOf(d.cluster))
	}
	if typ != "" {
		all["type"] = constant(typ)
	}
	if stream.Informer != "" {
		all["informer"] = constant(stream.Informer)
	}
	if stream.Payload == event.PayloadDebezium {
		all[event.AttrInformerData] = text("What an event about the informer says, as JSON")
	}
	if !ofObject {
		return all, required
	}
	for name, what := range map[string]string{
		"name": "The name of the object", "uid": "The uid of the object",
		"previous":   "The resourceversion of the version before",
		"timesource": "managedfields or observed",
		"notbefore":  "The change was made between this and time: it became known late",
		"manager":    "The field manager of exactly this change", "managersubresource": "Its subresource",
		"manageroperation": "Update or Apply",
		"lastmanager":      "Of a delete: the last manager that set a field",
		"cause":            "With selectors: created, entered-selector, deleted, left-selector",
	} {
		all[name] = text(what)
	}
	all["initial"] = constant("true")
	required = append(required, "name", "sequence")
	if stream.Owners {
		for _, name := range []string{"owners", "ownerkind", "ownername"} {
			all[name] = text("The controllers of the object")
		}
	}
	if stream.Changed {
		all["changed"] = text("The parts that this update changed, as spec,labels; none for nothing")
	}
	for _, name := range stream.Attributes {
		all[name] = text("An attribute of the configuration")
	}
	if oversize {
		all[event.AttrOversize] = text("How the payload was made smaller")
		all[event.AttrOriginalSize] = digits("The size of the payload that did not fit")
		all[event.AttrOriginalSHA256] = schema{"type": "string", "pattern": "^[0-9a-f]{64}$"}
		all[event.AttrDataRef] = text("Where the payload is kept")
	}
	return all, required
}

func constant(value string) schema { return schema{"type": "string", "const": value} }

func text(description string) schema {
	return schema{"type": "string", "description": cmp.Or(description, "A text")}
}

func digits(description string) schema {
	return schema{"type": "string", "pattern": "^[0-9]+$", "description": description}
}
