package serve

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/bridge/internal/history/ask"
	"github.com/kubebridge/bridge/internal/history/audit"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/record"
	"github.com/kubebridge/bridge/internal/resource/jsontree"
)

func (q *request) get(t *resourceType, namespace, name string) {
	if err := q.checkGet(t, namespace, name); err != nil {
		q.refuseFor(err)
		return
	}
	wanted := query.StateQuery{Units: t.units, Namespace: namespace, At: q.point(), Only: name}
	for v, err := range q.history.Objects.State(wanted) {
		if err != nil {
			q.fail(err)
			return
		}
		if v.Form() != record.FormObject {
			q.notFound(fmt.Sprintf("the stream has no whole object of %s %q (payload)", t.Resource,
				name))
			return
		}
		form, _ := formOf(q.r)
		if form == asMetadataList {
			q.notAcceptable()
			return
		}
		body, err := q.encode(t, v, form)
		if err == nil {
			err = q.warnObject([]*record.Unit{v.Unit}, namespace, name, v)
		}
		if err != nil {
			q.fail(err)
			return
		}
		q.w.Header().Set("Content-Type", "application/json")
		if form == asTable {
			body = appendTable(nil, t, v.Event.ResourceVersion, [][]byte{body}, true)
		}
		_, _ = q.w.Write(append(body, '\n')) // the client has gone
		return
	}
	if err := q.warnObject(t.units, namespace, name, nil); err != nil {
		q.fail(err)
		return
	}
	s := statusOf(http.StatusNotFound, metav1.StatusReasonNotFound,
		fmt.Sprintf("%s %q not found", t.groupResource(), name))
	s.Details = &metav1.StatusDetails{Name: name, Group: t.Group, Kind: t.Resource}
	q.json(http.StatusNotFound, s)
}

// checkGet refuses what an API server refuses of a request for an object.
func (q *request) checkGet(t *resourceType, namespace, name string) error {
	var o metav1.GetOptions
	err := cmp.Or(q.readParameters(&o), q.checkTable())
	if err == nil {
		err = cmp.Or(checkName(t, "Name", name), checkName(t, "Namespace", cmp.Or(namespace, "none")))
	}
	if err != nil {
		return err
	}
	version, err := q.servedVersion()
	if err == nil {
		_, err = parseVersion(o.ResourceVersion, version)
	}
	return err
}

// encode makes an object as the client wants it; of a table it is the row.
func (q *request) encode(t *resourceType, v *query.Version, form form) ([]byte, error) {
	if err := cmp.Or(readable(t, v), q.annotate(v)); err != nil {
		return nil, err
	}
	switch form {
	case asObject:
	case asMetadata, asMetadataList:
		return appendMetadata(nil, object{jsontree.Parse(v.Event.Data)}), nil
	case asTable:
		now := time.Now()
		if !q.cfg.Live { // of a replayed change, when it was
			if now = q.cfg.At.At; v.Time.After(now) {
				now = v.Time
			}
		}
		return appendRow(nil, t, v, now, q.r.URL.Query().Get("includeObject"))
	}
	return v.Event.Data, nil
}

// ActorAnnotation names the user who made a version, with Config.Who. One that was recorded with
// the object is from somebody else, and is removed.
const ActorAnnotation = audit.PolicyName + "/actor"

// nameUsers has the request name users as a history knows them.
func (q *request) nameUsers(h *query.Questions) {
	if q.cfg.Who {
		q.actors = ask.NewActors(h)
	}
}

// annotate sets the annotation of a version, or removes it where the user is not known.
func (q *request) annotate(v *query.Version) error {
	if q.actors == nil {
		return nil
	}
	var made query.VersionReport
	if err := q.actors.AddTo(&made, v); err != nil {
		return err
	}
	o := object{jsontree.Parse(v.Event.Data)}
	var annotations map[string]json.RawMessage
	if found := o.find("metadata", "annotations"); found.IsObject() {
		if err := json.Unmarshal(found.Raw(), &annotations); err != nil {
			return err
		}
	}
	_, isForged := annotations[ActorAnnotation]
	switch {
	case made.Actor != nil && made.Actor.User != "":
		user, err := json.Marshal(made.Actor.String())
		if err != nil {
			return err
		}
		if annotations == nil {
			annotations = map[string]json.RawMessage{}
		}
		annotations[ActorAnnotation] = user
	case isForged:
		delete(annotations, ActorAnnotation)
	default:
		return nil
	}
	value, err := json.Marshal(annotations)
	if err == nil {
		v.Event.Data = withMember(o, "metadata", withMember(o.find("metadata"), "annotations", value))
	}
	return err
}

// withMember returns an object with another value of a member, first where it had none.
func withMember(o object, name string, value []byte) []byte {
	raw := o.Raw()
	if old := o.find(name); old.Exists() {
		return slices.Concat(raw[:old.Start()-o.Start()], value, raw[old.End()-o.Start():])
	}
	w := o.Walk()
	comma := ","
	if !w.Next() {
		comma = ""
	}
	return slices.Concat(fmt.Appendf(nil, "{%q:%s%s", name, value, comma), raw[1:])
}

// ofBytes are the members that typed clients read as bytes.
var ofBytes = map[string]string{"secrets": "data", "configmaps": "binaryData"}

// redacted begins what stands in place of a value.
const redacted = "redacted:"

// readable makes redacted values of the type that their member has: base64 in that of bytes.
func readable(t *resourceType, v *query.Version) error {
	name := ofBytes[t.groupResource()]
	if name == "" || !bytes.Contains(v.Event.Data, []byte(`"`+redacted)) {
		return nil
	}
	var object map[string]json.RawMessage
	var values map[string]string
	if err := json.Unmarshal(v.Event.Data, &object); err != nil {
		return err
	}
	if json.Unmarshal(object[name], &values) != nil {
		return nil // it is none that a client could read
	}
	for key, value := range values {
		if strings.HasPrefix(value, redacted) {
			values[key] = base64.StdEncoding.EncodeToString([]byte(value))
		}
	}
	encoded, err := json.Marshal(values)
	if err != nil {
		return err
	}
	object[name] = encoded
	v.Event.Data, err = json.Marshal(object)
	return err
}

// warnRedacted says of a list of Secrets that their values are none, if those of the first one are.
func (q *request) warnRedacted(t *resourceType, wanted query.StateQuery) error {
	if t.groupResource() != secrets {
		return nil
	}
	for v, err := range q.history.Objects.State(wanted) {
		if err == nil && bytes.Contains(v.Event.Data, []byte(`"`+redacted)) {
			q.warn([]string{"values of Secrets are redacted in this history: what reads them, as Helm " +
				"its releases, can't; 'secrets: send' of an informer records them as they are"})
		}
		return err
	}
	return nil
}

// appendMetadata appends an object as PartialObjectMetadata.
func appendMetadata(dst []byte, o object) []byte {
	dst = append(dst,
		`{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":`...)
	return append(append(dst, o.find("metadata").Raw()...), '}')
}

func (q *request) collection(t *resourceType, namespace string) {
	o, err := q.listOptions()
	if err == nil {
		err = cmp.Or(checkName(t, "Namespace", cmp.Or(namespace, "all")), q.checkTable())
	}
	var s selection
	if err == nil {
		s, err = q.selection(t, o)
	}
	switch {
	case err != nil:
		q.refuseFor(err)
	case o.Watch:
		q.watch(t, namespace, s, o)
	default:
		q.list(t, namespace, s, o)
	}
}

func (q *request) list(
	t *resourceType, namespace string, s selection, o *internalversion.ListOptions,
) {
	wanted := query.StateQuery{Units: t.units, Namespace: cmp.Or(namespace, "*"), At: q.point()}
	wanted.By = s.byIndex(t)
	version, err := q.listedPoint(&wanted, o)
	if err == nil && o.Continue == "" { // the first page has warned
		err = cmp.Or(q.warnState(wanted), q.warnRedacted(t, wanted))
	}
	if err != nil {
		q.refuseFor(err)
		return
	}
	if form, _ := formOf(q.r); form == asMetadata {
		q.notAcceptable()
		return
	}
	limit := int(max(o.Limit, 0))
	if o.ResourceVersion == "0" && o.Continue == "" { // an API server has all of it in memory
		limit = 0
	}
	err = q.stream(t, wanted, s, limit, version)
	isGone := q.r.Context().Err() != nil // the client, or this server ends
	switch {
	case err == nil:
	case !isGone && q.w.discard():
		q.fail(err)
	default:
		q.cfg.Log.Error("a list was broken off", "resource", t.Resource, "err", err)
		panic(http.ErrAbortHandler) // the client must not take it for complete
	}
}

// listedPoint sets at which point a list is wanted, and behind which object. It returns the
// resourceVersion of the list.
func (q *request) listedPoint(
	wanted *query.StateQuery, o *internalversion.ListOptions,
) (version uint64, err error) {
	if version, err = q.servedVersion(); err != nil {
		return 0, err
	}
	if o.Continue != "" {
		from, err := parseContinue(o)
		if err != nil {
			return 0, err
		}
		wanted.Behind = &query.Object{Namespace: from.Namespace, Name: from.Name}
		if from.Exact {
			version = from.Version
			wanted.At = query.Point{Version: version}
		}
		return version, nil
	}
	exact, err := exactVersion(o, version)
	switch {
	case err != nil:
		return 0, err
	case exact > 0:
		wanted.At = query.Point{Version: exact}
		err = q.history.Coverage.CheckState(*wanted)
		if errors.Is(err, query.ErrNotKnown) {
			err = goneVersion(exact)
		}
		return exact, err
	case q.cfg.Live && o.Limit > 0:
		wanted.At = query.Point{Version: version} // the pages are of one moment
	}
	return version, nil
}

// stream sends a list as it is read: its metadata comes last.
func (q *request) stream(
	t *resourceType, wanted query.StateQuery, s selection, limit int, version uint64,
) error {
	form, _ := formOf(q.r)
	q.w.Header().Set("Content-Type", "application/json")
	head := fmt.Sprintf(`{"kind":%q,"apiVersion":%q,"items":[`, t.Kind+"List", t.apiVersion())
	switch form {
	case asObject:
	case asTable:
		head = `{"kind":"Table","apiVersion":"meta.k8s.io/v1","columnDefinitions":` +
			string(definitionsOf(t)) + `,"rows":[`
	case asMetadata, asMetadataList:
		head = `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","items":[`
	}
	if _, err := io.WriteString(q.w, head); err != nil {
		return nil //nolint:nilerr // the client has gone
	}
	n := 0
	next := ""
	lastNamespace, lastName := "", ""
	for v, err := range q.inOrder(t, wanted) {
		if err := cmp.Or(err, q.r.Context().Err()); err != nil {
			return err
		}
		if v.Form() != record.FormObject || !s.matches(v) {
			continue
		}
		if limit > 0 && n == limit {
			next = (&continueToken{version, wanted.At.Version > 0, lastNamespace, lastName}).String()
			break
		}
		body, err := q.encode(t, v, form)
		if err != nil {
			return err
		}
		if form == asObject {
			body = t.asItem(body)
		}
		if n++; n > 1 {
			body = append([]byte{','}, body...)
		}
		if _, err := q.w.Write(body); err != nil {
			return nil //nolint:nilerr // the client has gone
		}
		lastNamespace, lastName = v.Event.Namespace, v.Event.Name
	}
	if next != "" {
		next = fmt.Sprintf(`,"continue":%q`, next)
	}
	// the same
	_, _ = fmt.Fprintf(q.w, `],"metadata":{"resourceVersion":"%d"%s}}`+"\n", version, next)
	return nil
}

// inOrder returns a state in the order of an API server.
func (q *request) inOrder(
	t *resourceType, wanted query.StateQuery,
) iter.Seq2[*query.Version, error] {
	if wanted.Namespace != "*" {
		return q.history.Objects.State(wanted)
	}
	names, err := t.namespaces()
	if err == nil && names == nil {
		return q.history.Objects.State(wanted)
	}
	return func(yield func(*query.Version, error) bool) {
		if err != nil {
			yield(nil, err)
			return
		}
		behind := wanted.Behind
		for _, namespace := range names {
			if behind != nil && compareNamespaces(namespace, behind.Namespace) < 0 {
				continue
			}
			part := wanted
			if part.Namespace = namespace; behind != nil && behind.Namespace != namespace {
				part.Behind = nil
			}
			for v, err := range q.history.Objects.State(part) {
				if !yield(v, err) || err != nil {
					return
				}
			}
		}
	}
}

// compareNamespaces has the order of an API server: that of namespaces with a slash behind them, so
// that shop-b comes before shop. A history has the order of names, which is almost always the same.
func compareNamespaces(a, b string) int { return cmp.Compare(a+"/", b+"/") }

// inServerOrder sorts namespaces by compareNamespaces. It returns nil when they come sorted so.
func inServerOrder(names []string, err error) ([]string, error) {
	if err != nil || slices.IsSortedFunc(names, compareNamespaces) {
		return nil, err
	}
	return slices.SortedFunc(slices.Values(names), compareNamespaces), nil
}

// asItem is an object in a list: of a kind that an API server has by itself, without that kind.
func (t *resourceType) asItem(object []byte) []byte {
	if t.isCustom {
		return object
	}
	if rest, is := bytes.CutPrefix(object, t.head()); is {
		return append([]byte{'{'}, rest...)
	}
	return object
}

// head is how the objects of a kind begin.
func (t *resourceType) head() []byte {
	return fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,`, t.Kind, t.apiVersion())
}

// servedVersion returns the resourceVersion of lists: of the point, or the newest one.
// It is looked for once in each history that is shared: that takes as long as five minutes of it.
func (q *request) servedVersion() (uint64, error) {
	if !q.cfg.Live && q.cfg.At.Version > 0 {
		return q.cfg.At.Version, nil
	}
	q.server.mu.Lock()
	version, of := q.server.version, q.server.versionOf
	q.server.mu.Unlock()
	if of == q.history {
		return version, nil
	}
	version, err := q.history.Timeline.VersionAt(q.cfg.Cluster, q.point().At)
	if err != nil {
		return 0, err
	}
	q.server.mu.Lock()
	defer q.server.mu.Unlock()
	q.server.version, q.server.versionOf = version, q.history
	return version, nil
}

// watchEvent returns an event of a watch as a line.
func watchEvent(kind string, object []byte) []byte {
	line := fmt.Appendf(nil, `{"type":%q,"object":`, kind)
	return append(append(line, object...), '}', '\n')
}

// goneVersion is for versions that the history does not have any more.
func goneVersion(version uint64) *apierrors.StatusError {
	return apierrors.NewResourceExpired(
		fmt.Sprintf("version %d is from before what this history keeps", version))
}

func appendTable(dst []byte, t *resourceType, version string, rows [][]byte, headers bool) []byte {
	dst = append(dst,
		`{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"`...)
	dst = append(append(dst, version...), `"},"columnDefinitions":`...)
	if headers {
		dst = append(dst, definitionsOf(t)...)
	} else {
		dst = append(dst, "null"...)
	}
	dst = append(dst, `,"rows":[`...)
	return append(append(dst, bytes.Join(rows, []byte{','})...), "]}"...)
}

// lookOf changes when something is written.
func lookOf(dir string) (string, error) {
	var look strings.Builder
	for _, pattern := range []string{"*.log", "MANIFEST-*"} {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return "", err
		}
		for _, file := range files {
			info, err := os.Stat(file)
			if err != nil {
				return "", err
			}
			fmt.Fprintf(&look, "%s %d %d\n", info.Name(), info.Size(), info.ModTime().UnixNano())
		}
	}
	return look.String(), nil
}
