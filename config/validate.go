package config

import (
	"cmp"
	"fmt"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kubebridge/bridge/internal/history/audit"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/sinks"
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
		ps.HostPort("admin.address", a.Address)
	}
	switch {
	case a.TLS.CertFile != "" && a.TLS.KeyFile == "":
		ps.Add("admin.tls.keyFile", "required beside certFile")
	case a.TLS.KeyFile != "" && a.TLS.CertFile == "":
		ps.Add("admin.tls.certFile", "required beside keyFile")
	}
}

func (t *Tracing) validate(ps *settings.Report) {
	if t.SampleRatio > 1 {
		ps.Add("tracing.sampleRatio", "want a share from 0 to 1, got %v", t.SampleRatio)
	}
	if t.Endpoint == "" {
		return
	}
	u, err := url.Parse(string(t.Endpoint))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		// Without the value: it may hold a password.
		ps.Add("tracing.endpoint", "want a URL such as http://otel-collector:4318, without a user "+
			"(OTEL_EXPORTER_OTLP_HEADERS holds credentials)")
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

func (s *Sink) validate(ps *settings.Report, path string) {
	s.validateKind(ps, path)
	for key, section := range s.sections() {
		if section == nil {
			continue
		}
		section.Validate(ps, path+"."+key)
		if own, ok := section.(sinks.OwnEncoder); ok && ps.Origins.Given(path+".encoding") {
			ps.Add(path+".encoding", "has no effect with %s", own.OwnEncoding())
		}
	}
	if s.RateLimit.Burst > 0 && s.RateLimit.PerSecond == 0 {
		ps.Add(path+".rateLimit.burst", "has no effect without rateLimit.perSecond")
	}
	if s.RateLimit.BurstBytes > 0 && s.RateLimit.BytesPerSecond == 0 {
		ps.Add(path+".rateLimit.burstBytes", "has no effect without rateLimit.bytesPerSecond")
	}
	if s.HTTP != nil && s.Encoding == sinks.Binary {
		for _, key := range settings.GivenKeys(settings.Key("signingKeyFile", s.HTTP.SigningKeyFile != ""),
			settings.Key("batch", s.HTTP.Batch > 0)) {
			ps.Add(path+".http."+key, "needs encoding: structured or flat")
		}
	}
	s.validateOversize(ps, path+".oversize")
	if s.Retry.Initial > s.Retry.Max {
		ps.Add(path+".retry.max", "is %v, below retry.initial of %v", s.Retry.Max, s.Retry.Initial)
	}
	if s.Retry.Initial == 0 {
		ps.Add(path+".retry.initial",
			"must be above 0: attempts without a pause keep a broker from recovering")
	}
	if _, section := s.Section(); section != nil && s.remote() == nil {
		for _, key := range settings.GivenKeys(settings.Key("maxAttempts", s.Retry.MaxAttempts > 0),
			settings.Key("maxAge", s.Retry.MaxAge > 0)) {
			ps.Add(path+".retry."+key, "is for nats, kafka and http")
		}
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
	var kinds, given []string
	for key, section := range s.sections() {
		kinds = append(kinds, key)
		if section != nil {
			given = append(given, key)
		}
	}
	switch {
	case len(given) > 1:
		ps.Add(path, "set only one of %s, got %s", strings.Join(kinds, ", "),
			strings.Join(given, " and "))
	case len(given) == 0 && !ps.Has(path):
		ps.Add(path, "missing sink type: set one of %s", strings.Join(kinds, ", "))
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
		if s.History.Audit != nil {
			for j := range s.History.Audit.Streams {
				c.validateAuditStream(ps, fmt.Sprintf("sinks[%d].history.audit.streams[%d].sink", i, j), &s.History.Audit.Streams[j])
			}
			for j, to := range s.History.Audit.Sinks {
				c.validateAttributed(ps, fmt.Sprintf("sinks[%d].history.audit.sinks[%d]", i, j), to)
			}
		}
	}
}

// validateAuditStream checks the sink whose credentials a stream is read with.
func (c *Config) validateAuditStream(ps *settings.Report, path string, s *audit.Stream) {
	if s.Sink == "" {
		return
	}
	switch with := c.sink(s.Sink); {
	case with == nil:
		ps.Add(path, "there is no sink %q", s.Sink)
	case s.IsKafka() && with.Kafka == nil, !s.IsKafka() && with.NATS == nil:
		ps.Add(path, "%s is of another kind than %s", s.Sink, s.From)
	}
}

// IsAttributed reports whether a sink is sent who made changes.
func (c *Config) IsAttributed(sink string) bool {
	return slices.ContainsFunc(c.Sinks, func(s Sink) bool {
		return s.History != nil && s.History.Audit != nil && slices.Contains(s.History.Audit.Sinks, sink)
	})
}

// validateAttributed checks a sink that is sent who made changes: it must be sent the changes.
func (c *Config) validateAttributed(ps *settings.Report, path, name string) {
	switch to := c.sink(name); {
	case to == nil:
		ps.Add(path, "there is no sink %q", name)
	case to.History != nil:
		ps.Add(path, "%s is a history, which records audit logs itself", name)
	case to.KeepsNewest():
		ps.Add(path, "%s keeps the newest state of each object only", name)
	}
	for _, inf := range c.Informers {
		for _, b := range inf.Sinks {
			selects := b.Filter != "" || len(b.Operations) > 0 || cmp.Or(b.Delivery, inf.Delivery) == "latest"
			if b.Name == name && selects {
				ps.Add(path, "informer %s sends %s a part of its changes (filter, operations, delivery): "+
					"give the informer the filter, or take another sink", inf.Name, name)
			}
		}
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
