package event

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/kubebridge/bridge/internal/resource"
)

// Lift makes an attribute of a value in the object.
type Lift struct {
	// Name of the attribute; see CheckAttribute.
	Name string
	// Path of the value, without a *. What is no text, number or boolean gives no attribute.
	Path resource.Path
}

// validAttribute is what CloudEvents asks for; names should not be longer than 20.
var validAttribute = regexp.MustCompile(`^[a-z][a-z0-9]{0,19}$`)

// taken are the names that mean something else, in CloudEvents or here.
var taken = strings.Fields(`specversion id source type subject time datacontenttype dataschema data partitionkey sequence sequencetype apiversion kind
	informer resource namespace name uid resourceversion previous timesource manager managersubresource manageroperation
	lastmanager cause initial inferred owners ownerkind ownername traceparent tracestate
	deadletterreason deadletterattempts deadlettersubject deadlettertopic deadletterurl truncated originalsize originalsha256 oversize dataref informerdata`)

// CheckAttribute refuses what can't be the name of an attribute of one's own.
func CheckAttribute(name string) error {
	if !validAttribute.MatchString(name) {
		return fmt.Errorf("want at most 20 lower-case letters and digits, beginning "+
			"with a letter, got %q", name)
	}
	if slices.Contains(taken, name) {
		return fmt.Errorf("%q is an attribute that every event may have; take another name", name)
	}
	return nil
}

// extensions are the attributes of an event beside its own, nil for none.
func (m *Maker) extensions(c *Change) []Attribute {
	if len(m.cfg.Lifts) == 0 && len(c.Owners) == 0 {
		return nil
	}
	list := make([]Attribute, 0, len(m.cfg.Lifts)+3)
	for _, l := range m.cfg.Lifts {
		if value := scalar(l.Path.Find(c.Object.Raw)); value != "" {
			list = append(list, Attribute{l.Name, value})
		}
	}
	if n := len(c.Owners); n > 0 {
		top := c.Owners[n-1]
		list = append(list, Attribute{"owners", chain(c.Owners)}, Attribute{"ownerkind", top.Kind},
			Attribute{"ownername", top.Name})
	}
	return list
}

// chain is "ReplicaSet/web-5d4,Deployment/web".
func chain(owners []resource.Owner) string {
	names := make([]string, len(owners))
	for i, o := range owners {
		names[i] = o.Kind + "/" + o.Name
	}
	return strings.Join(names, ",")
}

// scalar is the text of a JSON text, number or boolean; "" of everything else, and of what an
// attribute may not hold.
func scalar(raw []byte) string {
	if len(raw) == 0 || raw[0] == '{' || raw[0] == '[' || raw[0] == 'n' {
		return ""
	}
	if raw[0] != '"' {
		return string(raw)
	}
	text, err := jsontext.AppendUnquote(nil, raw)
	if err != nil || slices.ContainsFunc(text, func(c byte) bool { return c < ' ' || c == 0x7f }) {
		return ""
	}
	return string(text)
}
