package bridge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/reflector"
)

// Reason is why the bridge is not ready.
type Reason struct {
	// Component is "informer <name>/<resource>", "sink <name>", "namespaces" or "state".
	Component string `json:"component"`
	Message   string `json:"message"`
}

func (r Reason) String() string { return r.Component + ": " + r.Message }

// Ready gives the reasons why the bridge is not ready; none when it is: every informer in sync with the API server, neither stalled nor behind by
// more than its limit, every sink connected and without events that somebody has to make way for, and the last commit written.
func (b *Bridge) Ready() []Reason {
	var reasons []Reason
	note := func(name, message string) {
		if message != "" {
			reasons = append(reasons, Reason{Component: "informer " + name, Message: message})
		}
	}
	for _, u := range b.roster.all() {
		if p := b.pauses.of(kindInformer, u.cfg.Informer); p != nil {
			note(u.name, p.reason(kindInformer, u.cfg.Informer))
			continue
		}
		note(u.name, u.notReady(b.replica.follows()))
	}
	for _, u := range b.roster.lost() {
		note(u.name, u.notReady)
	}
	if why := b.namespacesNotReady(); why != "" {
		reasons = append(reasons, Reason{Component: "namespaces", Message: "it is not known which are selected: " + why})
	}
	if b.replica.follows() {
		reasons = append(reasons, b.replica.notReady()...)
	}
	for _, out := range b.outlets.all() {
		if p := b.pauses.of(kindSink, out.name); p != nil {
			reasons = append(reasons, Reason{Component: "sink " + out.name, Message: p.reason(kindSink, out.name)})
		} else if why := out.notReady(); why != "" && !b.replica.follows() {
			reasons = append(reasons, Reason{Component: "sink " + out.name, Message: why})
		}
	}
	if err := b.stateErr(); err != nil {
		reasons = append(reasons, Reason{Component: "state", Message: err.Error()})
	}
	slices.SortFunc(reasons, func(a, b Reason) int { return strings.Compare(a.Component, b.Component) })
	return reasons
}

// namespacesNotReady returns why the selected namespaces are unknown; "" when they are known, or no
// unit selects any: one that did may have ended.
func (b *Bridge) namespacesNotReady() string {
	selects := func(u *unit) bool { return u.cfg.NamespaceSelector != "" }
	if !slices.ContainsFunc(b.roster.all(), selects) {
		return ""
	}
	return b.namespaces.NotReady()
}

// notReady says why the sink is not ready; "" when it is.
func (o *outlet) notReady() string {
	switch s := o.Status(); {
	case !s.Connected:
		return cmp.Or(s.LastError, "not connected yet")
	case s.Blocked != "":
		return s.Blocked
	default:
		return ""
	}
}

// stallSlack is for a watch that was cut by the watchdog and is being opened again, where its silence means nothing.
const stallSlack = 30 * time.Second

// notReady says why the unit is not ready; "" when it is, or has nothing to be in sync with. Of a standby, what waits for a sink is the leader's
// matter.
func (u *unit) notReady(follows bool) string {
	switch u.leaving() {
	case leavingGone:
		if u.cfg.Named {
			return errGone.Error() + "; it is watched again when it is served again"
		}
		return ""
	case leavingToMove:
		return errMoves.Error() + ": what was read is being sent"
	case leavingChanged:
		return errChanged.Error() + ": what was read is being sent"
	case staying:
	}
	r, i := u.reflector.Status(), u.informer.Status()
	switch quiet := r.Quiet(); {
	case r.Phase == reflector.Selecting:
		return "not in sync yet: it is not known which namespaces are selected"
	case r.LastError != "":
		return r.LastError
	case !u.synced(&r):
		return fmt.Sprintf("not in sync yet (%s, %d objects listed)", r.Phase, r.Items)
	case i.Log.DiskFull:
		return fmt.Sprintf("the log on disk is full (%d bytes): reading stops until a sink has taken something", i.Log.DiskBytes)
	case u.watchdog > 0 && quiet > u.watchdog+stallSlack:
		return fmt.Sprintf("stalled: neither event nor bookmark from the API server for %v (kubernetes.watchIdleTimeout is %v)", quiet.Round(time.Second), u.watchdog)
	}
	if follows {
		return ""
	}
	return u.lagging(&i)
}

// synced says whether the unit is in sync: everything was read, and what was read is in the log.
func (u *unit) synced(r *reflector.Status) bool { return r.Synced && u.informer.HasSynced() }

// lagging says which sink is behind by more than the limit; "" for none.
func (u *unit) lagging(s *informer.Status) string {
	for _, l := range s.Listeners {
		if waited := age(l.Oldest); u.cfg.Lag > 0 && waited > u.cfg.Lag {
			return fmt.Sprintf("lags: the oldest change waits for sink %s for %v (lag is %v)", l.Sink, waited.Round(time.Second), u.cfg.Lag)
		}
	}
	return ""
}

// stateErr is what is wrong with the state directory: with the disk, or else with the last commit.
func (b *Bridge) stateErr() error { return cmp.Or(b.cfg.DB.Health(), b.committer.Err()) }
