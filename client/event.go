package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/cloudevents/sdk-go/v2/binding/spec"
	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Types of events. Those of objects may also be Knative's.
const (
	TypeAdded    = "dev.kubebridge.resource.added"
	TypeUpdated  = "dev.kubebridge.resource.updated"
	TypeDeleted  = "dev.kubebridge.resource.deleted"
	TypeResynced = "dev.kubebridge.resource.synced"
	// TypeAttributed says who made a change whose event came before, by its authenticated user.
	TypeAttributed  = "dev.kubebridge.resource.attributed"
	TypeSynced      = "dev.kubebridge.informer.synced"
	TypeGap         = "dev.kubebridge.informer.gap"
	TypeProgress    = "dev.kubebridge.informer.progress"
	TypeQuarantined = "dev.kubebridge.informer.quarantined"
	// TypeLost is made by this package: messages that were not read are gone from the source. It
	// has no attributes but its type.
	TypeLost = "dev.kubebridge.client.lost"
)

// Event is one CloudEvent, as the CloudEvents SDK has it, and where it was read.
type Event struct {
	cloudevents.Event
	// Position is behind the event: Events continues from it.
	Position Position
}

// Attribute returns an attribute of an event as text, by its name in CloudEvents; "" where it has
// none of this name.
func (e *Event) Attribute(name string) string {
	var value any
	if attribute := spec.V1.Attribute(name); attribute != nil {
		value = attribute.Get(e.Context)
	} else if c, ok := e.Context.(*cloudevents.EventContextV1); ok {
		value = c.Extensions[name]
	}
	text, err := types.Format(value)
	if err != nil {
		return "" // it is nil
	}
	return text
}

// AboutObject reports whether the event is about an object, and not about an informer.
func (e *Event) AboutObject() bool {
	return !strings.HasPrefix(e.Type(), "dev.kubebridge.informer.") && e.Type() != TypeLost
}

// IsDelete reports whether the object of the event is gone.
func (e *Event) IsDelete() bool {
	return e.AboutObject() && (strings.HasSuffix(e.Type(), ".deleted") ||
		strings.HasSuffix(e.Type(), ".delete"))
}

// Resource returns what the event is about.
func (e *Event) Resource() schema.GroupResource {
	group, _, ok := strings.Cut(e.Attribute("apiversion"), "/")
	if !ok {
		group = ""
	}
	return schema.GroupResource{Group: group, Resource: e.Attribute("resource")}
}

// key of the object: namespace and name.
func (e *Event) key() string { return e.Attribute("namespace") + "/" + e.Attribute("name") }

// identity returns the same for two messages of one event.
func (e *Event) identity() string {
	return e.Source() + " " + e.Attribute("informer") + " " + e.ID()
}

// unit returns the informer's share of a resource that an event about an informer is about: its id
// begins with that.
func (e *Event) unit() string {
	what := "/" + e.Type()[strings.LastIndexByte(e.Type(), '.')+1:] + "/"
	unit, _, _ := strings.Cut(e.ID(), what)
	return unit
}

// Position is a place in a source, as text to keep. "" is the beginning.
type Position string

// maxIdentities is how many events Events remembers to drop repeats. A repeat comes soon after the
// event: it was sent again after a crash or an outage.
const maxIdentities = 1 << 16

// Events yields the events of a source behind a position, and then those that come, until ctx ends
// or the caller breaks. Keep the Position of an event with the effect that the event had: a program
// that continues from it misses nothing, and repeats nothing but what had no effect yet.
//
// A repeat of an event is dropped, also one of an event before the position. Gaps are events; where
// a topic has partitions, each partition has a copy, before the events of this partition that heal
// the gap. Events of different partitions come in any order. Where the source has dropped messages
// that were not read, or was recreated, an event of TypeLost comes first. An error ends the
// sequence; a later call with the last Position continues.
func (s Source) Events(ctx context.Context, from Position) iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		r := &eventReader{source: s, yield: yield, seen: map[uint64]struct{}{}, seed: maphash.MakeSeed()}
		if err := r.run(ctx, from); err != nil && !errors.Is(err, errStopped) && ctx.Err() == nil {
			yield(nil, err)
		}
	}
}

var (
	errStopped  = errors.New("the caller has stopped")
	errRecalled = errors.New("what came before the position is remembered")
)

// eventReader is one call of Events.
type eventReader struct {
	source Source
	yield  func(*Event, error) bool
	read   readOffsets

	seed maphash.Seed
	seen map[uint64]struct{}
	list []uint64 // of seen, in their order
	next int      // the place in list of the next one, once it is full
}

// isRepeat reports whether an event was seen before, and remembers it.
func (r *eventReader) isRepeat(e *Event) bool {
	hash := maphash.String(r.seed, e.identity())
	if _, ok := r.seen[hash]; ok {
		return true
	}
	if len(r.list) < maxIdentities {
		r.list = append(r.list, hash)
	} else {
		delete(r.seen, r.list[r.next])
		r.list[r.next] = hash
		r.next = (r.next + 1) % maxIdentities
	}
	r.seen[hash] = struct{}{}
	return false
}

func (r *eventReader) run(ctx context.Context, from Position) (err error) {
	if _, isArchive := r.source.backend.(*archive); isArchive {
		return fmt.Errorf("%s: %w", r.source, errNoEvents)
	}
	if r.read, err = from.parse(); err != nil {
		return err
	}
	now, err := r.source.extents(ctx)
	if err != nil {
		return err
	}
	if err := r.begin(now); err != nil {
		return err
	}
	if err := r.recall(ctx, now); err != nil {
		return err
	}
	for {
		r.read.add(now)
		err := r.source.read(ctx, r.read, now, r.take)
		if !errors.Is(err, errGrown) {
			return err
		}
		if now, err = r.source.extents(ctx); err != nil {
			return err
		}
	}
}

// begin compares the position with what the source has. It yields what is lost.
func (r *eventReader) begin(now map[partition]extent) error {
	isLost := false
	for p, at := range r.read {
		holds, ok := now[p]
		switch {
		case !ok:
			delete(r.read, p)
		case holds.id != at.id || at.next > holds.next:
			r.read[p] = readOffset{id: holds.id}
		case !r.source.isState && at.next > 0 && holds.first > at.next:
			r.read[p] = readOffset{id: holds.id, next: holds.first}
		default:
			continue
		}
		isLost = true
	}
	lost := &Event{Event: cloudevents.New(), Position: r.read.position()}
	lost.SetType(TypeLost)
	if isLost && !r.yield(lost, nil) {
		return errStopped
	}
	return nil
}

// recall reads what came before the position, so that its repeats are known.
func (r *eventReader) recall(ctx context.Context, now map[partition]extent) error {
	before, until := readOffsets{}, map[partition]int64{}
	for p, holds := range now {
		before[p] = readOffset{id: holds.id, next: holds.next}
		at := r.read[p].next
		first := max(holds.first, at-maxIdentities/int64(len(now)))
		if first < at {
			before[p], until[p] = readOffset{id: holds.id, next: first}, at
		}
	}
	if len(until) == 0 {
		return nil
	}
	err := r.source.read(ctx, before, now, func(m *message, isAtEnd bool) error {
		if m != nil && m.offset < until[m.partition] && m.event != nil {
			r.isRepeat(m.event)
		}
		if m != nil && m.offset+1 >= until[m.partition] {
			delete(until, m.partition)
		}
		if len(until) == 0 || isAtEnd {
			return errRecalled
		}
		return nil
	})
	if errors.Is(err, errRecalled) {
		return nil
	}
	return err
}

func (r *eventReader) take(m *message, _ bool) error {
	switch {
	case m == nil:
		return nil
	case m.err != nil:
		return m.err
	case m.event == nil || r.isRepeat(m.event):
		return nil
	}
	m.event.Position = r.read.position()
	if !r.yield(m.event, nil) {
		return errStopped
	}
	return nil
}

// position is <topic>/<partition>@<id>:<next> of each partition. The id is there because a stream
// or topic that was recreated under its name has the same offsets.
func (m readOffsets) position() Position {
	var text []byte
	for _, p := range slices.SortedFunc(maps.Keys(m), func(a, b partition) int {
		return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.number, b.number))
	}) {
		if len(text) > 0 {
			text = append(text, ',')
		}
		text = fmt.Appendf(text, "%s/%d@%s:%d", p.topic, p.number, m[p].id, m[p].next)
	}
	return Position(text)
}

func (p Position) parse() (readOffsets, error) {
	found := readOffsets{}
	if p == "" {
		return found, nil
	}
	for text := range strings.SplitSeq(string(p), ",") {
		lane, at, hasOffset := strings.Cut(text, "@")
		topic, number, hasNumber := strings.Cut(lane, "/")
		id, next, hasNext := strings.Cut(at, ":")
		of, numberErr := strconv.ParseInt(number, 10, 32)
		offset, offsetErr := strconv.ParseInt(next, 10, 64)
		if !hasOffset || !hasNumber || !hasNext || numberErr != nil || offsetErr != nil {
			return nil, fmt.Errorf("position %q is none that Events gave", string(p))
		}
		found[partition{topic, int32(of)}] = readOffset{id, offset}
	}
	return found, nil
}
