package serve

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	strictjson "sigs.k8s.io/json"
	yamljson "sigs.k8s.io/yaml"
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

func (q *request) review(answer func(q *request, body []byte) (any, error)) {
	reviewed, err := q.readReview(answer)
	if err != nil {
		q.refuseFor(err)
		return
	}
	q.json(http.StatusCreated, reviewed)
}

func (q *request) readReview(
	answer func(q *request, body []byte) (any, error),
) (reviewed any, err error) {
	var o metav1.CreateOptions
	if err := q.readParameters(&o); err != nil {
		return nil, err
	}
	if problems := metavalidation.ValidateCreateOptions(&o); len(problems) > 0 {
		return nil, apierrors.NewInvalid(metaKind("CreateOptions"), "", problems)
	}
	q.validation = cmp.Or(o.FieldValidation, metav1.FieldValidationWarn)
	body, err := io.ReadAll(http.MaxBytesReader(q.w, q.r.Body, maxReview))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return nil, apierrors.NewRequestEntityTooLargeError(
			fmt.Sprintf("a review has at most %d bytes", maxReview))
	}
	if err == nil {
		body, err = q.asJSON(body)
	}
	if err == nil {
		reviewed, err = answer(q, body)
	}
	if _, hasStatus := errors.AsType[*apierrors.StatusError](err); err != nil && !hasStatus {
		err = apierrors.NewBadRequest("the review can't be read: " + err.Error())
	}
	return reviewed, err
}

// asJSON returns a body as JSON, or as protobuf.
func (q *request) asJSON(body []byte) ([]byte, error) {
	media, _, _ := mime.ParseMediaType(cmp.Or(q.r.Header.Get("Content-Type"), "application/json"))
	switch media {
	case "application/json", "application/vnd.kubernetes.protobuf":
		return body, nil
	case "application/yaml":
		return yamljson.YAMLToJSON(body)
	}
	err := apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "create",
		schema.GroupResource{}, "", "", 0, false)
	err.ErrStatus.Message = fmt.Sprintf("the body of the request was in an unknown format - accepted "+
		"media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf; "+
		"it is %q", media)
	return nil, err
}

// protobuf is what each generated type of the API has.
type protobuf interface{ Unmarshal(data []byte) error }

// protobufPrefix begins an object that is encoded as protobuf.
var protobufPrefix = []byte("k8s\x00")

// decode reads an object as JSON or protobuf. Fields that it does not know, or that come twice, are
// refused, named or ignored, as the request says.
func (q *request) decode(body []byte, into protobuf, kind, apiVersion string) error {
	if raw, isProtobuf := bytes.CutPrefix(body, protobufPrefix); isProtobuf {
		var of runtime.Unknown
		if err := of.Unmarshal(raw); err != nil {
			return err
		}
		return into.Unmarshal(of.Raw)
	}
	found := metav1.TypeMeta{}
	if err := json.Unmarshal(body, &found); err != nil {
		return err
	}
	if cmp.Or(found.Kind, kind) != kind || cmp.Or(found.APIVersion, apiVersion) != apiVersion {
		return fmt.Errorf("want a %s of %s", kind, apiVersion)
	}
	if q.validation == metav1.FieldValidationIgnore {
		return json.Unmarshal(body, into)
	}
	problems, err := strictjson.UnmarshalStrict(body, into)
	if err == nil && q.validation == metav1.FieldValidationStrict {
		return errors.Join(problems...)
	}
	var texts []string
	for _, problem := range problems {
		texts = append(texts, problem.Error())
	}
	q.warn(texts)
	return err
}

func (q *request) reviewAccess(body []byte) (any, error) {
	const kind, version = "SelfSubjectAccessReview", "authorization.k8s.io/v1"
	var review authorization.SelfSubjectAccessReview
	if err := q.decode(body, &review, kind, version); err != nil {
		return nil, err
	}
	if problems := validateAccessReview(&review); len(problems) > 0 {
		of := schema.GroupKind{Group: authorization.GroupName, Kind: kind}
		return nil, apierrors.NewInvalid(of, "", problems)
	}
	review.Kind, review.APIVersion = kind, version
	status := &review.Status
	switch of, path := review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes; {
	case path != nil:
		status.Allowed = path.Verb == "get" || path.Verb == "head"
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

// validateAccessReview refuses what an API server refuses.
func validateAccessReview(review *authorization.SelfSubjectAccessReview) (problems field.ErrorList) {
	of, path := review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes
	if (of == nil) == (path == nil) {
		problems = append(problems, field.Invalid(field.NewPath("spec"), nil,
			"exactly one of resourceAttributes and nonResourceAttributes must be specified"))
	}
	if !reflect.ValueOf(review.ObjectMeta).IsZero() {
		problems = append(problems, field.Invalid(field.NewPath("metadata"), nil, "must be empty"))
	}
	return problems
}

func (q *request) reviewRules(body []byte) (any, error) {
	const kind, version = "SelfSubjectRulesReview", "authorization.k8s.io/v1"
	var review authorization.SelfSubjectRulesReview
	if err := q.decode(body, &review, kind, version); err != nil {
		return nil, err
	}
	review.Kind, review.APIVersion = kind, version
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

func (q *request) reviewSubject(body []byte) (any, error) {
	const kind, version = "SelfSubjectReview", "authentication.k8s.io/v1"
	review := &authentication.SelfSubjectReview{}
	if err := q.decode(body, review, kind, version); err != nil {
		return nil, err
	}
	review.Kind, review.APIVersion = kind, version
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
