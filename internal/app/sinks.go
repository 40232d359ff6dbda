package app

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/sinks"
)

// newSink makes a sink, and the server that has to run for it, nil for none. It starts nothing.
// sinkProblems reports what the error is about.
func newSink(s *config.Sink, env sinks.Env) (sinks.Sink, sinks.Service, error) {
	env.Log = env.Log.With("sink", s.Name)
	_, section := s.Section()
	return section.New(s.Common(), &env)
}

// feeds has which informers feed which sinks by the current configuration: a sink that stays open
// when that changes asks again. It has the streams of the sinks too, and outlives a reload.
type feeds struct {
	config atomic.Pointer[config.Config]
	owners sinks.Owners
}

func newFeeds(c *config.Config) *feeds {
	f := &feeds{}
	f.config.Store(c)
	return f
}

func (f *feeds) addTo(env *sinks.Env, sink string) {
	env.Owners = &f.owners
	env.Informers = func() (names []string) {
		for _, inf := range f.config.Load().Informers {
			if slices.ContainsFunc(inf.Sinks,
				func(b config.Binding) bool { return b.Name == sink }) {
				names = append(names, inf.Name)
			}
		}
		return names
	}
	env.Section = func(name string) sinks.Section {
		for _, s := range f.config.Load().Sinks {
			if s.Name == name {
				_, section := s.Section()
				return section
			}
		}
		return nil
	}
	env.LostByCompaction = func() string { return f.config.Load().LostByCompaction(sink) }
}

// setConfig makes it the feeds of another configuration.
func (f *feeds) setConfig(c *config.Config) {
	if f != nil {
		f.config.Store(c)
	}
}

// sinkTarget is a short digest of where at its broker a sink sends to. The replicas of a bridge
// compare it. "" for a sink without a connection.
func sinkTarget(s *config.Sink) string {
	_, section := s.Section()
	remote, ok := section.(sinks.Remote)
	if !ok {
		return ""
	}
	where := remote.Target()
	if where == nil {
		return ""
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", where))
	return hex.EncodeToString(sum[:4])
}

// sinkProblems are what is wrong with the sink of a number, each with its place in the file: the
// key's where that is known, else the sink's.
func sinkProblems(c *config.Config, number int, err error) (problems []error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range joined.Unwrap() {
			problems = append(problems, sinkProblems(c, number, one)...)
		}
		return problems
	}
	sink := &c.Sinks[number]
	path := fmt.Sprintf("sinks[%d]", number)
	if about, ok := errors.AsType[*sinks.KeyError](err); ok {
		key, _ := sink.Section()
		return c.ProblemsAt(path+"."+key+"."+about.Key, about.Err)
	}
	if err != nil {
		err = fmt.Errorf("sink %s: %w", sink.Name, err)
	}
	return c.ProblemsAt(path, err)
}
