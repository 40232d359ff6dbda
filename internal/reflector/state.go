package reflector

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubebridge/bridge/internal/resource"
)

// step is what the reflector does next.
type step int

const (
	toProbe step = iota // ask for the server's version
	toList              // hand on everything, or what is in one namespace
	toWatch             // hand on what changes
)

// state is where the reflector is. Run owns it. Its methods return the state that follows: at the
// end of a step (after, fallBack), where the list of a namespace begins (listAsOf), where a list
// ends (listed). Only position changes in place, where a change was handed on.
type state struct {
	step step
	at   position // how far the Store is; the watch continues there
	// relist is the list that is due or running; nil for none. It is immutable and replaced.
	relist *resource.Relist
	// relists counts the lists of everything that became due.
	relists int
	// reached is the latest version that the Store has of an incomplete list; before the first
	// list, of earlier runs.
	reached resource.Version
	// suspect is the reason of the gap behind the position, once a probe has found its end; "" for
	// none.
	suspect string
	// quiet is set right after a watch has ended in order: it has brought everything up to its end.
	// A server that sends no bookmarks, as for Events, forgets the position meanwhile.
	quiet bool
	// unidentified is set while the last list of everything had an item that may be any object:
	// that list took nothing for gone. The next list makes up for it, when the watch ends.
	unidentified bool
	// failed is set once a step has failed: the server may be another when it is found again.
	failed bool
	// watchListOff is set permanently where WatchList does not work.
	watchListOff bool
	listing      listFailures
	empty        emptyWatches
	// rewinds are those in a row, without a probe that found the position in order, and without a
	// list in order: some aggregated servers give lists a lower version than their objects have.
	rewinds int
}

// listFailures is what failures of the current list have shown.
type listFailures struct {
	consistent     bool // list etcd's state, whatever its version is
	unpaged        bool // in one answer: every page expired before it was read
	restarts       int  // of paged lists that were not completed
	watchListTries int  // WatchLists that failed
	versionless    int  // lists without a version
}

// emptyWatches counts how often a watch from one version brought nothing.
type emptyWatches struct {
	times  int
	closed bool // it was closed at once each time, as an expired version of Events is
}

const (
	// maxEmptyWatches is how often a watch from one version may bring nothing before a gap is
	// suspected. An empty close is a sign of an expired version, an error is one of an event that
	// the server can't read.
	maxEmptyWatches = 5
	// maxRestarts is how often a paged list is restarted before it is asked for in one answer.
	maxRestarts = 3
	// maxWatchLists is how many WatchLists may fail in an unknown way before pages are tried too.
	maxWatchLists = 3
	// maxVersionless is how many lists without a version show that the resource has none. Then it
	// is left alone for versionlessWait, since its server would have to be another program.
	maxVersionless  = 3
	versionlessWait = 10 * time.Minute
	// shortWatch: a watch that brings nothing and ends sooner was in fact refused.
	shortWatch = time.Second
)

// stepResult is how a step ended.
type stepResult struct {
	err    error
	paused bool          // it was cut, by Pause or Diverged
	took   time.Duration // from the request on
	// pages were read, of a list by pages.
	pages int
	// server is the server's version that a probe found; diverged: states of objects were of
	// another history.
	server   resource.Version
	diverged bool
	// watched: a watch ended without an error; early: before its time.
	watched, early bool
	quiet          bool // it has brought everything up to its end
}

// wait is how long to wait before the next step.
type wait struct {
	backoff, expiry bool          // the general backoff, or that of expired versions
	atLeast         time.Duration // as the API server asked
	startOver       bool          // the failures before are over
}

// after returns the state after a step, and how long to wait before the next one.
func (s state) after(o stepResult) (state, wait) {
	s.quiet = s.isQuiet(o)
	switch {
	// as after a lost connection, the server may be another, or at another place of its history
	case o.paused:
		s.failed, s.step = true, toProbe
	case o.err != nil:
		s.failed = true
		return s.recover(o)
	case s.step == toProbe:
		lists := s.relists
		switch s = s.locate(o); {
		case s.step == toWatch:
			s.rewinds = 0
		case s.relists > lists && s.relist.Rewound() && !o.diverged:
			s.rewinds++
			return s, wait{backoff: s.rewinds > 1}
		}
	case o.watched && s.unidentified:
		s.suspect, s.step = resource.ReasonUnreadable, toProbe
	case o.early: // the next server may have another history
		s.step = toProbe
	}
	return s, wait{}
}

// isQuiet reports whether the state is quiet after a step.
func (s state) isQuiet(o stepResult) bool {
	switch {
	case o.watched:
		return o.quiet
	case o.paused || s.step == toList:
		return false
	case o.err == nil: // a probe
		return s.quiet
	}
	reason := reasonOf(o.err)
	return s.quiet && (reason == reasonExpired || reason == reasonClosed)
}

// first returns the state that Run begins with.
func first(from, reached resource.Version, snapshot bool) state {
	s := state{at: at(from)}
	if from == "" && snapshot {
		s = s.list(resource.Relist{Kind: resource.RelistInitial})
		if s.reached = reached; reached != "" {
			s.step = toProbe
		}
	}
	return s
}

// list makes a list of everything due.
func (s state) list(why resource.Relist) state {
	s.step, s.relist, s.listing, s.empty = toList, &why, listFailures{}, emptyWatches{}
	s.unidentified = false
	s.relists++
	return s
}

// move makes a list of one namespace due.
func (s state) move(why resource.Relist) state {
	s.step, s.relist, s.listing = toList, &why, listFailures{}
	return s
}

// listAsOf sets the version as of which a namespace is listed.
func (s state) listAsOf(from resource.Version) state {
	why := *s.relist
	why.From = from
	s.relist = &why
	return s
}

// listed ends a list. The watch continues at a version.
func (s state) listed(at position) state {
	if !s.reached.Newer(at.version) {
		s.rewinds = 0 // it was a restore of etcd
	}
	s.step, s.relist, s.reached, s.at = toWatch, nil, "", at
	return s
}

// locate decides by the server's version.
func (s state) locate(o stepResult) state {
	suspect := s.suspect
	s.suspect = ""
	rewound := resource.Relist{From: s.at.version, To: o.server}
	rewound.Rewind()
	switch {
	case o.diverged && s.at.version != "":
		return s.list(rewound)
	case s.relist != nil && !s.relist.Partial():
		return s.correct(o)
	case s.at.version.Newer(o.server):
		return s.list(rewound)
	case suspect == resource.ReasonExpired && s.empty.closed && o.server == s.at.version:
		s.empty = emptyWatches{} // the server is at our version: nothing can be missing
	case suspect != "":
		return s.list(resource.Relist{
			Reason: suspect, From: s.at.version, To: o.server,
			Quiet: s.quiet && suspect == resource.ReasonExpired,
		})
	}
	if s.step = toWatch; s.relist != nil {
		s.step = toList
	}
	return s
}

// correct adapts a running list to a server whose version has changed. Items of a failed attempt
// may belong to the lost history too.
func (s state) correct(o stepResult) state {
	why := *s.relist
	why.To, why.Quiet = o.server, false // the list before has failed, and no watch is open
	if o.diverged || why.From.Newer(o.server) || s.reached.Newer(o.server) {
		why.Rewind()
	}
	s.step, s.relist = toList, &why
	return s
}

// recover decides the next step after a failed one.
func (s state) recover(o stepResult) (state, wait) {
	watching := s.step == toWatch
	s.step = toProbe
	if watching && s.unidentified {
		s.suspect = resource.ReasonUnreadable
	}
	switch reason := reasonOf(o.err); reason {
	case reasonExpired:
		return s.expired(o, watching)
	case reasonTooLarge:
		s.listing.consistent = true // the server lags, or went back: the probe will show which
	case reasonUnreadable, reasonStoreRead:
		if watching {
			s.suspect = resource.ReasonUnreadable
		}
		if errors.Is(o.err, errVersionless) {
			if s.listing.versionless++; s.listing.versionless >= maxVersionless {
				return s, wait{backoff: true, atLeast: versionlessWait}
			}
		}
	case reasonInconsistent:
		if errors.Is(o.err, errInconsistent) {
			s.listing = s.listing.restart()
		}
	case reasonClosed, reasonServer:
		if watching && errors.Is(o.err, errBroke) {
			s = s.countEmpty(reason == reasonClosed)
		}
		s.listing.consistent = s.listing.consistent || s.relist.Partial() && isNoExact(o.err)
	case reasonConnection, reasonSilent:
		if worked, over := o.worked(); watching && worked {
			return s, wait{startOver: true} // continue at once
		} else if watching && over {
			return s, wait{backoff: true, startOver: true}
		}
	}
	// Whatever it was, a server that was restored from a backup may answer the next request. It
	// would accept a watch from a version that it has not reached, and be silent, and return a list
	// that is older than what is known: so it is probed first.
	return s, wait{backoff: true, atLeast: retryAfter(o.err)}
}

// expired decides the next step after a 410.
func (s state) expired(o stepResult, watching bool) (state, wait) {
	switch {
	case !watching && o.pages == 0:
		s.listing.consistent = true // the server has compacted the requested version
	case !watching:
		s.listing = s.listing.restart()
	case s.at.mayBeIncomplete():
		s.at.complete, s.step = s.at.version, toWatch // there is a later version to try, once
		return s, wait{}
	default:
		s.suspect, s.empty = resource.ReasonExpired, emptyWatches{}
	}
	return s, wait{expiry: !s.quiet}
}

// countEmpty counts a watch that brought nothing.
func (s state) countEmpty(closed bool) state {
	s.empty.closed = closed
	if s.empty.times++; s.empty.times < maxEmptyWatches && !(closed && s.quiet) {
		return s
	}
	s.suspect = resource.ReasonUnreadable
	if closed {
		s.suspect = resource.ReasonExpired
	}
	return s
}

// worked reports, of a watch that broke, whether it had been open for a while, and whether the
// failures before it are over: the backoff must not grow forever for a connection that is cut now
// and then.
func (o stepResult) worked() (long, over bool) {
	broken, ok := errors.AsType[*brokenError](o.err)
	long = ok && o.took > shortWatch
	return long, long || ok && broken.progress
}

// restart makes the next attempt need less of the server's history.
func (l listFailures) restart() listFailures {
	l.restarts++
	l.consistent = l.consistent || l.restarts >= maxRestarts
	l.unpaged = l.restarts > maxRestarts
	return l
}

// fallBack decides whether to list by pages now, after a WatchList failed, and whether to try
// another one. A server may answer an unknown parameter with any error, so after a few of them
// pages are tried too.
func (s state) fallBack(err error) (_ state, pages bool) {
	switch reasonOf(err) {
	case reasonExpired, reasonTooLarge, reasonBusy:
		return s, false // a paged list would get the same answer
	case reasonForbidden:
		return s, true // perhaps only watching is
	}
	s.listing.watchListTries++
	often := s.listing.watchListTries >= maxWatchLists
	s.watchListOff = isNoWatchList(err, often)
	return s, s.watchListOff || often
}

// isNoWatchList reports whether an error is of a server that does not have WatchList, or has
// something before it that breaks it.
func isNoWatchList(err error, often bool) bool {
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok {
		switch status.ErrStatus.Code {
		case http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusUnprocessableEntity:
			return true
		}
		return false // it may be overloaded
	}
	return errors.Is(err, errSilent) || errors.Is(err, errSwallowed) || often &&
		errors.Is(err, errBroke)
}

// isNoExact reports whether an error is of a server that can't return the state as of a version.
func isNoExact(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && (status.ErrStatus.Code == http.StatusBadRequest ||
		status.ErrStatus.Code == http.StatusUnprocessableEntity)
}

// setReached raises the version that the list has reached.
func (s *state) setReached(obj *resource.Object) {
	if s.reached == "" || obj.Version.Newer(s.reached) {
		s.reached = obj.Version
	}
}

// Backoff is the waits between attempts. Zero values mean the default, which is client-go's.
type Backoff struct {
	Initial time.Duration // the first wait; default 800 ms
	Max     time.Duration // the longest, before jitter; default 30 s
	Factor  float64       // from one wait to the next; default 2
	// Jitter makes a wait longer by a random share of it, up to this one, so that many reflectors
	// do not all ask a recovering server at once; default 1, negative for none.
	Jitter float64
}

func (b Backoff) withDefaults() Backoff {
	return Backoff{
		Initial: cmp.Or(b.Initial, 800*time.Millisecond),
		Max:     cmp.Or(b.Max, 30*time.Second),
		Factor:  cmp.Or(b.Factor, 2),
		Jitter:  max(cmp.Or(b.Jitter, 1), 0),
	}
}

// backoff counts failures. It starts over when nothing failed for resetAfter, and not at the first
// success: an object that can't be read makes every list succeed and every watch fail.
type backoff struct {
	Backoff
	// eager: the first failure of a row does not wait.
	eager bool
	next  time.Duration
	last  time.Time // when the last wait ended
}

const resetAfter = 2 * time.Minute

// delay returns how long to wait now.
func (b *backoff) delay() time.Duration {
	now := time.Now()
	if b.next == 0 || now.Sub(b.last) > resetAfter {
		b.next = b.Initial
		if b.eager {
			b.last = now
			return 0
		}
	}
	d := b.next + time.Duration(rand.Float64()*b.Jitter*float64(b.next))
	b.next = min(time.Duration(float64(b.next)*b.Factor), b.Max)
	b.last = now.Add(d)
	return d
}

// startOver forgets the failures so far.
func (b *backoff) startOver() { b.next = 0 }

// position is how far the Store has come in the history.
//
// A version is no unique position: an expired lease deletes up to 1,000 Events at one version. A
// watch that is cut amid them must start before that version again, and leaves out the changes that
// the Store has already.
type position struct {
	// version is that of the last change that the Store took.
	version resource.Version
	// complete is the last version of which the Store has surely taken everything, since a later
	// one was seen.
	complete resource.Version
	// taken are the changes at version that the Store took, while version is not complete.
	taken []changedObject
	// deletion: the last change at version was a delete: only deletes come several at a time from
	// etcd.
	deletion bool
}

// name is a Key in two parts, which costs no allocation.
type name struct{ namespace, name string }

func nameOf(obj *resource.Object) name { return name{obj.Namespace, obj.Name} }

// changedObject is an object that has changed. Where an API server gives a deletion the version of
// the last state, both have one version.
type changedObject struct {
	name
	deletion bool
}

// at returns a position where everything up to v was taken.
func at(v resource.Version) position { return position{version: v, complete: v} }

// has reports whether the Store took this change already.
func (p *position) has(obj *resource.Object, deletion bool) bool {
	return obj.Version == p.version && slices.Contains(p.taken, changedObject{nameOf(obj), deletion})
}

// took records a change.
func (p *position) took(obj *resource.Object, deletion bool) {
	if obj.Version != p.version {
		p.complete, p.version = p.version, obj.Version
		p.taken = p.taken[:0]
	}
	p.taken = append(p.taken, changedObject{nameOf(obj), deletion})
	p.deletion = deletion
}

// mayBeIncomplete reports whether a watch must start before the last version. Only deletes come
// several at a time from etcd. Without one a watch may start at the last version itself. So a quiet
// resource is not listed again for nothing because its last version but one is too old for the
// server.
func (p *position) mayBeIncomplete() bool { return p.complete != p.version && !p.deletion }
