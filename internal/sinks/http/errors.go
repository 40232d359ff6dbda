package http

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/kubebridge/bridge/internal/sinks"
)

// classified sorts an answer. It is the one place that knows what a status means;
// docs/decisions/0011 says why some of 4xx are not about the event. Neither the URL's secrets nor
// the endpoint's own words are in the error: the words may repeat the event.
func classified(to *url.URL, status int) error {
	answer := fmt.Errorf("%s answered %s", place(to), statusText(status))
	switch {
	case status >= 200 && status < 300:
		return nil
	case status >= 300 && status < 400:
		return &sinks.Error{Class: sinks.Retry, Err: fmt.Errorf("%w: a redirect to another host, "+
			"or with another method, is not followed; set the url that it leads to", answer)}
	case aboutEndpoint(status), status >= 500:
		return &sinks.Error{Class: sinks.Retry, Err: answer}
	case status == http.StatusRequestEntityTooLarge, status == http.StatusRequestHeaderFieldsTooLarge:
		return &sinks.Error{Class: sinks.Refused, Err: fmt.Errorf("%w: %w", sinks.ErrTooLarge, answer)}
	}
	return &sinks.Error{Class: sinks.Refused, Err: answer}
}

// aboutEndpoint reports whether a status says that the endpoint is not there, not ready, or does
// not know the bridge: another event would have the same answer.
func aboutEndpoint(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound,
		http.StatusMethodNotAllowed, http.StatusProxyAuthRequired, http.StatusRequestTimeout,
		http.StatusGone, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return false
}

// failed sorts an error of the client. An endpoint that took the connection and then failed may do
// so for this event only, so only its object waits.
func (s *Sink) failed(ctx context.Context, to *url.URL, connected bool, err error) error {
	if ctx.Err() != nil {
		return &sinks.Error{Class: sinks.Stopped, Err: ctx.Err()}
	}
	err = stripped(err)
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("no answer within %v", s.cfg.Timeout)
	}
	class := sinks.Retry
	if !connected {
		class = sinks.Reconnect
	}
	return &sinks.Error{Class: class, Err: fmt.Errorf("%s: %w", place(to), err)}
}

// stripped is a client's error without the URL, which may hold secrets.
func stripped(err error) error {
	if about, ok := errors.AsType[*url.Error](err); ok {
		return about.Err
	}
	return err
}

// statusText is "404 Not Found", or "599".
func statusText(status int) string {
	if text := http.StatusText(status); text != "" {
		return strconv.Itoa(status) + " " + text
	}
	return strconv.Itoa(status)
}
