package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// Archive returns the history of a bridge or of bridge archive, as bridge serve --live serves it.
// config is that of the kubeconfig which it prints. It gives informers, and no Events: a history
// has the versions of each object in their order, and not the order in which events came.
func Archive(config *rest.Config) Source {
	a := &archive{}
	if a.base, _, a.err = rest.DefaultServerUrlFor(config); a.err == nil {
		a.http, a.err = rest.HTTPClientFor(config)
	}
	return Source{backend: a, isState: true}
}

// archive reads lists and watches of each resource. A resource is a partition. Its offsets are
// resourceVersions.
type archive struct {
	base *url.URL
	http *http.Client
	err  error // of the configuration

	// epoch is how often a watch could not continue; lists begin again then.
	epoch atomic.Int64
	// arrived numbers the changes: a version of an object says nothing of its order where etcd was
	// restored.
	arrived atomic.Uint64
}

var errNoEvents = errors.New("it gives informers only: read the events from the stream that the " +
	"archive reads")

func (a *archive) String() string {
	if a.base == nil {
		return "archive"
	}
	return "archive " + a.base.Host
}

// resourceOf returns the resource of a partition, whose topic is <resource>.<version>.<group>.
func resourceOf(p partition) schema.GroupVersionResource {
	parts := strings.SplitN(p.topic, ".", 3)
	return schema.GroupVersionResource{Resource: parts[0], Version: parts[1], Group: parts[2]}
}

func pathOf(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "api/" + gv.Version
	}
	return "apis/" + gv.String()
}

// extents returns the resources that can be listed.
func (a *archive) extents(ctx context.Context) (map[partition]extent, error) {
	if a.err != nil {
		return nil, a.err
	}
	var groups metav1.APIGroupList
	if err := a.get(ctx, "apis", nil, &groups); err != nil {
		return nil, err
	}
	versions := []schema.GroupVersion{{Version: "v1"}}
	for _, group := range groups.Groups {
		for _, v := range group.Versions {
			versions = append(versions, schema.GroupVersion{Group: group.Name, Version: v.Version})
		}
	}
	found := map[partition]extent{}
	for _, gv := range versions {
		var list metav1.APIResourceList
		if err := a.get(ctx, pathOf(gv), nil, &list); err != nil {
			return nil, err
		}
		for i := range list.APIResources {
			r := &list.APIResources[i]
			if !strings.Contains(r.Name, "/") && slices.Contains(r.Verbs, "watch") {
				p := partition{topic: r.Name + "." + gv.Version + "." + gv.Group}
				id := strconv.FormatInt(a.epoch.Load(), 10)
				found[p] = extent{id: id, first: 1, next: math.MaxInt64}
			}
		}
	}
	return found, nil
}

// statusError is an answer with another code than 200.
type statusError struct {
	code int
	text string
}

func (e *statusError) Error() string { return e.text }

// ask sends a request. The caller closes the body.
func (a *archive) ask(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	at := a.base.JoinPath(path)
	at.RawQuery = query.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json")
	response, err := a.http.Do(r)
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusOK {
		return response.Body, nil
	}
	defer func() { _ = response.Body.Close() }()
	const most = 4 << 10
	text, _ := io.ReadAll(io.LimitReader(response.Body, most))
	var status metav1.Status
	_ = json.Unmarshal(text, &status) // another answer has no message
	return nil, &statusError{
		response.StatusCode,
		fmt.Sprintf("%s: %s: %s", path, response.Status, cmp.Or(status.Message, string(text))),
	}
}

func (a *archive) get(ctx context.Context, path string, query url.Values, into any) error {
	body, err := a.ask(ctx, path, query)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	if err := json.NewDecoder(body).Decode(into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func (a *archive) open(
	ctx context.Context, from readOffsets, now map[partition]extent,
) (reader, error) {
	ctx, stop := context.WithCancel(ctx)
	r := &archiveReader{archive: a, read: make(chan archived), stop: stop}
	for p := range now {
		at := from[p].next
		if at == 0 {
			r.lists++
		}
		r.running.Go(func() {
			if err := r.listAndWatch(ctx, p, at); err != nil {
				r.send(ctx, archived{err: fmt.Errorf("%s: %w", resourceOf(p).GroupResource(), err)})
			}
		})
	}
	return r, nil
}

// archived is what the reader of a partition gives.
type archived struct {
	message  *message
	endsList bool
	err      error
}

type archiveReader struct {
	archive *archive
	read    chan archived
	lists   int // that have not ended
	stop    context.CancelFunc
	running sync.WaitGroup
}

func (r *archiveReader) atEnd() bool { return r.lists == 0 }

func (r *archiveReader) close() {
	r.stop()
	r.running.Wait()
}

func (r *archiveReader) next(ctx context.Context) (*message, error) {
	late := time.NewTimer(quiet)
	defer late.Stop()
	select {
	case got := <-r.read:
		if got.endsList {
			r.lists--
		}
		return got.message, got.err
	case <-late.C:
		return nil, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (r *archiveReader) send(ctx context.Context, m archived) bool {
	select {
	case r.read <- m:
		return true
	case <-ctx.Done():
		return false
	}
}

// listAndWatch lists a resource, unless it was before, and watches it.
func (r *archiveReader) listAndWatch(ctx context.Context, p partition, version int64) (err error) {
	if version == 0 {
		if version, err = r.list(ctx, p); err != nil {
			var status *statusError
			if errors.As(err, &status) && status.code == http.StatusForbidden {
				r.send(ctx, archived{endsList: true}) // the token's reader has no such resource
				return nil
			}
			return err
		}
	}
	for ctx.Err() == nil {
		next := time.After(watchEvery)
		if version, err = r.watch(ctx, p, version); err != nil {
			return err
		}
		select {
		case <-next:
		case <-ctx.Done():
		}
	}
	return nil
}

// watchEvery is the least time between two watches of a resource: a proxy may end them at once.
const watchEvery = time.Second

// list sends all objects, and then that they were all.
func (r *archiveReader) list(ctx context.Context, p partition) (version int64, err error) {
	gvr := resourceOf(p)
	var list struct {
		metav1.TypeMeta
		Metadata metav1.ListMeta
		Items    []json.RawMessage
	}
	if err := r.archive.get(ctx, pathOf(gvr.GroupVersion())+"/"+gvr.Resource, nil, &list); err != nil {
		return 0, err
	}
	if version, err = strconv.ParseInt(list.Metadata.ResourceVersion, 10, 64); err != nil {
		return 0, err
	}
	item := metav1.TypeMeta{APIVersion: list.APIVersion, Kind: strings.TrimSuffix(list.Kind, "List")}
	for _, raw := range list.Items {
		if raw, err = withType(raw, item); err != nil {
			return 0, err
		}
		e, _, err := r.event(gvr, TypeAdded, raw)
		if err != nil {
			return 0, err
		}
		r.send(ctx, archived{message: &message{partition: p, offset: -1, event: e}})
	}
	end := r.about(gvr, TypeSynced)
	end.SetID("archive/" + p.topic + "/synced/" + list.Metadata.ResourceVersion)
	end.SetExtension("resourceversion", list.Metadata.ResourceVersion)
	r.send(ctx, archived{
		message: &message{partition: p, offset: version - 1, event: end}, endsList: true,
	})
	return version, nil
}

// withType returns an item of a list with its type, which lists of built-in kinds say once for all.
func withType(item json.RawMessage, of metav1.TypeMeta) (json.RawMessage, error) {
	var own metav1.TypeMeta
	if err := json.Unmarshal(item, &own); err != nil || own.Kind != "" {
		return item, err
	}
	head, err := json.Marshal(of)
	if err != nil {
		return nil, err
	}
	head[len(head)-1] = ',' // no item is empty: it has metadata
	return append(head, bytes.TrimLeft(item, " \t\r\n")[1:]...), nil
}

// watchTypes are the types of events, by those of watches.
var watchTypes = map[string]string{"ADDED": TypeAdded, "MODIFIED": TypeUpdated, "DELETED": TypeDeleted}

// watch sends what follows a version until the server ends it.
func (r *archiveReader) watch(
	ctx context.Context, p partition, version int64,
) (seen int64, err error) {
	gvr := resourceOf(p)
	body, err := r.archive.ask(ctx, pathOf(gvr.GroupVersion())+"/"+gvr.Resource, url.Values{
		"watch": {"true"}, "allowWatchBookmarks": {"true"},
		"resourceVersion": {strconv.FormatInt(version, 10)},
	})
	if err != nil {
		return version, err
	}
	defer func() { _ = body.Close() }()
	for lines := json.NewDecoder(body); ; {
		var line struct {
			Type   string
			Object json.RawMessage
		}
		if err := lines.Decode(&line); errors.Is(err, io.EOF) {
			return version, nil
		} else if err != nil {
			return version, err
		}
		if line.Type == "ERROR" {
			r.archive.epoch.Add(1)
			return version, fmt.Errorf("%w: %s", errLost, bytes.TrimSpace(line.Object))
		}
		e, of, err := r.event(gvr, watchTypes[line.Type], line.Object)
		if err != nil {
			return version, err
		}
		version = max(version, of)
		m := &message{partition: p, offset: version - 1}
		if e.Type() != "" { // a bookmark has none
			m.event = e
		}
		r.send(ctx, archived{message: m})
	}
}

// about returns an event without an object.
func (r *archiveReader) about(gvr schema.GroupVersionResource, kind string) *Event {
	e := &Event{Event: cloudevents.New()}
	e.SetType(kind)
	e.SetExtension("informer", "archive")
	e.SetExtension("apiversion", gvr.GroupVersion().String())
	e.SetExtension("resource", gvr.Resource)
	e.SetExtension("sequence", fmt.Sprintf("%020d", r.archive.arrived.Add(1)))
	return e
}

// event returns the event of an object, and the version of the object.
func (r *archiveReader) event(
	gvr schema.GroupVersionResource, kind string, raw []byte,
) (e *Event, version int64, err error) {
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal(raw, &object); err != nil {
		return nil, 0, err
	}
	if version, err = strconv.ParseInt(object.ResourceVersion, 10, 64); err != nil {
		return nil, 0, err
	}
	e = r.about(gvr, kind)
	e.DataEncoded = raw
	e.SetID(string(object.UID) + "/" + object.ResourceVersion)
	for name, value := range map[string]string{
		"kind": object.Kind, "namespace": object.Namespace, "name": object.Name,
		"uid": string(object.UID), "resourceversion": object.ResourceVersion,
	} {
		e.SetExtension(name, value)
	}
	return e, version, nil
}
