package bridge

import (
	"cmp"
	"slices"
	"strings"

	"github.com/kubebridge/bridge/internal/informer"
)

// Ready returns the reasons why the bridge is not ready. It is ready when every informer is in sync
// with the API server, neither stalled nor behind by more than its limit, every sink is connected
// and not blocked by an event, and the last commit was written.
func (b *Bridge) Ready() []Reason {
	var reasons []Reason
	note := func(name, message string) {
		if message != "" {
			reasons = append(reasons, Reason{Component: "informer " + name, Message: message})
		}
	}
	for _, u := range b.pipelines.all() {
		if p := b.pauses.of(kindInformer, u.Config().Informer); p != nil {
			note(u.Name(), pausedReason(p, kindInformer, u.Config().Informer))
			continue
		}
		note(u.Name(), u.NotReady(b.replica.follows()))
	}
	for _, u := range b.pipelines.retired() {
		note(u.name, u.notReady)
	}
	if why := b.namespacesNotReady(); why != "" {
		reasons = append(reasons, Reason{
			Component: "namespaces",
			Message:   "it is not known which are selected: " + why,
		})
	}
	if b.replica.follows() {
		reasons = append(reasons, b.replica.notReady()...)
	}
	for _, out := range b.sinks.all() {
		if p := b.pauses.of(kindSink, out.name); p != nil {
			reasons = append(reasons, Reason{
				Component: "sink " + out.name,
				Message:   pausedReason(p, kindSink, out.name),
			})
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
	selects := func(u *informer.Informer) bool { return u.Config().NamespaceSelector != "" }
	if !slices.ContainsFunc(b.pipelines.all(), selects) {
		return ""
	}
	return b.namespaces.NotReady()
}

// notReady says why the sink is not ready; "" when it is.
func (o *sinkRunner) notReady() string {
	switch s := o.publisher.Status(); {
	case !s.Connected:
		return cmp.Or(s.LastError, "not connected yet")
	case s.Blocked != "":
		return s.Blocked
	default:
		return ""
	}
}

// stateErr is what is wrong with the state directory: with the disk, or else with the last commit.
func (b *Bridge) stateErr() error { return cmp.Or(b.cfg.DB.Database().Health(), b.committer.Err()) }
