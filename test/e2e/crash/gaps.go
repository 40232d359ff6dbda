package crash

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/kubebridge/bridge/test/e2e/read"
)

// gap is an interval of versions of one resource that a stream says it does not have.
type gap struct {
	after uint64 // the last version before it
	to    uint64 // as the gap event reports; the list is no older
	until uint64 // version of the list that healed it
}

// covers reports whether a version may be missing.
func (g gap) covers(version uint64) bool { return g.after < version && version <= g.until }

// gaps are those of a stream, by resource ("deployments.apps"), and reported is the number of gap
// events. What was before the first list is one too: of that, a snapshot shows the newest versions
// only.
func gaps(events []read.Event) (found map[string][]gap, reported int, err error) {
	found = map[string][]gap{}
	open := map[string][]gap{} // waiting for the list that heals them
	for i := range events {
		e := &events[i]
		resource := e.GroupResource()
		switch e.Type() {
		case "dev.kubebridge.informer.gap":
			g, err := gapOf(e)
			if err != nil {
				return nil, 0, err
			}
			reported++
			open[resource] = append(open[resource], g)
		case "dev.kubebridge.informer.synced":
			version, err := number(e.Attribute("resourceversion"))
			if err != nil {
				return nil, 0, err
			}
			if found[resource] == nil {
				open[resource] = append(open[resource], gap{to: version})
			}
			for _, g := range open[resource] {
				g.until = max(version, g.to)
				found[resource] = append(found[resource], g)
			}
			delete(open, resource)
		}
	}
	for resource, unhealed := range open { // the list's end was reported before, under the same id
		for _, g := range unhealed {
			g.until = g.to
			found[resource] = append(found[resource], g)
		}
	}
	return found, reported, nil
}

func gapOf(e *read.Event) (g gap, err error) {
	var data struct {
		From string `json:"from"`
		To   string `json:"to"`
	}
	if err := json.Unmarshal(e.Data(), &data); err != nil {
		return g, fmt.Errorf("gap event %s: %w", e.ID(), err)
	}
	if g.after, err = number(data.From); err != nil {
		return g, fmt.Errorf("gap event %s: %w", e.ID(), err)
	}
	g.to, err = number(data.To)
	return g, err
}

func number(version string) (uint64, error) { return strconv.ParseUint(version, 10, 64) }
