package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kgo"
)

// functionName is the name of a link to the test program that makes it a function: a process that
// acts on ConfigMaps that come over HTTP, from JetStream or from Kafka. Its effect is a line in a
// file, with the id, which it also is known by after a kill.
const functionName = "function"

// What a function is called with, by what it reads from.
const (
	overHTTP    = "http"
	overBatches = "batches"
	overNATS    = "nats"
	overKafka   = "kafka"
)

// Names of objects that a function hangs at, and what in an object it fails at.
const (
	hangsAt = "hangs-"
	poison  = "poison"
)

// handled is an event that a function was called with.
type handled struct{ id, name, version, data string }

// largestBatch is what the name of a file with the number of events of the largest batch ends with.
const largestBatch = ".largest"

// function is a running one. Objects have a worker each, so that one that hangs stops no other.
type function struct {
	mu      sync.Mutex
	effects *os.File                // guarded by mu
	done    map[string]bool         // guarded by mu: by id
	largest int                     // guarded by mu: events of a batch
	workers map[string]chan handled // by name; only for streams
}

// runFunction is its main function: the transport, an address, and the file of its effects.
func runFunction(transport, address, file string) int {
	f := &function{done: map[string]bool{}, workers: map[string]chan handled{}}
	before, err := os.ReadFile(file)
	if err == nil {
		for line := range strings.Lines(string(before)) {
			id, _, _ := strings.Cut(line, "\t")
			f.done[id] = true
		}
	}
	f.effects, err = os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		switch transport {
		case overHTTP:
			err = f.serve(address)
		case overBatches:
			err = f.serveBatches(address, file+largestBatch)
		case overNATS:
			err = f.readNATS(address)
		case overKafka:
			err = f.readKafka(address)
		}
	}
	fmt.Fprintln(os.Stderr, "function:", err)
	return 1
}

// record stores an effect, once for each id: what was done is done, or a dead letter with a reason.
func (f *function) record(h handled, reason string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.done[h.id] {
		return nil
	}
	_, err := fmt.Fprintf(f.effects, "%s\t%s\t%s\t%d\t%s\n", h.id, h.name, h.version, time.Now().UnixNano(), reason)
	if err = errors.Join(err, f.effects.Sync()); err == nil {
		f.done[h.id] = true
	}
	return err
}

var errPoison = errors.New("poison")

// act does what a function does: it has an effect, fails, or hangs.
func (f *function) act(ctx context.Context, h handled) error {
	switch {
	case strings.HasPrefix(h.name, hangsAt):
		<-ctx.Done()
		return ctx.Err()
	case strings.Contains(h.data, poison):
		return errPoison
	default:
		return f.record(h, "")
	}
}

// serve answers over HTTP. The bridge tries again, gives up, and posts the dead letters.
func (f *function) serve(address string) error {
	return http.ListenAndServe(address, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		h := handled{r.Header.Get("ce-id"), r.Header.Get("ce-name"), r.Header.Get("ce-resourceversion"), string(body)}
		reason, reasonErr := url.PathUnescape(r.Header.Get("ce-deadletterreason"))
		switch {
		case errors.Join(err, reasonErr) != nil:
		case r.URL.Path == "/dead":
			err = f.record(h, reason)
		case h.name != "":
			err = f.act(r.Context(), h)
		}
		if errors.Join(err, reasonErr) != nil {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
}

// structured is an event of the structured and of the batched content mode.
type structured struct {
	ID, Name, ResourceVersion, DeadLetterReason string
	Data                                        json.RawMessage
}

// serveBatches is as serve, with batches. It acts on the events of a batch until one fails.
func (f *function) serveBatches(address, largestFile string) error {
	return http.ListenAndServe(address, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var events []structured
		body, err := io.ReadAll(r.Body)
		switch r.Header.Get("Content-Type") {
		case "application/cloudevents-batch+json":
			err = errors.Join(err, json.Unmarshal(body, &events), f.countBatch(len(events), largestFile))
		case "application/cloudevents+json":
			events = make([]structured, 1)
			err = errors.Join(err, json.Unmarshal(body, &events[0]))
		}
		for _, e := range events {
			h := handled{e.ID, e.Name, e.ResourceVersion, string(e.Data)}
			switch {
			case err != nil:
			case r.URL.Path == "/dead":
				err = f.record(h, e.DeadLetterReason)
			case h.name != "":
				err = f.act(r.Context(), h)
			}
		}
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
}

// countBatch keeps the number of events of the largest batch.
func (f *function) countBatch(events int, largestFile string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if events <= f.largest {
		return nil
	}
	f.largest = events
	return os.WriteFile(largestFile, []byte(fmt.Sprint(events)), 0o600)
}

// add gives an event to the worker of its object, which tries it five times.
func (f *function) add(h handled) {
	if h.name == "" || f.isDone(h.id) {
		return
	}
	worker := f.workers[h.name]
	if worker == nil {
		worker = make(chan handled, 10_000)
		f.workers[h.name] = worker
		go func() {
			for h := range worker {
				err := f.act(context.Background(), h)
				for range 4 {
					if err == nil {
						break
					}
					time.Sleep(20 * time.Millisecond)
					err = f.act(context.Background(), h)
				}
				if err != nil {
					err = f.record(h, "given up after 5 attempts: "+err.Error())
				}
				if err != nil {
					panic(err)
				}
			}
		}()
	}
	worker <- h
}

func (f *function) isDone(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.done[id]
}

// readNATS reads the stream from its beginning, and skips what is done.
func (f *function) readNATS(address string) error {
	conn, err := nats.Connect("nats://"+address, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond), nats.RetryOnFailedConnect(true))
	if err != nil {
		return err
	}
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	next := uint64(1)
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		consumer, err := js.OrderedConsumer(ctx, "K8S", jetstream.OrderedConsumerConfig{
			DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: next,
		})
		cancel()
		if err != nil {
			time.Sleep(50 * time.Millisecond) // the server is not there yet
			continue
		}
		next = f.readMessages(consumer, next)
	}
}

// readMessages reads until an error, and returns where to continue.
func (f *function) readMessages(consumer jetstream.Consumer, next uint64) uint64 {
	for {
		m, err := consumer.Next(jetstream.FetchMaxWait(time.Second))
		if errors.Is(err, nats.ErrTimeout) || errors.Is(err, jetstream.ErrNoMessages) {
			continue
		}
		if err != nil {
			return next
		}
		meta, err := m.Metadata()
		if err != nil {
			return next
		}
		f.add(handled{m.Headers().Get("ce-id"), m.Headers().Get("ce-name"), m.Headers().Get("ce-resourceversion"), string(m.Data())})
		next = meta.Sequence.Stream + 1
	}
}

// readKafka reads the topic from its beginning, and skips what is done.
func (f *function) readKafka(address string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.ConsumeTopics("k8s."+clusterName+".configmaps"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		return err
	}
	for {
		client.PollFetches(context.Background()).EachRecord(func(r *kgo.Record) {
			h := handled{data: string(r.Value)}
			for _, header := range r.Headers {
				switch header.Key {
				case "ce_id":
					h.id = string(header.Value)
				case "ce_name":
					h.name = string(header.Value)
				case "ce_resourceversion":
					h.version = string(header.Value)
				}
			}
			f.add(h)
		})
	}
}

// effect is a line that a function has written.
type effect struct {
	handled
	at     time.Time
	reason string // of a dead letter
}

// functionProcess is a function that the test kills and starts again.
type functionProcess struct {
	l                        *lab
	transport, address, file string
	cmd                      *exec.Cmd
}

func (l *lab) function(transport, address string) *functionProcess {
	l.t.Helper()
	p := &functionProcess{l: l, transport: transport, address: address, file: filepath.Join(l.dir, "effects-"+transport)}
	self, err := os.Executable()
	must(l.t, err)
	must(l.t, os.MkdirAll(filepath.Join(l.dir, transport), 0o700))
	must(l.t, os.Symlink(self, filepath.Join(l.dir, transport, functionName)))
	p.start()
	l.t.Cleanup(p.kill)
	return p
}

func (p *functionProcess) start() {
	p.l.t.Helper()
	p.cmd = exec.Command(filepath.Join(p.l.dir, p.transport, functionName), p.transport, p.address, p.file)
	p.cmd.Stderr = os.Stderr
	must(p.l.t, p.cmd.Start())
}

func (p *functionProcess) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// effects are what it has done, in its order. A line that a kill has cut is none.
func (p *functionProcess) effects(t *testing.T) (all []effect) {
	t.Helper()
	file, err := os.Open(p.file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	must(t, err)
	defer file.Close()
	for scan := bufio.NewScanner(file); scan.Scan(); {
		fields := strings.Split(scan.Text(), "\t")
		var nanos int64
		if len(fields) != 5 {
			t.Errorf("%s: a line %q", p.transport, scan.Text())
			continue
		}
		_, err := fmt.Sscan(fields[3], &nanos)
		must(t, err)
		all = append(all, effect{handled{id: fields[0], name: fields[1], version: fields[2]}, time.Unix(0, nanos), fields[4]})
	}
	return all
}
