package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// acceptDiscovery asks for everything in one document, which API servers know since 1.30 (v2) or
// 1.27 (v2beta1, with the same fields); older ones answer with their group versions only.
const acceptDiscovery = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList," +
	"application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"

// served is what an API server serves, as far as it was asked.
type served struct {
	groups []*metav1.APIGroup // in the order of the server
	lists  map[schema.GroupVersion][]metav1.APIResource
	failed map[schema.GroupVersion]error
}

// discover asks for the core group and for all others. A server that has no core group is one of
// aggregated APIs.
func (r *Resolver) discover(ctx context.Context) (*served, error) {
	s := &served{
		lists:  map[schema.GroupVersion][]metav1.APIResource{},
		failed: map[schema.GroupVersion]error{},
	}
	if err := r.addGroups(ctx, s, "/api"); err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	if err := r.addGroups(ctx, s, "/apis"); err != nil {
		return nil, err
	}
	r.addMissingLists(ctx, s)
	if err := ctx.Err(); err != nil {
		return nil, err // what did not answer in time would be taken for unavailable
	}
	if len(s.lists) == 0 && len(s.failed) > 0 {
		return nil, errors.Join(slices.Collect(maps.Values(s.failed))...)
	}
	return s, nil
}

// addGroups adds what /api or /apis answers.
func (r *Resolver) addGroups(ctx context.Context, s *served, path string) error {
	body, contentType, err := send(ctx,
		r.client.Get().AbsPath(path).SetHeader("Accept", acceptDiscovery))
	if err != nil {
		return err
	}
	if isAggregated(contentType) {
		return s.addAggregated(body)
	}
	var answer struct {
		Versions []string           // of the core group, by /api
		Groups   []*metav1.APIGroup // by /apis
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if len(answer.Versions) > 0 {
		core := &metav1.APIGroup{}
		for _, v := range answer.Versions {
			core.Versions = append(core.Versions,
				metav1.GroupVersionForDiscovery{GroupVersion: v, Version: v})
		}
		core.PreferredVersion = core.Versions[0]
		s.groups = append(s.groups, core)
	}
	s.groups = append(s.groups, answer.Groups...)
	return nil
}

// isAggregated reports whether an answer has everything in it, and not the groups only.
func isAggregated(contentType string) bool {
	_, params, err := mime.ParseMediaType(contentType)
	return err == nil && params["as"] == "APIGroupDiscoveryList" &&
		params["g"] == "apidiscovery.k8s.io" && (params["v"] == "v2" || params["v"] == "v2beta1")
}

// aggregatedGroups is an APIGroupDiscoveryList of apidiscovery.k8s.io, as far as it is used here.
type aggregatedGroups struct {
	Items []struct {
		Metadata struct{ Name string }
		Versions []struct {
			Version, Freshness string
			Resources          []struct {
				Resource, SingularResource, Scope string
				ResponseKind                      struct{ Kind string }
				ShortNames, Verbs                 []string
			}
		}
	}
}

// addAggregated adds a document with everything. Versions are in the server's order of preference.
// A stale one is that of an aggregated API whose own server did not answer: what the document has
// of it may be gone.
func (s *served) addAggregated(body []byte) error {
	var list aggregatedGroups
	if err := json.Unmarshal(body, &list); err != nil {
		return err
	}
	for _, item := range list.Items {
		group := &metav1.APIGroup{Name: item.Metadata.Name}
		for _, v := range item.Versions {
			gv := schema.GroupVersion{Group: group.Name, Version: v.Version}
			if v.Freshness == "Stale" {
				s.failed[gv] = fmt.Errorf("the server of %s does not answer the API server", gv)
				continue
			}
			group.Versions = append(group.Versions,
				metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: v.Version})
			resources := []metav1.APIResource{}
			for _, r := range v.Resources {
				if r.ResponseKind.Kind == "" {
					continue // it has subresources only
				}
				resources = append(resources, metav1.APIResource{
					Name: r.Resource, SingularName: r.SingularResource, Kind: r.ResponseKind.Kind,
					Namespaced: r.Scope == "Namespaced", ShortNames: r.ShortNames, Verbs: r.Verbs,
				})
			}
			s.lists[gv] = resources
		}
		if len(group.Versions) > 0 {
			group.PreferredVersion = group.Versions[0]
		}
		s.groups = append(s.groups, group)
	}
	return nil
}

// addMissingLists asks for the resources of each group version that no document had, all at once.
func (r *Resolver) addMissingLists(ctx context.Context, s *served) {
	var missing []schema.GroupVersion
	for _, group := range s.groups {
		for _, v := range group.Versions {
			gv := schema.GroupVersion{Group: group.Name, Version: v.Version}
			if s.lists[gv] == nil {
				missing = append(missing, gv)
			}
		}
	}
	var mu sync.Mutex // guards s
	var asking sync.WaitGroup
	for _, gv := range missing {
		asking.Go(func() {
			resources, err := r.list(ctx, gv)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				s.failed[gv] = err
				return
			}
			s.lists[gv] = resources
		})
	}
	asking.Wait()
}

// list asks for the resources of one group version.
func (r *Resolver) list(
	ctx context.Context, gv schema.GroupVersion,
) ([]metav1.APIResource, error) {
	path := "/apis/" + gv.String()
	if gv.Group == "" {
		path = "/api/" + gv.Version
	}
	body, _, err := send(ctx, r.client.Get().AbsPath(path))
	if err != nil {
		return nil, err
	}
	var list metav1.APIResourceList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return list.APIResources, nil
}
