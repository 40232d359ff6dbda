package serve

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	discovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/record"
	"github.com/kubebridge/bridge/internal/resource/diff"
)

var readVerbs = []string{"get", "list", "watch"}

// discovery answers /api, /apis and /apis/GROUP.
func (q *request) discovery(parts []string) {
	types, err := q.catalog()
	if err != nil {
		q.fail(err)
		return
	}
	if len(parts) == 1 && strings.Contains(q.r.Header.Get("Accept"), "as=APIGroupDiscoveryList") &&
		strings.Contains(q.r.Header.Get("Accept"), "v=v2") {
		q.aggregated(types, parts[0] == "api")
		return
	}
	if parts[0] == "api" {
		q.json(http.StatusOK, &metav1.APIVersions{
			TypeMeta: metav1.TypeMeta{Kind: "APIVersions", APIVersion: "v1"}, Versions: []string{"v1"},
			ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{{
				ClientCIDR:    "0.0.0.0/0",
				ServerAddress: q.r.Host,
			}},
		})
		return
	}
	list := &metav1.APIGroupList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"},
		Groups:   []metav1.APIGroup{},
	}
	for _, name := range groupsOf(types) {
		if name == "" {
			continue
		}
		g := metav1.APIGroup{Name: name}
		for _, version := range versionsOf(types, name) {
			g.Versions = append(g.Versions,
				metav1.GroupVersionForDiscovery{GroupVersion: name + "/" + version, Version: version})
		}
		g.PreferredVersion = g.Versions[0]
		if len(parts) == 2 && parts[1] == name {
			g.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
			q.json(http.StatusOK, &g)
			return
		}
		list.Groups = append(list.Groups, g)
	}
	if len(parts) == 2 {
		q.notFound(q.server.what() + " has no group " + parts[1])
		return
	}
	q.json(http.StatusOK, list)
}

// groupsOf returns the groups in the order in which an API server names them.
func groupsOf(types []*resourceType) (names []string) {
	for _, t := range types {
		names = append(names, t.Group)
	}
	query.SortGroups(names)
	return slices.Compact(names)
}

func versionsOf(types []*resourceType, group string) (versions []string) {
	for _, t := range types {
		if t.Group == group && !slices.Contains(versions, t.Version) {
			versions = append(versions, t.Version)
		}
	}
	slices.Sort(versions)
	slices.Reverse(versions) // v1 comes before v1beta1
	slices.SortStableFunc(versions, func(a, b string) int { return len(a) - len(b) })
	return versions
}

// resourceList answers /apis/GROUP/VERSION.
func (q *request) resourceList(group, version string) {
	types, err := q.catalog()
	if err != nil {
		q.fail(err)
		return
	}
	list := &metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: strings.TrimPrefix(group+"/"+version, "/"), APIResources: []metav1.APIResource{},
	}
	if group == "" {
		list.APIVersion = "" // as an API server answers
	}
	for _, t := range types {
		if t.Group == group && t.Version == version {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: t.Resource, SingularName: t.Singular, Namespaced: t.Namespaced, Kind: t.Kind,
				Verbs: readVerbs, ShortNames: t.Short, Categories: t.Categories,
			})
		}
	}
	if len(list.APIResources) == 0 && group != "" {
		q.notFound(q.server.what() + " has nothing of " + list.GroupVersion)
		return
	}
	q.json(http.StatusOK, list)
}

// aggregated answers with all groups and resources at once.
func (q *request) aggregated(types []*resourceType, core bool) {
	const mediaType = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	list := &discovery.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"},
		Items:    []discovery.APIGroupDiscovery{},
	}
	for _, name := range groupsOf(types) {
		if (name == "") != core {
			continue
		}
		g := discovery.APIGroupDiscovery{}
		g.Name = name
		for _, version := range versionsOf(types, name) {
			g.Versions = append(g.Versions, discovery.APIVersionDiscovery{
				Version: version, Freshness: discovery.DiscoveryFreshnessCurrent,
				Resources: discoveredResources(types, name, version),
			})
		}
		list.Items = append(list.Items, g)
	}
	q.discovered(mediaType, list)
}

// discovered answers with what clients keep: a request that names the same again gets no body.
func (q *request) discovered(mediaType string, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		q.fail(err)
		return
	}
	body = append(body, '\n')
	tag := fmt.Sprintf(`"%X"`, sha256.Sum256(body))
	header := q.w.Header()
	header.Set("Vary", "Accept")
	header.Set("Cache-Control", "public")
	header.Set("ETag", tag)
	if q.r.Header.Get("If-None-Match") == tag {
		q.w.WriteHeader(http.StatusNotModified)
		return
	}
	header.Set("Content-Type", mediaType)
	_, _ = q.w.Write(body) // the client has gone
}

// version answers /version: what is known of the API server is that it was no older than a kubelet.
func (q *request) version() {
	types, err := q.catalog()
	newest := version.MustParseSemantic("1.37.0")
	i := slices.IndexFunc(types, func(t *resourceType) bool { return t.groupResource() == "nodes" })
	if err == nil && i >= 0 {
		newest, err = q.newestKubelet(types[i].units, newest)
	}
	if err != nil {
		q.fail(err)
		return
	}
	q.json(http.StatusOK, map[string]string{
		"major": fmt.Sprint(newest.Major()), "minor": fmt.Sprint(newest.Minor()),
		"gitVersion": "v" + newest.WithPreRelease("").WithBuildMetadata("history").String(),
		"gitCommit":  "", "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": "",
		"platform": "bridge",
	})
}

// newestKubelet returns the newest version of the kubelets at the point, else that of none.
func (q *request) newestKubelet(
	nodes []*record.Unit, none *version.Version,
) (newest *version.Version, err error) {
	state := query.StateQuery{Units: nodes, Namespace: "*", At: q.point()}
	for v, err := range q.history.Objects.State(state) {
		if err != nil {
			return nil, err
		}
		var text string
		_ = json.Unmarshal(diff.Field(v.Event.Data, "status.nodeInfo.kubeletVersion"), &text) // or ""
		if found, err := version.ParseSemantic(text); err == nil && (newest == nil || newest.LessThan(found)) {
			newest = found
		}
	}
	return cmp.Or(newest, none), nil
}

func discoveredResources(
	types []*resourceType, group, version string,
) (list []discovery.APIResourceDiscovery) {
	for _, t := range types {
		if t.Group != group || t.Version != version {
			continue
		}
		scope := discovery.ScopeCluster
		if t.Namespaced {
			scope = discovery.ScopeNamespace
		}
		gvk := metav1.GroupVersionKind{Kind: t.Kind}
		if t.isCustom { // of others an API server leaves out what the resource has too
			gvk.Group, gvk.Version = group, version
		}
		list = append(list, discovery.APIResourceDiscovery{
			Resource: t.Resource, ResponseKind: &gvk, Scope: scope, SingularResource: t.Singular,
			Verbs: readVerbs, ShortNames: t.Short, Categories: t.Categories,
		})
	}
	return list
}

// resourceType is a resource of the API that is served.
type resourceType struct {
	Group, Version, Resource, Kind string
	Singular                       string
	Short, Categories              []string
	Namespaced                     bool
	isCustom                       bool // it has a definition
	units                          []*record.Unit
	columns                        []column // of a table; nil: of the kind, or name and age
	selectable                     []string // fields that a definition names
	// namespaces are those of its objects, in the order of an API server; nil where the history has
	// them in this order.
	namespaces func() ([]string, error)
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

// catalog returns the resources that the history has. It is made once for each history that is
// shared.
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
	for _, t := range types {
		if q.cfg.Who {
			t.columns = append(slices.Clip(columnsOf(t)), userColumn)
		}
	}
	q.server.mu.Lock()
	defer q.server.mu.Unlock()
	q.server.types, q.server.typesOf = types, q.history
	return types, nil
}

func (q *request) point() query.Point {
	if q.cfg.Live {
		return query.Point{}
	}
	return q.cfg.At
}

func makeCatalog(h *query.Questions, cluster string, at query.Point) ([]*resourceType, error) {
	units, err := h.Resources.Select(cluster, nil, at)
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
			Short: query.ShortNames(u.Group, u.Resource), units: []*record.Unit{u},
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
	// A program that describes an object lists its Events too, and fails where it finds no such
	// resource.
	if byName["events"] == nil && len(types) > 0 {
		types = append(types, &resourceType{
			Version: "v1", Resource: "events", Kind: "Event", Singular: "event",
			Short: query.ShortNames("", "events"), Namespaced: true,
		})
	}
	for _, t := range types {
		t.namespaces = sync.OnceValues(func() ([]string, error) {
			return inServerOrder(h.Objects.Namespaces(t.units))
		})
	}
	slices.SortFunc(types, func(a, b *resourceType) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource))
	})
	return types, definitions(h, cluster, types, at)
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
	for m, err := range h.Coverage.Notices(u, time.Time{}, time.Time{}) {
		if err != nil {
			return err
		}
		if version := m.Event.APIVersion; m.Unit == u && version != "" {
			t.Version = version[strings.LastIndexByte(version, '/')+1:]
		}
	}
	return nil
}

// definitions gives custom resources the names and columns that their definitions have, where these
// are in the history.
func definitions(h *query.Questions, cluster string, types []*resourceType, at query.Point) error {
	list, err := h.Resources.Definitions(cluster, at)
	for _, t := range types {
		d, is := list[t.Resource+"."+t.Group]
		if !is {
			continue
		}
		t.isCustom, t.Categories = true, d.Spec.Names.Categories
		t.Short, t.Singular = d.Spec.Names.ShortNames, cmp.Or(d.Spec.Names.Singular, t.Singular)
		t.Namespaced = d.Spec.Scope != "Cluster"
		for _, version := range d.Spec.Versions {
			if version.Name == t.Version {
				t.columns = customColumns(version.Columns)
				for _, field := range version.SelectableFields {
					t.selectable = append(t.selectable, strings.TrimPrefix(field.JSONPath, "."))
				}
			}
		}
	}
	return err
}

// warnState names what may be missing in a state.
func (q *request) warnState(wanted query.StateQuery) error {
	holes, unlisted, err := q.history.Coverage.UncertainState(wanted)
	if err != nil {
		return err
	}
	unwatched, err := q.history.Coverage.Unwatched(wanted.Units, wanted.Namespace, wanted.At)
	var texts []string
	for _, g := range query.GroupNotices(append(holes, unwatched...)) {
		texts = append(texts, g.Warning())
	}
	for i := range unlisted {
		texts = append(texts, unlisted[i].Warning())
	}
	if len(wanted.Units) == 0 {
		texts = append(texts, "the history has no objects of this resource: none were recorded")
	}
	q.warn(texts)
	return err
}

// warnObject names the holes because of which an object may have been another one at the point; v
// is its version, nil for none.
func (q *request) warnObject(units []*record.Unit, namespace, name string, v *query.Version) error {
	var texts []string
	for _, u := range units {
		o := &query.Object{Unit: u, Namespace: namespace, Name: name}
		holes, err := q.history.Coverage.Uncertain(o, v, q.point())
		if err != nil {
			return err
		}
		for _, m := range holes {
			texts = append(texts, m.Warning())
		}
		late, err := q.history.Objects.LateChange(o, q.point())
		if err != nil {
			return err
		}
		if late != nil {
			texts = append(texts, fmt.Sprintf("uncertain: %s was %s", o, late))
		}
	}
	q.warn(texts)
	return nil
}

// warn adds warnings to an answer. kubectl prints them, and client-go logs them.
func (q *request) warn(texts []string) {
	const most = 5 // headers are bounded
	for _, text := range texts[:min(len(texts), most)] {
		text = strings.Map(func(r rune) rune {
			if unicode.IsPrint(r) {
				return r
			}
			return ' '
		}, strings.ToValidUTF8(text[:min(len(text), 500)], " "))
		value, err := utilnet.NewWarningHeader(299, "-", text)
		if err != nil {
			q.cfg.Log.Error("a warning can't be sent", "warning", text, "err", err)
			continue
		}
		q.w.Header().Add("Warning", value)
	}
}
