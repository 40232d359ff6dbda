package table

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/catalog"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/record"
	"github.com/kubebridge/bridge/internal/resource"
)

// coverageSpec is the table coverage: of each resource of an informer what was read without a
// break, and the gaps between. It is made of the rows about informers, and replaced as a whole.
var coverageSpec = spec{
	name: "coverage",
	sort: []string{"cluster", "informer", "resource", "since"},
	schema: func() *iceberg.Schema {
		var fields []iceberg.NestedField
		for i, name := range []string{
			"cluster", "informer", "resource", "namespace", "shard", "gap", "object", "fromversion", "toversion",
		} {
			fields = append(fields, iceberg.NestedField{ID: i + 1, Name: name, Type: iceberg.PrimitiveTypes.String})
		}
		for _, name := range []string{"since", "until"} {
			fields = append(fields, iceberg.NestedField{
				ID: len(fields) + 1, Name: name, Type: iceberg.PrimitiveTypes.TimestampTz,
			})
		}
		fields = append(fields, iceberg.NestedField{
			ID: len(fields) + 1, Name: "unwatched", Type: iceberg.PrimitiveTypes.Int64,
			Doc: "seconds of the longest time without a watch: what changed then was read later",
		})
		return iceberg.NewSchema(0, fields...)
	}(),
}

// coveragePause is the least between two commits of coverage, unless a list or a gap came.
const coveragePause = 10 * time.Minute

// coverage keeps what the stream says about itself: each list and gap, and the newest progress.
type coverage struct {
	lake, changes *lake
	written       time.Time
	// isDue is set for news that can wait, isUrgent for a list or a gap.
	isDue, isUrgent bool
	units           map[record.Unit]map[query.Scope]*said
	// missing are the notices about messages of all units that were not read.
	missing map[noticeName]*query.Notice
}

// noticeName names a notice. A bridge that has lost its state gives an id twice.
type noticeName struct {
	incarnation int64
	id          string
}

// said is what the stream says of a resource in one scope.
type said struct {
	notices, lost map[noticeName]*query.Notice
	// reached is the newest list or progress of each lane in each stretch.
	reached map[stretch]map[string]*query.Notice
}

// stretch is a part of the stream that is whole: lost counts the gaps `lost` of its incarnation
// before it.
type stretch struct {
	incarnation int64
	lost        int
}

// openCoverage reads the rows that the table changes has: gaps first, as stretchOf wants them.
func openCoverage(ctx context.Context, c catalog.Catalog, namespace string, from *lake) (*coverage, error) {
	o := &coverage{
		changes: from, units: map[record.Unit]map[query.Scope]*said{}, missing: map[noticeName]*query.Notice{},
	}
	var err error
	if o.lake, err = openLake(ctx, c, namespace, coverageSpec); err != nil || from.CurrentSnapshot() == nil {
		return o, err
	}
	isGap := iceberg.EqualTo(iceberg.Reference("op"), string(event.Gap))
	for _, filter := range []iceberg.BooleanExpression{isGap, isGap.Negate()} {
		for batch, err := range from.scan(ctx, iceberg.NewAnd(aboutInformers, filter)) {
			if err != nil {
				return nil, err
			}
			if err := o.add(rowsOf(batch)); err != nil {
				return nil, err
			}
			batch.Release()
		}
	}
	return o, nil
}

// rowsOf are rows about informers as they were written.
func rowsOf(batch arrow.RecordBatch) (rows []*row) {
	column := func(name string) arrow.Array { return batch.Column(batch.Schema().FieldIndices(name)[0]) }
	times, incarnations := column(colTime).(*array.Timestamp), column(colIncarnation).(*array.Int64)
	versions := column(colVersion).(*array.Int64)
	for i := range int(batch.NumRows()) {
		text := func(name string) string { return strings.Clone(textColumn(batch, name).Value(i)) }
		r := &row{lane: text(colLane), incarnation: incarnations.Value(i), Event: event.Event{
			ID: text("id"), Source: text("source"), Type: text("type"), Subject: text("subject"),
			PartitionKey: text("partitionkey"), Sequence: text(colSequence), Informer: text("informer"),
			Op: event.Op(text("op")), Time: times.Value(i).ToTime(arrow.Microsecond), Data: []byte(text(colData)),
			ObjectAttributes: event.ObjectAttributes{
				APIVersion: text("apiversion"), Kind: text("kind"), Resource: text("resource"), Namespace: text("namespace"),
			},
			Routing: event.Routing{Group: text("apigroup")},
		}}
		if versions.IsValid(i) {
			r.ResourceVersion = fmt.Sprint(versions.Value(i))
		}
		rows = append(rows, r)
	}
	return rows
}

// add takes rows about informers: of each call gaps first.
func (o *coverage) add(rows []*row) error {
	for _, isGap := range []bool{true, false} {
		for _, r := range rows {
			if isGap != (r.Op == event.Gap) {
				continue
			}
			if err := o.addRow(r); err != nil {
				return err
			}
		}
	}
	return nil
}

func (o *coverage) addRow(r *row) error {
	o.isDue, o.isUrgent = true, o.isUrgent || r.Op == event.Gap || r.Op == event.Synced
	e := r.Event
	e.ID, _, _ = strings.Cut(e.ID, "/partition/") // each partition of a topic has a copy
	unit := record.Unit{Source: e.Source, Informer: e.Informer, Resource: e.Resource, Group: e.Group}
	m, err := query.ReadNotice(&unit, event.AppendStructured(nil, &e))
	if err != nil {
		return err
	}
	name := noticeName{r.incarnation, e.ID}
	if e.Source == record.ArchiveSource {
		o.missing[name] = m
		return nil
	}
	if o.units[unit] == nil {
		o.units[unit] = map[query.Scope]*said{}
	}
	s := o.units[unit][m.Scope()]
	if s == nil {
		s = &said{map[noticeName]*query.Notice{}, map[noticeName]*query.Notice{}, map[stretch]map[string]*query.Notice{}}
		o.units[unit][m.Scope()] = s
	}
	if e.Op == event.Progress || e.Op == event.Synced {
		s.reach(r, m)
	}
	if e.Op != event.Progress || m.IsUnwatched() {
		s.notices[name] = m
	}
	if m.Reason == resource.ReasonLost {
		s.lost[name] = m
	}
	return nil
}

// reach keeps the newest notice of a lane that says what is complete.
func (s *said) reach(r *row, m *query.Notice) {
	in := stretch{incarnation: r.incarnation}
	for name, lost := range s.lost {
		if name.incarnation == in.incarnation && lost.Time.Before(m.Time) {
			in.lost++
		}
	}
	if s.reached[in] == nil {
		s.reached[in] = map[string]*query.Notice{}
	}
	if was := s.reached[in][r.lane]; was == nil || was.Time.Before(m.Time) {
		s.reached[in][r.lane] = m
	}
}

// end returns the notice up to which all lanes of a stretch were read, as the list of one.
func (s *said) end(in stretch) []*query.Notice {
	byTime := func(a, b *query.Notice) int { return a.Time.Compare(b.Time) }
	return slices.SortedFunc(maps.Values(s.reached[in]), byTime)[:min(1, len(s.reached[in]))]
}

// intervals returns what of a resource was read without a break, and the gaps. A gap `lost` or
// `recreated` lasts until a first list: the lists between have only what differs.
func (o *coverage) intervals(unit *record.Unit, scope query.Scope, s *said) (list []query.Interval) {
	all := maps.Clone(o.missing)
	maps.Copy(all, s.notices)
	at := func(m *query.Notice) time.Time {
		switch {
		case m.Reason == query.ReasonRecreated:
			return time.Time{} // its incarnation begins with it
		case m.Event.Source == record.ArchiveSource:
			return m.Begins()
		}
		return m.Time
	}
	names := slices.SortedFunc(maps.Keys(all), func(a, b noticeName) int {
		return cmp.Or(cmp.Compare(a.incarnation, b.incarnation), at(all[a]).Compare(at(all[b])),
			cmp.Compare(a.id, b.id))
	})
	var whole []*query.Notice // since the break before
	var in stretch
	isBroken := false
	end := func() {
		if !isBroken && (len(whole) > 0 || len(list) == 0) {
			list = append(list, query.IntervalsOf(unit, scope, whole, s.end(in))...)
		}
		whole = nil
	}
	var listed time.Time
	for _, name := range names {
		m := all[name]
		isNext, isLost := name.incarnation > in.incarnation, m.Reason == resource.ReasonLost
		switch {
		case isNext, isLost:
			wasSaid := len(whole) > 0 || len(list) > 0 || len(s.reached[in]) > 0
			if isLost || wasSaid {
				end()
				list, isBroken = breakOff(list, m), true
			}
			if in.incarnation = name.incarnation; isNext {
				in.lost = 0
			}
			if isLost {
				in.lost++
			}
		case m.Reason == query.ReasonRecreated:
		case isBroken && !beginsState(m):
		case isBroken:
			heal(&list[len(list)-1], m)
			isBroken, whole = false, []*query.Notice{m}
		default:
			if m.Event.Op == event.Gap && m.Since.IsZero() && m.Event.Source != record.ArchiveSource {
				since := *m
				since.Since, m = listed, &since
			}
			whole = append(whole, m)
		}
		if m.Event.Op == event.Synced {
			listed = m.Time
		}
	}
	end()
	return list
}

// breakOff adds a gap behind what was read last, unless one is open.
func breakOff(list []query.Interval, m *query.Notice) []query.Interval {
	last := &list[len(list)-1]
	if last.Gap != "" && last.Until.IsZero() && last.Gap != "unknown" {
		return list
	}
	gap := *last
	gap.Gap, gap.Object, gap.Unwatched = m.Reason, "", nil
	gap.From, gap.To, gap.Since, gap.Until = last.To, "", cmp.Or(last.Until, m.Begins()), time.Time{}
	return append(list, gap)
}

// beginsState reports whether all that exists comes with a notice, or behind it.
func beginsState(m *query.Notice) bool {
	return m.Reason == resource.ReasonForgotten || m.Event.Op == event.Synced && newsOf(m.Event.InformerData()).First
}

// heal ends a gap.
func heal(gap *query.Interval, m *query.Notice) {
	gap.To, gap.Until, gap.Epoch = m.Event.ResourceVersion, m.Time, m.Epoch()
}

// store replaces the table by what is known now, when that is due.
func (o *coverage) store(ctx context.Context, now time.Time) error {
	if !o.isUrgent && (!o.isDue || now.Sub(o.written) < coveragePause) {
		return nil
	}
	var list []query.Interval
	var err error
	for unit, scopes := range o.units {
		if unit.Resource == "" {
			continue
		}
		for scope, s := range scopes {
			list = append(list, o.intervals(&unit, scope, s)...)
		}
	}
	if len(list) == 0 {
		return nil
	}
	if list, err = o.retained(list); err != nil {
		return err
	}
	slices.SortStableFunc(list, func(a, b query.Interval) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Informer, b.Informer),
			cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Shard, b.Shard))
	})
	schema, err := o.lake.arrowSchema()
	if err != nil {
		return err
	}
	records := newRecordBuilder(schema)
	defer records.Release()
	b := newBuilder(schema, records)
	for i := range list {
		b.addInterval(&list[i])
	}
	batch := records.NewRecordBatch()
	defer batch.Release()
	if err := o.lake.reload(ctx); err != nil {
		return err
	}
	if err := o.lake.replace(ctx, schema, batch); err != nil {
		return err
	}
	o.isDue, o.isUrgent, o.written = false, false, now
	return nil
}

// retained is what intervals say of the times of which rows are kept.
func (o *coverage) retained(list []query.Interval) ([]query.Interval, error) {
	text := o.changes.Properties()[keyRetained]
	if text == "" {
		return list, nil
	}
	begin, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(i query.Interval) bool { return !i.Until.IsZero() && i.Until.Before(begin) })
	for n := range list {
		if i := &list[n]; i.Since.Before(begin) {
			i.Since, i.From = begin, ""
		}
	}
	return list, nil
}

func (b *builder) addInterval(i *query.Interval) {
	for name, value := range map[string]string{
		"cluster": i.Cluster, "informer": i.Informer, "resource": i.Resource, "namespace": i.Namespace,
		"shard": i.Shard, "gap": i.Gap, "object": i.Object, "fromversion": i.From, "toversion": i.To,
	} {
		b.text(name, value)
	}
	b.time("since", i.Since)
	b.time("until", i.Until)
	b.number("unwatched", int64(i.LongestUnwatched()/time.Second))
}
