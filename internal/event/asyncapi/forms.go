package asyncapi

import (
	"maps"
	"slices"
)

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
