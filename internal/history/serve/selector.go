package serve

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/resource/jsontree"
)

// maxTerms bounds the terms of a selector: each is compared with each object. maxSelector bounds
// its bytes.
const (
	maxTerms    = 100
	maxSelector = 16 << 10
)

// selectable are the fields by which an API server selects objects of a kind, beside their name and
// namespace. Behind a "=" is the value where an object has none.
var selectable = map[string][]string{
	"pods": {
		"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
		"spec.hostNetwork=false", "status.phase", "status.podIP", "status.podIPs",
		"status.nominatedNodeName",
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
	"services":               {"spec.clusterIP", "spec.type"},
	"replicationcontrollers": {"status.replicas=0"},
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

// withoutNamespace are kinds whose objects an API server does not select by metadata.namespace.
var withoutNamespace = []string{
	"namespaces", "nodes", "certificatesigningrequests.certificates.k8s.io", "resourceslices.resource.k8s.io",
}

// selection returns the selectors of a request.
func (q *request) selection(
	t *resourceType, o *internalversion.ListOptions,
) (s selection, err error) {
	s.labels, s.fields = labels.Everything(), fields.Everything()
	if o.LabelSelector != nil {
		s.labels = o.LabelSelector
	}
	if o.FieldSelector != nil {
		s.fields = o.FieldSelector
	}
	terms, _ := s.labels.Requirements()
	for name, n := range map[string]int{
		"labelSelector": len(terms), "fieldSelector": len(s.fields.Requirements()),
	} {
		switch size := len(q.r.URL.Query().Get(name)); {
		case n > maxTerms:
			return s, apierrors.NewBadRequest(fmt.Sprintf("%s has %d terms, at most %d are compared",
				name, n, maxTerms))
		case size > maxSelector:
			return s, apierrors.NewBadRequest(fmt.Sprintf("%s has %d bytes, at most %d are read",
				name, size, maxSelector))
		}
	}
	own := slices.Concat(selectable[t.groupResource()], t.selectable)
	s.missing = map[string]string{}
	known := []string{"metadata.name", "metadata.namespace"}
	if slices.Contains(withoutNamespace, t.groupResource()) || t.isCustom && !t.Namespaced {
		known = known[:1]
	}
	for _, field := range own {
		name, missing, _ := strings.Cut(field, "=")
		s.missing[name], known = missing, append(known, name)
	}
	for _, r := range s.fields.Requirements() {
		switch {
		case slices.Contains(known, r.Field):
		case len(own) > 0 || t.isCustom:
			return s, apierrors.NewBadRequest("field label not supported: " + r.Field)
		default:
			return s, apierrors.NewBadRequest(fmt.Sprintf(
				"%q is not a known field selector: only %q, %q", r.Field, "metadata.name",
				"metadata.namespace"))
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
