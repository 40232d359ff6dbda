package standby

import (
	"bytes"
	"cmp"
	"compress/flate"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"

	"github.com/kubebridge/bridge/internal/resource"
)

// Progress is what the leader writes for the other replicas.
type Progress struct {
	// Units by name.
	Units map[string]Unit
	// Feeds are the sinks of an informer's units, by the informer's name: a unit's progress is
	// about these. nil for not known.
	Feeds map[string][]string
	// Version of the leader's current configuration; "" for none.
	Version string
	// RedactionKey is the id of the key with which the leader redacts; "" where it redacts nothing.
	RedactionKey string
	// Sinks are positions in their brokers' logs, by name: everything that was sent and that Units
	// do not cover yet lies behind them.
	Sinks map[string][]byte
	// Outlines are shorter forms of Sinks, written in their place where these are too large: what
	// is possible without the rest of them.
	Outlines map[string][]byte
}

// MaxCount is more epochs of the API server's versions, or changes of a selection, than there are.
// A larger number was not written by a bridge.
const MaxCount = 1_000_000

// Unit is the progress of one unit.
type Unit struct {
	// Scope is what the unit selects. Progress of another selection is not comparable.
	Scope string `json:"s,omitempty"`
	// Delivered is the version of the API server up to which every change has reached all sinks of
	// the unit; "" for nothing yet.
	Delivered resource.Version `json:"v,omitempty"`
	// Further has the sinks that are further than Delivered, by key: while one of the unit's sinks
	// is unavailable, Delivered stands still.
	Further map[string]resource.Version `json:"f,omitempty"`
	// Front is of a version after Delivered, of which more may come; nil for none.
	Front *NewestVersion `json:"t,omitempty"`
	// Epoch of the API server's versions that Delivered, Further and Front are of.
	Epoch int `json:"e,omitempty"`
	// Selection is the version of the Namespaces up to which all events of changes of the selected
	// ones have reached all sinks; "" where none are selected by their labels.
	Selection resource.Version `json:"n,omitempty"`
	// Selectors is how often the unit has selected something else before, for the ids.
	Selectors int `json:"l,omitempty"`
}

// NewestVersion has the objects whose change in a version has reached all sinks, by their
// Key.Digest: names are not for everybody who may read a Lease.
type NewestVersion struct {
	Version resource.Version `json:"v"`
	Objects []uint64         `json:"o"`
}

// Of returns the progress of one sink.
func (p *Unit) Of(sinkKey string) Unit {
	of := *p
	of.Delivered, of.Further = p.furthest(sinkKey), nil
	return of
}

// furthest returns the newest version of Delivered and those of some sinks.
func (p *Unit) furthest(sinkKeys ...string) resource.Version {
	version := p.Delivered
	for _, key := range sinkKeys {
		if further := p.Further[key]; version == "" || further.Newer(version) {
			version = further
		}
	}
	return version
}

// maxAhead is by how many versions the leader may be ahead of what a follower has seen: more than
// an API server writes while a follower's watch is interrupted for some minutes.
const maxAhead = 10_000_000

// IsFarAheadOf reports whether any sink is far beyond the last version that a follower has seen
// itself. Such a progress is not believed yet: the follower would settle events that may never have
// been sent. Where versions have no order, or nothing was seen, there is nothing to compare.
func (p *Unit) IsFarAheadOf(seen resource.Version) bool {
	furthest := p.furthest(slices.Collect(maps.Keys(p.Further))...)
	if !furthest.Newer(seen) {
		return false
	}
	before, err := strconv.ParseUint(string(seen), 10, 64)
	if err != nil {
		return false
	}
	now, err := strconv.ParseUint(string(furthest), 10, 64)
	return err != nil || now-before > maxAhead
}

// textFormat is the format of the text on the Lease. A replica refuses another one.
const textFormat = 1

// maxPlain is the size up to which the text is not packed, so that people can read it.
const maxPlain = 16 << 10

// leaseText is what is written on the Lease, as JSON: either the parts themselves or Packed.
type leaseText struct {
	Format  int    `json:"format"`
	Version string `json:"config,omitempty"`
	// RedactionKey is the id of the key, not the key.
	RedactionKey string `json:"redactionKey,omitempty"`
	parts
	Packed []byte `json:"packed,omitempty"` // the parts: see pack
}

// parts are what can be packed. Sink positions are mostly digits and shrink to about a third.
type parts struct {
	Units map[string]Unit     `json:"units,omitempty"`
	Feeds map[string][]string `json:"feeds,omitempty"`
	Sinks map[string][]byte   `json:"sinks,omitempty"`
}

// PutResult is what a Put has written.
type PutResult struct {
	Bytes int
	// Short: positions of sinks were too large; their outlines were written, or nothing.
	Short bool
}

// encode returns the text: plain where it is small, else packed. Where the packed text is larger
// than most, the outlines replace the sink positions, and in the end they are left out: then events
// that were sent and are not in the progress are sent again after a takeover.
func (p *Progress) encode(most int) (string, PutResult, error) {
	outlines := maps.Clone(p.Sinks)
	maps.Copy(outlines, p.Outlines)
	var size int
	for _, try := range []struct {
		most  int
		short bool
		sinks map[string][]byte
		pack  bool
	}{
		{min(maxPlain, most), false, p.Sinks, false},
		{most, false, p.Sinks, true},
		{most, true, outlines, true},
		{most, true, nil, true},
	} {
		b, err := p.render(try.sinks, try.pack)
		if err != nil {
			return "", PutResult{}, err
		}
		if size = len(b); size <= try.most {
			return string(b), PutResult{Bytes: size, Short: try.short}, nil
		}
	}
	return "", PutResult{}, fmt.Errorf("the progress of %d units takes %d bytes, and the Lease "+
		"holds %d", len(p.Units), size, most)
}

// render returns the text with these sink positions, packed or not.
func (p *Progress) render(sinks map[string][]byte, pack bool) ([]byte, error) {
	out := leaseText{
		Format: textFormat, Version: p.Version, RedactionKey: p.RedactionKey,
		parts: parts{p.Units, p.Feeds, sinks},
	}
	if pack {
		packed, err := out.parts.pack()
		if err != nil {
			return nil, fmt.Errorf("pack the progress: %w", err)
		}
		out.parts, out.Packed = parts{}, packed
	}
	return json.Marshal(out)
}

// packedHead is the beginning of the packed form, as JSON. The sink positions follow in the order
// of the sinks' names.
type packedHead struct {
	Units map[string]Unit     `json:"units,omitempty"`
	Feeds map[string][]string `json:"feeds,omitempty"`
	Sizes map[string]int      `json:"sizes,omitempty"` // of the sink positions
}

func (p *parts) pack() ([]byte, error) {
	h := packedHead{p.Units, p.Feeds, map[string]int{}}
	var positions []byte
	for _, name := range slices.Sorted(maps.Keys(p.Sinks)) {
		h.Sizes[name] = len(p.Sinks[name])
		positions = append(positions, p.Sinks[name]...)
	}
	first, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	all := append(append(first, '\n'), positions...)
	if len(all) > maxUnpacked {
		return nil, fmt.Errorf("it takes %d bytes, and at most %d are read", len(all), maxUnpacked)
	}
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.DefaultCompression)
	if err == nil {
		_, err = w.Write(all)
	}
	err = cmp.Or(err, w.Close())
	return b.Bytes(), err
}

// maxUnpacked bounds what the packed form inflates to: otherwise whoever may write the Lease could
// exhaust the memory of every replica, each second. 20,000 units take 1.7 MB.
const maxUnpacked = 4 << 20

func (p *parts) unpack(packed []byte) error {
	all, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(packed)), maxUnpacked+1))
	if err != nil {
		return err
	}
	if len(all) > maxUnpacked {
		return fmt.Errorf("it has more than %d bytes", maxUnpacked)
	}
	first, positions, _ := bytes.Cut(all, []byte{'\n'}) // JSON escapes it
	var h packedHead
	if err := json.Unmarshal(first, &h); err != nil {
		return err
	}
	p.Units, p.Feeds = h.Units, h.Feeds
	for _, name := range slices.Sorted(maps.Keys(h.Sizes)) {
		size := h.Sizes[name]
		if size < 0 || size > len(positions) {
			return fmt.Errorf("the position of sink %.100q has %d bytes", name, size)
		}
		if p.Sinks == nil {
			p.Sinks = map[string][]byte{}
		}
		p.Sinks[name], positions = positions[:size:size], positions[size:]
	}
	return nil
}

func decode(encoded string) (Progress, error) {
	var in leaseText
	if err := json.Unmarshal([]byte(encoded), &in); err != nil {
		return Progress{}, err
	}
	if in.Format != textFormat {
		return Progress{}, fmt.Errorf("format %d is of another version of the bridge", in.Format)
	}
	if in.Packed != nil {
		in.parts = parts{}
		if err := in.unpack(in.Packed); err != nil {
			return Progress{}, fmt.Errorf("unpack: %w", err)
		}
	}
	for name, u := range in.Units {
		if min(u.Epoch, u.Selectors) < 0 || max(u.Epoch, u.Selectors) > MaxCount {
			return Progress{}, fmt.Errorf("unit %.100q has the epoch %d and the selection %d", name,
				u.Epoch, u.Selectors)
		}
	}
	return Progress{
		Units: in.Units, Sinks: in.Sinks, Feeds: in.Feeds, Version: in.Version,
		RedactionKey: in.RedactionKey,
	}, nil
}

// LeaderState is where a replica stands to its leader, for one sink of one unit.
type LeaderState struct {
	// Progress is the leader's. Once this replica leads, it is the last of the leader before.
	Progress Unit
	// Ended: the leader has ended the unit, after everything was delivered.
	Ended bool
	// Leads: this replica publishes.
	Leads bool
}

// Change is what an entry of this replica's change log says of versions.
type Change struct {
	// Version of the API server up to which the leader must have delivered everything.
	Version resource.Version
	// Epoch of the API server's versions that Version is of: versions of different epochs can't be
	// compared.
	Epoch int
	// OfList is set in place of Version for what is about a whole list: only the list's end says as
	// of which version it is.
	OfList bool
	// Repeats: it is nothing new.
	Repeats bool
	// Key of the object that it is of; "" for none.
	Key resource.Key
	// Selection is the version of the Namespaces that this replica knew of by then; "" where none
	// are selected by their labels.
	Selection resource.Version
}

// Seen is how many of the API server's versions this replica has seen. Complete is not set during a
// list, nor before the first.
type Seen struct {
	From     resource.Version // since then nothing is missing
	Epoch    int
	Complete bool
}

// Covers reports whether a change has reached the sink by the leader, so that this replica does not
// send it.
func Covers(c *Change, s *LeaderState, h *Seen) bool {
	p := &s.Progress
	switch {
	case c.Repeats || s.Ended: // who follows leaves that to the leader
		return !s.Leads
	case p.Delivered == "" || c.Epoch > p.Epoch:
		return false
	case c.Selection != "" && !c.Selection.NotNewer(p.Selection):
		return false // the leader may not know yet that the object is selected, or is not
	case c.Epoch < p.Epoch:
		return true // before the leader listed what came after, it has delivered all of it
	case c.OfList:
		return h.Complete && h.Epoch == p.Epoch && h.From.NotNewer(p.Delivered)
	default:
		return c.Version.NotNewer(p.Delivered) || p.Front.has(c)
	}
}

func (f *NewestVersion) has(c *Change) bool {
	return f != nil && c.Key != "" && c.Version == f.Version &&
		slices.Contains(f.Objects, c.Key.Digest())
}
