package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubebridge/bridge/internal/resource"
)

// ClusterID returns the uid of the namespace kube-system, which is the nearest that Kubernetes has
// to an identity of a cluster: it is made with the cluster and lives as long. It is "" where the
// bridge may not read that namespace, or there is none.
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

// podNamespace is where a pod finds the namespace of its service account.
const podNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// Namespace returns the namespace of the pod or, with a kubeconfig, of its context; "" for
// none. See RESTConfig for the parameters.
func Namespace(kubeconfig, context string) string {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	raw, err := rules.Load()
	if err != nil {
		return "" // RESTConfig returns the error
	}
	if api.IsConfigEmpty(raw) && kubeconfig == "" && context == "" {
		name, err := os.ReadFile(podNamespace)
		if err != nil {
			return "" // so does it of this
		}
		return strings.TrimSpace(string(name))
	}
	if context == "" {
		context = raw.CurrentContext
	}
	if c := raw.Contexts[context]; c != nil {
		return c.Namespace
	}
	return ""
}

// Pin gives names that continue to mean what they mean now, whatever the server will serve later:
// "widgets" becomes "widgets.example.com", so that a CRD of another group can't take the name over.
// A version that a name has stays; wildcards, and names that mean nothing now, stay as they are.
func (c *Catalog) Pin(names []string) []string {
	pinned := make([]string, len(names))
	for i, name := range names {
		pinned[i] = c.pin(name)
	}
	return pinned
}

func (c *Catalog) pin(name string) string {
	if _, _, ok := wildcard(name); ok {
		return name
	}
	e := c.find(name)
	if e == nil {
		return name
	}
	_, rest, qualified := strings.Cut(strings.ToLower(name), ".")
	if qualified && rest != e.Group {
		return e.Resource + "." + rest // it names a version
	}
	return e.String()
}

// IsWildcard reports whether a name selects everything, or all of a group.
func IsWildcard(name string) bool {
	_, _, ok := wildcard(name)
	return ok
}

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
