package app

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/app/rights"
	"github.com/kubebridge/bridge/internal/kube"
	"github.com/kubebridge/bridge/internal/resource"
)

// customTypes are resources that there are once the script says serve.
var customTypes = []resource.Type{
	{Group: "example.org", Version: "v1", Resource: "widgets", Kind: "Widget", Namespaced: true},
	{Group: "example.org", Version: "v1", Resource: "gadgets", Kind: "Gadget", Namespaced: true},
}

// Serve begins, or ends, to serve a custom resource, as a CRD that is installed or removed does.
func (p *play) serve(name string, on bool) error {
	for _, typ := range customTypes {
		if typ.String() != name {
			continue
		}
		p.mu.Lock()
		p.served[name] = on
		p.mu.Unlock()
		if !on {
			p.servers[name].Streams.Close()
		}
		return nil
	}
	return fmt.Errorf("no custom resource %q", name)
}

// types are the resources that there are now.
func (p *play) types() []resource.Type {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := slices.Clip(stageTypes)
	for _, typ := range customTypes {
		if p.served[typ.String()] {
			list = append(list, typ)
		}
	}
	return list
}

// discover asks what each informer's resources mean, as the bridge does.
func (p *play) discover(c *config.Config) (d discoveryResult, err error) {
	if d.resolver, err = kube.NewResolver(&rest.Config{Host: p.servers["pods"].URL().String(), Transport: p}); err != nil {
		return d, err
	}
	if d.catalog, err = d.resolver.Discover(p.t.Context()); err != nil {
		return d, err
	}
	for i := range c.Informers {
		types, err := d.catalog.Resolve(rights.Selection(&c.Informers[i]))
		if err != nil {
			return d, err
		}
		d.types = append(d.types, types)
	}
	return d, nil
}

// answer answers a question about what is served; nil for another request.
func (p *play) answer(path string) *http.Response {
	if path == "/readyz" {
		return answerOf(http.StatusOK, "ok")
	}
	lists := map[string]*metav1.APIResourceList{}
	groups := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	for _, typ := range p.types() {
		root, version := "/apis/"+typ.Group+"/"+typ.Version, typ.Group+"/"+typ.Version
		if typ.Group == "" {
			root, version = "/api/"+typ.Version, typ.Version
		}
		if lists[root] == nil {
			lists[root] = &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: version}
			if typ.Group != "" {
				v := metav1.GroupVersionForDiscovery{GroupVersion: version, Version: typ.Version}
				groups.Groups = append(groups.Groups, metav1.APIGroup{Name: typ.Group, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v})
			}
		}
		lists[root].APIResources = append(lists[root].APIResources, metav1.APIResource{
			Name: typ.Resource, Kind: typ.Kind, Namespaced: typ.Namespaced, Verbs: metav1.Verbs{"get", "list", "watch"},
		})
	}
	switch {
	case path == "/api":
		return answerOf(http.StatusOK, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
	case path == "/apis":
		return answerOf(http.StatusOK, groups)
	case lists[path] != nil:
		return answerOf(http.StatusOK, lists[path])
	}
	return nil
}

// answerOf is a response with a text, or a value as JSON.
func answerOf(code int, value any) *http.Response {
	text, ok := value.(string)
	if !ok {
		data, err := json.Marshal(value)
		if err != nil {
			panic(err)
		}
		text = string(data)
	}
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(text)),
	}
}
