package audit

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/record"
	"github.com/kubebridge/bridge/internal/ratelimit"
)

// Check writes to a namespace of its own in every way that there is, and asks afterwards who did.
// Make it with its fields; call Write once, Answers until the log has what was written, and Remove.
type Check struct {
	Client *http.Client // with the rights of a user
	Server string       // URL of the API server
	// Namespace is made, and removed.
	Namespace string

	user    string
	isMade  bool // the namespace
	objects []*checkObject
	rows    []*checkRow
}

// checkObject is an object that was written to, with its versions.
type checkObject struct {
	query.Object
	path     string // of the request that reads it
	versions []*query.Version
}

// checkRow is a way to write, and the changes that it made.
type checkRow struct {
	name    string
	changes []checkedChange
	skipped string // why it was not tried
	user    string // who wrote
}

type checkedChange struct {
	of      *checkObject
	version int // index
}

// CheckAnswer is what is known of one way to write.
type CheckAnswer struct {
	Write string `json:"write"`
	// Grade is the weaker one where there were several changes; "" where a user is not known.
	Grade Grade `json:"grade,omitempty"`
	// Unknown says why the user is not known, or why the write was not tried.
	Unknown string `json:"unknown,omitempty"`
	// IsEarly: the user may be known when more of the log is there.
	IsEarly bool `json:"-"`
	// Wrong is another user than the one that wrote. It must not be.
	Wrong string `json:"wrong,omitempty"`
}

// Answers of the API server that a caller decides by.
var (
	errForbidden = errors.New("forbidden")
	errConflict  = errors.New("somebody else has written")
)

const (
	checkMaps        = "configmaps"
	checkDeployments = "deployments"
	checkPods        = "pods"
	jsonType         = "application/json"
	mergeType        = "application/merge-patch+json"
	applyType        = "application/apply-patch+yaml"
)

// Write makes the namespace and writes to it.
func (c *Check) Write(ctx context.Context) error {
	var me struct {
		Status struct{ UserInfo struct{ Username string } }
	}
	body, err := c.do(ctx, http.MethodPost, "/apis/authentication.k8s.io/v1/selfsubjectreviews", jsonType,
		`{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`)
	if err == nil {
		err = json.Unmarshal(body, &me)
	}
	if err != nil {
		return fmt.Errorf("who writes: %w", err)
	}
	c.user = me.Status.UserInfo.Username
	_, err = c.do(ctx, http.MethodPost, "/api/v1/namespaces", jsonType,
		fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, c.Namespace))
	if err != nil {
		return fmt.Errorf("namespace %s: %w", c.Namespace, err)
	}
	c.isMade = true
	for _, w := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"create, PUT, patches, apply", c.writeMap},
		{"Deployment", c.writeDeployment},
		{"finalizer", c.writeFinalizer},
		{"deletecollection", c.writeCollection},
		{"Pod", c.writePod},
		{"impersonation", c.impersonate},
	} {
		err := w.do(ctx)
		if errors.Is(err, errForbidden) {
			c.rows = append(c.rows, &checkRow{name: w.name, skipped: "not tried: " + err.Error()})
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
	}
	return nil
}

// Remove removes the namespace, if Write has made it.
func (c *Check) Remove(ctx context.Context) error {
	if !c.isMade {
		return nil
	}
	_, err := c.do(ctx, http.MethodDelete, "/api/v1/namespaces/"+c.Namespace, jsonType, "")
	return err
}

func (c *Check) path(resource, name string) string {
	group := "/api/v1"
	if resource == checkDeployments {
		group = "/apis/apps/v1"
	}
	return strings.TrimSuffix(fmt.Sprintf("%s/namespaces/%s/%s/%s", group, c.Namespace, resource, name), "/")
}

// do sends a request. An answer that is no success is an error. headers are names and values.
func (c *Check) do(
	ctx context.Context, method, path, contentType, body string, headers ...string,
) (answered []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, method, c.Server+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", contentType)
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	answer, err := c.Client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	answered, err = io.ReadAll(io.LimitReader(answer.Body, 4<<20))
	switch {
	case err != nil:
	case answer.StatusCode == http.StatusForbidden:
		err = fmt.Errorf("%w: %s %s", errForbidden, method, path)
	case answer.StatusCode == http.StatusConflict:
		err = fmt.Errorf("%w: %s %s", errConflict, method, path)
	case answer.StatusCode >= http.StatusBadRequest:
		err = fmt.Errorf("%s %s: %d %s", method, path, answer.StatusCode, bytes.TrimSpace(answered))
	}
	return answered, err
}

// object begins an object.
func (c *Check) object(resource, name string) *checkObject {
	group := ""
	if resource == checkDeployments {
		group = "apps"
	}
	o := &checkObject{path: c.path(resource, name), Object: query.Object{
		Unit:      &record.Unit{Resource: resource, Group: group, Source: "/clusters/check"},
		Namespace: c.Namespace, Name: name,
	}}
	c.objects = append(c.objects, o)
	return o
}

// row adds a way to write, with the versions that the last write has made.
func (c *Check) row(name string, changes ...checkedChange) {
	c.rows = append(c.rows, &checkRow{name: name, changes: changes, user: c.user})
}

// last is the newest change of an object.
func (o *checkObject) last() checkedChange { return checkedChange{o, len(o.versions) - 1} }

// add adds the version that is in an answer, unless it is there.
func (o *checkObject) add(body []byte) error {
	var is struct {
		Metadata struct{ Name, UID, ResourceVersion string }
	}
	if err := json.Unmarshal(body, &is); err != nil {
		return err
	}
	v := &query.Version{Unit: o.Unit, Time: time.Now()}
	v.Event = event.Event{
		Op: event.Added, Time: v.Time, Data: body,
		ObjectAttributes: event.ObjectAttributes{UID: is.Metadata.UID, ResourceVersion: is.Metadata.ResourceVersion},
		OriginAttributes: event.OriginAttributes{TimeSource: event.TimeManagedFields},
	}
	o.Name = is.Metadata.Name
	if n := len(o.versions); n > 0 && !o.versions[n-1].Deleted() {
		before := &o.versions[n-1].Event
		if before.ResourceVersion == v.Event.ResourceVersion {
			return nil
		}
		v.Event.Op, v.Event.Previous = event.Updated, before.ResourceVersion
	}
	o.versions = append(o.versions, v)
	return nil
}

// end adds the end of an object.
func (o *checkObject) end() {
	before := o.versions[len(o.versions)-1]
	v := &query.Version{Unit: o.Unit, Time: time.Now()}
	v.Event = event.Event{
		Op: event.Deleted, Time: v.Time,
		ObjectAttributes: event.ObjectAttributes{UID: before.Event.UID, Previous: before.Event.ResourceVersion},
		OriginAttributes: event.OriginAttributes{TimeSource: event.TimeManagedFields},
	}
	o.versions = append(o.versions, v)
}

// send writes to an object and adds the version that comes of it.
func (c *Check) send(
	ctx context.Context, o *checkObject, method, path, contentType, body string,
) error {
	text, err := c.do(ctx, method, path, contentType, body)
	if err != nil {
		return err
	}
	return o.add(text)
}

// reload adds the version that an object has now, after a write whose answer does not have it.
func (c *Check) reload(ctx context.Context, o *checkObject) error {
	text, err := c.do(ctx, http.MethodGet, o.path, jsonType, "")
	if err != nil {
		return err
	}
	return o.add(text)
}

func mapOf(metadata, data string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{%s},"data":{%s}}`, metadata, data)
}

func (c *Check) writeMap(ctx context.Context) error {
	o, generated := c.object(checkMaps, "m"), c.object(checkMaps, "")
	applied := c.object(checkMaps, "applied")
	const (
		post, put, patch = http.MethodPost, http.MethodPut, http.MethodPatch
		strategicType    = "application/strategic-merge-patch+json"
		jsonPatchType    = "application/json-patch+json"
	)
	all, apply := c.path(checkMaps, ""), applied.path+"?fieldManager=kubebridge-check&force=true"
	for _, w := range []struct {
		name                            string // "": it must change nothing
		of                              *checkObject
		method, path, contentType, body string
	}{
		{"create", o, post, all, jsonType, mapOf(`"name":"m"`, "")},
		{"create with generateName", generated, post, all, jsonType, mapOf(`"generateName":"g-"`, "")},
		{"apply that creates", applied, patch, apply, applyType, mapOf(`"name":"applied"`, `"a":"1"`)},
		{"apply", applied, patch, apply, applyType, mapOf(`"name":"applied"`, `"a":"2"`)},
		{"PUT with a version", o, put, o.path, jsonType, mapOf(`"name":"m","resourceVersion":"VERSION"`, `"a":"1"`)},
		{"PUT without a version", o, put, o.path, jsonType, mapOf(`"name":"m"`, `"a":"2"`)},
		{"JSON patch", o, patch, o.path, jsonPatchType, `[{"op":"replace","path":"/data/a","value":"3"}]`},
		{"merge patch", o, patch, o.path, mergeType, `{"data":{"a":"4"}}`},
		{"strategic merge patch", o, patch, o.path, strategicType, `{"data":{"a":"5"}}`},
		{"", o, patch, o.path, mergeType, `{"data":{"a":"5"}}`},
		{"", o, patch, o.path + "?dryRun=All", mergeType, `{"data":{}}`},
		{"a write after some that change nothing", o, patch, o.path, mergeType, `{"data":{"a":"6"}}`},
	} {
		body := w.body
		if n := len(w.of.versions); n > 0 {
			body = strings.Replace(body, "VERSION", w.of.versions[n-1].Event.ResourceVersion, 1)
		}
		if err := c.send(ctx, w.of, w.method, w.path, w.contentType, body); err != nil {
			return err
		}
		if w.name != "" {
			c.row(w.name, w.of.last())
		}
	}
	if _, err := c.do(ctx, http.MethodDelete, o.path, jsonType, ""); err != nil {
		return err
	}
	o.end()
	c.row("delete", o.last())
	return nil
}

func (c *Check) writeDeployment(ctx context.Context) error {
	o := c.object(checkDeployments, "d")
	err := c.send(ctx, o, http.MethodPost, c.path(checkDeployments, ""), jsonType,
		`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},
		"spec":{"paused":true,"replicas":0,"selector":{"matchLabels":{"a":"b"}},
		"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"none"}]}}}}`)
	if err != nil {
		return err
	}
	// The controller writes to it too: each write names the version that it follows.
	follow := func(subresource, change string) error {
		for try := 0; ; try++ {
			err := c.reload(ctx, o)
			if err == nil {
				version := o.versions[len(o.versions)-1].Event.ResourceVersion
				err = c.send(ctx, o, http.MethodPatch, o.path+"/"+subresource, mergeType,
					fmt.Sprintf(`{"metadata":{"resourceVersion":%q},%s}`, version, change))
			}
			if err == nil {
				c.row(subresource, o.last())
			}
			if !errors.Is(err, errConflict) || try == 20 {
				return err
			}
		}
	}
	return cmp.Or(follow("status", `"status":{"collisionCount":7}`), follow("scale", `"spec":{"replicas":1}`))
}

func (c *Check) writeFinalizer(ctx context.Context) error {
	o := c.object(checkMaps, "f")
	err := c.send(ctx, o, http.MethodPost, c.path(checkMaps, ""), jsonType,
		mapOf(`"name":"f","finalizers":["kubebridge.dev/check"]`, ""))
	if err == nil {
		err = c.send(ctx, o, http.MethodDelete, o.path, jsonType, "")
	}
	if err != nil {
		return err
	}
	c.row("delete that waits for a finalizer", o.last())
	_, err = c.do(ctx, http.MethodPatch, o.path, mergeType, `{"metadata":{"finalizers":null}}`)
	if err != nil {
		return err
	}
	o.end()
	c.row("removal of the last finalizer", o.last())
	return nil
}

func (c *Check) writeCollection(ctx context.Context) error {
	var objects []*checkObject
	for _, name := range []string{"c-0", "c-1", "c-2"} {
		o := c.object(checkMaps, name)
		err := c.send(ctx, o, http.MethodPost, c.path(checkMaps, ""), jsonType,
			mapOf(fmt.Sprintf(`"name":%q,"labels":{"check":"c"}`, name), ""))
		if err != nil {
			return err
		}
		objects = append(objects, o)
	}
	all := c.path(checkMaps, "") + "?labelSelector=check%3Dc"
	if _, err := c.do(ctx, http.MethodDelete, all, jsonType, ""); err != nil {
		return err
	}
	var changes []checkedChange
	for _, o := range objects {
		o.end()
		changes = append(changes, o.last())
	}
	c.row("deletecollection", changes...)
	return nil
}

func (c *Check) writePod(ctx context.Context) error {
	c.awaitServiceAccount(ctx)
	o, evicted := c.object(checkPods, "p"), c.object(checkPods, "e")
	for _, o := range []*checkObject{o, evicted} {
		err := c.send(ctx, o, http.MethodPost, c.path(checkPods, ""), jsonType, fmt.Sprintf(
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q},"spec":{"schedulerName":"none",
			"automountServiceAccountToken":false,"containers":[{"name":"c","image":"none"}]}}`, o.Name))
		if err != nil {
			return err
		}
	}
	_, err := c.do(ctx, http.MethodPost, evicted.path+"/eviction", jsonType,
		`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"e"}}`)
	if err != nil {
		return err
	}
	evicted.end()
	c.row("eviction", evicted.last())
	_, err = c.do(ctx, http.MethodPost, o.path+"/binding", jsonType,
		`{"apiVersion":"v1","kind":"Binding","metadata":{"name":"p"},
		"target":{"kind":"Node","name":"kubebridge-check"}}`)
	if err == nil {
		err = c.reload(ctx, o)
	}
	if err != nil {
		return err
	}
	c.row("binding of a Pod", o.last())
	if err := c.send(ctx, o, http.MethodDelete, o.path, jsonType, ""); err != nil {
		return err
	}
	c.row("delete of a Pod, with its grace period", o.last())
	// Once the API server's cache has this version: a delete whose first try sees an older one may
	// have made it too.
	is := "?resourceVersion=" + o.versions[len(o.versions)-1].Event.ResourceVersion
	if _, err = c.do(ctx, http.MethodGet, o.path+is, jsonType, ""); err == nil {
		_, err = c.do(ctx, http.MethodDelete, o.path+"?gracePeriodSeconds=0", jsonType, "")
	}
	if err != nil {
		return err
	}
	o.end()
	c.row("delete of a Pod, at once", o.last())
	return nil
}

// awaitServiceAccount waits for the service account of the namespace, which a controller makes: no
// Pod is created before.
func (c *Check) awaitServiceAccount(ctx context.Context) {
	for range 50 {
		_, err := c.do(ctx, http.MethodGet, c.path("serviceaccounts", "default"), jsonType, "")
		if err == nil || errors.Is(err, errForbidden) || ratelimit.Sleep(ctx, time.Second/10) != nil {
			return // what is missing the next request says
		}
	}
}

func (c *Check) impersonate(ctx context.Context) error {
	const user = "kubebridge-check"
	o := c.object(checkMaps, "i")
	text, err := c.do(ctx, http.MethodPost, c.path(checkMaps, ""), jsonType, mapOf(`"name":"i"`, ""),
		"Impersonate-User", user, "Impersonate-Group", "system:masters")
	if err == nil {
		err = o.add(text)
	}
	if err != nil {
		return err
	}
	c.row("impersonation", o.last())
	c.rows[len(c.rows)-1].user = user
	return nil
}

// Answers asks who made what Write has made. open returns the log with the claims that it is asked
// for.
func (c *Check) Answers(open func(wanted map[string]bool) (Requests, error)) ([]CheckAnswer, error) {
	histories, wanted := map[*checkObject]*History{}, map[string]bool{}
	for _, o := range c.objects {
		h := NewHistory(&o.Object)
		var before *query.Version
		for _, v := range o.versions {
			h.Add(v, before)
			before = v
		}
		histories[o] = h
		for claim := range h.claims {
			wanted[claim] = true
		}
	}
	requests, err := open(wanted)
	if err != nil {
		return nil, err
	}
	answers := map[*checkObject][]Answer{}
	for o, h := range histories {
		if answers[o], err = h.Answers(requests); err != nil {
			return nil, err
		}
	}
	var list []CheckAnswer
	for _, row := range c.rows {
		a := CheckAnswer{Write: row.name, Unknown: row.skipped}
		for _, change := range row.changes {
			a.add(&answers[change.of][change.version], row.user)
		}
		list = append(list, a)
	}
	return list, nil
}

// add adds the answer of one change.
func (a *CheckAnswer) add(known *Answer, user string) {
	switch {
	case known.Request == nil:
		a.Grade, a.Unknown = "", known.Reason
		a.IsEarly = a.IsEarly || known.Reason == lacksYet
	case known.User != user:
		a.Wrong = known.User
	case a.Unknown == "" && a.Grade != CompleteLog:
		a.Grade = known.Grade
	}
}
