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
)

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
