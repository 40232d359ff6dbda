package kube

import (
	"context"
	"encoding/json"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Leases reads and writes Leases of coordination.k8s.io. Its errors are those of the API server, so
// that callers can distinguish a missing object from a conflict. It is safe for concurrent use.
type Leases struct{ client rest.Interface }

// NewLeases makes a client. It makes no request.
func NewLeases(config *rest.Config) (*Leases, error) {
	client, err := newClient(config, &coordinationv1.SchemeGroupVersion)
	if err != nil {
		return nil, err
	}
	return &Leases{client: client}, nil
}

// Get reads a Lease.
func (l *Leases) Get(ctx context.Context, namespace, name string) (*coordinationv1.Lease, error) {
	return exchange(ctx, l.client.Get().Namespace(namespace).Resource("leases").Name(name), nil)
}

// Create creates a Lease in the namespace that it names, and gives it as the API server has it.
func (l *Leases) Create(
	ctx context.Context, lease *coordinationv1.Lease,
) (*coordinationv1.Lease, error) {
	return exchange(ctx, l.client.Post().Namespace(lease.Namespace).Resource("leases"), lease)
}

// Update writes a Lease, if that version of it is still the newest, and gives it as the API server
// has it.
func (l *Leases) Update(
	ctx context.Context, lease *coordinationv1.Lease,
) (*coordinationv1.Lease, error) {
	return exchange(ctx,
		l.client.Put().Namespace(lease.Namespace).Resource("leases").Name(lease.Name), lease)
}

// exchange sends a Lease, nil for none, and reads one.
func exchange(
	ctx context.Context, request *rest.Request, lease *coordinationv1.Lease,
) (*coordinationv1.Lease, error) {
	if lease != nil {
		written := *lease
		written.TypeMeta = metav1.TypeMeta{
			APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease",
		}
		body, err := json.Marshal(&written)
		if err != nil {
			return nil, err
		}
		request.SetHeader("Content-Type", "application/json").Body(body)
	}
	body, _, err := send(ctx, request)
	if err != nil {
		return nil, err
	}
	answer := &coordinationv1.Lease{}
	if err := json.Unmarshal(body, answer); err != nil {
		return nil, fmt.Errorf("the API server's answer is no Lease: %w", err)
	}
	return answer, nil
}
