package event

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/kubebridge/bridge/internal/resource"
)

// composedAttributes are the attributes of an object's event that have to be put together. They
// share one string: one allocation for each event.
type composedAttributes struct{ id, path, key, sequence string }

// prefixes are the parts of composedAttributes that are the same for all events of a Maker.
type prefixes struct {
	apiVersion string
	api        string // "api/v1", "apis/apps/v1"
	resource   string // "deployments"
	group      string // "deployments.apps"
}

func newPrefixes(t resource.Type) prefixes {
	p := prefixes{apiVersion: t.APIVersion(), resource: t.Resource, group: t.String()}
	p.api = strings.TrimSuffix(t.CollectionPath(""), "/"+t.Resource)
	return p
}

// partitionKey returns the key of an object's events, as compose writes it.
func (p *prefixes) partitionKey(namespace, name string) string {
	return p.group + "/" + namespace + "/" + name
}

// compose makes the attributes of a change that have to be put together.
func (m *Maker) compose(c *Change, namespace, name string) composedAttributes {
	p := &m.prefixes
	var b strings.Builder
	b.Grow(len(c.UID) + 2*len(c.Version) + len(p.api) + 2*len(namespace) + 2*len(name) +
		len(p.resource) + len(p.group) + 2*len(c.Entered) + 128)
	m.writeID(&b, c)
	id := b.Len()
	b.WriteString(p.api)
	if namespace != "" {
		b.WriteString("/namespaces/")
		b.WriteString(namespace)
	}
	b.WriteByte('/')
	b.WriteString(p.resource)
	b.WriteByte('/')
	b.WriteString(name)
	path := b.Len()
	b.WriteString(p.group)
	b.WriteByte('/')
	b.WriteString(namespace)
	b.WriteByte('/')
	b.WriteString(name)
	key := b.Len()
	writeSequence(&b, c)
	s := b.String()
	return composedAttributes{id: s[:id], path: s[id:path], key: s[path:key], sequence: s[key:]}
}

// writeSequence writes what sorts all events of one object, by its name, as text: the era, the
// version, and a Deleted behind the state that it ends. An inferred Deleted has the version as of
// which the object is gone: the stream may have later states than the one that is known. An object
// of a namespace that is selected once more may come in a version from before its delete. So the
// version of the Namespace is in front of its versions, and sorts behind all that have none.
func writeSequence(b *strings.Builder, c *Change) {
	c.writeEra(b)
	if c.Entered != "" {
		b.WriteString("entered.")
		writePadded(b, c.Entered)
		b.WriteByte('.')
	}
	if c.Op != Deleted {
		writePadded(b, c.Version)
		return
	}
	writePadded(b, cmp.Or(c.GoneAsOf, c.Version))
	b.WriteString(".deleted")
}

// writeID writes the id of a change. An object dies once, whether the watch or a relist reports it;
// it may leave a selector more than once, with another version each time. Where the API server
// selects, it is unknown which of the two it was, and the version before distinguishes one leaving
// from the next. An object of a namespace that comes into the selection again may come in a
// version that was reported before: so its ids have the version of the Namespace; and all ids have
// their Era.
func (m *Maker) writeID(b *strings.Builder, c *Change) {
	b.WriteString(c.UID)
	b.WriteByte('/')
	switch {
	case c.Op == Synced:
		b.WriteString(string(c.Version))
		b.WriteString("/sync/")
		b.WriteString(strconv.FormatInt(c.Round, 10))
	case c.Op == Deleted && c.Left != "":
		b.WriteString(string(c.Left))
		b.WriteString("/left")
	case c.Op == Deleted && m.cfg.Selective && !(m.cfg.Exact && c.Cause == CauseDeleted):
		b.WriteString(string(c.Before))
		b.WriteString("/deleted")
	case c.Op == Deleted:
		b.WriteString("deleted")
	default:
		b.WriteString(string(c.Version))
	}
	if c.Entered != "" {
		b.WriteString("/entered/")
		b.WriteString(string(c.Entered))
	}
	c.write(b)
}

// CustomAttribute makes an attribute of a value in the object.
type CustomAttribute struct {
	// Name of the attribute; see CheckAttribute.
	Name string
	// Path of the value, without a *. What is no text, number or boolean gives no attribute.
	Path resource.Path
}

// validAttribute is what CloudEvents asks for. The SDK also takes capitals, which it makes lower
// case, a digit at the beginning, and names longer than 20.
var validAttribute = regexp.MustCompile(`^[a-z][a-z0-9]{0,19}$`)

// reservedNames are the names that mean something else here.
var reservedNames = strings.Fields(`data partitionkey sequence sequencetype apiversion kind
	informer resource namespace name uid resourceversion previous changed timesource notbefore manager managersubresource manageroperation
	lastmanager cause initial inferred owners ownerkind ownername traceparent tracestate
	actor actorgrade impersonator verb auditid
	deadletterreason deadletterattempts deadlettersubject deadlettertopic deadletterurl truncated originalsize originalsha256 oversize dataref informerdata omittedattributes cluster apigroup op`)

// CheckAttribute refuses what can't be the name of a custom attribute.
func CheckAttribute(name string) error {
	if !validAttribute.MatchString(name) {
		return fmt.Errorf("want at most 20 lower-case letters and digits, beginning "+
			"with a letter, got %q", name)
	}
	probe := cloudevents.New()
	if err := probe.Context.SetExtension(name, ""); err != nil || slices.Contains(reservedNames, name) {
		return fmt.Errorf("%q is an attribute that every event may have; take another name", name)
	}
	return nil
}

// extensions returns the attributes of an event beside its own, nil for none.
func (m *Maker) extensions(c *Change) []Attribute {
	if len(m.cfg.CustomAttributes) == 0 && len(c.Owners) == 0 {
		return nil
	}
	list := make([]Attribute, 0, len(m.cfg.CustomAttributes)+4)
	var omitted []string
	room := maxCustomAttributes
	for _, l := range m.cfg.CustomAttributes {
		value := scalar(l.Path.Find(c.Object.Raw))
		if len(value) > room {
			omitted = append(omitted, l.Name)
			continue
		}
		if room -= len(value); value != "" {
			list = append(list, Attribute{l.Name, value})
		}
	}
	if len(omitted) > 0 {
		list = append(list, Attribute{attrOmitted, strings.Join(omitted, ",")})
	}
	if n := len(c.Owners); n > 0 {
		list = append(list, Attribute{"owners", ownerChain(c.Owners)})
		if top := c.Owners[n-1]; top != resource.MoreOwners {
			list = append(list, Attribute{"ownerkind", top.Kind}, Attribute{"ownername", top.Name})
		}
	}
	return list
}

// maxCustomAttributes bounds what all custom attributes of an event have together, in bytes: a
// broker takes 64 KiB of headers, and an annotation may have 256. What does not fit is left out,
// and named in the attribute attrOmitted.
const (
	maxCustomAttributes = 16 << 10
	attrOmitted         = "omittedattributes"
)

// ownerChain is "ReplicaSet/web-5d4,Deployment/web".
func ownerChain(owners []resource.Owner) string {
	names := make([]string, len(owners))
	for i, o := range owners {
		if names[i] = o.Kind + "/" + o.Name; o == resource.MoreOwners {
			names[i] = o.Name
		}
	}
	return strings.Join(names, ",")
}

// scalar returns the text of a JSON text, number or boolean; "" of everything else, and of what an
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
