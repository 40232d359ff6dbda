package source_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
	"github.com/kubebridge/bridge/internal/sinks/nats"
	"github.com/kubebridge/bridge/internal/sinks/source"
	"github.com/kubebridge/bridge/internal/testkit"
)

func TestRead(t *testing.T) {
	for name, store := range stores {
		t.Run(name, func(t *testing.T) {
			events := testkit.Events(t, 3, 30, 8)
			for i := range events {
				events[i].DataType = event.ContentType // as it is read
				events[i].Extensions = []event.Attribute{{Name: "team", Value: `a "b" %é`}}
			}
			r := open(t, store(t, events))
			got, err := readAll(t, r)
			testkit.OK(t, err)
			requireSame(t, got.events, events)
			if p := r.Progress(); !r.Whole() || p.Total != 0 && p.Read != p.Total {
				t.Errorf("whole %v, progress %+v", r.Whole(), p)
			}
			if wants := strings.Contains(name, "tombstones"); wants != slices.Contains(got.other, "tombstone") {
				t.Errorf("other messages %q", got.other)
			}
		})
	}
}

// Whoever copies a topic compresses it as his own client does.
func TestReadCopy(t *testing.T) {
	events := testkit.Events(t, 3, 30, 8)
	for i := range events {
		events[i].DataType = event.ContentType // as it is read
	}
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, "none", "gzip", "snappy", "lz4", "zstd"))
	testkit.OK(t, err)
	t.Cleanup(cluster.Close)
	address := cluster.ListenAddrs()[0]
	publish(t, kafkaSink(t, []string{address}, func(c *kafka.Options) { c.Topic = "k8s" }), events)
	client, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.ConsumeTopics("k8s"))
	testkit.OK(t, err)
	defer client.Close()
	var records []*kgo.Record
	for len(records) < len(events) {
		records = append(records, client.PollFetches(t.Context()).Records()...)
	}
	for name, codec := range map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	} {
		t.Run(name, func(t *testing.T) {
			to, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.ProducerBatchCompression(codec))
			testkit.OK(t, err)
			defer to.Close()
			for _, r := range records {
				to.Produce(t.Context(), &kgo.Record{Topic: name, Key: r.Key, Value: r.Value, Headers: r.Headers}, nil)
			}
			testkit.OK(t, to.Flush(t.Context()))
			got, err := readAll(t, open(t, source.Config{From: "kafka://" + address + "/" + name}))
			testkit.OK(t, err)
			requireSame(t, got.events, events)
		})
	}
}

func TestContinue(t *testing.T) {
	events := testkit.Events(t, 4, 30, 8)
	for _, name := range []string{"JetStream", "Kafka", "a file"} {
		t.Run(name+": a reader with the position of another one continues behind it", func(t *testing.T) {
			cfg := stores[name](t, events)
			first := open(t, cfg)
			var got []event.Event
			for m, err := range first.Messages(t.Context()) {
				testkit.OK(t, err)
				e := m.Event
				e.Data = slices.Clone(e.Data)
				if got = append(got, e); len(got) == 100 {
					break
				}
			}
			saved, err := json.Marshal(first.Position())
			testkit.OK(t, err)
			testkit.OK(t, json.Unmarshal(saved, &cfg.After))
			rest, err := readAll(t, open(t, cfg))
			testkit.OK(t, err)
			got = append(got, rest.events...)
			for i := range got {
				got[i].DataType = ""
			}
			requireSame(t, got, events)
		})
	}
	t.Run("JetStream: a reader gives what has come since", func(t *testing.T) {
		s := natsServer(t)
		publish(t, natsSink(t, s.ClientURL()), events[:50])
		r := open(t, source.Config{From: s.ClientURL() + "/K8S"})
		before, err := readAll(t, r)
		testkit.OK(t, err)
		publish(t, natsSink(t, s.ClientURL()), events[50:60])
		after, err := readAll(t, r)
		testkit.OK(t, err)
		if len(before.events) != 50 || len(after.events) != 10 {
			t.Errorf("%d and then %d events, want 50 and 10", len(before.events), len(after.events))
		}
	})
	t.Run("JetStream: what came since may have been deleted, message by message", func(t *testing.T) {
		s := natsServer(t)
		publish(t, natsSink(t, s.ClientURL()), events[:5])
		r := open(t, source.Config{From: s.ClientURL() + "/K8S", Patience: 3 * time.Second})
		_, err := readAll(t, r)
		testkit.OK(t, err)
		publish(t, natsSink(t, s.ClientURL()), events[5:7])
		stream, err := jetStream(t, s).Stream(t.Context(), "K8S")
		testkit.OK(t, err)
		for at := uint64(6); at <= stream.CachedInfo().State.LastSeq; at++ {
			testkit.OK(t, stream.DeleteMsg(t.Context(), at))
		}
		got, err := readAll(t, r)
		testkit.OK(t, err)
		if len(got.events) > 0 {
			t.Errorf("%d events, want none", len(got.events))
		}
	})
	t.Run("JetStream: a stream that was recreated is refused", func(t *testing.T) {
		s := natsServer(t)
		publish(t, natsSink(t, s.ClientURL()), events[:5])
		r := open(t, source.Config{From: s.ClientURL() + "/K8S"})
		_, err := readAll(t, r)
		testkit.OK(t, err)
		testkit.OK(t, jetStream(t, s).DeleteStream(t.Context(), "K8S"))
		publish(t, natsSink(t, s.ClientURL()), events[:5])
		if _, err := readAll(t, r); !errors.Is(err, source.ErrOther) {
			t.Errorf("error %v, want ErrOther", err)
		}
	})
}

func jetStream(t *testing.T, s *server.Server) jetstream.JetStream {
	t.Helper()
	conn, err := natsgo.Connect(s.ClientURL())
	testkit.OK(t, err)
	t.Cleanup(conn.Close)
	// a machine may be busy for longer than the client waits for room
	js, err := jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(1<<16))
	testkit.OK(t, err)
	return js
}

func TestPartOfAStream(t *testing.T) {
	events := testkit.Events(t, 5, 30, 8)
	s := natsServer(t)
	publish(t, natsSink(t, s.ClientURL()), events)
	stream, err := jetStream(t, s).Stream(t.Context(), "K8S")
	testkit.OK(t, err)
	testkit.OK(t, stream.Purge(t.Context(), jetstream.WithPurgeSequence(11)))
	testkit.OK(t, stream.DeleteMsg(t.Context(), uint64(len(events))))
	r := open(t, source.Config{From: s.ClientURL() + "/K8S"})
	got, err := readAll(t, r)
	testkit.OK(t, err)
	if r.Whole() || len(got.events) != len(events)-11 {
		t.Errorf("whole %v, %d of %d events; the first 10 and the last one are gone", r.Whole(), len(got.events), len(events))
	}
}

func TestOtherMessages(t *testing.T) {
	t.Run("JetStream: fences and what is no event are named", func(t *testing.T) {
		s := natsServer(t)
		publish(t, natsSink(t, s.ClientURL()), testkit.Events(t, 6, 4, 2))
		js := jetStream(t, s)
		for _, subject := range []string{"k8s.prod._fence.a.bridge_0", "k8s.prod.mine"} {
			_, err := js.Publish(t.Context(), subject, []byte("hello"))
			testkit.OK(t, err)
		}
		got, err := readAll(t, open(t, source.Config{From: s.ClientURL() + "/K8S"}))
		testkit.OK(t, err)
		if want := []string{"fence", "message on k8s.prod.mine"}; !slices.Equal(got.other, want) {
			t.Errorf("others %q, want %q", got.other, want)
		}
	})
	t.Run("Kafka: of transactions only what was committed is read", func(t *testing.T) {
		address := kafkaCluster(t)
		publish(t, kafkaSink(t, []string{address}), testkit.Events(t, 6, 4, 2))
		client, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.TransactionalID("t"), kgo.DefaultProduceTopic("k8s.prod.pods"))
		testkit.OK(t, err)
		t.Cleanup(client.Close)
		for _, end := range []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit} {
			testkit.OK(t, client.BeginTransaction())
			testkit.OK(t, client.ProduceSync(t.Context(), kgo.StringRecord("aborted or not")).FirstErr())
			testkit.OK(t, client.EndTransaction(t.Context(), end))
		}
		got, err := readAll(t, open(t, source.Config{From: "kafka://" + address + "/k8s.prod.pods"}))
		testkit.OK(t, err)
		if want := []string{"record of k8s.prod.pods"}; !slices.Equal(got.other, want) || len(got.events) == 0 {
			t.Errorf("others %q, want %q; %d events", got.other, want, len(got.events))
		}
	})
	t.Run("a file: JSON that is no event is counted", func(t *testing.T) {
		got, err := readAll(t, open(t, source.Config{From: writeFile(t, "f", []byte(`{"a":1} 3 "x"`))}))
		if err != nil || len(got.other) != 3 || len(got.events) != 0 {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

func TestErrors(t *testing.T) {
	events := testkit.Events(t, 7, 30, 8)
	text := document(events)
	t.Run("a truncated file is one", func(t *testing.T) {
		got, err := readAll(t, open(t, source.Config{From: writeFile(t, "f", text[:len(text)*2/3])}))
		if err == nil || !strings.Contains(err.Error(), "truncated") || len(got.events) == 0 {
			t.Errorf("%d events, %v", len(got.events), err)
		}
	})
	t.Run("so is a truncated compressed file", func(t *testing.T) {
		var out bytes.Buffer
		w := gzip.NewWriter(&out)
		_, err := w.Write(text)
		testkit.OK(t, errors.Join(err, w.Close()))
		_, err = readAll(t, open(t, source.Config{From: writeFile(t, "f", out.Bytes()[:out.Len()/2])}))
		if err == nil || !strings.Contains(err.Error(), "truncated") {
			t.Errorf("%v", err)
		}
	})
	t.Run("so is a file that is no JSON", func(t *testing.T) {
		if _, err := readAll(t, open(t, source.Config{From: writeFile(t, "f", []byte("kind: Pod\n"))})); err == nil {
			t.Error("it was read")
		}
	})
	t.Run("a NATS server that goes away in the midst is one, after some patience", func(t *testing.T) {
		s := natsServer(t)
		publish(t, natsSink(t, s.ClientURL()), events)
		// More than the client asks for at once is needed, so that the server is asked again.
		many := jetStream(t, s)
		for range 5000 {
			_, err := many.PublishAsync("k8s.prod.more", bytes.Repeat([]byte("x"), 4096))
			testkit.OK(t, err)
		}
		<-many.PublishAsyncComplete()
		r := open(t, source.Config{From: s.ClientURL() + "/K8S", Patience: 5 * time.Second})
		read := 0
		var failed error
		for _, err := range r.Messages(t.Context()) {
			if failed = err; err == nil && read == 10 {
				s.Shutdown()
				s.WaitForShutdown()
			}
			read++
		}
		if failed == nil || !strings.Contains(failed.Error(), "stream K8S, behind message ") {
			t.Errorf("after %d messages: %v", read, failed)
		}
	})
	t.Run("a Kafka broker that goes away in the midst is one, after some patience", func(t *testing.T) {
		c, err := kfake.NewCluster(kfake.NumBrokers(1))
		testkit.OK(t, err)
		publish(t, kafkaSink(t, c.ListenAddrs()), events)
		r := open(t, source.Config{From: "kafka://" + c.ListenAddrs()[0] + "/k8s.prod.*", Patience: 5 * time.Second})
		read := 0
		var failed error
		for _, err := range r.Messages(t.Context()) {
			if failed = err; err == nil && read == 10 {
				c.Close()
			}
			read++
		}
		if failed == nil || !strings.Contains(failed.Error(), "partition k8s.prod.") {
			t.Errorf("after %d messages: %v", read, failed)
		}
	})
	t.Run("the end of the context ends the reading", func(t *testing.T) {
		s := natsServer(t)
		publish(t, natsSink(t, s.ClientURL()), events)
		r := open(t, source.Config{From: s.ClientURL() + "/K8S"})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var failed error
		for _, err := range r.Messages(ctx) {
			failed = err
			cancel()
		}
		if failed != nil && !errors.Is(failed, context.Canceled) {
			t.Errorf("%v", failed)
		}
	})
	address, url := kafkaCluster(t), natsServer(t).ClientURL()
	for name, test := range map[string]struct{ from, want string }{
		"a stream that is not there":        {url + "/NONE", "stream NONE: there is none of this name"},
		"a topic that is not there":         {"kafka://" + address + "/none", "there is no topic none"},
		"a pattern that no topic matches":   {"kafka://" + address + "/none.*", "no topic is called none.*"},
		"a host alone":                      {"nats://127.0.0.1", "want the name of a stream"},
		"a broker alone":                    {"kafka://127.0.0.1", "want the name of a topic"},
		"a scheme that is not known":        {"http://127.0.0.1/x", "want nats://host/STREAM"},
		"a file that is not there":          {"/does/not/exist", "no such file"},
		"a server that is not there":        {"nats://127.0.0.1:1/K8S", "connect to NATS"},
		"a broker that is not there":        {"kafka://127.0.0.1:1/t", "connection refused"},
		"credentials are not in the errors": {"http://me:secret@host/x", "http://…@host/x"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := source.Open(t.Context(), source.Config{From: test.from, Patience: 4 * time.Second})
			if err == nil {
				t.Cleanup(r.Close)
				_, err = readAll(t, r)
			}
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

// The rights that docs/verify.md names are enough.
// With the rights of docs/verify.md, and no others, a stream and topics are read.
func TestRights(t *testing.T) {
	events := testkit.Events(t, 8, 10, 4)
	allRead := func(t *testing.T, c source.Config) {
		t.Helper()
		c.Patience = 5 * time.Second
		got, err := readAll(t, open(t, c))
		if err != nil || len(got.events) != len(events) {
			t.Errorf("%d of %d events, %v", len(got.events), len(events), err)
		}
	}
	t.Run("JetStream", func(t *testing.T) {
		s := natsServer(t, func(o *server.Options) {
			o.Users = []*server.User{
				{Username: "bridge", Password: "right"},
				{Username: "reader", Password: "right", Permissions: &server.Permissions{
					Publish: &server.SubjectPermission{Allow: []string{
						"$JS.API.STREAM.INFO.K8S", "$JS.API.CONSUMER.CREATE.K8S.>",
						"$JS.API.CONSUMER.MSG.NEXT.K8S.>", "$JS.API.CONSUMER.DELETE.K8S.>",
					}},
					Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
				}},
			}
		})
		user := func(name string) nats.Config { return nats.Config{Username: name, Password: "right"} }
		bridge := func(c *nats.Options) { c.Username, c.Password = "bridge", "right" }
		publish(t, natsSink(t, s.ClientURL(), bridge), events)
		allRead(t, source.Config{
			From: s.ClientURL() + "/K8S", NATS: user("reader"),
		})
	})
	t.Run("Kafka", func(t *testing.T) {
		var acls []kfake.ACL
		for _, operation := range []kmsg.ACLOperation{kmsg.ACLOperationRead, kmsg.ACLOperationDescribe} {
			acls = append(acls, kfake.ACL{
				Resource: kmsg.ACLResourceTypeTopic, Pattern: kmsg.ACLResourcePatternTypePrefixed,
				Name: "k8s.prod.", Operation: operation, Allow: true,
			})
		}
		c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.EnableACLs(),
			kfake.Superuser("PLAIN", "bridge", "right"), kfake.User("PLAIN", "reader", "right", acls...))
		testkit.OK(t, err)
		t.Cleanup(c.Close)
		user := func(name string) *kafka.SASL {
			return &kafka.SASL{Mechanism: "PLAIN", Username: name, Password: "right"}
		}
		bridge := func(c *kafka.Options) { c.Connection.SASL = user("bridge") }
		publish(t, kafkaSink(t, c.ListenAddrs(), bridge), events)
		allRead(t, source.Config{
			From:  "kafka://" + c.ListenAddrs()[0] + "/k8s.prod.*",
			Kafka: kafka.Connection{SASL: user("reader")},
		})
	})
}

// deadLetters makes a dead letter of every second event.
func deadLetters(t *testing.T, s sinks.Sink, events []event.Event) (letters []string) {
	t.Helper()
	testkit.OK(t, s.Open(t.Context()))
	for i := range events {
		if i%2 == 0 {
			testkit.OK(t, s.DeadLetter(t.Context(), &events[i], errors.New("too large"), 1))
			letters = append(letters, events[i].ID)
			continue
		}
		m := &sinks.Message{Event: &events[i]}
		if s.Publish(t.Context(), []*sinks.Message{m}); m.Err != nil {
			t.Fatal(m.Err)
		}
	}
	testkit.OK(t, s.Close())
	return letters
}

// Of a stream with events and dead letters the dead letters alone are read, with their sink, and
// deleted.
func TestSubject(t *testing.T) {
	const subject = "k8s.prod._deadletter.*.*"
	deleting := []string{"$JS.API.STREAM.INFO.K8S", "$JS.API.STREAM.MSG.DELETE.K8S"}
	reading := []string{"$JS.API.STREAM.INFO.K8S", "$JS.API.CONSUMER.CREATE.K8S.>", "$JS.API.CONSUMER.MSG.NEXT.K8S.>", "$JS.API.CONSUMER.DELETE.K8S.>"}
	users := map[string][]string{"bridge": {">"}, "reader": reading, "finder": append([]string{"$JS.API.STREAM.NAMES"}, reading...), "deleter": deleting}
	s := natsServer(t, func(o *server.Options) {
		for name, subjects := range users {
			o.Users = append(o.Users, &server.User{Username: name, Password: "right", Permissions: &server.Permissions{
				Publish: &server.SubjectPermission{Allow: subjects}, Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
			}})
		}
	})
	as := func(user string) nats.Config { return nats.Config{Username: user, Password: "right"} }
	events := testkit.Events(t, 5, 20, 6)
	letters := deadLetters(t, natsSink(t, s.ClientURL(), func(c *nats.Options) {
		c.Username, c.Password = "bridge", "right"
		c.Name = "a/again/X" // the id is as of one that was sent again
	}), events)
	var places []source.MessageAddress
	read := func(cfg source.Config) (ids []string) {
		places = nil
		r := open(t, cfg)
		defer r.Close()
		for m, err := range r.Messages(t.Context()) {
			testkit.OK(t, err)
			if m.Sink != "a" {
				t.Errorf("%s is of the sink %q", m.Event.ID, m.Sink)
			}
			ids, places = append(ids, m.Event.ID), append(places, source.MessageAddress{Lane: m.Lane, Offset: m.Offset})
		}
		return ids
	}
	for user, from := range map[string]string{"reader": s.ClientURL() + "/K8S", "finder": s.ClientURL() + "/"} {
		if got := read(source.Config{From: from, NATS: as(user), Subject: subject}); !slices.Equal(got, letters) {
			t.Errorf("%s: %q, want %q", user, got, letters)
		}
	}
	cfg := source.Config{From: s.ClientURL() + "/K8S", NATS: as("reader"), Subject: subject}
	cfg.After, cfg.Lanes = source.Position{"K8S": {Next: places[3].Offset}}, []string{"K8S"}
	if got := read(cfg); !slices.Equal(got, letters[3:]) {
		t.Errorf("from the fourth on: %q", got)
	}
	cfg.Lanes = []string{"OTHER"}
	if got := read(cfg); len(got) != 0 {
		t.Errorf("of another stream: %q", got)
	}
	cfg.Lanes, cfg.After, cfg.Patience = nil, nil, 5*time.Second
	read(cfg)
	if err := source.Delete(t.Context(), cfg, places); err == nil || !strings.Contains(err.Error(), "$JS.API.STREAM.MSG.DELETE.K8S") {
		t.Errorf("without the right: %v", err)
	}
	cfg.NATS = as("deleter")
	testkit.OK(t, source.Delete(t.Context(), cfg, places))
	testkit.OK(t, source.Delete(t.Context(), cfg, places[:1]))
	elsewhere := []source.MessageAddress{{Lane: "OTHER", Offset: 1}}
	cfg.NATS = as("bridge")
	err := source.Delete(t.Context(), cfg, elsewhere)
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("of a stream that does not exist: %v", err)
	}
	cfg.NATS = as("reader")
	if got := read(cfg); len(got) != 0 {
		t.Errorf("after they were deleted: %q", got)
	}
	if _, err := source.Open(t.Context(), source.Config{From: s.ClientURL() + "/", NATS: as("finder"), Subject: "other"}); err == nil || !strings.Contains(err.Error(), "no stream stores the subject other") {
		t.Errorf("a subject of no stream: %v", err)
	}
}

// Each stretch that a stream removes while it is read is noted, also several within a second.
func TestRemovedMeanwhile(t *testing.T) {
	s := natsServer(t)
	js := jetStream(t, s)
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "K8S", Subjects: []string{"k8s.>"}})
	testkit.OK(t, err)
	const messages, stretch = 12_000, 3000 // a reader holds 2,000 of them
	data := bytes.Repeat([]byte(" "), 4<<10)
	for range messages {
		_, err := js.PublishAsync("k8s.a", data)
		testkit.OK(t, err)
	}
	<-js.PublishAsyncComplete()
	r := open(t, source.Config{From: s.ClientURL() + "/K8S"})
	defer r.Close()
	read, purged, missing := 0, uint64(1), uint64(0)
	for m, err := range r.Messages(t.Context()) {
		testkit.OK(t, err)
		read++
		if removed := purged + stretch; m.Offset >= purged && removed < messages {
			testkit.OK(t, stream.Purge(t.Context(), jetstream.WithPurgeSequence(removed)))
			purged = removed
		}
	}
	for _, x := range r.Removed() {
		missing += x.To - x.From
	}
	if len(r.Removed()) < 2 || int(missing)+read != messages {
		t.Errorf("%d messages read, %d missing in %d stretches, want %d", read, missing, len(r.Removed()), messages)
	}
}

// What somebody has removed from a stream is noted: any message, also the first and the last, and
// all of an object. What a limit has removed is not taken for that.
func TestRemovedSingly(t *testing.T) {
	s := natsServer(t)
	js := jetStream(t, s)
	const messages = 10
	streams := 0
	for name, test := range map[string]struct {
		limits  jetstream.StreamConfig
		remove  func(jetstream.Stream) error
		want    []source.Removal
		isWhole bool
	}{
		"nothing":   {want: nil, isWhole: true, remove: func(jetstream.Stream) error { return nil }},
		"one":       {want: []source.Removal{{From: 5, To: 6, Singly: true}}, isWhole: true, remove: func(s jetstream.Stream) error { return s.DeleteMsg(t.Context(), 5) }},
		"the first": {want: []source.Removal{{From: 1, To: 2, Singly: true}}, remove: func(s jetstream.Stream) error { return s.DeleteMsg(t.Context(), 1) }},
		"the last":  {want: []source.Removal{{From: 10, To: 11, Singly: true}}, isWhole: true, remove: func(s jetstream.Stream) error { return s.DeleteMsg(t.Context(), 10) }},
		"an object": {
			want: []source.Removal{{From: 1, To: 2, Singly: true}, {From: 4, To: 5, Singly: true}, {From: 7, To: 8, Singly: true}, {From: 10, To: 11, Singly: true}},
			remove: func(s jetstream.Stream) error {
				return s.Purge(t.Context(), jetstream.WithPurgeSubject(s.CachedInfo().Config.Name+".0"))
			},
			isWhole: false,
		},
		"everything": {want: []source.Removal{{From: 1, To: 11, Singly: true}}, remove: func(s jetstream.Stream) error { return s.Purge(t.Context()) }},
		"the first, with a limit": {
			limits: jetstream.StreamConfig{MaxAge: time.Hour}, remove: func(s jetstream.Stream) error { return s.DeleteMsg(t.Context(), 1) },
		},
		"one, with a limit": {
			limits: jetstream.StreamConfig{MaxAge: time.Hour}, remove: func(s jetstream.Stream) error { return s.DeleteMsg(t.Context(), 5) },
			want: []source.Removal{{From: 5, To: 6, Singly: true}}, isWhole: true,
		},
		"by the stream itself": {
			limits: jetstream.StreamConfig{MaxMsgsPerSubject: 2}, remove: func(jetstream.Stream) error { return nil },
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := test.limits
			cfg.Name = fmt.Sprint("K8S", streams)
			streams++
			cfg.Subjects = []string{cfg.Name + ".>"}
			stream, err := js.CreateStream(t.Context(), cfg)
			testkit.OK(t, err)
			for i := range messages {
				_, err := js.Publish(t.Context(), fmt.Sprint(cfg.Name, ".", i%3), []byte("{}"))
				testkit.OK(t, err)
			}
			for i := range test.want {
				test.want[i].Lane = cfg.Name
			}
			testkit.OK(t, test.remove(stream))
			r := open(t, source.Config{From: s.ClientURL() + "/" + cfg.Name, Patience: 5 * time.Second})
			defer r.Close()
			for _, err := range r.Messages(t.Context()) {
				testkit.OK(t, err)
			}
			if !slices.Equal(r.Removed(), test.want) || r.Whole() != test.isWhole {
				t.Errorf("removed %+v, want %+v; whole: %t", r.Removed(), test.want, r.Whole())
			}
		})
	}
}

// 100 times messages of a stream are removed, each time others.
func TestRemovedOfEachKind(t *testing.T) {
	s := natsServer(t)
	js := jetStream(t, s)
	random := rand.New(rand.NewPCG(1, 3))
	const messages, objects = 20, 4
	kinds := []func() (gone []uint64){
		func() []uint64 { return []uint64{1 + random.Uint64N(messages)} },
		func() []uint64 { return []uint64{1} },
		func() []uint64 { return []uint64{messages} },
		func() (gone []uint64) { // all of an object
			of := random.Uint64N(objects)
			for n := uint64(1); n <= messages; n++ {
				if n%objects == of {
					gone = append(gone, n)
				}
			}
			return gone
		},
		func() (gone []uint64) { // any
			for n := uint64(1); n <= messages; n++ {
				if random.IntN(4) == 0 || n == 7 {
					gone = append(gone, n)
				}
			}
			return gone
		},
	}
	for trial := range 100 * len(kinds) {
		name := fmt.Sprint("K8S", trial)
		stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}, Storage: jetstream.MemoryStorage})
		testkit.OK(t, err)
		for n := range messages {
			_, err := js.Publish(t.Context(), fmt.Sprint(name, ".", (n+1)%objects), []byte("{}"))
			testkit.OK(t, err)
		}
		var want []source.Removal
		for _, n := range kinds[trial%len(kinds)]() {
			testkit.OK(t, stream.DeleteMsg(t.Context(), n))
			if last := len(want) - 1; last >= 0 && want[last].To == n {
				want[last].To++
				continue
			}
			want = append(want, source.Removal{Lane: name, From: n, To: n + 1, Singly: true})
		}
		r, err := source.Open(t.Context(), source.Config{From: s.ClientURL() + "/" + name, Patience: 5 * time.Second})
		testkit.OK(t, err)
		_, err = readAll(t, r)
		testkit.OK(t, err)
		if !slices.Equal(r.Removed(), want) {
			t.Errorf("trial %d: removed %+v, want %+v", trial, r.Removed(), want)
		}
		r.Close()
		testkit.OK(t, js.DeleteStream(t.Context(), name))
	}
}
