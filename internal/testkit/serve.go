package testkit

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

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
