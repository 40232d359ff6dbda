package sinkmaker

import (
	"slices"
	"sync/atomic"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/sinks/nats"
)

// Feeds has which informers feed which sinks by the current configuration: a sink that stays open
// when that changes asks again. It has the streams of the sinks too, and outlives a reload.
type Feeds struct {
	config atomic.Pointer[config.Config]
	owners nats.StreamOwners
}

// NewFeeds are the feeds of a configuration.
func NewFeeds(c *config.Config) *Feeds {
	f := &Feeds{}
	f.config.Store(c)
	return f
}

// informersOf gives the names of a sink's informers at the time of its call; nil where nobody
// knows.
func (f *Feeds) informersOf(sink string) func() []string {
	if f == nil {
		return nil
	}
	return func() (names []string) {
		for _, inf := range f.config.Load().Informers {
			if slices.ContainsFunc(inf.Sinks,
				func(b config.Binding) bool { return b.Name == sink }) {
				names = append(names, inf.Name)
			}
		}
		return names
	}
}

// streamOwners returns the streams of all sinks that are open; nil where nobody knows.
func (f *Feeds) streamOwners() *nats.StreamOwners {
	if f == nil {
		return nil
	}
	return &f.owners
}

// lostByCompaction says what a compacted topic loses of a sink's events, at the time of its call;
// nil where nobody knows.
func (f *Feeds) lostByCompaction(sink string) func() string {
	if f == nil {
		return nil
	}
	return func() string { return f.config.Load().LostByCompaction(sink) }
}

// SetConfig makes it those of another configuration.
func (f *Feeds) SetConfig(c *config.Config) {
	if f != nil {
		f.config.Store(c)
	}
}
