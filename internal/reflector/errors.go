package reflector

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/bridge/internal/resource"
)

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
	errSwallowed = errors.New("the bookmark that ends the initial events of a WatchList is " +
		"missing")
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

// explain adds to an error what its reader can do.
func explain(err error) error {
	if reasonOf(err) != reasonForbidden {
		return err
	}
	return fmt.Errorf("%w; an informer needs list and watch: 'bridge rbac' prints the roles for "+
		"the configuration", err)
}

// retryAfter returns how long the API server asked clients to wait; zero when it did not.
func retryAfter(err error) time.Duration {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || status.ErrStatus.Details == nil {
		return 0
	}
	const longest = 5 * time.Minute // a broken proxy may ask for years
	return min(time.Duration(status.ErrStatus.Details.RetryAfterSeconds)*time.Second, longest)
}
