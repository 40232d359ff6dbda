package cli

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/klauspost/compress/s2"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/testkit"
)

// Where the hunt looks.

// searchLeases looks at what replicas report to each other.
func (h *hunt) searchLeases() {
	for _, name := range []string{"bridge", "bridge-progress"} {
		lease, err := h.leases.Client().Get(h.t.Context(), "shop", name)
		testkit.OK(h.t, err)
		text, err := json.Marshal(lease)
		testkit.OK(h.t, err)
		h.in("leases", text)
	}
}

// copyState copies the state of a bridge that runs at a moment in which it writes nothing, so the
// copy is as after a crash.
func (h *hunt) copyState(to, from string) {
	look := func() (files string) {
		err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err == nil && !d.IsDir() {
				files += fmt.Sprintln(path, info.Size(), info.ModTime())
			}
			return err
		})
		if errors.Is(err, fs.ErrNotExist) {
			return ""
		}
		testkit.OK(h.t, err)
		return files
	}
	h.until("the state is copied while nothing is written", func() bool {
		testkit.OK(h.t, os.RemoveAll(to))
		before := look()
		err := os.CopyFS(to, os.DirFS(from))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			h.t.Fatal(err)
		}
		return err == nil && before != "" && look() == before
	})
}

// foundAt reports whether any value was found in a place.
func (h *hunt) foundAt(place string) bool {
	for _, places := range h.found {
		if slices.Contains(places, place) {
			return true
		}
	}
	return false
}

// in looks for all values in a text: as they are, in base64, and in the bytes of what could not be
// understood.
func (h *hunt) in(place string, text []byte) {
	h.searched[place] += len(text)
	h.plain(place, text)
	for rest := text; ; {
		at := bytes.Index(rest, []byte("aHVudGVyMi")) // hunter2-
		if at < 0 {
			break
		}
		decoded, _ := base64.RawStdEncoding.DecodeString(string(rest[at:min(at+32, (len(rest)-at)/4*4+at)]))
		h.plain(place, decoded)
		rest = rest[at+1:]
	}
	h.searchZipped(place, text)
	for _, raw := range twiceEncoded.FindAll(text, -1) {
		decoded, _ := base64.StdEncoding.DecodeString(string(raw[:len(raw)/4*4]))
		h.searchZipped(place, decoded)
	}
	for _, raw := range quarantinedBytes.FindAllSubmatch(text, -1) {
		decoded, _ := base64.StdEncoding.DecodeString(string(raw[1]))
		h.plain(place, decoded)
	}
}

// How gzip begins in base64, and that in base64.
var (
	encodedZip   = regexp.MustCompile(`H4sI[A-Za-z0-9+/]+=*`)
	twiceEncoded = regexp.MustCompile(`SDRzS[A-Za-z0-9+/]+=*`)
)

// searchZipped looks for values in what is zipped and in base64.
func (h *hunt) searchZipped(place string, text []byte) {
	for _, raw := range encodedZip.FindAll(text, -1) {
		packed, _ := base64.StdEncoding.DecodeString(string(raw[:len(raw)/4*4]))
		if r, err := gzip.NewReader(bytes.NewReader(packed)); err == nil {
			unzipped, _ := io.ReadAll(r) // as much as there is
			h.plain(place, unzipped)
		}
	}
}

var quarantinedBytes = regexp.MustCompile(`"raw":"([^"]+)"`)

// Plain looks for values as they are.
func (h *hunt) plain(place string, text []byte) {
	const begin = "hunter2-"
	for {
		at := bytes.Index(text, []byte(begin))
		if at < 0 {
			return
		}
		text = text[at+len(begin):]
		digits, _, _ := bytes.Cut(text[:min(len(text), 8)], []byte("-"))
		number, err := strconv.Atoi(string(digits))
		if err != nil || len(digits) != 4 { // part of a value, beside other bytes of a difference
			continue
		}
		if at := h.places[number]; !slices.Contains(h.found[at], place) {
			h.found[at] = append(h.found[at], place)
		}
	}
}

func (h *hunt) searchStreams(js jetstream.JetStream) {
	for info := range js.ListStreams(h.t.Context()).Info() {
		s, err := js.Stream(h.t.Context(), info.Config.Name)
		testkit.OK(h.t, err)
		for seq := max(info.State.FirstSeq, 1); seq <= info.State.LastSeq; seq++ {
			m, err := s.GetMsg(h.t.Context(), seq)
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				continue // a bucket keeps the newest of each key
			}
			testkit.OK(h.t, err)
			h.messages++
			if strings.HasPrefix(m.Subject, "dead.") {
				h.deadLetters++
			}
			h.in("stream "+info.Config.Name, fmt.Appendf(nil, "%s %v %s", m.Subject, m.Header, m.Data))
		}
	}
}

func (h *hunt) searchPosted() {
	for place, text := range h.posted {
		h.in(place, []byte(text.String()))
	}
}

// profiles looks at all profiles that the bridge serves, inflated where they are packed.
func (h *hunt) profiles(place string) {
	for _, profile := range []string{
		"cmdline", "heap", "heap?debug=1", "allocs", "goroutine?debug=2", "block", "mutex",
		"threadcreate", "profile?seconds=1", "trace?seconds=1",
	} {
		text := []byte(h.get("/debug/pprof/" + profile))
		if packed, err := gzip.NewReader(bytes.NewReader(text)); err == nil {
			text, err = io.ReadAll(packed)
			testkit.OK(h.t, err)
		}
		h.in(place, text)
	}
}

// offset is how many events are in Kafka.
func (h *hunt) offset() int64 { return h.offsetOf("k8s") }

func (h *hunt) offsetOf(topic string) (n int64) {
	for _, p := range h.kafka.PartitionInfos(topic) {
		n += p.HighWatermark
	}
	return n
}

func (h *hunt) searchKafka() {
	h.records += h.searchTopic("topic", "k8s")
	h.searchTopic("topic dead", "dead")
	h.searchTopic("topic narrow", "narrow")
}

func (h *hunt) searchTopic(place, topic string) (records int) {
	client := consumer(h.t, h.kafka.ListenAddrs(), topic)
	for want := h.offsetOf(topic); int64(records) < want; {
		for _, r := range client.PollFetches(h.t.Context()).Records() {
			records++
			h.in(place, fmt.Appendf(nil, "%s %v %s", r.Key, r.Headers, r.Value))
		}
	}
	return records
}

func (h *hunt) searchFiles(dir string) {
	testkit.OK(h.t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		h.files++
		place := "files of "
		if strings.Contains(path, string(filepath.Separator)+"undelivered"+string(filepath.Separator)) {
			place = "undelivered of "
			h.undelivered++
		} else if strings.Contains(path, string(filepath.Separator)+"history"+string(filepath.Separator)) {
			place = "history files of "
		}
		h.in(place+filepath.Base(dir), text)
		return err
	}))
}

// searchDatabase looks into what is compressed: bodies are S2 blocks behind a byte, entries of the
// log behind a header.
func (h *hunt) searchDatabase(place, dir string) {
	db, err := pebble.Open(dir, &pebble.Options{Logger: pebbleQuiet{}})
	testkit.OK(h.t, err)
	defer db.Close()
	all, err := db.NewIter(nil)
	testkit.OK(h.t, err)
	defer all.Close()
	for ok := all.First(); ok; ok = all.Next() {
		h.keys++
		value := all.Value()
		h.in(place, fmt.Appendf(nil, "%s %s", all.Key(), value))
		begin := 1
		if all.Key()[0] == 'l' {
			size, n := binary.Uvarint(value)
			begin = n + int(size)
			h.entries++
		}
		if len(value) > begin {
			if body, err := s2.Decode(nil, value[begin:]); err == nil {
				h.in(place, body)
			}
		}
	}
	testkit.OK(h.t, all.Error())
}

// pebbleQuiet is a logger for Pebble.
type pebbleQuiet struct{}

func (pebbleQuiet) Infof(string, ...any)           {}
func (pebbleQuiet) Errorf(string, ...any)          {}
func (pebbleQuiet) Fatalf(format string, a ...any) { panic(fmt.Sprintf(format, a...)) }
