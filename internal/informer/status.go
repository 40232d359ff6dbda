package informer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kubebridge/bridge/internal/metric"
	"github.com/kubebridge/bridge/internal/reflector"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// Status is one unit, as /status shows it.
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
	// QuietSeconds is for how long the API server has sent neither event, bookmark nor item.
	QuietSeconds float64 `json:"quietSeconds"`
	// VersionsBehind is how far the watermark is behind the version last read; left out where
	// versions have no order. A server counts its versions over all its resources, so it is no
	// number of changes.
	VersionsBehind *uint64 `json:"versionsBehind,omitempty"`
	RelistCounts
	Listed int `json:"listed"`
	Backlog
	// PausedBy is who has paused the informer, and since when; left out when it is not paused.
	PausedBy *Pause `json:"pausedBy,omitempty"`
	// SpoolCapacity bounds SpoolBytes; 0 where nothing goes to disk.
	SpoolCapacity int64 `json:"spoolCapacity"`
	// Objects that exist, as they were last counted; left out before that.
	Objects *int `json:"objects,omitempty"`
	// BodiesBehind counts those of them that the state directory has in an earlier version than was
	// sent, since a flood of updates left them so.
	BodiesBehind int `json:"bodiesBehind"`
}

// RelistCounts are relists and gaps since the start, in all and by reason.
type RelistCounts struct {
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
	// PendingChanges is, by sink, how many changes at most it has not acknowledged.
	PendingChanges map[string]int `json:"pendingChanges"`
	// Dropped counts, by sink, events that were dropped from a full disk since the start.
	Dropped   map[string]int `json:"dropped"`
	Unsettled int            `json:"unsettled"`
}

// Pause is who has paused a part, and since when.
type Pause struct {
	By    string    `json:"by"`
	Since time.Time `json:"since"`
}

// Status returns everything except PausedBy and Objects.
func (i *Informer) Status() Status {
	r, f, stages := i.reflector.Status(), i.fifo.Stats(), i.stages.Status()
	s := Status{
		Informer: i.cfg.Informer, Resource: i.cfg.Type.String(), APIVersion: i.cfg.Type.APIVersion(),
		Namespace: i.cfg.Namespace,
		Phase:     string(r.Phase), Synced: i.synced(&r),
		Version: string(r.Version), Watermark: string(stages.Log.Watermark),
		LastSeen: r.LastSeen, LastError: r.LastError, QuietSeconds: age(r.LastSeen).Seconds(),
		RelistCounts: RelistCounts{RelistReasons: r.Relists, Gaps: stages.Gaps}, Listed: r.Items,
		Backlog: Backlog{
			QueuedDeltas: f.Deltas, QueuedBytes: f.Bytes, Unsettled: stages.Log.Unsettled,
			LogChanges: stages.Log.Entries, LogBytes: stages.Log.Bytes, SpoolBytes: stages.Log.DiskBytes,
			InFlight: map[string]int{}, Dropped: map[string]int{}, OldestSeconds: map[string]float64{},
			PendingChanges: map[string]int{},
		},
		SpoolCapacity: stages.Log.DiskCapacity, BodiesBehind: i.indexer.StaleBodies().Count(),
	}
	for _, n := range r.Relists {
		s.Relists += n
	}
	if i.Draining() == Gone {
		s.Phase, s.LastError = string(Gone), errGone.Error()
	}
	for _, l := range stages.Listeners {
		s.InFlight[l.Sink], s.Dropped[l.Sink] = l.InFlight, l.Dropped
		s.OldestSeconds[l.Sink] = age(l.Oldest).Seconds()
		if s.PendingChanges[l.Sink] = 0; !l.Oldest.IsZero() {
			s.PendingChanges[l.Sink] = l.Backlog
		}
	}
	if n, ok := behind(r.Version, stages.Log.Watermark); ok {
		s.VersionsBehind = &n
	}
	return s
}

// Reader is the part that reads from the API server: *reflector.Reflector.
type Reader interface {
	Status() reflector.Status
	// Pause stops reading until Resume. What was read is sent.
	Pause()
	// Resume ends a pause: reading continues from its position.
	Resume()
}

// Reader returns the informer's reflector.
func (i *Informer) Reader() Reader { return i.reflector }

// CaughtUp reports whether the informer can be stopped and started again in a short time: the
// backlog of a sink that is unavailable would have to be sent before.
func (i *Informer) CaughtUp() bool {
	s := i.stages.Status()
	return s.Log.DiskBytes == 0 && s.Log.Bytes <= s.Log.Capacity/4 && i.fifo.HasSynced()
}

// PendingFor returns the sinks that have not acknowledged everything.
func (i *Informer) PendingFor() (sinks []string) {
	for _, l := range i.stages.Status().Listeners {
		if !l.Oldest.IsZero() {
			sinks = append(sinks, l.Sink)
		}
	}
	return sinks
}

// stallSlack is for a watch that the watchdog has cut and that is being opened again: its silence
// means nothing meanwhile.
const stallSlack = 30 * time.Second

func (i *Informer) watchdog() time.Duration {
	return cmp.Or(i.cfg.Reflector.Watchdog, i.env.Watchdog)
}

// NotReady returns why the informer is not ready; "" when it is, or has nothing to be in sync with.
// follows: another replica publishes, and takes care of pending changes.
func (i *Informer) NotReady(follows bool) string {
	switch d := i.Draining(); d {
	case Gone:
		if i.cfg.Named {
			return errGone.Error() + "; it is watched again when it is served again"
		}
		return ""
	case Moving, Changed:
		return d.Cause().Error() + ": what was read is being sent"
	case NotDraining:
	}
	r, stages := i.reflector.Status(), i.stages.Status()
	watchdog := i.watchdog()
	switch quiet := r.Quiet(); {
	case r.Phase == reflector.Selecting:
		return "not in sync yet: it is not known which namespaces are selected"
	case r.Versionless:
		return "" // there is nothing to be in sync with
	case r.LastError != "":
		return r.LastError
	case !i.synced(&r):
		return fmt.Sprintf("not in sync yet (%s, %d objects listed)", r.Phase, r.Items)
	case stages.Log.DiskFull:
		return fmt.Sprintf("the log on disk is full (%d bytes): reading stops until a sink "+
			"has taken something",
			stages.Log.DiskBytes)
	case watchdog > 0 && quiet > watchdog+stallSlack:
		return fmt.Sprintf("stalled: neither event nor bookmark from the API server for %v "+
			"(kubernetes.watchIdleTimeout is %v)",
			quiet.Round(time.Second), watchdog)
	}
	if follows {
		return ""
	}
	return i.lagging(&stages)
}

// HasSynced reports whether the first list, if there is one, is in the log.
func (i *Informer) HasSynced() bool { return i.stages.HasSynced() }

// synced reports whether everything was read, and is in the log.
func (i *Informer) synced(r *reflector.Status) bool { return r.Synced && i.stages.HasSynced() }

// lagging returns which sink is behind by more than the limit; "" for none.
func (i *Informer) lagging(s *StagesStatus) string {
	for _, l := range s.Listeners {
		if waited := age(l.Oldest); i.cfg.Lag > 0 && waited > i.cfg.Lag {
			return fmt.Sprintf("lags: the oldest change waits for sink %s for %v (lag is %v)",
				l.Sink, waited.Round(time.Second), i.cfg.Lag)
		}
	}
	return ""
}

// behind returns how far one version is before another; ok is false where they have no order.
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

// age returns the time since t; 0 for the zero time.
func age(t time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return time.Since(t)
}

func (i *Informer) registerMetrics() {
	m := metric.With(i.metrics)
	m.GaugeFunc("bridge_checkpoint_versions_behind",
		"How far the committed watermark is behind the version last read; 0 where versions have no "+
			"order. The API server counts versions over all its resources.",
		func() float64 {
			n, _ := behind(i.reflector.Status().Version, i.stages.Log().Status().Watermark)
			return float64(n)
		})
	m.FlagFunc("bridge_informer_synced",
		"1 while everything that the API server has is read and in flight to the sinks, 0 until "+
			"then and from a gap on.",
		func() bool {
			r := i.reflector.Status()
			return i.synced(&r)
		})
	m.GaugeFunc("bridge_informer_objects",
		"Objects that exist, as of the last commit. Counted at a scrape, if counting takes less than a "+
			"hundredth of the time since the last; NaN when they can't be.",
		func() float64 {
			if n := i.Objects.Count(); n != nil {
				return float64(*n)
			}
			return math.NaN()
		})
	i.refresh.objects = m.Counter("bridge_catchup_objects_total",
		"Objects on disk that were brought up to date, of those that a flood of updates had left behind.")
	i.refresh.requests = m.Counters("bridge_catchup_requests_total",
		"Requests to the API server for objects that a flood of updates had left behind "+
			"on disk, by outcome.",
		"outcome", "ok", "failed")
	m.GaugeFunc("bridge_catchup_behind_objects",
		"Objects of which the state directory has an earlier version than was sent, since a flood of "+
			"updates left it there.",
		func() float64 { return float64(i.indexer.StaleBodies().Count()) })
}

// ObjectState is the last settled state of an object, as one informer has it.
type ObjectState struct {
	Informer   string `json:"informer"`
	Resource   string `json:"resource"`
	APIVersion string `json:"apiVersion"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
	Version    string `json:"version"`
	// Deleted: it is gone as of Version, and there is no Object.
	Deleted bool `json:"deleted"`
	// Watermark of the informer.
	Watermark string `json:"watermark"`
	// Object is the JSON as it was sent: without the fields that the configuration cuts, and
	// redacted.
	Object json.RawMessage `json:"object,omitempty"`
	// Earlier is Object's own version where it is not Version: in a flood of updates the state has
	// an earlier one (state.bodiesPerSecond).
	Earlier string `json:"earlier,omitempty"`
	// Problem is why the object can't be read.
	Problem string `json:"problem,omitempty"`
}

// Objects are those of an informer. Its methods read the state database alone, and may be called at
// any time until that is closed.
type Objects struct {
	informer *Informer
	counted  objectCount
}

// Get returns the last settled state of an object.
func (o *Objects) Get(key resource.Key) (s ObjectState, found bool, err error) {
	i := o.informer
	stored, found, err := i.indexer.Stored(key)
	if !found {
		return ObjectState{}, false, err
	}
	namespace, name := key.Split()
	s = ObjectState{
		Informer: i.cfg.Informer, Resource: i.cfg.Type.String(), APIVersion: i.cfg.Type.APIVersion(),
		Namespace: namespace, Name: name, UID: stored.UID, Version: string(stored.Version),
		Deleted: stored.Deleted, Watermark: string(i.stages.Log().Status().Watermark),
		Object: stored.Body,
	}
	if err != nil {
		s.Problem = err.Error()
	}
	if obj, err := resource.Restore(stored.Body, i.cfg.Type); err == nil &&
		obj.Version != stored.Version {
		s.Earlier = string(obj.Version)
	}
	return s, true, nil
}

// IndexedObject is an object that an index has found, in its newest state.
type IndexedObject struct {
	Informer  string `json:"informer"`
	Resource  string `json:"resource"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	Version   string `json:"version"`
	Created   string `json:"created,omitempty"`
	// Ready is the status of the condition Ready, or else Available: "True", "False", "Unknown"; ""
	// where the object has neither.
	Ready string `json:"ready,omitempty"`
}

// ByIndex returns the objects that have a value of an index. With store.ErrIndexIncomplete some may
// be missing.
func (o *Objects) ByIndex(name, value string) (list []IndexedObject, err error) {
	for item, err := range o.informer.indexer.Indexes().ByIndex(name, value) {
		if err != nil {
			return list, err
		}
		obj, err := item.Object()
		if err != nil {
			return list, err
		}
		if obj != nil { // else it has gone since
			list = append(list, o.indexed(&item, obj))
		}
	}
	return list, nil
}

// HasIndex reports whether there is an index.
func (o *Objects) HasIndex(name string) bool {
	return !errors.Is(o.informer.indexer.Indexes().Check(name), store.ErrNoIndex)
}

// UIDsOwnedBy returns the uids of the objects that have an owner. It reads no bodies. Its error is
// as that of ByIndex.
func (o *Objects) UIDsOwnedBy(owner string) (uids []string, err error) {
	for item, err := range o.informer.indexer.Indexes().ByIndex(store.ByOwner().Name, owner) {
		if err != nil {
			return uids, err
		}
		uids = append(uids, item.UID)
	}
	return uids, nil
}

func (o *Objects) indexed(item *store.Item, obj *resource.Object) IndexedObject {
	c := &o.informer.cfg
	return IndexedObject{
		Informer: c.Informer, Resource: c.Type.String(), Kind: c.Type.Kind, Namespace: obj.Namespace,
		Name: obj.Name, UID: item.UID, Version: string(item.Version),
		Created: obj.CreationTimestamp, Ready: ReadyOf(obj.Raw),
	}
}

// ReadyOf returns IndexedObject.Ready of an object's JSON.
func ReadyOf(raw []byte) (status string) {
	var conditions []struct{ Type, Status string }
	// What can't be decoded has no conditions.
	_ = json.Unmarshal(resource.Member(resource.Member(raw, "status"), "conditions"), &conditions)
	for _, c := range conditions {
		switch c.Type {
		case "Ready":
			return c.Status
		case "Available":
			status = c.Status
		}
	}
	return status
}

// IndexValues returns the values of an index that objects have.
func (o *Objects) IndexValues(name string) (values []string, err error) {
	for value, err := range o.informer.indexer.Indexes().ListIndexFuncValues(name) {
		if err != nil {
			return values, err
		}
		values = append(values, value)
	}
	return values, nil
}

// Owner returns the metadata of the object that an owner reference in a namespace names, nil when
// this informer does not have it.
func (o *Objects) Owner(of resource.Owner, namespace string) *resource.Meta {
	group, _, found := strings.Cut(of.APIVersion, "/")
	if !found {
		group = ""
	}
	t, only := o.informer.cfg.Type, o.informer.cfg.Namespace
	if t.Group != group || t.Kind != of.Kind || only != "" && only != namespace {
		return nil
	}
	key := resource.MakeKey("", of.Name)
	if t.Namespaced {
		key = resource.MakeKey(namespace, of.Name)
	}
	if obj, err := o.informer.indexer.Object(key); err == nil && obj != nil && obj.UID == of.UID {
		return &obj.Meta
	}
	return nil
}

// Count returns the number of objects as last counted, by this call when a count is due; nil when
// they were not counted yet.
func (o *Objects) Count() *int { return o.counted.count(o.informer.indexer.Objects) }

// objectCount is a number of objects. Counting goes through all of them, so it is done only on
// request, and then not often.
type objectCount struct {
	mu   sync.Mutex // guards all below
	busy bool
	n    int
	// known: n was counted.
	known bool
	due   time.Time
}

// Counting takes at most a hundredth of the time, and is repeated at most each countEvery.
const (
	countEvery = time.Second
	countShare = 100
)

func (c *objectCount) count(objects func() (int, error)) *int {
	if c.begin() {
		began := time.Now()
		n, err := objects()
		c.end(n, err, time.Since(began))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return nil
	}
	return new(c.n)
}

// begin reports whether the caller is to count.
func (c *objectCount) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy || time.Now().Before(c.due) {
		return false
	}
	c.busy = true
	return true
}

func (c *objectCount) end(n int, err error, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy = false
	c.due = time.Now().Add(max(countEvery, countShare*took))
	if err == nil {
		c.n, c.known = n, true
	}
}
