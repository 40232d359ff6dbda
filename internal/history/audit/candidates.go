package audit

import (
	"slices"
	"strconv"
	"strings"

	"github.com/kubebridge/bridge/internal/event"
)

// is reports whether two are the same request: a history reads it once for each of its claims.
func (r *Request) is(other *Request) bool {
	return r.ID == other.ID && r.User == other.User && r.Verb == other.Verb && r.Received.Equal(other.Received) &&
		r.Ended.Equal(other.Ended) && slices.Equal(r.seen, other.seen)
}

// isFixed reports whether a request can have written over one version only.
func (r *Request) isFixed() bool {
	version, _ := strconv.ParseUint(r.object.ResourceVersion, 10, 64)
	return r.Verb == "update" && version > 0 || r.Verb == "create" && r.Subresource == ""
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
			if may(r) && !slices.ContainsFunc(found.list, r.is) {
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
			return h.isOf(r) && r.fits(c) && h.isOfEra(r, c) && (r.isNear(c) || !r.isMaybe && !r.mayNotHaveWritten(c))
		})
	}
	if c.binds {
		add(bindingKey(h.namespace, h.name), func(r *Request) bool {
			return h.isOf(r) && r.mayBind(c) && h.isOfEra(r, c)
		})
	}
	mayNot := func(r *Request) bool {
		return r.isMaybe || r.mayNotHaveWritten(c) || h.mayHaveReadLater(r, at)
	}
	if certain := slices.DeleteFunc(slices.Clone(found.list), mayNot); len(certain) > 0 {
		found.list = certain // the others have written over a later version, or nothing
		return found, err
	}
	if err != nil || len(found.list) != 1 {
		return found, err
	}
	found.mayNot = true
	found.hasHidden, err = h.hasHidden(at, requests, found.list[0])
	if err == nil && !found.hasHidden {
		found.hasHidden, err = h.hasUnclaimed(c, requests)
	}
	return found, err
}

// isOf reports whether a request is about a resource in a namespace. The name of an object that is
// created by generateName is not in the log, and what has no namespace may be logged with one.
func (h *History) isOf(r *Request) bool {
	inNamespace := h.namespace == "" || r.object.Namespace == h.namespace
	isOfGroup := r.object.APIGroup == h.group ||
		h.resource == "events" && isGroupOfEvents(h.group) && isGroupOfEvents(r.object.APIGroup)
	return r.object.Resource == h.resource && isOfGroup && inNamespace
}

// isGroupOfEvents: the same Events are in two groups.
func isGroupOfEvents(group string) bool { return group == "" || group == "events.k8s.io" }

// isOfEra reports whether no restore of etcd lies between a request and a change. Behind one,
// versions come again, and only the time distinguishes them.
func (h *History) isOfEra(r *Request, c *change) bool {
	return len(h.rewinds) == 0 || r.isAround(c) && !slices.ContainsFunc(h.rewinds, func(w rewind) bool {
		if c.time.Before(w.until) {
			return r.Received.After(w.until)
		}
		return r.Ended.Before(w.since)
	})
}

// mayHaveReadLater reports whether a request that fits a change may have seen a later version, of
// which it has no claim, and so may have written over that one.
func (h *History) mayHaveReadLater(r *Request, at int) bool {
	if r.isFixed() {
		return false
	}
	for i := at; i < len(h.changes) && !h.changes[i].earliest.After(r.Ended.Add(skew)); i++ {
		c := &h.changes[i]
		isLater := i > at // the change itself may have been read too, at a retry
		isHidden := c.op != event.Deleted && r.hides(c.version) || isLater && c.op == event.Added && r.hides("0")
		if isHidden || isLater && (c.mayHaveLeft || c.isSelected || c.reason != "") {
			return true
		}
	}
	return false
}

// mayHaveMade reports whether a request that fits a change may have made a later one instead, of
// whose version before it has no claim.
func (h *History) mayHaveMade(r *Request, at, later int) bool {
	c := &h.changes[later]
	switch {
	case c.op == event.Deleted && h.mayEmptyFinalizers(r, at, later):
		return true
	case c.uid != h.changes[at].uid, r.isFixed():
		return false
	}
	return r.hides(c.previous) || c.mayHaveLeft || c.reason != ""
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
		mayHave := c.mayBeNoop && r.last() == claim{'U', c.previous, true}
		return mayHave && (r.answer.UID == "" || r.answer.UID == c.uid && r.answer.ResourceVersion == c.version)
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
	if c.op == event.Deleted {
		has = has || h.resource == "events" // they expire
		for _, claim := range h.takenAlong() {
			if !has && err == nil {
				var claiming []*Request
				claiming, err = requests.Claiming(claim)
				has = slices.ContainsFunc(claiming, func(r *Request) bool { return r.isDelete() && r.isNear(c) })
			}
		}
	}
	return has, err
}

// takenAlong are the claims of deletes of another object by which the API server deletes this one
// itself: Endpoints of their Service, custom objects of their definition.
func (h *History) takenAlong() []string {
	switch {
	case h.resource == "endpoints" && h.group == "":
		return []string{nameKey(services, h.namespace, h.name), collectionKey(services, h.namespace)}
	case strings.Contains(h.group, "."):
		return []string{nameKey(definitions, "", h.resource+"."+h.group), collectionKey(definitions, "")}
	}
	return nil
}

// hasHidden reports whether another request than the candidate may have made a change, of which the
// log shows only claims of earlier versions.
func (h *History) hasHidden(at int, requests Requests, candidate *Request) (bool, error) {
	c := &h.changes[at]
	for i := at - 1; i >= 0; i-- {
		seen := &h.changes[i]
		if seen.time.Add(longestRequest).Before(c.earliest) {
			break
		}
		if c.op == event.Deleted && c.wasTerminating && (seen.reason != "" || seen.mayHaveLeft) {
			return true, nil // one that has seen a version that is not known may have emptied the finalizers
		}
		for _, operation := range "DU" {
			claiming, err := requests.Claiming(string(operation) + seen.previous)
			if err != nil {
				return false, err
			}
			for _, r := range claiming {
				madeOther := r.hasMade() && r.answer != answeredObject{c.uid, c.version}
				mayBe := r.hides(c.previous) || c.op == event.Deleted && h.mayEmptyFinalizers(r, i, at)
				if !r.is(candidate) && h.isOf(r) && h.isOfEra(r, c) && r.isAround(c) && mayBe && !madeOther {
					return true, nil
				}
			}
		}
	}
	return false, nil
}

// mayEmptyFinalizers reports whether an update may have seen that the object was being deleted, in
// a version before one of these changes. If it leaves no finalizers it deletes whatever version is
// there then.
func (h *History) mayEmptyFinalizers(r *Request, from, to int) bool {
	return !r.isDelete() && slices.ContainsFunc(h.changes[from:to+1], func(c change) bool {
		return c.wasTerminating && (r.saw(c.previous) || r.hides(c.previous))
	})
}

// saw reports whether a request has a claim of a version.
func (r *Request) saw(version string) bool {
	return slices.ContainsFunc(r.seen, func(s claim) bool { return s.version == version })
}

// last is the claim of the last try; zero for none.
func (r *Request) last() (last claim) {
	if len(r.seen) > 0 {
		last = r.seen[len(r.seen)-1]
	}
	return last
}

// hides reports whether a request may have seen a version without a claim of it: the keys of that
// claim are those of others.
func (r *Request) hides(version string) bool {
	number, err := strconv.ParseUint(version, 10, 64)
	if err != nil || r.saw(version) {
		return false
	}
	if r.hasForeign {
		return true
	}
	isFree := func(m modulus) bool {
		return !slices.ContainsFunc(r.seen, func(s claim) bool { return s.number()%m.n == number%m.n })
	}
	return !slices.ContainsFunc(moduli, isFree) && (!r.hasSecond || !slices.ContainsFunc(secondModuli, isFree))
}

// answers reports whether the answer of a request is the version, and the request has made it: it
// has seen the one before, and not the version. Without the policy that is not known.
func (r *Request) answers(c *change) bool {
	if r.answer.UID != c.uid || r.answer.ResourceVersion != c.version || len(r.seen) == 0 || r.isDelete() ||
		r.hides(c.version) || r.saw(c.version) {
		return false
	}
	// What a no-op answers may be of another request: it read again.
	return !r.last().isNoop && (c.op != event.Updated || r.hides(c.previous) || r.saw(c.previous))
}

// hasMade reports whether a request has made the version that it answers: it has not seen that one.
func (r *Request) hasMade() bool {
	return r.answer.UID != "" && len(r.seen) > 0 && !r.isDelete() && !r.hides(r.answer.ResourceVersion) &&
		!r.saw(r.answer.ResourceVersion)
}

func (r *Request) isBinding() bool { return r.Verb == "create" && r.Subresource == "binding" }

func (r *Request) isEviction() bool { return r.Verb == "create" && r.Subresource == "eviction" }

func (r *Request) isDelete() bool { return r.Verb == "delete" || r.Verb == "deletecollection" }

// fits reports whether a request has seen the version before a change, and may have made it.
func (r *Request) fits(c *change) bool {
	if c.op != event.Deleted && !r.isDelete() && r.answer.UID != "" && r.answer != (answeredObject{c.uid, c.version}) {
		return false // it has made another one
	}
	for i, s := range r.seen {
		switch s.operation {
		case 'C':
			if c.isCreation && s.version == c.uid {
				return true
			}
		case 'U':
			// A no-op of a scale may yet have changed the owners of fields. Any update, also one
			// that changes nothing, deletes what is terminating and has no finalizers left.
			mayWrite := !s.isNoop || r.Subresource == "scale" && c.mayBeNoop || c.op == event.Deleted
			isLast := i == len(r.seen)-1 && mayWrite && !r.hasCreated
			isMarked := c.isTerminating && !c.wasTerminating // no update does that
			mayBe := c.op == event.Updated && !isMarked || c.op == event.Deleted && c.wasTerminating || c.mayHaveLeft
			if isLast && mayBe && s.version == c.previous {
				return true
			}
		case 'D':
			// The first step respects the finalizers that it reads, the second one does not look
			// for them. There is no first step if the object had none then.
			removes := c.op == event.Deleted && !c.left && (!c.hadFinalizers || i > 0 || !c.wasTerminating)
			mayBe := c.op == event.Updated && c.asksDelete && c.isTerminating || removes
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
	case f.list[0].isMaybe:
		return Answer{Reason: reasonFailed}
	}
	a := Answer{Request: f.list[0], Grade: Exact}
	if f.mayNot {
		a.Grade = CompleteLog
	}
	return a
}

// mayNotHaveWritten reports whether a request that fits a change may have succeeded without it.
func (r *Request) mayNotHaveWritten(c *change) bool {
	switch {
	case r.beganWithOther(c):
		return true
	case r.isBinding():
		return r.object.UID == ""
	case r.isDelete():
		return r.Verb == "deletecollection" || r.last().version != c.previous || c.wasTerminating
	case c.op == event.Deleted, r.answer.UID == "" && c.wasTerminating:
		return true // it may have removed the last finalizer, and deletes whatever version is there then
	case r.answer.UID == "" && c.hadNull:
		return true // a null and an empty list are stored as the same bytes
	}
	return slices.ContainsFunc(r.seen, func(s claim) bool { return s.isNoop && s.key() == "U"+c.previous })
}
