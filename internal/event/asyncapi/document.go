// Package asyncapi describes what a configuration publishes, for programs that make code, checks or
// pages of it: an AsyncAPI 3 document, with a JSON Schema for the headers and the payload of each
// message.
//
// In: Sinks, which package app makes of the configuration. Out: a document of maps and lists, to be
// encoded as YAML or JSON. It contacts nobody: what only the API server knows (what "*" means, the
// kinds of objects) is a parameter of the channel.
//
// The schemas of attributes are made here, those of payloads are forms.json. They are of draft 7,
// which AsyncAPI includes. They say what is always so, and allow more: a minor version may add
// attributes and members.
package asyncapi

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/kubebridge/bridge/internal/event"
)

// Sink is a sink that publishes.
type Sink struct {
	Name string
	// Protocol of AsyncAPI: nats, kafka, http. Servers are host:port; none for standard output.
	Protocol string
	Servers  []string
	// Address is the template of the subject or topic, or the path of a URL; "" for none.
	// DeadLetters is that of refused events, on DeadLetterServer where it is another one.
	Address, DeadLetters, DeadLetterServer string
	// Prefix of the headers of attributes, the header for the media type of the data, and that of a
	// structured message.
	Prefix, MediaType, ContentType string
	// Encode is how a value stands in a header; nil for as it is.
	Encode func(string) string
	// Own are the headers that are no attributes.
	Own []string
	// Structured: the message is the whole event. Flat: it is a flat record. HeadersToo: the
	// attributes are headers too.
	Structured, Flat, HeadersToo bool
	// Keyed: messages have a key.
	Keyed bool
	// Tombstones: each deleted event is followed by a message with its key and no value.
	Tombstones bool
	// Oversize: a payload may come in a smaller form, or not at all.
	Oversize bool
	Streams  []Stream
}

// Stream is what one informer sends to the sink.
type Stream struct {
	Informer string
	Payload  event.Payload
	Types    event.Types
	Ops      []event.Op // of objects
	// Attributes of the configuration's own.
	Attributes []string
	Owners     bool
	Changed    bool
	// Attributed: who made a change is an event behind it.
	Attributed bool
}

// schema is a JSON Schema, or another object of the document.
type schema = map[string]any

// Document describes sinks. cluster is "" where it is not known before the bridge runs.
func Document(cluster string, sinks []Sink) map[string]any {
	d := &document{
		cluster: cluster, servers: schema{}, channels: schema{}, operations: schema{}, messages: schema{},
		schemas: schema{},
	}
	for i := range sinks {
		d.sink(&sinks[i])
	}
	name := cluster
	if name == "" {
		name = "a cluster"
	}
	doc := map[string]any{
		"asyncapi": "3.0.0",
		"info": schema{
			"title":   "Changes of Kubernetes resources of " + name,
			"version": "1.0.0",
			"description": "Every change of chosen Kubernetes resources as a CloudEvent, " +
				"published by bridge. Order, repeats and gaps are described in docs/consumers.md.",
		},
		"defaultContentType": event.ContentType,
		"channels":           d.channels,
		"operations":         d.operations,
		"components":         schema{"messages": d.messages, "schemas": d.schemas},
	}
	if len(d.servers) > 0 {
		doc["servers"] = d.servers
	}
	return doc
}

// document is what Document has made so far.
type document struct {
	cluster                                          string
	servers, channels, operations, messages, schemas schema
	// forms are the definitions of forms.json, with references into this document; nil until one is
	// used.
	forms schema
}

func ref(parts ...string) schema { return schema{"$ref": "#/" + strings.Join(parts, "/")} }

func (d *document) sink(s *Sink) {
	servers := d.addServers(s.Name, s.Protocol, s.Servers)
	list := schema{}
	for i := range s.Streams {
		for name, m := range d.messagesOf(s, &s.Streams[i]) {
			d.messages[name] = m
			list[name] = ref("components", "messages", name)
		}
	}
	if s.Tombstones {
		name := s.Name + ".tombstone"
		d.messages[name] = schema{
			"title": "Tombstone", "summary": "The object of this key is gone: a compacted topic forgets " +
				"it. It is no event.",
			"payload": schema{"type": "null"}, "bindings": d.keyBinding(s),
		}
		list[name] = ref("components", "messages", name)
	}
	d.channel(s.Name, "What the sink "+s.Name+" publishes", s.Address, servers, list, s)
	if s.DeadLetters == "" {
		return
	}
	if s.DeadLetterServer != "" {
		servers = d.addServers(s.Name+"-deadletters", s.Protocol, []string{s.DeadLetterServer})
	}
	name := s.Name + ".deadletter"
	d.messages[name] = d.deadLetter(s)
	d.channel(s.Name+"-deadletters", "Events that were refused, by the sink "+s.Name, s.DeadLetters,
		servers,
		schema{name: ref("components", "messages", name)}, s)
}

func (d *document) addServers(name, protocol string, hosts []string) (refs []any) {
	for i, host := range hosts {
		key := name
		if i > 0 {
			key = fmt.Sprint(name, "-", i)
		}
		d.servers[key] = schema{"host": host, "protocol": protocol}
		refs = append(refs, ref("servers", key))
	}
	return refs
}

// channel adds a channel with the operation that publishes to it.
func (d *document) channel(name, title, template string, servers []any, messages schema, s *Sink) {
	channel := schema{"title": title, "messages": messages}
	channel["address"], channel["parameters"] = d.address(template, s)
	if template == "" {
		channel["address"] = nil
	}
	if len(channel["parameters"].(schema)) == 0 {
		delete(channel, "parameters")
	}
	if len(servers) > 0 {
		channel["servers"] = servers
	}
	d.channels[name] = channel
	refs := []any{}
	for _, m := range slices.Sorted(maps.Keys(messages)) {
		refs = append(refs, ref("channels", name, "messages", m))
	}
	d.operations[name] = schema{"action": "send", "channel": ref("channels", name), "messages": refs}
}

// Parameter returns the name of a field of a template as a parameter of a channel.
func Parameter(field string) string { return strings.ReplaceAll(field, ".", "_") }

var parameterTexts = map[string]string{
	"cluster":   "The name of the cluster",
	"informer":  "The informer",
	"group":     "The API group; core for the core group",
	"version":   "The API version",
	"resource":  "The resource in the plural: deployments",
	"kind":      "The kind",
	"namespace": "The namespace; - for none",
	"name":      "The name of the object",
	"uid":       "The uid of the object",
	"op":        "What happened",
	"type":      "The type of the event",
}

// address puts in what is known of a template, and describes the rest.
func (d *document) address(template string, s *Sink) (string, schema) {
	parameters := schema{}
	t, err := event.ParseTemplate(template)
	if err != nil {
		return template, parameters
	}
	for _, field := range t.Fields() {
		name := Parameter(field)
		if field == "cluster" && d.cluster != "" {
			text := string(event.AppendSubjectToken(nil, d.cluster))
			if s.Protocol == "kafka" {
				text = string(event.AppendTopicPart(nil, d.cluster))
			}
			template = strings.ReplaceAll(template, "{cluster}", text)
			continue
		}
		template = strings.ReplaceAll(template, "{"+field+"}", "{"+name+"}")
		text := parameterTexts[field]
		if text == "" {
			text = "The attribute " + strings.TrimPrefix(field, "attributes.")
		}
		parameters[name] = schema{"description": text + "; what the address can't hold is encoded"}
	}
	return template, parameters
}

//go:embed forms.json
var formsFile []byte

// Forms returns a JSON Schema with a definition for every form of payload and every event about an
// informer, whatever the configuration. Definitions allow members beyond those that they name.
func Forms() map[string]any { return parseForms(formsFile) }

// useForm adds a form to the schemas of the document, with the forms that it refers to.
func (d *document) useForm(name string) schema {
	if d.forms == nil {
		text := bytes.ReplaceAll(formsFile, []byte("#/definitions/"), []byte("#/components/schemas/"))
		d.forms = parseForms(text)["definitions"].(schema)
	}
	if d.schemas[name] == nil {
		d.schemas[name] = d.forms[name]
		d.useReferences(d.forms[name])
	}
	return ref("components", "schemas", name)
}

func parseForms(text []byte) (forms map[string]any) {
	if err := json.Unmarshal(text, &forms); err != nil {
		panic(fmt.Sprintf("forms.json: %v", err)) // it is part of the program
	}
	return forms
}

// useReferences adds the forms that a part of a schema refers to.
func (d *document) useReferences(part any) {
	switch p := part.(type) {
	case []any:
		for _, inner := range p {
			d.useReferences(inner)
		}
	case schema:
		for _, inner := range p {
			d.useReferences(inner)
		}
		if to, ok := p["$ref"].(string); ok {
			d.useForm(path.Base(to))
		}
	}
}

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
	if stream.Attributed {
		list[s.Name+"."+stream.Informer+".object."+string(event.Attributed)] = d.message(s, stream,
			event.TypeAttributed, true, d.useForm(string(event.Attributed)))
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
	if !s.Structured && !s.Flat || s.HeadersToo {
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
	switch {
	case s.Structured:
		properties := schema{"data": data}
		for name, value := range attributes {
			properties[name] = value
		}
		data = schema{"type": "object", "properties": properties, "required": list(required)}
		m["contentType"] = event.StructuredContentType
	case s.Flat:
		data = d.record(attributes, data)
		m["contentType"] = event.FlatContentType
	}
	if mediaType, isDocument := m["contentType"].(string); isDocument && s.ContentType != "" {
		headers[s.ContentType] = schema{"type": "string", "pattern": "^" + regexp.QuoteMeta(mediaType)}
		mustHave = append(mustHave, s.ContentType)
	}
	m["payload"] = data
	if len(headers) > 0 {
		m["headers"] = schema{"type": "object", "properties": headers, "required": mustHave}
	}
}

// record returns the schema of a flat record.
func (d *document) record(attributes map[string]schema, data schema) schema {
	moment := schema{"type": []any{"string", "null"}, "format": "date-time"}
	properties := schema{
		"cluster": text("The cluster"), "apigroup": text("The API group; empty for the core group"),
		"op":   text("What happened: the last word of the type"),
		"time": moment, "notbefore": moment,
		"initial": schema{"type": "boolean"}, "inferred": schema{"type": "boolean"},
		"data": schema{
			"type": []any{"string", "null"}, "contentMediaType": event.ContentType, "contentSchema": data,
			"description": "The payload as JSON in a text",
		},
	}
	if d.cluster != "" {
		properties["cluster"] = constant(d.cluster)
	}
	for name, value := range attributes {
		if properties[name] == nil && name != "specversion" {
			properties[name] = value
		}
	}
	columns := event.FlatColumns()
	for _, name := range columns {
		if properties[name] == nil {
			properties[name] = text("Empty in this event")
		}
	}
	return schema{"type": "object", "properties": properties, "required": list(columns)}
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
	attributes["deadlettersignature"] = text("The bridge's, of the event as it was")
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
	if typ == event.TypeAttributed {
		all["actor"] = text("The authenticated user; none where the user is not known")
		all["actorgrade"] = text("How the user is known: exact, complete-log")
		all["impersonator"] = text("Who acted as the user")
		all["verb"], all["auditid"] = text("Of the request"), text("Of the request in the audit log")
	}
	for name, what := range map[string]string{
		"name": "The name of the object", "uid": "The uid of the object",
		"previous":   "The resourceversion of the version before",
		"timesource": "managedfields or observed",
		"notbefore":  "The change was made between this and time: it became known late",
		"manager":    "The field manager of exactly this change", "managersubresource": "Its subresource",
		"manageroperation": "Update or Apply",
		"lastmanager":      "Of a delete: the last manager that set a field",
		"cause":            "With selectors: created, entered-selector, deleted, left-selector, unknown",
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
