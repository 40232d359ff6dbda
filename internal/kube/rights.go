package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
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

// Account is whom roles are bound to, and how they are called.
type Account struct {
	Role           string // name of the roles and of their bindings
	Namespace      string // of the service account
	ServiceAccount string
}

// Roles returns the smallest roles with the given rights and their bindings, as YAML that kubectl
// apply takes: a ClusterRole for what is needed in all namespaces, and a Role in each namespace for
// what is needed there only. The same rights give the same text.
func Roles(rights []Right, to Account) string {
	var out strings.Builder
	rights = withoutCovered(rights)
	for _, namespace := range namespacesOf(rights) {
		if out.Len() > 0 {
			out.WriteString("---\n")
		}
		writeRole(&out, namespace, rulesOf(rights, namespace), &to)
	}
	return out.String()
}

// RoleValues returns the same rights as values of the Helm chart, which makes the roles of them;
// selection says what they are for.
func RoleValues(rights []Right, selection string) string {
	var out strings.Builder
	rights = withoutCovered(rights)
	fmt.Fprintf(&out, "rbac:\n  selection: %s\n  roles:\n", selection)
	for _, namespace := range namespacesOf(rights) {
		fmt.Fprintf(&out, "  - namespace: %q\n    rules:\n", namespace)
		writeRules(&out, "    ", rulesOf(rights, namespace))
	}
	return out.String()
}

// withoutCovered leaves out what another right gives as well.
func withoutCovered(rights []Right) []Right {
	var needed []Right
	for i, r := range rights {
		covered := func(j int) bool {
			other := rights[j]
			return i != j && other.Covers(r) && (!r.Covers(other) || j < i)
		}
		if !slices.ContainsFunc(indexes(len(rights)), covered) {
			needed = append(needed, r)
		}
	}
	return needed
}

func indexes(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// namespacesOf lists the namespaces, "" for all first.
func namespacesOf(rights []Right) []string {
	seen := map[string]bool{}
	for _, r := range rights {
		seen[r.Namespace] = true
	}
	return slices.Sorted(maps.Keys(seen))
}

type rule struct {
	group, name string
	verbs       string // as YAML
	resources   []string
}

// rulesOf puts together what differs in the resource only, in one group and with the same verbs.
func rulesOf(rights []Right, namespace string) []rule {
	type object struct{ group, resource, name string }
	verbs := map[object][]string{}
	for _, r := range rights {
		if r.Namespace == namespace {
			o := object{r.Group, r.Resource, r.Name}
			verbs[o] = append(verbs[o], r.Verb)
		}
	}
	type same struct{ group, name, verbs string }
	resources := map[same][]string{}
	for o, v := range verbs {
		s := same{o.group, o.name, yamlList(v)}
		resources[s] = append(resources[s], o.resource)
	}
	var rules []rule
	for s, list := range resources {
		slices.Sort(list)
		rules = append(rules, rule{s.group, s.name, s.verbs, list})
	}
	slices.SortFunc(rules, func(a, b rule) int {
		return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.name, b.name),
			cmp.Compare(a.verbs, b.verbs))
	})
	return rules
}

// yamlList returns a list of texts in one line, sorted; quoted, since "*" and "on" are something
// else in YAML.
func yamlList(list []string) string {
	list = slices.Compact(slices.Sorted(slices.Values(list)))
	quoted := make([]string, len(list))
	for i, text := range list {
		quoted[i] = fmt.Sprintf("%q", text)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

func writeRole(out *strings.Builder, namespace string, rules []rule, to *Account) {
	kind, metadata := "ClusterRole", fmt.Sprintf("{name: %q}", to.Role)
	if namespace != "" {
		kind, metadata = "Role", fmt.Sprintf("{name: %q, namespace: %q}", to.Role, namespace)
	}
	fmt.Fprintf(out, "apiVersion: rbac.authorization.k8s.io/v1\nkind: %s\nmetadata: %s\nrules:\n",
		kind, metadata)
	writeRules(out, "", rules)
	fmt.Fprintf(out, "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: "+
		"%sBinding\nmetadata: %s\n", kind, metadata)
	fmt.Fprintf(out, "roleRef: {apiGroup: rbac.authorization.k8s.io, kind: %s, name: %q}\n", kind,
		to.Role)
	fmt.Fprintf(out, "subjects:\n- {kind: ServiceAccount, namespace: %q, name: %q}\n", to.Namespace,
		to.ServiceAccount)
}

func writeRules(out *strings.Builder, indent string, rules []rule) {
	for _, r := range rules {
		fmt.Fprintf(out, "%s- apiGroups: [%q]\n%s  resources: %s\n", indent, r.group, indent,
			yamlList(r.resources))
		if r.name != "" {
			fmt.Fprintf(out, "%s  resourceNames: [%q]\n", indent, r.name)
		}
		fmt.Fprintf(out, "%s  verbs: %s\n", indent, r.verbs)
	}
}
