package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/settings/suggest"
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
	inf.validateSinks(ps, path+".sinks", sinkNames)
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
