package table

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/catalog"
	"github.com/apache/iceberg-go/catalog/rest"
	sqlcatalog "github.com/apache/iceberg-go/catalog/sql"
	_ "github.com/apache/iceberg-go/io/gocloud" // S3, Google Cloud and Azure
	lib "github.com/apache/iceberg-go/table"
	_ "modernc.org/sqlite" // the catalog of a directory

	icebergio "github.com/apache/iceberg-go/io"

	"github.com/kubebridge/bridge/internal/ratelimit"
)

// This file is all that knows iceberg-go, which is at 0.x.

// Place says where the tables are.
type Place struct {
	// To is a directory, which has its own catalog, or the name of a warehouse, which Catalog
	// knows, or its address: s3://bucket/path, gs://…, abfs://….
	To string
	// Catalog is the address of a REST catalog: https://host/iceberg; "" for a directory.
	Catalog string
	// Properties are handed to the catalog and the storage: token, credential, s3.endpoint.
	Properties map[string]string
	// Namespace of the tables; default kubebridge.
	Namespace string
}

const defaultNamespace = "kubebridge"

// open returns the catalog of a place, and what closes it.
func (p *Place) open(ctx context.Context) (catalog.Catalog, func(), error) {
	if p.Catalog != "" {
		c, err := rest.NewCatalog(ctx, "kubebridge", p.Catalog, rest.WithWarehouseLocation(p.To),
			rest.WithAdditionalProps(p.Properties), rest.WithOAuthToken(p.Properties["token"]),
			rest.WithCredential(p.Properties["credential"]))
		if err != nil {
			return nil, nil, fmt.Errorf("catalog %s: %w", p.Catalog, err)
		}
		return c, func() {}, nil
	}
	if strings.Contains(p.To, "://") {
		return nil, nil, fmt.Errorf("%s: object storage needs --catalog, the address of a REST catalog", p.To)
	}
	dir, err := filepath.Abs(p.To)
	if err != nil {
		return nil, nil, err
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, nil, err
	}
	// Readers and a second writer wait for each other; a commit is on the disk before it is done.
	file := (&url.URL{Scheme: "file", Path: filepath.Join(dir, "catalog.db")}).String()
	db, err := sql.Open("sqlite", file+"?_pragma=busy_timeout(30000)&_pragma=journal_mode(WAL)&"+
		"_pragma=synchronous(FULL)&_txlock=immediate")
	if err != nil {
		return nil, nil, err
	}
	c, err := sqlcatalog.NewCatalog("kubebridge", db, sqlcatalog.SQLite, iceberg.Properties{"warehouse": dir})
	if err != nil {
		_ = db.Close()
		return nil, nil, fmt.Errorf("catalog %s: %w", file, err)
	}
	return c, func() { _ = db.Close() }, nil
}

// lake is one table, as of when it was last loaded or committed.
type lake struct {
	catalog lib.CatalogIO
	name    lib.Identifier
	*lib.Table
}

// spec is what a table is created with.
type spec struct {
	name   string
	schema *iceberg.Schema
	// day is the column by whose day the table is partitioned; "" for none.
	day        string
	sort       []string
	properties iceberg.Properties
}

// Columns of the table changes, by which it is partitioned and sorted.
var changes = spec{
	name: "changes", schema: changesSchema, day: colTime,
	sort: []string{"source", "partitionkey", "informer", colSequence},
	properties: iceberg.Properties{
		lib.ParquetCompressionKey:                  "zstd",
		lib.ParquetPageSizeBytesKey:                "1048576",
		lib.ManifestMergeEnabledKey:                "true",
		lib.ManifestMinMergeCountKey:               "32", // each one costs a query; merging costs metadata
		lib.MetadataDeleteAfterCommitEnabledKey:    "true",
		lib.MetadataPreviousVersionsMaxKey:         "20",
		lib.DefaultWriteMetricsModeKey:             "truncate(64)",
		"write.metadata.metrics.column.data":       "none",
		"write.metadata.metrics.column.labels":     "none",
		"write.metadata.metrics.column.attributes": "none",
	},
}

// openLake loads a table, and creates it where there is none. One of an earlier version gets the
// columns that it has not.
func openLake(ctx context.Context, c catalog.Catalog, namespace string, s spec) (*lake, error) {
	ns := lib.Identifier{namespace}
	l := &lake{catalog: c.(lib.CatalogIO), name: lib.Identifier{namespace, s.name}}
	err := l.reload(ctx)
	if err == nil {
		return l, l.addColumns(ctx, s.schema)
	}
	if !errors.Is(err, catalog.ErrNoSuchTable) && !errors.Is(err, catalog.ErrNoSuchNamespace) {
		return nil, err
	}
	if err := c.CreateNamespace(ctx, ns, nil); err != nil && !errors.Is(err, catalog.ErrNamespaceAlreadyExists) {
		return nil, fmt.Errorf("create namespace %s: %w", namespace, err)
	}
	options := []catalog.CreateTableOpt{catalog.WithProperties(s.properties)}
	if f, found := s.schema.FindFieldByName(s.day); found {
		partitions := iceberg.NewPartitionSpec(iceberg.PartitionField{
			SourceIDs: []int{f.ID}, FieldID: 1000, Name: s.day + "_day", Transform: iceberg.DayTransform{},
		})
		options = append(options, catalog.WithPartitionSpec(&partitions))
	}
	var fields []lib.SortField
	for _, name := range s.sort {
		f, _ := s.schema.FindFieldByName(name)
		fields = append(fields, lib.SortField{
			SourceIDs: []int{f.ID}, Transform: iceberg.IdentityTransform{}, Direction: lib.SortASC, NullOrder: lib.NullsFirst,
		})
	}
	order, err := lib.NewSortOrder(1, fields)
	if err != nil {
		return nil, err
	}
	options = append(options, catalog.WithSortOrder(order))
	if _, err := c.CreateTable(ctx, l.name, s.schema, options...); err != nil &&
		!errors.Is(err, catalog.ErrTableAlreadyExists) {
		return nil, fmt.Errorf("create table %s: %w", strings.Join(l.name, "."), err)
	}
	return l, l.reload(ctx)
}

// addColumns adds the columns of a schema that the table has not. Older files have null there.
func (l *lake) addColumns(ctx context.Context, schema *iceberg.Schema) error {
	return again(ctx, l, func() error {
		hasColumn := func(f iceberg.NestedField) bool {
			_, found := l.Schema().FindFieldByName(f.Name)
			return found
		}
		if !slices.ContainsFunc(schema.Fields(), func(f iceberg.NestedField) bool { return !hasColumn(f) }) {
			return nil
		}
		tx := l.NewTransaction()
		if err := tx.UpdateSchema(true, false).UnionByNameWith(schema).Commit(); err != nil {
			return fmt.Errorf("add columns to table %s: %w", strings.Join(l.name, "."), err)
		}
		return l.finish(ctx, tx)
	})
}

// reload loads the table as the catalog has it now.
func (l *lake) reload(ctx context.Context) error {
	t, err := l.catalog.LoadTable(ctx, l.name)
	if err != nil {
		return fmt.Errorf("load table %s: %w", strings.Join(l.name, "."), err)
	}
	l.set(t)
	return nil
}

// set makes commits go through l.catalog, which may be another one than the table knows.
func (l *lake) set(t *lib.Table) {
	l.Table = lib.New(l.name, t.Metadata(), t.MetadataLocation(), t.FS, l.catalog)
}

// arrowSchema is the table's schema for record batches.
func (l *lake) arrowSchema() (*arrow.Schema, error) {
	return lib.SchemaToArrowSchema(l.Schema(), nil, true, false)
}

// Rows of a row group, in the file of a run and in a compacted one. To read a part of the objects
// of a run, only their row groups are read.
const (
	maxRunGroup  = 4000
	maxFileGroup = 10_000
)

// write writes record batches, which are sorted by day, to files that no snapshot has yet.
func (l *lake) write(
	ctx context.Context, schema *arrow.Schema, batches iter.Seq2[arrow.RecordBatch, error], group int,
) (files []iceberg.DataFile, err error) {
	options := []lib.WriteRecordOption{
		lib.WithRecordBatchBufferSize(2), lib.WithParquetRowGroupLimit(group), lib.WithTargetFileSize(targetBytes),
	}
	if s := l.Spec(); s.NumFields() > 0 {
		options = append(options, lib.WithClusteredWrite())
	}
	for f, err := range lib.WriteRecords(ctx, l.Table, schema, batches, options...) {
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// change is what one commit does.
type change struct {
	add, remove []iceberg.DataFile
	summary     map[string]string
	properties  map[string]string
}

// commit makes one snapshot on top of what was last loaded. A table that has changed since is an
// error: nothing is tried again here.
func (l *lake) commit(ctx context.Context, c change) error {
	tx := l.NewTransaction()
	if len(c.properties) > 0 {
		if err := tx.SetProperties(c.properties); err != nil {
			return err
		}
	}
	var err error
	switch {
	case len(c.remove) > 0:
		err = tx.NewRewrite(c.summary).
			ApplyResult(lib.CompactionGroupResult{OldDataFiles: c.remove, NewDataFiles: c.add}).Commit(ctx)
	case len(c.add) > 0:
		// No mapping of names: files have the ids of columns. No look at all files for these ones:
		// their names are random.
		err = tx.AddDataFiles(ctx, c.add, c.summary, lib.WithoutAutoNameMapping(), lib.WithoutDuplicateCheck())
	}
	if err != nil {
		return err
	}
	return l.finish(ctx, tx)
}

// replace makes a record batch all that the table has.
func (l *lake) replace(ctx context.Context, schema *arrow.Schema, batch arrow.RecordBatch) error {
	reader, err := array.NewRecordReader(schema, []arrow.RecordBatch{batch})
	if err != nil {
		return err
	}
	defer reader.Release()
	tx := l.NewTransaction()
	if err := tx.Overwrite(ctx, reader, nil); err != nil {
		return err
	}
	return l.finish(ctx, tx)
}

// deleteRows removes the rows that a filter matches, in one commit.
func (l *lake) deleteRows(ctx context.Context, filter iceberg.BooleanExpression, properties iceberg.Properties) error {
	tx := l.NewTransaction()
	if len(properties) > 0 {
		if err := tx.SetProperties(properties); err != nil {
			return err
		}
	}
	if err := tx.Delete(ctx, filter, nil); err != nil {
		return err
	}
	return l.finish(ctx, tx)
}

// expire removes snapshots of Iceberg that are older, but for the newest, and the files of theirs.
func (l *lake) expire(ctx context.Context, older time.Duration) error {
	tx := l.NewTransaction()
	if err := tx.ExpireSnapshots(lib.WithOlderThan(older), lib.WithRetainLast(1)); err != nil {
		return err
	}
	return l.finish(ctx, tx)
}

func (l *lake) finish(ctx context.Context, tx *lib.Transaction) error {
	t, err := tx.Commit(ctx)
	if err != nil {
		return err
	}
	l.set(t)
	return nil
}

// isConflict reports whether a commit failed since the table had changed.
func isConflict(err error) bool { return errors.Is(err, lib.ErrCommitFailed) }

// again makes a commit on top of what others have committed meanwhile. do works on the table as it
// is then.
func again(ctx context.Context, l *lake, do func() error) error {
	const attempts = 20
	for attempt := 1; ; attempt++ {
		err := do()
		if err == nil || !isConflict(err) || attempt == attempts {
			return err
		}
		if err := ratelimit.Sleep(ctx, time.Duration(attempt)*time.Second/10); err != nil {
			return err
		}
		if err := l.reload(ctx); err != nil {
			return err
		}
	}
}

// head is the sequence number of the newest snapshot; 0 for none.
func (l *lake) head() int64 {
	if s := l.CurrentSnapshot(); s != nil {
		return s.SequenceNumber
	}
	return 0
}

// find returns the value of a key in the newest snapshot that has it. Snapshots of others lie
// between: compaction by Spark. Where the one that had it is not there any more, it is the
// property of the same name: it has expired, or the catalog shows the newest snapshot only, as
// Nessie does.
func (l *lake) find(key string) (value string, found bool) {
	for s := l.CurrentSnapshot(); s != nil; s = l.SnapshotByID(*s.ParentSnapshotID) {
		if s.Summary != nil {
			if value, found := s.Summary.Properties[key]; found {
				return value, true
			}
		}
		if s.ParentSnapshotID == nil {
			break
		}
	}
	value, found = l.Properties()[key]
	return value, found
}

// keepsFiles reports whether the table forbids to remove files: its catalog may need them for
// other versions of the table.
func (l *lake) keepsFiles() bool {
	return !l.Properties().GetBool(lib.GCEnabledKey, lib.GCEnabledDefault)
}

// scan yields the record batches of the rows that a filter matches.
func (l *lake) scan(
	ctx context.Context, filter iceberg.BooleanExpression, columns ...string,
) iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		options := []lib.ScanOption{
			lib.WithRowFilter(filter), lib.WithMaxConcurrency(1), lib.WithArrowBatchSize(1024),
		}
		if len(columns) > 0 {
			options = append(options, lib.WithSelectedFields(columns...))
		}
		_, batches, err := l.Scan(options...).ToArrowRecords(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		for batch, err := range batches {
			if !yield(batch, err) {
				return
			}
		}
	}
}

// files are those that a scan with the filter would read.
func (l *lake) files(ctx context.Context, filter iceberg.BooleanExpression) ([]iceberg.DataFile, error) {
	tasks, err := l.Scan(lib.WithRowFilter(filter)).PlanFiles(ctx)
	var files []iceberg.DataFile
	for _, t := range tasks {
		files = append(files, t.File)
	}
	return files, err
}

// newRecordBuilder makes record batches of the table.
func newRecordBuilder(schema *arrow.Schema) *array.RecordBuilder {
	return array.NewRecordBuilder(memory.DefaultAllocator, schema)
}

// Local files reach the disk before the commit that names them: a catalog that survives a loss of
// power must not name files that did not.
func init() {
	for _, scheme := range []string{"", "file"} {
		icebergio.Unregister(scheme)
		icebergio.Register(scheme, func(context.Context, *url.URL, map[string]string) (icebergio.IO, error) {
			return syncedFS{}, nil
		})
	}
}

type syncedFS struct{ icebergio.LocalFS }

func (s syncedFS) Create(name string) (icebergio.FileWriter, error) {
	w, err := s.LocalFS.Create(name)
	if f, ok := w.(*os.File); ok {
		return syncedFile{f}, err
	}
	return w, err
}

func (s syncedFS) WriteFile(name string, content []byte) error {
	w, err := s.Create(name)
	if err != nil {
		return err
	}
	_, err = w.Write(content)
	return errors.Join(err, w.Close())
}

type syncedFile struct{ *os.File }

func (f syncedFile) Close() error {
	err := f.Sync()
	if dir, openErr := os.Open(filepath.Dir(f.Name())); openErr == nil {
		err = errors.Join(err, dir.Sync(), dir.Close())
	}
	return errors.Join(err, f.File.Close())
}

// dayFilter matches the rows of a day.
func dayFilter(d int64) iceberg.BooleanExpression {
	from := time.Unix(d*86400, 0)
	return iceberg.NewAnd(
		iceberg.GreaterThanEqual(iceberg.Reference(colTime), iceberg.Timestamp(from.UnixMicro())),
		iceberg.LessThan(iceberg.Reference(colTime), iceberg.Timestamp(from.Add(day).UnixMicro())))
}
