package kube

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// Resolver asks an API server what it serves. It is safe for concurrent use.
type Resolver struct {
	client *discovery.DiscoveryClient
	host   string
}

// NewResolver makes a resolver. It contacts nobody.
func NewResolver(config *rest.Config) (*Resolver, error) {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	return &Resolver{client: client, host: config.Host}, nil
}

// Discover asks what the server serves now: in two requests, or in one per group version where it
// is older than 1.27. Group versions that don't answer are in the catalog's Unavailable; an error
// means that nothing is known, and is one of Explain.
func (r *Resolver) Discover(ctx context.Context) (*Catalog, error) {
	groups, lists, err := r.client.ServerGroupsAndResourcesWithContext(ctx)
	failed := map[schema.GroupVersion]error{}
	if partial, ok := errors.AsType[*discovery.ErrGroupDiscoveryFailed](err); ok && len(lists) > 0 {
		failed, err = partial.Groups, nil
	}
	if err != nil {
		return nil, fmt.Errorf("ask %s what it serves: %w", r.host,
			Explain(r.inFull(ctx, "/apis", err), r.host))
	}
	return newCatalog(groups, lists, failed), nil
}

// ServerVersion is the version of the API server: "v1.36.2". Every authenticated user may ask for
// it.
func (r *Resolver) ServerVersion(ctx context.Context) (string, error) {
	info, err := r.client.ServerVersionWithContext(ctx)
	if err != nil {
		return "", fmt.Errorf("ask %s for its version: %w", r.host,
			Explain(r.inFull(ctx, "/version", err), r.host))
	}
	return info.GitVersion, nil
}

// Ready asks whether the API server has everything that it serves: one that has just been started
// answers discovery before it knows all custom resources. The error says why not, or that it does
// not tell; a server that does not know the question is ready.
func (r *Resolver) Ready(ctx context.Context) error {
	err := r.client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	if err == nil || apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("ask %s whether it is ready: %w", r.host, Explain(err, r.host))
}

// inFull gives an answer of the API server the message that came with it. client-go's discovery
// reads bodies raw, and says "unknown" of an error in one; asking once more in the ordinary way
// tells which user lacks which right.
func (r *Resolver) inFull(ctx context.Context, path string, err error) error {
	first, ok := statusOf(err)
	if !ok || first.Message != "unknown" {
		return err
	}
	again := r.client.RESTClient().Get().AbsPath(path).Do(ctx).Error()
	if second, ok := statusOf(again); ok && second.Code == first.Code {
		return again
	}
	return err
}
