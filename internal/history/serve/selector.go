package serve

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/resource/jsontree"
)

// maxTerms bounds the terms of a selector: each is compared with each object.
const maxTerms = 100

// selectable are the fields by which an API server selects objects of a kind, beside their name and
// namespace. Behind a "=" is the value where an object has none.
var selectable = map[string][]string{
	"pods": {
		"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
		"spec.hostNetwork=false", "status.phase", "status.podIP", "status.nominatedNodeName",
	},
	"events": {
		"involvedObject.kind", "involvedObject.namespace", "involvedObject.name",
		"involvedObject.uid", "involvedObject.apiVersion", "involvedObject.resourceVersion",
		"involvedObject.fieldPath", "reason", "reportingComponent", "source", "type",
	},
	"events.events.k8s.io": {
		"regarding.kind", "regarding.namespace", "regarding.name", "regarding.uid",
		"regarding.apiVersion", "regarding.resourceVersion", "regarding.fieldPath", "reason",
		"reportingController", "type",
	},
	"namespaces":             {"status.phase"},
	"nodes":                  {"spec.unschedulable=false"},
	"secrets":                {"type"},
	"replicationcontrollers": {"status.replicas=0"},
	"replicasets.apps":       {"status.replicas=0"},
	"jobs.batch":             {"status.successful=0"},

	"certificatesigningrequests.certificates.k8s.io": {"spec.signerName"},
	"resourceslices.resource.k8s.io":                 {"spec.nodeName", "spec.driver"},
}

// fieldPaths are where a field is that has another name in objects. The first value there is taken.
var fieldPaths = map[string][]string{
	"source":            {"source.component", "reportingComponent"},
	"status.successful": {"status.succeeded"},
}

// selection is which objects a request wants.
type selection struct {
	labels labels.Selector
	fields fields.Selector
	// missing are values where an object has none, by field.
	missing map[string]string
}

// selection reads the selectors of a request.
func (q *request) selection(t *resourceType) (s selection, err error) {
	values := q.r.URL.Query()
	if s.labels, err = labels.Parse(values.Get("labelSelector")); err != nil {
		return s, fmt.Errorf("labelSelector: %w", err)
	}
	if s.fields, err = fields.ParseSelector(values.Get("fieldSelector")); err != nil {
		return s, fmt.Errorf("fieldSelector: %w", err)
	}
	terms, _ := s.labels.Requirements()
	if n := max(len(terms), len(s.fields.Requirements())); n > maxTerms {
		return s, fmt.Errorf("a selector has %d terms, at most %d are compared", n, maxTerms)
	}
	s.missing = map[string]string{}
	known := []string{"metadata.name", "metadata.namespace"}
	for _, field := range slices.Concat(selectable[t.groupResource()], t.selectable) {
		name, missing, _ := strings.Cut(field, "=")
		s.missing[name], known = missing, append(known, name)
	}
	for _, r := range s.fields.Requirements() {
		if !slices.Contains(known, r.Field) {
			return s, fmt.Errorf("field label not supported: %s", r.Field)
		}
	}
	return s, nil
}

func (s *selection) matches(v *query.Version) bool {
	if !s.labels.Empty() && !s.labels.Matches(v.Labels()) {
		return false
	}
	terms := s.fields.Requirements()
	if len(terms) == 0 {
		return true
	}
	o := object{jsontree.Parse(v.Event.Data)}
	for _, r := range terms {
		value := cmp.Or(fieldOf(v, o, r.Field), s.missing[r.Field])
		if (value == r.Value) != (r.Operator != "!=") {
			return false
		}
	}
	return true
}

// fieldOf is a field of an object as text, "" for none.
func fieldOf(v *query.Version, o object, field string) string {
	switch field {
	case "metadata.name":
		return v.Event.Name
	case "metadata.namespace":
		return v.Event.Namespace
	}
	paths := fieldPaths[field]
	if paths == nil {
		paths = []string{field}
	}
	for _, path := range paths {
		if text := o.text(strings.Split(path, ".")...); text != "" {
			return text
		}
	}
	return ""
}
