package standby

import (
	"bytes"
	"cmp"
	"compress/flate"
	"encoding/gob"
	"encoding/json"
	"fmt"
	"maps"
)

// Formats of the text on the board. A replica that knows the first only reads the units out of it, and so the positions are packed before they are.
const (
	formatPlain  = 1
	formatPacked = 2 // the units are packed too
)

// comfortable is up to where the text is left as it is, for people to read.
const comfortable = 16 << 10

// text is what lies on the board, as JSON.
type text struct {
	Format int               `json:"format"`
	Units  map[string]Unit   `json:"units,omitempty"`
	Sinks  map[string][]byte `json:"sinks,omitempty"`
	// Packed has what the others have not.
	Packed []byte `json:"packed,omitempty"`

	Feeds   map[string][]string `json:"feeds,omitempty"`
	Version string              `json:"config,omitempty"`
}

// parcel is what can be packed. Positions are mostly digits: that takes about a third.
type parcel struct {
	Units map[string]Unit
	Feeds map[string][]string
	Sinks map[string][]byte
}

// Told is what a Put has written.
type Told struct {
	Bytes int
	// Short says that positions of sinks were too large, and that their outlines were told, or nothing.
	Short bool
}

// encode gives the text: as it is, or packed as far as it has to be. Where even that is too large, with the outlines of the positions; and
// at last without them, and what was sent and not told comes again.
func (p *Progress) encode(most int) (string, Told, error) {
	outlines := maps.Clone(p.Sinks)
	maps.Copy(outlines, p.Outlines)
	var size int
	for _, try := range []struct {
		most  int
		short bool
		form  func() (text, error)
	}{
		{min(comfortable, most), false, func() (text, error) { return p.plain(), nil }},
		{most, false, func() (text, error) { return p.packed(p.Sinks, false) }},
		{most, false, func() (text, error) { return p.packed(p.Sinks, true) }},
		{most, true, func() (text, error) { return p.packed(outlines, true) }},
		{most, true, func() (text, error) { return p.packed(nil, true) }},
	} {
		form, err := try.form()
		if err != nil {
			return "", Told{}, err
		}
		b, err := json.Marshal(form)
		if err != nil {
			return "", Told{}, err
		}
		if size = len(b); size <= try.most {
			return string(b), Told{Bytes: size, Short: try.short}, nil
		}
	}
	return "", Told{}, fmt.Errorf("the progress of %d units takes %d bytes, and the board holds %d", len(p.Units), size, most)
}

func (p *Progress) plain() text {
	return text{Format: formatPlain, Units: p.Units, Sinks: p.Sinks, Feeds: p.Feeds, Version: p.Version}
}

// packed has the positions packed, and the units too where that is asked for.
func (p *Progress) packed(sinks map[string][]byte, units bool) (text, error) {
	out := text{Format: formatPlain, Units: p.Units, Feeds: p.Feeds, Version: p.Version}
	in := parcel{Sinks: sinks}
	if units {
		out.Format, out.Units, out.Feeds = formatPacked, nil, nil
		in.Units, in.Feeds = p.Units, p.Feeds
	}
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.DefaultCompression)
	if err == nil {
		err = cmp.Or(gob.NewEncoder(w).Encode(in), w.Close())
	}
	out.Packed = b.Bytes()
	return out, err
}

func decode(encoded string) (Progress, error) {
	var in text
	if err := json.Unmarshal([]byte(encoded), &in); err != nil {
		return Progress{}, err
	}
	if in.Format != formatPlain && in.Format != formatPacked {
		return Progress{}, fmt.Errorf("format %d is of another version of the bridge", in.Format)
	}
	p := Progress{Units: in.Units, Sinks: in.Sinks, Feeds: in.Feeds, Version: in.Version}
	if in.Packed == nil {
		return p, nil
	}
	var more parcel
	if err := gob.NewDecoder(flate.NewReader(bytes.NewReader(in.Packed))).Decode(&more); err != nil {
		return Progress{}, fmt.Errorf("unpack: %w", err)
	}
	p.Sinks = more.Sinks
	if in.Format == formatPacked {
		p.Units, p.Feeds = more.Units, more.Feeds
	}
	return p, nil
}
