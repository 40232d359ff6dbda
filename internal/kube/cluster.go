package kube

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClusterID is the uid of the namespace kube-system, which is the nearest that Kubernetes has to an
// identity of a cluster: it is made with the cluster and lives as long. It is "" where the bridge
// may not read that namespace, or there is none.
func (r *Resolver) ClusterID(ctx context.Context) (string, error) {
	body, _, err := send(ctx, r.client.Get().AbsPath("/api/v1/namespaces/kube-system").
		SetHeader("Accept",
			"application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json"))
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the cluster's id from namespace kube-system: %w",
			Explain(err, r.host))
	}
	var namespace metav1.PartialObjectMetadata
	if err := json.Unmarshal(body, &namespace); err != nil {
		return "", fmt.Errorf("read the cluster's id from namespace kube-system: %w", err)
	}
	return string(namespace.UID), nil
}
