package reflector

import (
	"errors"
	"net/http"
	"reflect"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/bridge/internal/resource"
)

func apiError(code int32, reason metav1.StatusReason) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Reason: reason}}
}

// with changes a state, for the table.
func (s state) with(change func(*state)) state {
	change(&s)
	return s
}

func TestNext(t *testing.T) {
	var (
		gone    = apiError(http.StatusGone, metav1.StatusReasonExpired)
		lagging = &apierrors.StatusError{ErrStatus: metav1.Status{
			Code:   504,
			Reason: metav1.StatusReasonTimeout, Message: "Too large resource version",
		}}
		busy = &apierrors.StatusError{ErrStatus: metav1.Status{
			Code:    429,
			Details: &metav1.StatusDetails{RetryAfterSeconds: 7},
		}}
		broken     = apiError(http.StatusInternalServerError, metav1.StatusReasonInternalError)
		unreadable = &unreadableError{err: resource.ErrSyntax}
		closed     = &brokenError{errClosed, false}
		cut        = &brokenError{errCut, false}
		cutLate    = &brokenError{errCut, true}
		backoff    = wait{backoff: true}
		relist     = resource.Relist{Reason: resource.ReasonExpired, From: "5", To: "9"}
		namespace  = resource.Relist{Kind: resource.RelistEnters, Namespace: "shop", From: "5", To: "7"}
	)
	probing := state{at: at("7")}
	watching := state{step: toWatch, at: at("7")}
	listing := watching.list(relist)
	probe := func(s *state) { s.step = toProbe }
	failed := func(s *state) { s.step, s.failed = toProbe, true }
	suspects := func(reason string) func(*state) {
		return func(s *state) { failed(s); s.suspect = reason }
	}
	rewound := resource.Relist{Kind: resource.RelistRewound, Reason: resource.ReasonRewound, From: "7", To: "6"}
	expired := resource.Relist{Reason: resource.ReasonExpired, From: "7", To: "9"}
	stuckTimes := func(n int, closed bool) func(*state) {
		return func(s *state) { s.empty.times, s.empty.closed = n, closed }
	}
	incomplete := watching.with(func(s *state) { s.unidentified = true })
	tests := []struct {
		name string
		from state
		o    stepResult
		want state
		wait wait
	}{
		{
			"a watch behind a list that took nothing for gone ends in time", incomplete,
			stepResult{watched: true},
			incomplete.with(func(s *state) { s.step, s.suspect = toProbe, resource.ReasonUnreadable }),
			wait{},
		},
		{"that list itself ends", incomplete, stepResult{}, incomplete, wait{}},
		{
			"such a watch fails", incomplete,
			stepResult{err: broken},
			incomplete.with(suspects(resource.ReasonUnreadable)), backoff,
		},
		{
			"the probe behind it",
			incomplete.with(func(s *state) { s.step, s.suspect = toProbe, resource.ReasonUnreadable }),
			stepResult{server: "9"},
			watching.list(resource.Relist{Reason: resource.ReasonUnreadable, From: "7", To: "9"}),
			wait{},
		},
		{"a probe finds nothing wrong", probing, stepResult{server: "9"}, watching, wait{}},
		{
			"a probe finds an older server", probing,
			stepResult{server: "6"},
			probing.list(rewound).with(func(s *state) { s.rewinds = 1 }),
			wait{},
		},
		{
			"the next probe finds it again", probing.with(func(s *state) { s.rewinds = 1 }),
			stepResult{server: "6"},
			probing.list(rewound).with(func(s *state) { s.rewinds = 2 }),
			backoff,
		},
		{
			"a probe behind that finds nothing", probing.with(func(s *state) { s.rewinds = 2 }),
			stepResult{server: "7"},
			watching,
			wait{},
		},
		{
			"a probe where states were of another history", probing,
			stepResult{server: "6", diverged: true},
			probing.list(rewound),
			wait{},
		},
		{
			"a probe behind a gap",
			probing.with(func(s *state) { s.suspect = resource.ReasonExpired }),
			stepResult{server: "9"},
			probing.list(expired),
			wait{},
		},
		{
			"a probe behind empty closes, and the server is at our version",
			probing.with(func(s *state) {
				s.suspect = resource.ReasonExpired
				stuckTimes(5,
					true)(s)
			}),
			stepResult{server: "7"},
			watching,
			wait{},
		},
		{"a probe while a list is due", listing.with(probe), stepResult{server: "9"}, listing, wait{}},
		{
			"a probe while a list is due that had come " +
				"further", listing.with(func(s *state) { s.step, s.reached = toProbe, "12" }),
			stepResult{server: "9"},
			listing.with(func(s *state) {
				s.reached = "12"
				s.relist = &resource.Relist{
					Kind: resource.RelistRewound, Reason: resource.ReasonRewound, From: "5", To: "9",
				}
			}),
			wait{},
		},
		{
			"a probe while a namespace is due", watching.move(namespace).with(probe),
			stepResult{server: "9"},
			watching.move(namespace),
			wait{},
		},
		{"a probe fails", probing, stepResult{err: broken}, probing.with(failed), backoff},
		{
			"a list expires before its first page", listing,
			stepResult{err: gone},
			listing.with(func(s *state) { failed(s); s.listing.consistent = true }),
			wait{expiry: true},
		},
		{
			"a list expires between its pages", listing,
			stepResult{err: gone, pages: 2},
			listing.with(func(s *state) { failed(s); s.listing.restarts = 1 }),
			wait{expiry: true},
		},
		{
			"a list expires between its pages again " +
				"and again", listing.with(func(s *state) { s.listing.restarts = 3 }),
			stepResult{err: gone, pages: 2},
			listing.with(func(s *state) {
				failed(s)
				s.listing.restarts, s.listing.consistent, s.listing.unpaged = 4, true, true
			}),
			wait{expiry: true},
		},
		{
			"a list is of several versions", listing,
			stepResult{err: errInconsistent, pages: 1},
			listing.with(func(s *state) { failed(s); s.listing.restarts = 1 }), backoff,
		},
		{
			"a list of a version that the server has not", listing,
			stepResult{err: lagging},
			listing.with(func(s *state) { failed(s); s.listing.consistent = true }), backoff,
		},
		{
			"a list can't be understood", listing,
			stepResult{err: unreadable},
			listing.with(failed),
			backoff,
		},
		{
			"a list of a namespace from a server without exact versions", watching.move(namespace),
			stepResult{err: apiError(http.StatusBadRequest, metav1.StatusReasonBadRequest)},
			watching.move(namespace).with(func(s *state) { failed(s); s.listing.consistent = true }), backoff,
		},
		{"a watch ends in time", watching, stepResult{}, watching, wait{}},
		{"a watch ends early", watching, stepResult{early: true}, watching.with(probe), wait{}},
		{
			"a watch is cut after a while", watching,
			stepResult{err: cut, took: time.Minute},
			watching.with(failed),
			wait{startOver: true},
		},
		{"a watch is cut at once", watching, stepResult{err: cut}, watching.with(failed), backoff},
		{
			"a watch is cut soon, and has brought something", watching,
			stepResult{err: cutLate},
			watching.with(failed),
			wait{backoff: true, startOver: true},
		},
		{"a watch is not accepted", watching, stepResult{
			err:  errors.New("refused"),
			took: time.Minute,
		}, watching.with(failed), backoff},
		{
			"a watch expires", watching,
			stepResult{err: gone},
			watching.with(suspects(resource.ReasonExpired)),
			wait{expiry: true},
		},
		{
			"a watch expires from the last version " +
				"but one", watching.with(func(s *state) { s.at.complete = "6" }),
			stepResult{err: gone},
			watching.with(func(s *state) { s.failed = true }),
			wait{},
		},
		{
			"a watch expires from before deletes of one " +
				"version", watching.with(func(s *state) {
				s.at.complete,
					s.at.deletion = "6", true
			}),
			stepResult{err: gone},
			watching.with(func(s *state) {
				s.at.complete,
					s.at.deletion = "6", true
				suspects(resource.ReasonExpired)(s)
			}),
			wait{expiry: true},
		},
		{
			"a watch brings what can't be understood", watching,
			stepResult{err: unreadable},
			watching.with(suspects(resource.ReasonUnreadable)), backoff,
		},
		{
			"a watch is closed at once", watching,
			stepResult{err: closed},
			watching.with(func(s *state) { failed(s); stuckTimes(1, true)(s) }), backoff,
		},
		{
			"a watch is closed at once for the fifth time", watching.with(stuckTimes(4, true)),
			stepResult{err: closed},
			watching.with(func(s *state) {
				suspects(resource.ReasonExpired)(s)
				stuckTimes(5,
					true)(s)
			}), backoff,
		},
		{
			"a watch brings an error for the fifth time", watching.with(stuckTimes(4, false)),
			stepResult{err: &brokenError{broken, false}},
			watching.with(func(s *state) {
				suspects(resource.ReasonUnreadable)(s)
				stuckTimes(5,
					false)(s)
			}), backoff,
		},
		{
			"the server asks for patience", watching,
			stepResult{err: busy},
			watching.with(failed),
			wait{backoff: true, atLeast: 7 * time.Second},
		},
		{
			"a pause", watching,
			stepResult{paused: true, err: cut, took: time.Minute},
			watching.with(failed),
			wait{},
		},
		{"a pause of a list", listing, stepResult{paused: true}, listing.with(failed), wait{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := tt.from
			if before.relist != nil {
				before.relist = new(*before.relist)
			}
			got, pause := tt.from.after(tt.o)
			if !reflect.DeepEqual(got, tt.want) || pause != tt.wait {
				t.Errorf("got  %+v (%+v) %+v\nwant %+v (%+v) %+v", got, got.relist, pause, tt.want,
					tt.want.relist, tt.wait)
			}
			if !reflect.DeepEqual(tt.from, before) {
				t.Errorf("the state before has changed: %+v", tt.from)
			}
		})
	}
}

func TestFallBack(t *testing.T) {
	for _, tt := range []struct {
		name       string
		err        error
		tries      int
		pages, off bool
	}{
		{"a server that does not know WatchList", apiError(http.StatusUnprocessableEntity,
			metav1.StatusReasonInvalid), 0, true, true},
		{"one that swallows the end", errSwallowed, 0, true, true},
		{"one that is silent", errSilent, 0, true, true},
		{
			"one that forbids to watch", apiError(http.StatusForbidden,
				metav1.StatusReasonForbidden),
			0, true, false,
		},
		{"one that is busy", apiError(http.StatusTooManyRequests,
			metav1.StatusReasonTooManyRequests), 9, false, false},
		{"one that has compacted the version", apiError(http.StatusGone,
			metav1.StatusReasonExpired), 9, false, false},
		{"one in trouble", apiError(http.StatusInternalServerError,
			metav1.StatusReasonInternalError), 0, false, false},
		{"one in trouble for the third time", apiError(http.StatusInternalServerError,
			metav1.StatusReasonInternalError), 2, true, false},
		{"a stream that breaks for the third time", &brokenError{errCut, false}, 2, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, pages := state{listing: listFailures{watchListTries: tt.tries}}.fallBack(tt.err)
			if pages != tt.pages || s.watchListOff != tt.off {
				t.Errorf("pages %t, off %t", pages, s.watchListOff)
			}
		})
	}
}
