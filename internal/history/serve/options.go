package serve

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metascheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/resource/jsontree"
)

// readParameters reads the parameters of a request, as an API server does.
func (q *request) readParameters(into runtime.Object) error {
	err := metascheme.ParameterCodec.DecodeParameters(q.r.URL.Query(), metav1.SchemeGroupVersion, into)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}

// listOptions are the parameters of a list or a watch.
func (q *request) listOptions() (*internalversion.ListOptions, error) {
	o := &internalversion.ListOptions{}
	if err := q.readParameters(o); err != nil {
		return nil, err
	}
	internalversion.SetListOptionsDefaults(o, true)
	if problems := validation.ValidateListOptions(o, true); len(problems) > 0 {
		return nil, apierrors.NewInvalid(metaKind("ListOptions"), "", problems)
	}
	return o, nil
}

func metaKind(kind string) schema.GroupKind {
	return schema.GroupKind{Group: metav1.GroupName, Kind: kind}
}

// parseVersion reads a resourceVersion, 0 for none. One above the newest is refused.
func parseVersion(text string, newest uint64) (uint64, error) {
	version, err := strconv.ParseUint(cmp.Or(text, "0"), 10, 64)
	if err != nil {
		invalid := field.Invalid(field.NewPath("resourceVersion"), text, err.Error())
		return 0, apierrors.NewBadRequest("invalid resource version: " + invalid.Error())
	}
	if version > newest {
		return 0, tooLargeVersion(version, newest)
	}
	return version, nil
}

// tooLargeVersion is for versions that are not known yet. client-go waits, and asks again.
func tooLargeVersion(version, newest uint64) error {
	err := apierrors.NewTimeoutError(
		fmt.Sprintf("Too large resource version: %d, current: %d", version, newest), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version",
	}}
	return err
}

// exactVersion returns the version that a list is to be of, 0 for the one that is served.
func exactVersion(o *internalversion.ListOptions, newest uint64) (uint64, error) {
	version, err := parseVersion(o.ResourceVersion, newest)
	if err != nil {
		return 0, err
	}
	// Without a match, a version with a limit is exact.
	isPage := o.ResourceVersionMatch == "" && o.Limit > 0
	if o.ResourceVersionMatch == metav1.ResourceVersionMatchExact || isPage {
		return version, nil
	}
	return 0, nil
}

// continueToken is where the next page begins.
type continueToken struct {
	Version   uint64 `json:"v"`
	Exact     bool   `json:"e,omitempty"` // of this version, not of the point that is served
	Namespace string `json:"n"`
	Name      string `json:"m"`
}

func (t *continueToken) String() string {
	text, _ := json.Marshal(t) // it has texts and a number only
	return base64.RawURLEncoding.EncodeToString(text)
}

func parseContinue(o *internalversion.ListOptions) (t continueToken, err error) {
	text, err := base64.RawURLEncoding.DecodeString(o.Continue)
	if err == nil {
		err = json.Unmarshal(text, &t)
	}
	switch {
	case err != nil:
		return t, apierrors.NewBadRequest("invalid continue token: continue key is not valid: " +
			err.Error())
	case cmp.Or(o.ResourceVersion, "0") != "0":
		return t, apierrors.NewBadRequest(
			"specifying resource version is not allowed when using continue")
	}
	return t, nil
}

// checkName refuses names that no object has. Those of RBAC may have any bytes.
func checkName(t *resourceType, kind, name string) error {
	problems := content.IsPathSegmentName(name)
	isOdd := func(r rune) bool { return r == utf8.RuneError || unicode.IsControl(r) }
	if t.Group != "rbac.authorization.k8s.io" && strings.ContainsFunc(name, isOdd) {
		problems = append(problems, "may not contain control characters, nor bytes that are no UTF-8")
	}
	if len(problems) == 0 {
		return nil
	}
	const most = 100
	return apierrors.NewBadRequest(fmt.Sprintf("%s parameter invalid: %q: %s", kind,
		name[:min(len(name), most)], strings.Join(problems, ", ")))
}

// refuseFor answers with the status of an error; without one it is an error of the history.
func (q *request) refuseFor(err error) {
	s, hasStatus := errors.AsType[*apierrors.StatusError](err)
	if !hasStatus {
		q.fail(err)
		return
	}
	status := s.ErrStatus
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		q.w.Header().Set("Retry-After", fmt.Sprint(status.Details.RetryAfterSeconds))
	}
	q.json(int(status.Code), &status)
}

// fail answers that the history can't be read. Why is in the log only: it may name files.
func (q *request) fail(err error) {
	q.cfg.Log.Error("a request failed", "path", q.r.URL.Path, "err", err)
	q.refuse(http.StatusInternalServerError, metav1.StatusReasonInternalError,
		"the history can't be read: the log of bridge serve says why")
}

// maxTerms bounds the terms of a selector: each is compared with each object. maxSelector bounds
// its bytes.
const (
	maxTerms    = 100
	maxSelector = 16 << 10
)

// selectable are the fields by which an API server selects objects of a kind, beside their name and
// namespace. Behind a "=" is the value where an object has none.
var selectable = map[string][]string{
	"pods": {
		"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
		"spec.hostNetwork=false", "status.phase", "status.podIP", "status.podIPs",
		"status.nominatedNodeName",
	},
	"events": {
		"involvedObject.kind", "involvedObject.namespace", "involvedObject.name",
		"involvedObject.uid", "involvedObject.apiVersion", "involvedObject.resourceVersion",
		"involvedObject.fieldPath", "reason", "reportingComponent", "source", "type",
	},
	"events.events.k8s.io": {
		"regarding.kind", "regarding.namespace", "regarding.name", "regarding.uid",
		"regarding.apiVersion", "regarding.resourceVersion", "regarding.fieldPath", "reason",
		"reportingController", "type",
	},
	"namespaces":             {"status.phase"},
	"nodes":                  {"spec.unschedulable=false"},
	"secrets":                {"type"},
	"services":               {"spec.clusterIP", "spec.type"},
	"replicationcontrollers": {"status.replicas=0"},
	"jobs.batch":             {"status.successful=0"},

	"certificatesigningrequests.certificates.k8s.io": {"spec.signerName"},
	"resourceslices.resource.k8s.io":                 {"spec.nodeName", "spec.driver"},
}

// fieldPaths are where a field is that has another name in objects. The first value there is taken.
var fieldPaths = map[string][]string{
	"source":            {"source.component", "reportingComponent"},
	"status.successful": {"status.succeeded"},
}

// selection is which objects a request wants.
type selection struct {
	labels labels.Selector
	fields fields.Selector
	// missing are values where an object has none, by field.
	missing map[string]string
}

// withoutNamespace are kinds whose objects an API server does not select by metadata.namespace.
var withoutNamespace = []string{
	"namespaces", "nodes", "certificatesigningrequests.certificates.k8s.io", "resourceslices.resource.k8s.io",
}

func (q *request) selection(
	t *resourceType, o *internalversion.ListOptions,
) (s selection, err error) {
	s.labels, s.fields = labels.Everything(), fields.Everything()
	if o.LabelSelector != nil {
		s.labels = o.LabelSelector
	}
	if o.FieldSelector != nil {
		s.fields = o.FieldSelector
	}
	terms, _ := s.labels.Requirements()
	for name, n := range map[string]int{
		"labelSelector": len(terms), "fieldSelector": len(s.fields.Requirements()),
	} {
		switch size := len(q.r.URL.Query().Get(name)); {
		case n > maxTerms:
			return s, apierrors.NewBadRequest(fmt.Sprintf("%s has %d terms, at most %d are compared",
				name, n, maxTerms))
		case size > maxSelector:
			return s, apierrors.NewBadRequest(fmt.Sprintf("%s has %d bytes, at most %d are read",
				name, size, maxSelector))
		}
	}
	own := slices.Concat(selectable[t.groupResource()], t.selectable)
	s.missing = map[string]string{}
	known := []string{"metadata.name", "metadata.namespace"}
	if slices.Contains(withoutNamespace, t.groupResource()) || t.isCustom && !t.Namespaced {
		known = known[:1]
	}
	for _, field := range own {
		name, missing, _ := strings.Cut(field, "=")
		s.missing[name], known = missing, append(known, name)
	}
	for _, r := range s.fields.Requirements() {
		switch {
		case slices.Contains(known, r.Field):
		case len(own) > 0 || t.isCustom:
			return s, apierrors.NewBadRequest("field label not supported: " + r.Field)
		default:
			return s, apierrors.NewBadRequest(fmt.Sprintf(
				"%q is not a known field selector: only %q, %q", r.Field, "metadata.name",
				"metadata.namespace"))
		}
	}
	return s, nil
}

// byIndex returns by which index the objects can be found; nil for none.
func (s *selection) byIndex(t *resourceType) *query.ByIndex {
	if t.groupResource() != "pods" {
		return nil
	}
	if node, isExact := s.fields.RequiresExactMatch("spec.nodeName"); isExact && node != "" {
		return query.ByNode(node)
	}
	return nil
}

func (s *selection) matches(v *query.Version) bool {
	if !s.labels.Empty() && !s.labels.Matches(v.Labels()) {
		return false
	}
	terms := s.fields.Requirements()
	if len(terms) == 0 {
		return true
	}
	o := object{jsontree.Parse(v.Event.Data)}
	for _, r := range terms {
		value := cmp.Or(fieldOf(v, o, r.Field), s.missing[r.Field])
		if (value == r.Value) != (r.Operator != "!=") {
			return false
		}
	}
	return true
}

// fieldOf is a field of an object as text, "" for none.
func fieldOf(v *query.Version, o object, field string) string {
	switch field {
	case "metadata.name":
		return v.Event.Name
	case "metadata.namespace":
		return v.Event.Namespace
	}
	paths := fieldPaths[field]
	if paths == nil {
		paths = []string{field}
	}
	for _, path := range paths {
		if text := o.text(strings.Split(path, ".")...); text != "" {
			return text
		}
	}
	return ""
}
