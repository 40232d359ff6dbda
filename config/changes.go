package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/kubebridge/bridge/internal/settings"
)

// CheckReload returns why a running bridge with configuration c can't become next: a Problem for
// each key that only a restart changes, and for each change that would let more data leave; nil
// when it can.
func (c *Config) CheckReload(next *Config) error {
	var problems []error
	fixed(reflect.ValueOf(c).Elem(), reflect.ValueOf(next).Elem(), "",
		func(path string, was reflect.Value) {
			problems = append(problems, next.ProblemAt(path,
				"can't be changed while the bridge runs, where it is %v: restart it", c.shown(path, was)))
		})
	next.since = c.limits()
	return errors.Join(slices.Concat(problems, c.checkEmbedded(next), c.checkLoosening(next))...)
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
func (c *Config) shown(path string, v reflect.Value) string {
	o := c.origins[path]
	if v.Kind() == reflect.String {
		return o.Hide(fmt.Sprintf("%q", v.Interface()))
	}
	return o.Hide(fmt.Sprint(v.Interface()))
}

// checkEmbedded finds embedded servers that come, go or move: a server that others read from is not
// taken down by a change of a file.
func (c *Config) checkEmbedded(next *Config) (problems []error) {
	was, is := c.embedded(), next.embedded()
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
func (c *Config) embedded() map[string]*NATS {
	found := map[string]*NATS{}
	for _, s := range c.Sinks {
		if s.NATS != nil && s.NATS.Embedded {
			found[s.Name] = s.NATS
		}
	}
	return found
}

// ReadOnce are the files of a sink that are read when it is made, and not again: what they hold is
// part of the configuration. Other credentials are read at each connection.
func (s *Sink) ReadOnce() []string {
	var files []string
	if s.NATS != nil {
		files = append(files, s.NATS.PasswordFile, s.NATS.TokenFile)
	}
	if k := s.Kafka; k != nil && k.SASL != nil {
		files = append(files, k.SASL.PasswordFile)
	}
	if k := s.Kafka; k != nil && k.TLS != nil {
		files = append(files, k.TLS.CAFile)
	}
	if h := s.HTTP; h != nil && h.TLS != nil {
		files = append(files, h.TLS.CAFile)
	}
	return slices.DeleteFunc(files, func(f string) bool { return f == "" })
}
