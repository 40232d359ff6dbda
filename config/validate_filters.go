package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/event/filter"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/settings/suggest"
)

var operations = []string{
	string(event.Added), string(event.Updated), string(event.Deleted),
	string(event.Synced),
}

// validateFilter checks what an informer and a binding have in common; path is theirs.
func validateFilter(ps *settings.Report, path string, ops []string, expression string) {
	for i, op := range ops {
		at := fmt.Sprintf("%s.operations[%d]", path, i)
		switch {
		case !slices.Contains(operations, op):
			ps.Add(at, "want one of %s, got %q%s", strings.Join(operations, ", "), op,
				suggest.DidYouMean(op, operations, 2))
		case slices.Index(ops, op) < i:
			ps.Add(at, "%q is listed twice", op)
		}
	}
	if expression == "" {
		return
	}
	if _, err := filter.Compile(expression); err != nil {
		ps.Add(path+".filter", "%v", err)
	}
}

// partName matches the name of a member at the top of an object.
var partName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]*$`)

func (inf *Informer) validateNoise(ps *settings.Report, path string) {
	validatePaths(ps, path+".ignoreChanges", inf.IgnoreChanges)
	for i, part := range inf.ChangedParts {
		at := fmt.Sprintf("%s.changedParts[%d]", path, i)
		switch {
		case !partName.MatchString(part):
			ps.Add(at, "want a member at the top of an object, such as spec, status or metadata, got %q; "+
				"for what lies deeper there is ignoreChanges", part)
		case slices.Index(inf.ChangedParts, part) < i:
			ps.Add(at, "%q is listed twice", part)
		}
	}
	if len(inf.Operations) == 0 || slices.Contains(inf.Operations, string(event.Updated)) {
		return
	}
	for _, key := range givenKeys(
		setting{"ignoreChanges", len(inf.IgnoreChanges) > 0},
		setting{"changedParts", len(inf.ChangedParts) > 0},
		setting{"ignoreHeartbeats", inf.IgnoreHeartbeats},
	) {
		ps.Add(path+"."+key, "has no effect without updated in operations")
	}
}

// validatePaths checks a list of paths and gives those that can be read.
func validatePaths(ps *settings.Report, path string, texts []string) {
	for i, text := range texts {
		at := fmt.Sprintf("%s[%d]", path, i)
		if _, err := resource.ParsePath(text); err != nil {
			ps.Add(at, "%v", err)
		} else if slices.Index(texts, text) < i {
			ps.Add(at, "%q is listed twice", text)
		}
	}
}

func (inf *Informer) validateRedaction(ps *settings.Report, path string) {
	for _, list := range []struct {
		key   string
		texts []string
	}{{"redact", inf.Redact}, {"drop", inf.Drop}} {
		at := path + "." + list.key
		validatePaths(ps, at, list.texts)
		for i, text := range list.texts {
			p, err := resource.ParsePath(text)
			if err != nil {
				continue
			}
			if err := resource.CheckRule(p); err != nil {
				ps.Add(fmt.Sprintf("%s[%d]", at, i), "%v", err)
			}
		}
	}
	if inf.KeepManagedFields && (len(inf.Redact) > 0 || len(inf.Drop) > 0 || inf.RedactEnv) {
		ps.Add(path+".keepManagedFields",
			"cannot be combined with redact, drop and redactEnv: managedFields repeat values of the object")
	}
}

func validateAttributes(ps *settings.Report, path string, attributes map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		at := settings.Join(path, name)
		if err := event.CheckAttribute(name); err != nil {
			ps.Add(at, "%v", err)
		}
		if p, err := resource.ParsePath(attributes[name]); err != nil {
			ps.Add(at, "%v", err)
		} else if !p.Exact() {
			ps.Add(at, "path %q leads to many places; an attribute has one value", attributes[name])
		}
	}
}

// validateTemplateAttributes checks that some informer gives its events the attributes that
// subjects and topics name.
func (c *Config) validateTemplateAttributes(ps *settings.Report) {
	var given []string
	for i := range c.Informers {
		given = slices.AppendSeq(given, maps.Keys(c.Informers[i].Attributes))
	}
	check := func(path, text string) {
		template, err := event.ParseTemplate(text)
		if err != nil {
			return // reported, or not given
		}
		for _, name := range template.Attributes() {
			if !slices.Contains(given, name) {
				ps.Add(path, "no informer has an attribute %q%s", name,
					suggest.DidYouMean(name, given, len(given)))
			}
		}
	}
	for i, s := range c.Sinks {
		at := fmt.Sprintf("sinks[%d]", i)
		if s.NATS != nil {
			check(at+".nats.subject", s.NATS.Subject)
			check(at+".nats.deadLetterSubject", s.NATS.DeadLetterSubject)
			check(at+".nats.stream.name", s.NATS.Stream.Name)
		}
		if s.Kafka != nil {
			check(at+".kafka.topic", s.Kafka.Topic)
			check(at+".kafka.deadLetterTopic", s.Kafka.DeadLetterTopic)
		}
	}
}
