package nats

import (
	"slices"
	"sync"
	"time"
)

// tenants are the streams that sinks of this process publish to. A stream takes each Nats-Msg-Id once, and that says of which informer and event a
// message is, not of which sink: two sinks that get events of one informer lose what the other has stored. The configuration is checked for that
// by the names in it; what names don't tell (two servers of one cluster), the stream itself does.
var tenants tenancy

type tenancy struct {
	mu    sync.Mutex
	count uint64
	list  []tenant // guarded by mu, in the order in which they came
}

type tenant struct {
	name    string
	created time.Time // with the name tells the stream from all others
	sink    *Sink
	number  uint64
}

// enter notes that a sink is about to publish to a stream. An error says which other sink was there before it and gets events of the same informer.
func (t *tenancy) enter(st *stream, s *Sink) error {
	if s.cfg.Informers == nil {
		return nil
	}
	before, number := t.add(st, s)
	for _, other := range before {
		// One of the same name is the one whose place it takes.
		if other.cfg.Sink == s.cfg.Sink {
			continue
		}
		if informer := common(other.cfg.Informers(), s.cfg.Informers()); informer != "" {
			t.remove(func(in tenant) bool { return in.number == number })
			return operators("stream %s is that of sink %s too, and informer %s feeds both: the stream takes each event once, and would drop what the other sink has stored. "+
				"Set nats.stream.name to a stream of its own, and nats.subject to subjects that do not overlap with those of %s",
				st.name, other.cfg.Sink, informer, other.cfg.Sink)
		}
	}
	return nil
}

// add gives the sinks that publish to the stream already.
func (t *tenancy) add(st *stream, s *Sink) (before []*Sink, number uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, in := range t.list {
		if in.sink == s && in.name == st.name && in.created.Equal(st.created) {
			number = in.number // it tries again
		}
		if in.sink != s && in.name == st.name && in.created.Equal(st.created) {
			before = append(before, in.sink)
		}
	}
	if number == 0 {
		t.count++
		number = t.count
		t.list = append(t.list, tenant{st.name, st.created, s, number})
	}
	return before, number
}

// leave is for a sink that was closed.
func (t *tenancy) leave(s *Sink) {
	t.remove(func(in tenant) bool { return in.sink == s })
}

func (t *tenancy) remove(which func(tenant) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.list = slices.DeleteFunc(t.list, which)
}

// common is a name that is in both lists, "" for none.
func common(a, b []string) string {
	if i := slices.IndexFunc(a, func(name string) bool { return slices.Contains(b, name) }); i >= 0 {
		return a[i]
	}
	return ""
}
