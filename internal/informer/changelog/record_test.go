package changelog

import (
	"encoding/binary"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/klauspost/compress/s2"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

var pods = testkit.Pods

// newRecordLog is a log that encodes and decodes.
func newRecordLog() *Log {
	l := &Log{cfg: Config{Type: pods}, everyone: 3}
	for n, name := range []string{"one", "two"} {
		l.cursors = append(l.cursors, &Cursor{name: name, bit: 1 << n})
	}
	return l
}

// fullEntry has something in each field.
func fullEntry(t testing.TB) Entry {
	t.Helper()
	parse := func(version string) *resource.Object {
		raw := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"shop","uid":"u","resourceVersion":"` + version + `"}}`
		obj, err := resource.Parse([]byte(raw), resource.ParseOptions{Type: pods})
		if err != nil {
			t.Fatal(err)
		}
		return obj
	}
	now := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	return Entry{
		Change: event.Change{
			Op: event.Updated, Key: "shop/a", Object: parse("12"), Old: parse("11"), UID: "u", Version: "12", Changed: "spec,labels", Before: "11",
			Owners: []resource.Owner{{Kind: "ReplicaSet", Name: "r"}}, GoneAsOf: "9", Initial: true, Inferred: true,
			Round: 7, Entered: "5", Cause: event.CauseEntered, Left: "6", IDSuffix: event.IDSuffix{Epoch: 1, Selection: 2},
			Origin: event.Origin{
				By:          resource.FieldManager{Manager: "kubelet", Operation: "Update", Subresource: "status"},
				LastManager: "kubectl", Time: now.Add(-time.Second),
				TimeSource: event.TimeManagedFields, NotBefore: now.Add(-time.Minute),
			},
			Observed: now,
		},
		Kind: OfGap, Relist: &resource.Relist{Reason: resource.ReasonExpired, From: "1", To: "2"},
		Listing: event.Listing{Items: 3}, Since: "4", Unreadable: &resource.Unreadable{Message: "no JSON"}, AskBroker: true,
		Loss: event.LossReport{Events: 1}, DeltaVersion: "13", OfList: true,
		For: 2, Position: 42,
	}
}

func TestRecord(t *testing.T) {
	l, full := newRecordLog(), fullEntry(t)
	obj := full.Object
	isUntilSettled := map[string]bool{"Seq": true, "Written": true, "Forget": true}
	// A field that is new must be here, and so on disk.
	for _, part := range []any{full, full.Change, full.Origin} {
		v := reflect.ValueOf(part)
		for n := range v.NumField() {
			if f := v.Type().Field(n); f.IsExported() && !isUntilSettled[f.Name] && v.Field(n).IsZero() {
				t.Errorf("%s is not part of the test", f.Name)
			}
		}
	}
	data, err := l.encode(&full)
	if err != nil {
		t.Fatal(err)
	}
	if cap(data) > len(data)+len(data)/4 {
		t.Errorf("%d bytes take %d until they are committed", len(data), cap(data))
	}
	got, err := l.decode(42, data)
	if err != nil {
		t.Fatal(err)
	}
	if string(got.Object.Raw) != string(obj.Raw) || string(got.Old.Raw) != string(full.Old.Raw) {
		t.Errorf("its objects are %s and %s", got.Object.Raw, got.Old.Raw)
	}
	got.Object, got.Old = full.Object, full.Old
	if !reflect.DeepEqual(*got, full) {
		t.Errorf("read\n%+v\nwritten\n%+v", *got, full)
	}
}

// TestRecordLength has an entry on disk whose objects claim to be larger than any.
func TestRecordLength(t *testing.T) {
	full := fullEntry(t)
	r := record{Entry: full, HasObject: true}
	data, err := r.join(nil)
	if err != nil {
		t.Fatal(err)
	}
	data = binary.AppendUvarint(data[:len(data)-1], 1<<32-1) // in place of the length 0
	n := testkit.Allocated(func() { _, err = newRecordLog().decode(42, data) })
	if !errors.Is(err, errRecord) {
		t.Errorf("got %v", err)
	}
	if n > 1<<20 {
		t.Errorf("%d bytes were allocated", n)
	}
}

// FuzzRecord reads entries as a damaged disk may have them.
func FuzzRecord(f *testing.F) {
	l, full := newRecordLog(), fullEntry(f)
	data, err := l.encode(&full)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		if n, err := s2.DecodedLen(blockOf(data)); err == nil && n > 1<<16 {
			return // allocating takes longer than most executions
		}
		e, err := l.decode(42, data)
		if err == nil && e.Object != nil && e.Object.Raw == nil {
			t.Error("an object without bytes")
		}
		if _, _, errHeader := decodeHeader(42, data); err == nil && errHeader != nil {
			t.Errorf("read, but without a header: %v", errHeader)
		}
	})
}

func blockOf(data []byte) []byte {
	_, block, _ := decodeHeader(42, data)
	return block
}
