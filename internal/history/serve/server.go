package serve

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/history/ask"
	"github.com/kubebridge/bridge/internal/history/query"
)

// Config of a Server.
type Config struct {
	// Open lends the history, and is called for each request. Release gives it back.
	Open func() (h *query.Questions, release func(), err error)
	// Cluster is the one that is served.
	Cluster string
	// At is the point of lists. It is not used with Live.
	At query.Point
	// Live serves the newest state, and watches follow the history.
	Live bool
	// Poll is how often a live watch looks; default 1 s.
	Poll time.Duration
	// Speed of a replay: 1 is the recorded pace, 10 ten times that; 0 does not wait.
	Speed float64
	// Patience is how long a client may take to read a part of an answer; default 30 s.
	Patience time.Duration
	// MaxRequests bounds the requests of one token that run at once; default 400. A client has a
	// watch for each kind.
	MaxRequests int
	// Who adds to each object the annotation ActorAnnotation, where the history knows who made the
	// version, and to each table a column. It costs a look at the versions around each object.
	Who bool
	// Access is what each token may read. A client must send one of them.
	Access []Access
	// Log; default: discarded.
	Log *slog.Logger
}

// SharedHistory lends a history that others may write meanwhile.
type SharedHistory struct {
	dir    string
	follow bool

	mu      sync.Mutex // guards what follows
	current *openHistory
	seen    string // what the directory looked like
}

// openHistory is a history, and how many use it.
type openHistory struct {
	db    *history.DB
	users int // guarded by Source.mu
	old   bool
}

// NewSharedHistory opens the history in dir. With follow it is opened again when something was
// written.
func NewSharedHistory(dir string, follow bool) (*SharedHistory, error) {
	s := &SharedHistory{dir: dir, follow: follow}
	_, release, err := s.Open()
	if err != nil {
		return nil, err
	}
	release()
	return s, nil
}

// Open lends the history. Call release when it is not used any more.
func (s *SharedHistory) Open() (h *query.Questions, release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil || s.follow {
		if err := s.refresh(); err != nil {
			return nil, nil, err
		}
	}
	l := s.current
	l.users++
	return l.db.Questions, func() { s.giveBack(l) }, nil
}

// refresh opens the history again where it has changed. Called with mu held.
func (s *SharedHistory) refresh() error {
	seen, err := lookOf(s.dir)
	if s.current != nil && (err != nil || seen == s.seen) {
		return nil //nolint:nilerr // what is open still answers
	}
	db, err := history.ReadBeside(history.Options{Dir: s.dir})
	if err != nil && s.current != nil {
		return nil //nolint:nilerr // the writer has just changed it: the next request tries again
	}
	if err != nil {
		return err
	}
	if s.current != nil {
		s.current.old = true
		s.closeUnused(s.current)
	}
	s.current, s.seen = &openHistory{db: db}, seen
	return nil
}

func (s *SharedHistory) giveBack(l *openHistory) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.users--
	s.closeUnused(l)
}

// closeUnused closes a history that nobody will ask any more. Called with mu held.
func (s *SharedHistory) closeUnused(l *openHistory) {
	if l.old && l.users == 0 {
		_ = l.db.Close() // it was only read
	}
}

// Close closes the history, once those that use it have given it back.
func (s *SharedHistory) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		return nil
	}
	s.current.old = true
	if s.current.users > 0 {
		return errors.New("the history is still in use")
	}
	return s.current.db.Close()
}

// Server answers requests. It is an http.Handler.
type Server struct {
	cfg Config

	mu sync.Mutex
	// began is when the first replay began; zero before. Guarded by mu.
	began time.Time
	// types are those of typesOf; guarded by mu.
	types   []*resourceType
	typesOf *query.Questions
	// version is the resourceVersion of lists of versionOf; guarded by mu.
	version   uint64
	versionOf *query.Questions
	// points are servers of other points, by the path that names them; nil of one of these, which
	// has no busy either. Guarded by mu.
	points map[string]*Server

	// busy are how many requests of a token run, by its place in Access.
	busy []atomic.Int32
}

// maxPoints bounds the points that are served at once. With one more they all begin again.
const maxPoints = 64

// New checks the configuration.
func New(cfg Config) (*Server, error) {
	switch {
	case cfg.Open == nil, len(cfg.Access) == 0:
		return nil, errors.New("serve: it needs a history and a token")
	case slices.ContainsFunc(cfg.Access, func(a Access) bool { return a.Token == "" }):
		return nil, errors.New("serve: a token must not be empty")
	case !cfg.Live && cfg.At.IsZero():
		return nil, errors.New("serve: it needs a point")
	case cfg.Speed < 0:
		return nil, errors.New("serve: the speed must not be negative")
	}
	cfg.Poll, cfg.Patience = cmp.Or(cfg.Poll, time.Second), cmp.Or(cfg.Patience, 30*time.Second)
	cfg.MaxRequests = cmp.Or(cfg.MaxRequests, 400)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	return &Server{
		cfg: cfg, points: map[string]*Server{}, busy: make([]atomic.Int32, len(cfg.Access)),
	}, nil
}

// request is one, with the history that answers it.
type request struct {
	server  *Server
	cfg     *Config // of server
	history *query.Questions
	actors  *ask.Actors // of the history; nil without Config.Who
	w       *answerWriter
	r       *http.Request
	token   int // the place of access in the configuration
	access  *Access
	// validation is how unknown fields of a body are treated: fieldValidation.
	validation string
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-cache, private")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	answer := newAnswerWriter(w, r, s.cfg.Patience)
	s.admit(answer, r)
	answer.close()
}

// admit answers a request that has a token, if not too many of this token run.
func (s *Server) admit(w *answerWriter, r *http.Request) {
	q := &request{server: s, cfg: &s.cfg, w: w, r: r}
	if q.token = s.tokenOf(r); q.token >= 0 {
		q.access = &s.cfg.Access[q.token]
	} else {
		q.refuse(http.StatusUnauthorized, metav1.StatusReasonUnauthorized,
			"send the token of the kubeconfig that 'bridge serve' printed, or one of its --tokens")
		return
	}
	running := &s.busy[q.token]
	defer running.Add(-1)
	if int(running.Add(1)) > s.cfg.MaxRequests {
		w.Header().Set("Retry-After", "1")
		q.refuse(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests,
			fmt.Sprintf("%d requests of this token run already, the most that may", s.cfg.MaxRequests))
		return
	}
	if path, isPoint := strings.CutPrefix(r.URL.Path, pointPath); isPoint && !q.atPoint(path) {
		return
	}
	q.serve()
}

// serve answers a request by the history.
func (q *request) serve() {
	review := isReview(q.r)
	if q.r.Method != http.MethodGet && q.r.Method != http.MethodHead && review == nil {
		q.w.Header().Set("Allow", "GET, HEAD")
		q.refuse(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed,
			"this is "+q.server.what()+": it can be read, and nothing can be changed")
		return
	}
	h, release, err := q.cfg.Open()
	if err != nil {
		q.fail(err)
		return
	}
	defer release()
	q.history = h
	q.nameUsers(h)
	if review != nil {
		q.review(review)
		return
	}
	q.route()
}

// pointPath begins the paths of other points, as "/at/2026-11-27T14:03:00Z/api/v1/pods" and
// "/at/4711/api".
const pointPath = "/at/"

// atPoint makes a request one of another point, which the path names behind pointPath. It reports
// whether that is to be answered: else it has refused it.
func (q *request) atPoint(path string) bool {
	s := q.server
	text, rest, _ := strings.Cut(path, "/")
	s.mu.Lock()
	at := s.points[text]
	s.mu.Unlock()
	if at == nil {
		point, err := query.ParsePoint(text, time.Now())
		if _, timeErr := time.Parse(time.RFC3339, text); timeErr != nil && point.Version == 0 {
			err = fmt.Errorf("%s%s: want a time as 2006-01-02T15:04:05Z, or a resourceVersion",
				pointPath, text)
		}
		if err != nil {
			q.badRequest(err.Error())
			return false
		}
		problem, err := s.checkPoint(point)
		switch {
		case err != nil:
			q.fail(err)
			return false
		case problem != "":
			q.badRequest(problem)
			return false
		}
		at = s.addPoint(text, point)
	}
	q.r = q.r.Clone(q.r.Context())
	q.r.URL.Path, q.r.URL.RawPath = "/"+rest, ""
	q.server, q.cfg = at, &at.cfg
	return true
}

// addPoint adds the server of another point, which a path names.
func (s *Server) addPoint(text string, point query.Point) *Server {
	cfg := s.cfg
	cfg.At, cfg.Live = point, false
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.points[text]
	if at == nil {
		if len(s.points) >= maxPoints {
			clear(s.points)
		}
		at = &Server{cfg: cfg}
		s.points[text] = at
	}
	return at
}

// checkPoint returns why the history can't answer for a point, "" where it can.
func (s *Server) checkPoint(p query.Point) (problem string, err error) {
	h, release, err := s.cfg.Open()
	if err != nil {
		return "", err
	}
	defer release()
	reached, err := h.Coverage.Reached(s.cfg.Cluster, p.Version)
	if err != nil {
		return "", err
	}
	if p.Version > reached {
		return fmt.Sprintf("resourceVersion %d is not known: the history reaches to %d", p.Version,
			reached), nil
	}
	units, err := h.Resources.Select(s.cfg.Cluster, nil, p)
	if err != nil {
		return "", err
	}
	err = h.Coverage.CheckState(query.StateQuery{Units: units, Namespace: "*", At: p})
	if errors.Is(err, query.ErrNotKnown) {
		return err.Error(), nil
	}
	return "", err
}

// what is served, for a person.
func (s *Server) what() string {
	if s.cfg.Live {
		return "a history of cluster " + s.cfg.Cluster
	}
	return "cluster " + s.cfg.Cluster + " as it was at " + s.cfg.At.String()
}

func (q *request) route() {
	parts := strings.Split(strings.Trim(q.r.URL.Path, "/"), "/")
	switch {
	case slices.Contains([]string{"healthz", "readyz", "livez"}, parts[0]):
		q.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprint(q.w, "ok")
	case parts[0] == "version":
		q.version()
	case parts[0] == "openapi":
		q.openAPI(parts)
	case parts[0] == "api" && len(parts) >= 2 && parts[1] == "v1":
		q.group("", "v1", parts[2:])
	case parts[0] == "apis" && len(parts) >= 3:
		q.group(parts[1], parts[2], parts[3:])
	case parts[0] == "api" && len(parts) == 1, parts[0] == "apis" && len(parts) <= 2:
		q.discovery(parts)
	default:
		q.notFound("there is no " + q.r.URL.Path + " in " + q.server.what())
	}
}

// group answers what is below an API version.
func (q *request) group(group, version string, parts []string) {
	if len(parts) == 0 {
		q.resourceList(group, version)
		return
	}
	namespace := ""
	// namespaces/shop/pods is of a namespace; namespaces/shop is one; namespaces/shop/status is a
	// part of one.
	if parts[0] == "namespaces" && len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
		namespace, parts = parts[1], parts[2:]
	}
	types, err := q.catalog()
	if err != nil {
		q.fail(err)
		return
	}
	_, accepted := formOf(q.r)
	i := slices.IndexFunc(types, func(t *resourceType) bool {
		return t.Group == group && t.Version == version && t.Resource == parts[0]
	})
	switch other := otherVersion(types, group, parts[0]); {
	case i < 0 && other != "":
		q.refuse(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, fmt.Sprintf(
			"%s has %s in version %s only, and converts none: ask for that", q.server.what(), parts[0],
			other))
	case i < 0:
		q.notFound(fmt.Sprintf("%s has no %s of %s", q.server.what(), parts[0],
			strings.TrimPrefix(group+"/"+version, "/")))
	case !q.access.allows(types[i], namespace):
		q.forbid(types[i], namespace)
	case !types[i].Namespaced && namespace != "", types[i].Namespaced && namespace == "" && len(parts) > 1:
		q.notFound("there is no " + q.r.URL.Path + " in " + q.server.what())
	case len(parts) > 2 && parts[2] != "status" || len(parts) > 3:
		q.notFound(fmt.Sprintf("a history has objects, and no %s of them",
			strings.Join(parts[2:], "/")))
	case !accepted:
		q.notAcceptable()
	case len(parts) >= 2:
		q.get(types[i], namespace, parts[1])
	default:
		q.collection(types[i], namespace)
	}
}

// otherVersion is the one in which a resource was recorded, "" for none.
func otherVersion(types []*resourceType, group, resource string) string {
	for _, t := range types {
		if t.Group == group && t.Resource == resource {
			return t.Version
		}
	}
	return ""
}

func (q *request) notFound(message string) {
	q.refuse(http.StatusNotFound, metav1.StatusReasonNotFound, message)
}

func (q *request) badRequest(message string) {
	q.refuse(http.StatusBadRequest, metav1.StatusReasonBadRequest, message)
}

// refuse answers as an API server does.
func (q *request) refuse(code int, reason metav1.StatusReason, message string) {
	q.json(code, statusOf(code, reason, message))
}

func statusOf(code int, reason metav1.StatusReason, message string) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Message: message, Reason: reason, Code: int32(code),
	}
}

func (q *request) json(code int, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		q.cfg.Log.Error("an answer can't be encoded", "path", q.r.URL.Path, "err", err)
		code, body = http.StatusInternalServerError,
			[]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure"}`)
	}
	q.w.Header().Set("Content-Type", "application/json")
	q.w.WriteHeader(code)
	_, _ = q.w.Write(append(body, '\n')) // the client has gone
}

// NewCertificate makes a certificate for this machine, which only this process has the key of.
// authority is what a kubeconfig has as certificate-authority-data: kubectl sends its token to TLS
// servers only.
func NewCertificate() (cert tls.Certificate, authority []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return cert, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return cert, nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "bridge serve"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(1, 0, 0),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA:        true, BasicConstraintsValid: true,
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return cert, nil, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}
