package reflector

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// patience is how long an answer may take.
type patience struct {
	silence time.Duration // without anything that counts (stream.alive); 0 for any time
	total   time.Duration // from request to end; 0 for any time
}

// stream is the answer to one request, while it is being read. It ends by itself when the patience
// does. Not safe for concurrent use.
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
}

// get requests the collection. A nil error means that the answer is 200 and JSON; the caller closes
// the stream.
func (r *Reflector) get(ctx context.Context, query url.Values, p patience) (*stream, error) {
	if r.state.relist.Partial() {
		return r.getFrom(ctx,
			r.cfg.Client.Base.JoinPath(r.cfg.Type.CollectionPath(r.state.relist.Namespace)), query,
			p)
	}
	return r.getFrom(ctx, r.url, query, p)
}

// getFrom is get with its own URL. It may be called from any goroutine.
func (r *Reflector) getFrom(
	ctx context.Context, from *url.URL, query url.Values, p patience,
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
	if err := r.do(ctx, s, &u); err != nil {
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

func (r *Reflector) do(ctx context.Context, s *stream, u *url.URL) error {
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

// statusError is an answer other than 200 as the error that the API server meant.
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

// query returns what every request for the collection has.
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
