package kube

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

// Resolver asks an API server what it serves. It is safe for concurrent use.
type Resolver struct {
	client rest.Interface
	host   string
}

// NewResolver makes a resolver. It makes no request.
func NewResolver(config *rest.Config) (*Resolver, error) {
	client, err := newClient(config, nil)
	if err != nil {
		return nil, err
	}
	return &Resolver{client: client, host: config.Host}, nil
}

// Discover asks what the server serves now: in two requests, or in one per group version where it
// is older than 1.27. Group versions that don't answer are in the catalog's Unavailable; an error
// means that nothing is known, and is one of Explain.
func (r *Resolver) Discover(ctx context.Context) (*Catalog, error) {
	found, err := r.discover(ctx)
	if err == nil && len(found.failed) > 0 {
		found, err = r.discover(ctx) // a group may have come or gone between two requests
	}
	if err != nil {
		return nil, fmt.Errorf("ask %s what it serves: %w", r.host, Explain(err, r.host))
	}
	return newCatalog(found), nil
}

// Ready asks whether the API server has everything that it serves: one that has just been started
// answers discovery before it knows all custom resources. The error says why not, or that it does
// not say; a server that does not know the question is ready.
func (r *Resolver) Ready(ctx context.Context) error {
	err := r.client.Get().AbsPath("/readyz").Do(ctx).Error()
	if err == nil || apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("ask %s whether it is ready: %w", r.host, Explain(err, r.host))
}
