package asyncapi

import (
	"fmt"
	"maps"
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
	// Structured: the message is the whole event. HeadersToo: the attributes are headers too.
	Structured, HeadersToo bool
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
	Progress bool
	// Attributes of the configuration's own.
	Attributes []string
	Owners     bool
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
				"published by bridge. Order, " +
				"repeats and gaps are described in docs/consumers.md.",
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

// Parameter is the name of a field of a template as a parameter of a channel.
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

// Forms is a JSON Schema with a definition for every form of payload and every event about an
// informer, whatever the configuration.
func Forms() map[string]any {
	definitions := schema{}
	use := func(name string) schema { return ref("definitions", name) }
	for _, name := range slices.Sorted(maps.Keys(forms)) {
		definitions[name] = forms[name](use)
	}
	return map[string]any{
		"$schema":     "http://json-schema.org/draft-07/schema#",
		"title":       "Payloads of events of bridge",
		"definitions": definitions,
	}
}

// forms are the schemas of payloads. use refers to another one.
var forms map[string]func(use func(string) schema) schema

func init() { // they refer to one another by their names
	forms = map[string]func(use func(string) schema) schema{
		"object":               objectForm,
		"metadata":             metadataForm,
		"reference":            referenceForm,
		"change":               changeForm,
		"mergepatch":           mergePatchForm,
		"debezium":             debeziumForm,
		"informer-synced":      syncedForm,
		"informer-progress":    progressForm,
		"informer-gap":         gapForm,
		"informer-quarantined": quarantinedForm,
	}
}

var (
	anyText   = schema{"type": "string"}
	aNumber   = schema{"type": "integer"}
	aBoolean  = schema{"type": "boolean"}
	textsMap  = schema{"type": "object", "additionalProperties": schema{"type": "string"}}
	textsList = schema{"type": "array", "items": schema{"type": "string"}}
)

// object is a schema of an object.
func object(description string, properties schema, required ...string) schema {
	s := schema{"type": "object", "properties": properties, "description": description}
	if len(required) > 0 {
		s["required"] = list(required)
	}
	return s
}

// meta is the metadata of an object. Any part of it can be cut or redacted by a configuration.
func meta() schema {
	return object("The metadata of the object", schema{
		"name": anyText, "namespace": anyText, "uid": anyText, "resourceVersion": anyText,
		"creationTimestamp": anyText, "deletionTimestamp": anyText, "labels": textsMap,
		"annotations":     textsMap,
		"ownerReferences": schema{"type": "array"}, "finalizers": textsList,
	})
}

func objectForm(func(string) schema) schema {
	return object("A Kubernetes object, as the API server has it. Values of Secrets are fingerprints",
		schema{
			"apiVersion": anyText, "kind": anyText, "metadata": meta(),
		}, "metadata")
}

func metadataForm(func(string) schema) schema {
	return object("A PartialObjectMetadata", schema{
		"apiVersion": constant("meta.k8s.io/v1"), "kind": constant("PartialObjectMetadata"),
		"metadata": meta(),
	}, "apiVersion", "kind", "metadata")
}

func referenceForm(func(string) schema) schema {
	return object("An ObjectReference, as Knative sends it", schema{
		"apiVersion": anyText, "kind": anyText, "namespace": anyText, "name": anyText,
	}, "apiVersion", "kind", "name")
}

func changeForm(use func(string) schema) schema {
	return object("The object, and with updates the version before it and the difference "+
		"(JSON Patch, RFC 6902)", schema{
		"object": use("object"), "old": use("object"),
		"patch": schema{"type": "array", "items": object("An operation", schema{
			"op": schema{
				"type": "string",
				"enum": []any{"add", "remove", "replace", "move", "copy", "test"},
			},
			"path": anyText, "from": anyText, "value": schema{},
		}, "op", "path")},
	}, "object")
}

func mergePatchForm(func(string) schema) schema {
	return object("A JSON Merge Patch (RFC 7386) to the version before", schema{})
}

func debeziumForm(use func(string) schema) schema {
	row := anyOf(schema{"type": "null"}, object("A row", schema{
		"uid": anyText, "namespace": anyText, "name": anyText, "resourceversion": anyText,
		"object": anyOf(schema{"type": "null"}, use("object"), use("metadata")),
	}, "uid", "namespace", "name", "resourceversion", "object"))
	return object("What Debezium sends of a table, without a schema", schema{
		"before": row, "after": row,
		"source": object("Where the event is from", schema{
			"version": anyText, "connector": constant("kubebridge"), "name": anyText, "ts_ms": aNumber,
			"snapshot": schema{"type": "string", "enum": []any{"true", "false"}}, "db": anyText,
			"schema": anyText,
			"table":  anyText, "id": anyText, "sequence": anyText, "previous": anyText, "informer": anyText,
			"timesource": anyText, "manager": anyText, "managersubresource": anyText,
			"manageroperation": anyText,
			"lastmanager":      anyText, "cause": anyText, "inferred": anyText,
		}, "version", "connector", "name", "ts_ms", "snapshot", "db", "schema", "table", "id",
			"sequence"),
		"op":    schema{"type": "string", "enum": []any{"c", "u", "d", "r"}},
		"ts_ms": aNumber,
	}, "before", "after", "source", "op", "ts_ms")
}

func syncedForm(func(string) schema) schema {
	return object("A list has ended: every object that existed is in the stream before it", schema{
		"version": anyText, "items": aNumber, "unreadable": aNumber, "deletesUnknown": aBoolean,
		"selective": textsList,
	}, "version", "items")
}

func progressForm(func(string) schema) schema {
	return object("All changes up to the version are in the stream before it", schema{
		"version": anyText, "selective": textsList,
	}, "version")
}

func gapForm(func(string) schema) schema {
	return object("Versions are missing from the stream", schema{
		"reason": schema{"type": "string", "examples": []any{
			"expired", "rewound", "interrupted", "takeover", "unreadable", "forgotten", "dropped",
		}},
		"from": anyText, "to": anyText, "dropped": aNumber, "note": anyText,
	}, "reason", "from", "to", "note")
}

func quarantinedForm(func(string) schema) schema {
	return object("An object could not be parsed: its versions are missing", schema{
		"reason": anyText, "key": anyText, "message": anyText, "size": aNumber, "partial": aBoolean,
		"sha256":      anyText,
		"fingerprint": anyText, "raw": anyText, "note": anyText,
	}, "reason", "size", "note")
}
