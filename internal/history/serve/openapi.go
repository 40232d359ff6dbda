package serve

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubebridge/bridge/internal/history/query"
)

// packedSchemas are the OpenAPI schemas of the kinds that an API server has by itself, as one
// publishes them: a JSON object of them by their names. TestSchemas in test/e2e makes the file. A
// history has no schemas, but for those in CustomResourceDefinitions.
//
//go:embed kubernetes.json.gz
var packedSchemas []byte

// builtIn are the schemas of packedSchemas.
type builtIn struct {
	schemas map[string]json.RawMessage
	byKind  map[schema.GroupVersionKind]string // their names
}

var loadBuiltIn = sync.OnceValues(func() (*builtIn, error) {
	unpacked, err := gzip.NewReader(bytes.NewReader(packedSchemas))
	if err != nil {
		return nil, err
	}
	b := &builtIn{byKind: map[schema.GroupVersionKind]string{}}
	if err := json.NewDecoder(unpacked).Decode(&b.schemas); err != nil {
		return nil, err
	}
	for name, s := range b.schemas {
		var of struct {
			Kinds []schema.GroupVersionKind `json:"x-kubernetes-group-version-kind"`
		}
		if err := json.Unmarshal(s, &of); err != nil {
			return nil, err
		}
		if len(of.Kinds) == 1 { // one of several is no kind of objects, as Status
			b.byKind[of.Kinds[0]] = name
		}
	}
	return b, nil
})

// reference begins each reference from a schema to another.
const reference = `"#/components/schemas/`

// add adds a schema to a document, with all that it refers to.
func (b *builtIn) add(document map[string]json.RawMessage, name string, s json.RawMessage) {
	if document[name] != nil || s == nil {
		return
	}
	document[name] = s
	for rest := s; ; {
		i := bytes.Index(rest, []byte(reference))
		if i < 0 {
			return
		}
		rest = rest[i+len(reference):]
		other := string(rest[:max(bytes.IndexByte(rest, '"'), 0)])
		b.add(document, other, b.schemas[other])
	}
}

// openAPI answers /openapi/v3, which kubectl explain reads.
func (q *request) openAPI(parts []string) {
	switch {
	case len(parts) == 2 && parts[1] == "v2" && strings.Contains(q.r.Header.Get("Accept"), "+protobuf"):
		q.w.Header().Set("Content-Type", protobufSchemas)
		_, _ = io.WriteString(q.w, noSchemas) // the client has gone
	case len(parts) == 2 && parts[1] == "v2":
		q.json(http.StatusOK, map[string]any{
			"swagger": "2.0", "info": map[string]string{"title": "bridge serve", "version": "1"},
			"paths": map[string]any{}, "definitions": map[string]any{},
		})
	case len(parts) == 2 && parts[1] == "v3":
		q.openAPIPaths()
	case len(parts) == 4 && parts[1] == "v3" && parts[2] == "api":
		q.openAPIDocument("", parts[3])
	case len(parts) == 5 && parts[1] == "v3" && parts[2] == "apis":
		q.openAPIDocument(parts[3], parts[4])
	default:
		q.notFound("want /openapi/v2, /openapi/v3, or a path that /openapi/v3 names")
	}
}

// protobufSchemas is the media type in which client-go asks for schemas of OpenAPI v2.
const protobufSchemas = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"

// noSchemas is a document without schemas in this form: the version, the title and version of the
// API, no paths and no definitions. Clients that read schemas take them from /openapi/v3.
const noSchemas = "\x0a\x032.0\x12\x11\x0a\x0cbridge serve\x12\x011\x42\x00\x4a\x00"

// apiPath is "api/v1", or "apis/apps/v1".
func apiPath(group, version string) string {
	if group == "" {
		return "api/" + version
	}
	return "apis/" + group + "/" + version
}

// openAPIPaths names the documents: one for each group and version.
func (q *request) openAPIPaths() {
	types, err := q.catalog()
	if err != nil {
		q.fail(err)
		return
	}
	paths := map[string]any{}
	for _, t := range types {
		at := apiPath(t.Group, t.Version)
		paths[at] = map[string]string{"serverRelativeURL": "/openapi/v3/" + at}
	}
	q.discovered("application/json", map[string]any{"paths": paths})
}

// openAPIDocument has the schemas of a group and version, and for each resource the path at which
// kubectl finds its kind.
func (q *request) openAPIDocument(group, version string) {
	types, err := q.catalog()
	if err != nil {
		q.fail(err)
		return
	}
	known, err := loadBuiltIn()
	if err != nil {
		q.fail(err)
		return
	}
	schemas, paths := map[string]json.RawMessage{}, map[string]any{}
	for _, t := range types {
		if t.Group != group || t.Version != version {
			continue
		}
		kind := schema.GroupVersionKind{Group: t.Group, Version: t.Version, Kind: t.Kind}
		name := known.byKind[kind]
		s := known.schemas[name]
		if s == nil {
			if name, s, err = q.definedSchema(types, t, known); err != nil {
				q.fail(err)
				return
			}
		}
		if s == nil {
			continue
		}
		known.add(schemas, name, s)
		paths[t.listPath()] = listOperation(kind)
	}
	if len(paths) == 0 {
		q.notFound("this history has no schema of " + strings.TrimPrefix(group+"/"+version, "/") +
			": of custom resources it has those of the customresourcedefinitions in it")
		return
	}
	q.discovered("application/json", map[string]any{
		"openapi": "3.0.0", "info": map[string]string{"title": "bridge serve", "version": "1"},
		"paths": paths, "components": map[string]any{"schemas": schemas},
	})
}

// listPath returns where objects of all namespaces, or of one, are listed.
func (t *resourceType) listPath() string {
	at := "/" + apiPath(t.Group, t.Version)
	if t.Namespaced {
		at += "/namespaces/{namespace}"
	}
	return path.Join(at, t.Resource)
}

func listOperation(kind schema.GroupVersionKind) map[string]any {
	return map[string]any{"get": map[string]any{
		"responses":                       map[string]any{"200": map[string]string{"description": "OK"}},
		"x-kubernetes-action":             "list",
		"x-kubernetes-group-version-kind": kindOf(kind),
	}}
}

func kindOf(kind schema.GroupVersionKind) map[string]string {
	return map[string]string{"group": kind.Group, "version": kind.Version, "kind": kind.Kind}
}

// definedSchema returns the schema of a custom resource, from its definition as it was at the
// point; nil where the history has none. As an API server does, it adds what all objects have.
func (q *request) definedSchema(
	types []*resourceType, t *resourceType, known *builtIn,
) (name string, s json.RawMessage, err error) {
	i := slices.IndexFunc(types, func(t *resourceType) bool {
		return t.Group == "apiextensions.k8s.io" && t.Resource == "customresourcedefinitions"
	})
	if i < 0 {
		return "", nil, nil
	}
	wanted := query.StateQuery{Units: types[i].units, At: q.point(), Only: t.Resource + "." + t.Group}
	for v, err := range q.history.Objects.State(wanted) {
		if err != nil {
			return "", nil, err
		}
		s, err := schemaOf(v.Event.Data, t, known)
		group := strings.Split(t.Group, ".")
		slices.Reverse(group)
		return strings.Join(group, ".") + "." + t.Version + "." + t.Kind, s, err
	}
	return "", nil, nil
}

// schemaOf takes a version's schema out of a definition; nil for none.
func schemaOf(definition []byte, t *resourceType, known *builtIn) (json.RawMessage, error) {
	var d struct {
		Spec struct {
			Versions []struct {
				Name   string `json:"name"`
				Schema struct {
					Root map[string]json.RawMessage `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if json.Unmarshal(definition, &d) != nil {
		return nil, nil //nolint:nilerr // the stream has no objects
	}
	for _, version := range d.Spec.Versions {
		root := version.Schema.Root
		if version.Name != t.Version || root == nil {
			continue
		}
		properties, common := map[string]any{}, struct {
			Properties map[string]map[string]any `json:"properties"`
		}{}
		if len(root["properties"]) > 0 {
			if err := json.Unmarshal(root["properties"], &properties); err != nil {
				return nil, err
			}
		}
		if err := json.Unmarshal(known.schemas["io.k8s.api.apps.v1.Deployment"], &common); err != nil {
			return nil, err
		}
		for _, name := range []string{"apiVersion", "kind", "metadata"} {
			delete(common.Properties[name], "default") // a custom resource has none
			properties[name] = common.Properties[name]
		}
		kind := schema.GroupVersionKind{Group: t.Group, Version: t.Version, Kind: t.Kind}
		whole := map[string]any{}
		for key, value := range root {
			whole[key] = value
		}
		whole["properties"] = properties
		whole["x-kubernetes-group-version-kind"] = []any{kindOf(kind)}
		return json.Marshal(whole)
	}
	return nil, nil
}
