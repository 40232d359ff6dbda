package serve

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/record"
)

// resourceType is a resource of the API that is served.
type resourceType struct {
	Group, Version, Resource, Kind string
	Singular                       string
	Short, Categories              []string
	Namespaced                     bool
	units                          []*record.Unit
	columns                        []column // of a table; nil: of the kind, or name and age
}

// apiVersion is "apps/v1", or "v1".
func (t *resourceType) apiVersion() string { return strings.TrimPrefix(t.Group+"/"+t.Version, "/") }

// clusterScoped are resources without a namespace, for those of which no object is known.
var clusterScoped = []string{
	"apiservices", "certificatesigningrequests", "clusterrolebindings", "clusterroles",
	"clustertrustbundles", "componentstatuses", "csidrivers", "csinodes",
	"customresourcedefinitions", "deviceclasses", "devicetaintrules", "flowschemas",
	"ingressclasses", "ipaddresses", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings",
	"mutatingwebhookconfigurations", "namespaces", "nodes", "persistentvolumes", "priorityclasses",
	"prioritylevelconfigurations", "resourceslices", "runtimeclasses", "servicecidrs",
	"storageclasses", "storageversionmigrations", "storageversions", "validatingadmissionpolicies",
	"validatingadmissionpolicybindings", "validatingwebhookconfigurations", "volumeattachments",
	"volumeattributesclasses",
}

// inAll are what kubectl get all shows.
var inAll = []string{
	"pods", "replicationcontrollers", "services", "daemonsets.apps", "deployments.apps",
	"replicasets.apps", "statefulsets.apps",
	"horizontalpodautoscalers.autoscaling", "jobs.batch", "cronjobs.batch",
}

// catalog are the resources that the history has. It is made once for each history that is lent.
func (q *request) catalog() ([]*resourceType, error) {
	q.server.mu.Lock()
	types := q.server.types
	if q.server.typesOf != q.history {
		types = nil
	}
	q.server.mu.Unlock()
	if types != nil {
		return types, nil
	}
	types, err := makeCatalog(q.history, q.cfg.Cluster, q.point())
	if err != nil {
		return nil, err
	}
	q.server.mu.Lock()
	defer q.server.mu.Unlock()
	q.server.types, q.server.typesOf = types, q.history
	return types, nil
}

// point is that of lists.
func (q *request) point() query.Point {
	if q.cfg.Live {
		return query.Point{}
	}
	return q.cfg.At
}

func makeCatalog(h *query.Questions, cluster string, at query.Point) ([]*resourceType, error) {
	units, err := h.Resources.Select(cluster, nil)
	if err != nil {
		return nil, err
	}
	types := []*resourceType{}
	byName := map[string]*resourceType{}
	for _, u := range units {
		if t := byName[u.GroupResource()]; t != nil {
			t.units = append(t.units, u)
			continue
		}
		t := &resourceType{
			Group: u.Group, Resource: u.Resource, Kind: u.Kind, Singular: strings.ToLower(u.Kind),
			Short: query.ShortNames(u.Resource), units: []*record.Unit{u},
			Namespaced: !slices.Contains(clusterScoped, u.Resource),
		}
		if slices.Contains(inAll, u.GroupResource()) {
			t.Categories = []string{"all"}
		}
		if err := t.learn(h, u); err != nil {
			return nil, err
		}
		if t.Version != "" && t.Kind != "" {
			byName[u.GroupResource()] = t
			types = append(types, t)
		}
	}
	slices.SortFunc(types, func(a, b *resourceType) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource))
	})
	return types, definitions(h, types, byName, at)
}

// learn finds the version and the scope: of an object, or of what the stream said about the
// resource.
func (t *resourceType) learn(h *query.Questions, u *record.Unit) error {
	for o, err := range h.Objects.All(u, "") {
		if err != nil {
			return err
		}
		v, err := h.Objects.At(&o, query.Point{})
		if err != nil {
			return err
		}
		t.Version = v.Event.APIVersion[strings.LastIndexByte(v.Event.APIVersion, '/')+1:]
		t.Namespaced = o.Namespace != ""
		t.Kind, t.Singular = cmp.Or(v.Event.Kind, t.Kind), strings.ToLower(cmp.Or(v.Event.Kind, t.Kind))
		return nil
	}
	for m, err := range h.Coverage.Marks(u, time.Time{}, time.Time{}) {
		if err != nil {
			return err
		}
		if version := m.Event.APIVersion; m.Unit == u && version != "" {
			t.Version = version[strings.LastIndexByte(version, '/')+1:]
		}
	}
	return nil
}

// definition is what is read of a CustomResourceDefinition.
type definition struct {
	Spec struct {
		Group string `json:"group"`
		Scope string `json:"scope"`
		Names struct {
			Plural     string   `json:"plural"`
			Singular   string   `json:"singular"`
			ShortNames []string `json:"shortNames"`
			Categories []string `json:"categories"`
		} `json:"names"`
		Versions []struct {
			Name    string       `json:"name"`
			Columns []crdColumns `json:"additionalPrinterColumns"`
		} `json:"versions"`
	} `json:"spec"`
}

// crdColumns is one column of a table that a CustomResourceDefinition names.
type crdColumns struct {
	Name     string `json:"name"`
	Type     string `json:"type"`
	Format   string `json:"format"`
	JSONPath string `json:"jsonPath"`
	Priority int32  `json:"priority"`
}

// definitions gives custom resources the names and columns that their definitions have, where these
// are in the history.
func definitions(
	h *query.Questions, types []*resourceType, byName map[string]*resourceType, at query.Point,
) error {
	crds := byName["customresourcedefinitions.apiextensions.k8s.io"]
	if crds == nil {
		return nil
	}
	for v, err := range h.Objects.State(query.StateQuery{Units: crds.units, Namespace: "*", At: at}) {
		if err != nil {
			return err
		}
		var d definition
		if json.Unmarshal(v.Event.Data, &d) != nil {
			continue // the stream has no objects
		}
		t := byName[d.Spec.Names.Plural+"."+d.Spec.Group]
		if t == nil {
			continue
		}
		t.Categories = d.Spec.Names.Categories
		t.Short, t.Singular = d.Spec.Names.ShortNames, cmp.Or(d.Spec.Names.Singular, t.Singular)
		t.Namespaced = d.Spec.Scope != "Cluster"
		for _, version := range d.Spec.Versions {
			if version.Name == t.Version {
				t.columns = customColumns(version.Columns)
			}
		}
	}
	return nil
}
