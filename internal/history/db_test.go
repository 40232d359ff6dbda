package history_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/record"
	"github.com/kubebridge/bridge/internal/testkit"
)

func openDir(t *testing.T, dir string) *history.DB {
	t.Helper()
	db, err := history.Open(history.Options{Dir: dir})
	testkit.OK(t, err)
	t.Cleanup(func() { testkit.OK(t, db.Close()) })
	return db
}

func pointers(events []event.Event) (list []*event.Event) {
	for i := range events {
		list = append(list, &events[i])
	}
	return list
}

func TestOpen(t *testing.T) {
	t.Run("a directory with other files is refused and left as it is", func(t *testing.T) {
		dir := t.TempDir()
		testkit.OK(t, errors.Join(os.Chmod(dir, 0o755), os.WriteFile(filepath.Join(dir, "notes.txt"), nil, 0o600)))
		_, err := history.Open(history.Options{Dir: dir})
		entries, _ := os.ReadDir(dir)
		if !errors.Is(err, history.ErrForeign) || len(entries) != 1 {
			t.Errorf("%v, %d files", err, len(entries))
		}
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("its mode was changed: %v, %v", info, err)
		}
	})
	t.Run("a directory that others can read is tightened", func(t *testing.T) {
		dir := t.TempDir()
		testkit.OK(t, os.Chmod(dir, 0o755))
		openDir(t, dir)
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%v, %v", info, err)
		}
	})
	t.Run("another database is refused", func(t *testing.T) {
		dir := t.TempDir()
		other, err := pebble.Open(dir, &pebble.Options{Logger: quiet{}, FormatMajorVersion: pebble.FormatValueSeparation})
		testkit.OK(t, err)
		testkit.OK(t, errors.Join(other.Set([]byte("Mformat of something"), []byte("1"), pebble.Sync), other.Close()))
		if _, err = history.Open(history.Options{Dir: dir}); !errors.Is(err, history.ErrForeign) {
			t.Error(err)
		}
	})
	t.Run("another format is refused", func(t *testing.T) {
		dir := t.TempDir()
		db, err := history.Open(history.Options{Dir: dir})
		testkit.OK(t, errors.Join(err, db.Close()))
		raw, err := pebble.Open(dir, &pebble.Options{Logger: quiet{}, FormatMajorVersion: pebble.FormatValueSeparation})
		testkit.OK(t, err)
		testkit.OK(t, errors.Join(raw.Set([]byte("Mformat"), []byte("99"), pebble.Sync), raw.Close()))
		if _, err = history.Open(history.Options{Dir: dir}); !errors.Is(err, history.ErrForeign) || !strings.Contains(err.Error(), `"99"`) {
			t.Error(err)
		}
	})
	t.Run("a second writer is refused", func(t *testing.T) {
		dir := t.TempDir()
		openDir(t, dir)
		if _, err := history.Open(history.Options{Dir: dir}); !errors.Is(err, history.ErrInUse) {
			t.Error(err)
		}
	})
	t.Run("nothing is created for a question", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "none")
		if _, err := history.Read(history.Options{Dir: dir}); !errors.Is(err, history.ErrNone) {
			t.Error(err)
		}
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	})
	t.Run("a damaged file is reported", func(t *testing.T) {
		dir := t.TempDir()
		db, err := history.Open(history.Options{Dir: dir})
		testkit.OK(t, err)
		_, err = db.Writer.Append(t.Context(), pointers(testkit.Events(t, 1, 20, 20)))
		testkit.OK(t, errors.Join(err, db.Close()))
		db, err = history.Open(history.Options{Dir: dir}) // what lay in the log is a table afterwards
		testkit.OK(t, errors.Join(err, db.Close()))
		tables, _ := filepath.Glob(filepath.Join(dir, "*.sst"))
		for _, table := range tables {
			data, err := os.ReadFile(table)
			testkit.OK(t, err)
			for i := len(data) / 4; i < len(data)/2; i++ {
				data[i] ^= 0x55
			}
			testkit.OK(t, os.WriteFile(table, data, 0o600))
		}
		err = readEverything(dir)
		if !errors.Is(err, history.ErrDamaged) || strings.Contains(err.Error(), "\n") {
			t.Error(err)
		}
	})
}

// readEverything reads all versions of all objects.
func readEverything(dir string) error {
	db, err := history.Read(history.Options{Dir: dir})
	if err != nil {
		return err
	}
	defer db.Close()
	for _, u := range db.Questions.Resources.Units() {
		for o, err := range db.Questions.Objects.All(u, "") {
			if err != nil {
				return err
			}
			for _, err := range db.Questions.Objects.Versions(&o, time.Time{}, time.Time{}) {
				if err != nil {
					return err
				}
			}
		}
	}
	return nil
}

type quiet struct{ pebble.Logger }

func (quiet) Infof(string, ...any) {}

func TestReadBeside(t *testing.T) {
	t.Run("a reader beside a writer has all that was durable", func(t *testing.T) {
		dir := t.TempDir()
		db, err := history.Open(history.Options{Dir: dir, MemTableBytes: 64 << 10})
		testkit.OK(t, err)
		events := testkit.Events(t, 3, 50, 100)
		var written sync.WaitGroup
		acknowledged := make(chan int, len(events))
		written.Go(func() {
			defer close(acknowledged)
			for i := 0; i < len(events); i += 50 {
				n := min(50, len(events)-i)
				if _, err := db.Writer.Append(t.Context(), pointers(events[i:i+n])); err != nil {
					t.Error(err)
				}
				acknowledged <- i + n
			}
		})
		for n := range acknowledged {
			for len(acknowledged) > 0 {
				n = <-acknowledged
			}
			if got := versionsIn(t, dir); got < n-2 { // two of them are about an informer
				t.Fatalf("%d versions, %d events were acknowledged", got, n)
			}
		}
		written.Wait()
		testkit.OK(t, db.Close())
		if left, _ := filepath.Glob(filepath.Join(dir, "reader-*")); len(left) > 0 {
			t.Errorf("%v are left", left)
		}
	})
	t.Run("the directory of a reader that was killed is removed", func(t *testing.T) {
		dir := t.TempDir()
		openDir(t, dir)
		abandoned := filepath.Join(dir, "reader-4194305-1") // above the largest pid
		testkit.OK(t, os.Mkdir(abandoned, 0o700))
		versionsIn(t, dir)
		if _, err := os.Stat(abandoned); !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	})
}

func versionsIn(t *testing.T, dir string) (n int) {
	t.Helper()
	db, err := history.Read(history.Options{Dir: dir})
	testkit.OK(t, err)
	defer func() { testkit.OK(t, db.Close()) }()
	for _, u := range db.Questions.Resources.Units() {
		for o, err := range db.Questions.Objects.All(u, "") {
			testkit.OK(t, err)
			for _, err := range db.Questions.Objects.Versions(&o, time.Time{}, time.Time{}) {
				testkit.OK(t, err)
				n++
			}
		}
	}
	return n
}

func TestAppend(t *testing.T) {
	t.Run("another cluster under the same name is refused", func(t *testing.T) {
		db := openDir(t, t.TempDir())
		system := func(uid string) *event.Event {
			return &event.Event{
				ID: uid + "/1", Source: "/clusters/prod", Type: "dev.kubebridge.resource.added", Op: event.Added,
				ObjectAttributes: event.ObjectAttributes{UID: uid, ResourceVersion: "1", Resource: "namespaces", Name: "kube-system"}, Routing: event.Routing{Version: "v1"},
			}
		}
		_, err := db.Writer.Append(t.Context(), []*event.Event{system("a")})
		testkit.OK(t, err)
		_, err = db.Writer.Append(t.Context(), []*event.Event{system("b")})
		if !errors.Is(err, history.ErrOtherCluster) {
			t.Error(err)
		}
	})
	t.Run("what each partition of a topic has a copy of is stored once, as it was before", func(t *testing.T) {
		db, err := history.Open(history.Options{Dir: t.TempDir()})
		testkit.OK(t, err)
		defer db.Close()
		var copies []*event.Event
		whole := testkit.Events(t, 1, 1, 0)[1] // the end of a list
		for part := range 3 {
			copies = append(copies, new(whole.Copy(part)))
		}
		_, err = db.Writer.Append(t.Context(), copies)
		testkit.OK(t, err)
		var ids []string
		for m, err := range db.Questions.Coverage.Notices(db.Questions.Resources.Units()[0], time.Time{}, time.Time{}) {
			testkit.OK(t, err)
			ids = append(ids, m.Event.ID)
		}
		if !slices.Equal(ids, []string{whole.ID}) {
			t.Errorf("%v, want %s", ids, whole.ID)
		}
	})
	t.Run("of a patch the object is stored where the version before is known", func(t *testing.T) {
		db := openDir(t, t.TempDir())
		version := func(n, previous, data, mediaType string) *event.Event {
			return &event.Event{
				ID: "u/" + n, Source: "/clusters/prod", Type: "dev.kubebridge.resource.updated", Op: event.Updated,
				ObjectAttributes: event.ObjectAttributes{
					UID: "u", ResourceVersion: n, Previous: previous, Resource: "pods",
					Namespace: "shop", Name: "web", APIVersion: "v1",
				},
				Routing: event.Routing{Version: "v1"}, Data: []byte(data), DataType: mediaType,
			}
		}
		const object = `{"metadata":{"name":"web","resourceVersion":"%s"},"spec":{"a":%d}}`
		_, err := db.Writer.Append(t.Context(), []*event.Event{
			version("5", "", fmt.Sprintf(object, "5", 1), ""),
			version("6", "5", `{"metadata":{"resourceVersion":"6"},"spec":{"a":2}}`, event.MergePatchContentType),
			version("9", "8", `{"spec":{"a":3}}`, event.MergePatchContentType),
			version("10", "9", fmt.Sprintf(`{"object":`+object+`,"old":{},"patch":[]}`, "10", 4), ""),
			version("11", "10", "", ""),
			version("12", "11", fmt.Sprintf(`{"before":{"object":{}},"after":{"uid":"u","object":`+object+`},"op":"u"}`, "12", 5), ""),
		})
		testkit.OK(t, err)
		o := &query.Object{Unit: db.Questions.Resources.Units()[0], Namespace: "shop", Name: "web"}
		want := []struct {
			form record.Form
			data string
		}{
			{record.FormObject, fmt.Sprintf(object, "5", 1)},
			{record.FormObject, fmt.Sprintf(object, "6", 2)},
			{record.FormPatch, `{"spec":{"a":3}}`},
			{record.FormObject, fmt.Sprintf(object, "10", 4)},
			{record.FormNone, ""},
			{record.FormObject, fmt.Sprintf(object, "12", 5)},
		}
		i := 0
		for v, err := range db.Questions.Objects.Versions(o, time.Time{}, time.Time{}) {
			testkit.OK(t, err)
			if v.Form() != want[i].form || string(v.Event.Data) != want[i].data {
				t.Errorf("version %s is %s: %s", v.Event.ResourceVersion, v.Form(), v.Event.Data)
			}
			i++
		}
		if i != len(want) {
			t.Errorf("%d versions", i)
		}
	})
}
