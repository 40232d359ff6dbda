package informer

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/kubebridge/bridge/internal/reflector"
	"github.com/kubebridge/bridge/internal/resource"
)

// Status is one resource of an informer, as /status shows it.
type Status struct {
	Informer string `json:"informer"`
	Resource string `json:"resource"`
	// APIVersion is the version of the API that it is watched in.
	APIVersion string `json:"apiVersion"`
	Namespace  string `json:"namespace,omitempty"`
	Phase      string `json:"phase"`
	Synced     bool   `json:"synced"`
	// Version last read, and the watermark, from which a restart resumes.
	Version   string    `json:"version"`
	Watermark string    `json:"watermark"`
	LastSeen  time.Time `json:"lastSeen,omitzero"`
	LastError string    `json:"lastError,omitempty"`
	// QuietSeconds is how long the API server has sent neither event, bookmark nor item.
	QuietSeconds float64 `json:"quietSeconds"`
	// VersionsBehind is how far the watermark is behind the version last read; left out where
	// versions have no order. A server counts its versions over all its resources, so it is no
	// number of changes.
	VersionsBehind *uint64 `json:"versionsBehind,omitempty"`
	Relisted
	Listed int `json:"listed"`
	Backlog
	// PausedBy says who has paused the informer, and since when; left out when it is not paused.
	PausedBy *Pause `json:"pausedBy,omitempty"`
	// SpoolCapacity bounds SpoolBytes; 0 where nothing goes to disk.
	SpoolCapacity int64 `json:"spoolCapacity"`
	// Objects that exist, as they were last counted; left out before that.
	Objects *int `json:"objects,omitempty"`
	// BodiesBehind counts those of them that the state directory has in an earlier version than was
	// sent, since a flood of updates left them so.
	BodiesBehind int `json:"bodiesBehind"`
}

// Relisted is Relists and Gaps since the start, in all and by reason.
type Relisted struct {
	Relists       int            `json:"relists"`
	RelistReasons map[string]int `json:"relistReasons"`
	Gaps          map[string]int `json:"gaps"`
}

// Backlog is what is pending between the API server and the sinks.
type Backlog struct {
	QueuedDeltas int            `json:"queuedDeltas"`
	QueuedBytes  int            `json:"queuedBytes"`
	LogChanges   int            `json:"logChanges"`
	LogBytes     int            `json:"logBytes"`
	SpoolBytes   int64          `json:"spoolBytes"`
	InFlight     map[string]int `json:"inFlight"`
	// OldestSeconds is, by sink, how long ago the oldest change was observed that it has not
	// acknowledged.
	OldestSeconds map[string]float64 `json:"oldestSeconds"`
	// Dropped counts, by sink, events that were dropped from a full disk since the start.
	Dropped   map[string]int `json:"dropped"`
	Unsettled int            `json:"unsettled"`
}

// Pause says who has paused something, and since when.
type Pause struct {
	By    string    `json:"by"`
	Since time.Time `json:"since"`
}

// Status says where everything stands, but for PausedBy and Objects.
func (p *Informer) Status() Status {
	r, f, i := p.reflector.Status(), p.fifo.Stats(), p.stages.Status()
	s := Status{
		Informer: p.cfg.Informer, Resource: p.cfg.Type.String(), APIVersion: p.cfg.Type.APIVersion(),
		Namespace: p.cfg.Namespace,
		Phase:     string(r.Phase), Synced: p.synced(&r),
		Version: string(r.Version), Watermark: string(i.Log.Watermark),
		LastSeen: r.LastSeen, LastError: r.LastError, QuietSeconds: age(r.LastSeen).Seconds(),
		Relisted: Relisted{RelistReasons: r.Relists, Gaps: i.Gaps}, Listed: r.Items,
		Backlog: Backlog{
			QueuedDeltas: f.Deltas, QueuedBytes: f.Bytes, Unsettled: i.Log.Unsettled,
			LogChanges: i.Log.Entries, LogBytes: i.Log.Bytes, SpoolBytes: i.Log.DiskBytes,
			InFlight: map[string]int{}, Dropped: map[string]int{}, OldestSeconds: map[string]float64{},
		},
		SpoolCapacity: i.Log.DiskCapacity, BodiesBehind: p.indexer.StaleBodies().Count(),
	}
	for _, n := range r.Relists {
		s.Relists += n
	}
	if p.Draining() == Gone {
		s.Phase, s.LastError = string(Gone), errGone.Error()
	}
	for _, l := range i.Listeners {
		s.InFlight[l.Sink], s.Dropped[l.Sink] = l.InFlight, l.Dropped
		s.OldestSeconds[l.Sink] = age(l.Oldest).Seconds()
	}
	if n, ok := behind(r.Version, i.Log.Watermark); ok {
		s.VersionsBehind = &n
	}
	return s
}

// Reader is what reads from the API server: *reflector.Reflector.
type Reader interface {
	Status() reflector.Status
	// Pause has it read nothing until Resume. What was read is sent.
	Pause()
	// Resume ends a pause: reading continues where it stood.
	Resume()
}

// Reader is the pipeline's.
func (p *Informer) Reader() Reader { return p.reflector }

// CaughtUp reports whether it can be stopped and started again in a short time: the backlog of a
// sink that is unavailable would have to be sent before.
func (p *Informer) CaughtUp() bool {
	s := p.stages.Status()
	return s.Log.DiskBytes == 0 && s.Log.Bytes <= s.Log.Capacity/4 && p.fifo.HasSynced()
}

// PendingFor are the sinks that have not acknowledged everything.
func (p *Informer) PendingFor() (sinks []string) {
	for _, l := range p.stages.Status().Listeners {
		if !l.Oldest.IsZero() {
			sinks = append(sinks, l.Sink)
		}
	}
	return sinks
}

// stallSlack is for a watch that was cut by the watchdog and is being opened again: its silence
// means nothing meanwhile.
const stallSlack = 30 * time.Second

func (p *Informer) watchdog() time.Duration {
	return cmp.Or(p.cfg.Reflector.Watchdog, p.env.Watchdog)
}

// NotReady returns why the pipeline is not ready; "" when it is, or has nothing to be in sync with.
// follows: another replica publishes, and what is pending for sinks is its matter.
func (p *Informer) NotReady(follows bool) string {
	switch d := p.Draining(); d {
	case Gone:
		if p.cfg.Named {
			return errGone.Error() + "; it is watched again when it is served again"
		}
		return ""
	case Moving, Changed:
		return d.Cause().Error() + ": what was read is being sent"
	case NotDraining:
	}
	r, i := p.reflector.Status(), p.stages.Status()
	watchdog := p.watchdog()
	switch quiet := r.Quiet(); {
	case r.Phase == reflector.Selecting:
		return "not in sync yet: it is not known which namespaces are selected"
	case r.LastError != "":
		return r.LastError
	case !p.synced(&r):
		return fmt.Sprintf("not in sync yet (%s, %d objects listed)", r.Phase, r.Items)
	case i.Log.DiskFull:
		return fmt.Sprintf("the log on disk is full (%d bytes): reading stops until a sink "+
			"has taken something",
			i.Log.DiskBytes)
	case watchdog > 0 && quiet > watchdog+stallSlack:
		return fmt.Sprintf("stalled: neither event nor bookmark from the API server for %v "+
			"(kubernetes.watchIdleTimeout is %v)",
			quiet.Round(time.Second), watchdog)
	}
	if follows {
		return ""
	}
	return p.lagging(&i)
}

// HasSynced reports whether the first list, if there is one, is in the log.
func (p *Informer) HasSynced() bool { return p.stages.HasSynced() }

// synced reports whether everything was read, and what was read is in the log.
func (p *Informer) synced(r *reflector.Status) bool { return r.Synced && p.stages.HasSynced() }

// lagging says which sink is behind by more than the limit; "" for none.
func (p *Informer) lagging(s *StagesStatus) string {
	for _, l := range s.Listeners {
		if waited := age(l.Oldest); p.cfg.Lag > 0 && waited > p.cfg.Lag {
			return fmt.Sprintf("lags: the oldest change waits for sink %s for %v (lag is %v)",
				l.Sink, waited.Round(time.Second), p.cfg.Lag)
		}
	}
	return ""
}

// behind is how far one version is before another; ok is false where they have no order.
func behind(read, watermark resource.Version) (n uint64, ok bool) {
	r, err := strconv.ParseUint(string(read), 10, 64)
	if err != nil {
		return 0, false
	}
	w, err := strconv.ParseUint(string(watermark), 10, 64)
	if err != nil {
		return 0, false
	}
	return r - min(r, w), true
}

// age is how long ago something was; 0 for never.
func age(t time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return time.Since(t)
}
