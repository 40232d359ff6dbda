package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubebridge/bridge/internal/settings"
)

func (s *Sink) validate(ps *settings.Report, path string) {
	s.validateKind(ps, path)
	if s.NATS != nil {
		s.NATS.validate(ps, path+".nats")
	}
	if s.Kafka != nil {
		s.Kafka.validate(ps, path+".kafka")
	}
	if s.HTTP != nil {
		s.HTTP.validate(ps, path+".http")
	}
	if s.Stdout != nil && ps.Origins.Given(path+".encoding") {
		ps.Add(path+".encoding", "has no effect with stdout, which has its format")
	}
	if s.History != nil && ps.Origins.Given(path+".encoding") {
		ps.Add(path+".encoding", "has no effect with history, which stores attributes and data")
	}
	if s.RateLimit.Burst > 0 && s.RateLimit.PerSecond == 0 {
		ps.Add(path+".rateLimit.burst", "has no effect without rateLimit.perSecond")
	}
	if s.RateLimit.BurstBytes > 0 && s.RateLimit.BytesPerSecond == 0 {
		ps.Add(path+".rateLimit.burstBytes", "has no effect without rateLimit.bytesPerSecond")
	}
	s.validateOversize(ps, path+".oversize")
	if s.Retry.Initial > s.Retry.Max {
		ps.Add(path+".retry.max", "is %v, below retry.initial of %v", s.Retry.Max, s.Retry.Initial)
	}
	if s.Retry.Initial == 0 {
		ps.Add(path+".retry.initial",
			"must be above 0: attempts without a pause keep a broker from recovering")
	}
	if s.MaxInFlightBytes == 0 {
		ps.Add(path+".maxInFlightBytes", "must be above 0")
	}
}

// validateOversize checks the ways to send what is too large.
func (s *Sink) validateOversize(ps *settings.Report, path string) {
	for i, way := range s.Oversize {
		switch {
		case way != "trim" && way != "claim" && way != "reference":
			ps.Add(path, "there are trim, claim and reference, got %q", way)
		case slices.Contains(s.Oversize[:i], way):
			ps.Add(path, "%s is there twice", way)
		case way == "claim" && (s.NATS == nil || s.NATS.Objects.Bucket == ""):
			ps.Add(path, "claim needs nats.objects.bucket, a place to keep payloads")
		}
	}
}

// validateKind checks that a sink is exactly one thing.
func (s *Sink) validateKind(ps *settings.Report, path string) {
	var kinds []string
	for _, k := range []struct {
		name  string
		given bool
	}{
		{"nats", s.NATS != nil},
		{"kafka", s.Kafka != nil},
		{"http", s.HTTP != nil},
		{"history", s.History != nil},
		{"stdout", s.Stdout != nil},
	} {
		if k.given {
			kinds = append(kinds, k.name)
		}
	}
	switch {
	case len(kinds) > 1:
		ps.Add(path, "set only one of nats, kafka, http, history, stdout, got %s",
			strings.Join(kinds, " and "))
	case len(kinds) == 0 && !ps.Has(path):
		ps.Add(path, "missing sink type: set one of nats, kafka, http, history, stdout")
	}
}

func (t *TLS) validate(ps *settings.Report, path string) {
	switch {
	case t == nil:
	case t.CertFile != "" && t.KeyFile == "":
		ps.Add(path+".keyFile", "required beside certFile")
	case t.KeyFile != "" && t.CertFile == "":
		ps.Add(path+".certFile", "required beside keyFile")
	case t.InsecureSkipVerify && t.CAFile != "":
		ps.Add(path+".caFile", "has no effect beside insecureSkipVerify")
	}
}

// setting is one of several keys of which only some may be given.
type setting struct {
	key   string
	given bool
}

// givenKeys are the keys that are given.
func givenKeys(several ...setting) []string {
	var keys []string
	for _, s := range several {
		if s.given {
			keys = append(keys, s.key)
		}
	}
	return keys
}

// validateAtMostOne complains of the second of several keys that exclude each other.
func validateAtMostOne(ps *settings.Report, path string, several ...setting) {
	if keys := givenKeys(several...); len(keys) > 1 {
		ps.Add(settings.Join(path, keys[1]), "cannot be combined with %s: keep one of %s", keys[0],
			strings.Join(keys, ", "))
	}
}

// validateHistories allows each directory once, and needs one where no state directory is.
func (c *Config) validateHistories(ps *settings.Report) {
	seen := map[string]int{}
	for i, s := range c.Sinks {
		if s.History == nil {
			continue
		}
		path := fmt.Sprintf("sinks[%d].history.dir", i)
		if s.History.Dir == "" && c.State.Mode == "memory" {
			ps.Add(path, "required with state.mode memory: there is no state directory")
		}
		if first, found := seen[s.History.Dir]; found {
			ps.Add(path, "sinks[%d] writes to the same directory; give each its own", first)
		}
		seen[s.History.Dir] = i
	}
}

// validateEmbedded allows one embedded server: two would want the same address, or the same
// directory for their streams.
func (c *Config) validateEmbedded(ps *settings.Report) {
	first := -1
	for i, s := range c.Sinks {
		switch {
		case s.NATS == nil || !s.NATS.Embedded:
		case first >= 0:
			ps.Add(fmt.Sprintf("sinks[%d].nats.embedded", i),
				"sinks[%d] runs the embedded server already; leave embedded out here, and use "+
					"its address in servers", first)
		default:
			first = i
		}
	}
}

// requireLimit refuses a name of topics or streams with a field that whoever writes objects
// chooses, until the limit in key is given: the first values use it up, and events of all others
// become dead letters.
func requireLimit(ps *settings.Report, path, key, text, what string) {
	chosen := chosenFields(text)
	if len(chosen) == 0 || ps.Origins.Given(key) {
		return
	}
	ps.Add(path, "whoever writes an object chooses {%s}, and each value makes %s: set %s, the limit "+
		"for all of them together, or use {namespace} or {resource} in the name", chosen[0], what,
		key[strings.LastIndex(key, ".")+1:])
}
