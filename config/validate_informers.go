package config

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/event/filter"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/settings/suggest"
	"github.com/kubebridge/bridge/internal/sinks"
)

func (inf *Informer) validate(ps *settings.Report, path string, sinkNames []string) {
	if len(inf.Resources) == 0 && !ps.Has(path+".resources") {
		ps.Add(path+".resources", `required: what to watch, such as [pods, deployments.apps], or ["*"]`)
	}
	validateResources(ps, path+".resources", inf.Resources)
	validateResources(ps, path+".exclude", inf.Exclude)
	validateNamespaces(ps, path+".namespaces", inf.Namespaces)
	if _, err := labels.Parse(inf.NamespaceSelector); err != nil {
		ps.Add(path+".namespaceSelector", "%v", err)
	}
	if inf.NamespaceSelector != "" && len(inf.Namespaces) > 0 {
		ps.Add(path+".namespaceSelector",
			"cannot be combined with namespaces: to select by name, and labels too, write "+
				"kubernetes.io/metadata.name in (a,b)")
	}
	if _, err := labels.Parse(inf.LabelSelector); err != nil {
		ps.Add(path+".labelSelector", "%v", err)
	}
	if _, err := fields.ParseSelector(inf.FieldSelector); err != nil {
		ps.Add(path+".fieldSelector", "%v", err)
	}
	inf.validateSelectAt(ps, path)
	if inf.Queue.Memory <= 0 {
		ps.Add(path+".queue.memory", "must be above 0")
	}
	if inf.Queue.Spool <= 0 {
		ps.Add(path+".queue.spool", "must be above 0: the backlog of a sink needs a place; with "+
			"state.mode memory it is not used")
	}
	validateFilter(ps, path, inf.Operations, inf.Filter)
	inf.validateNoise(ps, path)
	inf.validateRedaction(ps, path)
	validateAttributes(ps, path+".attributes", inf.Attributes)
	validateIndexes(ps, path+".indexes", inf.Indexes)
	inf.validateSinks(ps, path+".sinks", sinkNames)
}

// builtIn are the names of the indexes that need no configuration.
var builtIn = []string{"owner", "node", "namespace"}

// validateIndexes checks that each index has one definition, and a name of its own.
func validateIndexes(ps *settings.Report, path string, list []Index) {
	for i, index := range list {
		at := fmt.Sprintf("%s[%d]", path, i)
		if ps.Has(at) {
			continue
		}
		switch {
		case (index.Label == "") == (index.CEL == ""):
			ps.Add(at, "want label, or name with cel")
		case index.Label != "" && index.Name != "":
			ps.Add(at+".name", "the index of a label has the name label:%s", index.Label)
		case index.Label != "":
			for _, problem := range content.IsLabelKey(index.Label) {
				ps.Add(at+".label", "%q: %s", index.Label, problem)
			}
		case !validName.MatchString(index.Name):
			ps.Add(at+".name", "want lower-case letters, digits and dashes, beginning with a letter, "+
				"got %q", index.Name)
		case slices.Contains(builtIn, index.Name):
			ps.Add(at+".name", "there is an index %s already", index.Name)
		default:
			if _, err := filter.CompileIndex(index.CEL); err != nil {
				ps.Add(at+".cel", "%v", err)
			}
		}
		if slices.IndexFunc(list, func(other Index) bool {
			return other.Label == index.Label && other.Name == index.Name
		}) < i {
			ps.Add(at, "is listed twice")
		}
	}
}

// validateWhenFull checks that there is something to drop from.
func (inf *Informer) validateWhenFull(ps *settings.Report, path string, mode string) {
	if inf.Queue.WhenFull == "drop-oldest" && mode == "memory" {
		ps.Add(path+".queue.whenFull",
			"drop-oldest drops backlog from disk, and with state.mode memory there is none")
	}
}

// validateDelivery checks that what a sink with delivery latest has read ahead is not dropped under
// it.
func (inf *Informer) validateDelivery(ps *settings.Report, path string, i int) {
	at := fmt.Sprintf("%s[%d].delivery", path, i)
	if !ps.Origins.Given(at) {
		at = strings.TrimSuffix(path, "sinks") + "delivery"
	}
	if inf.Sinks[i].Delivery == "latest" && inf.Queue.WhenFull == "drop-oldest" && !ps.Has(at) {
		ps.Add(at, "latest is not for queue.whenFull: drop-oldest: take one of the two back, or a "+
			"second informer for this sink")
	}
}

// resourceName matches what kubectl takes: a plural, singular, short name or kind, with a version
// and a group behind dots.
var resourceName = regexp.MustCompile(`^(\*|[A-Za-z][A-Za-z0-9-]*)(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

// validateResources checks the form of names. Whether there are such resources, only the API server
// knows.
func validateResources(ps *settings.Report, path string, names []string) {
	for i, name := range names {
		at := fmt.Sprintf("%s[%d]", path, i)
		switch {
		case strings.Contains(name, "/"):
			ps.Add(at,
				`want a name as kubectl takes it, such as deployments.apps or deployments.v1.apps; subresources can't be watched; got %q`, name)
		case !resourceName.MatchString(name):
			ps.Add(at, "want the name of a resource as kubectl takes it, such as pods or "+
				"deployments.apps, got %q", name)
		case slices.Index(names, name) < i:
			ps.Add(at, "%q is listed twice", name)
		}
	}
}

var namespaceName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

func validateNamespaces(ps *settings.Report, path string, names []string) {
	for i, name := range names {
		at := fmt.Sprintf("%s[%d]", path, i)
		switch {
		case name == "*":
			ps.Add(at, "leave namespaces out to watch all of them")
		case !namespaceName.MatchString(name):
			ps.Add(at, "want the name of a namespace, got %q", name)
		case slices.Index(names, name) < i:
			ps.Add(at, "%q is listed twice", name)
		}
	}
}

// validateSinks checks that each binding names a sink, and each sink once: its changes would be
// sent twice.
func (inf *Informer) validateSinks(ps *settings.Report, path string, sinkNames []string) {
	if len(inf.Sinks) == 0 && len(sinkNames) > 0 && !ps.Has(path) {
		ps.Add(path, "want at least one sink, or leave the key out for all of them")
	}
	for i, b := range inf.Sinks {
		inf.validateDelivery(ps, path, i)
		at := fmt.Sprintf("%s[%d].name", path, i)
		validateFilter(ps, fmt.Sprintf("%s[%d]", path, i), b.Operations, b.Filter)
		first := slices.IndexFunc(inf.Sinks, func(other Binding) bool { return other.Name == b.Name })
		switch {
		case b.Name == "":
			if ps.Origins.Given(fmt.Sprintf("%s[%d]", path, i)) && !ps.Has(at) {
				ps.Add(at, "required")
			}
		case !slices.Contains(sinkNames, b.Name):
			if ps.HasAt("sinks") {
				continue // the sinks could not be read, so nobody knows their names
			}
			ps.Add(at, "no sink %q%s", b.Name, suggest.DidYouMean(b.Name, sinkNames, len(sinkNames)))
		case first < i:
			ps.Add(at, "%q is bound already, by %s[%d]", b.Name, path, first)
		}
	}
}

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
	for _, key := range settings.GivenKeys(
		settings.Key("ignoreChanges", len(inf.IgnoreChanges) > 0),
		settings.Key("changedParts", len(inf.ChangedParts) > 0),
		settings.Key("ignoreHeartbeats", inf.IgnoreHeartbeats),
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
	changed := slices.ContainsFunc(c.Informers, func(inf Informer) bool { return inf.Changed })
	for i := range c.Informers {
		given = slices.AppendSeq(given, maps.Keys(c.Informers[i].Attributes))
	}
	check := func(path, text string) {
		template, err := event.ParseTemplate(text)
		if err != nil {
			return // reported, or not given
		}
		if !changed && slices.Contains(template.Fields(), "changed") {
			ps.Add(path, "no informer has changed: true, so {changed} is always empty")
		}
		for _, name := range template.Attributes() {
			if !slices.Contains(given, name) {
				ps.Add(path, "no informer has an attribute %q%s", name,
					suggest.DidYouMean(name, given, len(given)))
			}
		}
	}
	for i := range c.Sinks {
		key, _ := c.Sinks[i].Section()
		if remote := c.Sinks[i].remote(); remote != nil {
			for _, t := range remote.Templates() {
				check(fmt.Sprintf("sinks[%d].%s.%s", i, key, t.Key), t.Text)
			}
		}
	}
}

// validateSelectAt checks that the bridge can evaluate what it is to evaluate: it does not know how
// the API server reads the fields of each kind, and it does not see labels that are taken out.
func (inf *Informer) validateSelectAt(ps *settings.Report, path string) {
	if inf.SelectAt != "bridge" {
		return
	}
	if selector, err := fields.ParseSelector(inf.FieldSelector); err == nil {
		for _, r := range selector.Requirements() {
			if r.Field != "metadata.name" && r.Field != "metadata.namespace" {
				ps.Add(path+".fieldSelector",
					"selectAt: bridge is exact about what leaves, and %s is a field that only the API server "+
						"can evaluate, which does not say what left: take selectAt back, or write a filter "+
						"in its place",
					r.Field)
			}
		}
	}
	inf.validateSeenLabels(ps, path, "redact", inf.Redact)
	inf.validateSeenLabels(ps, path, "drop", inf.Drop)
}

// validateSeenLabels checks that paths of values that are taken out leave the labels that are
// selected by.
func (inf *Informer) validateSeenLabels(ps *settings.Report, path, key string, texts []string) {
	selector, err := labels.Parse(inf.LabelSelector)
	if err != nil {
		return // reported
	}
	requirements, _ := selector.Requirements()
	for i, text := range texts {
		p, err := resource.ParsePath(text)
		if err != nil {
			continue
		}
		for _, r := range requirements {
			if p.Reaches("metadata", "labels", r.Key()) {
				ps.Add(fmt.Sprintf("%s.%s[%d]", path, key, i),
					"takes out the label %s, by which labelSelector selects, and with selectAt: bridge what "+
						"is left is looked at", r.Key())
			}
		}
	}
}

// String is the whole configuration as YAML, with defaults filled in, secrets masked, and variables
// as references. But for the secrets it can be read again: what is not there, or has no effect
// beside another setting, is left out.
func (c *Config) String() string {
	doc, err := c.origins.Node(c)
	if err != nil {
		return "configuration: " + err.Error()
	}
	list := member(doc, "sinks")
	for i := range c.Sinks {
		key, section := c.Sinks[i].Section()
		if _, ok := section.(sinks.OwnEncoder); ok {
			drop(list.Content[i], "encoding")
		}
		if short, ok := section.(sinks.Shortener); ok {
			for _, path := range short.Unused() {
				keys := strings.Split(key+"."+path, ".")
				n := list.Content[i]
				for _, key := range keys[:len(keys)-1] {
					n = member(n, key)
				}
				drop(n, keys[len(keys)-1])
			}
		}
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(doc); err != nil {
		return "configuration: " + err.Error()
	}
	return out.String()
}

// member is the value of a key, nil when it is not there.
func member(n *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// drop takes a key out.
func drop(n *yaml.Node, key string) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			n.Content = append(n.Content[:i], n.Content[i+2:]...)
			return
		}
	}
}
