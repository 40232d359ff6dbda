package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

// Right is one thing that somebody may be allowed to do: a verb on a resource.
type Right struct {
	Verb      string
	Group     string // "" for the core group, "*" for all
	Resource  string // plural; "*" for all
	Name      string // of the object; "" for any
	Namespace string // "" for all, and for cluster-scoped resources
}

// ReadClusterID is what ClusterID needs.
var ReadClusterID = Right{Verb: "get", Resource: "namespaces", Name: "kube-system"}

// String is "watch deployments.apps in namespace shop", as kubectl auth can-i takes it.
func (r Right) String() string {
	text := r.Verb + " " + r.Resource
	if r.Group != "" {
		text += "." + r.Group
	}
	if r.Name != "" {
		text += "/" + r.Name
	}
	if r.Namespace != "" {
		text += " in namespace " + r.Namespace
	}
	return text
}

// Covers reports whether whoever has r has other too.
func (r Right) Covers(other Right) bool {
	any := func(mine, theirs string) bool { return mine == "*" || mine == theirs }
	return r.Verb == other.Verb && any(r.Group, other.Group) && any(r.Resource, other.Resource) &&
		(r.Name == "" || r.Name == other.Name) &&
		(r.Namespace == "" || r.Namespace == other.Namespace)
}

// review is a SelfSubjectAccessReview, as far as it is used here.
type review struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       struct {
		Attributes reviewed `json:"resourceAttributes"`
	} `json:"spec"`
	Status struct {
		Allowed         bool   `json:"allowed"`
		Reason          string `json:"reason"`
		EvaluationError string `json:"evaluationError"`
	} `json:"status"`
}

type reviewed struct {
	Verb      string `json:"verb"`
	Group     string `json:"group"`
	Resource  string `json:"resource"`
	Name      string `json:"name,omitempty"`
	Namespace string `json:"namespace,omitempty"`
}

// Allowed asks the API server whether the bridge's user has a right; why is the server's reason,
// and may be "". Every authenticated user may ask, unless somebody took the ClusterRole
// system:basic-user away.
func (r *Resolver) Allowed(ctx context.Context, right Right) (allowed bool, why string, err error) {
	ask := review{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectAccessReview"}
	ask.Spec.Attributes = reviewed(right)
	body, err := json.Marshal(ask)
	if err != nil {
		return false, "", err
	}
	raw, _, err := send(ctx, r.client.Post().
		AbsPath("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews").
		SetHeader("Content-Type", "application/json").Body(body))
	if err != nil {
		return false, "", fmt.Errorf("ask %s for the right to %s: %w", r.host, right,
			Explain(err, r.host))
	}
	var answer review
	if err := json.Unmarshal(raw, &answer); err != nil {
		return false, "", fmt.Errorf("ask %s for the right to %s: %w", r.host, right, err)
	}
	return answer.Status.Allowed, strings.TrimSpace(cmp.Or(answer.Status.Reason,
		answer.Status.EvaluationError)), nil
}
