package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/kubebridge/bridge/internal/settings"
)

// validateOverlap refuses to send one object to one Kafka topic or NATS stream twice: by two
// informers, or by one with two sinks. For views see validateView, for one informer's streams of
// NATS validateStreams. An event's id says which change of which object it is, and
// CloudEvents lets consumers take two events with one source and id for the same event. Here they
// would differ: in their payload, or in their type, since what one informer knew the other has
// added.
func (c *Config) validateOverlap(ps *settings.Report) {
	for i := range c.Informers {
		for j := range i + 1 {
			c.validateOverlapOf(ps, j, i)
		}
	}
}

func (c *Config) validateOverlapOf(ps *settings.Report, first, second int) {
	a, b := &c.Informers[first], &c.Informers[second]
	shared := a.sharedResource(b)
	if shared == "" || ps.Within(fmt.Sprintf("informers[%d]", first)) ||
		ps.Within(fmt.Sprintf("informers[%d]", second)) {
		return
	}
	for i := range b.Sinks {
		bindings := a.Sinks
		if first == second {
			bindings = a.Sinks[:i]
		}
		for j := range bindings {
			place := c.sharedPlace(bindings[j].Name, b.Sinks[i].Name, first == second)
			if place == "" {
				continue
			}
			what := "informer " + a.Name
			remedy := "let them select different objects, or write {informer} into " + place
			if first == second {
				what, remedy = "this informer", "give the sinks different ones in "+place
			}
			ps.Add(fmt.Sprintf("informers[%d].sinks[%d]", second, i),
				"%s sends %s to sink %s too, into the same place: one id would have two contents; %s",
				what, shared, bindings[j].Name, remedy)
			return
		}
	}
}

// sharedPlace returns the key that names the topic or stream that two sinks have in common, ""
// where they have none for sure. Standard output and core NATS keep nothing that could be taken for
// a repeat. Of one informer {informer} makes no difference.
func (c *Config) sharedPlace(nameA, nameB string, oneInformer bool) string {
	a, b := c.sink(nameA), c.sink(nameB)
	byInformer := func(templates ...string) bool {
		return !oneInformer && slices.ContainsFunc(templates, func(t string) bool {
			return strings.Contains(t, "{informer}")
		})
	}
	switch {
	case a == nil || b == nil || a.isView() != b.isView():
		return ""
	case a.Kafka != nil && b.Kafka != nil:
		same := a == b || a.Kafka.Topic == b.Kafka.Topic && slices.ContainsFunc(a.Kafka.Brokers,
			func(broker string) bool {
				return slices.Contains(b.Kafka.Brokers, broker)
			})
		if same && !byInformer(a.Kafka.Topic) {
			return "kafka.topic"
		}
	case oneInformer:
	case a.NATS != nil && b.NATS != nil && a.NATS.Mode != "core" && b.NATS.Mode != "core":
		same := a == b || a.NATS.SameServer(b.NATS) && a.NATS.Stream.Name == b.NATS.Stream.Name &&
			a.NATS.Subject == b.NATS.Subject
		if same && !byInformer(a.NATS.Stream.Name, a.NATS.Subject) {
			return "nats.subject"
		}
	}
	return ""
}

// sharedResource returns a resource of which two informers select the same objects, "" where they
// do not for sure. Of filters it is not known: two different ones may divide the objects.
func (inf *Informer) sharedResource(other *Informer) string {
	if inf.divides(other) {
		return ""
	}
	for _, a := range inf.Resources {
		for _, b := range other.Resources {
			name := sharedName(canonicalName(a), canonicalName(b))
			if name != "" && !inf.excludes(name) && !other.excludes(name) {
				return name
			}
		}
	}
	return ""
}

func (inf *Informer) excludes(name string) bool {
	return slices.ContainsFunc(inf.Exclude, func(e string) bool { return canonicalName(e) == name })
}

// divides reports whether no object is in both selections.
func (inf *Informer) divides(other *Informer) bool {
	inOther := func(n string) bool { return slices.Contains(other.Namespaces, n) }
	return len(inf.Namespaces) > 0 && len(other.Namespaces) > 0 &&
		!slices.ContainsFunc(inf.Namespaces, inOther) ||
		disjointLabels(inf.LabelSelector, other.LabelSelector) ||
		disjointLabels(inf.NamespaceSelector, other.NamespaceSelector) ||
		disjointFields(inf.FieldSelector, other.FieldSelector) ||
		inf.Filter != other.Filter && inf.Filter != "" && other.Filter != ""
}

// disjointLabels reports whether no labels match both selectors: each asks of one key for what the
// other excludes.
func disjointLabels(a, b string) bool {
	first, errA := labels.ParseToRequirements(a)
	second, errB := labels.ParseToRequirements(b)
	if errA != nil || errB != nil { // reported elsewhere
		return true
	}
	for i := range first {
		for j := range second {
			x, y := &first[i], &second[j]
			if x.Key() == y.Key() && (excludes(x, y) || excludes(y, x)) {
				return true
			}
		}
	}
	return false
}

// excludes reports whether what matches x is refused by y, which has the same key.
func excludes(x, y *labels.Requirement) bool {
	switch x.Operator() {
	case selection.In, selection.Equals, selection.DoubleEquals:
		for value := range x.Values() {
			if y.Matches(labels.Set{x.Key(): value}) {
				return false
			}
		}
		return true
	case selection.DoesNotExist:
		return !y.Matches(labels.Set{})
	default:
		return false
	}
}

// disjointFields reports whether no fields match both selectors.
func disjointFields(a, b string) bool {
	first, errA := fields.ParseSelector(a)
	second, errB := fields.ParseSelector(b)
	if errA != nil || errB != nil {
		return true
	}
	for _, x := range first.Requirements() {
		for _, y := range second.Requirements() {
			both := x.Operator != selection.NotEquals && y.Operator != selection.NotEquals
			neither := x.Operator == selection.NotEquals && y.Operator == selection.NotEquals
			if x.Field == y.Field && !neither && both != (x.Value == y.Value) {
				return true
			}
		}
	}
	return false
}

// shortNames are kubectl's, of the kinds that each API server has.
var shortNames = map[string]string{
	"cj": "cronjobs", "cm": "configmaps", "crd": "customresourcedefinitions",
	"crds": "customresourcedefinitions", "csr": "certificatesigningrequests", "deploy": "deployments",
	"ds": "daemonsets", "ep": "endpoints", "ev": "events", "hpa": "horizontalpodautoscalers",
	"ing": "ingresses", "limits": "limitranges", "netpol": "networkpolicies", "no": "nodes",
	"ns": "namespaces", "pc": "priorityclasses", "pdb": "poddisruptionbudgets", "po": "pods",
	"pv": "persistentvolumes", "pvc": "persistentvolumeclaims", "quota": "resourcequotas",
	"rc": "replicationcontrollers", "rs": "replicasets", "sa": "serviceaccounts",
	"sc": "storageclasses", "sts": "statefulsets", "svc": "services",
}

var versionPart = regexp.MustCompile(`^([^.]+)\.v[0-9]+((alpha|beta)[0-9]+)?(\.|$)`)

// canonicalName is the name of a resource without its version, and for a short name the long one.
// Singular names and short names of custom resources are not known.
func canonicalName(name string) string {
	name = strings.TrimSuffix(versionPart.ReplaceAllString(strings.ToLower(name), "$1."), ".")
	first, group, qualified := strings.Cut(name, ".")
	if long, ok := shortNames[first]; ok {
		first = long
	}
	if qualified {
		return first + "." + group
	}
	return first
}

// sharedName returns the narrower of two names of resources of which one holds the other, else "".
func sharedName(a, b string) string {
	holds := func(wide, narrow string) bool {
		group, ok := strings.CutPrefix(wide, "*")
		return wide == narrow || ok && strings.HasSuffix(narrow, group)
	}
	switch {
	case holds(a, b):
		return b
	case holds(b, a):
		return a
	default:
		return ""
	}
}
