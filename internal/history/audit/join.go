// Package audit records the API servers' audit logs, and finds in them the authenticated user of a
// change.
//
// In: files of the log (tail.go), what API servers post (webhook.go), and streams that something
// else fills (stream.go, envelope.go). Out: requests in the history, with the position of their
// source (record.go), and who made a version (join.go). Check writes to a cluster to find out what
// is answered there.
//
// A change event names no user, and an audit event names no version: what joins them is an
// admission policy (Policy) that notes in the audit event which version of the object a request
// has seen. An answer is right, or absent with a reason.
package audit

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
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
	// isCreation: nothing was before it. left: an update took it out of a selector; mayHaveLeft:
	// that, or a delete.
	isCreation, left, mayHaveLeft bool
	// Of the object before: it was being deleted, it had finalizers.
	wasTerminating, hadFinalizers bool
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
	return &History{
		resource: o.Unit.Resource, group: o.Unit.Group, namespace: o.Namespace, name: o.Name,
		claims: map[string]bool{
			bindingKey(o.Namespace, o.Name): true, evictionKey(o.Namespace, o.Name): true,
			collectionKey(o.Unit.Resource, o.Namespace):   true,
			nameKey(o.Unit.Resource, o.Namespace, o.Name): true,
		},
	}
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
	c.hadFinalizers = areRespected(field(was, "metadata.finalizers"))
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

// isOfEra reports whether no restore of etcd lies between a request and a change. Behind one,
// versions come again, and only the time distinguishes them.
func (h *History) isOfEra(r *Request, c *change) bool {
	return len(h.rewinds) == 0 || r.isNear(c) && !slices.ContainsFunc(h.rewinds, func(w rewind) bool {
		if c.time.Before(w.until) {
			return r.Received.After(w.until)
		}
		return r.Ended.Before(w.since)
	})
}

// Log returns a log that keeps what is about the versions that were added. isComplete says that it
// will have every request.
func (h *History) Log(isComplete bool) *Log {
	return NewLog(h.claims, isComplete)
}

// isOf reports whether a request is about a resource in a namespace. The name of an object that is
// created by generateName is not in the log.
func (h *History) isOf(r *Request) bool {
	inNamespace := r.object.Namespace == h.namespace ||
		h.resource == "namespaces" && r.object.Namespace == h.name // so the API server logs it
	isOfGroup := r.object.APIGroup == h.group ||
		h.resource == "events" && isGroupOfEvents(h.group) && isGroupOfEvents(r.object.APIGroup)
	return r.object.Resource == h.resource && isOfGroup && inNamespace
}

// isGroupOfEvents: the same Events are in two groups.
func isGroupOfEvents(group string) bool { return group == "" || group == "events.k8s.io" }

func (r *Request) isBinding() bool { return r.Verb == "create" && r.Subresource == "binding" }

func (r *Request) isEviction() bool { return r.Verb == "create" && r.Subresource == "eviction" }

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
	for k := i + 1; k < len(h.changes) && !a.isFixed(); k++ {
		later := &h.changes[k]
		if later.earliest.After(a.Ended.Add(skew)) {
			break
		}
		if later.uid != c.uid {
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

// isFixed reports whether a request can have written over one version only.
func (r *Request) isFixed() bool {
	return r.Verb == "update" && r.object.ResourceVersion != "" && r.object.ResourceVersion != "0"
}

// candidates are the requests that may have made a change.
type candidates struct {
	list []*Request
	// isAnswered: their answers name the version. mayNot: the one that is there may have succeeded
	// without the change. hasHidden: there may be one more.
	isAnswered, mayNot, hasHidden bool
}

func (h *History) candidatesOf(at int, requests Requests) (found candidates, err error) {
	c := &h.changes[at]
	add := func(claim string, may func(*Request) bool) {
		if err != nil {
			return
		}
		var claiming []*Request
		claiming, err = requests.Claiming(claim)
		for _, r := range claiming {
			if may(r) && !slices.Contains(found.list, r) {
				found.list = append(found.list, r)
			}
		}
	}
	if c.op != event.Deleted || c.mayHaveLeft {
		add(answerKey(c.uid, c.version), func(r *Request) bool { return r.answers(c) && h.isOfEra(r, c) })
		if found.isAnswered = len(found.list) > 0; found.isAnswered {
			return found, err
		}
	}
	for _, claim := range c.claims() {
		add(claim, func(r *Request) bool {
			return h.isOf(r) && r.fits(c) && h.isOfEra(r, c) && (r.isNear(c) || !r.mayNotHaveWritten(c))
		})
	}
	if c.binds {
		add(bindingKey(h.namespace, h.name), func(r *Request) bool { return h.isOf(r) && r.mayBind(c) })
	}
	if err != nil || len(found.list) != 1 {
		return found, err
	}
	found.mayNot = found.list[0].mayNotHaveWritten(c) ||
		c.op != event.Deleted && h.mayHaveReadLater(found.list[0], at)
	if c.op == event.Deleted || c.asksDelete || found.mayNot {
		found.hasHidden, err = h.hasHidden(at, requests)
	}
	if err == nil && found.mayNot && !found.hasHidden {
		found.hasHidden, err = h.hasUnclaimed(c, requests)
	}
	return found, err
}

// mayHaveReadLater reports whether a request that fits a change may have seen a later version, of
// which it has no claim.
func (h *History) mayHaveReadLater(r *Request, at int) bool {
	for i := at; i < len(h.changes) && !r.isFixed() && !h.changes[i].earliest.After(r.Ended.Add(skew)); i++ {
		if r.hides(h.changes[i].version) {
			return true
		}
	}
	return false
}

// hasUnclaimed reports whether there is another request that may have made a change without a claim
// of the version before.
func (h *History) hasUnclaimed(c *change, requests Requests) (has bool, err error) {
	look := func(claim string, may func(*Request) bool) {
		if has || err != nil {
			return
		}
		var claiming []*Request
		claiming, err = requests.Claiming(claim)
		has = slices.ContainsFunc(claiming, func(r *Request) bool {
			return !r.fits(c) && h.isOf(r) && h.isOfEra(r, c) && may(r)
		})
	}
	// The policy has not seen it.
	look(answerKey(c.uid, c.version), func(r *Request) bool { return !r.isDelete() && len(r.seen) == 0 })
	// To the policy it was a no-op, but it has changed how the object is stored.
	look("U"+c.previous, func(r *Request) bool {
		isLast := len(r.seen) > 0 && r.seen[len(r.seen)-1] == claim{'U', c.previous, true}
		return isLast && (r.answer.UID == "" || r.answer.UID == c.uid && r.answer.ResourceVersion == c.version)
	})
	// It first tried to create the object.
	look(nameKey(h.resource, h.namespace, h.name), func(r *Request) bool {
		return r.isAround(c) && r.hides(c.previous)
	})
	if h.isPod() {
		look(evictionKey(h.namespace, h.name), func(r *Request) bool { return r.isAround(c) })
	}
	if c.op == event.Deleted || c.asksDelete {
		look(collectionKey(h.resource, h.namespace), func(r *Request) bool {
			return r.isAround(c) && r.hides(c.previous)
		})
	}
	return has, err
}

// hasHidden reports whether there may be a request that made a change, of which the log shows only
// claims of earlier versions.
func (h *History) hasHidden(at int, requests Requests) (bool, error) {
	c := &h.changes[at]
	for i := at - 1; i >= 0; i-- {
		seen := &h.changes[i]
		if seen.time.Add(longestRequest).Before(c.earliest) {
			break
		}
		for _, operation := range "DU" {
			claiming, err := requests.Claiming(string(operation) + seen.previous)
			if err != nil {
				return false, err
			}
			for _, r := range claiming {
				madeOther := !r.isDelete() && r.answer.UID == c.uid &&
					r.answer.ResourceVersion != c.previous && r.answer.ResourceVersion != c.version
				if h.isOf(r) && h.isOfEra(r, c) && r.isAround(c) && r.hides(c.previous) && !madeOther {
					return true, nil
				}
			}
		}
	}
	return false, nil
}

// hides reports whether a request may have seen a version without a claim of it: the keys of that
// claim are those of others.
func (r *Request) hides(version string) bool {
	number, err := strconv.ParseUint(version, 10, 64)
	if err != nil || slices.ContainsFunc(r.seen, func(s claim) bool { return s.version == version }) {
		return false
	}
	if r.hasForeign {
		return true
	}
	for _, m := range moduli {
		n := uint64(m.n)
		if !slices.ContainsFunc(r.seen, func(s claim) bool { return s.number()%n == number%n }) {
			return false
		}
	}
	return true
}

// answers reports whether the answer of a request is the version, and the request has made it: it
// has seen the one before, and not the version. Without the policy that is not known.
func (r *Request) answers(c *change) bool {
	saw := func(version string) bool {
		return slices.ContainsFunc(r.seen, func(s claim) bool { return s.operation == 'U' && s.version == version })
	}
	if r.answer.UID != c.uid || r.answer.ResourceVersion != c.version || len(r.seen) == 0 || r.isDelete() ||
		r.hides(c.version) || saw(c.version) {
		return false
	}
	// What a no-op answers may be of another request: it read again.
	isNoop := slices.ContainsFunc(r.seen, func(s claim) bool { return s.isNoop && s.version == c.previous })
	return c.op != event.Updated || r.hides(c.previous) || saw(c.previous) && !isNoop
}

func (r *Request) isDelete() bool { return r.Verb == "delete" || r.Verb == "deletecollection" }

// fits reports whether a request has seen the version before a change, and may have made it.
func (r *Request) fits(c *change) bool {
	if c.op != event.Deleted && r.answer.UID == c.uid && !r.isDelete() && r.answer.ResourceVersion != c.version {
		return false // it has made another one
	}
	for i, s := range r.seen {
		switch s.operation {
		case 'C':
			if c.isCreation && s.version == c.uid {
				return true
			}
		case 'U':
			// A no-op of a scale may yet have changed the owners of fields.
			isLast := i == len(r.seen)-1 && (!s.isNoop || r.Subresource == "scale")
			mayBe := c.op == event.Updated || c.op == event.Deleted && c.wasTerminating || c.mayHaveLeft
			if isLast && mayBe && s.version == c.previous {
				return true
			}
		case 'D':
			// The first try respects finalizers. Those after it do not look for them.
			removes := c.op == event.Deleted && !c.left && (!c.hadFinalizers || i > 0)
			mayBe := c.op == event.Updated && c.asksDelete || removes
			if mayBe && s.version == c.previous {
				return true
			}
		}
	}
	return false
}

// beganWithOther reports whether the first try was about an object before, of the same name.
func (r *Request) beganWithOther(c *change) bool {
	return r.uid != "" && r.uid != c.uid && r.Verb != "deletecollection" && !r.triedToCreate()
}

// triedToCreate reports whether the first try was to create: then the uid is that of an object that
// may not have come to be.
func (r *Request) triedToCreate() bool {
	return slices.ContainsFunc(r.seen, func(s claim) bool { return s.operation == 'C' && s.version == r.uid })
}

// mayBind reports whether a request has bound the pod of a change to its node. The policy does not
// see the pod. If the body has no uid, only the time distinguishes it from another of that name.
func (r *Request) mayBind(c *change) bool {
	return r.isAround(c) && (r.object.UID == "" || r.object.UID == c.uid)
}

// isAround reports whether a request was there at the time of a change.
func (r *Request) isAround(c *change) bool {
	return !r.Received.After(c.time.Add(skew)) && !r.Ended.Before(c.earliest.Add(-skew))
}

// isNear reports whether a request was there at the time of a change, or may still have been.
func (r *Request) isNear(c *change) bool {
	return !r.Received.After(c.time.Add(longestRequest)) && !r.Ended.Before(c.earliest.Add(-longestRequest))
}

// answer returns the one candidate, and how it is known.
func (f *candidates) answer(c *change) Answer {
	switch {
	case c.reason != "":
		return Answer{Reason: c.reason}
	case len(f.list) == 0 && c.op == event.Added && !c.isCreation:
		return Answer{Reason: reasonEntered}
	case len(f.list) == 0:
		return Answer{Reason: reasonNone}
	case len(f.list) > 1, f.hasHidden:
		return Answer{Reason: reasonSeveral}
	}
	a := Answer{Request: f.list[0], Grade: Exact}
	if f.mayNot {
		a.Grade = CompleteLog
	}
	return a
}

// mayNotHaveWritten reports whether a request that fits a change may have succeeded without it.
func (r *Request) mayNotHaveWritten(c *change) bool {
	const manyTries = 3
	isMixed := slices.ContainsFunc(r.seen, func(s claim) bool { return s.operation != r.seen[0].operation })
	switch {
	case r.isMaybe, isMixed, len(r.seen) >= manyTries, r.beganWithOther(c):
		return true
	case r.isBinding():
		return r.object.UID == ""
	case r.isDelete():
		return r.Verb == "deletecollection" || len(r.seen) > 1 || c.wasTerminating
	case c.op == event.Deleted: // the last finalizer
		return true
	}
	return slices.ContainsFunc(r.seen, func(s claim) bool { return s.isNoop && s.key() == "U"+c.previous })
}
