package event

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubebridge/bridge/internal/resource"
)

// MakerConfig is what is the same for all events of one informer and sink.
type MakerConfig struct {
	Cluster  string
	Informer string
	Type     resource.Type
	// Namespace is the one that is watched, "" for all.
	Namespace string
	// Shard is the share of the objects that the events are about.
	Shard   resource.Shard
	Payload Payload // default PayloadObject
	Types   Types   // default TypesBridge
	// CustomAttributes make attributes of what is in the object.
	CustomAttributes []CustomAttribute
	// Selective is set when something is selected by label or field: then an object may leave and
	// come back, and is deleted, as far as a watch can know, more than once. Exact, when it can
	// know: CauseDeleted is of an object that has died.
	Selective, Exact bool
	// Omits are the configuration's keys by which the sink is not sent every version of an object,
	// as "filter" or "latest". A consumer must not expect a chain of previous versions then.
	Omits []string
	// Trace makes the traceparent of an event of its source and id. nil: events have none.
	Trace func(source, id string) string
}

// Maker makes events of changes. It is immutable and may be used concurrently.
type Maker struct {
	cfg      MakerConfig
	source   string
	types    map[Op]string
	prefixes prefixes
}

// Change is what happened to an object. Its JSON lies in the log on disk, without the objects.
type Change struct {
	Op  Op           `json:"op"`
	Key resource.Key `json:"key,omitempty"`
	// Object is the state after the change, for Deleted the last state; nil when that is not known.
	Object *resource.Object `json:"-"`
	// Old is, of an Updated, exactly the state of version Before; nil when no listener needs it.
	Old *resource.Object `json:"-"`
	// Changed are, of an Updated, the parts of the object that differ from version Before, as
	// "spec,labels", or NothingChanged. "" where that was not asked for, or is not known.
	Changed string `json:"changed,omitempty"`
	// Owners are the object's controller, that one's, and so on, where they were asked for.
	Owners []resource.Owner `json:"owners,omitempty"`
	// UID and Version identify the state; they are the object's where there is one.
	UID     string           `json:"uid,omitempty"`
	Version resource.Version `json:"version,omitempty"`
	// Before is the version known before the change, "" for none.
	Before resource.Version `json:"before,omitempty"`
	// GoneAsOf is, of an inferred Deleted, the version as of which the object is known to be gone.
	// The object may have had later versions than Version, which a crash kept from being settled.
	GoneAsOf resource.Version `json:"goneAsOf,omitempty"`
	Initial  bool             `json:"initial,omitempty"`
	Inferred bool             `json:"inferred,omitempty"`
	// Round of a Synced.
	Round int64 `json:"round,omitempty"`
	// Entered is the version of the Namespace with which the object's namespace came into a
	// selection in which it had been before; "" for none.
	Entered resource.Version `json:"entered,omitempty"`
	// Cause is why an Added or Deleted was sent under a selector: one of the causes below.
	Cause string `json:"cause,omitempty"`
	// Left is, of a Deleted of an object that left a selector which is evaluated here, the version
	// with which it did; "" for all others.
	Left resource.Version `json:"left,omitempty"`
	IDSuffix
	Origin
	// Observed is when the bridge learned of it.
	Observed time.Time `json:"observed"`
}

// NothingChanged is a Change's Changed where only what every update writes differs.
const NothingChanged = "none"

// Origin is who made a change, and when.
type Origin struct {
	// By made the change; zero where that is not known.
	By resource.FieldManager `json:"by,omitzero"`
	// LastManager is, of a Deleted, the manager of the newest managedFields entry of the last
	// state.
	LastManager string `json:"lastManager,omitempty"`
	// Time is when the change was made, or observed, as TimeSource says. Of one object it never
	// goes back within an epoch.
	Time       time.Time `json:"time,omitzero"`
	TimeSource string    `json:"timeSource,omitempty"`
	// NotBefore is set where the change became known more than MaxUnwatched after it may have been
	// made: it was made between that and Time. Of a gap, and of progress after an unwatched
	// time, it is when that time began.
	NotBefore time.Time `json:"notBefore,omitzero"`
}

// MaxUnwatched is how long before its observation a change may have been made without a word about
// that: two periods of the version clock.
const MaxUnwatched = 20 * time.Second

// Sources of the time of a change.
const (
	// TimeManagedFields is the time of the managedFields entry that the change has written.
	TimeManagedFields = "managedfields"
	// TimeObserved is when the bridge learned of the change.
	TimeObserved = "observed"
)

// IDSuffix distinguishes the ids of one time from those of another that has the same versions
// again.
type IDSuffix struct {
	// Epoch is how often the server's versions went back before: after a restore of etcd, versions
	// are given out again, for other states, and an object whose delete was undone may be deleted
	// again. It also counts how often the state was lost: everything is reported again then, and
	// a consumer that drops known ids must not drop that.
	Epoch int `json:"epoch,omitempty"`
	// Selection is how often the informer has selected something else before: what is selected
	// again comes as it was.
	Selection int `json:"selection,omitempty"`
}

// appendTo puts the era behind an id.
func (e IDSuffix) appendTo(id string) string {
	if e == (IDSuffix{}) {
		return id
	}
	var b strings.Builder
	b.WriteString(id)
	e.write(&b)
	return b.String()
}

func (e IDSuffix) write(b *strings.Builder) {
	if e.Epoch > 0 {
		b.WriteString("/epoch/")
		b.WriteString(strconv.Itoa(e.Epoch))
	}
	if e.Selection > 0 {
		b.WriteString("/selection/")
		b.WriteString(strconv.Itoa(e.Selection))
	}
}

// EpochOf returns the epoch that an id has, 0 for none. Whoever may write to the broker chooses it:
// the caller judges how large it may be.
func EpochOf(id string) int {
	_, epoch, found := strings.Cut(id, "/epoch/")
	if !found {
		return 0
	}
	digits, _, _ := strings.Cut(epoch, "/")
	number, err := strconv.Atoi(digits)
	if err != nil || number < 0 {
		return 0
	}
	return number
}

// Causes of an Added, and of a Deleted, under a selector. CauseUnknown is of one of both: the API
// server selects and does not say which, or the first change that was seen of an object was an
// update.
const (
	CauseCreated = "created"
	CauseEntered = "entered-selector"
	CauseDeleted = "deleted"
	CauseLeft    = "left-selector"
	CauseUnknown = "unknown"
)

// SourceOf returns the source of all events of a cluster: a URI reference, whatever its name is
// made of.
func SourceOf(cluster string) string {
	return (&url.URL{Path: "/clusters/" + cluster}).EscapedPath()
}

// NewMaker checks and prepares.
func NewMaker(cfg MakerConfig) (*Maker, error) {
	cfg.Payload = cmp.Or(cfg.Payload, PayloadObject)
	if !slices.Contains(Payloads, cfg.Payload) {
		return nil, fmt.Errorf("payload %q: there are %v", cfg.Payload, Payloads)
	}
	if cfg.Types = cmp.Or(cfg.Types, TypesBridge); cfg.Types != TypesBridge &&
		cfg.Types != TypesKnative {
		return nil, fmt.Errorf("types %q: there are %s and %s", cfg.Types, TypesBridge, TypesKnative)
	}
	return &Maker{
		cfg: cfg, source: SourceOf(cfg.Cluster), types: typeNames(&cfg),
		prefixes: newPrefixes(cfg.Type),
	}, nil
}

// NeedsOld reports whether the events of updates are made with the old object.
func (m *Maker) NeedsOld() bool { return m.cfg.Payload.NeedsOld() }

// Object makes the event of a change. The id is deterministic: the same change has the same id from
// any replica, after any restart. A panic ends in an event without a payload, whose Err says so.
func (m *Maker) Object(c *Change) (e Event) {
	if c.Object != nil && c.Object.APIVersion != "" {
		m = m.forVersion(c.Object.APIVersion)
	}
	defer func() {
		if recovered := recover(); recovered != nil {
			e = m.named(c)
			e.Err = NewPanicError(recovered)
		}
	}()
	e = m.named(c)
	if c.Object != nil {
		m.fill(&e, c)
	}
	if m.cfg.Payload == PayloadDebezium {
		named := e // e itself would move to the heap, of all forms
		e.Data = m.debezium(&named, c)
	}
	if m.cfg.Types == TypesKnative {
		m.asKnative(&e)
	}
	if m.cfg.Trace != nil {
		e.TraceParent = m.cfg.Trace(e.Source, e.ID)
	}
	return e
}

// named returns the event of a change without what has to be read from the object.
func (m *Maker) named(c *Change) Event {
	t := m.cfg.Type
	namespace, name := c.Key.Split()
	w := m.compose(c, namespace, name)
	return Event{
		ID: w.id, Source: m.source, Type: m.types[c.Op], Subject: w.path, Time: c.Time,
		PartitionKey: w.key, Sequence: w.sequence,
		ObjectAttributes: ObjectAttributes{
			APIVersion: m.prefixes.apiVersion, Kind: t.Kind, Resource: t.Resource,
			Namespace: namespace, Name: name, UID: c.UID,
			ResourceVersion: string(c.Version), Previous: string(c.Before), Changed: c.Changed,
		},
		OriginAttributes: OriginAttributes{
			TimeSource: c.TimeSource, NotBefore: c.NotBefore, Manager: c.By.Manager, ManagerSubresource: c.By.Subresource,
			ManagerOperation: c.By.Operation, LastManager: c.LastManager,
			Cause: c.Cause, Initial: c.Initial, Inferred: c.Inferred,
		},
		Informer: m.cfg.Informer, Op: c.Op, Observed: c.Observed,
		Routing: Routing{Cluster: m.cfg.Cluster, Group: t.Group, Version: t.Version},
	}
}

// forVersion makes a Maker for objects that are in another version of the API: attributes and
// subject are those of the object that they come with.
func (m *Maker) forVersion(apiVersion string) *Maker {
	other := *m
	other.cfg.Type = m.cfg.Type.In(apiVersion)
	other.prefixes = newPrefixes(other.cfg.Type)
	return &other
}

// fill adds what is read from the object.
func (m *Maker) fill(e *Event, c *Change) {
	e.Data, e.DataType = m.cfg.Payload.encode(c)
	e.Extensions = m.extensions(c)
}

// sequence of an event about the informer; see writeSequence.
func (e IDSuffix) sequence(v resource.Version) string {
	var b strings.Builder
	e.writeEra(&b)
	writePadded(&b, v)
	return b.String()
}

// writeEra writes the number that every sequence begins with: how often versions began to come
// that had come before.
func (e IDSuffix) writeEra(b *strings.Builder) {
	const digits = "00000000"
	text := strconv.Itoa(e.Epoch + e.Selection)
	b.WriteString(digits[min(len(text), len(digits)):])
	b.WriteString(text)
	b.WriteByte('.')
}

// writePadded writes a version as 20 digits, so that versions sort as text. One that is no number
// stays as it is.
func writePadded(b *strings.Builder, v resource.Version) {
	b.WriteString(padding(v))
	b.WriteString(string(v))
}

func padding(v resource.Version) string {
	const digits = "00000000000000000000"
	if !v.Ordered() || len(v) >= len(digits) {
		return ""
	}
	return digits[len(v):]
}

// gapData is the payload of a gap event.
type gapData struct {
	Reason string `json:"reason"`
	From   string `json:"from"`
	To     string `json:"to"`
	// Dropped is how many events were dropped, for that reason.
	Dropped int `json:"dropped,omitempty"`
	// Since is when what is missing began to be missed, where that is known.
	Since time.Time `json:"since,omitzero"`
	Note  string    `json:"note"`
}

// Gap makes the event that reports versions which the bridge could not see. since is the time after
// which they were made, zero where that is not known.
func (m *Maker) Gap(r *resource.Relist, since time.Time, era IDSuffix, observed time.Time) Event {
	id := string(r.From) + "/" + string(r.To)
	if r.Loss != 0 {
		id += "/lost/" + strconv.FormatInt(r.Loss, 10)
	}
	e := m.about("gap", Gap, era.appendTo(id), observed)
	e.Sequence, e.ResourceVersion, e.Inferred = era.sequence(r.To), string(r.To), true
	m.report(&e, gapData{
		Reason: r.Reason, From: string(r.From), To: string(r.To), Since: since.UTC(), Note: noteOf(r),
	})
	return e
}

// noteOf says what comes of a gap.
func noteOf(r *resource.Relist) string {
	switch r.Reason {
	case resource.ReasonLost:
		return "the sink's destination was deleted, purged or restored, and lacks events that it had " +
			"acknowledged, perhaps of this resource: they will not come. Compare with a list of the " +
			"resource, or take a new snapshot"
	case resource.ReasonForgotten:
		return "the bridge's own state is gone: all objects that there are follow as added; what was " +
			"deleted since the last event before this one gets no deleted event: " +
			"compare what you hold with what follows, up to the informer.synced event"
	}
	return "versions between from and to are not available: what differs follows as inferred " +
		"events; objects created and deleted in between can't be known"
}

// syncedData is the payload of an informer's synced event.
type syncedData struct {
	Version string `json:"version"`
	Listing
	// Selective are the keys by which versions are left out: see MakerConfig.Omits.
	Selective []string `json:"selective,omitempty"`
}

// Listing is what a list held.
type Listing struct {
	Items int `json:"items"` // that were understood
	// Unreadable are those that were not, each reported by a quarantined event.
	Unreadable int `json:"unreadable,omitempty"`
	// DeletesUnknown: one of them may be any object, so that none was taken for gone.
	DeletesUnknown bool `json:"deletesUnknown,omitempty"`
	// First: the bridge knew nothing before this list, so no deleted event says what a consumer has
	// from before and what does not exist.
	First bool `json:"first,omitempty"`
}

// Synced makes the event that reports that a list was worked through: what follows are changes.
func (m *Maker) Synced(
	version resource.Version, listing Listing, era IDSuffix, observed time.Time,
) Event {
	e := m.about("synced", Synced, era.appendTo(string(version)), observed)
	e.Sequence, e.ResourceVersion = era.sequence(version), string(version)
	m.report(&e, syncedData{Version: string(version), Listing: listing, Selective: m.cfg.Omits})
	return e
}

// progressData is the payload of an informer's progress event.
type progressData struct {
	Version string `json:"version"`
	// Selective are as those of syncedData. They change without a list when a filter is added.
	Selective []string `json:"selective,omitempty"`
	// From, Since and Until are set after an unwatched time: the versions behind from,
	// which were made between since and until, became known late.
	From  string    `json:"from,omitempty"`
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
}

// Unwatched is an unwatched time. The watch was continued at the version with which it
// began, so nothing is missing. Zero for none.
type Unwatched struct {
	From         resource.Version
	Since, Until time.Time
}

// Omits returns the configuration's keys by which the sink is not sent every version.
func (m *Maker) Omits() []string { return m.cfg.Omits }

// Progress makes the event that reports that all changes up to a version are in the stream before
// it. It comes again for that version when other versions are left out, so the id has the keys of
// these, and after an unwatched time, so the id has its beginning.
func (m *Maker) Progress(
	version resource.Version, unwatched Unwatched, era IDSuffix, observed time.Time,
) Event {
	id := string(version)
	if len(m.cfg.Omits) > 0 {
		id += "/" + strings.Join(m.cfg.Omits, "+")
	}
	if !unwatched.Since.IsZero() {
		id += "/since/" + strconv.FormatInt(unwatched.Since.Unix(), 10)
	}
	e := m.about("progress", Progress, era.appendTo(id), observed)
	e.Sequence, e.ResourceVersion = era.sequence(version), string(version)
	m.report(&e, progressData{
		Version: string(version), Selective: m.cfg.Omits, From: string(unwatched.From),
		Since: unwatched.Since.UTC(), Until: unwatched.Until.UTC(),
	})
	return e
}

// about makes an event about the informer rather than an object.
func (m *Maker) about(what string, op Op, id string, observed time.Time) Event {
	t := m.cfg.Type
	of := m.cfg.Informer + "/" + t.String()
	if m.cfg.Namespace != "" {
		of += "/" + m.cfg.Namespace
	}
	if !m.cfg.Shard.All() {
		// each of them reports its own
		of += fmt.Sprintf("/shard-%d-of-%d", m.cfg.Shard.Index, m.cfg.Shard.Count)
	}
	e := Event{
		ID: of + "/" + what + "/" + id, Source: m.source, Type: "dev.kubebridge.informer." + what,
		Subject: t.CollectionPath(m.cfg.Namespace), Time: observed, PartitionKey: t.String(),
		ObjectAttributes: ObjectAttributes{
			APIVersion: t.APIVersion(), Kind: t.Kind, Resource: t.Resource,
			Namespace: m.cfg.Namespace,
		},
		Informer: m.cfg.Informer, Op: op, Observed: observed,
		Routing: Routing{
			Cluster: m.cfg.Cluster, Group: t.Group, Version: t.Version,
			CompactionKey: "informers/" + of + "/" + what,
		},
	}
	if m.cfg.Trace != nil {
		e.TraceParent = m.cfg.Trace(e.Source, e.ID)
	}
	return e
}

// mustJSON marshals a struct of strings and numbers, which can't fail.
func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}
