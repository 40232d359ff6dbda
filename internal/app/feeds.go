package app

import (
	"slices"
	"sync/atomic"

	"github.com/kubebridge/bridge/config"
)

// feeds says which informers feed which sinks, as the configuration is now: a sink that stays open when that changes asks again.
type feeds struct{ config atomic.Pointer[config.Config] }

func newFeeds(c *config.Config) *feeds {
	f := &feeds{}
	f.config.Store(c)
	return f
}

// of gives the names of a sink's informers at the time of its call; nil where nobody knows.
func (f *feeds) of(sink string) func() []string {
	if f == nil {
		return nil
	}
	return func() (names []string) {
		for _, inf := range f.config.Load().Informers {
			if slices.ContainsFunc(inf.Sinks, func(b config.Binding) bool { return b.Name == sink }) {
				names = append(names, inf.Name)
			}
		}
		return names
	}
}

// follow makes it those of another configuration.
func (f *feeds) follow(c *config.Config) {
	if f != nil {
		f.config.Store(c)
	}
}
