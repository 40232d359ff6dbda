package sinks

import (
	"slices"
	"sync"
	"time"
)

// Owners has which sinks of a process publish to which streams. A stream stores each Nats-Msg-Id
// once, and the id names the informer and the event of a message, not the sink: of two sinks that
// get events of one informer, each would lose what the other has stored. The configuration is
// checked for that by the names in it. It can't see that two names are of one server; Open can, by
// the stream's name and time of creation.
type Owners struct {
	mu   sync.Mutex
	last uint64        // guarded by mu: the newest number
	list []streamOwner // guarded by mu, in the order of arrival
}

// Owner is a sink that publishes to streams.
type Owner struct {
	Name string
	// Informers returns the sink's current informers; nil: not known.
	Informers func() []string
}

type streamOwner struct {
	stream  string
	created time.Time // with the name distinguishes the stream from all others
	owner   *Owner
	number  uint64
}

// Claim adds a sink that is about to publish to a stream. When another sink was there before it
// and gets events of the same informer, Claim adds nothing and returns both names.
func (o *Owners) Claim(stream string, created time.Time, by *Owner) (other, informer string) {
	if o == nil || by.Informers == nil {
		return "", ""
	}
	before, number := o.register(stream, created, by)
	for _, other := range before {
		if other.Name == by.Name { // the same sink, whose place this one takes
			continue
		}
		if informer := common(other.Informers(), by.Informers()); informer != "" {
			o.remove(func(in streamOwner) bool { return in.number == number })
			return other.Name, informer
		}
	}
	return "", ""
}

// register returns the sinks that publish to the stream already.
func (o *Owners) register(
	stream string, created time.Time, by *Owner,
) (before []*Owner, number uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, in := range o.list {
		if in.stream != stream || !in.created.Equal(created) {
			continue
		}
		if in.owner == by {
			number = in.number // it tries again
		} else {
			before = append(before, in.owner)
		}
	}
	if number == 0 {
		o.last++
		number = o.last
		o.list = append(o.list, streamOwner{stream, created, by, number})
	}
	return before, number
}

// Release removes a sink that was closed.
func (o *Owners) Release(by *Owner) {
	if o != nil {
		o.remove(func(in streamOwner) bool { return in.owner == by })
	}
}

func (o *Owners) remove(which func(streamOwner) bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list = slices.DeleteFunc(o.list, which)
}

// common returns a name that is in both lists, "" for none.
func common(a, b []string) string {
	if i := slices.IndexFunc(a, func(name string) bool { return slices.Contains(b, name) }); i >= 0 {
		return a[i]
	}
	return ""
}
