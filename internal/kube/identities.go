package kube

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubebridge/bridge/internal/resource"
)

// Identity is an object without its content.
type Identity struct{ Namespace, Name, UID, Version string }

// ListOptions say what is listed.
type ListOptions struct{ Namespace, LabelSelector, FieldSelector string }

// Identities lists the objects of a type, in pages, and asks for their metadata only. It gives the
// version of the list. A list that expires between two pages begins again: yield may be called
// twice for an object.
func (r *Resolver) Identities(
	ctx context.Context, t resource.Type, o ListOptions, yield func(Identity),
) (version string, err error) {
	const pageSize = "500"
	path := "/" + t.CollectionPath(o.Namespace)
	again := ""
	for {
		request := r.client.Get().AbsPath(path).Param("limit", pageSize).
			SetHeader("Accept",
				"application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json")
		for name, value := range map[string]string{
			"labelSelector": o.LabelSelector,
			"fieldSelector": o.FieldSelector, "continue": again,
		} {
			if value != "" {
				request.Param(name, value)
			}
		}
		body, _, err := send(ctx, request)
		if again != "" && apierrors.IsResourceExpired(err) {
			again = ""
			continue
		}
		if err != nil {
			return "", fmt.Errorf("list %s: %w", t, Explain(err, r.host))
		}
		var page struct {
			Metadata struct{ ResourceVersion, Continue string }
			Items    []struct {
				Metadata struct{ Namespace, Name, UID, ResourceVersion string }
			}
		}
		if err := json.Unmarshal(body, &page); err != nil {
			return "", fmt.Errorf("list %s: %w", t, err)
		}
		for i := range page.Items {
			m := &page.Items[i].Metadata
			yield(Identity{m.Namespace, m.Name, m.UID, m.ResourceVersion})
		}
		if again = page.Metadata.Continue; again == "" {
			return page.Metadata.ResourceVersion, nil
		}
	}
}
