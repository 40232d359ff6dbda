package event

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Template makes a NATS subject or a Kafka topic of an event's fields: literal text with {field} in
// it. It is immutable and safe for concurrent use.
type Template struct {
	text  string
	parts []part
}

// part is a literal, or a field when field is not "".
type part struct{ literal, field string }

// Fields that a template may name.
var templateFields = map[string]func(*Event) string{
	"cluster":   func(e *Event) string { return e.Cluster },
	"informer":  func(e *Event) string { return e.Informer },
	"group":     func(e *Event) string { return cmp.Or(e.Group, "core") },
	"version":   func(e *Event) string { return e.Version },
	"resource":  func(e *Event) string { return e.Resource },
	"kind":      func(e *Event) string { return e.Kind },
	"namespace": func(e *Event) string { return e.Namespace },
	"name":      func(e *Event) string { return e.Name },
	"uid":       func(e *Event) string { return e.UID },
	"changed":   func(e *Event) string { return e.Changed },
	"op":        func(e *Event) string { return string(e.Op) },
	"type":      func(e *Event) string { return e.Type },
}

// attributeOf returns the attribute that a field {attributes.name} names, "" when it is another
// field.
func attributeOf(field string) string {
	name, ok := strings.CutPrefix(field, "attributes.")
	if !ok || !validAttribute.MatchString(name) {
		return ""
	}
	return name
}

// value of the part's field; that of an attribute which the event does not have is "".
func (p part) value(e *Event) string {
	if field := templateFields[p.field]; field != nil {
		return field(e)
	}
	name := attributeOf(p.field)
	for _, a := range e.Extensions {
		if a.Name == name {
			return a.Value
		}
	}
	return ""
}

// ParseTemplate reads a template. Its errors name the field and those that exist.
func ParseTemplate(text string) (*Template, error) {
	t := &Template{text: text}
	rest := text
	for rest != "" {
		open := strings.IndexByte(rest, '{')
		if open < 0 {
			open = len(rest)
		}
		if strings.IndexByte(rest[:open], '}') >= 0 {
			return nil, fmt.Errorf("template %q: } without {", text)
		}
		if open > 0 {
			t.parts = append(t.parts, part{literal: rest[:open]})
		}
		if rest = rest[open:]; rest == "" {
			break
		}
		end := strings.IndexByte(rest, '}')
		if end < 0 {
			return nil, fmt.Errorf("template %q: { without }", text)
		}
		field := rest[1:end]
		if templateFields[field] == nil && attributeOf(field) == "" {
			return nil, fmt.Errorf("template %q: no field {%s}; there are %s, and {attributes.<name>} for "+
				"attributes of your own", text, field, strings.Join(TemplateFields(), ", "))
		}
		t.parts = append(t.parts, part{field: field})
		rest = rest[end+1:]
	}
	if len(t.parts) == 0 {
		return nil, fmt.Errorf("template is empty")
	}
	return t, nil
}

// TemplateFields lists the fields a template may name, sorted.
func TemplateFields() []string {
	names := make([]string, 0, len(templateFields))
	for name := range templateFields {
		names = append(names, "{"+name+"}")
	}
	slices.Sort(names)
	return names
}

// Fields returns the fields that the template names, each once.
func (t *Template) Fields() []string {
	var fields []string
	for _, p := range t.parts {
		if p.field != "" && !slices.Contains(fields, p.field) {
			fields = append(fields, p.field)
		}
	}
	return fields
}

// Values returns an event's values of the fields that the template names.
func (t *Template) Values(e *Event) map[string]string {
	values := map[string]string{}
	for _, field := range t.Fields() {
		values[field] = part{field: field}.value(e)
	}
	return values
}

// Attributes returns the custom attributes that the template names.
func (t *Template) Attributes() []string {
	var names []string
	for _, p := range t.parts {
		if name := attributeOf(p.field); name != "" {
			names = append(names, name)
		}
	}
	return names
}

func (t *Template) String() string { return t.text }

// Append appends the text for an event. encode appends one field's value in a form that fits
// between the literals (AppendSubjectToken, AppendTopicPart); the literals stay as they are.
func (t *Template) Append(
	dst []byte, e *Event, encode func(dst []byte, value string) []byte,
) []byte {
	for _, p := range t.parts {
		if p.field == "" {
			dst = append(dst, p.literal...)
		} else {
			dst = encode(dst, p.value(e))
		}
	}
	return dst
}

// Pattern returns the template with every field replaced by wildcard, but for those named in known,
// whose values are put in: the subjects of a JetStream stream, for example.
func (t *Template) Pattern(
	wildcard string, known map[string]string, encode func(dst []byte, value string) []byte,
) string {
	var out []byte
	for _, p := range t.parts {
		value, ok := known[p.field]
		switch {
		case p.field == "":
			out = append(out, p.literal...)
		case ok:
			out = encode(out, value)
		default:
			out = append(out, wildcard...)
		}
	}
	return string(out)
}
