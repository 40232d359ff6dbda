package serve

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
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
