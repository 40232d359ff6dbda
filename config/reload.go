// Package reload decides which configuration a running bridge may take up without a restart: none
// that moves what it is made of, and none that sends more of the objects, or to another place.
package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/kubebridge/bridge/internal/settings"
)

// Guard knows which configuration a process runs, and which it may run next. Make it with NewGuard.
// It is not for concurrent use.
type Guard struct {
	running *Config
	limits  limits
}

// NewGuard makes the guard of a process that was started with a configuration.
func NewGuard(started *Config) *Guard {
	g := &Guard{}
	g.SetRunning(started)
	return g
}

// SetRunning says that the process runs another configuration now.
func (g *Guard) SetRunning(running *Config) {
	g.running = running
	g.limits.add(running)
}

// Check returns why the process can't run the next configuration: a settings.Problem for each key
// that only a restart changes, and for each change that would let more data leave; nil when it can.
func (g *Guard) Check(next *Config) error {
	var problems []error
	fixed(reflect.ValueOf(g.running).Elem(), reflect.ValueOf(next).Elem(), "",
		func(path string, was reflect.Value) {
			problems = append(problems, next.ProblemAt(path,
				"can't be changed while the bridge runs, where it is %v: restart it", g.shown(path, was)))
		})
	return errors.Join(slices.Concat(problems, g.checkEmbedded(next), g.checkLoosening(next))...)
}

// live are the keys that a running bridge changes.
var live = []string{"informers", "sinks", "log.level"}

// fixed finds the keys of a section that are different and are not live.
func fixed(before, after reflect.Value, path string, found func(path string, was reflect.Value)) {
	for _, f := range settings.Fields(before.Type()) {
		was, is, at := before.Field(f.Index), after.Field(f.Index), settings.Join(path, f.Key)
		switch {
		case slices.Contains(live, at):
		case f.IsSection:
			fixed(was, is, at, found)
		case !reflect.DeepEqual(was.Interface(), is.Interface()):
			found(at, was)
		}
	}
}

// shown is a value as a person may see it: variables as the file names them, secrets masked.
func (g *Guard) shown(path string, v reflect.Value) string {
	o := g.running.Origins()[path]
	if v.Kind() == reflect.String {
		return o.Hide(fmt.Sprintf("%q", v.Interface()))
	}
	return o.Hide(fmt.Sprint(v.Interface()))
}

// checkEmbedded finds embedded servers that come, go or move: a server that others read from is not
// taken down by a change of a file.
func (g *Guard) checkEmbedded(next *Config) (problems []error) {
	was, is := embedded(g.running), embedded(next)
	for i := range next.Sinks {
		s := &next.Sinks[i]
		at := fmt.Sprintf("sinks[%d].nats", i)
		before, after := was[s.Name], is[s.Name]
		switch {
		case before == nil && after != nil:
			problems = append(problems,
				next.ProblemAt(at+".embedded",
					"an embedded NATS server can't be added while the bridge runs: restart it"))
		case before != nil && after != nil &&
			(!slices.Equal(before.Servers, after.Servers) || before.StoreDir != after.StoreDir):
			problems = append(problems,
				next.ProblemAt(at, "servers and storeDir of an embedded NATS server can't be changed while "+
					"the bridge runs: restart it"))
		}
	}
	for name := range was {
		if is[name] == nil {
			problems = append(problems,
				next.ProblemAt("sinks", "the embedded NATS server of sink %s can't be taken away while the "+
					"bridge runs: restart it", name))
		}
	}
	return problems
}

// embedded are the NATS sinks with a server of their own, by name.
func embedded(c *Config) map[string]*NATS {
	found := map[string]*NATS{}
	for _, s := range c.Sinks {
		if s.NATS != nil && s.NATS.Embedded {
			found[s.Name] = s.NATS
		}
	}
	return found
}
