package serve

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Access is what a token may read. Names of resources, with their schemas, are open to each token.
type Access struct {
	Token string
	// Namespaces by name; "*": all of them, and what is in none.
	Namespaces []string
	// Resources as "pods" or "deployments.apps"; "*": all but Secrets, which must be named.
	Resources []string
}

// Everything returns the access of a token that may read all that the history has.
func Everything(token string) Access {
	return Access{Token: token, Namespaces: []string{"*"}, Resources: []string{"*", secrets}}
}

const secrets = "secrets"

// allows reports whether objects of a resource may be read: in a namespace, or for "" and "*" in
// all of them and in none.
func (a *Access) allows(t *resourceType, namespace string) bool {
	name := t.groupResource()
	if !slices.Contains(a.Resources, name) && (name == secrets || !slices.Contains(a.Resources, "*")) {
		return false
	}
	return slices.Contains(a.Namespaces, "*") || slices.Contains(a.Namespaces, namespace)
}

// groupResource is "deployments.apps", or "pods" for the core group.
func (t *resourceType) groupResource() string {
	return strings.TrimSuffix(t.Resource+"."+t.Group, ".")
}

// tokenOf returns which token of Access a request has, -1 for an unknown one. It takes the same
// time for each token.
func (s *Server) tokenOf(r *http.Request) int {
	token, isBearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	got, found := sha256.Sum256([]byte(token)), -1
	for i := range s.cfg.Access {
		want := sha256.Sum256([]byte(s.cfg.Access[i].Token))
		if subtle.ConstantTimeCompare(got[:], want[:]) == 1 && isBearer {
			found = i
		}
	}
	return found
}

// forbid answers as an API server does.
func (q *request) forbid(t *resourceType, namespace string) {
	where := "in all namespaces: name one of those that it may read"
	if namespace != "" {
		where = fmt.Sprintf("in the namespace %q", namespace)
	}
	q.refuse(http.StatusForbidden, metav1.StatusReasonForbidden,
		fmt.Sprintf("%s is forbidden: this token may not read %s %s", t.groupResource(),
			t.groupResource(), where))
}

// minToken is the fewest characters of a token.
const minToken = 16

// accessEntry is one of the file.
type accessEntry struct {
	Token      string   `yaml:"token"`
	TokenFile  string   `yaml:"tokenFile"`
	Namespaces []string `yaml:"namespaces"`
	Resources  []string `yaml:"resources"`
}

// ParseAccess reads a list of tokens and what each may read, as YAML. Its error has all problems.
func ParseAccess(text []byte) (list []Access, err error) {
	const want = "want a list of tokens, each with namespaces and resources"
	var file []accessEntry
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf(want+": %w", err)
	}
	if len(file) == 0 {
		return nil, errors.New(want)
	}
	var problems []error
	for i, entry := range file {
		refuse := func(format string, args ...any) {
			problems = append(problems, fmt.Errorf("entry %d: %s", i+1, fmt.Sprintf(format, args...)))
		}
		token := entry.Token
		if (token == "") == (entry.TokenFile == "") {
			refuse("want token or tokenFile")
			continue
		}
		if entry.TokenFile != "" {
			content, err := os.ReadFile(entry.TokenFile)
			if err != nil {
				refuse("tokenFile: %v", err)
				continue
			}
			token = strings.TrimSpace(string(content))
		}
		if len(token) < minToken {
			refuse("the token has fewer than %d characters", minToken)
		}
		if slices.ContainsFunc(list, func(a Access) bool { return a.Token == token }) {
			refuse("an entry before it has the same token")
		}
		for _, names := range []struct {
			key  string
			list []string
		}{{"namespaces", entry.Namespaces}, {"resources", entry.Resources}} {
			if len(names.list) == 0 || slices.Contains(names.list, "") {
				refuse(`%s: want names, or "*" for all`, names.key)
			}
		}
		list = append(list, Access{Token: token, Namespaces: entry.Namespaces, Resources: entry.Resources})
	}
	return list, errors.Join(problems...)
}

// maxReview is how long a review may be, in bytes.
const maxReview = 64 << 10

// reader is the name of whoever has a token. Tokens have no names.
const reader = "bridge:reader"

// reviews are the creates that change nothing: a client asks what it may do.
var reviews = map[string]func(q *request, body []byte) (any, error){
	"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews": (*request).reviewAccess,
	"/apis/authorization.k8s.io/v1/selfsubjectrulesreviews":  (*request).reviewRules,
	"/apis/authentication.k8s.io/v1/selfsubjectreviews":      (*request).reviewSubject,
}

// review answers one of them.
func (q *request) review(answer func(q *request, body []byte) (any, error)) {
	body, err := io.ReadAll(http.MaxBytesReader(q.w, q.r.Body, maxReview))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		q.refuse(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge,
			fmt.Sprintf("a review has at most %d bytes", maxReview))
		return
	}
	var reviewed any
	if err == nil {
		reviewed, err = answer(q, body)
	}
	if err != nil {
		q.badRequest("the review can't be read: " + err.Error())
		return
	}
	q.json(http.StatusCreated, reviewed)
}

// protobuf is what each generated type of the API has.
type protobuf interface{ Unmarshal(data []byte) error }

// protobufPrefix begins an object that is encoded as protobuf.
var protobufPrefix = []byte("k8s\x00")

// decode reads an object as JSON or protobuf.
func decode(body []byte, into protobuf) error {
	raw, isProtobuf := bytes.CutPrefix(body, protobufPrefix)
	if !isProtobuf {
		return json.Unmarshal(body, into)
	}
	var of runtime.Unknown
	if err := of.Unmarshal(raw); err != nil {
		return err
	}
	return into.Unmarshal(of.Raw)
}

func (q *request) reviewAccess(body []byte) (any, error) {
	var review authorization.SelfSubjectAccessReview
	if err := decode(body, &review); err != nil {
		return nil, err
	}
	review.Kind, review.APIVersion = "SelfSubjectAccessReview", "authorization.k8s.io/v1"
	status := &review.Status
	switch of, path := review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes; {
	case path != nil:
		status.Allowed = path.Verb == "get" || path.Verb == "head"
	case of == nil:
		return nil, errors.New("spec: want resourceAttributes or nonResourceAttributes")
	case of.Subresource != "" && of.Subresource != "status":
		status.Reason = "a history has objects, and no " + of.Subresource + " of them"
	case !slices.Contains(readVerbs, of.Verb):
		status.Reason = q.server.what() + " can be read, and nothing can be changed"
	default:
		t := &resourceType{Group: of.Group, Resource: of.Resource}
		if status.Allowed = q.access.allows(t, of.Namespace); !status.Allowed {
			status.Reason = "this token may not read it"
		}
	}
	status.Denied = !status.Allowed
	return &review, nil
}

func (q *request) reviewRules(body []byte) (any, error) {
	var review authorization.SelfSubjectRulesReview
	if err := decode(body, &review); err != nil {
		return nil, err
	}
	review.Kind, review.APIVersion = "SelfSubjectRulesReview", "authorization.k8s.io/v1"
	review.Status.NonResourceRules = []authorization.NonResourceRule{{
		Verbs: []string{"get"}, NonResourceURLs: []string{"*"},
	}}
	review.Status.ResourceRules = []authorization.ResourceRule{}
	types, err := q.catalog()
	if err != nil {
		return nil, err
	}
	byGroup := map[string][]string{}
	for _, t := range types {
		if q.access.allows(t, review.Spec.Namespace) {
			byGroup[t.Group] = append(byGroup[t.Group], t.Resource)
		}
	}
	for _, group := range groupsOf(types) {
		if names := byGroup[group]; len(names) > 0 {
			review.Status.ResourceRules = append(review.Status.ResourceRules, authorization.ResourceRule{
				Verbs: readVerbs, APIGroups: []string{group}, Resources: names,
			})
		}
	}
	return &review, nil
}

func (q *request) reviewSubject([]byte) (any, error) {
	review := &authentication.SelfSubjectReview{}
	review.Kind, review.APIVersion = "SelfSubjectReview", "authentication.k8s.io/v1"
	review.Status.UserInfo = authentication.UserInfo{
		Username: reader, Groups: []string{"system:authenticated"},
	}
	return review, nil
}

// isReview returns what answers a request that changes nothing, though it is a create.
func isReview(r *http.Request) func(q *request, body []byte) (any, error) {
	if r.Method != http.MethodPost {
		return nil
	}
	return reviews[strings.TrimSuffix(r.URL.Path, "/")]
}
