package testkit

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubebridge/bridge/internal/resource"
)

// Server is an API server for one resource type.
type Server struct {
	// Faults are those that the next requests meet. Streams are the watches that are open.
	Faults  *Faults
	Streams Streams

	typ    resource.Type
	custom bool
	pipe   *pipeListener
	done   chan struct{} // closed at the end of the test: wakes handlers that hang

	mu        sync.Mutex // guards all below; never held while something is written to a connection
	revision  int64
	compacted int64                      // watches from before it get 410
	objects   map[resource.Key]*revision // what is there
	history   []change                   // oldest first
	tokens    map[string]*snapshot       // paged lists that are under way
	watchers  map[*watcher]bool
	requests  []Request
	features  Features
}

// Features are how a Server differs from a kube-apiserver of today.
type Features struct {
	NoWatchList    bool // refuses sendInitialEvents with 422, as before 1.27
	NoInitialEnd   bool // swallows the bookmark that ends the initial events, as some proxies do
	Pretty         bool // indents its answers, as some aggregated servers do
	Gzip           bool // compresses what it sends, each frame as a gzip member of its own
	IgnoresTimeout bool // does not end watches after timeoutSeconds
	// ends watches from an expired version at once instead of saying 410, as for Events
	EmptyWhenExpired bool
	// InitialAsOf is the version of the state that WatchLists begin with; what came since follows
	// before their end, as from a watch cache that is behind. "" for the newest.
	InitialAsOf resource.Version
	// InitialEndDelay is how long the bookmark that ends the initial events takes to come: what
	// changes meanwhile comes before it.
	InitialEndDelay time.Duration
	Unordered       bool // counts resourceVersions with a prefix, so that they have no order
}

// revision is one version of one object.
type revision struct {
	version int64
	content map[string]any // never changed once stored
}

// change is one event of the history.
type change struct {
	version int64
	key     resource.Key
	before  *revision // nil for a creation
	after   *revision // nil for a deletion
}

// NewServer starts a Server that is reached over pipes and ends with the test. Resources of groups
// that Kubernetes does not have itself are served in the style of custom resources.
func NewServer(t testing.TB, typ resource.Type) *Server {
	t.Helper()
	s := &Server{
		typ:      typ,
		custom:   !isBuiltIn(typ.Group),
		pipe:     newPipeListener(),
		done:     make(chan struct{}),
		revision: 97, // so that tests soon see versions grow by a digit
		objects:  map[resource.Key]*revision{},
		tokens:   map[string]*snapshot{},
		watchers: map[*watcher]bool{},
	}
	s.Faults, s.Streams = &Faults{done: s.done}, Streams{s}
	server := &http.Server{Handler: s}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(s.pipe) }) // ends with ErrServerClosed
	t.Cleanup(func() {
		s.pipe.closeIdle()
		close(s.done)
		_ = server.Close()
		serving.Wait()
	})
	return s
}

// SetFeatures changes what the Server can do, from the next request on.
func (s *Server) SetFeatures(f Features) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.features = f
}

// Version is the server's current resourceVersion.
func (s *Server) Version() resource.Version {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.versionOf(s.revision)
}

// Create adds an object with the given key, as mutate (which may be nil) fills it, and returns its
// version. An object that is there already is replaced in place, as Update does.
func (s *Server) Create(key resource.Key, mutate func(obj map[string]any)) resource.Version {
	return s.put(key, mutate)
}

// Update changes an object in place and returns its new version.
func (s *Server) Update(key resource.Key, mutate func(obj map[string]any)) resource.Version {
	return s.put(key, mutate)
}

func (s *Server) put(key resource.Key, mutate func(obj map[string]any)) resource.Version {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision++
	before := s.objects[key]
	content := s.newContent(key)
	if before != nil {
		content = deepCopy(before.content)
	}
	if mutate != nil {
		mutate(content)
	}
	after := &revision{version: s.revision, content: content}
	s.objects[key] = after
	s.record(change{version: s.revision, key: key, before: before, after: after})
	return s.versionOf(s.revision)
}

// Delete removes objects, all at one version as an expired lease does, and returns the version of
// the deletion.
func (s *Server) Delete(keys ...resource.Key) resource.Version {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision++
	for _, key := range keys {
		if before := s.objects[key]; before != nil {
			delete(s.objects, key)
			s.record(change{version: s.revision, key: key, before: before})
		}
	}
	return s.versionOf(s.revision)
}

// Skip lets the version grow by n, as writes to other resources do.
func (s *Server) Skip(n int64) resource.Version {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision += n
	return s.versionOf(s.revision)
}

// record appends to the history and wakes the watchers.
func (s *Server) record(c change) {
	s.history = append(s.history, c)
	for w := range s.watchers {
		w.offer(s, c)
	}
}

// Expire forgets the history up to now: watches from an earlier version and continue tokens are
// answered with 410. Open watches continue.
func (s *Server) Expire() { s.Compact(s.Version()) }

// Compact is Expire for the history up to a version.
func (s *Server) Compact(upTo resource.Version) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compacted = max(s.compacted, s.parseVersion(upTo))
	n, _ := slices.BinarySearchFunc(s.history, s.compacted+1, func(c change, version int64) int { return cmp.Compare(c.version, version) })
	s.history = slices.Clone(s.history[n:])
	clear(s.tokens)
}

// Rewind puts the server back to how it was at an earlier version, as an etcd restored from a
// backup, and cuts all connections' watches. The version has to lie within the history.
func (s *Server) Rewind(to resource.Version) {
	s.mu.Lock()
	defer s.mu.Unlock()
	target := s.parseVersion(to)
	for len(s.history) > 0 && s.history[len(s.history)-1].version > target {
		c := s.history[len(s.history)-1]
		s.history = s.history[:len(s.history)-1]
		if c.before == nil {
			delete(s.objects, c.key)
		} else {
			s.objects[c.key] = c.before
		}
	}
	s.revision, s.compacted = target, min(s.compacted, target)
	clear(s.tokens)
	s.endWatchers(ending{cut: true})
}

func (s *Server) versionOf(n int64) resource.Version {
	text := strconv.FormatInt(n, 10)
	if s.features.Unordered {
		text = "v" + text
	}
	return resource.Version(text)
}

// parseVersion gives -1 for what is no version of this server.
func (s *Server) parseVersion(v resource.Version) int64 {
	text := string(v)
	if s.features.Unordered && len(text) > 0 && text[0] == 'v' {
		text = text[1:]
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var h http.Handler = http.HandlerFunc(s.serve)
	if f := s.Faults.take(s.note(r)); f != nil {
		h = f.wrap(h)
	}
	h.ServeHTTP(w, r)
}

// note remembers a request.
func (s *Server) note(r *http.Request) Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	req := Request{Path: r.URL.Path, Query: r.URL.Query(), Header: r.Header.Clone(), Time: time.Now()}
	s.requests = append(s.requests, req)
	return req
}

// Requests are those that were received and match, in order.
func (s *Server) Requests(match Match) []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []Request
	for _, r := range s.requests {
		if match(r) {
			found = append(found, r)
		}
	}
	return found
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	sel, status := s.selection(r)
	switch {
	case status != nil:
		writeStatus(w, status)
	case Watches(Request{Query: r.URL.Query()}):
		s.watch(w, r, sel)
	default:
		s.list(w, r, sel)
	}
}

// selection reads what a request asks for; a Status is why it is refused.
func (s *Server) selection(r *http.Request) (selection, *metav1.Status) {
	var sel selection
	namespace, ok := s.namespaceOf(r.URL.Path)
	if r.Method != http.MethodGet || !ok {
		return sel, NewStatus(http.StatusNotFound, metav1.StatusReasonNotFound)
	}
	q := r.URL.Query()
	var err, err2 error
	sel.namespace = namespace
	sel.labels, err = labels.Parse(q.Get("labelSelector"))
	sel.fields, err2 = fields.ParseSelector(q.Get("fieldSelector"))
	if err != nil || err2 != nil {
		return sel, NewStatus(http.StatusBadRequest, metav1.StatusReasonBadRequest)
	}
	return sel, nil
}

func (s *Server) namespaceOf(path string) (string, bool) {
	path = strings.TrimPrefix(path, "/")
	if path == s.typ.CollectionPath("") {
		return "", true
	}
	before, after, _ := strings.Cut(s.typ.CollectionPath("*"), "*")
	namespace, ok := strings.CutPrefix(path, before)
	namespace, ok2 := strings.CutSuffix(namespace, after)
	return namespace, ok && ok2 && s.typ.Namespaced && namespace != ""
}

// invalid is how a kube-apiserver refuses options.
func invalid(format string, args ...any) *metav1.Status {
	status := NewStatus(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	status.Message = "ListOptions.meta.k8s.io is invalid: " + fmt.Sprintf(format, args...)
	return status
}

// tooLarge is how a kube-apiserver says that it does not have a version yet.
func tooLarge(asked, current int64) *metav1.Status {
	status := NewStatus(http.StatusGatewayTimeout, metav1.StatusReasonTimeout)
	status.Message = fmt.Sprintf("Timeout: Too large resource version: %d, current: %d", asked,
		current)
	status.Details = &metav1.StatusDetails{
		Causes: []metav1.StatusCause{{
			Type:    metav1.CauseTypeResourceVersionTooLarge,
			Message: "Too large resource version",
		}},
		RetryAfterSeconds: 1,
	}
	return status
}
