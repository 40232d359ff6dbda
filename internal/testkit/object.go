package testkit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubebridge/bridge/internal/resource"
)

// isBuiltIn reports whether objects of a group are served in the order of Go's structs, and in
// lists without their kind.
func isBuiltIn(group string) bool {
	return !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io")
}

// newContent is an object as it is when it is created; its uid is another each time.
func (s *Server) newContent(key resource.Key) map[string]any {
	namespace, name := key.Split()
	now := time.Now().UTC().Format(time.RFC3339)
	metadata := map[string]any{
		"name":              name,
		"uid":               fmt.Sprintf("uid-%s-%d", name, s.revision),
		"creationTimestamp": now,
		"managedFields": []any{map[string]any{
			"manager": "testkit", "operation": "Update", "time": now,
			"fieldsType": "FieldsV1", "fieldsV1": map[string]any{},
		}},
	}
	if namespace != "" {
		metadata["namespace"] = namespace
	}
	return map[string]any{"metadata": metadata}
}

func deepCopy(m map[string]any) map[string]any {
	return decode(mustMarshal(m))
}

func decode(raw []byte) (m map[string]any) {
	if err := json.Unmarshal(raw, &m); err != nil {
		panic(fmt.Sprintf("testkit: %v", err))
	}
	return m
}

func mustMarshal(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("testkit: object that is no JSON: %v", err))
	}
	return raw
}

// render is an object's JSON at a version, which for a deletion is not its own. Built-in resources
// begin with kind and apiVersion, custom ones have all members sorted, and items of lists of
// built-in ones have neither.
func (s *Server) render(content map[string]any, version int64, item bool) []byte {
	content = maps.Clone(content)
	metadata, _ := content["metadata"].(map[string]any)
	metadata = maps.Clone(metadata)
	metadata["resourceVersion"] = string(s.versionOf(version))
	content["metadata"] = metadata
	if s.custom {
		content["kind"], content["apiVersion"] = s.typ.Kind, s.typ.APIVersion()
		return mustMarshal(content)
	}
	var head []member
	if !item {
		head = []member{
			{"kind", mustMarshal(s.typ.Kind)},
			{"apiVersion", mustMarshal(s.typ.APIVersion())},
		}
	}
	head = append(head, member{"metadata", mustMarshal(metadata)})
	delete(content, "metadata")
	for _, name := range slices.Sorted(maps.Keys(content)) {
		head = append(head, member{name, mustMarshal(content[name])})
	}
	return renderObject(head)
}

type member struct {
	name string
	raw  []byte
}

func renderObject(members []member) []byte {
	out := []byte{'{'}
	for i, m := range members {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(append(out, mustMarshal(m.name)...), ':'), m.raw...)
	}
	return append(out, '}')
}

func pretty(raw []byte) []byte {
	var out bytes.Buffer
	if err := json.Indent(&out, raw, "", "  "); err != nil {
		return raw // a frame that the test wants to be broken
	}
	return out.Bytes()
}

// selection is what a request selects.
type selection struct {
	namespace string
	labels    labels.Selector
	fields    fields.Selector
}

// matches knows the fields that every resource has: metadata.name and metadata.namespace.
func (sel selection) matches(key resource.Key, r *revision) bool {
	if r == nil {
		return false
	}
	namespace, name := key.Split()
	if sel.namespace != "" && sel.namespace != namespace {
		return false
	}
	set := labels.Set{}
	metadata, _ := r.content["metadata"].(map[string]any)
	if m, ok := metadata["labels"].(map[string]any); ok {
		for k, v := range m {
			set[k] = fmt.Sprint(v)
		}
	}
	return sel.labels.Matches(set) &&
		sel.fields.Matches(fields.Set{"metadata.name": name, "metadata.namespace": namespace})
}

// Wide is a ConfigMap as a watch has it whose data has that many members. The members of two rounds
// have no name in common. fields adds the managedFields entry that names each of them.
func Wide(members, round int, fields bool) []byte {
	return wide("ConfigMap", `""`, members, round, fields)
}

// WideSecret is a Secret of the same form.
func WideSecret(members, round int) []byte {
	return wide("Secret", `"YQ=="`, members, round, true)
}

func wide(kind, value string, members, round int, fields bool) []byte {
	var out strings.Builder
	fmt.Fprintf(&out, `{"kind":%q,"apiVersion":"v1","metadata":{"name":"wide","namespace":"evil",`+
		`"uid":"b5a5b30e-6d8e-4f7e-9d0c-0d7b8a1f2c11","resourceVersion":"%d"`, kind, 1000+round)
	if fields {
		out.WriteString(`,"managedFields":[{"manager":"evil","operation":"Update","apiVersion":"v1",` +
			`"time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:data":{".":{}`)
		for i := range members {
			fmt.Fprintf(&out, `,"f:k%d-%d":{}`, round, i)
		}
		out.WriteString(`}}}]`)
	}
	out.WriteString(`},"data":{`)
	for i := range members {
		if i > 0 {
			out.WriteByte(',')
		}
		fmt.Fprintf(&out, `"k%d-%d":%s`, round, i, value)
	}
	out.WriteString(`}}`)
	return []byte(out.String())
}
