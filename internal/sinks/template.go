package sinks

import (
	"slices"
	"strings"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/settings"
)

// Template is a template in a section.
type Template struct{ Key, Text string }

// ValidateTemplate reports a template that can't be parsed.
func ValidateTemplate(ps *settings.Report, path, text string) {
	if _, err := event.ParseTemplate(text); err != nil {
		ps.Add(path, "%v", err)
	}
}

// chosenFields returns the fields of a template whose values the author of an object chooses:
// name, uid, changed, attributes.
func chosenFields(text string) []string {
	template, err := event.ParseTemplate(text)
	if err != nil {
		return nil // reported, or not given
	}
	return slices.DeleteFunc(slices.Clone(template.Fields()), func(field string) bool {
		return field != "name" && field != "uid" && field != "changed" && !strings.HasPrefix(field, "attributes.")
	})
}

// RequireLimit refuses a name of topics or streams with a field that whoever writes objects
// chooses, until the limit in key is given: the first values use it up, and events of all others
// become dead letters.
func RequireLimit(ps *settings.Report, path, key, text, what string) {
	chosen := chosenFields(text)
	if len(chosen) == 0 || ps.Origins.Given(key) {
		return
	}
	ps.Add(path, "whoever writes an object chooses {%s}, and each value makes %s: set %s, the limit "+
		"for all of them together, or use {namespace} or {resource} in the name", chosen[0], what,
		key[strings.LastIndex(key, ".")+1:])
}

// WarnOfMany reports a template whose fields have a value for each object, or values that whoever
// writes an object chooses.
func WarnOfMany(ps *settings.Report, path, text, what string, most int) {
	for _, field := range chosenFields(text) {
		if field == "name" || field == "uid" {
			ps.Add(path, "{%s} makes %s for each object: events for more than %d are dead letters",
				field, what, most)
			continue
		}
		ps.Add(path, "whoever writes an object may choose {%s}: events go where they want, and "+
			"each value makes %s, of which there may be %d; route by {namespace} to keep tenants apart",
			field, what, most)
	}
}
