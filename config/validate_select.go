package config

import (
	"fmt"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/settings"
)

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
