// Package tail lets people look at events while they are settled.
//
// It takes in the items that publishers settle, and hands on copies of them to whoever watches at
// that moment: the attributes, and the payload as it was sent where that is asked for. What the
// configuration takes out of objects was taken out long before.
//
// What it promises: no stage waits for those who look. Without a Watcher, Settled is one
// atomic load. With one, what its filter lets through is copied into its buffer, which is bounded
// in events and bytes; what does not fit is counted, and Next returns the count. So a Watcher sees
// events in the order in which they were settled, of each sink, but perhaps not all of them.
//
// It has no goroutine; nobody starts or stops it.
package tail

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/ext"
	"github.com/google/cel-go/interpreter"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/event/filter"
	"github.com/kubebridge/bridge/internal/metric"
	"github.com/kubebridge/bridge/internal/publisher"
)

// MaxWatchers is how many may look at once.
const MaxWatchers = 8

// ErrTooMany is returned by Watch when MaxWatchers look already.
var ErrTooMany = errors.New("too many are looking at the events already; close another page")

// Hub shows what publishers settle to its Watchers. Its methods may be called concurrently.
type Hub struct {
	// watchers is replaced and never changed; nil when nobody looks.
	watchers atomic.Pointer[[]*Watcher]
	mu       sync.Mutex // guards replacing watchers
	dropped  *metric.Counter
}

// New makes a Hub that nobody looks at. The registerer may be nil.
func New(registerer prometheus.Registerer) *Hub {
	m := metric.With(registerer)
	h := &Hub{dropped: m.Counter("bridge_tail_dropped_total",
		"Events that were not shown to somebody who looks at the live tail, since the buffer was "+
			"full. The sinks have them.")}
	m.GaugeFunc("bridge_tail_watchers", "Who looks at the live tail of events.",
		func() float64 { return float64(len(h.looking())) })
	return h
}

func (h *Hub) looking() []*Watcher {
	if all := h.watchers.Load(); all != nil {
		return *all
	}
	return nil
}

// Settled shows items of a sink to those who look. It never waits; it keeps nothing of the items.
func (h *Hub) Settled(sink string, items []*publisher.Item) {
	for _, w := range h.looking() {
		w.settled(sink, items)
	}
}

// Watch begins to look. Close ends it.
func (h *Hub) Watch(o Options) (*Watcher, error) {
	filter, err := ParseFilter(o.Filter)
	if err != nil {
		return nil, err
	}
	w := &Watcher{hub: h, filter: filter, payload: o.Payload, ready: make(chan struct{}, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.looking()
	if len(now) >= MaxWatchers {
		return nil, ErrTooMany
	}
	h.watchers.Store(new(append(slices.Clip(slices.Clone(now)), w)))
	return w, nil
}

func (h *Hub) leave(w *Watcher) {
	h.mu.Lock()
	defer h.mu.Unlock()
	left := slices.DeleteFunc(slices.Clone(h.looking()),
		func(other *Watcher) bool { return other == w })
	if len(left) == 0 {
		h.watchers.Store(nil)
		return
	}
	h.watchers.Store(&left)
}

// Bounds of the queue of one Watcher.
const (
	maxEvents = 1024
	maxBytes  = 4 << 20
)

// Options of a Watcher.
type Options struct {
	// Filter is what to show; see ParseFilter.
	Filter string
	// Payload shows the payload too, as far as MaxPayload.
	Payload bool
}

// Watcher is somebody who looks. Next and Close are for one goroutine.
type Watcher struct {
	hub     *Hub
	filter  Filter
	payload bool
	ready   chan struct{} // a token: there is something for Next

	mu      sync.Mutex // guards all below; held while events are copied
	events  []Event
	bytes   int
	dropped int
}

// Batch is what happened since the last one.
type Batch struct {
	// Events in the order in which each sink settled them.
	Events []Event `json:"events"`
	// Dropped are the events that the filter lets through and the buffer had no room for, before
	// those of Events or between them.
	Dropped int `json:"dropped"`
}

// Next waits for something to show, until ctx ends.
func (w *Watcher) Next(ctx context.Context) (Batch, error) {
	select {
	case <-w.ready:
	case <-ctx.Done():
		return Batch{}, context.Cause(ctx)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	b := Batch{Events: w.events, Dropped: w.dropped}
	w.events, w.bytes, w.dropped = nil, 0, 0
	return b, nil
}

// Close ends the looking.
func (w *Watcher) Close() { w.hub.leave(w) }

// settled copies what is to be shown.
func (w *Watcher) settled(sink string, items []*publisher.Item) {
	var shown []*publisher.Item
	for _, it := range items {
		if w.filter.match(sink, it) {
			shown = append(shown, it)
		}
	}
	if len(shown) == 0 {
		return
	}
	dropped := 0
	w.mu.Lock()
	for _, it := range shown {
		if e := w.copyOf(sink, it); len(w.events) < maxEvents && w.bytes+e.size() <= maxBytes {
			w.events = append(w.events, e)
			w.bytes += e.size()
		} else {
			dropped++
		}
	}
	w.dropped += dropped
	w.mu.Unlock()
	w.hub.dropped.Add(float64(dropped))
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

// MaxPayload is how much of a payload is shown, in bytes.
const MaxPayload = 16 << 10

// Event is a copy of what was settled.
type Event struct {
	// Sink that settled it, and how: acknowledged, recalled, dead-letter, lost.
	Sink    string            `json:"sink"`
	Outcome publisher.Outcome `json:"outcome"`
	// Settled is when; Seconds how long after the bridge had observed the change.
	Settled time.Time `json:"settled"`
	Seconds float64   `json:"seconds"`
	// Attempts to publish it.
	Attempts int `json:"attempts"`
	// Bytes of the whole payload, before a smaller form took its place.
	Bytes int `json:"bytes"`

	ID        string `json:"id"`
	Type      string `json:"type"`
	Op        string `json:"op"`
	Informer  string `json:"informer"`
	Subject   string `json:"subject"`
	Resource  string `json:"resource"` // "deployments.apps"
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	Version   string `json:"version,omitempty"`
	Manager   string `json:"manager,omitempty"`
	Initial   bool   `json:"initial,omitempty"`
	Inferred  bool   `json:"inferred,omitempty"`

	// Payload as text, where it was asked for; Truncated when it is not all of it.
	Payload   string `json:"payload,omitempty"`
	Truncated bool   `json:"truncated,omitempty"`
}

// size is what the event costs while it waits.
func (e *Event) size() int {
	const fixed = 512
	return fixed + len(e.ID) + len(e.Subject) + len(e.Payload)
}

// copyOf copies what is shown of an item. The item's strings may share memory with the object,
// which must not be kept for them.
func (w *Watcher) copyOf(sink string, it *publisher.Item) Event {
	from, now := it.Message.Event, time.Now()
	e := Event{
		Sink: sink, Outcome: it.Outcome(), Settled: now, Attempts: it.Attempts(),
		Bytes: len(from.Data),
		ID:    strings.Clone(from.ID), Type: from.Type, Op: string(from.Op),
		Informer: from.Informer,
		Subject:  strings.Clone(from.Subject), Resource: qualified(from),
		Namespace: strings.Clone(from.Namespace), Name: strings.Clone(from.Name),
		Version: strings.Clone(from.ResourceVersion), Manager: strings.Clone(from.Manager),
		Initial: from.Initial, Inferred: from.Inferred,
	}
	if !from.Observed.IsZero() {
		e.Seconds = now.Sub(from.Observed).Seconds()
	}
	if w.payload {
		e.Payload, e.Truncated = beginning(from.Data)
	}
	return e
}

// qualified is "pods", "deployments.apps".
func qualified(e *event.Event) string {
	if e.Group == "" {
		return e.Resource
	}
	return e.Resource + "." + e.Group
}

// beginning copies as much of a payload as is shown, without half a character.
func beginning(data []byte) (text string, truncated bool) {
	if len(data) <= MaxPayload {
		return string(data), false
	}
	end := MaxPayload
	for end > 0 && !utf8.RuneStart(data[end]) {
		end--
	}
	return string(data[:end]), true
}

// costLimit bounds one evaluation, in units of CEL: a comparison is about one.
const costLimit = 10_000

// Filter says which events are shown.
type Filter struct{ program cel.Program } // nil: all

// environment has the variables of a filter in the configuration that an event knows, under their
// names there, and what only somebody who looks at a sink can ask for.
var environment = sync.OnceValues(func() (*cel.Env, error) {
	options := []cel.EnvOption{ext.Strings(), cel.EagerlyValidateDeclarations(true)}
	for kind, names := range map[*cel.Type][]string{
		cel.StringType: {
			"op", "meta.kind", "meta.apiVersion", "meta.group", "meta.resource", "meta.namespace",
			"meta.name",
			"meta.uid", "meta.resourceVersion", "meta.manager", "sink", "outcome", "informer", "id", "type",
			"subject",
		},
		cel.BoolType: {"meta.initial", "meta.inferred"},
		cel.IntType:  {"attempts", "bytes"},
	} {
		for _, name := range names {
			options = append(options, cel.Variable(name, kind))
		}
	}
	return cel.NewEnv(options...)
})

// ParseFilter reads a CEL condition, such as meta.resource == "pods" && op != "updated". Events for
// which it fails are shown. "" shows everything.
func ParseFilter(text string) (Filter, error) {
	if text == "" {
		return Filter{}, nil
	}
	env, err := environment()
	if err != nil {
		return Filter{}, fmt.Errorf("CEL: %w", err)
	}
	checked, issues := env.Compile(text)
	if issues.Err() != nil {
		return Filter{}, fmt.Errorf("filter: %w", filter.Describe(text, issues))
	}
	if out := checked.OutputType(); !out.IsExactType(cel.BoolType) {
		return Filter{}, fmt.Errorf("filter: want a condition, which is true or "+
			"false; this is of type %s", out)
	}
	program, err := env.Program(checked, cel.EvalOptions(cel.OptOptimize), cel.CostLimit(costLimit))
	return Filter{program}, err
}

// match reports whether an item of a sink is shown.
func (f Filter) match(sink string, it *publisher.Item) bool {
	if f.program == nil {
		return true
	}
	out, _, err := f.program.Eval(&variables{sink, it})
	return err != nil || out == types.True
}

// variables gives a filter what it names of an item of a sink.
type variables struct {
	sink string
	item *publisher.Item
}

// ResolveName implements interpreter.Activation.
func (v *variables) ResolveName(name string) (any, bool) {
	e := v.item.Message.Event
	switch name {
	case "op":
		return string(e.Op), true
	case "meta.kind":
		return e.Kind, true
	case "meta.apiVersion":
		return e.APIVersion, true
	case "meta.group":
		return e.Group, true
	case "meta.resource":
		return e.Resource, true
	case "meta.namespace":
		return e.Namespace, true
	case "meta.name":
		return e.Name, true
	case "meta.uid":
		return e.UID, true
	case "meta.resourceVersion":
		return e.ResourceVersion, true
	case "meta.manager":
		return e.Manager, true
	case "meta.initial":
		return e.Initial, true
	case "meta.inferred":
		return e.Inferred, true
	case "sink":
		return v.sink, true
	case "outcome":
		return string(v.item.Outcome()), true
	case "informer":
		return e.Informer, true
	case "id":
		return e.ID, true
	case "type":
		return e.Type, true
	case "subject":
		return e.Subject, true
	case "attempts":
		return v.item.Attempts(), true
	case "bytes":
		return len(e.Data), true
	}
	return nil, false
}

func (v *variables) Parent() interpreter.Activation { return nil }
