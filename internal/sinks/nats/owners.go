package nats

import (
	"slices"
	"sync"
	"time"
)

// StreamOwners has which sinks of a process publish to which streams. A stream stores each
// Nats-Msg-Id once, and the id names the informer and the event of a message, not the sink: of two
// sinks that get events of one informer, each would lose what the other has stored. The
// configuration is checked for that by the names in it. It can't see that two names are of one
// server; Open can, by the stream's name and time of creation.
type StreamOwners struct {
	mu   sync.Mutex
	last uint64        // guarded by mu: the newest number
	list []streamOwner // guarded by mu, in the order of arrival
}

type streamOwner struct {
	name    string
	created time.Time // with the name distinguishes the stream from all others
	sink    *Sink
	number  uint64
}

// claim adds a sink that is about to publish to a stream. The error names another sink that was
// there before it and gets events of the same informer.
func (o *StreamOwners) claim(st *stream, s *Sink) error {
	if o == nil || s.cfg.Informers == nil {
		return nil
	}
	before, number := o.add(st, s)
	for _, other := range before {
		if other.cfg.Sink == s.cfg.Sink { // the same sink, whose place this one takes
			continue
		}
		if informer := common(other.cfg.Informers(), s.cfg.Informers()); informer != "" {
			o.remove(func(in streamOwner) bool { return in.number == number })
			return operatorError("stream %s is that of sink %s too, and informer %s feeds both: "+
				"the stream "+
				"takes each event once, and would drop what the other sink has stored. Set "+
				"nats.stream.name "+
				"to a stream of its own, and nats.subject to subjects that do not overlap with "+
				"those of %s",
				st.name, other.cfg.Sink, informer, other.cfg.Sink)
		}
	}
	return nil
}

// add returns the sinks that publish to the stream already.
func (o *StreamOwners) add(st *stream, s *Sink) (before []*Sink, number uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, in := range o.list {
		if in.name != st.name || !in.created.Equal(st.created) {
			continue
		}
		if in.sink == s {
			number = in.number // it tries again
		} else {
			before = append(before, in.sink)
		}
	}
	if number == 0 {
		o.last++
		number = o.last
		o.list = append(o.list, streamOwner{st.name, st.created, s, number})
	}
	return before, number
}

// release removes a sink that was closed.
func (o *StreamOwners) release(s *Sink) {
	if o != nil {
		o.remove(func(in streamOwner) bool { return in.sink == s })
	}
}

func (o *StreamOwners) remove(which func(streamOwner) bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list = slices.DeleteFunc(o.list, which)
}

// common returns a name that is in both lists, "" for none.
func common(a, b []string) string {
	if i := slices.IndexFunc(a, func(name string) bool {
		return slices.Contains(b,
			name)
	}); i >= 0 {
		return a[i]
	}
	return ""
}
