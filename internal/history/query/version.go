package query

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history/keys"
	"github.com/kubebridge/bridge/internal/history/record"
	"github.com/kubebridge/bridge/internal/resource/diff"
	"github.com/kubebridge/bridge/internal/resource/jsontree"
)

// Version is one version of an object, or its end.
type Version struct {
	Event event.Event
	Unit  *record.Unit
	// Time is when the change was made or observed.
	Time time.Time
	// LateChange is the change because of which this may have been over at the point of a question;
	// nil for none.
	LateChange *LateChange
	seq        keys.Sequence
	form       record.Form // where the event has no data, and the stored version has; else ""
}

// Form returns what is known of the object.
func (v *Version) Form() record.Form {
	if v.form != "" {
		return v.form
	}
	data := v.Event.Data
	// An object mostly begins with its kind, and has most bytes behind its metadata.
	shape := diff.ShapeUntil(data, "metadata")
	if shape.Member(data, "kind") == nil {
		shape = diff.ShapeOf(data, nil, nil)
	}
	return record.FormOf(shape, data, v.Event.DataType)
}

// Deleted reports whether the object ends with this version.
func (v *Version) Deleted() bool { return v.Event.Op == event.Deleted }

// Object names an object in a unit.
type Object struct {
	Unit            *record.Unit
	Namespace, Name string
}

// String is "deployments.apps/shop/web".
func (o *Object) String() string {
	if o.Namespace == "" {
		return o.Unit.GroupResource() + "/" + o.Name
	}
	return o.Unit.GroupResource() + "/" + o.Namespace + "/" + o.Name
}

func (o *Object) prefix() []byte {
	return keys.AppendObject(make([]byte, 0, 128), o.Unit.Number, o.Namespace, o.Name)
}

// versionOf makes a version of its text. Its data is a part of text.
func versionOf(
	u *record.Unit, namespace, name string, seq keys.Sequence, h record.Header, text []byte,
	base string,
) (*Version, error) {
	v := &Version{}
	return v, v.read(u, namespace, name, seq, h, text, base)
}

// read makes v the version of a text. Its data is a part of text.
func (v *Version) read(
	u *record.Unit, namespace, name string, seq keys.Sequence, h record.Header, text []byte,
	base string,
) error {
	v.begin(u, namespace, name, seq, h)
	if err := record.ReadText(&v.Event, u, seq, text, base); err != nil {
		return fmt.Errorf("version %s of %s/%s/%s: %w", seq, u.GroupResource(), namespace, name, err)
	}
	return nil
}

// begin sets what the key and the header say.
func (v *Version) begin(
	u *record.Unit, namespace, name string, seq keys.Sequence, h record.Header,
) {
	*v = Version{Unit: u, Time: h.Time, seq: seq}
	e := &v.Event // in place: an event is large
	e.Source, e.Informer, e.Op, e.Time = u.Source, u.Informer, h.Op, h.Time
	e.Resource, e.Namespace, e.Name = u.Resource, namespace, name
	e.Routing.Cluster, e.Routing.Group = u.Cluster(), u.Group
}

// Sequence identifies the version among all of its object.
func (v *Version) Sequence() string { return v.seq.String() }

// Number returns the resourceVersion as a number, 0 where it is none.
func (v *Version) Number() uint64 { return v.seq.Version }

// Era counts how often versions began again, as a restore of etcd makes them.
func (v *Version) Era() uint32 { return v.seq.Era }

// Labels returns the labels of the object, as far as they are known.
func (v *Version) Labels() labels.Set {
	set := labels.Set{}
	for w := jsontree.Parse(diff.Field(v.Event.Data, "metadata.labels")).Walk(); w.Next(); {
		var value string
		if json.Unmarshal(w.Value().Raw(), &value) == nil { // a redacted one may be anything
			set[w.Name()] = value
		}
	}
	return set
}

// Manager made this change, with its subresource as "kubelet/status"; "" where that is not known.
func (v *Version) Manager() string {
	if v.Event.Manager == "" || v.Event.ManagerSubresource == "" {
		return v.Event.Manager
	}
	return v.Event.Manager + "/" + v.Event.ManagerSubresource
}

// whyNoManager says why the manager of this change is not known; "" where it is.
func (v *Version) whyNoManager() string {
	switch e := &v.Event; {
	case e.Manager != "":
		return ""
	case e.Op == event.Deleted:
		return "the API server does not say who deletes an object"
	case e.Initial || e.Inferred || e.Op == event.Synced:
		return "it was found in a list: several writes may have made this state"
	default:
		return "managedFields do not show it: nothing was set, or not by exactly one manager"
	}
}

// Attribute returns an attribute that not every event has, "" for none.
func (v *Version) Attribute(name string) string {
	for _, a := range v.Event.Extensions {
		if a.Name == name {
			return a.Value
		}
	}
	return ""
}

// ChangesSince returns the changes of an update; nil where one of the two objects is not known.
func (v *Version) ChangesSince(before *Version) []diff.Change {
	if before == nil || before.Deleted() || v.Form() == record.FormNone || v.Form() != before.Form() ||
		v.Form() == record.FormPatch {
		return nil
	}
	return diff.Changes(before.Event.Data, v.Event.Data)
}

// Entry is something that happened: a version of an object, or its end, with what it changed in
// short. Its event has no id, no uid, no data, and nothing that follows from the other attributes.
type Entry struct {
	*Version
	// HasBefore reports whether there is a version before. After the end of an object there is
	// none.
	HasBefore bool
	// Changes are fields that differ from the version before, at most 32, without long values. More
	// is how many others do.
	Changes   []diff.Change
	More      int
	heartbeat bool
	// Cursor is the place of the entry.
	Cursor Cursor
}

// IsCut reports whether the entry lacks changes or values: Timeline.Whole has them.
func (e *Entry) IsCut() bool {
	return e.More > 0 || slices.ContainsFunc(e.Changes, func(c diff.Change) bool { return c.Omitted })
}

// IsHeartbeat reports whether a change only says that somebody is alive.
func (e *Entry) IsHeartbeat() bool { return e.heartbeat && e.Event.Op == event.Updated }

// readEntry makes an entry with v of a value of the timeline; nil where it is an op alone.
func readEntry(v *Version, u *record.Unit, t *keys.Entry, value []byte) (*Entry, error) {
	if len(value) == 1 {
		return nil, nil
	}
	s, h, base, err := record.ReadSummary(value, t.Seq)
	if err != nil {
		return nil, err
	}
	v.begin(u, t.Namespace, t.Name, t.Seq, h)
	if err := record.ReadShort(&v.Event, t.Seq, h.Payload, base); err != nil {
		return nil, fmt.Errorf("the entry of %s of %s/%s/%s: %w", t.Seq, u.GroupResource(), t.Namespace,
			t.Name, err)
	}
	if !s.ReadFields(v.Event.Data) {
		return nil, record.ErrUnreadable
	}
	return newEntry(v, &s), nil
}

// newEntry returns an entry with a version. It removes from the version what a summary does not
// have.
func newEntry(v *Version, s *record.Summary) *Entry {
	v.form = s.Form
	v.Event.ID, v.Event.UID, v.Event.Data = "", "", nil
	v.Event.Type, v.Event.Subject, v.Event.PartitionKey, v.Event.Sequence = "", "", "", ""
	return &Entry{
		Version: v, HasBefore: s.Flags&record.HasBefore != 0, Changes: s.Changes, More: s.More,
		heartbeat: s.Flags&record.IsHeartbeat != 0,
	}
}

// summarized returns the entry of a version that was read, as it would be with a summary.
func summarized(v, before *Version) *Entry {
	flags := byte(0)
	if before != nil {
		flags = record.HasBefore
	}
	s := record.Summarize(v.Form(), flags, v.ChangesSince(before))
	return newEntry(v, &s)
}

// Head says which version of an object is the newest.
type Head struct {
	Object  Object
	Era     uint32
	Version uint64
	Deleted bool
}

// Heads returns the newest versions of all objects of units in a namespace, "*" for all, without
// what they hold. The error is the last element.
func (h Objects) Heads(units []*record.Unit, namespace string) iter.Seq2[Head, error] {
	return func(yield func(Head, error) bool) {
		r, err := newReader(h.db)
		if err != nil {
			yield(Head{}, err)
			return
		}
		defer r.Close()
		for _, u := range units {
			hasMore, err := r.heads(u, namespace, yield)
			if err != nil {
				yield(Head{}, h.db.ReadError(err))
			}
			if err != nil || !hasMore {
				return
			}
		}
	}
}

func (r *reader) heads(
	u *record.Unit, namespace string, yield func(Head, error) bool,
) (hasMore bool, err error) {
	names := keys.InUnit(nil, keys.SpaceVersion, u.Number)
	if namespace != "*" {
		names = keys.AppendName(names, namespace)
	}
	for ok := r.it.SeekGE(names); ok && bytes.HasPrefix(r.it.Key(), names); {
		prefix, ns, name, _, isKey := keys.SplitVersion(r.it.Key())
		prefix = bytes.Clone(prefix)
		if !isKey || !r.it.SeekLT(keys.After(prefix)) {
			return false, cmp.Or(r.it.Error(), record.ErrUnreadable)
		}
		seq, isSequence := keys.DecodeSequence(r.it.Key()[len(prefix):])
		if !isSequence {
			return false, record.ErrUnreadable
		}
		if !yield(Head{Object{u, ns, name}, seq.Era, seq.Version, seq.Deleted}, nil) {
			return false, nil
		}
		ok = r.it.SeekGE(keys.After(prefix))
	}
	return true, r.it.Error()
}

// VersionAt returns the highest resourceVersion of a cluster up to a time, of the newest for the
// zero time: among the last changes before it, since times and versions may disagree by seconds. 0
// for none.
func (h Timeline) VersionAt(cluster string, at time.Time) (highest uint64, err error) {
	err = h.lastBuckets(cluster, at, func(e *keys.Entry) {
		if at.IsZero() || e.Second <= keys.Seconds(at) {
			highest = max(highest, e.Version)
		}
	})
	return highest, err
}

// TimeOf returns when the last change up to a resourceVersion of a cluster was, the zero time for
// none.
func (h Timeline) TimeOf(cluster string, version uint64) (last time.Time, err error) {
	for _, u := range h.db.Units() {
		if u.Cluster() != cluster || u.Resource == "" {
			continue
		}
		prefix := keys.Timeline(u.SourceNumber)
		it, err := h.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: keys.After(prefix)})
		if err != nil {
			return last, h.db.ReadError(err)
		}
		for ok := it.Last(); ok; ok = it.Prev() {
			e, isKey := keys.DecodeEntry(it.Key())
			if at := time.Unix(int64(e.Second), 0); isKey && e.Version <= version && at.After(last) {
				last = at
			}
			if isKey && !last.IsZero() &&
				e.Second/keys.BucketSeconds < keys.Seconds(last)/keys.BucketSeconds {
				break // the buckets before are older
			}
		}
		return last, h.db.ReadError(cmp.Or(it.Error(), it.Close()))
	}
	return last, nil
}

// lastBuckets yields what is in the last two buckets with changes up to a time.
func (h Timeline) lastBuckets(cluster string, at time.Time, give func(e *keys.Entry)) error {
	for _, u := range h.db.Units() {
		if u.Cluster() != cluster || u.Resource == "" {
			continue
		}
		prefix := keys.Timeline(u.SourceNumber)
		end := keys.After(prefix)
		if bucket := keys.Seconds(at) / keys.BucketSeconds; !at.IsZero() && bucket < math.MaxUint32 {
			end = keys.AppendBucket(nil, u.SourceNumber, bucket+1)
		}
		it, err := h.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: end})
		if err != nil {
			return h.db.ReadError(err)
		}
		const buckets = 2
		var current []byte
		seen := 0
		for ok := it.Last(); ok; ok = it.Prev() {
			e, isKey := keys.DecodeEntry(it.Key())
			if !isKey {
				return h.db.ReadError(cmp.Or(it.Close(), record.ErrUnreadable))
			}
			if head := it.Key()[:len(prefix)+4]; !bytes.Equal(head, current) {
				if seen++; seen > buckets {
					break
				}
				current = bytes.Clone(head)
			}
			give(&e)
		}
		return h.db.ReadError(cmp.Or(it.Error(), it.Close()))
	}
	return nil
}

// VersionReport is a version as JSON.
type VersionReport struct {
	Time       time.Time `json:"time"`
	TimeSource string    `json:"timeSource,omitempty"`
	// NotBefore is set where the change became known late: it was made between that and Time.
	NotBefore time.Time `json:"notBefore,omitzero"`
	// Uncertain is the change because of which this may have been over at the time of a question.
	Uncertain *LateChange `json:"uncertain,omitempty"`
	Operation string      `json:"operation"`
	Version   string      `json:"resourceVersion"`
	Previous  string      `json:"previous,omitempty"`
	// UID of the object; a timeline has none.
	UID string `json:"uid,omitempty"`
	// Manager of this change, with its subresource as "kubelet/status"; "" where it is not known.
	Manager string `json:"manager,omitempty"`
	// ManagerUnknown says why there is no manager.
	ManagerUnknown string `json:"managerUnknown,omitempty"`
	// Actor is nil where no audit log was recorded.
	Actor *ActorReport `json:"actor,omitempty"`
	// Initiator is the change that a controller made this one for, where that can be proven.
	Initiator *InitiatorReport `json:"initiator,omitempty"`
	Changed   []ChangeReport   `json:"changed,omitempty"`
	Initial   bool             `json:"initial,omitempty"`
	Inferred  bool             `json:"inferred,omitempty"`
	// Known is what is known of the object: object, metadata, patch, none.
	Known record.Form `json:"known"`
}

// ActorReport is the authenticated user of a change, as JSON.
type ActorReport struct {
	User         string   `json:"user,omitempty"`
	Groups       []string `json:"groups,omitempty"`
	Impersonator string   `json:"impersonator,omitempty"`
	Verb         string   `json:"verb,omitempty"`
	Subresource  string   `json:"subresource,omitempty"`
	UserAgent    string   `json:"userAgent,omitempty"`
	AuditID      string   `json:"auditID,omitempty"`
	// Grade says how the user is known: exact, complete-log.
	Grade string `json:"grade,omitempty"`
	// Unknown says why the user is not known.
	Unknown string `json:"unknown,omitempty"`
}

// String names the user, or says in brackets why there is none.
func (r *ActorReport) String() string {
	switch {
	case r == nil:
		return ""
	case r.User == "":
		return "(" + r.Unknown + ")"
	case r.Impersonator != "":
		return r.User + " (impersonated by " + r.Impersonator + ")"
	}
	return r.User
}

// InitiatorReport is a change of an owner for which a controller made another one, as JSON.
type InitiatorReport struct {
	Resource  string       `json:"resource"`
	Namespace string       `json:"namespace,omitempty"`
	Name      string       `json:"name"`
	Version   string       `json:"resourceVersion"`
	Time      time.Time    `json:"time"`
	Actor     *ActorReport `json:"actor"`
	// Grade says how the change is known: derived.
	Grade string `json:"grade"`
}

// String names the user and the change; "" for none.
func (r *InitiatorReport) String() string {
	if r == nil {
		return ""
	}
	return r.Actor.String() + ": " + r.Resource + "/" + r.Name + ", version " + r.Version
}

// ChangeReport is a Change as JSON.
type ChangeReport struct {
	Field string          `json:"field"`
	Old   json.RawMessage `json:"old,omitempty"`
	New   json.RawMessage `json:"new,omitempty"`
	// Omitted: a value is too long for a timeline. The versions of the object have it.
	Omitted bool `json:"omitted,omitempty"`
}

// TimelineReport is a change in a timeline as JSON.
type TimelineReport struct {
	Cluster   string `json:"cluster"`
	Resource  string `json:"resource"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Owners    string `json:"owners,omitempty"`
	VersionReport
	// More is how many changed fields are not in Changed.
	More int `json:"moreChanged,omitempty"`
}

// Report returns a version with what it changed; before is nil where that is not known.
func (v *Version) Report(before *Version) VersionReport {
	return v.report(v.ChangesSince(before))
}

func (v *Version) report(changes []diff.Change) VersionReport {
	e := &v.Event
	r := VersionReport{
		Time: v.Time, TimeSource: e.TimeSource, NotBefore: e.NotBefore, Uncertain: v.LateChange,
		Operation: string(e.Op), Version: e.ResourceVersion, Previous: e.Previous,
		UID: e.UID, Manager: v.Manager(), ManagerUnknown: v.whyNoManager(), Initial: e.Initial,
		Inferred: e.Inferred, Known: v.Form(),
	}
	r.Changed = ReportChanges(changes)
	return r
}

// ReportChanges returns changes as JSON.
func ReportChanges(changes []diff.Change) (list []ChangeReport) {
	for _, c := range changes {
		list = append(list, ChangeReport{c.Path, c.Old, c.New, c.Omitted})
	}
	return list
}

// Size is about how many bytes it takes as JSON.
func (r *VersionReport) Size() int {
	size := 256
	for _, c := range r.Changed {
		size += len(c.Field) + len(c.Old) + len(c.New)
	}
	return size
}

// Report returns an entry of a timeline as JSON.
func (e *Entry) Report() TimelineReport {
	return TimelineReport{
		Cluster: e.Unit.Cluster(), Resource: e.Unit.GroupResource(), Namespace: e.Event.Namespace,
		Name:   e.Event.Name,
		Owners: e.Attribute("owners"), VersionReport: e.report(e.Changes), More: e.More,
	}
}
