package serve

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

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

// readVerb reports whether a verb only reads.
func readVerb(verb string) bool { return verb == "*" || slices.Contains(readVerbs, verb) }

func (q *request) reviewAccess(body []byte) (any, error) {
	var review authorization.SelfSubjectAccessReview
	if err := decode(body, &review); err != nil {
		return nil, err
	}
	review.TypeMeta = metav1.TypeMeta{Kind: "SelfSubjectAccessReview", APIVersion: "authorization.k8s.io/v1"}
	status := &review.Status
	switch of, path := review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes; {
	case path != nil:
		status.Allowed = path.Verb == "get" || path.Verb == "head"
	case of == nil:
		return nil, errors.New("spec: want resourceAttributes or nonResourceAttributes")
	case !readVerb(of.Verb) || of.Verb == "*":
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
	review.TypeMeta = metav1.TypeMeta{Kind: "SelfSubjectRulesReview", APIVersion: "authorization.k8s.io/v1"}
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
	review := &authentication.SelfSubjectReview{
		TypeMeta: metav1.TypeMeta{Kind: "SelfSubjectReview", APIVersion: "authentication.k8s.io/v1"},
	}
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
