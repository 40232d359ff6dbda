package reflector

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/kubebridge/bridge/internal/resource"
)

// Client is how an API server is reached. It may be shared by any number of reflectors.
type Client struct {
	// HTTP has credentials and TLS. It has no Timeout: that would cut every watch.
	HTTP *http.Client
	// Base is the server's URL, with a path where the server is behind one.
	Base *url.URL
	// Clock is given the versions of probes and lists, and asks for others; nil for none.
	Clock *Clock
}

// NewClient makes a Client with client-go's transport: its credentials, exec plugins, proxies,
// User-Agent and HTTP/2 health checks. Requests are not throttled by QPS and Burst: a watch is one
// request, and lists are paced by the reader.
func NewClient(cfg *rest.Config) (*Client, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.Timeout = 0
	cfg.UserAgent = cmp.Or(cfg.UserAgent, rest.DefaultKubernetesUserAgent())
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("API server address %q: %w", cfg.Host, err)
	}
	if cfg.Dial == nil {
		// client-go shares a transport among all callers with the same settings, but not one with a
		// dialer of its own: tuning would race with their requests.
		// as client-go's
		cfg.Dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	// Not rest.HTTPClientFor, which may return http.DefaultClient: somebody else may set a Timeout
	// on that.
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("client for API server %s: %w", base.Host, err)
	}
	tune(transport)
	return &Client{HTTP: &http.Client{Transport: transport}, Base: base}, nil
}

// tune lets the API server send much at once: reading costs a third less CPU for each frame. The
// unread backlog of each watch is bounded by the receive buffer, which is a quarter of Go's
// default.
func tune(transport http.RoundTripper) {
	for {
		switch t := transport.(type) {
		case *http.Transport:
			t.HTTP2 = &http.HTTP2Config{
				MaxReadFrameSize:          256 << 10,
				MaxReceiveBufferPerStream: 1 << 20,
			}
			return
		case utilnet.RoundTripperWrapper:
			transport = t.WrappedRoundTripper()
		default:
			return // a transport of the user
		}
	}
}

// answerTimeouts is how long an answer may take.
type answerTimeouts struct {
	silence time.Duration // without anything that counts (stream.alive); 0 for any time
	total   time.Duration // from request to end; 0 for any time
}

// stream is the answer to one request, while it is being read. It ends by itself when its timeouts
// pass. Not safe for concurrent use.
type stream struct {
	cancel  context.CancelCauseFunc
	cause   func() error // why the request has ended; nil while it has not
	flush   func()       // called before the body is waited for; nil for nothing
	body    io.ReadCloser
	started time.Time

	silence time.Duration
	left    time.Duration // of silence; time without a reader does not count
	timers  []*time.Timer // silence, then total
	read    int64         // bytes read
	broken  error         // why the body ended, if that was not its end
	limit   int64         // where reading stops with ErrFrameTooLarge

	listed resource.Version // behind which changes come: that of its list, or of the request
}

// get requests the collection. A nil error means that the answer is 200 and JSON; the caller closes
// the stream.
func (r *Reflector) get(ctx context.Context, query url.Values, p answerTimeouts) (*stream, error) {
	if r.state.relist.Partial() {
		return r.getFrom(ctx,
			r.cfg.Client.Base.JoinPath(r.cfg.Type.CollectionPath(r.state.relist.Namespace)), query,
			p)
	}
	return r.getFrom(ctx, r.url, query, p)
}

// getFrom is get with its own URL. It may be called from any goroutine.
func (r *Reflector) getFrom(
	ctx context.Context, from *url.URL, query url.Values, p answerTimeouts,
) (*stream, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	s := &stream{
		cancel: cancel, cause: func() error { return context.Cause(ctx) },
		started: time.Now(), silence: p.silence, left: p.silence,
	}
	s.timers = []*time.Timer{after(p.silence, cancel, errSilent), after(p.total, cancel,
		errDeadline)}
	u := *from
	u.RawQuery = query.Encode()
	if err := r.send(ctx, s, &u); err != nil {
		s.close()
		return nil, err
	}
	s.timers[0].Stop() // from here on it runs only while the stream is read
	return s, nil
}

func after(d time.Duration, cancel context.CancelCauseFunc, cause error) *time.Timer {
	t := time.AfterFunc(cmp.Or(d, time.Hour), func() { cancel(cause) })
	if d == 0 {
		t.Stop()
	}
	return t
}

func (r *Reflector) send(ctx context.Context, s *stream, u *url.URL) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", contentType)
	resp, err := r.cfg.Client.HTTP.Do(req) //nolint:bodyclose // the stream closes it
	if err != nil {
		return cmp.Or(s.cause(), err)
	}
	s.body = resp.Body
	if resp.StatusCode != http.StatusOK {
		return r.statusError(s, resp)
	}
	return checkContentType(resp)
}

const contentType = "application/json"

// checkContentType keeps a login page or a protobuf from being read as objects.
func checkContentType(resp *http.Response) error {
	got := resp.Header.Get("Content-Type")
	if media, _, err := mime.ParseMediaType(got); err == nil && media == contentType {
		return nil
	}
	return fmt.Errorf("%w: %s answered with Content-Type %q: is there a proxy or a login page "+
		"before the API server?",
		errContentType, resp.Request.URL.Host, got)
}

// statusError returns the API server's error for an answer other than 200.
func (r *Reflector) statusError(s *stream, resp *http.Response) error {
	const enough = 64 << 10
	s.limit = enough
	body, _ := io.ReadAll(io.LimitReader(s, enough)) // half a message is better than none
	wait := retryAfterHeader(resp.Header)
	var status metav1.Status
	if json.Unmarshal(body, &status) == nil && status.Kind == "Status" {
		status.Code = int32(resp.StatusCode)
		if wait > 0 {
			if status.Details == nil {
				status.Details = new(metav1.StatusDetails)
			}
			status.Details.RetryAfterSeconds = int32(wait)
		}
		return &apierrors.StatusError{ErrStatus: status}
	}
	message := string(body[:min(len(body), 256)])
	return apierrors.NewGenericServerResponse(resp.StatusCode,
		"get", r.cfg.Type.GVR().GroupResource(), "", message, wait, true)
}

// retryAfterHeader returns the header in seconds; the API server never sends it as a date.
func retryAfterHeader(h http.Header) int {
	const day = 24 * 60 * 60
	seconds, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil {
		return 0
	}
	return min(max(seconds, 0), day)
}

// Read reads the body; the time that it takes counts as silence.
func (s *stream) Read(p []byte) (int, error) {
	room := s.limit - s.read
	if room <= 0 {
		return 0, ErrFrameTooLarge
	}
	if s.flush != nil {
		s.flush()
	}
	if s.silence > 0 {
		start := time.Now()
		s.timers[0].Reset(max(s.left, 0))
		defer func() {
			s.timers[0].Stop()
			s.left -= time.Since(start)
		}()
	}
	n, err := s.body.Read(p[:min(int64(len(p)), room)])
	s.read += int64(n)
	if err != nil && err != io.EOF {
		s.broken = err
	}
	return n, err
}

// allow lets the reader continue to the given offset of the body.
func (s *stream) allow(offset int64) { s.limit = offset }

// alive is called when the server sent something that counts: the silence starts again.
func (s *stream) alive() { s.left = s.silence }

// expect sets how long a silence may be from now on.
func (s *stream) expect(silence time.Duration) { s.silence, s.left = silence, silence }

// close ends the request.
func (s *stream) close() {
	for _, t := range s.timers {
		t.Stop()
	}
	s.cancel(nil)
	if s.body != nil {
		_ = s.body.Close() // nothing was written; nothing can be lost
	}
}

// query returns the parameters that every request for the collection has.
func (r *Reflector) query() url.Values {
	q := url.Values{}
	if r.cfg.LabelSelector != "" {
		q.Set("labelSelector", r.cfg.LabelSelector)
	}
	if r.cfg.FieldSelector != "" {
		q.Set("fieldSelector", r.cfg.FieldSelector)
	}
	return q
}

// seconds formats a duration as the API server expects it.
func seconds(d time.Duration) string { return strconv.FormatInt(int64(d/time.Second), 10) }

// Errors that a step of Run ends with, beside those of the API server (apierrors.StatusError) and
// of the network.
var (
	errClosed       = errors.New("the API server closed the watch at once, without an event")
	errCut          = errors.New("the connection was cut in the middle of an object")
	errDropped      = errors.New("the connection was closed before the answer had ended")
	errSilent       = errors.New("the API server sent nothing for too long")
	errDeadline     = errors.New("the API server did not end the watch at the time it was asked to")
	errContentType  = errors.New("the answer is not JSON")
	errNoInitialEnd = errors.New("the WatchList ended without the bookmark that ends the initial " +
		"events")
	errRewindsAgain = errors.New("the version of the API server's lists is lower than that of its " +
		"objects, again and again: everything is listed each time")
	errSwallowed    = errors.New("the bookmark that ends the initial events of a WatchList is missing")
	errBroke        = errors.New("the watch broke") // any brokenError
	errInconsistent = errors.New("the pages of a list are of different versions")
)

// ErrFrameTooLarge is returned when one frame or list item is larger than Config.MaxFrame.
var ErrFrameTooLarge = errors.New("frame is too large")

// ErrOtherCluster is returned by Config.Identify when the API server belongs to another cluster
// than before.
var ErrOtherCluster = errors.New("the API server is another cluster's than before")

// brokenError is an error of a watch that the server had accepted.
type brokenError struct {
	err      error
	progress bool // it had received something before
}

func (e *brokenError) Error() string        { return e.err.Error() }
func (e *brokenError) Unwrap() error        { return e.err }
func (e *brokenError) Is(target error) bool { return target == errBroke }

// unreadableError is a frame or a list that can't be understood.
type unreadableError struct {
	err         error
	quarantined bool
	// an item of a list, or of the initial events of a WatchList, that continues behind it
	listed  bool
	version resource.Version // of the object, where no list follows
}

func (e *unreadableError) Error() string { return "unreadable: " + e.err.Error() }
func (e *unreadableError) Unwrap() error { return e.err }

// Reasons of failures, as metric labels.
const (
	reasonConnection   = "connection"
	reasonSilent       = "silent"
	reasonClosed       = "closed"
	reasonExpired      = "expired"
	reasonTooLarge     = "too-large-version"
	reasonBusy         = "too-many-requests"
	reasonUnauthorized = "unauthorized"
	reasonForbidden    = "forbidden"
	reasonNotFound     = "not-found"
	reasonStoreRead    = "storage-read"
	reasonServer       = "server"
	reasonContentType  = "content-type"
	reasonInconsistent = "inconsistent"
	reasonUnreadable   = "unreadable"
)

var reasons = []string{
	reasonConnection, reasonSilent, reasonClosed, reasonExpired, reasonTooLarge, reasonBusy,
	reasonUnauthorized,
	reasonForbidden, reasonNotFound, reasonStoreRead, reasonServer, reasonContentType,
	reasonInconsistent, reasonUnreadable,
}

// reasonOf returns the reason of an error. Every other error is the connection's.
func reasonOf(err error) string {
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok {
		return reasonOfStatus(status)
	}
	if _, ok := errors.AsType[*unreadableError](err); ok {
		return reasonUnreadable
	}
	switch {
	case errors.Is(err, errClosed):
		return reasonClosed
	case errors.Is(err, errSilent), errors.Is(err, errDeadline):
		return reasonSilent
	case errors.Is(err, errContentType):
		return reasonContentType
	case errors.Is(err, errInconsistent), errors.Is(err, errNoInitialEnd),
		errors.Is(err, errSwallowed):
		return reasonInconsistent
	}
	return reasonConnection
}

func reasonOfStatus(err *apierrors.StatusError) string {
	switch {
	case isExpired(err):
		return reasonExpired
	case isTooLarge(err):
		return reasonTooLarge
	case err.ErrStatus.Reason == metav1.StatusReasonStoreReadError:
		return reasonStoreRead
	}
	switch err.ErrStatus.Code {
	case http.StatusTooManyRequests:
		return reasonBusy
	case http.StatusUnauthorized:
		return reasonUnauthorized
	case http.StatusForbidden:
		return reasonForbidden
	case http.StatusNotFound:
		return reasonNotFound
	}
	return reasonServer
}

// isExpired recognises 410 with any reason, in both forms: as the answer, and as an ERROR event
// within a watch.
func isExpired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// isTooLarge recognises a version from the future of this server: it lags, or its history went
// back. Servers before 1.18.6 report it in a message only, those before 1.17.0 in the status's own
// message.
func isTooLarge(err error) bool {
	if apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
		return true
	}
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || !apierrors.IsTimeout(err) {
		return false
	}
	const said = "Too large resource version"
	byCause := func(c metav1.StatusCause) bool { return c.Message == said }
	details := status.ErrStatus.Details
	return strings.Contains(err.Error(), said) || details != nil &&
		slices.ContainsFunc(details.Causes, byCause)
}

// explain adds the remedy to an error.
func explain(err error) error {
	if reasonOf(err) != reasonForbidden {
		return err
	}
	return fmt.Errorf("%w; an informer needs list and watch: 'bridge rbac' prints the roles for "+
		"the configuration", err)
}

// errVersionless is of a list without a version. Servers without storage, such as that of metrics,
// send such lists: there is no version to watch from, and none that orders changes.
var errVersionless = errors.New("list without metadata.resourceVersion: a resource without versions " +
	"can't be followed")

// retryAfter returns how long the API server asked clients to wait; zero when it did not.
func retryAfter(err error) time.Duration {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || status.ErrStatus.Details == nil {
		return 0
	}
	const longest = 5 * time.Minute // a broken proxy may ask for years
	return min(time.Duration(status.ErrStatus.Details.RetryAfterSeconds)*time.Second, longest)
}
