package nats_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/nats"
	"github.com/kubebridge/bridge/internal/testkit"
)

func inBucket(c *nats.Options) { c.Mode, c.Bucket = nats.KV, "SHOP" }

// bucket is the bucket as any client sees it.
func bucket(t *testing.T, js jetstream.JetStream) jetstream.KeyValue {
	t.Helper()
	kv, err := js.KeyValue(t.Context(), "SHOP")
	if err != nil {
		t.Fatal(err)
	}
	return kv
}

// entries are the keys that exist, with the resourceVersion of each.
func entries(t *testing.T, js jetstream.JetStream) map[string]string {
	t.Helper()
	all := map[string]string{}
	kv := bucket(t, js)
	lister, err := kv.ListKeys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for key := range lister.Keys() {
		entry, err := kv.Get(t.Context(), key)
		if err != nil {
			t.Fatalf("get %s: %v", key, err)
		}
		_, version, _ := strings.Cut(string(entry.Value()), `"resourceVersion":"`)
		all[key], _, _ = strings.Cut(version, `"`)
	}
	return all
}

func wantEntries(t *testing.T, js jetstream.JetStream, want map[string]string) {
	t.Helper()
	if got := entries(t, js); !maps.Equal(got, want) {
		t.Errorf("the bucket has %v\nwant %v", got, want)
	}
}

// gone is the delete of an object.
func gone(name string, version int) *event.Event {
	e := ev(name, version)
	e.ID, e.Op, e.Type = "uid-"+name+"/deleted", event.Deleted, "dev.kubebridge.resource.deleted"
	e.Sequence += ".deleted"
	return e
}

// listEnd is the event that ends a list at a version.
func listEnd(version int) *event.Event {
	e := ev("", version)
	about := "workloads/deployments.apps/synced"
	e.ID, e.CompactionKey = fmt.Sprintf("%s/%d/epoch/1", about, version), "informers/"+about
	e.Op, e.Type = event.Synced, "dev.kubebridge.informer.synced"
	e.Namespace, e.UID, e.PartitionKey = "", "", "deployments.apps"
	e.Data = fmt.Appendf(nil, `{"resourceVersion":"%d"}`, version)
	return e
}

const key = "apps.deployments.shop."

func TestBucket(t *testing.T) {
	for _, encoding := range sinks.Encodings {
		t.Run(encoding, func(t *testing.T) {
			ts := newTestServer(t)
			sink := ts.openSink(inBucket, func(c *nats.Options) { c.Encoding = encoding })
			js := ts.jetStream()
			mustStore(t, sink, ev("web", 1), ev("api", 2), listEnd(2))
			mustStore(t, sink, ev("web", 3), gone("api", 4))

			kv := bucket(t, js)
			entry, err := kv.Get(t.Context(), key+"web")
			if err != nil {
				t.Fatal(err)
			}
			if encoding == sinks.Binary && string(entry.Value()) != string(ev("web", 3).Data) ||
				encoding == sinks.Structured && !strings.Contains(string(entry.Value()),
					`"specversion":"1.0"`) ||
				encoding == sinks.Flat && !strings.Contains(string(entry.Value()), `"apigroup":"apps"`) {
				t.Errorf("the value is %s", entry.Value())
			}
			if _, err := kv.Get(t.Context(), key+"api"); !errors.Is(err, jetstream.ErrKeyNotFound) {
				t.Errorf("of a deleted object got %v", err)
			}
			keys, err := kv.Keys(t.Context())
			slices.Sort(keys)
			want := []string{"_informers.workloads.deployments_apps.synced", key + "web"}
			if err != nil || !slices.Equal(keys, want) {
				t.Errorf("keys %q (%v), want %q", keys, err, want)
			}
			stream, err := js.Stream(t.Context(), "KV_SHOP")
			if err != nil {
				t.Fatal(err)
			}
			marker, err := stream.GetLastMsgForSubject(t.Context(), "$KV.SHOP."+key+"api")
			if err != nil {
				t.Fatal(err)
			}
			if len(marker.Data) > 0 || marker.Header.Get("Nats-TTL") != "24h0m0s" ||
				marker.Header["ce-id"][0] != "uid-api/deleted" ||
				marker.Header["ce-sequence"][0] != gone("api", 4).Sequence {
				t.Errorf("the marker has %v and %q", marker.Header, marker.Data)
			}
		})
	}
}

// The key of a deleted object goes although the stream refuses its marker, also at the end of a
// list.
func TestRefusedDelete(t *testing.T) {
	ts := newTestServer(t)
	sink := ts.openSink(inBucket)
	mustStore(t, sink, ev("web", 1), ev("api", 2), ev("job", 3))
	ts.updateStream("KV_SHOP", func(c *jetstream.StreamConfig) { c.MaxMsgSize = 300 })
	var err error
	for range 2 { // the first refusal shows the limit
		err = call(t, sink, gone("web", 4))[0].Err
	}
	wantClass(t, err, sinks.Refused)
	if err := sink.DeadLetter(t.Context(), gone("web", 4), err, 1); !errors.Is(err, sinks.ErrNoDeadLetter) {
		t.Fatalf("the letter got %v", err)
	}
	wantEntries(t, ts.jetStream(), map[string]string{key + "api": "2", key + "job": "3"})
	m := &sinks.Message{Event: listEnd(5), Exists: func(_, name string) (bool, error) { return name == "job", nil }}
	for range 3 {
		sink.Publish(t.Context(), []*sinks.Message{m})
	}
	wantEntries(t, ts.jetStream(), map[string]string{key + "job": "3"})
}

func TestBucketKeys(t *testing.T) {
	ts := newTestServer(t)
	sink := ts.openSink(inBucket)
	names := []string{
		"a.b", "a_b", "system:node", "100%", "-", "_x", "=2D", "é", "a b", "*", ">", ".", "a..b",
		strings.Repeat("x", 253),
	}
	var want []string
	for i, name := range names {
		mustStore(t, sink, ev(name, i+1))
		want = append(want, string(event.AppendKeyToken([]byte(key), name)))
	}
	slices.Sort(want)
	got := slices.Sorted(maps.Keys(entries(t, ts.jetStream()))) // got by each of its keys
	if !slices.Equal(got, want) {
		t.Errorf("keys %q\nwant %q", got, want)
	}
	t.Run("a key that is too long is refused", func(t *testing.T) {
		m := call(t, sink, ev(strings.Repeat("é", 1000), 1))[0]
		wantClass(t, m.Err, sinks.Refused)
		wantMentions(t, m.Err, "subject")
	})
}

func TestBucketSettings(t *testing.T) {
	sound := jetstream.KeyValueConfig{Bucket: "SHOP", Storage: jetstream.FileStorage}
	for _, c := range []struct {
		name   string
		change func(*jetstream.KeyValueConfig, *jetstream.StreamConfig)
		says   string // nothing: it is used as it is
	}{
		{"as a client makes it", nil, ""},
		{"keeps several values", func(c *jetstream.KeyValueConfig, _ *jetstream.StreamConfig) {
			c.History = 5
		}, "history (max_msgs_per_subject) is 5, wanted 1"},
		{"forgets values", func(c *jetstream.KeyValueConfig, _ *jetstream.StreamConfig) {
			c.TTL = time.Hour
		}, "ttl (max_age) is 1h0m0s"},
		{"is in memory", func(c *jetstream.KeyValueConfig, _ *jetstream.StreamConfig) {
			c.Storage = jetstream.MemoryStorage
		}, "storage is Memory"},
		{"is bounded", func(c *jetstream.KeyValueConfig, _ *jetstream.StreamConfig) {
			c.MaxBytes = 1 << 20
		}, ""},
		{"drops old values", func(_ *jetstream.KeyValueConfig, s *jetstream.StreamConfig) {
			s.MaxBytes, s.Discard = 1<<20, jetstream.DiscardOld
		}, "discard is old"},
		{"holds other keys", func(_ *jetstream.KeyValueConfig, s *jetstream.StreamConfig) {
			s.Subjects = []string{"$KV.SHOP.core.>"}
		}, "do not cover"},
		{"can't be purged", func(_ *jetstream.KeyValueConfig, s *jetstream.StreamConfig) {
			s.AllowRollup = false
		}, "allow_rollup_hdrs"},
		{"holds some values", func(_ *jetstream.KeyValueConfig, s *jetstream.StreamConfig) {
			s.MaxMsgs = 5
		}, "max_msgs is 5"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ts := newTestServer(t)
			js := ts.jetStream()
			config := sound
			var none jetstream.StreamConfig
			if c.change != nil {
				c.change(&config, &none)
			}
			if _, err := js.CreateKeyValue(t.Context(), config); err != nil {
				t.Fatal(err)
			}
			if c.change != nil {
				existing := streamConfig(t, js, "KV_SHOP")
				existing.DenyDelete = true
				c.change(&config, &existing)
				if _, err := js.UpdateStream(t.Context(), existing); err != nil {
					t.Fatal(err)
				}
			}
			sink := ts.newSink(inBucket)
			err := sink.Open(t.Context())
			defer sink.Close()
			if c.says != "" {
				wantClass(t, err, sinks.Refused)
				wantMentions(t, err, c.says, "bucket SHOP", "nats stream edit KV_SHOP")
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			mustStore(t, sink, ev("web", 1), gone("api", 1))
			wantEntries(t, js, map[string]string{key + "web": "1"})
		})
	}
}

// What was sent before a crash, and is sent again, must not replace what came after it.
func TestBucketAfterCrash(t *testing.T) {
	for name, change := range map[string]func(*nats.Options){
		"the stream remembers the ids":    func(*nats.Options) {},
		"it does not remember them":       func(c *nats.Options) { c.Stream.DuplicateWindow = 100 * time.Millisecond },
		"the attributes are in the value": func(c *nats.Options) { c.Encoding = sinks.Structured },
	} {
		t.Run(name, func(t *testing.T) {
			ts := newTestServer(t)
			js := ts.jetStream()
			first := ts.openSink(inBucket, change)
			from := first.Position()
			mustStore(t, first, ev("web", 1))
			mustStore(t, first, ev("web", 2), ev("api", 1))
			mustStore(t, first, ev("web", 3), gone("api", 2))
			_ = first.Close()
			time.Sleep(150 * time.Millisecond) // for the stream to forget ids

			second := ts.openSink(inBucket, change)
			wantIDs(t, recalled(t, second, from), ev("web", 3), gone("api", 2))
			for version := range 2 {
				mustStore(t, second, ev("web", version+1))
				mustStore(t, second, ev("api", 1))
				wantEntries(t, js, map[string]string{key + "web": "3"})
			}
			mustStore(t, second, ev("web", 4))
			wantEntries(t, js, map[string]string{key + "web": "4"})
		})
	}
}

// A bucket that forgot a value is written again, though the stream remembers its id.
// The stream remembers an id, and the key holds something else by now.
func TestBucketForgottenValue(t *testing.T) {
	ts := newTestServer(t)
	js := ts.jetStream()
	first := ts.openSink(inBucket)
	mustStore(t, first, ev("web", 1))
	mustStore(t, first, ev("web", 2))
	_ = first.Close()
	if err := bucket(t, js).Delete(t.Context(), key+"web"); err != nil {
		t.Fatal(err)
	}
	second := ts.openSink(inBucket) // without a position: its state is lost
	mustStore(t, second, ev("web", 2))
	wantEntries(t, js, map[string]string{key + "web": "2"})
	mustStore(t, second, ev("web", 1))
	mustStore(t, second, ev("web", 2))
	wantEntries(t, js, map[string]string{key + "web": "2"})
}

func TestBucketThatWasDeleted(t *testing.T) {
	ts := newTestServer(t)
	first := ts.openSink(inBucket)
	mustStore(t, first, ev("web", 1))
	from := first.Position()
	_ = first.Close()
	for _, name := range []string{"it is there", "it was deleted"} {
		t.Run(name, func(t *testing.T) {
			emptied := name == "it was deleted"
			if emptied {
				if err := ts.jetStream().DeleteKeyValue(t.Context(), "SHOP"); err != nil {
					t.Fatal(err)
				}
			}
			var log bytes.Buffer
			var second *nats.Sink
			eventually(t, "open", func() error { // nats-server still moves the old store away
				second = ts.newSink(inBucket, func(c *nats.Options) {
					c.Log = slog.New(slog.NewTextHandler(&log, nil))
				})
				return second.Open(t.Context())
			})
			defer second.Close()
			recalled(t, second, from)
			if got := second.Inspect(t.Context()); (len(got) == 1 && got[0].Reason == sinks.Recreated) != emptied {
				t.Errorf("lost %v:\n%s", got, log.String())
			}
		})
	}
}

// objects are those that exist.
func objects(names ...string) func(namespace, name string) (bool, error) {
	return func(namespace, name string) (bool, error) {
		return namespace == "shop" && slices.Contains(names, name), nil
	}
}

// publishEnd ends a list of the objects that exist.
func publishEnd(t *testing.T, sink sinks.Sink, version int, names ...string) error {
	t.Helper()
	m := &sinks.Message{Event: listEnd(version), Exists: objects(names...)}
	sink.Publish(t.Context(), []*sinks.Message{m})
	return m.Err
}

// A bucket is compared with a list.
func TestBucketAgainstList(t *testing.T) {
	feeding := func(informers ...string) func(*nats.Options) {
		return func(c *nats.Options) { c.Informers = func() []string { return informers } }
	}
	ts := newTestServer(t)
	js := ts.jetStream()
	first := ts.openSink(inBucket)
	other, orphan := ev("other", 1), ev("orphan", 1)
	other.Informer, orphan.Informer = "batch", "renamed"
	mustStore(t, first, ev("web", 1), ev("api", 1), ev("system:a.b", 1), other, orphan,
		of("pods", "api", 1))
	_ = first.Close()

	second := ts.openSink(inBucket, feeding("workloads", "batch"))
	mustStore(t, second, ev("web", 2))
	if err := publishEnd(t, second, 9, "web"); err != nil {
		t.Fatal(err)
	}
	pod := slices.Collect(maps.Keys(entries(t, js)))
	pod = slices.DeleteFunc(pod, func(k string) bool { return !strings.Contains(k, "pods") })
	wantEntries(t, js, map[string]string{
		key + "web": "2", key + "other": "1", pod[0]: "1",
		"_informers.workloads.deployments_apps.synced": "9",
	})
	t.Run("the delete says what it is about", func(t *testing.T) {
		stream, err := js.Stream(t.Context(), "KV_SHOP")
		if err != nil {
			t.Fatal(err)
		}
		m, err := stream.GetLastMsgForSubject(t.Context(), "$KV.SHOP."+key+"system=3Aa_b")
		if err != nil {
			t.Fatal(err)
		}
		r := parse(t, m.Subject, m.Header, m.Data)
		if r.Attributes["id"] != "uid-system:a.b/deleted/epoch/1" || r.Attributes["inferred"] != "true" ||
			r.Attributes["name"] != "system:a.b" || r.Attributes["sequence"] <= ev("x", 9).Sequence ||
			r.Attributes["partitionkey"] != "deployments.apps/shop/system:a.b" {
			t.Errorf("got %+v", r)
		}
	})
	t.Run("an object that nobody can look up stays", func(t *testing.T) {
		m := &sinks.Message{Event: listEnd(10), Exists: func(string, string) (bool, error) {
			return false, errTest
		}}
		second.Publish(t.Context(), []*sinks.Message{m})
		wantClass(t, m.Err, sinks.Retry)
		if got := entries(t, js)[key+"web"]; got != "2" {
			t.Errorf("web is in version %q", got)
		}
	})
	t.Run("a large bucket takes several batches", func(t *testing.T) {
		for i := range 1000 {
			mustStore(t, second, ev(fmt.Sprint("many-", i), 1))
		}
		if err := publishEnd(t, second, 11, "web", "many-7"); err != nil {
			t.Fatal(err)
		}
		if got := entries(t, js); len(got) != 5 || got[key+"many-7"] != "1" {
			t.Errorf("the bucket has %v", got)
		}
	})
}

// A process that was succeeded puts nothing into the bucket, and what keeps it out is no key.
func TestBucketOfReplicas(t *testing.T) {
	ts := newTestServer(t)
	var o office
	first := ts.openSink(inBucket, o.of(0))
	mustStore(t, first, ev("web", 1), ev("api", 1))
	o.holder.Store(1)
	second := ts.openSink(inBucket, o.of(1))
	mustStore(t, second, ev("web", 2))
	wantClass(t, call(t, first, ev("web", 1))[0].Err, sinks.Reconnect)
	if err := publishEnd(t, second, 9, "web"); err != nil {
		t.Fatal(err)
	}
	wantEntries(t, ts.jetStream(), map[string]string{
		key + "web": "2", "_informers.workloads.deployments_apps.synced": "9",
	})
}

func TestBucketName(t *testing.T) {
	for _, name := range []string{"", "a.b", "a b", "ä", "a>"} {
		_, err := nats.New(nats.Options{Config: nats.Config{Mode: nats.KV, Bucket: name}})
		wantMentions(t, err, "bucket", "letters, digits")
	}
}

// A bucket is compared from time to time: of the objects that are sent then only those are stored
// whose key is not as it must be, or is not known to be.
func TestCompare(t *testing.T) {
	ts := newTestServer(t)
	sink := ts.openSink(inBucket)
	js := ts.jetStream()
	mustStore(t, sink, ev("a", 1), ev("b", 2), ev("c", 3), listEnd(3))
	sink.Inspect(t.Context())
	stream, err := js.Stream(t.Context(), "KV_SHOP")
	testkit.OK(t, err)
	testkit.OK(t, stream.Purge(t.Context(), jetstream.WithPurgeSubject("$KV.SHOP."+key+"a")))
	mustStore(t, sink, ev("d", 4)) // as many keys as before
	if found := sink.Inspect(t.Context()); len(found) > 0 {
		t.Fatalf("lost %v", found)
	}
	sink.CompareNow()
	found := sink.Inspect(t.Context())
	if len(found) != 1 || found[0].Reason != sinks.Unverified || found[0].Round == 0 {
		t.Fatalf("lost %v, want what is to be compared", found)
	}
	mustStore(t, sink, ev("b", 5), gone("c", 6)) // while objects are sent
	info, err := stream.Info(t.Context())
	testkit.OK(t, err)
	synced := func(name string, version int, round int64) *event.Event {
		e := ev(name, version)
		e.Op, e.ID = event.Synced, fmt.Sprintf("uid-%s/%d/sync/%d", name, version, round)
		return e
	}
	for _, c := range []struct {
		what   string
		event  *event.Event
		stored uint64
	}{
		{"a key that was purged", synced("a", 1, found[0].Round), 1},
		{"a key that was stored since", synced("b", 5, found[0].Round), 0},
		{"a key that was there", synced("d", 4, found[0].Round), 0},
		{"a key that was there, in another round", synced("d", 4, 7), 1},
	} {
		mustStore(t, sink, c.event)
		now, err := stream.Info(t.Context())
		testkit.OK(t, err)
		if got := now.State.LastSeq - info.State.LastSeq; got != c.stored {
			t.Errorf("%s: %d messages are stored, want %d", c.what, got, c.stored)
		}
		info = now
	}
	testkit.OK(t, stream.Purge(t.Context())) // what was read is not so any more
	if found := sink.Inspect(t.Context()); len(found) != 1 || found[0].Reason != sinks.Purged {
		t.Errorf("lost %v", found)
	}
	mustStore(t, sink, synced("d", 4, found[0].Round+1))
}
