package bridge

import (
	"time"

	"github.com/kubebridge/bridge/internal/publisher"
)

// Status is everything that /status shows.
type Status struct {
	Cluster   string       `json:"cluster"`
	Informers []UnitStatus `json:"informers"`
	Sinks     []SinkStatus `json:"sinks"`
	State     StateStatus  `json:"state"`
	// Standby is the bridge's part among its replicas; left out where there are no others.
	Standby *ReplicaStatus `json:"standby,omitempty"`
}

// UnitStatus is one resource of an informer.
type UnitStatus struct {
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
	// VersionsBehind is how far the watermark is behind the version last read; left out where versions have no order. A server counts its
	// versions over all its resources, so it is no number of changes.
	VersionsBehind *uint64 `json:"versionsBehind,omitempty"`
	// Relists and Gaps since the start, in all and by reason.
	Relists       int            `json:"relists"`
	RelistReasons map[string]int `json:"relistReasons"`
	Gaps          map[string]int `json:"gaps"`
	Listed        int            `json:"listed"`
	// What waits between the API server and the sinks.
	QueuedDeltas int            `json:"queuedDeltas"`
	QueuedBytes  int            `json:"queuedBytes"`
	LogChanges   int            `json:"logChanges"`
	LogBytes     int            `json:"logBytes"`
	SpoolBytes   int64          `json:"spoolBytes"`
	InFlight     map[string]int `json:"inFlight"`
	// OldestSeconds is, by sink, how long ago the oldest change was observed that it has not acknowledged.
	OldestSeconds map[string]float64 `json:"oldestSeconds"`
	// Dropped counts, by sink, events that were dropped from a full disk since the start.
	Dropped   map[string]int `json:"dropped"`
	Unsettled int            `json:"unsettled"`
	// PausedBy says who has paused the informer, and since when; left out when nobody has.
	PausedBy *Pause `json:"pausedBy,omitempty"`
	// SpoolCapacity bounds SpoolBytes; 0 where nothing goes to disk.
	SpoolCapacity int64 `json:"spoolCapacity"`
	// Objects that exist, as they were last counted; left out before that.
	Objects *int `json:"objects,omitempty"`
	// BodiesBehind counts those of them that the state directory has in an earlier version than was sent, since a flood of updates left them so.
	BodiesBehind int `json:"bodiesBehind"`
}

// SinkStatus is one sink.
type SinkStatus struct {
	Name string `json:"name"`
	// PausedBy says who has paused it, and since when; left out when nobody has.
	PausedBy *Pause `json:"pausedBy,omitempty"`
	publisher.Status
}

// StateStatus is the state database.
type StateStatus struct {
	Dir         string `json:"dir,omitempty"`
	Bytes       uint64 `json:"bytes"`
	CommitError string `json:"commitError,omitempty"`
}

// Status says where everything stands.
func (b *Bridge) Status() Status {
	s := Status{Cluster: b.cfg.Cluster, State: StateStatus{Dir: b.cfg.DB.Dir(), Bytes: b.cfg.DB.DiskBytes()}, Standby: b.replica.status()}
	if err := b.stateErr(); err != nil {
		s.State.CommitError = err.Error()
	}
	for _, u := range b.roster.all() {
		status := u.status()
		status.PausedBy = b.pauses.of(kindInformer, u.cfg.Informer)
		status.Objects = u.objects.count(u.indexer.Objects)
		s.Informers = append(s.Informers, status)
	}
	for _, u := range b.roster.lost() {
		s.Informers = append(s.Informers, u.status)
	}
	for _, out := range b.outlets.all() {
		s.Sinks = append(s.Sinks, SinkStatus{Name: out.name, PausedBy: b.pauses.of(kindSink, out.name), Status: out.Status()})
	}
	return s
}

func (u *unit) status() UnitStatus {
	r, f, i := u.reflector.Status(), u.fifo.Stats(), u.informer.Status()
	s := UnitStatus{
		Informer: u.cfg.Informer, Resource: u.cfg.Type.String(), APIVersion: u.cfg.Type.APIVersion(), Namespace: u.cfg.Namespace,
		Phase: string(r.Phase), Synced: r.Synced && u.informer.HasSynced(), Version: string(r.Version), Watermark: string(i.Log.Watermark),
		LastSeen: r.LastSeen, LastError: r.LastError, RelistReasons: r.Relists, Listed: r.Items,
		QueuedDeltas: f.Deltas, QueuedBytes: f.Bytes, LogChanges: i.Log.Entries, LogBytes: i.Log.Bytes, SpoolBytes: i.Log.DiskBytes,
		Unsettled: i.Log.Unsettled, InFlight: map[string]int{}, Dropped: map[string]int{}, OldestSeconds: map[string]float64{},
		SpoolCapacity: i.Log.DiskCapacity, QuietSeconds: age(r.LastSeen).Seconds(), Gaps: i.Gaps, BodiesBehind: u.indexer.Behind(),
	}
	for _, n := range r.Relists {
		s.Relists += n
	}
	if u.leaving() == leavingGone {
		s.Phase, s.LastError = string(leavingGone), errGone.Error()
	}
	for _, l := range i.Listeners {
		s.InFlight[l.Sink], s.Dropped[l.Sink], s.OldestSeconds[l.Sink] = l.InFlight, l.Dropped, age(l.Oldest).Seconds()
	}
	if n, ok := behind(r.Version, i.Log.Watermark); ok {
		s.VersionsBehind = &n
	}
	return s
}
