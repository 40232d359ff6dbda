// Package audit records the API servers' audit logs, and finds in them the authenticated user of a
// change.
//
// In: files of the log (tail.go), what API servers post (webhook.go), and streams that something
// else fills (stream.go, envelope.go). Out: requests in the history, with the position of their
// source (record.go), and who made a version (join.go, candidates.go). Check writes to a cluster to
// find out what is answered there.
//
// A change event names no user, and an audit event names no version: what joins them are
// admission policies (Policy) that note in the audit event which version of the object a request
// has seen. An answer is right, or absent with a reason.
package audit

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/resource/diff"
)

// Grade says how an answer is known.
type Grade string

// Grades.
const (
	// Exact: the request has written this version, whatever else the log lacks.
	Exact Grade = "exact"
	// CompleteLog: no other request can have, if the log has all of them.
	CompleteLog Grade = "complete-log"
)

// Answer is who made a change.
type Answer struct {
	*Request // nil where it is not known
	Grade    Grade
	// Reason is why the user is not known; "" where it is.
	Reason string
}

// Report returns the answer as JSON has it.
func (a *Answer) Report() *query.ActorReport {
	if a.Request == nil {
		return &query.ActorReport{Unknown: a.Reason}
	}
	return &query.ActorReport{
		User: a.User, Groups: a.Groups, Impersonator: a.Impersonator, Verb: a.Verb, Subresource: a.Subresource,
		UserAgent: a.UserAgent, AuditID: a.ID, Grade: string(a.Grade),
	}
}

// Reasons.
const (
	reasonNone       = "no request in the log has seen the version before"
	reasonSeveral    = "several requests may have made it"
	reasonFailed     = "a request that failed may have made it"
	reasonIncomplete = "a request may have made it, if the log is complete"
	reasonHole       = "the request may have made a later change, of which the log has no other request"
	reasonList       = "a list has shown it, so changes before it are not known"
	reasonUnknown    = "the version before it is not known"
	reasonGap        = "versions before it may be missing"
	reasonEntered    = "it may have been there before, outside of the selector"
)

// change is a version of an object, and what a request that made it can have done.
type change struct {
	op                event.Op
	uid               string
	previous, version string
	time, earliest    time.Time
	// reason is why nothing can be known; "" for none.
	reason string
	// isCreation: nothing was before it. left: an update took it out of a selector. mayHaveLeft:
	// that, or a delete. isSelected: a delete under a selector, so what follows may be unseen.
	isCreation, left, mayHaveLeft, isSelected bool
	// Of the object before: it was being deleted, it had finalizers, a field was null.
	wasTerminating, hadFinalizers, hadNull bool
	// isTerminating: it is being deleted. mayBeNoop: perhaps only the owners of fields differ.
	isTerminating, mayBeNoop bool
	// asksDelete: deletionTimestamp, grace period or finalizers differ. binds: a pod got its node.
	asksDelete, binds bool
}

// History is what is known of one object.
type History struct {
	resource, group, namespace, name string
	changes                          []change
	claims                           map[string]bool // that requests for the changes may have
	rewinds                          []rewind
	// until is the time up to which changes are known; zero for now.
	until time.Time
}

// rewind is a restore of etcd, behind which versions come again. It happened between two times.
type rewind struct{ since, until time.Time }

// NewHistory returns the history of an object without versions.
func NewHistory(o *query.Object) *History {
	h := &History{
		resource: o.Unit.Resource, group: o.Unit.Group, namespace: o.Namespace, name: o.Name,
		claims: map[string]bool{
			bindingKey(o.Namespace, o.Name): true, evictionKey(o.Namespace, o.Name): true,
			collectionKey(o.Unit.Resource, o.Namespace):   true,
			nameKey(o.Unit.Resource, o.Namespace, o.Name): true,
		},
	}
	for _, claim := range h.takenAlong() {
		h.claims[claim] = true
	}
	return h
}

// longestRequest is how long an API server takes for a write at most: --request-timeout.
const longestRequest = time.Minute

// Load returns what is known of an object from one time to another; zero times are no limit. Those
// around are there too: a request may have made or seen one of them. notices are those of its unit.
// each is called for each version with the one before, in the order of the answers.
func Load(
	objects query.Objects, o *query.Object, since, until time.Time, notices []*query.Notice,
	each func(v, before *query.Version),
) (h *History, err error) {
	h = NewHistory(o)
	if !since.IsZero() {
		since = since.Add(-longestRequest)
	}
	if !until.IsZero() {
		until = until.Add(2 * longestRequest)
		h.until = until
	}
	var before *query.Version
	for v, err := range objects.Versions(o, since, until) {
		if err == nil && before == nil && !since.IsZero() {
			before, err = objects.VersionBefore(v)
		}
		if err != nil {
			return nil, err
		}
		h.Add(v, before)
		each(v, before)
		before = v
	}
	for _, m := range notices {
		switch {
		case !m.IsHole() || !m.Concerns(o):
		case m.Reason == "rewound":
			h.AddRewind(m.Begins(), m.Time)
		default:
			h.AddGap(m.From, m.To)
		}
	}
	return h, nil
}

// Add adds a version and the one before it, nil for none. Versions are added in their order.
func (h *History) Add(v, before *query.Version) {
	c := change{
		op: v.Event.Op, uid: v.Event.UID, version: v.Event.ResourceVersion, previous: v.Event.Previous,
		time: v.Time, earliest: v.Time, isCreation: v.Event.IsCreation(), left: v.Event.Cause == event.CauseLeft,
	}
	c.mayHaveLeft = c.left || c.op == event.Deleted && v.Event.Cause == event.CauseUnknown
	c.isSelected = c.op == event.Deleted && v.Event.Cause != ""
	switch {
	case !v.Event.NotBefore.IsZero():
		c.earliest = v.Event.NotBefore
	case v.Event.TimeSource == event.TimeObserved:
		c.earliest = v.Time.Add(-event.MaxUnwatched)
	}
	if n := len(h.changes); n > 0 && h.changes[n-1].earliest.After(c.earliest) {
		c.earliest = h.changes[n-1].earliest // one object's changes are in the order of time
	}
	var was, is []byte
	if before != nil && !before.Deleted() && before.Event.UID == c.uid {
		was = before.Event.Data
		if c.previous == "" {
			c.previous = before.Event.ResourceVersion
		}
	}
	if !v.Deleted() {
		is = v.Event.Data
	}
	field := func(data []byte, path string) []byte {
		if data == nil {
			return nil
		}
		return diff.Field(data, path)
	}
	differs := func(path string) bool { return !bytes.Equal(field(was, path), field(is, path)) }
	c.wasTerminating = len(field(was, "metadata.deletionTimestamp")) > 0
	c.isTerminating = len(field(is, "metadata.deletionTimestamp")) > 0
	isCustom := strings.Contains(h.group, ".") // its versions may have different fields
	c.mayBeNoop = isCustom || len(diff.Parts(was, is)) == 0
	c.hadFinalizers = areRespected(field(was, "metadata.finalizers"))
	nulls := bytes.Count(was, []byte(":null")) - bytes.Count(was, []byte(`"creationTimestamp":null`))
	c.hadNull = nulls > 0
	c.asksDelete = differs("metadata.deletionTimestamp") || differs("metadata.deletionGracePeriodSeconds") ||
		differs("metadata.finalizers")
	c.binds = was != nil && h.isPod() && len(field(was, "spec.nodeName")) == 0 &&
		len(field(is, "spec.nodeName")) > 0
	switch {
	case v.Event.Initial, v.Event.Inferred:
		c.reason = reasonList
	case c.op != event.Added && (was == nil || before.Event.ResourceVersion != c.previous):
		c.reason = reasonUnknown
	}
	h.changes = append(h.changes, c)
	for _, claim := range c.claims() {
		h.claims[claim] = true
	}
	h.claims[answerKey(c.uid, c.version)] = true
}

// areRespected reports whether a delete waits for one of the finalizers. Those of its policy can be
// taken out by another delete.
func areRespected(finalizers []byte) bool {
	var names []string
	if err := json.Unmarshal(finalizers, &names); err != nil {
		return len(finalizers) > 0
	}
	return slices.ContainsFunc(names, func(name string) bool {
		return name != metav1.FinalizerOrphanDependents && name != metav1.FinalizerDeleteDependents
	})
}

func (h *History) isPod() bool { return h.resource == "pods" && h.group == "" }

// claims are those of requests that have seen the version before.
func (c *change) claims() []string { return []string{"C" + c.uid, "U" + c.previous, "D" + c.previous} }

// AddGap says that versions behind from may be missing, up to to. What has no numbers is of another
// stream, of which versions name the one before.
func (h *History) AddGap(from, to string) {
	first, _ := strconv.ParseUint(from, 10, 64) // "" is from the first on
	last, err := strconv.ParseUint(to, 10, 64)
	for i := range h.changes {
		c := &h.changes[i]
		previous, _ := strconv.ParseUint(c.previous, 10, 64)
		version, _ := strconv.ParseUint(c.version, 10, 64)
		if c.isCreation {
			previous = version - 1 // nothing was before it
		}
		if err == nil && c.reason == "" && previous < last && version > first {
			c.reason = reasonGap
		}
	}
}

// AddRewind says that etcd was restored between two times.
func (h *History) AddRewind(since, until time.Time) {
	h.rewinds = append(h.rewinds, rewind{since, until})
}

// Log returns a log that keeps what is about the versions that were added. isComplete says that it
// will have every request.
func (h *History) Log(isComplete bool) *Log {
	return NewLog(h.claims, isComplete)
}

// skew is how far the clocks of two API servers may differ.
const skew = time.Second

// Answers returns who made each change, in the order of the versions.
func (h *History) Answers(requests Requests) ([]Answer, error) {
	join := NewJoin(h, requests)
	answers := make([]Answer, len(h.changes))
	for i := range h.changes {
		var err error
		if answers[i], err = join.Answer(i); err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// Join finds who made changes of one object, as it is asked. It is not for concurrent use.
type Join struct {
	history  *History
	requests Requests
	found    []*candidates // of each change; nil until they are needed
}

// NewJoin joins a history and requests. Nothing may be added to the history afterwards.
func NewJoin(h *History, requests Requests) *Join {
	return &Join{h, requests, make([]*candidates, len(h.changes))}
}

// Answer returns who made the i-th version of the history.
func (j *Join) Answer(i int) (Answer, error) {
	h, c := j.history, &j.history.changes[i]
	found, err := j.candidatesOf(i)
	if err != nil {
		return Answer{}, err
	}
	a := found.answer(c)
	if found.isAnswered || c.reason != "" {
		return a, nil
	}
	// A request that is not there yet may have seen the same version.
	from, to := c.earliest.Add(-skew), c.time.Add(skew)
	if lacks := j.requests.Lacks(from, to); lacks != "" {
		return Answer{Reason: lacks}, nil
	}
	switch {
	case a.Request == nil:
		return a, nil
	case !h.until.IsZero() && a.Ended.Add(skew).After(h.until):
		return Answer{Reason: reasonHole}, nil
	}
	// The request may have made a later change rather than this one.
	for k := i + 1; k < len(h.changes); k++ {
		later := &h.changes[k]
		if later.earliest.After(a.Ended.Add(skew)) {
			break
		}
		if !h.mayHaveMade(a.Request, i, k) {
			continue
		}
		of, err := j.candidatesOf(k)
		if err != nil {
			return Answer{}, err
		}
		if !slices.ContainsFunc(of.list, func(r *Request) bool { return !r.isMaybe }) {
			lacks := j.requests.Lacks(later.earliest, later.time.Add(skew))
			return Answer{Reason: cmp.Or(lacks, reasonHole)}, nil
		}
	}
	if a.Grade == Exact {
		return a, nil
	}
	if !j.requests.IsComplete(from, to) {
		return Answer{Reason: reasonIncomplete}, nil
	}
	// One that has not ended yet may have made it.
	if lacks := j.requests.Lacks(from, c.time.Add(longestRequest)); lacks != "" {
		return Answer{Reason: lacks}, nil
	}
	return a, nil
}

func (j *Join) candidatesOf(i int) (*candidates, error) {
	if j.found[i] == nil {
		found, err := j.history.candidatesOf(i, j.requests)
		if err != nil {
			return nil, err
		}
		j.found[i] = &found
	}
	return j.found[i], nil
}
