package standby

import (
	"encoding/json"
	"fmt"

	"github.com/kubebridge/bridge/internal/resource"
)

// Progress is what the leader tells the others.
type Progress struct {
	// Units by name.
	Units map[string]Unit
	// Feeds are the sinks that an informer's units have, by the informer's name: a unit's progress is about these. nil for not known.
	Feeds map[string][]string
	// Version of the configuration that the leader has taken; "" for none.
	Version string
	// Claim is the replica that has asked for the lease, since it alone can send something; "" for none.
	Claim string
	// Sinks are positions of their brokers' logs, by name: everything lies behind them that was sent and that Units do not cover yet.
	Sinks map[string][]byte
}

// Unit is the progress of one unit.
type Unit struct {
	// Scope is what the unit selects. Progress of another selection says nothing.
	Scope string `json:"s,omitempty"`
	// Delivered is the version of the API server up to which every change is with all sinks of the unit; "" for nothing yet.
	Delivered resource.Version `json:"v,omitempty"`
	// Epoch of the server's history that Delivered is of.
	Epoch int `json:"e,omitempty"`
	// Selection is the version of the Namespaces up to which all that comes of changes of the selected ones is with all sinks; "" where none
	// are selected by their labels.
	Selection resource.Version `json:"n,omitempty"`
	// Selectors is how often the unit has selected something else before, for the ids.
	Selectors int `json:"l,omitempty"`
	// LackedAfter and Lacked are a range of versions of which a leader has not sent each change: it began, with a list as of Lacked, without
	// knowing what the one before had not delivered, which is all behind LackedAfter. A gap event tells of it. "" in Lacked: there was none.
	LackedAfter resource.Version `json:"a,omitempty"`
	Lacked      resource.Version `json:"u,omitempty"`
}

// progressFormat is of the text on the board.
const progressFormat = 1

// text is what lies on the board, as JSON.
type text struct {
	Format int               `json:"format"`
	Units  map[string]Unit   `json:"units"`
	Sinks  map[string][]byte `json:"sinks,omitempty"`

	Feeds   map[string][]string `json:"feeds,omitempty"`
	Version string              `json:"config,omitempty"`
}

// encode gives the text, without the sinks' positions where it would be too large with them: then what was sent and not told
// comes again.
func (p *Progress) encode(most int) (string, error) {
	out := text{Format: progressFormat, Units: p.Units, Sinks: p.Sinks, Feeds: p.Feeds, Version: p.Version}
	b, err := json.Marshal(out)
	if err == nil && len(b) > most {
		out.Sinks = nil
		b, err = json.Marshal(out)
	}
	if err == nil && len(b) > most {
		err = fmt.Errorf("the progress of %d units takes %d bytes, and the board holds %d", len(p.Units), len(b), most)
	}
	return string(b), err
}

func decode(encoded string) (Progress, error) {
	var in text
	if err := json.Unmarshal([]byte(encoded), &in); err != nil {
		return Progress{}, err
	}
	if in.Format != progressFormat {
		return Progress{}, fmt.Errorf("format %d is of another version of the bridge", in.Format)
	}
	return Progress{Units: in.Units, Sinks: in.Sinks, Feeds: in.Feeds, Version: in.Version}, nil
}
