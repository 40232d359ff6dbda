package testkit

import (
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// Request is one request that the Server got.
type Request struct {
	Path   string
	Query  url.Values
	Header http.Header
	Time   time.Time
}

// Match reports whether a request is meant.
type Match func(Request) bool

// Any matches every request.
func Any(Request) bool { return true }

// Watches matches watches, WatchLists among them.
func Watches(r Request) bool {
	return r.Query.Get("watch") == "true" || r.Query.Get("watch") == "1"
}

// WatchLists matches watches that ask for the initial state.
func WatchLists(r Request) bool { return Watches(r) && r.Query.Get("sendInitialEvents") == "true" }

// Lists matches lists that want items: neither watches nor probes.
func Lists(r Request) bool { return !Watches(r) && !Probes(r) }

// Continues matches pages after the first of a list.
func Continues(r Request) bool { return r.Query.Get("continue") != "" }

// Probes matches lists with limit=1.
func Probes(r Request) bool { return !Watches(r) && r.Query.Get("limit") == "1" }

// Faults are what a Server does instead of answering.
type Faults struct {
	done <-chan struct{} // closed at the end of the test

	mu   sync.Mutex
	list []*fault // guarded by mu
}

type fault struct {
	match Match
	times int // how often it is still to happen; negative for always
	wrap  func(http.Handler) http.Handler
}

// Answer lets the next requests that match (negative times: all of them) be answered by h. Earlier
// calls come first.
func (f *Faults) Answer(match Match, times int, h http.HandlerFunc) {
	f.Wrap(match, times, func(http.Handler) http.Handler { return h })
}

// Wrap lets the next requests that match be answered by what wrap makes of the Server.
func (f *Faults) Wrap(match Match, times int, wrap func(http.Handler) http.Handler) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = append(f.list, &fault{match, times, wrap})
}

// Heal ends all faults.
func (f *Faults) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = nil
}

// Refuse answers requests with a Status of the given code and reason.
func (f *Faults) Refuse(match Match, times, code int, reason metav1.StatusReason) {
	f.RefuseWith(match, times, NewStatus(code, reason))
}

// RefuseWith answers requests with a Status.
func (f *Faults) RefuseWith(match Match, times int, status *metav1.Status) {
	f.Answer(match, times, func(w http.ResponseWriter, _ *http.Request) { writeStatus(w, status) })
}

// RefuseBusy answers requests with 429 and Retry-After.
func (f *Faults) RefuseBusy(match Match, times int, after time.Duration) {
	f.Answer(match, times, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", strconv.Itoa(int(after/time.Second)))
		writeStatus(w, NewStatus(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests))
	})
}

// Hang leaves requests without an answer until the client gives up.
func (f *Faults) Hang(match Match, times int) {
	f.Answer(match, times, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-f.done:
		}
	})
}

// AcceptExpired accepts requests, and says a moment later, within the answer, that their version is
// expired, as a watch cache does.
func (f *Faults) AcceptExpired(match Match, times int, after time.Duration) {
	f.Answer(match, times, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		select {
		case <-time.After(after):
		case <-r.Context().Done():
		}
		// the client may be gone
		_, _ = w.Write(Frame(watch.Error,
			mustMarshal(NewStatus(http.StatusGone, metav1.StatusReasonExpired))))
	})
}

// Break cuts the connections of requests before there is any answer.
func (f *Faults) Break(match Match, times int) {
	f.Answer(match, times, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
}

// CutAfter cuts the connections of requests after n bytes of the answer's body.
func (f *Faults) CutAfter(match Match, times, n int) {
	f.Wrap(match, times, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(&cutWriter{ResponseWriter: w, left: n}, r)
		})
	})
}

// cutWriter is a connection that breaks after some bytes.
type cutWriter struct {
	http.ResponseWriter
	left int
}

func (w *cutWriter) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p[:min(len(p), w.left)])
	if w.left -= n; w.left == 0 {
		w.Flush()
		panic(http.ErrAbortHandler)
	}
	return n, err
}

// Flush implements http.Flusher.
func (w *cutWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// take gives the fault that a request meets, nil for none.
func (f *Faults) take(r Request) *fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, fault := range f.list {
		if fault.times != 0 && fault.match(r) {
			fault.times--
			return fault
		}
	}
	return nil
}

// NewStatus is the Status of a failure.
func NewStatus(code int, reason metav1.StatusReason) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure,
		Message:  "testkit: " + string(reason),
		Reason:   reason,
		Code:     int32(code),
	}
}

func writeStatus(w http.ResponseWriter, status *metav1.Status) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.Code))
	_, _ = w.Write(mustMarshal(status)) // the client may be gone
}
