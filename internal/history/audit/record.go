package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/metric"
	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/settings"
)

// Config is the section `audit` of a history sink.
//
// Audit records the writes in the API servers' audit logs, so that `bridge who`, `bridge history`,
// `bridge timeline --actor` and the page name the authenticated user of each change. The cluster
// needs the policies of `bridge audit policy`.
type Config struct {
	// Files are audit logs on this machine, as `/var/log/kubernetes/audit*.log*`: a pattern for
	// each API server, of its file and of those that were rotated, also compressed ones. Keep two
	// rotated files or more.
	Files []string `yaml:"files"`
	// Address is where API servers may post audit events to (`--audit-webhook-config-file`), as
	// host:port. They lose events when they are killed or wait too long, so users may be missing.
	Address string `yaml:"address"`
	// CertFile is the path of a PEM file with the certificate of `address`. Needs `keyFile`.
	CertFile string `yaml:"certFile"`
	// KeyFile is the path of a PEM file with the private key of `certFile`.
	KeyFile string `yaml:"keyFile"`
	// ClientCAFile is the path of a PEM file with the authorities of API servers' certificates.
	ClientCAFile string `yaml:"clientCAFile"`
	// TokenFile is the path of a file with the token that API servers must send.
	TokenFile string `yaml:"tokenFile"`
	// Streams are JetStream streams and Kafka topics that something else fills with audit events.
	Streams []Stream `yaml:"streams"`
	// Complete says that `files` have every request, of all API servers: the log backend is in
	// blocking mode and truncates nothing, and no file is removed that was not read. Then more
	// changes have a user.
	Complete bool `yaml:"complete"`
	// Retention is how long users are kept. 0: as long as versions.
	Retention time.Duration `yaml:"retention" default:"0"`
	// Users are stored as the log has them, or as keyed hashes with the redaction key: one user has
	// one hash. Those of the system (`system:…`) have none.
	Users string `yaml:"users" default:"plain" oneof:"plain hashed"`
	// Groups stores the groups of users.
	Groups bool `yaml:"groups" default:"true"`
	// Sinks are the names of other sinks that are sent an event
	// `dev.kubebridge.resource.attributed` behind each change that an informer sends to both: who
	// made it, or why that is not known. It comes when the audit log has it, 10 seconds later or
	// more, and after 15 minutes in any case. Not to a sink with a filter, with delivery `latest`,
	// or that keeps the newest state only.
	Sinks []string `yaml:"sinks"`
}

// Validate reports what is wrong with the keys; nothing for a section that is not there.
func (c *Config) Validate(ps *settings.Report, path string) {
	if c == nil {
		return
	}
	if len(c.Files) == 0 && c.Address == "" && len(c.Streams) == 0 {
		ps.Add(path+".files", "required, or address or streams: where the audit log comes from")
	}
	switch {
	case c.Complete && c.Address != "":
		ps.Add(path+".complete", "an API server loses events that it posts: it is for files only")
	case c.Complete && len(c.Streams) > 0:
		ps.Add(path+".complete", "a stream can't prove that each event came into it: it is for files only")
	}
	if c.Retention < 0 {
		ps.Add(path+".retention", "must not be negative")
	}
	c.validateAddress(ps, path)
	names := map[string]bool{}
	for i := range c.Streams {
		s, at := &c.Streams[i], fmt.Sprintf("%s.streams[%d]", path, i)
		s.validate(ps, at)
		if names[s.name()] {
			ps.Add(at+".from", "it is read already")
		}
		names[s.name()] = true
	}
}

func (c *Config) validateAddress(ps *settings.Report, path string) {
	for key, value := range map[string]string{
		"certFile": c.CertFile, "keyFile": c.KeyFile, "clientCAFile": c.ClientCAFile, "tokenFile": c.TokenFile,
	} {
		if value != "" && c.Address == "" {
			ps.Add(path+"."+key, "has no effect without address")
		}
	}
	if c.Address == "" {
		return
	}
	ps.HostPort(path+".address", c.Address)
	switch {
	case c.CertFile == "" || c.KeyFile == "":
		ps.Add(path+".certFile", "required beside address, with keyFile: API servers post over TLS")
	case c.ClientCAFile == "" && c.TokenFile == "":
		ps.Add(path+".clientCAFile", "required beside address, or tokenFile: else anybody may post events")
	}
}

// Recorder stores what audit logs have. Make it with its fields, and call Run once.
type Recorder struct {
	Config  Config
	Cluster string
	Store   history.Requests
	// Pseudonym replaces a user by a keyed hash. It is called where Config.Users says so.
	Pseudonym func(string) string
	// OpenStream opens a stream behind a position that its Reader gave; nil for its start.
	OpenStream func(ctx context.Context, stream *Stream, after json.RawMessage) (Reader, error)
	Metrics    *Metrics
	Log        *slog.Logger

	// pace divides the pauses, for tests; 0: by one.
	pace time.Duration
}

// pause is a pause between two looks.
func (r *Recorder) pause(d time.Duration) time.Duration { return d / max(r.pace, 1) }

// Metrics of recorders.
type Metrics struct {
	stored, unreadable, losses *metric.Counter
	until                      *metric.Gauge
}

// NewMetrics registers the metrics.
func NewMetrics(f metric.Factory) *Metrics {
	return &Metrics{
		stored:     f.Counter("bridge_audit_requests_total", "Writes in audit logs that were stored."),
		unreadable: f.Counter("bridge_audit_unreadable_total", "Events in audit logs that can't be read."),
		losses:     f.Counter("bridge_audit_losses_total", "Times in which audit events may be missing."),
		until: f.Gauge("bridge_audit_read_timestamp_seconds",
			"Time up to which audit logs are read; 0 while none is."),
	}
}

// Run records until ctx ends. What goes wrong is logged, and tried again.
func (r *Recorder) Run(ctx context.Context) {
	var sources sync.WaitGroup
	defer sources.Wait()
	names := slices.Clone(r.Config.Files)
	for _, pattern := range r.Config.Files {
		s := &source{Recorder: r, name: pattern}
		sources.Go(func() { s.run(ctx, (&tail{source: s}).follow) })
	}
	for i := range r.Config.Streams {
		c := &r.Config.Streams[i]
		names = append(names, c.name())
		s := &source{Recorder: r, name: c.name()}
		sources.Go(func() { s.run(ctx, (&stream{source: s, config: c}).follow) })
	}
	if r.Config.Address != "" {
		names = append(names, webhookName)
		s := &source{Recorder: r, name: webhookName}
		sources.Go(func() { s.run(ctx, (&webhook{source: s}).serve) })
	}
	if err := r.endOthers(ctx, names); err != nil {
		r.Log.Error("audit logs that the configuration names no more are waited for", "err", err)
	}
}

// endOthers ends the sources of earlier configurations: nothing more comes of them.
func (r *Recorder) endOthers(ctx context.Context, names []string) error {
	known, err := r.Store.Sources(r.Cluster)
	for name := range known {
		if slices.Contains(names, name) {
			continue
		}
		s := &source{Recorder: r, name: name}
		if err = cmp.Or(err, s.load()); err != nil {
			return err
		}
		s.state.Ended = true
		if err = s.save(ctx, nil); err != nil {
			return err
		}
	}
	return err
}

// source is a log, and how far it is read.
type source struct {
	*Recorder
	name       string
	state      state
	unreadable ratelimit.LogThrottle
}

// state is how far a log is read. It is stored with the requests.
type state struct {
	// Everything that ended between Since and Until was read, but for Losses. Ended: the
	// configuration names the source no more.
	Since  time.Time `json:"since,omitzero"`
	Until  time.Time `json:"until,omitzero"`
	Losses []loss    `json:"losses,omitempty"`
	// Complete: every request is in the log.
	Complete bool   `json:"complete,omitempty"`
	Ended    bool   `json:"ended,omitempty"`
	Files    []file `json:"files,omitempty"`
	// Position is that of a stream.
	Position json.RawMessage `json:"position,omitempty"`
}

// lacks says what may be missing of a time; "" for nothing.
func (s *state) lacks(from, to time.Time) string {
	switch {
	case !s.Since.IsZero() && from.Before(s.Since):
		return lacksBefore
	case s.Since.IsZero(), to.Add(lag).After(s.Until):
		return lacksYet
	}
	for _, l := range s.Losses {
		if from.Before(l.To) && to.After(l.From) {
			return "requests of that time may be missing in the audit log: " + l.Why
		}
	}
	return ""
}

const (
	lacksBefore = "the audit log was not recorded then"
	lacksYet    = "the audit log is not recorded so far yet"
)

// loss is a time of which requests may be missing.
type loss struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	Why  string    `json:"why"`
}

// mostLosses of a source are kept. Those before them become one.
const mostLosses = 100

// run calls follow again when it fails.
func (s *source) run(ctx context.Context, follow func(context.Context) error) {
	const pause = 5 * time.Second
	for last := ""; ctx.Err() == nil; {
		err := s.load()
		if err == nil {
			err = follow(ctx)
		}
		if err == nil || ctx.Err() != nil {
			return
		}
		if text := err.Error(); text != last {
			s.Log.Error("the audit log can't be recorded; users are missing meanwhile", "source", s.name, "err", err)
			last = text
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// load reads how far the source was read before.
func (s *source) load() error {
	s.state = state{}
	sources, err := s.Store.Sources(s.Cluster)
	if text := sources[s.name]; err == nil && text != nil {
		err = json.Unmarshal(text, &s.state)
	}
	if s.state.Ended = false; err != nil {
		return fmt.Errorf("how far it was read: %w", err)
	}
	return nil
}

// lose says that requests of a time may be missing.
func (s *source) lose(from, to time.Time, why string) {
	if from.IsZero() || !from.Before(to) {
		return
	}
	l := &s.state.Losses
	if n := len(*l); n > 0 && (*l)[n-1].Why == why && !from.After((*l)[n-1].To) {
		(*l)[n-1].To = to // it continues
		return
	}
	*l = append(*l, loss{from, to, why})
	if n := len(*l) - mostLosses; n > 0 {
		(*l)[n].From = (*l)[0].From
		*l = slices.Delete(*l, 0, n)
	}
	s.Metrics.losses.Inc()
	s.Log.Warn("audit events may be missing: changes of that time may have no user", "source", s.name,
		"from", query.ShowTime(from), "to", query.ShowTime(to), "why", why)
}

// batch is what a source has read and not stored.
type batch struct {
	requests []history.Request
	bytes    int
	// first is when the first event was received.
	first time.Time
	// isDamaged: an event can't be read, which ended after since.
	isDamaged bool
	since     time.Time
}

// isFull says that it is time to store the batch.
func (b *batch) isFull() bool { return len(b.requests) >= 500 || b.bytes >= 1<<20 }

// place is where an event is, for messages.
type place struct {
	in string // a file, or a part of a stream
	at int64
}

// skip counts an event that can't be read. It may have been a write.
func (s *source) skip(b *batch, p place, why error) {
	s.Metrics.unreadable.Inc()
	b.isDamaged = true
	s.unreadable.Warn(s.Log, "an audit event can't be read; it is skipped", "source", s.name, "in", p.in, "at", p.at, "err", why)
}

// add parses an event, and adds it when it is a write. What can't be read is skipped.
func (s *source) add(b *batch, text []byte, p place) error {
	r, err := parse(text)
	switch {
	case errors.Is(err, errNone):
		return nil
	case err != nil:
		s.skip(b, p, err)
		return nil
	}
	if b.first.IsZero() || r.Received.Before(b.first) {
		b.first = r.Received
	}
	if s.Config.Users == "hashed" {
		r.User, r.Impersonator = s.hide(r.User), s.hide(r.Impersonator)
	}
	if !s.Config.Groups {
		r.Groups = nil
	}
	claims := r.claims()
	if len(claims) == 0 {
		return nil // no version can find it
	}
	data, err := r.encode()
	if err != nil {
		return err
	}
	b.requests = append(b.requests, history.Request{Ended: r.Ended, Claims: claims, Data: data})
	b.bytes += len(data)
	return nil
}

func (s *source) hide(user string) string {
	if user == "" || strings.HasPrefix(user, "system:") {
		return user
	}
	return s.Pseudonym(user)
}

// store stores a batch, and how far the source is read.
func (s *source) store(ctx context.Context, b *batch) error {
	if b.isDamaged {
		s.lose(cmp.Or(b.since, b.first), time.Now(), "an event can't be read")
	}
	if age := s.Config.Retention; age > 0 {
		if kept := time.Now().Add(-age); s.state.Since.Before(kept) {
			s.state.Since = kept
		}
	}
	s.state.Complete = s.Config.Complete
	if err := s.save(ctx, b.requests); err != nil {
		return err
	}
	s.Metrics.stored.Add(float64(len(b.requests)))
	if !s.state.Until.IsZero() {
		s.Metrics.until.Set(float64(s.state.Until.Unix()))
	}
	*b = batch{since: b.since}
	return nil
}

// save stores requests, and the state.
func (s *source) save(ctx context.Context, requests []history.Request) error {
	text, err := json.Marshal(&s.state)
	if err != nil {
		return err
	}
	return s.Store.Append(ctx, s.Cluster, s.name, requests, text)
}

// Recorded has the requests of a cluster that a history has recorded.
type Recorded struct {
	requests query.Requests
	cluster  string
	sources  map[string]*state
}

// NewRecorded returns what a history has recorded of a cluster; nil for nothing.
func NewRecorded(q *query.Questions, cluster string) (*Recorded, error) {
	sources, err := q.Requests.Sources(cluster)
	if err != nil || len(sources) == 0 {
		return nil, err
	}
	r := &Recorded{q.Requests, cluster, map[string]*state{}}
	for name, text := range sources {
		r.sources[name] = &state{}
		if err := json.Unmarshal(text, r.sources[name]); err != nil {
			return nil, fmt.Errorf("audit log %s: how far it was read: %w", name, err)
		}
	}
	return r, nil
}

// Claiming returns the requests with a claim.
func (r *Recorded) Claiming(claim string) (found []*Request, err error) {
	texts, err := r.requests.Claiming(r.cluster, claim)
	for _, text := range texts {
		request, decodeErr := decode(text)
		if err = cmp.Or(err, decodeErr); err != nil {
			return nil, err
		}
		found = append(found, request)
	}
	return found, err
}

// Read reads the requests with claims, so that they can be used when the history is closed.
func (r *Recorded) Read(wanted map[string]bool) (Requests, error) {
	read := &readRequests{r, map[string][]*Request{}}
	for claim := range wanted {
		found, err := r.Claiming(claim)
		if err != nil {
			return nil, err
		}
		read.claiming[claim] = found
	}
	return read, nil
}

// readRequests are Recorded ones in memory.
type readRequests struct {
	*Recorded
	claiming map[string][]*Request
}

// Claiming returns the requests with a claim.
func (r *readRequests) Claiming(claim string) ([]*Request, error) { return r.claiming[claim], nil }

// lag is how long after a change its event may come into a log.
const lag = 5 * time.Second

// Lacks says which requests of a time may be missing. Each source must have it, but for those that
// had ended before, and those that have followed one that has it.
func (r *Recorded) Lacks(from, to time.Time) string {
	hasEarlier, isAsked := false, false
	for _, s := range r.sources {
		hasEarlier = hasEarlier || s.Ended && s.lacks(from, to) == ""
	}
	for _, s := range r.sources {
		isOther := s.Ended && (from.After(s.Until) || to.Before(s.Since))
		if isOther || !s.Ended && hasEarlier && from.Before(s.Since) {
			continue
		}
		if lacks := s.lacks(from, to); lacks != "" {
			return lacks
		}
		isAsked = true
	}
	if !isAsked {
		return lacksBefore
	}
	return ""
}

// IsComplete reports whether the logs have every request of a time.
func (r *Recorded) IsComplete(from, to time.Time) bool {
	for _, s := range r.sources {
		if !s.Complete {
			return false
		}
	}
	return r.Lacks(from, to) == ""
}
