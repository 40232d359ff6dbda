package audit

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/metric"
	"github.com/kubebridge/bridge/internal/testkit"
)

// fakeStream is a stream in memory.
type fakeStream struct {
	mu       sync.Mutex
	made     int // how often it was recreated
	messages [][]byte
	begins   int   // the first that is there
	fails    error // what each reading ends with
}

func (f *fakeStream) change(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// fakeReader reads a fakeStream.
type fakeReader struct {
	*fakeStream
	at      struct{ Next, Made int }
	removed int
}

func (f *fakeStream) open(_ context.Context, _ *Stream, after json.RawMessage) (Reader, error) {
	r := &fakeReader{fakeStream: f}
	if after == nil {
		f.change(func() { r.at.Made, r.at.Next = f.made, f.begins })
		return r, nil
	}
	return r, json.Unmarshal(after, &r.at)
}

func (r *fakeReader) Messages(context.Context) iter.Seq2[*Message, error] {
	return func(yield func(*Message, error) bool) {
		var messages [][]byte
		var err error
		r.change(func() {
			if err = r.fails; r.made != r.at.Made {
				err = fmt.Errorf("stream AUDIT: %w", ErrRecreated)
				return
			}
			if r.begins > r.at.Next {
				r.removed++
				r.at.Next = r.begins
			}
			messages = r.messages[r.at.Next:]
		})
		for _, data := range messages {
			r.at.Next++
			m := &Message{Lane: "AUDIT", Offset: uint64(r.at.Next), Data: data}
			if data == nil {
				m.Err = errors.New("a batch is damaged")
			}
			if !yield(m, nil) {
				return
			}
		}
		if err != nil {
			yield(nil, err)
		}
	}
}

func (r *fakeReader) Position() (json.RawMessage, error) { return json.Marshal(r.at) }

func (r *fakeReader) Removed() int { return r.removed }

func (r *fakeReader) Close() {}

// add adds an event of a request that ended now, and has the claim U<n>.
func (f *fakeStream) add(numbers ...int) {
	for _, n := range numbers {
		minute := int(time.Since(noon).Minutes())
		f.change(func() {
			f.messages = append(f.messages, []byte(line("ann", "patch", minute, 200, fmt.Sprint("uid:u1 U", n))))
		})
	}
}

// streamRecording is a history, and recorders that read a fakeStream.
type streamRecording struct {
	*testing.T
	*fakeStream
	db       *history.DB
	log      bytes.Buffer
	registry *prometheus.Registry
	end      func()
}

func startStreamRecording(t *testing.T) *streamRecording {
	db, err := history.Open(history.Options{Dir: "history", FS: vfs.NewMem()})
	testkit.OK(t, err)
	r := &streamRecording{T: t, fakeStream: &fakeStream{}, db: db, end: func() {}}
	r.start()
	return r
}

func (r *streamRecording) start() {
	r.end()
	r.registry = prometheus.NewPedanticRegistry()
	recorder := &Recorder{
		Config:  Config{Streams: []Stream{{From: "nats://a:4222/AUDIT", Delay: 10 * time.Minute}}},
		Cluster: "prod", Store: r.db.Requests, OpenStream: r.open, Metrics: NewMetrics(metric.With(r.registry)),
		Log: slog.New(slog.NewTextHandler(&r.log, nil)),
	}
	ctx, cancel := context.WithCancel(r.Context())
	var running sync.WaitGroup
	running.Go(func() { recorder.Run(ctx) })
	r.end = func() { cancel(); running.Wait() }
}

func (r *streamRecording) close() {
	r.end()
	testkit.OK(r.T, r.db.Close())
}

// stored returns how many requests have each of the claims U0 to Un-1.
func (r *streamRecording) stored(n int) (counts []int) {
	r.Helper()
	recorded, err := NewRecorded(r.db.Questions, "prod")
	testkit.OK(r.T, err)
	for i := range n {
		if recorded == nil {
			return nil
		}
		found, err := recorded.Claiming(fmt.Sprint("U", i))
		testkit.OK(r.T, err)
		counts = append(counts, len(found))
	}
	return counts
}

func (r *streamRecording) lacks(at time.Time) string {
	r.Helper()
	recorded, err := NewRecorded(r.db.Questions, "prod")
	testkit.OK(r.T, err)
	if recorded.IsComplete(at, at) {
		r.Error("a stream is complete")
	}
	return recorded.Lacks(at, at)
}

// What comes within the delay is waited for, ten minutes here, in any order and also twice. What a
// stream has lost is said, and for no other time.
func TestStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startStreamRecording(t)
		defer r.close()
		time.Sleep(time.Hour)
		began := time.Now()
		r.add(0, 2, 1, 2, 0)
		time.Sleep(9 * time.Minute)
		if got := r.lacks(began); got != lacksYet {
			t.Errorf("an event may be late: %q", got)
		}
		r.add(3)
		time.Sleep(2 * time.Minute)
		if got := r.lacks(began); got != "" {
			t.Error(got)
		}
		if got := r.lacks(began.Add(-2 * time.Hour)); got != lacksBefore {
			t.Errorf("before the stream was read: %q", got)
		}
		if got := r.stored(4); !slices.Equal(got, []int{1, 1, 1, 1}) {
			t.Error(got)
		}

		// Silence proves nothing and hides nothing: what comes later is there.
		time.Sleep(time.Hour)
		r.add(4)
		time.Sleep(time.Minute)

		// While nothing reads, the stream removes events.
		r.end()
		stopped := time.Now()
		r.add(5, 6)
		r.change(func() { r.begins = 8 })
		time.Sleep(time.Hour)
		r.start()
		time.Sleep(20 * time.Minute)
		if got := r.lacks(stopped.Add(time.Minute)); !strings.Contains(got, "removed events") {
			t.Errorf("while it was stopped: %q", got)
		}
		if got := r.lacks(stopped.Add(-30 * time.Minute)); got != "" {
			t.Errorf("well before: %q", got)
		}
		// A stream that was made again is read from its start.
		r.change(func() { r.made, r.messages, r.begins = 1, nil, 0 })
		recreated := time.Now() // it may be noticed at this moment
		r.add(7, 8)
		time.Sleep(20 * time.Minute)
		if got := r.lacks(recreated.Add(-time.Second)); !strings.Contains(got, "recreated") {
			t.Errorf("when it was recreated: %q", got)
		}
		if got := r.stored(9); !slices.Equal(got, []int{1, 1, 1, 1, 1, 0, 1, 1, 1}) {
			t.Error(got)
		}
		// A broker that fails ends nothing, and what was read before is kept.
		r.change(func() { r.fails = errors.New("no leader") })
		r.add(9)
		time.Sleep(time.Minute)
		if got := r.stored(10)[9]; got != 1 {
			t.Error("what came before the failure is not stored")
		}
		r.change(func() { r.fails = nil })
		r.add(10)
		time.Sleep(time.Minute)
		if got := r.stored(11)[10]; got != 1 {
			t.Error("what came after the failure is not stored")
		}
	})
}

// What can't be read is counted and named with its place. It may have been a write, so that time is
// not complete. The others are stored.
func TestHostileStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startStreamRecording(t)
		defer r.close()
		time.Sleep(time.Hour)
		began := time.Now()
		r.add(0)
		var bomb bytes.Buffer
		z := gzip.NewWriter(&bomb)
		for range maxPost/1024 + 1 {
			_, err := z.Write(make([]byte, 1024))
			testkit.OK(t, err)
		}
		testkit.OK(t, z.Close())
		whole := line("ann", "patch", 0, 200, "uid:u1 U9")
		hostile := [][]byte{
			[]byte("x"), []byte(whole[:len(whole)/2]), []byte("\x1f\x8bno gzip"), bomb.Bytes(), nil,
			[]byte(`{"items":3}`), []byte(strings.Repeat("[", 100_000)), []byte(`{"a":1}`), []byte(`{"protoPayload":{}}`),
		}
		r.change(func() {
			r.messages = append(r.messages, hostile...)
			r.messages = append(r.messages, []byte(""), []byte(" \n")) // tombstones
		})
		r.add(1)
		time.Sleep(20 * time.Minute)
		if got := r.stored(2); !slices.Equal(got, []int{1, 1}) {
			t.Error(got)
		}
		if n := testkit.Metrics(t, r.registry)["bridge_audit_unreadable_total"]; int(n) != len(hostile) {
			t.Errorf("%v can't be read, want %d", n, len(hostile))
		}
		if got := r.log.String(); !strings.Contains(got, "in=AUDIT at=2") {
			t.Errorf("no place: %s", got)
		}
		if got := r.lacks(began); !strings.Contains(got, "an event can't be read") {
			t.Error(got)
		}
		if n := strings.Count(r.log.String(), "it is skipped"); n != 1 {
			t.Errorf("%d lines", n)
		}
	})
}

// Messages as exporters make them. Those of clouds are as their documentation shows them, with the
// fields that matter here; no cloud was there to record one from.
func TestEnvelopes(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/envelopes/*.json")
	testkit.OK(t, err)
	want := map[string]string{ // users, and ! for what can't be read
		"event": "ann", "list": "ann bob", "cloudwatch": "ann bob !", "cloudwatch-control": "", "cloudwatch-other": "",
		"azure": "ann bob", "google": "!",
	}
	if len(files) != len(want) {
		t.Errorf("%d files", len(files))
	}
	for _, path := range files {
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		text, err := os.ReadFile(path)
		testkit.OK(t, err)
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		_, err = z.Write(text)
		testkit.OK(t, err)
		testkit.OK(t, z.Close())
		for _, data := range [][]byte{text, packed.Bytes()} {
			var got []string
			if err := eachEvent(data, func(text []byte) {
				r, err := parse(text)
				switch {
				case err != nil:
					got = append(got, "!")
				case len(r.claims()) == 0 || r.Received.IsZero():
					t.Errorf("%s: %+v", name, r)
				default:
					got = append(got, r.User)
				}
			}); err != nil {
				got = append(got, "!")
			}
			if got := strings.Join(got, " "); got != want[name] {
				t.Errorf("%s: %q, want %q", name, got, want[name])
			}
		}
	}
}
