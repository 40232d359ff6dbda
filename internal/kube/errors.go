package kube

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// Class sorts what can be wrong between the bridge and an API server by who can do something about
// it.
type Class int

const (
	// Other: none of the below.
	Other Class = iota
	// Unreachable: nobody answers at the address, or not in time.
	Unreachable
	// Unavailable: the API server answers that it can't serve now: it starts, stops, or is
	// overloaded (429, 5xx).
	Unavailable
	// Untrusted: the certificate of whoever answers is not that of the cluster.
	Untrusted
	// Unauthenticated: the credentials are refused (401).
	Unauthenticated
	// Forbidden: the credentials lack a right (403).
	Forbidden
)

// Error is an error with its class and with advice. Unwrap gives the error that it was made of.
type Error struct {
	Class Class
	// Advice says what to look at or to do.
	Advice string
	Err    error
}

func (e *Error) Error() string { return fmt.Sprintf("%v; %s", e.Err, e.Advice) }
func (e *Error) Unwrap() error { return e.Err }

// Explain adds to an error of talking to the API server at host what its reader can do about it.
// Errors that nothing is known of come back as they are, and so does the end of the caller's own
// context.
func Explain(err error, host string) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	if _, done := errors.AsType[*Error](err); done {
		return err
	}
	class := Classify(err)
	if class == Other {
		return err
	}
	return &Error{Class: class, Advice: advice(class, host, err), Err: err}
}

// Classify sorts an error.
func Classify(err error) Class {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Class
	}
	switch {
	case apierrors.IsUnauthorized(err):
		return Unauthenticated
	case apierrors.IsForbidden(err):
		return Forbidden
	case isUntrusted(err):
		return Untrusted
	case isUnreachable(err):
		return Unreachable
	case isUnavailable(err):
		return Unavailable
	}
	return Other
}

func isUntrusted(err error) bool {
	_, authority := errors.AsType[x509.UnknownAuthorityError](err)
	_, host := errors.AsType[x509.HostnameError](err)
	_, invalid := errors.AsType[x509.CertificateInvalidError](err)
	return authority || host || invalid
}

func isUnreachable(err error) bool {
	if _, answered := statusOf(err); answered {
		return false
	}
	if netErr, ok := errors.AsType[net.Error](err); ok && netErr.Timeout() {
		return true
	}
	_, dns := errors.AsType[*net.DNSError](err)
	_, dial := errors.AsType[*net.OpError](err)
	lost := utilnet.IsProbableEOF(err) || utilnet.IsHTTP2ConnectionLost(err) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	return dns || dial || lost || errors.Is(err, syscall.ECONNREFUSED) ||
		errors.Is(err, context.DeadlineExceeded)
}

func isUnavailable(err error) bool {
	status, _ := statusOf(err)
	return status.Code == http.StatusTooManyRequests ||
		status.Code >= http.StatusInternalServerError
}

// statusOf returns the API server's answer, if it was one.
func statusOf(err error) (metav1.Status, bool) {
	var status apierrors.APIStatus // no error by itself, so no errors.AsType
	if errors.As(err, &status) {
		return status.Status(), true
	}
	return metav1.Status{}, false
}

func advice(class Class, host string, err error) string {
	switch class {
	case Unreachable:
		return fmt.Sprintf("nothing answers at %s: is the cluster running, is the address in the "+
			"kubeconfig right, does a firewall, VPN or proxy stand between?", host)
	case Unavailable:
		return fmt.Sprintf("%s answers, but can't serve now: it is starting, stopping or "+
			"overloaded, or what stands before it does not reach it", host)
	case Untrusted:
		return fmt.Sprintf("the certificate of %s is not one that the kubeconfig trusts: is it "+
			"the right cluster, was its CA renewed, does a proxy break TLS?", host)
	case Unauthenticated:
		return fmt.Sprintf("%s refuses the credentials: they have expired or were revoked; log "+
			"in again, or renew the kubeconfig or the service account's token", host)
	default:
		return forbiddenAdvice(err)
	}
}

// forbiddenAdvice names the right that is missing, where the API server says for what the request
// was.
func forbiddenAdvice(err error) string {
	const bind = "; bind a ClusterRole with it to the bridge's user or service account"
	status, _ := statusOf(err)
	d := status.Details
	if d == nil || d.Kind == "" {
		return "a right is missing (RBAC): the message names verb and resource" + bind
	}
	name := d.Kind
	if d.Group != "" {
		name += "." + d.Group
	}
	return fmt.Sprintf("a right on %s is missing (RBAC): an informer needs list and watch "+
		"(kubectl auth can-i watch %s shows it)%s", name, name, bind)
}
