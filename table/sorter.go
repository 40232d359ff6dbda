package table

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// sorter takes rows of the table and gives them back in its order.
type sorter struct {
	schema *arrow.Schema
	record *array.RecordBuilder
	bytes  int
	count  int
}

func newSorter(schema *arrow.Schema) *sorter {
	return &sorter{schema: schema, record: newRecordBuilder(schema)}
}

// add copies a row. instead has the columns that get another value.
func (s *sorter) add(batch arrow.RecordBatch, row int, instead map[string]func(array.Builder)) {
	for i, f := range s.schema.Fields() {
		if set := instead[f.Name]; set != nil {
			set(s.record.Field(i))
			continue
		}
		copyValue(s.record.Field(i), batch.Column(i), row)
	}
	s.count++
	s.bytes += rowOverhead
	if c := textColumn(batch, colData); c.IsValid(row) {
		s.bytes += c.ValueLen(row)
	}
}

// sorted yields the rows in their order, and forgets them.
func (s *sorter) sorted() iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		all := s.record.NewRecordBatch()
		defer all.Release()
		s.count, s.bytes = 0, 0
		var columns []*array.String
		for _, name := range changes.sort {
			columns = append(columns, textColumn(all, name))
		}
		times := all.Column(all.Schema().FieldIndices(colTime)[0]).(*array.Timestamp)
		data := textColumn(all, colData)
		order := make([]int, all.NumRows())
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(a, b int) int {
			c := cmp.Compare(dayOf(times.Value(a).ToTime(arrow.Microsecond)), dayOf(times.Value(b).ToTime(arrow.Microsecond)))
			for i := 0; c == 0 && i < len(columns); i++ {
				c = strings.Compare(columns[i].Value(a), columns[i].Value(b))
			}
			return c
		})
		out := newRecordBuilder(s.schema)
		defer out.Release()
		count, bytes := 0, 0
		for n, i := range order {
			for c := range s.schema.Fields() {
				copyValue(out.Field(c), all.Column(c), i)
			}
			count, bytes = count+1, bytes+data.ValueLen(i)
			if n < len(order)-1 && count < maxBatchRows && bytes < maxBatchBytes {
				continue
			}
			if !yield(out.NewRecordBatch(), nil) {
				return
			}
			count, bytes = 0, 0
		}
	}
}

func (s *sorter) release() { s.record.Release() }

func textColumn(batch arrow.RecordBatch, name string) *array.String {
	return batch.Column(batch.Schema().FieldIndices(name)[0]).(*array.String)
}

// copyValue appends a value of a column.
func copyValue(to array.Builder, from arrow.Array, i int) {
	if from.IsNull(i) {
		to.AppendNull()
		return
	}
	switch from := from.(type) {
	case *array.String:
		to.(*array.StringBuilder).Append(from.Value(i))
	case *array.Int64:
		to.(*array.Int64Builder).Append(from.Value(i))
	case *array.Boolean:
		to.(*array.BooleanBuilder).Append(from.Value(i))
	case *array.Timestamp:
		to.(*array.TimestampBuilder).Append(from.Value(i))
	case *array.Map:
		m := to.(*array.MapBuilder)
		m.Append(true)
		begin, end := from.ValueOffsets(i)
		for j := begin; j < end; j++ {
			copyValue(m.KeyBuilder(), from.Keys(), int(j))
			copyValue(m.ItemBuilder(), from.Items(), int(j))
		}
	default:
		panic(fmt.Sprintf("no column of the table is %s", from.DataType()))
	}
}
