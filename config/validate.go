package config

import (
	"fmt"
	"net"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/settings"
)

// Validate reports everything that is wrong, joined; Problems lists it. Load has called it already;
// it is for a Config that was made or changed in Go. It contacts nobody and reads no file.
func (c *Config) Validate() error {
	ps := &settings.Report{Origins: c.origins}
	if ps.Origins == nil {
		ps.Origins = settings.Origins{}
	}
	c.validate(ps)
	return ps.Err()
}

// minWatchIdleTimeout leaves a healthy API server time for a bookmark.
const minWatchIdleTimeout = 90 * time.Second

func (c *Config) validate(ps *settings.Report) {
	validateValues(ps, reflect.ValueOf(c).Elem(), "")
	c.State.validate(ps)
	c.Admin.validate(ps)
	c.Tracing.validate(ps)
	if w := c.Kubernetes.WatchIdleTimeout; w > 0 && w < minWatchIdleTimeout {
		ps.Add("kubernetes.watchIdleTimeout",
			"must be 0 or at least %v: the API server sends a bookmark only each minute",
			minWatchIdleTimeout)
	}
	if len(c.Informers) == 0 && !ps.Has("informers") {
		ps.Add("informers", "want at least one informer, or leave the key out to watch everything")
	}
	if len(c.Sinks) == 0 && !ps.Has("sinks") {
		ps.Add("sinks", "want at least one sink, or leave the key out for an embedded NATS server")
	}
	c.validateShard(ps)
	names := c.sinkNames()
	validateUnique(ps, "sinks", names)
	validateUnique(ps, "informers", c.informerNames())
	for i := range c.Informers {
		path := fmt.Sprintf("informers[%d]", i)
		c.Informers[i].validate(ps, path, names)
		c.Informers[i].validateWhenFull(ps, path, c.State.Mode)
	}
	for i := range c.Sinks {
		c.Sinks[i].validate(ps, fmt.Sprintf("sinks[%d]", i))
	}
	c.validateEmbedded(ps)
	c.validateHistories(ps)
	c.validateStreams(ps)
	c.validatePayloads(ps)
	c.validateViews(ps)
	c.validateOverlap(ps)
	c.Standby.validate(ps, c)
	c.validateTemplateAttributes(ps)
}

// validateShard checks the form; what auto means, only the host knows.
func (c *Config) validateShard(ps *settings.Report) {
	count, auto := strings.CutPrefix(c.Shard, "auto/")
	text := c.Shard
	if auto {
		text = "0/" + count
	}
	if c.Shard == "" {
		return
	}
	if _, err := resource.ParseShard(text); err != nil {
		ps.Add("shard", "must be a number from 0 and how many there are, such as 0/3, or auto/3; got %q",
			c.Shard)
	}
}

// validateValues checks what the schema says of every value: those of a fixed set are in it, and no
// number, size or duration is negative.
func validateValues(ps *settings.Report, section reflect.Value, path string) {
	for _, f := range settings.Fields(section.Type()) {
		v, at := section.Field(f.Index), settings.Join(path, f.Key)
		switch {
		case f.IsSection:
			if v.Kind() == reflect.Pointer {
				v = v.Elem()
			}
			if v.IsValid() {
				validateValues(ps, v, at)
			}
		case f.IsList():
			for i := range v.Len() {
				validateValues(ps, v.Index(i), fmt.Sprintf("%s[%d]", at, i))
			}
		case f.Key == "caFile" || f.Key == "certFile": // neither is secret
		case strings.HasSuffix(f.Key, "File"):
			validateSecretFile(ps, at, v.String())
		case len(f.Allowed) > 0:
			validateOneOf(ps, at, v.String(), f.Allowed)
		case v.CanInt() && v.Int() < 0 || v.CanFloat() && v.Float() < 0:
			ps.Add(at, "must not be negative, is %v", v.Interface())
		}
	}
}

func validateOneOf(ps *settings.Report, path, value string, allowed []string) {
	if slices.Contains(allowed, value) || ps.Has(path) {
		return
	}
	if value == "" {
		ps.Add(path, "required: one of %s", strings.Join(allowed, ", "))
		return
	}
	ps.Add(path, "want one of %s, got %q", strings.Join(allowed, ", "), value)
}

func (s *State) validate(ps *settings.Report) {
	if s.Mode == "disk" && s.Dir == "" {
		ps.Add("state.dir", "required, unless state.mode is memory")
	}
}

func (a *Admin) validate(ps *settings.Report) {
	if a.Address != "" {
		validateHostPort(ps, "admin.address", a.Address)
	}
}

func (t *Tracing) validate(ps *settings.Report) {
	if t.SampleRatio > 1 {
		ps.Add("tracing.sampleRatio", "want a share from 0 to 1, got %v", t.SampleRatio)
	}
	if t.Endpoint == "" {
		return
	}
	u, err := url.Parse(t.Endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		// Without the value: it may hold a password.
		ps.Add("tracing.endpoint", "want a URL such as http://otel-collector:4318, without a user "+
			"(OTEL_EXPORTER_OTLP_HEADERS holds credentials)")
	}
}

func validateHostPort(ps *settings.Report, path, address string) {
	_, port, err := net.SplitHostPort(address)
	if n, convErr := strconv.Atoi(port); err != nil || convErr != nil || n < 0 || n > 65535 {
		ps.Add(path, "want host:port, got %q", address)
	}
}

func (c *Config) sinkNames() []string {
	names := make([]string, len(c.Sinks))
	for i := range c.Sinks {
		names[i] = c.Sinks[i].Name
	}
	return names
}

func (c *Config) informerNames() []string {
	names := make([]string, len(c.Informers))
	for i := range c.Informers {
		names[i] = c.Informers[i].Name
	}
	return names
}

// validName is narrow because names become metric labels, parts of message ids and of variables,
// and keys of the state on disk.
var validName = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`)

// validateUnique checks the names of a list: there, well formed, and each once.
func validateUnique(ps *settings.Report, list string, names []string) {
	for i, name := range names {
		path := fmt.Sprintf("%s[%d].name", list, i)
		switch first := slices.Index(names, name); {
		case name == "":
			if !ps.Has(path) {
				ps.Add(path, "required")
			}
		case !validName.MatchString(name):
			ps.Add(path, "want at most 63 lower-case letters, digits and dashes, beginning "+
				"with a letter, got %q", name)
		case first < i:
			ps.Add(path, "%q is the name of %s[%d] already", name, list, first)
		}
	}
}

func validateTemplate(ps *settings.Report, path, text string) {
	if _, err := event.ParseTemplate(text); err != nil {
		ps.Add(path, "%v", err)
	}
}
