package refused

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/kubebridge/bridge/internal/event"
)

// Errors of Find.
var (
	ErrUnknown   = errors.New("no such event")
	ErrAmbiguous = errors.New("several events begin like that")
)

// Entry is one event of a folder, as it is listed.
type Entry struct {
	// ID names the event in this folder: it is the file's name without .json.
	ID    string `json:"id"`
	Bytes int64  `json:"bytes"`
	Refusal
	Routing Routing `json:"routing,omitzero"`
	// Event is the structured CloudEvent.
	Event json.RawMessage `json:"event,omitempty"`
	// Problem says why the file cannot be read. Then only ID, Sink and Bytes are known.
	Problem string `json:"problem,omitempty"`
}

// List returns the events in a folder, oldest first. A folder that does not exist is empty. It may
// be called while a bridge writes to the folder: an event is whole or not listed.
func List(dir string) ([]Entry, error) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer root.Close()
	names, err := fs.Glob(root.FS(), "*/*.json")
	if err != nil {
		return nil, err
	}
	var all []Entry
	for _, name := range names {
		e, err := read(root, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since
		}
		all = append(all, e)
	}
	slices.SortStableFunc(all, func(a, b Entry) int { return a.Kept.Compare(b.Kept) })
	return all, nil
}

// Read returns one event of a folder, by the name of its sink and its whole ID: ErrUnknown.
func Read(dir, sink, id string) (Entry, error) {
	if path.Base(sink) != sink || path.Base(id) != id {
		return Entry{}, fmt.Errorf("%q of sink %q: %w", id, sink, ErrUnknown)
	}
	root, err := os.OpenRoot(dir)
	if err == nil {
		defer root.Close()
		var e Entry
		if e, err = read(root, path.Join(sink, id+".json")); err == nil {
			return e, nil
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = ErrUnknown
	}
	return Entry{}, fmt.Errorf("%s of sink %s: %w", id, sink, err)
}

// read reads a file. What it holds may be damaged; then the entry has a Problem.
func read(root *os.Root, name string) (e Entry, err error) {
	raw, err := root.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return e, err
	}
	if err == nil {
		err = json.Unmarshal(raw, &e)
	}
	if err != nil {
		e = Entry{Problem: err.Error()}
	} else {
		e.Problem = "" // else a file could name one
	}
	// A file that was edited may name another one, which Remove would delete.
	e.ID = strings.TrimSuffix(path.Base(name), ".json")
	e.Sink, e.Bytes = path.Dir(name), int64(len(raw))
	return e, nil
}

// Find returns the one event whose ID begins with the prefix: ErrUnknown, ErrAmbiguous.
func Find(entries []Entry, prefix string) (Entry, error) {
	var found []Entry
	for _, e := range entries {
		if prefix != "" && strings.HasPrefix(e.ID, prefix) {
			found = append(found, e)
		}
	}
	switch len(found) {
	case 0:
		return Entry{}, fmt.Errorf("%q: %w", prefix, ErrUnknown)
	case 1:
		return found[0], nil
	default:
		return Entry{}, fmt.Errorf("%q: %w: %s, %s", prefix, ErrAmbiguous, found[0].ID, found[1].ID)
	}
}

// Remove deletes an event of a folder. The bridge that writes to the folder finds the room within
// seconds. An event that is gone already is no error.
func Remove(dir string, e Entry) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	err = root.Remove(path.Join(e.Sink, e.ID+".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// ErrIncomplete is of an event that could not be made: it lacks its payload, and is not what
// happened.
var ErrIncomplete = errors.New("the event could not be made and has no payload: remove it, and " +
	"send the present state of its object with 'bridge snapshot'")

// Routing is what a sink needs of an event besides its attributes.
type Routing struct {
	Cluster       string `json:"cluster,omitempty"`
	Part          int    `json:"part,omitempty"`
	CompactionKey string `json:"compactionKey,omitempty"`
	Run           string `json:"run,omitempty"`
	// Incomplete says why the event lacks its payload; "" where it does not.
	Incomplete string `json:"incomplete,omitempty"`
}

func routingOf(e *event.Event) Routing {
	r := Routing{Cluster: e.Cluster, Part: e.Part, CompactionKey: e.CompactionKey, Run: e.Run}
	if e.Err != nil {
		r.Incomplete = e.Err.Error()
	}
	return r
}

// Parse returns the event as it was handed to the sink: with its id, its bytes and its
// destination.
func (e *Entry) Parse() (*event.Event, error) {
	switch {
	case e.Problem != "":
		return nil, fmt.Errorf("%s: %s", e.ID, e.Problem)
	case e.Routing.Incomplete != "":
		return nil, fmt.Errorf("%s: %w", e.ID, ErrIncomplete)
	}
	parsed, err := event.ParseStructured(e.Event)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.ID, err)
	}
	r := &e.Routing
	parsed.Cluster, parsed.Part, parsed.CompactionKey, parsed.Run =
		r.Cluster, r.Part, r.CompactionKey, r.Run
	return &parsed, nil
}

// Order puts events into the order in which they are to be sent: those of one object by their
// sequence, and objects by when their first event was kept. The clock may have jumped between two
// events of an object, their sequence has not.
func Order(entries []Entry) {
	type object struct{ sink, source, informer, key string }
	slices.SortStableFunc(entries, func(a, b Entry) int { return a.Kept.Compare(b.Kept) })
	rank, orders := map[object]int{}, make(map[string]ordered, len(entries))
	for i := range entries {
		e := &entries[i]
		parsed, _ := e.Parse() // what can't be read is refused when it is sent
		of := object{sink: e.Sink, key: e.ID}
		if parsed != nil {
			of = object{e.Sink, parsed.Source, parsed.Informer, parsed.PartitionKey}
		}
		if _, known := rank[of]; !known {
			rank[of] = len(rank)
		}
		o := ordered{rank: rank[of]}
		if parsed != nil {
			o.sequence = parsed.Sequence
		}
		orders[e.Sink+"/"+e.ID] = o
	}
	slices.SortStableFunc(entries, func(a, b Entry) int {
		x, y := orders[a.Sink+"/"+a.ID], orders[b.Sink+"/"+b.ID]
		return cmp.Or(cmp.Compare(x.rank, y.rank), cmp.Compare(x.sequence, y.sequence))
	})
}

// ordered is where an event comes: by its object, then by its sequence.
type ordered struct {
	rank     int
	sequence string
}
