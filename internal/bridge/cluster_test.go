package bridge_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// cluster is a scripted API server together with what it truly did: the reference that streams are
// compared with.
type cluster struct {
	*testkit.Server
	rng *rand.Rand
	// garble reports whether a write makes of an object what can't be understood, though it says
	// which object it is; nil for never.
	garble func() bool
	// deep garbles by too many levels.
	deep  bool
	names []resource.Key // that objects may have
	count int            // of writes, for uids and marks
	teams []string       // that objects may have as a label, at random; nil for no labels

	all    []*write
	byMark map[string]*write
	// histories are what the server's history was before each rewind, and is now: the last. A write
	// from before a rewind that the rewind did not undo is in both.
	histories []*history
	alive     map[resource.Key]*write
}

// write is one change that the server made.
type write struct {
	history int // the first that it is in
	version int64
	key     resource.Key
	uid     string
	mark    string // in the object; of a deletion: of the last state
	team    string // as a label
	deleted bool
	garbled bool // nobody can understand it
	at      time.Time
}

func (w *write) String() string {
	op := "put"
	if w.garbled {
		op = "garbled put"
	}
	if w.deleted {
		op = "delete"
	}
	return fmt.Sprintf("%s %s@%d of %s in history %d", op, w.key, w.version, w.uid, w.history)
}

// history is one line of versions.
type history struct {
	writes []*write
	// expired are the versions up to which the server forgot, ascending.
	expired []int64
}

func newCluster(t *testing.T, typ resource.Type, rng *rand.Rand, objects int) *cluster {
	c := &cluster{
		Server: testkit.NewServer(t, typ), rng: rng,
		byMark: map[string]*write{}, alive: map[resource.Key]*write{}, histories: []*history{{}},
	}
	for i := range objects {
		c.names = append(c.names, resource.MakeKey(fmt.Sprint("ns", i%2), fmt.Sprint("o", i)))
	}
	return c
}

func (c *cluster) now() *history { return c.histories[len(c.histories)-1] }

// version is the server's.
func (c *cluster) version() int64 { return number(c.Version()) }

// number reads a version; 0 for none.
func number(v resource.Version) int64 {
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil && v != "" {
		panic(fmt.Sprintf("version %q is no number", v))
	}
	return n
}

// oldest is the lowest version that the server still has the history of.
func (c *cluster) oldest() int64 {
	if expired := c.now().expired; len(expired) > 0 {
		return expired[len(expired)-1]
	}
	return 0
}

// change makes one write at random and says what it was.
func (c *cluster) change() string {
	key := c.names[c.rng.IntN(len(c.names))]
	if c.alive[key] != nil && c.rng.IntN(4) == 0 {
		return c.remove(key)
	}
	return c.put(key)
}

// put creates an object, or updates it.
func (c *cluster) put(key resource.Key) string {
	return c.write(key, c.garble != nil && c.garble())
}

func (c *cluster) write(key resource.Key, garbled bool) string {
	c.count++
	mark := fmt.Sprint("mark-", c.count)
	uid := fmt.Sprintf("uid-%s-%d", key[strings.IndexByte(string(key), '/')+1:], c.count)
	if c.count%2 == 0 { // as a cluster gives them out: these are kept in another form
		uid = fmt.Sprintf("%08x-0000-4000-8000-000000000000", c.count)
	}
	if before := c.alive[key]; before != nil {
		uid = before.uid
	}
	padding := strings.Repeat("x", c.rng.IntN(300))
	team := ""
	if c.teams != nil {
		team = c.teams[c.rng.IntN(len(c.teams))]
	}
	version := c.Create(key, func(obj map[string]any) {
		obj["metadata"].(map[string]any)["uid"] = uid
		if c.teams != nil {
			obj["metadata"].(map[string]any)["labels"] = map[string]any{"team": team}
		}
		obj["spec"] = map[string]any{"mark": mark, "padding": padding}
		delete(obj["metadata"].(map[string]any), "generation")
		delete(obj, "status")
		switch {
		case garbled && c.deep:
			obj["status"] = json.RawMessage(strings.Repeat("[", resource.MaxDepth) + strings.Repeat("]", resource.MaxDepth))
		case garbled:
			obj["metadata"].(map[string]any)["generation"] = "poison"
		}
	})
	w := &write{version: number(version), key: key, uid: uid, mark: mark, team: team, garbled: garbled}
	c.note(w)
	c.byMark[mark] = w
	c.alive[key] = w
	return w.String()
}

// ungarble makes what can't be understood what can be.
func (c *cluster) ungarble() string {
	var done []string
	for _, key := range slices.Sorted(maps.Keys(c.alive)) {
		if c.alive[key].garbled {
			done = append(done, c.write(key, false))
		}
	}
	return strings.Join(done, ", ")
}

// remove deletes objects, all at one version.
func (c *cluster) remove(keys ...resource.Key) string {
	version := number(c.Delete(keys...))
	for _, key := range keys {
		if before := c.alive[key]; before != nil {
			c.note(&write{version: version, key: key, uid: before.uid, mark: before.mark, team: before.team, deleted: true})
			delete(c.alive, key)
		}
	}
	return fmt.Sprintf("delete %v@%d", keys, version)
}

// removeSome deletes several objects at one version.
func (c *cluster) removeSome() string {
	keys := slices.Sorted(maps.Keys(c.alive))
	c.rng.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	return c.remove(keys[:min(len(keys), 2+c.rng.IntN(4))]...)
}

func (c *cluster) note(w *write) {
	w.history, w.at = len(c.histories)-1, time.Now()
	c.all = append(c.all, w)
	c.now().writes = append(c.now().writes, w)
}

// expire forgets the history up to now.
func (c *cluster) expire() string {
	c.Expire()
	c.now().expired = append(c.now().expired, c.version())
	return fmt.Sprint("expire ", c.version())
}

// rewind puts the server back to a version.
func (c *cluster) rewind(to int64) string {
	from := c.version()
	c.Rewind(resource.Version(fmt.Sprint(to)))
	h := &history{expired: slices.Clone(c.now().expired)}
	for _, w := range c.now().writes {
		if w.version <= to {
			h.writes = append(h.writes, w)
		}
	}
	c.histories = append(c.histories, h)
	c.alive = h.fold()
	return fmt.Sprintf("rewind %d to %d", from, to)
}

// fold is what exists at the end of the history.
func (h *history) fold() map[resource.Key]*write {
	alive := map[resource.Key]*write{}
	for _, w := range h.writes {
		if w.deleted {
			delete(alive, w.key)
		} else {
			alive[w.key] = w
		}
	}
	return alive
}

// before is the version of the last write before the given one.
func (h *history) before(version int64) (last int64) {
	for _, w := range h.writes {
		if w.version < version {
			last = w.version
		}
	}
	return last
}
